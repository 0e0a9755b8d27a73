"""The databases that the same tests run against."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4


@dataclass(frozen=True)
class Database:
    """``execute``: a statement's rows, in a transaction of its own."""

    name: str
    url: str
    execute: Callable[..., list[Any]]

    def create_table(self, columns: str, prefix: str = "rows") -> str:
        """Create a table with a name of its own."""
        name = f"{prefix}_{uuid4().hex[:12]}"
        self.execute(f"CREATE TABLE {name} ({columns})")
        return name


def sqlite(directory: Path) -> Database:
    path = directory / "tests.db"

    def execute(statement: str, *parameters: Any) -> list[Any]:
        with closing(sqlite3.connect(path, timeout=60)) as connection, connection:
            return connection.execute(statement, parameters).fetchall()

    return Database("sqlite", f"sqlite:///{path}", execute)
