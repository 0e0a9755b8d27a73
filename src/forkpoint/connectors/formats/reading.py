"""The base class of readers of formats: it handles records that cannot be read, and the times of all others.

All sources with formats share it. Their readers give a bad record's location and content.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from forkpoint.contract.format import Deserialized
from forkpoint.contract.source import Elements, ReaderContext, SideElements, SourceBatch, SourceReader
from forkpoint.errors import ConfigError, RecordParseError
from forkpoint.functions import OutputTag
from forkpoint.types import Instant, type_of
from forkpoint.types.variables import T

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class DeadLetter:
    """A record that a source could not read.

    ``source``: the source's uid. ``place``: the record's location, such as ``{"topic": "orders", "partition": "0", "offset":
    "7"}`` or ``{"file": "/in/a.json", "line": "3"}``. ``data``: its bytes. ``key``: its key's bytes, if any. ``problem``: why it
    cannot be read. ``time``: the processing time of the epoch that read it.
    """

    source: str
    place: dict[str, str]
    data: bytes | None
    key: bytes | None
    problem: str
    time: Instant


OnParseError: TypeAlias = Literal["fail", "skip"] | OutputTag[DeadLetter]
"""A source's handling of a record that it cannot read: fail, log and skip it, or send a `DeadLetter` to a side output."""


def check_on_parse_error(source: str, given: Any) -> None:
    """Raise ConfigError for an unknown value."""
    if isinstance(given, OutputTag):
        if given.type_info != type_of(DeadLetter):
            raise ConfigError(
                f"{source}: on_parse_error is an OutputTag of {given.type_info!r}; give OutputTag({given.tag_id!r}, DeadLetter)"
            )
    elif given not in ("fail", "skip"):
        raise ConfigError(f"{source}: on_parse_error is {given!r}; give 'fail' or 'skip', or an OutputTag of DeadLetter")


def side_outputs_of(on_parse_error: OnParseError) -> Collection[OutputTag[Any]]:
    """The side outputs of a source."""
    return (on_parse_error,) if isinstance(on_parse_error, OutputTag) else ()


@dataclass(frozen=True)
class Unread:
    """A bad record. ``what``: the beginning of the error message, before the problem. Other fields: see `DeadLetter`."""

    what: str
    place: Mapping[str, str]
    data: bytes | None
    key: bytes | None = None


class FormatReader(SourceReader[T]):
    """The base class of readers. ``remedy`` ends error messages."""

    def __init__(self, on_parse_error: OnParseError, remedy: str, log: logging.Logger) -> None:
        self._on_parse_error = on_parse_error
        self._remedy = remedy
        self._log = log
        self._context: ReaderContext | None = None

    def open(self, context: ReaderContext) -> None:
        self._context = context

    def _found(
        self,
        found: Deserialized[T],
        size: int,
        describe: Callable[[int], Unread],
        timestamps: npt.NDArray[np.int64] | None = None,
    ) -> Iterator[Elements[T] | SourceBatch[T]]:
        """The elements of ``size`` records, with the records' ``timestamps``. ``describe`` returns a bad record by its index."""
        letters = self._refused(found, describe) if found.bad else []
        if timestamps is None and not letters:
            if len(found.elements):
                yield found.elements
            return
        places = found.places(size)
        one_each = found.indices is None and not found.bad
        of_elements = timestamps if timestamps is None or one_each else timestamps[places]
        if not letters:
            if len(found.elements):
                yield SourceBatch(found.elements, of_elements)
            return
        at = np.array([index for index, _ in letters])
        assert isinstance(self._on_parse_error, OutputTag)
        side = SideElements(
            self._on_parse_error,
            [letter for _, letter in letters],
            np.searchsorted(places, at),
            None if timestamps is None else timestamps[at],
        )
        yield SourceBatch(found.elements, of_elements, [side])

    def _refused(self, found: Deserialized[T], describe: Callable[[int], Unread]) -> list[tuple[int, DeadLetter]]:
        """The dead letters of bad records, with their indices. With ``"fail"``, raises RecordParseError; with
        ``"skip"``, logs bad records."""
        letters = []
        for bad in sorted(found.bad, key=lambda each: each.index):
            record = describe(bad.index)
            message = f"{record.what}: {bad.problem}"
            if self._on_parse_error == "fail":
                raise RecordParseError(f"{message}. {self._remedy}")
            if self._on_parse_error == "skip":
                self._log.warning("%s; skipped", message)
            else:
                letters.append((bad.index, self._letter(record, bad.problem)))
        return letters

    def _letter(self, record: Unread, problem: str) -> DeadLetter:
        assert self._context is not None
        time = _EPOCH + timedelta(milliseconds=self._context.processing_time_ms)
        return DeadLetter(self._context.uid, dict(record.place), record.data, record.key, problem, time)
