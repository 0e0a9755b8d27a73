"""A host tries out the state root before a job's first commit: what ends a start, and what does not."""

import os
import platform

import msgspec
import pytest

from forkpoint.errors import StorageUnavailable
from forkpoint.runtime.tasks import preflight
from forkpoint.runtime.tasks.preflight import Finding, Probe, probe_file, try_host, versions
from forkpoint.storage.base import LocalStorage


@pytest.fixture
def storage(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "PAUSE_SECONDS", 0)
    storage = LocalStorage(str(tmp_path / "state"))
    storage.put(probe_file("token"), b"token")
    return storage


def problems(storage):
    probe = Probe(
        token="token", storage_url=storage.url, variables=[], local_dir=os.path.dirname(storage.url.removeprefix("file://")),
        directories={}, python=platform.python_version(), versions=versions(), sent_ms=0,
    )  # fmt: skip
    return msgspec.msgpack.decode(try_host(msgspec.msgpack.encode(probe)), type=Finding).problems


@pytest.mark.parametrize(("failures", "ends"), [(0, False), (2, False), (3, True)])
def test_an_answer_that_is_cut_off_does_not_end_a_start(storage, monkeypatch, failures, ends):
    delete, left = LocalStorage.delete, [None] * failures

    def unreliable(self, path):
        if left:
            left.pop()
            raise StorageUnavailable("the answer was cut off")
        delete(self, path)

    monkeypatch.setattr(LocalStorage, "delete", unreliable)
    found = problems(storage)
    assert found == ([f"cannot use the state root {storage.url}: the answer was cut off"] if ends else [])


def test_another_directory_is_told(storage):
    storage.put(probe_file("token"), b"else")
    (problem,) = problems(storage)
    assert problem.startswith(f"does not see the driver's files in the state root {storage.url}")
