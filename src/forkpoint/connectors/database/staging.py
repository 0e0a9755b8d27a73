"""Stages elements of a known type as columns, and reads them back in a committer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.connectors.rows import pack_columns, unpack_columns
from forkpoint.contract.sink import CommitterContext, SinkBatch, SinkContext, SinkWriter
from forkpoint.contract.source import JSON
from forkpoint.errors import TypeNotSupported
from forkpoint.types import TypeInformation, from_description
from forkpoint.types.kinds.records import RecordType

LARGE_BYTES = 1 << 19
"""Smaller rows are below all relevant limits of servers."""

_ROWS = 20_000  # elements that a committer has as objects at a time


class RowWriter(SinkWriter[Any]):
    """Stages records. A committable is ``{"type": the type's description, "rows": staged data, "count": number of rows}``, with
    ``"largest"``, the result of `largest_row`, if there are large rows."""

    def __init__(self, context: SinkContext, feature: str) -> None:
        self._context = context
        self._feature = feature
        self._type: TypeInformation[Any] | None = None
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: SinkBatch[Any]) -> None:
        if self._type is None:
            self._type = record_type(batch.type, self._feature)
        table = batch.table
        if table is None or table.schema != self._type.arrow_schema:
            columns = self._type.to_columns(batch.values)
            table = pa.RecordBatch.from_arrays(columns, schema=self._type.arrow_schema)
        if len(table):
            self._batches.append(table)

    def prepare_commit(self) -> list[JSON]:
        if not self._batches or self._type is None:
            return []
        stored = self._context.stage(pack_columns(self._batches, self._type.arrow_schema))
        count, largest = sum(map(len, self._batches)), largest_row(self._batches)
        described: JSON = {"type": self._type.describe(), "rows": stored, "count": count}
        return [{**described, "largest": largest} if largest else described]


def largest_row(batches: Sequence[pa.RecordBatch]) -> int:
    """A lower bound of the largest row's bytes of text and binary data, without collections; 0 if it is small."""
    largest = 0
    for batch in batches:
        if batch.nbytes < LARGE_BYTES:
            continue
        sizes = np.zeros(len(batch), np.int64)
        for column in batch.columns:
            if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
                sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        largest = max(largest, int(sizes.max()))
    return largest if largest >= LARGE_BYTES else 0


def record_type(type: TypeInformation[Any] | None, feature: str) -> RecordType:
    """The type of elements with named fields. Raises TypeNotSupported for any other type."""
    if not isinstance(type, RecordType):
        raise TypeNotSupported(
            f"{feature} writes records with named fields, but the stream's type is {type or 'not declared'}; declare a "
            "NamedTuple, dataclass or Row type as the output type of the function before the sink"
        )
    return type


def staged_rows(context: CommitterContext, committable: JSON) -> Iterator[list[Any]]:
    """The elements that a RowWriter has staged, in order, in runs. Records of classes become namedtuples or Rows."""
    type = from_description(committable["type"])
    for batch in unpack_columns(context.staged(committable["rows"])):
        for start in range(0, len(batch), _ROWS):
            yield type.from_columns(batch.slice(start, _ROWS).columns)
