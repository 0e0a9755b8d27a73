"""A real S3 server, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.mini_hadoop import MiniHadoop
from object_stores.buckets import Bucket
from unreliable import s3_environment, s3_server


@pytest.fixture(scope="session")
def s3_address() -> Iterator[tuple[str, int]]:
    with s3_server() as address:
        yield address


@pytest.fixture
def bucket(s3_address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A directory of its own in the server's bucket, with the environment for its clients."""
    endpoint = "http://{}:{}".format(*s3_address)
    for name, value in s3_environment(endpoint).items():
        monkeypatch.setenv(name, value)
    return Bucket(endpoint)


@pytest.fixture(scope="session")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniHadoop]:
    """A real HDFS."""
    started = MiniHadoop(tmp_path_factory.mktemp("hadoop") / "hadoop")
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources list as often as they are asked."""
    monkeypatch.setattr("forkpoint.connectors.files.remote.LOOK_SECONDS", 0.0)
