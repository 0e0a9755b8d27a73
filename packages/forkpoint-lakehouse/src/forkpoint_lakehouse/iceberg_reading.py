"""Snapshots of Iceberg tables."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from forkpoint import extras
from forkpoint.errors import ConfigError
from forkpoint_lakehouse.iceberg import load_table
from forkpoint_lakehouse.iceberg_errors import raising_errors
from forkpoint_lakehouse.source import VersionedTable


@dataclass(frozen=True)
class IcebergSnapshots(VersionedTable):
    """``properties``: the catalog's, as JSON."""

    properties: str
    identifier: str

    @classmethod
    def of(cls, catalog_properties: Mapping[str, str], identifier: str) -> IcebergSnapshots:
        extras.require("pyiceberg", "connector 'iceberg'")
        return cls(json.dumps(dict(catalog_properties), sort_keys=True), identifier)

    @property
    def name(self) -> str:
        return f"Iceberg table {self.identifier}"

    def newest(self) -> int | None:
        snapshot = self._load().current_snapshot()
        return None if snapshot is None else int(snapshot.snapshot_id)

    def columns(self, version: int) -> pa.Schema:
        return self._scan(version).projection().as_arrow()

    def files(self, version: int) -> Mapping[str, int]:
        return {path: task.file.record_count for path, task in _planned(self, version, os.getpid()).items()}

    def rows(self, version: int, path: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        scan, task = self._scan(version, columns), _planned(self, version, os.getpid())[path]
        with raising_errors(self.name):
            yield from ArrowScan(scan.table_metadata, scan.io, scan.projection(), AlwaysTrue()).to_record_batches([task])

    def _scan(self, version: int, columns: Sequence[str] = ("*",)) -> Any:
        table = self._load()
        if table.snapshot_by_id(version) is None:
            raise ConfigError(f"{self.name} has no snapshot {version}; it may have expired")
        return table.scan(snapshot_id=version, selected_fields=tuple(columns))

    def _load(self) -> Any:
        found = load_table(json.loads(self.properties), self.identifier)
        if found is None:
            raise ConfigError(f"{self.name} does not exist; correct 'catalog-database' and 'catalog-table', or create it")
        return found


@lru_cache(maxsize=4)
def _planned(table: IcebergSnapshots, version: int, process: int) -> dict[str, Any]:
    """The data files of a snapshot by their paths, each with what is deleted of it."""
    with raising_errors(table.name):
        return {task.file.file_path: task for task in table._scan(version).plan_files()}
