"""The table connector 'nexmark' for forkpoint, found by its entry point where this folder is on Python's path.

The options are those of the published connector, ``out-of-order.group-size``, and ``events.per-epoch``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from nexmark_events import events

from forkpoint.connectors.counter import CounterEnumerator
from forkpoint.contract.source import JSON, Source, SourceReader, SplitEnumerator, SplitRange
from forkpoint.relational.changes import row_type
from forkpoint.table.connectors.options import TableOptions
from forkpoint.table.connectors.registry import Connector
from forkpoint.types import TypeInformation

_PIECE = 65_536


@dataclass(frozen=True)
class NexmarkSource(Source[Any]):
    """``stop``: how many events. ``per_second``: of event time. ``group``: as of ``events``. ``per_epoch``: the most of them."""

    type: TypeInformation[Any]
    stop: int
    per_second: int
    group: int
    per_epoch: int

    def output_type(self) -> TypeInformation[Any]:
        return self.type

    @property
    def bounded(self) -> bool:
        return True

    def create_enumerator(self, position: JSON | None) -> SplitEnumerator:
        return CounterEnumerator(0 if position is None else position["next"], self.stop, self.per_epoch)

    def create_reader(self) -> SourceReader[Any]:
        return _Reader(self)


class _Reader(SourceReader[Any]):
    def __init__(self, source: NexmarkSource) -> None:
        self._source = source

    def read(self, range: SplitRange) -> Iterator[pa.RecordBatch]:
        source = self._source
        for start in np.arange(range.start, range.end, _PIECE).tolist():
            numbers = np.arange(start, min(start + _PIECE, range.end), dtype=np.int64)
            found = events(numbers, source.per_second, source.group)
            columns = [column.cast(field.type) for column, field in zip(found.columns, source.type.arrow_schema, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=source.type.arrow_schema)


def _source(options: TableOptions) -> Source[Any]:
    numbers = (("events.num", 1_000_000), ("first-event.rate", 10_000), ("out-of-order.group-size", 1))
    found = [options.number(name, default) or default for name, default in (*numbers, ("events.per-epoch", 1_000_000))]
    return NexmarkSource(row_type(options.table.schema), *found)


CONNECTOR = Connector(_source)
