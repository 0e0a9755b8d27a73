"""Sinks whose output tasks commit, beside the epochs: each element once and in order, whatever dies or waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from jobs import JOB, Crash, StopAfter, clicks, finish, history, job, run
from ledger import LedgerSink, ledger_rows

import forkpoint as fp
from forkpoint.checkpoint.manifest import RUN, EpochOutput
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.driver.commit import garbage, publisher
from forkpoint.driver.commit.publisher import MAX_UNPUBLISHED_EPOCHS
from forkpoint.driver.observe.status import Status
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.driver.scale import layouts
from forkpoint.errors import JobFailed, SavepointCorrupt
from forkpoint.graph.options import RestartStrategy

CLICKS = clicks(60)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forkpoint.driver.commit.publisher.RETRY_SECONDS", (0.01,))


def wait_until(condition: Callable[[], object]) -> None:
    while not condition():
        time.sleep(0.01)


def expected() -> dict[int, list[int]]:
    """Each user's sums, in order."""
    found: dict[int, list[int]] = {}
    for click in CLICKS:
        sums = found.setdefault(click.user, [0])
        sums.append(sums[-1] + click.count)
    return {user: sums[1:] for user, sums in found.items()}


def published(root: Path) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for user, total in ledger_rows(root):
        found.setdefault(user, []).append(total)
    return found


class InBackground:
    """A job that runs on a thread of its own."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.prepared = job(root / "state", CLICKS, sink=LedgerSink(root), **options)
        self.driver: JobDriver = self.prepared.driver
        self.result: Any = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = finish(self.prepared)
        except Exception as error:
            self.result = error

    def wait_for(self, condition: Callable[[Status], object]) -> Status:
        wait_until(lambda: condition(self.driver.status()) or not self._thread.is_alive())
        return self.driver.status()

    def end(self) -> Any:
        self._thread.join()
        return self.result


def test_each_element_once_and_in_order(tmp_path: Path) -> None:
    run(tmp_path / "state", CLICKS, sink=LedgerSink(tmp_path))
    assert published(tmp_path) == expected()


class DiesAt:
    def __init__(self, phase: str, number: int) -> None:
        self._phase = phase
        self._left = number

    def on_step(self, step: str, epoch: int) -> None:
        if step == self._phase:
            self._left -= 1
            if not self._left:
                raise Crash


@pytest.mark.parametrize("phase", ["planned", "computed", "written", "committed", "published"])
def test_a_run_that_dies_anywhere_leaves_the_rest_to_the_next(tmp_path: Path, phase: str) -> None:
    for number in (1, 2, 5, 1):
        with pytest.raises(Crash):
            run(tmp_path / "state", CLICKS, sink=LedgerSink(tmp_path), steps=DiesAt(phase, number))
    run(tmp_path / "state", CLICKS, sink=LedgerSink(tmp_path))
    assert published(tmp_path) == expected()


def test_a_run_that_dies_while_the_system_is_away_leaves_its_output_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "away").touch()
    with pytest.raises(Crash):
        run(tmp_path / "state", CLICKS, sink=LedgerSink(tmp_path), steps=StopAfter(3))
    newest = history(tmp_path / "state").newest()
    assert newest is not None
    assert [output.epoch for output in newest.unpublished["sink"]] == [newest.epoch - 2, newest.epoch - 1]
    assert published(tmp_path) == {}
    (tmp_path / "away").unlink()
    run(tmp_path / "state", CLICKS, sink=LedgerSink(tmp_path))
    assert published(tmp_path) == expected()


def test_a_job_waits_for_a_system_that_is_away_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "away").touch()
    running = InBackground(tmp_path)
    status = running.wait_for(lambda s: s.unpublished.get("sink", 0) == MAX_UNPUBLISHED_EPOCHS and s.publishing_problem)
    assert status.state == "running"
    assert status.publishing_problem == "sink 'sink': the ledger is away"
    assert status.epoch == MAX_UNPUBLISHED_EPOCHS + 1  # after the first one, which has no output
    (tmp_path / "away").unlink()
    assert running.end().outcome == "finished"
    status = running.driver.status()
    assert (status.unpublished, status.publishing_problem, status.restarts) == ({}, None, 0)
    assert published(tmp_path) == expected()


def test_epochs_go_on_while_one_is_committed(tmp_path: Path) -> None:
    (tmp_path / "slow").touch()
    running = InBackground(tmp_path)
    running.wait_for(lambda s: s.unpublished.get("sink", 0) == MAX_UNPUBLISHED_EPOCHS)
    (tmp_path / "slow").unlink()
    running.end()
    assert published(tmp_path) == expected()


@pytest.fixture
def in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Staged output is in files, however small."""
    monkeypatch.setattr(layouts, "INLINE_BYTES", 0)


@pytest.mark.usefixtures("in_files")
def test_files_of_unpublished_epochs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "EVERY_EPOCHS", 1)
    staging = JobPaths(JOB).staging_directory
    (tmp_path / "away").touch()
    running = InBackground(tmp_path)
    running.wait_for(lambda s: s.unpublished.get("sink", 0) == MAX_UNPUBLISHED_EPOCHS)
    assert len(history(tmp_path / "state").storage.list(staging)) == 2 * MAX_UNPUBLISHED_EPOCHS
    (tmp_path / "away").unlink()
    running.end()
    assert published(tmp_path) == expected()
    assert len(history(tmp_path / "state").storage.list(staging)) <= 2 * (MAX_UNPUBLISHED_EPOCHS + 2)


def test_an_error_that_does_not_pass_fails_the_job_and_the_next_run_publishes(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    once = lambda options: replace(options, restart=RestartStrategy.fixed_delay(1, 1))  # noqa: E731
    with pytest.raises(fp.ForkpointError, match="the ledger is broken"):
        run(tmp_path / "state", CLICKS, sink=LedgerSink(tmp_path), change=once)
    (tmp_path / "broken").unlink()
    run(tmp_path / "state", CLICKS, sink=LedgerSink(tmp_path))
    assert published(tmp_path) == expected()


def test_an_error_in_the_last_epochs_commit_is_an_error_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()
    never = lambda options: replace(options, restart=RestartStrategy.none())  # noqa: E731
    with pytest.raises(fp.ForkpointError, match="the ledger is broken"):
        run(tmp_path / "state", CLICKS, sink=LedgerSink(tmp_path), rows=1000, change=never)


def test_stopping_waits_for_the_output(tmp_path: Path) -> None:
    (tmp_path / "away").touch()
    running = InBackground(tmp_path)
    running.wait_for(lambda s: s.publishing_problem)
    stop = running.driver.savepoint(stop=True)
    wait_until(lambda: running.driver.status().savepoint_progress is None and running.driver.status().epoch > 1)
    assert not stop.done.done()
    (tmp_path / "away").unlink()
    savepoint = stop.done.result()
    assert running.end().outcome == "stopped"
    partly = published(tmp_path)
    assert all(expected()[user][: len(sums)] == sums for user, sums in partly.items())
    run(tmp_path / "state", CLICKS, sink=LedgerSink(tmp_path), savepoint=savepoint)
    assert published(tmp_path) == expected()


def test_a_cancelled_job_leaves_what_it_cannot_publish_to_the_next_run(tmp_path: Path) -> None:
    (tmp_path / "away").touch()
    running = InBackground(tmp_path)
    running.wait_for(lambda s: s.publishing_problem)
    running.driver.cancel()
    assert running.end().outcome == "cancelled"
    (tmp_path / "away").unlink()
    run(tmp_path / "state", CLICKS, sink=LedgerSink(tmp_path))
    assert published(tmp_path) == expected()


def test_a_job_at_its_end_that_is_cancelled_before_its_output_is_there_has_not_finished(tmp_path: Path) -> None:
    (tmp_path / "away").touch()
    running = InBackground(tmp_path, rows=1000)
    running.wait_for(lambda s: s.publishing_problem)
    running.driver.cancel()
    assert running.end().outcome == "cancelled"
    past = history(tmp_path / "state")
    record = RUN.load(past.storage, past.paths.run_file(running.driver.run_id))
    assert record.outcome == "cancelled"
    assert "before its output was published" in str(record.reason)
    (tmp_path / "away").unlink()
    run(tmp_path / "state", CLICKS, sink=LedgerSink(tmp_path))
    assert published(tmp_path) == expected()


@pytest.mark.usefixtures("in_files")
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_staged_output_that_is_damaged_is_an_error_that_names_it(tmp_path: Path, damage: str) -> None:
    (tmp_path / "away").touch()
    with pytest.raises(Crash):
        run(tmp_path / "state", CLICKS, sink=LedgerSink(tmp_path), steps=StopAfter(2))
    (tmp_path / "away").unlink()
    file = next((tmp_path / "state" / JobPaths(JOB).staging_directory).rglob("0-*"))
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    else:
        file.unlink()
    with pytest.raises((SavepointCorrupt, fp.OutputLost, JobFailed), match=file.name):
        run(tmp_path / "state", CLICKS, sink=LedgerSink(tmp_path))


def test_a_rescaling_goes_on_with_what_is_unpublished(tmp_path: Path) -> None:
    (tmp_path / "away").touch()
    running = InBackground(tmp_path)
    running.wait_for(lambda s: s.unpublished.get("sink", 0) == MAX_UNPUBLISHED_EPOCHS)
    running.driver.rescale(3).done.result()
    (tmp_path / "away").unlink()
    assert running.end().outcome == "finished"
    assert published(tmp_path) == expected()


class PatientSink(LedgerSink):
    """Its output waits for an hour, to be committed together."""

    commit_every = timedelta(hours=1)


def test_output_that_waits_to_be_committed_together_is_published_at_the_end(tmp_path: Path) -> None:
    run(tmp_path / "state", CLICKS, sink=PatientSink(tmp_path))
    assert published(tmp_path) == expected()


def test_output_that_waits_is_published_by_the_next_run(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(tmp_path / "state", CLICKS, sink=PatientSink(tmp_path), steps=StopAfter(MAX_UNPUBLISHED_EPOCHS + 3))
    newest = history(tmp_path / "state").newest()
    assert newest is not None
    epochs = [output.epoch for output in newest.unpublished["sink"]]
    assert len(epochs) > MAX_UNPUBLISHED_EPOCHS
    assert epochs == list(range(epochs[0], newest.epoch))
    assert published(tmp_path) == {}
    run(tmp_path / "state", CLICKS, sink=LedgerSink(tmp_path))
    assert published(tmp_path) == expected()


def test_how_long_output_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "MAX_BATCH", 3)
    lane, sizes = publisher._Lane(PatientSink(Path())), []
    assert lane.due_in_s(hurry=True) is None
    for epoch in range(1, 8):
        lane.add(EpochOutput(epoch=epoch, committables=[]))
        wait_s = lane.due_in_s(hurry=False)
        assert wait_s is not None
        assert (0 < wait_s <= 3600) == (epoch < 3)
        assert lane.due_in_s(hurry=True) == 0
        assert lane.full == (epoch == 3 + MAX_UNPUBLISHED_EPOCHS)
    while lane.outputs:
        sizes.append(len(next(publisher.batches(lane.sink, lane.outputs))))
        lane.published(sizes[-1])
    assert sizes == [3, 3, 1]


def test_another_job_of_the_same_name_does_not_take_over_its_numbers(tmp_path: Path) -> None:
    run(tmp_path / "state", CLICKS, sink=LedgerSink(tmp_path))
    run(tmp_path / "elsewhere", CLICKS, sink=LedgerSink(tmp_path))
    assert len(ledger_rows(tmp_path)) == 2 * len(CLICKS)
