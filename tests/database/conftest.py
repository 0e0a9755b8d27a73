"""The databases of this folder's tests; MariaDB's and PostgreSQL's servers are shared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from databases import Database, sqlite

from servers.mariadb import MariaDB
from servers.postgres import Postgres


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    started = MariaDB(tmp_path_factory.mktemp("mariadb") / "server")
    yield started
    started.stop()


@pytest.fixture(params=["postgresql", "mariadb", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Database:
    if request.param == "sqlite":
        return sqlite(tmp_path_factory.mktemp("sqlite"))
    server: Postgres | MariaDB = request.getfixturevalue({"postgresql": "postgres"}.get(request.param, request.param))
    return Database(request.param, server.url, server.execute)
