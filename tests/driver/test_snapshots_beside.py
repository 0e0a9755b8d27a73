"""Snapshots of large state, made beside the epochs: whatever happens before a manifest names them, and however much later it
does, every retained checkpoint has its state, and what is left over goes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jobs import JOB, Crash, StopAfter, clicks, history, job, run, state_of, sums
from test_long_run import assert_whole

from forkpoint.checkpoint import history as histories
from forkpoint.driver.commit import garbage
from forkpoint.driver.run import epochs as driver_epochs
from forkpoint.driver.savepoints import snapshots
from forkpoint.errors import JobFailed
from forkpoint.graph.options import RestartStrategy
from forkpoint.local.executor import LocalExecutor
from forkpoint.runtime.tasks.background_process import BackgroundProcess
from forkpoint.savepoint.export import chain_reader
from threadless import AtOnce

ELEMENTS = clicks(300)  # 5 an epoch: 60 epochs
USERS = 7


class Merging:
    """Instead of a process: runs the tasks on the thread that asks, with ``around`` each, and says when a merge has ended. Epochs
    wait for that unless it is ``held``."""

    def __init__(self) -> None:
        self.around: Callable[[Callable[[], bytes]], bytes] = lambda work: work()
        self.held = False
        self.begun, self.go = threading.Event(), threading.Event()

    def run(self, executor: LocalExecutor, fn: Callable[[bytes], bytes], args: Sequence[bytes], of: str) -> list[bytes]:
        return [self.around(lambda: executor.run_tasks(fn, [arg], of)[0]) for arg in args]  # noqa: B023

    def on_step(self, step: str, epoch: int) -> None:
        """Every third epoch waits for the merge that runs, so that several epochs pass while one does."""
        if step == "planned" and not self.held and epoch % 3 == 0:
            for thread in threading.enumerate():
                if thread.name == "forkpoint-snapshots":
                    thread.join()

    def hold(self) -> None:
        """Let no merge go on before ``release``."""

        def wait(work: Callable[[], bytes]) -> bytes:
            self.begun.set()
            self.go.wait()
            return work()

        self.held, self.around = True, wait

    def release(self) -> None:
        self.held = False
        self.go.set()


@pytest.fixture
def merging(monkeypatch: pytest.MonkeyPatch) -> Merging:
    made = Merging()
    monkeypatch.setattr(snapshots, "LARGE_BYTES", -1)
    monkeypatch.setattr(chain_reader, "_IN_MEMORY", -1)
    monkeypatch.setattr(driver_epochs, "SNAPSHOT_CHAIN", 4)
    monkeypatch.setattr(garbage, "EVERY_EPOCHS", 2)
    monkeypatch.setattr(garbage, "ThreadPoolExecutor", AtOnce)
    monkeypatch.setattr(histories, "LIST_ALL_EVERY", 1)
    monkeypatch.setattr(LocalExecutor, "run_in_background", lambda self, *of: made.run(self, *of))
    return made


def assert_right(root: Path, *, snapshots_since: int = 0) -> None:
    """The state, its recorded size and its files are those of the elements."""
    newest = assert_whole(root)[max(history(root).epochs())]
    assert state_of(root) == sums(ELEMENTS)
    assert newest.amounts is not None
    assert [amount.entries for amount in newest.amounts] == [USERS]
    assert newest.snapshots
    assert min(ref.epoch for ref in newest.snapshots) > snapshots_since
    files = history(root).storage.list(f"jobs/{JOB}/snapshots")
    assert {ref.path for ref in newest.snapshots} <= set(files)
    assert len(files) <= 2 * newest.parallelism + 2  # and of a merge that nobody waited for


def test_every_checkpoint_has_its_state_and_chains_are_short(tmp_path: Path, merging: Merging) -> None:
    run(tmp_path, ELEMENTS, retained=4, steps=merging)
    known = assert_whole(tmp_path)
    for epoch in sorted(known)[-4:]:
        read = sum(s.count for p in known[epoch].sources.values() for s in p.splits.values())
        assert state_of(tmp_path, epoch) == sums(ELEMENTS[:read])
    assert_right(tmp_path, snapshots_since=max(known) - 14)


def test_a_driver_that_is_replaced_while_it_merges(tmp_path: Path, merging: Merging) -> None:
    """It comes back to find the files of its epoch gone, or to write a snapshot that nobody names."""
    merging.hold()
    with pytest.raises(Crash):
        run(tmp_path, ELEMENTS, steps=StopAfter(20))
    assert merging.begun.wait()
    merging.around = lambda work: work()
    with pytest.raises(Crash):
        run(tmp_path, ELEMENTS, parallelism=3, steps=StopAfter(3))  # nothing of the held epoch has gone yet
    merging.release()
    run(tmp_path, ELEMENTS, parallelism=3, steps=merging)
    assert_right(tmp_path, snapshots_since=25)


def test_an_attempt_that_fails_while_it_merges(tmp_path: Path, merging: Merging) -> None:
    """The next attempt makes a snapshot of its own."""
    failed: list[int] = []

    class FailsOnce:
        def on_step(self, step: str, epoch: int) -> None:
            if step == "computed" and epoch == 9 and not failed:
                failed.append(epoch)
                assert merging.begun.wait()
                merging.release()
                raise RuntimeError("out of luck")
            merging.on_step(step, epoch)

    def restarting(options: Any) -> Any:
        return replace(options, restart=RestartStrategy.fixed_delay(1, 0))

    merging.hold()
    run(tmp_path, ELEMENTS, steps=FailsOnce(), change=restarting)
    assert failed == [9]
    assert_right(tmp_path, snapshots_since=20)


def test_a_job_that_is_rescaled_while_it_merges(tmp_path: Path, merging: Merging) -> None:
    requests: list[Any] = []

    class Rescales:
        def on_step(self, step: str, epoch: int) -> None:
            if step == "committed" and merging.begun.is_set() and not requests:
                requests.append(prepared.driver.rescale(3))
            if step == "committed" and epoch == 25:  # in the next layout
                assert requests[0].done.result(0) < 25
                merging.release()
            merging.on_step(step, epoch)

    merging.hold()
    prepared = job(tmp_path, ELEMENTS, steps=Rescales())
    prepared.begin()()
    assert_right(tmp_path)


def test_tasks_that_run_twice_and_merges_that_fail(tmp_path: Path, merging: Merging) -> None:
    """After a merge that fails, an epoch makes a snapshot from its stores."""
    done: list[bytes] = []

    def twice(work: Callable[[], bytes]) -> bytes:
        if len(done) in (0, 3):
            done.append(b"")
            raise JobFailed("the process is gone")
        done.append(work())
        return work()

    merging.around = twice
    run(tmp_path, ELEMENTS, steps=merging)
    assert_right(tmp_path, snapshots_since=40)


def shouted(argument: bytes) -> bytes:
    if argument == b"die":
        os.kill(os.getpid(), signal.SIGKILL)
    if argument == b"fail":
        raise ValueError("no such luck")
    print("what is printed is not an answer")
    return argument.upper()


def test_a_process_for_work_beside_epochs() -> None:
    """It has low priority, survives what it is asked to do, and is replaced if it does not."""
    beside = BackgroundProcess()
    assert beside.run(shouted, [b"a", b"", b"b" * 100_000]) == [b"A", b"", b"B" * 100_000]
    assert beside._process is not None
    first = beside._process.pid
    assert os.getpriority(os.PRIO_PROCESS, first) > os.getpriority(os.PRIO_PROCESS, 0)
    with pytest.raises(JobFailed, match="ValueError: no such luck"):
        beside.run(shouted, [b"fail"])
    assert beside.run(shouted, [b"c"]) == [b"C"]
    assert beside._process.pid == first
    with pytest.raises(JobFailed, match="has ended"):
        beside.run(shouted, [b"die"])
    assert beside.run(shouted, [b"d"]) == [b"D"]
    assert beside._process.stdin is not None
    beside._process.stdin.close()  # as if this process were killed
    assert beside._process.wait() == 0
    beside.close()
