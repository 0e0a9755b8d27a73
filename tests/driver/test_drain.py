"""Stop with a drain, killed anywhere: its output counts once the job has stopped, and nothing is late that was in time."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from jobs import JOB, history

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.checkpoint.manifest import MANIFEST
from forkpoint.connectors.files import local as local_files
from forkpoint.connectors.files import sink as file_sink
from forkpoint.driver.savepoints.background import Savepoints
from forkpoint.errors import RestoreRefused, SavepointNotFound, StorageError
from forkpoint.graph.options import CheckpointOptions, RestartStrategy, RestoreOptions
from forkpoint.savepoint.catalog.listing import find_savepoint
from forkpoint.storage.base import LocalStorage, open_storage


class Reading(NamedTuple):
    key: str
    ts: int


class Crash(BaseException):
    """The process dies here."""


@dataclass
class Death:
    """Kills the process at the n-th operation on storage, or on the sink's directory, after ``armed``."""

    left: int
    armed: bool = False
    happened: bool = False

    def at(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def deadly(*args: Any, **options: Any) -> Any:
            if self.armed:
                self.left -= 1
                if self.left < 0:
                    self.happened = True
                    raise Crash
            return operation(*args, **options)

        return deadly

    @contextmanager
    def hanging_over(self) -> Iterator[None]:
        path = type("DeadlyPath", (type(Path()),), {"rename": self.at(Path.rename), "unlink": self.at(Path.unlink)})
        verbs = ("read", "list", "put", "create", "delete")
        patches = [patch.object(LocalStorage, verb, self.at(getattr(LocalStorage, verb))) for verb in verbs]
        patches += [patch.object(file_sink, "Path", path), patch.object(local_files, "Path", path)]
        for each in patches:
            each.start()
        try:
            yield
        finally:
            for each in patches:
                each.stop()


class StopsDrained:
    """Stops the run with a drain once so many elements are read; from there on death may come."""

    def __init__(self, elements: int, death: Death | None = None) -> None:
        self.elements = elements
        self.death = death
        self.answer: Any = None
        self.driver: Any = None

    def on_driver(self, driver: Any) -> Any:
        self.driver = driver
        return lambda ended: None

    def on_step(self, step: str, epoch: int) -> None:
        if step == "published" and self.answer is None:
            positions = self.driver._runner.manifest.sources.values()
            if sum(split.count for position in positions for split in position.splits.values()) >= self.elements:
                self.answer = self.driver.savepoint(stop=True, drain=True).done
                if self.death is not None:
                    self.death.armed = True


def write(root: Path, name: str, *readings: Reading) -> None:
    (root / "in").mkdir(exist_ok=True)
    path = root / "in" / name
    path.write_text("".join(json.dumps(r._asdict()) + "\n" for r in readings))
    os.utime(path, (1_700_000_000 + int(name), 1_700_000_000 + int(name)))


FIRST = [
    Reading("a", 100),
    Reading("b", 200),
    Reading("a", 1100),
    Reading("b", 1200),
]  # their last window is still open
SECOND = [Reading("a", 1300), Reading("b", 1400), Reading("a", 2100), Reading("b", 3500)]


def windows(readings: list[Reading]) -> Counter[str]:
    counts = Counter((r.key, r.ts // 1000) for r in readings)
    return Counter(f"{key} {second} {count}" for (key, second), count in counts.items())


class Count(fp.ProcessWindowFunction):
    def process(self, key: str, context: Any, elements: Any) -> Iterator[str]:
        yield f"{key} {context.window().start // 1000} {len(list(elements))}"


def run(root: Path, stop: StopsDrained, **restore: Any) -> Any:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root / "state")).set_parallelism(2).set_max_epoch_rows(2)
    env.options = replace(
        env.options, checkpoint=CheckpointOptions(num_retained=1, interval_ms=1), restart=RestartStrategy.none()
    )
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e.ts)
    source = env.from_source(fp.FileSource.json(root / "in", Reading), strategy, "in").uid("in")
    counted = source.key_by(lambda r: r.key, str).window(fp.TumblingEventTimeWindows.of(fp.Time.seconds(1)))
    counted.process(Count(), str).uid("count").sink_to(fp.FileSink.text(root / "out")).uid("out")
    launch = Launch(options={"engine": "local"}, steps=stop, on_driver=stop.on_driver, restore=RestoreOptions(**restore))
    env.launch = launch
    return env.execute(JOB)


def output(root: Path) -> Counter[str]:
    return Counter(line for path in (root / "out").glob("part-*") for line in path.read_text().splitlines())


def killed_in_a_stop_with_drain(root: Path, operation: int) -> bool:
    """Whether it was killed; False if the stop has fewer operations."""
    write(root, "1", *FIRST)
    death = Death(operation)
    with death.hanging_over():
        try:
            run(root, StopsDrained(len(FIRST), death))
        except Crash:
            return True
    assert not death.happened
    return False


def test_killed_at_each_operation_of_a_stop_with_drain(tmp_path: Path) -> None:
    everything = FIRST + SECOND
    went_on = refused = 0
    for operation in range(1000):
        root = tmp_path / str(operation)
        root.mkdir()
        killed = killed_in_a_stop_with_drain(root, operation)
        write(root, "2", *SECOND)
        try:
            run(root, StopsDrained(len(everything)))
            assert output(root) == windows(everything), f"killed at operation {operation}"
            went_on += 1
        except RestoreRefused:  # the stop was complete; it goes on from there only when it is told to
            goes_on_from_the_drain(root, operation, {"allow_drained": True})
            refused += 1
        assert not list((root / "out").glob(".*"))
        if not killed:
            break
    assert went_on > 10
    assert refused > 1


def test_a_savepoint_of_a_drain_has_its_output_wherever_the_stop_was_killed(tmp_path: Path) -> None:
    found = 0
    for operation in range(1000):
        root = tmp_path / str(operation)
        root.mkdir()
        killed = killed_in_a_stop_with_drain(root, operation)
        write(root, "2", *SECOND)
        try:
            find_savepoint(open_storage(str(root / "state")), JOB)
        except SavepointNotFound:
            continue
        goes_on_from_the_drain(root, operation, {"savepoint": "latest"})
        found += 1
        if not killed:
            break
    assert found > 2


def goes_on_from_the_drain(root: Path, operation: int, restore: dict[str, Any]) -> None:
    """What fired early stays as it is, once; event time has come to its end, so all that comes now is late."""
    run(root, StopsDrained(len(FIRST + SECOND)), **restore)
    assert output(root) == windows(FIRST), f"killed at operation {operation}"


def test_a_drain_whose_savepoint_fails_is_as_if_nobody_had_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: Any) -> str:
        raise StorageError("the disk is full")

    write(tmp_path, "1", *FIRST)
    stop = StopsDrained(len(FIRST))
    with patch.object(Savepoints, "make", fail):
        assert run(tmp_path, stop).savepoint is None
    with pytest.raises(StorageError, match="the disk is full"):
        stop.answer.result(5)
    assert "The drain's output is dropped; the next run resumes from before the drain" in caplog.text
    assert output(tmp_path) == windows(FIRST[:2])
    write(tmp_path, "2", *SECOND)
    run(tmp_path, StopsDrained(len(FIRST + SECOND)))
    assert "as if no stop had been requested" in caplog.text
    assert output(tmp_path) == windows(FIRST + SECOND)


def test_a_checkpoint_that_an_older_version_drained_is_refused(tmp_path: Path) -> None:
    """It had published what the drain gave, so going on from before it would publish that twice."""
    write(tmp_path, "1", *FIRST)
    run(tmp_path, StopsDrained(len(FIRST)))
    past = history(tmp_path / "state")
    newest = past.newest()
    assert newest is not None
    past.storage.put(past.paths.manifest(newest.epoch), MANIFEST.dump(newest.replace(metadata={})))
    write(tmp_path, "2", *SECOND)
    with pytest.raises(RestoreRefused, match=r"fired early.*\(-s latest\).*\(--allow-drained\).*'none'"):
        run(tmp_path, StopsDrained(len(FIRST + SECOND)))
