"""Writers of table sinks: data files in the table's directory for appended rows, staged rows for changes by key."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Generic

import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.connectors.rows import pack_columns
from forkpoint.contract.sink import SinkBatch, SinkContext, SinkWriter
from forkpoint.contract.source import JSON
from forkpoint.types.kinds.records import RecordType
from forkpoint.types.variables import T_contra
from forkpoint_lakehouse.columns import (
    DELETED,
    changes,
    check_key,
    check_key_columns,
    fit,
    last_of_each_key,
    row_schema,
    to_batch,
    type_of_rows,
)
from forkpoint_lakehouse.format import DataFiles, TableFormat
from forkpoint_lakehouse.uncommitted import Uncommitted

FILE_BYTES = 128 << 20
"""The amount of a subtask's output that is buffered in memory and becomes one data file per partition."""

SMALL_BYTES = FILE_BYTES // 8
"""Smaller output is combined with other epochs' output."""


class _Writer(SinkWriter[T_contra], Generic[T_contra]):
    def __init__(self, context: SinkContext, table: TableFormat) -> None:
        self._context = context
        self._table = table
        self._type: RecordType | None = None
        self._files: DataFiles | None = None
        self._held: list[pa.Table] = []
        self._bytes = 0

    def _columns(self, batch: SinkBatch[T_contra]) -> pa.RecordBatch:
        if self._type is None:
            self._type = type_of_rows(batch.type, self._table.name)
        return to_batch(batch, self._type)

    def _open(self, rows: pa.Schema) -> DataFiles:
        if self._files is None:
            self._files = self._table.open(rows)
        return self._files


class AppendWriter(_Writer[T_contra]):
    """Writes a data file as soon as there are enough rows or the epoch ends."""

    def __init__(self, context: SinkContext, table: TableFormat) -> None:
        super().__init__(context, table)
        self._uncommitted = Uncommitted(context.state_root, context.job, context.uid)
        self._written: list[JSON] = []
        self._notes: dict[str, list[str]] = {}

    def write(self, batch: SinkBatch[T_contra]) -> None:
        columns = self._columns(batch)
        files = self._open(columns.schema)
        rows = fit(pa.Table.from_batches([columns]), files.schema, self._table.name)
        files.check(rows)
        self._held.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= FILE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._held:
            return
        assert self._files is not None
        context, number = self._context, len(self._notes)
        owner = zlib.crc32(f"{context.state_root}\n{context.job}\n{context.uid}".encode())
        name = f"{context.epoch:012d}-{context.subtask}-g{context.generation}-{context.attempt}-{number}-{owner:08x}"
        files = self._files.plan(pa.concat_tables(self._held).combine_chunks(), name)
        paths = [path for path, _ in files]
        note = self._uncommitted.note(context.epoch, f"{context.subtask}-{context.attempt}-{number}", paths)
        self._notes[note] = paths
        for path, part in files:
            self._written.append({**self._files.write(path, part), "note": note})
        self._held, self._bytes = [], 0

    def prepare_commit(self) -> list[JSON]:
        self._flush()
        return self._written

    def abort(self) -> None:
        self._held = []
        if self._files is not None and self._notes:
            self._files.remove([path for paths in self._notes.values() for path in paths])
            self._uncommitted.forget(list(self._notes))


class StagingAppendWriter(AppendWriter[T_contra]):
    """Writes a data file as soon as there are enough rows, and stages the epoch's remaining rows below the state root. The
    committer writes data files from several epochs' rows."""

    def prepare_commit(self) -> list[JSON]:
        if not self._held or self._bytes >= SMALL_BYTES:
            return super().prepare_commit()
        rows = pa.concat_tables(self._held)
        self._held, self._bytes = [], 0
        return [*self._written, {"appended": self._context.stage_file(pack(rows)), "rows": len(rows)}]


class UpsertWriter(_Writer[T_contra]):
    """Stages the last change per key below the state root."""

    def __init__(self, context: SinkContext, table: TableFormat, key: Sequence[str], stage: Callable[[bytes], JSON]) -> None:
        super().__init__(context, table)
        self._key = list(key)
        self._stage = stage

    def write(self, batch: SinkBatch[T_contra]) -> None:
        columns = self._columns(batch)
        assert self._type is not None
        schema = row_schema(self._type)
        check_key_columns(schema, self._key, self._table.name)
        files = self._open(schema)
        changed = changes(columns, self._type)
        rows = fit(changed.drop_columns([DELETED]), files.schema, self._table.name)
        check_key(rows, self._key, self._table.name)
        files.check(rows.filter(pc.invert(changed.column(DELETED))))
        self._held.append(rows.append_column(DELETED, changed.column(DELETED)))
        self._bytes += self._held[-1].nbytes
        if self._bytes >= FILE_BYTES:
            self._held = [last_of_each_key(pa.concat_tables(self._held), self._key)]
            self._bytes = 0

    def prepare_commit(self) -> list[JSON]:
        if not self._held:
            return []
        rows = last_of_each_key(pa.concat_tables(self._held), self._key)
        return [{"changes": self._stage(pack(rows)), "rows": len(rows)}]

    def abort(self) -> None:
        self._held = []


def pack(rows: pa.Table) -> bytes:
    """Packs rows for staging."""
    return pack_columns(rows.to_batches(), rows.schema)


def unpack(data: bytes) -> pa.Table:
    """The rows packed by ``pack``."""
    return pa.ipc.open_stream(data).read_all()
