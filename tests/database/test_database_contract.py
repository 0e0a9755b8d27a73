"""The contract of sinks, kept by those of databases."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from connectors.contract_rows import Line
from forkpoint.testing import Row, SinkContract


@pytest.fixture(autouse=True)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where a contract's places are."""
    request.instance.directory = tmp_path_factory.mktemp("places")


class TestDatabaseSink(SinkContract):
    type = Line
    directory: Path

    def create(self) -> Path:
        file = self.directory / "rows.db"
        with closing(sqlite3.connect(file)) as database:
            database.execute("CREATE TABLE rows (number INTEGER, text TEXT)")
        return file

    def sink(self, target: Path) -> Any:
        return fp.DatabaseSink(f"sqlite:///{target}", "rows")

    @staticmethod
    def element(row: Row) -> Line:
        return Line(*row)

    def read(self, target: Path) -> list[Row]:
        with closing(sqlite3.connect(target)) as database:
            return database.execute("SELECT number, text FROM rows").fetchall()
