from __future__ import annotations

from collections.abc import Iterator

import pytest

from servers.kinesis_server import Kinesis


@pytest.fixture(scope="session")
def kinesis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kinesis]:
    """A server for all tests of the folder: each has streams of its own (``create_stream()``)."""
    started = Kinesis(tmp_path_factory.mktemp("kinesis") / "server")
    yield started
    started.stop()
