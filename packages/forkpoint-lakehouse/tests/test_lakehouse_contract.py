"""The contract of sinks, kept by Delta's and Iceberg's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import forkpoint as fp
from connectors.contract_rows import Line
from forkpoint.testing import Row, SinkContract
from table_jobs import catalog


class TestDeltaSink(SinkContract):
    type = Line
    directory: Path

    @pytest.fixture(autouse=True)
    def use(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self.directory = tmp_path_factory.mktemp("table")

    def create(self) -> str:
        return str(self.directory / "lines")

    def sink(self, target: str) -> Any:
        return fp.DeltaSink(target)

    @staticmethod
    def element(row: Row) -> Line:
        return Line(*row)

    def read(self, target: str) -> list[Row]:
        if not DeltaTable.is_deltatable(target):
            return []
        return [(row["number"], row["text"]) for row in DeltaTable(target).to_pyarrow_table().to_pylist()]


class TestIcebergSink(TestDeltaSink):
    def sink(self, target: str) -> Any:
        return fp.IcebergSink(catalog(str(self.directory)), "ns.lines")

    def read(self, target: str) -> list[Row]:
        tables = load_catalog("default", **catalog(str(self.directory)))
        if not tables.table_exists("ns.lines"):
            return []
        return [(row["number"], row["text"]) for row in tables.load_table("ns.lines").scan().to_arrow().to_pylist()]
