"""Small jobs on the local engine, and looking at what they have left on storage."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

import forkpoint as fp
from forkpoint.api.execution import Job, prepare
from forkpoint.api.launch import Launch
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.driver.observe.events import Listener
from forkpoint.driver.run.stop import Result
from forkpoint.graph.options import CheckpointOptions, JobOptions, RestoreOptions
from forkpoint.savepoint.export.exporter import export_savepoint
from forkpoint.savepoint.format.tasks import run_here
from forkpoint.storage.base import open_storage

JOB = "sums"


class Click(NamedTuple):
    user: int
    count: int
    ts: int


def clicks(number: int, users: int = 7) -> list[Click]:
    return [Click(i * 5 % users, i % 4 + 1, i * 10) for i in range(number)]


def sums(elements: Iterable[Click]) -> dict[int, int]:
    found: dict[int, int] = {}
    for click in elements:
        found[click.user] = found.get(click.user, 0) + click.count
    return found


class Sum(fp.KeyedProcessFunction):
    total = fp.ValueStateDescriptor("total", int)

    def process_element(self, click: Click, ctx: fp.KeyedProcessFunction.Context) -> Any:
        total = (self.total.value() or 0) + click.count
        self.total.update(total)
        yield click.user, total


class Bulky(Sum):
    """State that is too much to go into the manifest: 40 kB for all keys, which no compression makes small."""

    bulk = fp.ValueStateDescriptor("bulk", bytes)

    def process_element(self, click: Click, ctx: fp.KeyedProcessFunction.Context) -> Any:
        self.bulk.update(random.Random(click.ts).randbytes(12_000))
        yield from super().process_element(click, ctx)


def job(
    root: Path | str,
    elements: list[Click] | None = None,
    *,
    rows: int = 5,
    parallelism: int = 2,
    retained: int = 1,
    fn: fp.KeyedProcessFunction | None = None,
    sink: Any = None,
    savepoint: str | None = None,
    change: Callable[[JobOptions], JobOptions] = lambda options: options,
    steps: Any = None,
    source: Any = None,
    key: Callable[[Any], Any] = lambda click: click.user,
    key_type: Any = None,
    allow_non_restored: bool = False,
    uid: str = "sums",
    listeners: Sequence[Listener] = (),
) -> Job:
    """A job that has been compiled; ``finish`` runs it."""
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root)).set_parallelism(parallelism).set_max_epoch_rows(rows)
    env.options = change(replace(env.options, checkpoint=CheckpointOptions(num_retained=retained)))
    if source is None:
        stream = env.from_collection(elements or [], Click)
    else:
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "source")
    stream.uid("clicks").key_by(key, key_type).process(fn or Sum(), fp.Types.ANY()).uid(uid).sink_to(
        sink or fp.DiscardSink()
    ).uid("sink")
    restore = RestoreOptions(savepoint=savepoint, allow_non_restored=allow_non_restored)
    env.launch = Launch(options={"engine": "local"}, steps=steps, restore=restore, listeners=listeners)
    return prepare(env, JOB)


def run(root: Path | str, elements: list[Click] | None = None, **options: Any) -> Result:
    return finish(job(root, elements, **options))


def finish(prepared: Job) -> Result:
    """Run a job to its end."""
    return prepared.begin()()


class StopAfter:
    """Ends a run with an error, as a crash of the program would, when some epochs have been published."""

    def __init__(self, epochs: int) -> None:
        self.left = epochs

    def on_step(self, step: str, epoch: int) -> None:
        if step == "published":
            self.left -= 1
            if not self.left:
                raise Crash


class Crash(BaseException):
    pass


def history(root: Path | str) -> History:
    return History(open_storage(str(root)), JobPaths(JOB))


def state_of(root: Path | str, epoch: int | None = None, uid: str = "sums", state: str = "total") -> dict[Any, Any]:
    """A checkpoint's state, the newest's as a rule."""
    past = history(root)
    manifest = past.newest() if epoch is None else past.load(epoch)
    assert manifest is not None
    with tempfile.TemporaryDirectory() as place:
        export_savepoint(
            storage=past.storage, manifest=manifest, target=open_storage(place), savepoint_id="s", run_tasks=run_here
        )
        return saved_state(Path(place), uid, state)


def saved_state(savepoint: Path, uid: str = "sums", state: str = "total") -> dict[Any, Any]:
    table = pq.read_table(savepoint / "operators" / uid / state)
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
