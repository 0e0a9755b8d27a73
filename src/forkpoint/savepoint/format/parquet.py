"""Writes a state's Parquet files block by block, and reads them row group by row group."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forkpoint.checkpoint.format import checksum, damaged
from forkpoint.checkpoint.savepoint_manifest import ChangesFile, SavepointFile
from forkpoint.errors import SavepointCorrupt, TypeNotSupported
from forkpoint.savepoint.format.layout import METADATA_KEY, Layout
from forkpoint.savepoint.format.tasks import FileRef
from forkpoint.storage.base import Storage

_IDENTITY = ("uid", "name", "kind", "key_type", "value_type", "namespace_type")
BLOCK_ROWS = 65_536  # of a row group
_LEVEL = 1  # zstd: near the size of the higher levels at several times their speed
_INVALID_ROWS = (pa.ArrowException, msgspec.MsgspecError, TypeNotSupported, OverflowError, RecursionError, struct.error)


class PartWriter:
    """Writes the blocks of one file."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._sink = io.BytesIO()
        self._writer: Any = None
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        """Add a block, as one row group."""
        if table.num_rows:
            self._open().write_table(table, row_group_size=table.num_rows)
            self.rows += table.num_rows

    def finish(self) -> bytes:
        """The file's content; it has no rows if nothing was written."""
        self._open().close()
        return self._sink.getvalue()

    def _open(self) -> Any:
        if self._writer is None:
            schema = self._layout.schema
            # Dictionaries pay for text, which repeats, and for columns with long runs of one value.
            columns = [f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_boolean(f.type)]
            columns += [name for name in ("key_group", "subtask") if name in schema.names]
            options = {"compression": "zstd", "compression_level": _LEVEL, "use_dictionary": columns}
            self._writer = pq.ParquetWriter(self._sink, schema, **options)
        return self._writer


@dataclass(frozen=True)
class WrittenPart:
    """A file that a task wrote into a savepoint: its rows, bytes and SHA-256."""

    path: str
    entries: int
    size: int
    checksum: str

    def file(self, kg_start: int, kg_stop: int) -> SavepointFile:
        """The file's entry in ``savepoint.json``, with its range of key groups."""
        return SavepointFile(
            path=self.path, entries=self.entries, bytes=self.size, checksum=self.checksum, kg_start=kg_start, kg_stop=kg_stop
        )

    def changes(self) -> ChangesFile:
        """Its entry as a file of changes."""
        return ChangesFile(path=self.path, entries=self.entries, bytes=self.size, checksum=self.checksum)


def put_part(target: Storage, path: str, part: PartWriter) -> WrittenPart:
    data = part.finish()
    target.put(path, data)
    return WrittenPart(path, part.rows, len(data), checksum(data))


@dataclass(frozen=True)
class PartFile:
    """A file with ``rows`` rows."""

    ref: FileRef
    rows: int

    @property
    def name(self) -> str:
        return self.ref.name

    def tables(
        self, storage: Storage, layout: Layout, groups: tuple[int, int] | None = None, needed: Layout | None = None
    ) -> Iterator[pa.Table]:
        """The rows, a row group at a time, of the key groups ``groups`` or of all. ``needed``: the columns to read, by default
        those of ``layout``, which must have all columns of the file.

        Raises NotFound, and SavepointCorrupt if the file is damaged, belongs to another state, or has another number of rows.
        """
        data = self.ref.read(storage)
        with errors_naming(self.name):
            try:
                parquet = pq.ParquetFile(pa.BufferReader(data))
            except (pa.ArrowException, OSError) as error:
                raise damaged(self.name, f"is not a Parquet file: {error}") from error
            _check_schema(parquet.schema_arrow, layout.schema, self.name)
        self._check_count(parquet.metadata.num_rows)
        rows = 0
        columns = None if needed is None else needed.schema.names
        for table in _row_groups(parquet, self.name, groups, columns):
            rows += table.num_rows
            yield table
        if groups is None:
            self._check_count(rows)

    def _check_count(self, rows: int) -> None:
        if rows != self.rows:
            raise damaged(self.name, f"has {rows} rows, {self.rows} were recorded")


@contextmanager
def errors_naming(file: str) -> Iterator[None]:
    """Converts errors in a file's rows to a SavepointCorrupt that names the file."""
    try:
        yield
    except SavepointCorrupt as error:
        if file in str(error):
            raise
        raise damaged(file, str(error)) from error
    except (ValueError, TypeError, *_INVALID_ROWS) as error:
        raise damaged(file, f"its rows cannot be used: {error}") from error


def _row_groups(parquet: Any, file: str, groups: tuple[int, int] | None, columns: list[str] | None) -> Iterator[pa.Table]:
    for number in range(parquet.metadata.num_row_groups):
        if groups is not None:
            bounds = parquet.metadata.row_group(number).column(0).statistics
            if bounds is not None and bounds.has_min_max and (bounds.min >= groups[1] or bounds.max < groups[0]):
                continue
        try:
            table = parquet.read_row_group(number, columns, use_threads=False)
            table.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise damaged(file, f"row group {number} cannot be read: {error}") from error
        if groups is not None:
            column = table.column(0).fill_null(groups[0]).to_numpy()  # keeps rows with nulls; ``checked_tables`` refuses them
            wanted = (column >= groups[0]) & (column < groups[1])
            if not wanted.all():
                table = table.take(pa.array(np.flatnonzero(wanted)))
        if table.num_rows:
            yield table


def _check_schema(found: pa.Schema, expected: pa.Schema, file: str) -> None:
    if not found.equals(expected, check_metadata=False):
        columns, wanted = _shown(found), _shown(expected)
        raise SavepointCorrupt(f"{file}: has the columns {columns}, expected {wanted}; it belongs to another state")
    mine, theirs = (_state(schema, file) for schema in (expected, found))
    if theirs is not None and mine is not None and mine != theirs:  # files written by other tools need not name their state
        differs = [key for key in _IDENTITY if mine[key] != theirs[key]]
        raise SavepointCorrupt(
            f"{file}: has the state {', '.join(f'{key} {theirs[key]!r}' for key in differs)}, expected "
            f"{', '.join(f'{key} {mine[key]!r}' for key in differs)}; it belongs to another state"
        )


def _state(schema: pa.Schema, file: str) -> dict[str, Any] | None:
    """The state that a file's metadata names."""
    described = (schema.metadata or {}).get(METADATA_KEY)
    if described is None:
        return None
    content = json.loads(described)
    if not isinstance(content, dict):
        raise damaged(file, f"describes its state as {content!r}, expected a JSON object")
    return {key: content.get(key) for key in _IDENTITY}


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
