from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.redis_server import Redis


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """For all tests of a module: each uses keys of its own."""
    started = Redis(tmp_path_factory.mktemp("redis") / "server")
    yield started
    started.stop()


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """For one test, which kills or configures it."""
    started = Redis(tmp_path_factory.mktemp("redis") / "server")
    yield started
    started.stop()
