"""What a job does at its edges: output that was consumed before it could be published again, a drain that can't be saved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.driver.savepoints.background import Savepoints
from forkpoint.errors import StorageError
from forkpoint.storage.base import open_storage
from patience import PATIENCE_S


class Crash(BaseException):
    """The process dies here."""


class CrashAt:
    def __init__(self, step: str, epoch: int) -> None:
        self.at = (step, epoch)

    def on_step(self, step: str, epoch: int) -> None:
        if (step, epoch) == self.at:
            raise Crash


class Running(fp.KeyedProcessFunction):
    total = fp.ValueStateDescriptor("total", int)

    def process_element(self, value: int, ctx: Any) -> Iterator[tuple[int, int]]:
        self.total.update((self.total.value() or 0) + value)
        yield ctx.get_current_key(), self.total.value() or 0


def environment(root: Path, source: fp.CollectionSource | fp.CounterSource, sink: Any) -> fp.StreamExecutionEnvironment:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root / "state")).set_parallelism(2).set_max_epoch_rows(10)
    numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers.key_by(lambda v: v % 3, int).process(Running()).uid("running").sink_to(sink).uid("out")
    return env


def test_output_that_was_consumed_before_a_crash_does_not_stop_the_next_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"

    def run(steps: CrashAt | None) -> None:
        env = environment(tmp_path, fp.CollectionSource(list(range(40))), fp.FileSink.json(out, tuple[int, int]))
        env.launch = Launch(options={"engine": "local"}, steps=steps)
        env.execute("consumed")

    with pytest.raises(Crash):
        run(CrashAt("published", 3))
    taken = sum(len(path.read_text().splitlines()) for path in out.glob("part-*"))
    for path in out.glob("part-*"):
        path.unlink()  # a consumer takes what it has read
    run(None)
    left = sum(len(path.read_text().splitlines()) for path in out.glob("part-*"))
    assert taken + left == 40
    assert "output of epoch 3 was not found" in caplog.text


@dataclass(frozen=True, eq=False)
class Elsewhere(fp.FileSink):
    """The tasks' machine has a directory of the same name, which is another one."""

    def create_writer(self, context: fp.SinkContext) -> fp.SinkWriter:
        theirs = self.path.with_name("theirs")
        writer = fp.FileSink.create_writer(replace(self, path=theirs), context)
        prepare = writer.prepare_commit
        writer.prepare_commit = lambda: [  # type: ignore[method-assign]
            {key: place.replace(str(theirs), str(self.path)) for key, place in each.items()} for each in prepare()
        ]
        return writer


def test_a_directory_that_executors_do_not_share_fails_the_job_before_its_first_commit(tmp_path: Path) -> None:
    sink = Elsewhere.json(tmp_path / "out", tuple[int, int])
    env = environment(tmp_path, fp.CollectionSource(list(range(40))), sink)
    env.launch = Launch(options={"engine": "local"})
    with pytest.raises(fp.ConfigError, match="the driver, which publishes it, does not see it") as error:
        env.execute("unshared")
    assert "must be the same directory for the driver and all executors" in str(error.value)
    past = History(open_storage(str(tmp_path / "state")), JobPaths("unshared"))
    assert past.epochs() == [1]  # nothing was read, so all of it comes once the directory is shared
    env = environment(tmp_path, fp.CollectionSource(list(range(40))), fp.FileSink.json(tmp_path / "out"))
    env.launch = Launch(options={"engine": "local"})
    env.execute("unshared")
    assert sum(len(path.read_text().splitlines()) for path in (tmp_path / "out").glob("part-*")) == 40


class Removes:
    """Somebody removes staged files when an epoch is committed."""

    def __init__(self, out: Path, epoch: int, number: int) -> None:
        self.out, self.epoch, self.number = out, epoch, number

    def on_step(self, step: str, epoch: int) -> None:
        if (step, epoch) == ("committed", self.epoch):
            for path in sorted(self.out.glob(".part-*"))[-self.number :]:
                path.unlink()


@pytest.mark.parametrize("number", [1, 2])
def test_what_was_removed_between_commit_and_publishing_fails_the_job(tmp_path: Path, number: int) -> None:
    out = tmp_path / "out"

    def run(steps: Any = None) -> None:
        env = environment(tmp_path, fp.CollectionSource(list(range(40))), fp.FileSink.json(out, tuple[int, int]))
        env.launch = Launch(options={"engine": "local"}, steps=steps)
        env.execute("removed")

    with pytest.raises(fp.OutputLost, match=r"epoch 3 is committed"):
        run(Removes(out, 3, number))
    if number == 1:  # the other one is still staged, so it can be told for good
        with pytest.raises(fp.OutputLost, match="1 of its 2 files were removed before they were published") as error:
            run()
        missing = next(word for word in str(error.value).replace(". ", " ").split() if word.endswith(".jsonl"))
        Path(missing).touch()  # the remedy: without that output
    run()
    assert 30 <= sum(len(path.read_text().splitlines()) for path in out.glob("part-*")) < 40
    assert not list(out.glob(".part-*"))


def test_a_job_that_was_drained_ends_also_if_its_savepoint_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ask:
        driver: JobDriver | None = None
        answer: Any = None

        def attach(self, driver: JobDriver) -> Any:
            self.driver = driver
            return lambda ended: None

        def on_step(self, step: str, epoch: int) -> None:
            if step == "published" and epoch == 3 and self.driver is not None:
                self.answer = self.driver.savepoint(stop=True, drain=True).done

    def fail(*_: Any) -> str:
        raise StorageError("the disk is full")

    monkeypatch.setattr(Savepoints, "make", fail)
    ask = Ask()
    env = environment(tmp_path, fp.CounterSource(per_epoch=10), fp.DiscardSink())
    env.launch = Launch(options={"engine": "local"}, steps=ask, on_driver=ask.attach)
    result = env.execute("drained")
    assert result.savepoint is None
    with pytest.raises(StorageError, match="the disk is full"):
        ask.answer.result(PATIENCE_S)
