"""Prints the changes of a table, as Flink's print connector does: ``+I[a, 1]``, ``-D[a, 1]``."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, time
from decimal import Decimal
from typing import Any

import numpy as np

from forkpoint.connectors.sinks import PrintSink
from forkpoint.contract.sink import SinkBatch, SinkContext, SinkWriter
from forkpoint.contract.source import JSON
from forkpoint.relational.changes import WEIGHT
from forkpoint.types import Row, TypeInformation
from forkpoint.types.kinds.containers import present


class ChangelogPrintSink(PrintSink):
    def create_writer(self, context: SinkContext) -> SinkWriter:
        return _Writer(self._prefix)


class _Writer(SinkWriter):
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._lines: list[str] = []

    def write(self, batch: SinkBatch[Any]) -> None:
        fields = () if batch.type is None else batch.type.fields or ()
        weighted = WEIGHT in [field.name for field in fields]
        lines = (line_of(short_floats(row, batch.type), weighted=weighted) for row in batch.values)
        self._lines += [self._prefix + line for line in lines]

    def prepare_commit(self) -> list[JSON]:
        return [self._lines] if self._lines else []


def short_floats(row: Iterable[Any], of: TypeInformation[Any] | None) -> tuple[Any, ...]:
    """A row whose values of type FLOAT print with the digits that they have."""
    fields = () if of is None else of.fields or ()
    floats = {at for at, field in enumerate(fields) if present(field.type).kind == "float"}
    return tuple(np.float32(each) if at in floats and each is not None else each for at, each in enumerate(row))


def line_of(values: tuple[Any, ...], *, weighted: bool) -> str:
    """A change as Flink prints it; the weight, if there is one, is the last value."""
    weight = values[-1] if weighted else 1
    shown = ", ".join(text_of(value) for value in (values[:-1] if weighted else values))
    return f"{'+I' if weight > 0 else '-D'}[{shown}]"


def text_of(value: Any) -> str:
    """A value as Java's text."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case Decimal():
            return f"{value:f}"
        case datetime() if value.tzinfo is not None:
            return f"{value.date()}T{_clock(value, '%H:%M:%S')}Z"
        case datetime():
            return f"{value.date()}T{_clock(value, '%H:%M')}"
        case time():
            return _clock(value, "%H:%M")
        case bytes():
            return f"[{', '.join(map(str, value))}]"
        case list():
            return f"[{', '.join(map(text_of, value))}]"
        case dict():
            return f"{{{', '.join(f'{text_of(key)}={text_of(of)}' for key, of in value.items())}}}"
        case Row():
            return f"+I[{', '.join(map(text_of, value))}]"
    return str(value)


def _clock(value: datetime | time, least: str) -> str:
    """A time of the day with the digits that it needs. ``least``: "%H:%M" or "%H:%M:%S"."""
    if not value.microsecond:
        return value.strftime("%H:%M:%S" if value.second else least)
    digits = f"{value.microsecond:06}"
    return f"{value:%H:%M:%S}.{digits[:3] if digits.endswith('000') else digits}"
