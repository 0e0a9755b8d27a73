"""One start of the job, in a process that was forked for it (local engine) or started anew (Spark)."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import tempfile
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from chaos.job import JOB, Program, build
from chaos.operations import Fault, Operations
from chaos.reading import read_in
from forkpoint.api.launch import Launch, launching
from forkpoint.driver.commit import garbage
from forkpoint.driver.run import epochs
from forkpoint.driver.savepoints import snapshots
from forkpoint.driver.scale import layouts
from forkpoint.errors import StaleGeneration
from forkpoint.graph.options import RestoreOptions
from forkpoint.local.executor import LocalExecutor

DONE, FAILED, REPLACED = 0, 3, 4
Goal = Literal["stop", "drain", "cancel", "end", "none"]


@dataclass(frozen=True)
class Plan:
    """``goal``: how the run ends once ``read`` elements are behind it: stopped with a savepoint, drained, cancelled, by the end
    of its bounded input, or not at all. ``savepoints``: elements after which one is made by the way. ``report``: a file for what
    the run did."""

    program: Program
    goal: Goal = "stop"
    read: int = 0
    savepoints: tuple[int, ...] = ()
    job: str = JOB
    restore: str | None = None
    fault: Fault | None = None
    collect_every: int = 3  # epochs
    snapshot_every: int = 4
    inline: int = 400  # bytes: what changes an epoch's manifest takes in, at most
    report: str | None = None
    engine: str = "local"


class Watching:
    """Tells the main thread how far the job has come."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self.epochs: queue.SimpleQueue[int] = queue.SimpleQueue()

    def on_step(self, step: str, epoch: int) -> None:
        self._operations.on_step(step, epoch)
        if step == "published":
            self.epochs.put(epoch)


def read_so_far(directory: str, job: str) -> int:
    """How many elements the newest checkpoint has behind it."""
    place = Path(directory, "state", "jobs", job, "checkpoints")
    names = sorted(place.glob("*.json")) if place.is_dir() else []
    for path in reversed(names):
        try:
            sources = json.loads(path.read_text())["sources"]
        except (FileNotFoundError, ValueError):
            continue
        return read_in(sources)
    return 0


def run(plan: Plan) -> None:
    directory = plan.program.directory
    tempfile.tempdir = f"{directory}/tmp"
    Path(tempfile.tempdir).mkdir(exist_ok=True)
    _set(garbage, "EVERY_EPOCHS", plan.collect_every)
    _set(epochs, "SNAPSHOT_CHAIN", plan.snapshot_every)
    _set(layouts, "INLINE_BYTES", plan.inline)
    _set(snapshots, "LARGE_BYTES", 300)  # soon exceeded, so that snapshots are made within epochs and beside them
    _set(LocalExecutor, "run_in_background", LocalExecutor.run_tasks)  # where operations are observed
    operations = Operations(directory, plan.fault)
    watching = Watching(operations)
    launch = Launch(options={"engine": plan.engine}, steps=watching, restore=RestoreOptions(savepoint=plan.restore))
    with launching(launch):
        env = build(plan.program)
        operations.watch()
        client = env.execute_async(plan.job)
    told: dict[str, Any] = {}
    try:
        _until_goal(plan, client, watching, operations, told)
    finally:
        told |= {"changes": operations.changes, "reads": operations.reads}
        with contextlib.suppress(OSError):  # the disk may be full
            Path(plan.report or os.devnull).write_text(json.dumps(told))


def _until_goal(plan: Plan, client: Any, watching: Watching, operations: Operations, told: dict[str, Any]) -> None:
    result = client.get_job_execution_result()
    waiting = sorted(plan.savepoints)
    making: list[Any] = []
    stopped: Any = None
    while not result.done():
        with contextlib.suppress(queue.Empty):
            watching.epochs.get(timeout=0.02)
        for future in [f for f in making if f.done()]:
            making.remove(future)
            operations.end("savepoint")
        if stopped is not None and stopped.done():
            told["savepoint"] = stopped.result()  # raises what the savepoint failed with: the job would go on
        if stopped is not None or (plan.goal in ("end", "none") and not waiting):
            continue
        read = read_so_far(plan.program.directory, plan.job)
        if waiting and read >= waiting[0]:
            waiting.pop(0)
            operations.begin("savepoint")
            making.append(client.trigger_savepoint())
        if plan.goal == "cancel" and read >= plan.read:
            operations.begin("cancel")
            client.cancel()
        if plan.goal in ("stop", "drain") and read >= plan.read and not making:
            operations.begin(plan.goal)
            stopped = client.stop_with_savepoint(advance_to_end_of_event_time=plan.goal == "drain")
    result.result()
    if stopped is not None:
        told["savepoint"] = stopped.result()


def _set(module: Any, name: str, value: Any) -> None:
    """Snapshots, garbage collection and files of changes have to come within few small epochs."""
    assert hasattr(module, name), f"{module.__name__} has no {name} any more: chaos needs another way to set it"
    setattr(module, name, value)


def main(plan: Plan) -> int:
    """The exit code; an error is left in a file."""
    try:
        run(plan)
    except BaseException as error:
        text = traceback.format_exc()
        with contextlib.suppress(OSError):  # the disk may be full
            Path(plan.program.directory, "errors").mkdir(exist_ok=True)
            Path(plan.program.directory, "errors", str(os.getpid())).write_text(text)
        return REPLACED if isinstance(error, StaleGeneration) else FAILED
    return DONE


def to_json(plan: Plan) -> str:
    return json.dumps(asdict(plan))


def from_json(text: str) -> Plan:
    given = json.loads(text)
    fault = given["fault"]
    return Plan(
        **{
            **given,
            "program": Program(**given["program"]),
            "fault": None if fault is None else Fault(**fault),
            "savepoints": tuple(given["savepoints"]),
        }
    )


if __name__ == "__main__":
    code = main(from_json(sys.argv[1]))
    sys.stdout.flush()
    os._exit(code)
