"""The storages that the contract tests run over."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.mini_hadoop import MiniHadoop
from forkpoint.storage.base import Storage, open_storage
from servers.sharing import shared
from unreliable import BUCKET, s3_server, s3_settings


@pytest.fixture(scope="session")
def s3_config() -> Iterator[dict[str, str]]:
    """Settings for a bucket on a real HTTP server that speaks S3."""
    with s3_server() as (host, port):
        yield s3_settings(f"http://{host}:{port}")


@pytest.fixture(scope="session")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniHadoop]:
    """A real HDFS, for all tests of a run."""
    with shared(tmp_path_factory, "hadoop", MiniHadoop) as server:
        yield server


@pytest.fixture(params=["local", "memory", "s3", "hdfs"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return open_storage(tmp_path / "not" / "made yet")
    if request.param == "hdfs":
        return open_storage(f"{request.getfixturevalue('hadoop').hdfs}/{uuid.uuid4().hex}/root")
    if request.param == "memory":
        return open_storage(f"memory://{uuid.uuid4().hex}")
    return open_storage(f"s3://{BUCKET}/{uuid.uuid4().hex}/root", request.getfixturevalue("s3_config"))
