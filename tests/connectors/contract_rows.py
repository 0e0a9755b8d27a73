"""The rows of `SinkContract` in systems that store records, and in those that store bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import forkpoint as fp
from forkpoint.testing import Row


class Line(NamedTuple):
    """A row as a record."""

    number: int
    text: str


class Lines(fp.SerializationSchema[Row]):
    """A row as text."""

    def serialize(self, element: Row) -> bytes:
        return f"{element[0]}:{element[1]}".encode()


def rows(texts: Iterable[str]) -> list[Row]:
    """What `Lines` has written."""
    split = (text.partition(":") for text in texts)
    return [(int(number), text) for number, _, text in split]
