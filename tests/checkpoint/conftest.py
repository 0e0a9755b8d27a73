"""The storages that the contract tests run over."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from cluster.mini_hadoop import MiniHadoop
from forkpoint.storage.base import Storage, open_storage

BUCKET = "state"


@pytest.fixture(scope="session")
def s3_config() -> Iterator[dict[str, str]]:
    """Settings for a bucket on a real HTTP server that speaks S3."""
    server_module = pytest.importorskip("moto.server", reason="needs an S3 server: pip install 'moto[server]'")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        with urlopen(Request(f"http://{host}:{port}/{BUCKET}", method="PUT")):
            pass
        yield {
            "endpoint": f"http://{host}:{port}",
            "access_key_id": "test",
            "secret_access_key": "test",
            "region": "us-east-1",
        }
    finally:
        server.stop()


@pytest.fixture(scope="session")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniHadoop]:
    """A real HDFS."""
    started = MiniHadoop(tmp_path_factory.mktemp("hadoop") / "hadoop")
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture(params=["local", "memory", "s3", "hdfs"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return open_storage(tmp_path / "not" / "made yet")
    if request.param == "hdfs":
        return open_storage(f"{request.getfixturevalue('hadoop').hdfs}/{uuid.uuid4().hex}/root")
    if request.param == "memory":
        return open_storage(f"memory://{uuid.uuid4().hex}")
    return open_storage(f"s3://{BUCKET}/{uuid.uuid4().hex}/root", request.getfixturevalue("s3_config"))
