from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.cassandra_server import Cassandra


@pytest.fixture(scope="session")
def cassandra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    """A node with the keyspace ``tests``, for all tests: each has tables of its own. Starting it takes ten seconds."""
    started = Cassandra(tmp_path_factory.mktemp("cassandra") / "node")
    started.execute(
        "CREATE KEYSPACE tests WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1} AND durable_writes = true"
    )
    yield started
    started.stop()
