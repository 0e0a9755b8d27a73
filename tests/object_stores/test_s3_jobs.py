"""Jobs from files on S3 to files on S3: each result is in a visible object once, whoever dies when."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

import forkpoint as fp
from background import InBackground
from forkpoint.api.execution import prepare
from forkpoint.api.launch import Launch
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import Manifest
from forkpoint.connectors.files import s3
from forkpoint.graph.options import RestartStrategy
from forkpoint.storage import object_storage
from object_stores.buckets import Bucket
from object_stores.s3_job import EPOCH_ROWS, KEYS, Number, build
from programs import Python, environment
from unreliable import Fault, UnreliableProxy, s3_environment


class Ended(NamedTuple):
    returncode: int
    stderr: str


PROGRAM = Path(__file__).with_name("s3_job.py")
FILES, EACH = 12, 40


def fill(bucket: Bucket) -> None:
    for number in range(FILES):
        numbers = range(number * EACH, (number + 1) * EACH)
        bucket.put(f"in/{number:03}.json", "".join(json.dumps({"number": n}) + "\n" for n in numbers))


def counts(bucket: Bucket) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for value in bucket.values("out"):
        found.setdefault(value["key"], []).append(value["seen"])
    return {key: sorted(seen) for key, seen in sorted(found.items())}


EXPECTED = {key: list(range(1, FILES * EACH // KEYS + 1)) for key in range(KEYS)}


def start(bucket: Bucket, root: Path, *death: str) -> subprocess.Popen[str]:
    command = [PROGRAM, bucket.url("in"), bucket.url("out"), root, *death]
    return Python(command, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def run(bucket: Bucket, root: Path, *death: str) -> Ended:
    process = start(bucket, root, *death)
    _, stderr = process.communicate()
    return Ended(process.returncode, stderr)


def test_a_job_from_s3_to_s3(bucket: Bucket, tmp_path: Path) -> None:
    fill(bucket)
    done = run(bucket, tmp_path)
    assert done.returncode == 0, done.stderr
    assert counts(bucket) == EXPECTED
    assert bucket.uploads("out") == []
    assert len(bucket.visible("out")) > 6  # several epochs


STEPS = [
    "upload+",
    "part",
    "part+",
    "staged+",
    "checked+",
    "manifest",
    "manifest+",
    "mark+",
    "complete",
    "complete+",
    "cleanup",
]


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_driver_that_is_killed_at_a_step(bucket: Bucket, tmp_path: Path, step: str) -> None:
    fill(bucket)
    for number in ["1"] if step == "cleanup" else ["2", "5"]:
        died = run(bucket, tmp_path, step, number)
        assert died.returncode == -9, died.stderr
    done = run(bucket, tmp_path)
    assert done.returncode == 0, done.stderr
    assert counts(bucket) == EXPECTED
    assert bucket.uploads("out") == []


def asleep(bucket: Bucket, root: Path, step: str, number: int) -> subprocess.Popen[str]:
    """A driver that has stopped at a step."""
    process = start(bucket, root, f"sleep-{step}", str(number))
    while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.01)
    return process


def wake(process: subprocess.Popen[str]) -> Ended:
    process.send_signal(signal.SIGCONT)
    _, stderr = process.communicate()
    return Ended(process.returncode, stderr)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["staged", "checked", "manifest", "mark", "complete"])
def test_an_old_driver_that_wakes_up_after_a_newer_one_has_finished(bucket: Bucket, tmp_path: Path, step: str) -> None:
    fill(bucket)
    old = asleep(bucket, tmp_path, step, 4)
    done = run(bucket, tmp_path)
    assert done.returncode == 0, done.stderr
    assert counts(bucket) == EXPECTED
    woken = wake(old)
    assert woken.returncode == 1
    assert "StaleGeneration" in woken.stderr or "a newer run" in woken.stderr, woken.stderr
    assert counts(bucket) == EXPECTED


def test_an_old_driver_that_wakes_up_leaves_a_newer_ones_uploads(bucket: Bucket, tmp_path: Path) -> None:
    fill(bucket)
    old = asleep(bucket, tmp_path, "cleanup", 1)
    newer = asleep(bucket, tmp_path, "checked", 4)
    uploads = bucket.uploads("out")
    assert uploads
    assert wake(old).returncode == 1
    assert set(uploads) <= set(bucket.uploads("out"))
    done = wake(newer)
    assert done.returncode == 0, done.stderr
    assert counts(bucket) == EXPECTED


@pytest.mark.slow
def test_uploads_that_a_lifecycle_rule_aborted_while_the_job_was_down(bucket: Bucket, tmp_path: Path) -> None:
    fill(bucket)
    died = run(bucket, tmp_path, "mark", "3")  # its epoch is committed
    assert died.returncode == -9, died.stderr
    uploads = bucket.uploads("out")
    assert uploads
    for upload in uploads:
        bucket.abort(*upload)
    failed = run(bucket, tmp_path)
    assert failed.returncode == 1
    assert "is committed, but 2 of its 2 files were removed before they were published: s3://" in failed.stderr
    assert "restart from an earlier savepoint" in failed.stderr


def in_background(source: str, output: str, root: Path) -> InBackground:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root)).set_parallelism(2).set_max_epoch_rows(EPOCH_ROWS)
    env.options = replace(env.options, restart=RestartStrategy.fixed_delay(3, 1))
    build(env, fp.FileSource.json(source, Number, bounded=True), output)
    env.launch = Launch(options={"engine": "local"})
    return InBackground(prepare(env, "files"))


@pytest.mark.slow
@pytest.mark.parametrize("during", ["list|get", "uploads", "^delete .*uploadId", "head"])
def test_a_store_that_does_not_answer_for_some_seconds(
    bucket: Bucket, s3_address: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    monkeypatch.setattr(object_storage, "RETRY", {"max_retries": 1})
    monkeypatch.setattr(s3, "TRIES", 2)
    fill(bucket)
    proxy = UnreliableProxy(s3_address)
    for name, value in s3_environment(proxy.endpoint).items():
        monkeypatch.setenv(name, value)
    running = in_background(bucket.url("in"), bucket.url("out"), tmp_path)
    running.wait_for(lambda status: status.epoch >= 3)
    proxy.inject(Fault("cut", on=during, times=8))
    assert running.end().outcome == "finished", running.end()
    assert proxy.met
    proxy.refuse()
    monkeypatch.undo()
    assert counts(bucket) == EXPECTED
    assert bucket.uploads("out") == []


def test_a_store_that_is_down_when_the_job_commits(
    bucket: Bucket, s3_address: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_storage, "RETRY", {"max_retries": 1})
    monkeypatch.setattr(s3, "TRIES", 2)
    fill(bucket)
    proxy = UnreliableProxy(s3_address)
    for name, value in s3_environment(proxy.endpoint).items():
        monkeypatch.setenv(name, value)
    commit, down = History.commit, threading.Event()

    def commit_and_go_down(self: History, manifest: Manifest, **options: Any) -> None:
        commit(self, manifest, **options)
        if manifest.epoch == 4 and not down.is_set():
            proxy.refuse()
            down.set()

    monkeypatch.setattr(History, "commit", commit_and_go_down)
    running = in_background(bucket.url("in"), bucket.url("out"), tmp_path)
    down.wait(60)
    running.wait_for(lambda status: status.state == "restarting" or status.restarts)
    time.sleep(0.5)
    assert running.alive
    proxy.listen()
    assert running.end().outcome == "finished", running.end()
    assert counts(bucket) == EXPECTED
    proxy.close()
