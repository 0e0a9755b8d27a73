"""What the driver does when something in the middle of its protocol fails, without any process being killed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from jobs import clicks, finish, history, job, run, state_of, sums

import forkpoint as fp
from forkpoint.checkpoint.manifest import RUN, Parent
from forkpoint.driver.commit.publisher import Publisher
from forkpoint.driver.observe.events import Listeners
from forkpoint.driver.run.epochs import EpochRunner, wall_clock_ms
from forkpoint.driver.savepoints.background import throttled
from forkpoint.driver.savepoints.snapshots import Snapshots
from forkpoint.driver.start.restorer import Restored
from forkpoint.driver.start.starter import start_manifest
from forkpoint.errors import JobFailed, StorageError
from forkpoint.graph.options import JobOptions, RestartStrategy
from forkpoint.local.executor import LocalExecutor

ELEMENTS = clicks(20)


class Fails(LocalExecutor):
    """The first epoch fails."""

    failed = False

    def run_epoch(self, *args: Any) -> list[bytes]:
        if not self.failed:
            self.failed = True
            raise JobFailed("ouch")
        return super().run_epoch(*args)


def test_after_a_failure_nothing_is_committed_before_a_new_attempt(tmp_path: Path) -> None:
    """The planner is ahead of what was committed: going on would leave out what the failed epoch was to read."""
    prepared = job(tmp_path, ELEMENTS)
    manifest = start_manifest("sums", "run", prepared.graph, Restored(Parent()), generation=1, parallelism=2, now_ms=0)
    past = history(tmp_path)
    past.commit(manifest, after=0)
    executor = Fails()
    executor.start(prepared.driver.parts.layouts.next(manifest, manifest.parallelism))
    publisher = Publisher(prepared.graph, executor, past, Listeners(), lambda: None, wall_clock_ms)
    runner = EpochRunner(
        run="run",
        graph=prepared.graph,
        manifest=manifest,
        history=past,
        executor=executor,
        publisher=publisher,
        snapshots=Snapshots(past, partial(throttled, executor, description="snapshots")),
        timeout_ms=60_000,
        max_rows=5,
        limits_memory=False,
        now_ms=lambda: 0,
        listener=Listeners(),
    )
    for _ in range(2):
        with pytest.raises(JobFailed, match="ouch"):
            runner.step()
    assert past.epochs() == [1]
    executor.close()


@dataclass(frozen=True, eq=False)
class Unpublishable(fp.FileSink):
    """Its commit fails as often as ``failures`` says, beginning with the fourth epoch, and calls what is in ``CALLS``."""

    failures: Any = None

    def commit(self, committables: list[Any], epoch: int) -> None:
        if epoch >= 4 and self.failures:
            self.failures.pop()
            for call in CALLS:
                call()
            raise StorageError("the output directory has gone away")
        super().commit(committables, epoch)


CALLS: list[Any] = []


def unpublishable(tmp_path: Path, failures: int) -> Unpublishable:
    made = fp.FileSink.text(tmp_path / "out")
    return Unpublishable(made.path, made.format, made.type, made.bucket, made.prefix, made.options, failures=[0] * failures)


def lines(tmp_path: Path) -> list[str]:
    files = (path for path in (tmp_path / "out").iterdir() if not path.name.startswith("."))
    return sorted(line for file in files for line in file.read_text().splitlines())


def restarts(options: JobOptions) -> JobOptions:
    return replace(options, restart=RestartStrategy.fixed_delay(3, 1))


@pytest.fixture
def expected(tmp_path: Path) -> list[str]:
    run(tmp_path / "other" / "state", ELEMENTS, sink=fp.FileSink.text(tmp_path / "other" / "out"))
    return lines(tmp_path / "other")


@pytest.mark.parametrize("failures", [1, 3])
def test_output_that_could_not_be_published_is_published_after_a_restart(
    tmp_path: Path, expected: list[str], failures: int
) -> None:
    """Also where the second and third attempt at it fail, which count as the strategy says."""
    sink = unpublishable(tmp_path, failures)
    assert run(tmp_path / "state", ELEMENTS, sink=sink, change=restarts).outcome == "finished"
    assert lines(tmp_path) == expected


def test_or_the_job_fails_and_it_is_published_at_the_next_start(tmp_path: Path, expected: list[str]) -> None:
    with pytest.raises(StorageError, match="gone away"):
        run(tmp_path / "state", ELEMENTS, sink=unpublishable(tmp_path, 9), change=restarts)
    assert lines(tmp_path) != expected
    run(tmp_path / "state", ELEMENTS, sink=unpublishable(tmp_path, 0))
    assert lines(tmp_path) == expected


def test_a_job_that_is_cancelled_just_then_has_published_what_it_committed(tmp_path: Path, expected: list[str]) -> None:
    prepared = job(tmp_path / "state", ELEMENTS, sink=unpublishable(tmp_path, 1), change=restarts)
    CALLS.append(prepared.driver.cancel)
    try:
        result = finish(prepared)
    finally:
        CALLS.clear()
    assert result.outcome == "cancelled"
    assert result.epoch == 4
    assert len(lines(tmp_path)) == 15
    run(tmp_path / "state", ELEMENTS, sink=unpublishable(tmp_path, 0))
    assert lines(tmp_path) == expected


def test_an_epoch_that_takes_too_long(tmp_path: Path) -> None:
    """It is interrupted, and the job restarts; the message says what to change."""
    import time

    class Slow(fp.KeyedProcessFunction):
        total = fp.ValueStateDescriptor("total", int)

        def process_element(self, click: Any, ctx: fp.KeyedProcessFunction.Context) -> Any:
            if click.ts == 100 and not marker.exists():
                marker.touch()
                while True:
                    time.sleep(0.01)
            self.total.update((self.total.value() or 0) + click.count)
            yield click

    marker = tmp_path / "slept"

    def change(options: JobOptions) -> JobOptions:
        return replace(restarts(options), checkpoint=replace(options.checkpoint, timeout_ms=1_500))

    prepared = job(tmp_path / "state", ELEMENTS, fn=Slow(), change=change)
    assert finish(prepared).outcome == "finished"
    assert prepared.driver.status().restarts == 1
    assert "epoch 4 took longer than the checkpoint timeout of 1500 ms" in str(prepared.driver.status().failure)
    assert state_of(tmp_path / "state") == sums(ELEMENTS)


def test_how_a_run_ended_is_on_record(tmp_path: Path) -> None:
    class Raises(fp.KeyedProcessFunction):
        def process_element(self, click: Any, ctx: fp.KeyedProcessFunction.Context) -> Any:
            raise ValueError("no")

    with pytest.raises(fp.UserFunctionError):
        run(tmp_path, ELEMENTS, fn=Raises())
    run(tmp_path, ELEMENTS)
    past = history(tmp_path)
    runs = [RUN.load(past.storage, path) for path in past.storage.list(past.paths.runs) if path.endswith("run.json")]
    first, second = sorted(runs, key=lambda r: r.generation)
    assert (first.outcome, second.outcome) == ("failed", "finished")
    assert "the function raised ValueError: no" in str(first.reason)
    assert second.parent.run == first.run


def test_two_savepoints_do_not_get_one_label(tmp_path: Path) -> None:
    """Neither side by side nor one after the other; nor a label that means something else."""
    prepared = job(tmp_path, clicks(300))
    asked = [prepared.driver.savepoint(label=label) for label in ("spring", "spring", "latest", "none", "", "autumn")]
    finish(prepared)
    errors = [str(each.done.exception(10)) for each in asked]
    assert sorted(errors[:2], key=len)[0] == "None"
    refused = sorted(errors[:2], key=len)[1]
    assert "is in progress" in refused or "already has the label 'spring'" in refused
    assert all("cannot be a label" in error for error in errors[2:5])
    assert errors[5] == "None"
