"""A disk that is full: the job fails or restarts with a clear message, and goes on correctly when there is space again."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from jobs import Bulky, clicks, finish, history, job, run, saved_state, state_of, sums

import forkpoint as fp
from forkpoint.driver.observe.events import Restarting
from forkpoint.errors import StorageError
from forkpoint.graph.options import JobOptions, RestartStrategy
from forkpoint.savepoint.format.opened_savepoint import open_savepoint
from forkpoint.state import Changes, open_store
from patience import PATIENCE_S

ELEMENTS = clicks(30)
ADVICE = "Free space on the file system"


@dataclass(frozen=True)
class Disk:
    """A file system of its own, of 2 MB."""

    root: Path

    @property
    def ballast(self) -> Path:
        return self.root / "ballast"

    def fill(self) -> None:
        with self.ballast.open("ab", buffering=0) as file:
            for size in (65536, 4096, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass

    def empty(self) -> None:
        self.ballast.unlink(missing_ok=True)

    def remount(self, how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", self.root], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    root = tmp_path / "small"
    root.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", root], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
    try:
        yield Disk(root)
    finally:
        subprocess.run(["umount", "-l", root], check=True)


class Fills:
    """Fills a disk at a step of an epoch."""

    def __init__(self, disk: Disk, step: str, epoch: int) -> None:
        self.disk = disk
        self.when = (step, epoch)

    def on_step(self, step: str, epoch: int) -> None:
        if (step, epoch) == self.when:
            self.disk.fill()


class FillsOnce(Fills):
    def on_step(self, step: str, epoch: int) -> None:
        if (step, epoch) == self.when:
            self.disk.fill()
            self.when = ("", 0)


# Where space is needed after these steps: changelogs, then the manifest.
STEPS = {"planned": "/changelog/", "computed": "/checkpoints/"}


@pytest.mark.parametrize("step", STEPS)
def test_without_restarts_the_job_fails_and_goes_on_when_it_is_started_again(disk: Disk, step: str) -> None:
    with pytest.raises(StorageError, match=ADVICE) as caught:
        run(disk.root, ELEMENTS, fn=Bulky(), steps=Fills(disk, step, 4))
    assert f"cannot write {disk.root}/jobs/sums{STEPS[step]}" in str(caught.value)
    disk.empty()
    assert history(disk.root).epochs()[-1] == 3
    assert not [path for path in disk.root.rglob("*") if path.name.startswith(".") and path.is_file()]
    run(disk.root, ELEMENTS, fn=Bulky())
    assert state_of(disk.root) == sums(ELEMENTS)


@pytest.mark.parametrize("step", STEPS)
def test_with_restarts_the_job_waits_for_space(disk: Disk, step: str, caplog: pytest.LogCaptureFixture) -> None:

    def change(options: JobOptions) -> JobOptions:
        return replace(options, restart=RestartStrategy.fixed_delay(0, 20))  # no failure of its own

    class Frees:
        """There is space again after the third attempt."""

        failures: ClassVar[list[str]] = []

        def on_event(self, event: Any) -> None:
            if isinstance(event, Restarting):
                self.failures.append(event.failure)
                if len(self.failures) == 3:
                    disk.empty()

    frees = Frees()
    result = run(disk.root, ELEMENTS, fn=Bulky(), steps=FillsOnce(disk, step, 4), change=change, listeners=[frees])
    assert result.outcome == "finished"
    assert len(frees.failures) == 3
    for failure in (*frees.failures, *caplog.messages):
        assert "paused because storage has been unavailable since" in failure
        assert f"on host {socket.gethostname()}: No space left" in failure
        assert ADVICE in failure
    assert state_of(disk.root) == sums(ELEMENTS)


@pytest.mark.parametrize("read_only", ["state root", "output"])
def test_a_file_system_that_becomes_read_only_pauses_the_job(disk: Disk, tmp_path: Path, read_only: str) -> None:
    class Repairs:
        failures: ClassVar[list[str]] = []

        def on_step(self, step: str, epoch: int) -> None:
            if (step, epoch) == ("planned", 4) and not self.failures:
                disk.remount("ro")

        def on_event(self, event: Any) -> None:
            if isinstance(event, Restarting):
                self.failures.append(event.failure)
                if len(self.failures) == 2:
                    disk.remount("rw")

    def change(options: JobOptions) -> JobOptions:
        return replace(options, restart=RestartStrategy.fixed_delay(0, 20))  # no failure of its own

    repairs = Repairs()
    root, output = (disk.root, tmp_path) if read_only == "state root" else (tmp_path, disk.root)
    sink = fp.FileSink.json(str(output / "out"))
    result = run(root, ELEMENTS, sink=sink, steps=repairs, change=change, listeners=[repairs])
    assert result.outcome == "finished"
    assert len(repairs.failures) == 2
    assert all("Read-only file system" in failure for failure in repairs.failures)
    assert state_of(root) == sums(ELEMENTS)
    assert sum(len(path.read_text().splitlines()) for path in (output / "out").glob("part-*")) == len(ELEMENTS)


def test_a_savepoint_that_does_not_fit_fails_alone(disk: Disk, tmp_path: Path) -> None:
    class Asks:
        first: Any = None
        second: Any = None

        def on_step(self, step: str, epoch: int) -> None:
            if (step, epoch) == ("planned", 4):
                disk.fill()
                self.first = prepared.driver.savepoint(str(disk.root))
            if (step, epoch) == ("planned", 6):
                assert self.first.done.exception(10) is not None
                disk.empty()
                self.second = prepared.driver.savepoint(str(disk.root))

    asks = Asks()
    prepared = job(tmp_path / "state", ELEMENTS, steps=asks)
    assert finish(prepared).outcome == "finished"
    with pytest.raises(StorageError, match=ADVICE):
        asks.first.done.result()
    whole = Path(asks.second.done.result(PATIENCE_S).removeprefix("file://"))
    assert saved_state(whole) == sums(ELEMENTS[:25])
    others = [path for path in disk.root.iterdir() if path.name != whole.name]
    assert not [path for other in others for path in other.rglob("savepoint.json")]
    open_savepoint(str(whole))
    assert state_of(tmp_path / "state") == sums(ELEMENTS)


def test_a_stop_whose_savepoint_does_not_fit_leaves_the_job_running(disk: Disk, tmp_path: Path) -> None:
    class Asks:
        first: Any = None

        def on_step(self, step: str, epoch: int) -> None:
            if (step, epoch) == ("planned", 3):
                disk.fill()
                self.first = prepared.driver.savepoint(str(disk.root), stop=True)

    asks = Asks()
    prepared = job(tmp_path / "state", ELEMENTS, steps=asks)
    assert finish(prepared).outcome == "finished"
    with pytest.raises(StorageError, match=ADVICE):
        asks.first.done.result(0)
    assert state_of(tmp_path / "state") == sums(ELEMENTS)


def test_no_space_for_the_output(disk: Disk, tmp_path: Path) -> None:
    """Staged files are the sink's own; the message still says what to do, and no part of the output is lost."""
    root, sink = tmp_path / "state", fp.FileSink.text(disk.root / "out")
    with pytest.raises(StorageError, match=ADVICE) as caught:
        run(root, ELEMENTS, steps=Fills(disk, "planned", 4), sink=sink)
    assert str(disk.root / "out") in str(caught.value)
    disk.empty()
    run(root, ELEMENTS, sink=sink)
    lines = [line for file in (disk.root / "out").iterdir() for line in file.read_text().splitlines()]
    assert len(lines) == len(ELEMENTS)
    assert len(set(lines)) == len(ELEMENTS)


@pytest.mark.parametrize("store", ["lmdb", "rocksdb"])
def test_no_space_for_the_local_stores(disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Any) -> None:
    root = tmp_path / "state"
    monkeypatch.setattr(tempfile, "tempdir", str(disk.root))
    monkeypatch.setattr("forkpoint.state.write_back.MAX_EPOCHS", 1)  # every epoch reaches the store

    def change(options: JobOptions) -> JobOptions:
        return replace(options, state_backend=store)

    with pytest.raises(StorageError, match="local store"):
        run(root, ELEMENTS, fn=Bulky(), steps=Fills(disk, "planned", 4), change=change)
    disk.empty()
    monkeypatch.setattr(tempfile, "tempdir", None)
    run(root, ELEMENTS, fn=Bulky(), change=change)
    assert state_of(root) == sums(ELEMENTS)


@pytest.mark.parametrize("left", [0, 4096, 20_480, 300_000, 700_000])
@pytest.mark.parametrize("kind", ["lmdb", "rocksdb"])
def test_a_local_store_on_a_full_disk_says_so(disk: Disk, kind: Any, left: int) -> None:
    """And not that it may be damaged, also where a part of it can be written."""
    store = open_store(kind, disk.root / "store")
    disk.fill()
    os.truncate(disk.ballast, disk.ballast.stat().st_size - left)
    changes = Changes([b"%06d" % i for i in range(200_000)], [b"v" * 400] * 200_000)
    with pytest.raises(StorageError, match=r"is full \(\d+ of 2 MiB are free\).*TMPDIR") as raised:
        store.apply(changes, 1, 0)
    assert "damaged" not in str(raised.value)
    store.close()
