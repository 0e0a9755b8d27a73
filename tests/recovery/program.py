"""The job that these tests kill: events from JSON files, a keyed function with state and timers, a file sink.

A module of its own, as it runs in processes of its own: forked from a server that has imported it (local engine), or as
``python program.py JSON`` (Spark).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.checkpoint.manifest import MANIFEST
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.driver.commit import garbage
from forkpoint.driver.commit.publisher import Republisher
from forkpoint.driver.run import epochs
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.driver.savepoints import snapshots
from forkpoint.driver.savepoints.snapshots import Snapshots
from forkpoint.graph.options import RestoreOptions
from forkpoint.local.executor import LocalExecutor
from forkpoint.storage.base import open_storage

JOB = "totals"
STEPS = ("planned", "computed", "written", "committed", "published")


class Event(NamedTuple):
    key: str
    amount: int
    ts: int


class Totals(fp.KeyedProcessFunction):
    """A running count and sum for each key; when a second of event time is over, the key's sum so far."""

    total = fp.ValueStateDescriptor("total", tuple[int, int])

    steps: ClassVar[Signaller | None] = None

    def __init__(self, pause_file: str | None = None) -> None:
        self._pause_file = pause_file

    def process_element(self, event: Event, ctx: fp.KeyedProcessFunction.Context) -> Any:
        count, amount = self.total.value() or (0, 0)
        count, amount = count + 1, amount + event.amount
        self.total.update((count, amount))
        ctx.timer_service().register_event_time_timer(event.ts // 1000 * 1000 + 1000)
        if self.steps is not None:
            self.steps.on_step("element", 0)
        if self._pause_file is not None and event.amount == 13:
            pause(self._pause_file)
        yield f"element {event.key} {count} {amount}"

    def on_timer(self, timestamp: int, ctx: fp.KeyedProcessFunction.OnTimerContext) -> Any:
        count, amount = self.total.value() or (0, 0)
        yield f"timer {ctx.get_current_key()} {timestamp} {count} {amount}"


def pause(path: str) -> None:
    """Say in a file which process is here, and wait until the file has gone; at once if one was here before."""
    try:
        with open(path, "x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return
    while Path(path).exists():
        time.sleep(0.01)


@dataclass(frozen=True)
class Plan:
    """One start of the job.

    ``kill``: the step and the number of the time it is reached, counted from 1, at which the process kills itself.
    The step "started" is between a run's first manifest and what the run before left to publish, "element" in the
    middle of an epoch, "stopping" before the savepoint to stop with is asked for. ``halt``: the same, but it only stops
    until it is told to go on (SIGSTOP). ``stop_after``:
    elements after which the job is stopped with a savepoint, for input that doesn't end. ``restart``: restarts after
    a failure. ``pause_file``: where the function pauses in the middle of an epoch. ``forgetful``: old checkpoints go as
    early as they can. ``beside``: snapshots are made beside the epochs, which wait for them: before such a merge is the step
    "merging", before its result is known "merged".
    """

    directory: str
    engine: str = "local"
    source: str = "files"  # or "stream": a streaming DataFrame of Spark's
    kill: tuple[str, int] | None = None
    halt: tuple[str, int] | None = None
    rows: int = 20
    stop_after: int | None = None
    restarts: int = 0
    pause_file: str | None = None
    parallelism: int = 2
    savepoint: str | None = None
    forgetful: bool = False
    beside: bool = False


class Signaller:
    """Sends this process a signal when it comes to a step for the nth time."""

    def __init__(self, sent: signal.Signals, step: str, times: int) -> None:
        self._signal = sent
        self._step = step
        self._left = times

    def on_step(self, step: str, epoch: int) -> None:
        if step == self._step:
            self._left -= 1
            if self._left == 0:
                # Of a signal to the process the main thread would be told, and this thread run on until that wakes up.
                signal.pthread_kill(threading.get_ident(), self._signal)


def build(plan: Plan) -> fp.StreamExecutionEnvironment:
    base = Path(plan.directory)
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(base / "state")).set_parallelism(plan.parallelism).set_max_epoch_rows(plan.rows)
    env.options = _with_restarts(env, plan.restarts)
    if plan.forgetful:
        env.options = replace(env.options, checkpoint=replace(env.options.checkpoint, num_retained=1))
    strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(100).with_timestamp_assigner(lambda e, _: e.ts)
    if plan.source == "stream":
        from forkpoint.spark.session import get_session

        reader = get_session().readStream.schema("key string, amount bigint, ts bigint").option("maxFilesPerTrigger", 1)
        events = env.from_dataframe(reader.json(str(base / "input")), type=Event, watermark_strategy=strategy)
    else:
        source = fp.FileSource.json(base / "input", Event, bounded=plan.stop_after is None)
        events = env.from_source(source, strategy, "events")
    totals = events.uid("events").key_by(lambda e: e.key).process(Totals(plan.pause_file), str).uid("totals")
    totals.sink_to(fp.FileSink.text(base / "output")).uid("files")
    return env


def _with_restarts(env: fp.StreamExecutionEnvironment, restarts: int) -> Any:
    from forkpoint.graph.options import RestartStrategy

    strategy = RestartStrategy.fixed_delay(restarts, 10) if restarts else RestartStrategy.none()
    return replace(env.options, restart=strategy)


def read_so_far(directory: Path) -> int:
    """How many elements the newest checkpoint has behind it."""
    storage, paths = open_storage(str(directory / "state")), JobPaths(JOB)
    names = storage.list(paths.checkpoints)
    if not names:
        return 0
    newest = MANIFEST.load(storage, max(names))
    return sum(split.count for position in newest.sources.values() for split in position.splits.values())


def run(plan: Plan) -> None:
    # The local stores of a process that is killed stay behind: where the tests' own files are.
    tempfile.tempdir = f"{plan.directory}/tmp"
    Path(tempfile.tempdir).mkdir(exist_ok=True)
    sent = signal.SIGSTOP if plan.halt else signal.SIGKILL
    steps = Signaller(sent, *(plan.halt or plan.kill or ("never", 1)))
    if plan.engine == "local":
        _watch_more_steps(steps)
    if plan.forgetful:
        garbage.EVERY_EPOCHS, epochs.SNAPSHOT_CHAIN = 1, 3
    if plan.beside:
        _snapshots_beside(steps)
    launch = Launch(options={"engine": plan.engine}, steps=steps, restore=RestoreOptions(savepoint=plan.savepoint))
    env = build(plan)
    env.launch = launch
    if plan.stop_after is None:
        env.execute(JOB)
        return
    client = env.execute_async(JOB)
    result = client.get_job_execution_result()
    while not result.done() and read_so_far(Path(plan.directory)) < plan.stop_after:
        time.sleep(0.01)
    if not result.done():
        steps.on_step("stopping", 0)
        path = client.stop_with_savepoint().result()
        Path(plan.directory, "savepoint").write_text(path)
    result.result()


def _watch_more_steps(steps: Signaller) -> None:
    """The steps that a driver does not tell of."""
    publishing: Callable[..., None] = Republisher.repeat

    def watched(self: JobDriver, *args: Any) -> None:
        steps.on_step("started", 0)
        publishing(self, *args)

    Republisher.repeat = watched  # type: ignore[method-assign]
    Totals.steps = steps


def _snapshots_beside(steps: Signaller) -> None:
    garbage.EVERY_EPOCHS, epochs.SNAPSHOT_CHAIN, snapshots.LARGE_BYTES = 1, 1, -1
    begin = Snapshots.begin

    def begun(self: Snapshots, *args: Any) -> None:
        begin(self, *args)
        for thread in threading.enumerate():
            if thread.name == "forkpoint-snapshots":
                thread.join()

    def run(self: LocalExecutor, fn: Callable[[bytes], bytes], args: Sequence[bytes], description: str) -> list[bytes]:
        steps.on_step("merging", 0)
        found = self.run_tasks(fn, args, description)
        steps.on_step("merged", 0)
        return found

    Snapshots.begin, LocalExecutor.run_in_background = begun, run  # type: ignore[method-assign]


def forked(plan: Plan) -> None:
    """What a forked process does: an error is left in a file."""
    try:
        run(plan)
    except BaseException:
        Path(plan.directory, f"error-{os.getpid()}").write_text(traceback.format_exc())
        raise SystemExit(3) from None


def to_json(plan: Plan) -> str:
    return json.dumps(asdict(plan))


if __name__ == "__main__":
    *how, plan = sys.argv[1:]
    (forked if how else run)(Plan(**json.loads(plan)))
