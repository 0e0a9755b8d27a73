"""A part of a state as a Parquet file: written block by block, read row group by row group."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forkpoint.checkpoint.format import checksum
from forkpoint.checkpoint.savepoint_manifest import SavepointFile
from forkpoint.errors import SavepointCorrupt
from forkpoint.savepoint.layout import METADATA_KEY, Layout
from forkpoint.savepoint.rows import of_file
from forkpoint.storage.base import Storage

_IDENTITY = ("uid", "name", "kind", "key_type", "value_type", "namespace_type")
_LEVEL = 1  # zstd: near the size of the higher levels at several times their speed


class PartWriter:
    """Collects the blocks of one part; there is no file before the first row."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._sink = io.BytesIO()
        self._writer: Any = None
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        """Add a block, as a row group of its own."""
        if table.num_rows:
            self._open().write_table(table, row_group_size=table.num_rows)
            self.rows += table.num_rows

    def finish(self) -> bytes:
        """The whole file; one without rows if nothing was written."""
        self._open().close()
        return self._sink.getvalue()

    def _open(self) -> Any:
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._sink, self._layout.schema, compression="zstd", compression_level=_LEVEL,
                use_dictionary=_dictionary_columns(self._layout.schema),
            )  # fmt: skip
        return self._writer


@dataclass(frozen=True)
class WrittenPart:
    """A file that a task has put into a savepoint: rows, bytes, SHA-256."""

    path: str
    entries: int
    size: int
    checksum: str

    def file(self, kg_start: int, kg_stop: int) -> SavepointFile:
        """As ``savepoint.json`` lists it, with the key groups that it is of."""
        return SavepointFile(
            path=self.path, entries=self.entries, bytes=self.size, checksum=self.checksum, kg_start=kg_start,
            kg_stop=kg_stop,
        )  # fmt: skip


def put_part(target: Storage, path: str, part: PartWriter) -> WrittenPart:
    """Finish a part and write its file."""
    data = part.finish()
    target.put(path, data)
    return WrittenPart(path, part.rows, len(data), checksum(data))


def _dictionary_columns(schema: pa.Schema) -> list[str]:
    """Where a dictionary is worth its time: for text, which repeats, and for the columns that are constant for long."""
    texts = [f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_boolean(f.type)]
    return [*texts, *(name for name in ("key_group", "subtask") if name in schema.names)]


def read_part(data: bytes, file: str, layout: Layout, rows: int, groups: tuple[int, int] | None) -> Iterator[pa.Table]:
    """The rows of a file, a row group at a time; of these key groups only, if they are given.

    Raises SavepointCorrupt if it is not the file of this state, or not of as many rows.
    """
    with of_file(file):
        try:
            parquet = pq.ParquetFile(pa.BufferReader(data))
        except (pa.ArrowException, OSError) as error:
            raise SavepointCorrupt(f"{file}: is no Parquet file: {error}; restore it from a copy") from error
        _check_schema(parquet.schema_arrow, layout.schema, file)
    if parquet.metadata.num_rows != rows:
        raise SavepointCorrupt(
            f"{file}: has {parquet.metadata.num_rows} rows, {rows} were recorded; restore it from a copy"
        )
    return _row_groups(parquet, file, groups)


def _row_groups(parquet: Any, file: str, groups: tuple[int, int] | None) -> Iterator[pa.Table]:
    for number in range(parquet.metadata.num_row_groups):
        if groups is not None and not _may_have(parquet.metadata.row_group(number).column(0), groups):
            continue
        try:
            table = parquet.read_row_group(number, use_threads=False)
            table.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise SavepointCorrupt(
                f"{file}: row group {number} cannot be read: {error}; restore it from a copy"
            ) from error
        if groups is not None:
            column = table.column(0).fill_null(groups[0]).to_numpy()  # who looks at the rows finds the null
            wanted = (column >= groups[0]) & (column < groups[1])
            if not wanted.all():
                table = table.take(pa.array(np.flatnonzero(wanted)))
        if table.num_rows:
            yield table


def _may_have(column: Any, groups: tuple[int, int]) -> bool:
    found = column.statistics
    if found is None or not found.has_min_max:
        return True
    return bool(found.min < groups[1] and found.max >= groups[0])


def _check_schema(found: pa.Schema, expected: pa.Schema, file: str) -> None:
    if not found.equals(expected, check_metadata=False):
        columns, wanted = _shown(found), _shown(expected)
        raise SavepointCorrupt(f"{file}: has the columns {columns}, expected {wanted}; it is not of this state")
    mine, theirs = (_state(schema, file) for schema in (expected, found))
    if theirs is not None and mine is not None and mine != theirs:  # other tools need not say whose their files are
        differs = [key for key in _IDENTITY if mine[key] != theirs[key]]
        raise SavepointCorrupt(
            f"{file}: is of a state with {', '.join(f'{key} {theirs[key]!r}' for key in differs)}, expected "
            f"{', '.join(f'{key} {mine[key]!r}' for key in differs)}; it is not of this state"
        )


def _state(schema: pa.Schema, file: str) -> dict[str, Any] | None:
    """Which state a file says it is of."""
    described = (schema.metadata or {}).get(METADATA_KEY)
    if described is None:
        return None
    content = json.loads(described)
    if not isinstance(content, dict):
        raise SavepointCorrupt(f"{file}: says of its state {content!r}, expected a JSON object; restore it from a copy")
    return {key: content.get(key) for key in _IDENTITY}


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)
