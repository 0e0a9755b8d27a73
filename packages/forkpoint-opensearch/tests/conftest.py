from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.opensearch_server import OpenSearch


@pytest.fixture(scope="session")
def search(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenSearch]:
    """A node for all tests: each has indices of its own. Starting it takes eight seconds."""
    started = OpenSearch(tmp_path_factory.mktemp("opensearch") / "node")
    yield started
    started.stop()
