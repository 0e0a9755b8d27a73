"""The contract of sources, kept by PostgreSQL's changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from cdc_jobs import create_table, dropped, source
from forkpoint.testing import SourceContract
from servers.postgres import Postgres


class TestPostgresSource(SourceContract):
    server: Postgres

    @pytest.fixture(autouse=True)
    def use(self, postgres: Postgres) -> Iterator[None]:
        self.server = postgres
        with dropped(postgres):
            yield

    def create(self) -> str:
        return create_table(self.server)

    def produce(self, place: str, numbers: Sequence[int]) -> None:
        self.server.execute(f"INSERT INTO {place} SELECT i, 'n', 0 FROM generate_series({numbers[0]}, {numbers[-1]}) i")

    def source(self, place: str) -> Any:
        return source(self.server, place, split_size=10)

    @staticmethod
    def number(element: Any) -> int:
        return int(element.after.id)
