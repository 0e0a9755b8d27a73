"""Prints the changes of a table, as Flink's print connector does: ``+I[a, 1]``, ``-D[a, 1]``."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from forkpoint.connectors.sinks import PrintSink
from forkpoint.contract.sink import SinkBatch, SinkContext, SinkWriter
from forkpoint.contract.source import JSON
from forkpoint.relational.changes import WEIGHT


class ChangelogPrintSink(PrintSink):
    def create_writer(self, context: SinkContext) -> SinkWriter:
        return _Writer(self._prefix)


class _Writer(SinkWriter):
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._lines: list[str] = []

    def write(self, batch: SinkBatch[Any]) -> None:
        names = [field.name for field in (batch.type.fields or ())] if batch.type is not None else []
        self._lines += [self._prefix + line_of(tuple(row), weighted=WEIGHT in names) for row in batch.values]

    def prepare_commit(self) -> list[JSON]:
        return [self._lines] if self._lines else []


def line_of(values: tuple[Any, ...], *, weighted: bool) -> str:
    """A change as Flink prints it; the weight, if there is one, is the last value."""
    weight = values[-1] if weighted else 1
    shown = ", ".join(_text(value) for value in (values[:-1] if weighted else values))
    return f"{'+I' if weight > 0 else '-D'}[{shown}]"


def _text(value: Any) -> str:
    if value is None:
        return "null"
    return f"{value:f}" if isinstance(value, Decimal) else str(value)
