"""A real S3 server, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.mini_hadoop import MiniHadoop
from object_stores.buckets import Bucket
from servers.sharing import shared
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
    """A real HDFS, for all tests of a run."""
    with shared(tmp_path_factory, "hadoop", MiniHadoop) as server:
        yield server


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources list as often as they are asked."""
    monkeypatch.setattr("forkpoint.connectors.files.remote.LOOK_SECONDS", 0.0)
