"""Elements of a known type that a sink stages as columns, and its committer reads back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from forkpoint.connectors.base import JSON, SinkBatch, SinkContext, SinkWriter
from forkpoint.connectors.committing import CommitterContext
from forkpoint.connectors.packing import pack_columns, unpack_columns
from forkpoint.errors import TypeNotSupported
from forkpoint.types import TypeInformation, from_description
from forkpoint.types.records import RecordType

_ROWS = 20_000  # elements that a committer holds as objects at a time


class RowWriter(SinkWriter[Any]):
    """Stages records. A committable: ``{"type": the type's description, "rows": what was staged, "count": how many}``."""

    def __init__(self, context: SinkContext, feature: str) -> None:
        self._context = context
        self._feature = feature
        self._type: TypeInformation[Any] | None = None
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: SinkBatch[Any]) -> None:
        if self._type is None:
            self._type = record_type(batch.type, self._feature, self._context.uid)
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
        return [{"type": self._type.describe(), "rows": stored, "count": sum(map(len, self._batches))}]


def record_type(type: TypeInformation[Any] | None, feature: str, uid: str) -> RecordType:
    """The type of elements with named fields. Raises TypeNotSupported, which names the sink, for others."""
    if not isinstance(type, RecordType):
        raise TypeNotSupported(
            f"{feature} {uid!r} writes records with named fields, but the stream's type is {type or 'not declared'}; declare a "
            "NamedTuple, dataclass or Row type as the output type of the function before the sink"
        )
    return type


def staged_rows(context: CommitterContext, committable: JSON) -> Iterator[list[Any]]:
    """The elements that a RowWriter has staged, in order and in runs; records of classes as namedtuples or Rows."""
    type = from_description(committable["type"])
    for batch in unpack_columns(context.staged(committable["rows"])):
        for start in range(0, len(batch), _ROWS):
            yield type.from_columns(batch.slice(start, _ROWS).columns)
