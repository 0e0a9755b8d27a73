"""Rows and JSON as values of a declared type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from forkpoint.connectors.formats.records import RecordConverter
from forkpoint.types import TypeInformation


class Converter:
    """Converts values to the type, if any. ``as_encoded``: see `RecordConverter`."""

    def __init__(self, type: TypeInformation | None, *, as_encoded: bool = False) -> None:
        self._type = type
        self._records = RecordConverter(type, as_encoded=as_encoded)

    def convert(self, raws: Sequence[Any]) -> tuple[list[Any], str | None]:
        """The values, or the first problem, if any."""
        if self._type is None:
            return list(raws), None
        elements, problems = self._records.convert(list(raws))
        if problems:
            index, problem = problems[0]
            return [], f"{raws[index]!r} is not valid for {self._type}: {problem}"
        if isinstance(elements, pa.RecordBatch):
            return self._type.from_columns(elements.columns), None
        return list(elements), None
