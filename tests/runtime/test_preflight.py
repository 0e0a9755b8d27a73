"""A host tries out the state root before a job's first commit: what ends a start, and what does not."""

import os
import platform
import subprocess
import sys
import time

import msgspec
import pytest

from forkpoint.errors import StorageUnavailable
from forkpoint.runtime.tasks import preflight
from forkpoint.runtime.tasks.preflight import PACKAGES, Finding, Probe, probe_file, try_host, versions
from forkpoint.storage.base import LocalStorage


@pytest.fixture
def storage(tmp_path, monkeypatch):
    monkeypatch.setattr(preflight, "PAUSE_SECONDS", 0)
    storage = LocalStorage(str(tmp_path / "state"))
    storage.put(probe_file("token"), b"token")
    return storage


def problems(storage):
    return found(storage.url, os.path.dirname(storage.url.removeprefix("file://")), [])


def found(storage_url, local_dir, variables):
    probe = Probe(
        token="token",
        storage_url=storage_url,
        variables=variables,
        local_dir=local_dir,
        directories={},
        python=platform.python_version(),
        versions=versions(PACKAGES),
        sent_ms=0,
    )
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


def test_a_host_without_credentials_says_so_at_once_where_nothing_answers_for_the_machines_own(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr(preflight, "WITHOUT_VARIABLES", {"retry_timeout": "0.5"})
    began = time.monotonic()
    (problem,) = found("s3://bucket/state", str(tmp_path), ["AWS_ACCESS_KEY_ID"])
    assert "The host lacks AWS_ACCESS_KEY_ID, which the driver has: pass them with --pass-env 'AWS_*'" in problem
    assert time.monotonic() - began < 20  # requests are repeated for a minute otherwise


def test_the_connector_packages_that_a_program_has_loaded_are_compared():
    loaded = "from forkpoint import RedisSink\nfrom forkpoint.runtime.tasks import preflight as p\nprint(p.connectors_in_use())"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['forkpoint-redis']"
    assert versions(["forkpoint-redis", "forkpoint-nothing"]).keys() == {"forkpoint-redis"}
