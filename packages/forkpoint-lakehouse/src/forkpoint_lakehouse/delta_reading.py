"""Versions of Delta Lake tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from forkpoint import extras
from forkpoint.errors import ConfigError
from forkpoint_lakehouse.delta_errors import raising_errors
from forkpoint_lakehouse.delta_files import absolute
from forkpoint_lakehouse.source import VersionedTable


@dataclass(frozen=True)
class DeltaVersions(VersionedTable):
    uri: str
    storage_options: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, uri: str, storage_options: Mapping[str, str]) -> DeltaVersions:
        extras.require("deltalake", "connector 'delta'")
        return cls(absolute(uri), tuple(sorted(storage_options.items())))

    @property
    def name(self) -> str:
        return f"Delta table {self.uri}"

    def newest(self) -> int | None:
        return int(self._load(None).version())

    def columns(self, version: int) -> pa.Schema:
        return self._dataset(version).schema

    def files(self, version: int) -> Mapping[str, int]:
        with raising_errors(self.name):
            added = pa.table(self._load(version).get_add_actions(flatten=True))
        rows = [size // 64 if count is None else count for count, size in zip(*_counts(added), strict=True)]
        known = dict(zip(map(unquote, added.column("path").to_pylist()), rows, strict=True))
        return {fragment.path: known.get(fragment.path, 1) for fragment in self._dataset(version).get_fragments()}

    def rows(self, version: int, path: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow.dataset as ds

        whole = self._dataset(version)
        fragments = [each for each in whole.get_fragments() if each.path == path]
        with raising_errors(self.name):
            part = ds.FileSystemDataset(fragments, whole.schema, whole.format, whole.filesystem)
            yield from part.to_batches(columns=list(columns), use_threads=False)

    def _load(self, version: int | None) -> Any:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        with raising_errors(self.name):
            try:
                return DeltaTable(self.uri, version, storage_options=dict(self.storage_options))
            except TableNotFoundError as error:
                raise ConfigError(f"{self.name} does not exist; correct 'table-path', or create it") from error

    def _dataset(self, version: int) -> Any:
        return _opened(self, version, os.getpid())


def _counts(added: pa.Table) -> tuple[list[Any], list[Any]]:
    counts = added.column("num_records").to_pylist() if "num_records" in added.column_names else [None] * added.num_rows
    return counts, added.column("size_bytes").to_pylist()


@lru_cache(maxsize=4)
def _opened(table: DeltaVersions, version: int, process: int) -> Any:
    """The files of a version. Depends on the process: a fork ends the client's threads."""
    from deltalake.exceptions import DeltaProtocolError

    found = table._load(version)
    try:
        with raising_errors(table.name):
            return found.to_pyarrow_dataset()
    except ConfigError as error:
        if isinstance(error.__cause__, DeltaProtocolError):
            raise ConfigError(f"{table.name} cannot be read: {error.__cause__}") from error
        raise
