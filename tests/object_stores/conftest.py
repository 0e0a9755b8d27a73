"""A real S3 server, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

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
