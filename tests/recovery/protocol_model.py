"""The commit protocol, explored: real drivers of one job under a scheduler that chooses who takes the next step.

Driver, history, garbage collection and file sink are the real ones. The storage is a dict, the engine adds up numbers, and
a step is an operation on storage or on the sink's directory. A schedule says who runs up to which of their steps, and who
is killed there, so every one can be run again. What must come of it is worked out here, from the input alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import random
import re
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import forkpoint as fp
from forkpoint.api.execution import prepare
from forkpoint.api.launch import Launch
from forkpoint.checkpoint import history
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import Manifest
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.connectors.files import local as local_files
from forkpoint.connectors.files import sink as file_sink
from forkpoint.contract.sink import SinkContext
from forkpoint.driver.commit import garbage
from forkpoint.driver.lead import succession
from forkpoint.driver.lead.standby import Standby
from forkpoint.driver.run import epochs
from forkpoint.driver.run.assembly import Run
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.driver.run.requests import Inbox
from forkpoint.driver.savepoints.background import Savepoints
from forkpoint.driver.scale import rescaling
from forkpoint.driver.start.restorer import StoppedWithDrain, from_checkpoint
from forkpoint.driver.start.starter import Overtaken
from forkpoint.errors import AlreadyExists, NotFound, StaleGeneration
from forkpoint.graph.options import CheckpointOptions, Predecessor, RestartStrategy, RestoreOptions
from forkpoint.runtime.exchange.control import Changes, CommitRow, EpochContext, Snapshot, SplitProgress, encode_commit
from threadless import AtOnce

JOB = "job"
PATHS = JobPaths(JOB)
SUBTASKS = 2
FINAL = re.compile(r"part-(\d{12})-\d+-.*\.txt")
SETTINGS = {field.name for field in dataclasses.fields(SinkContext)}


class Segment(NamedTuple):
    """Let a driver run until it is about to take its ``until``-th step, to its end if None; ``kill`` it there."""

    driver: int
    until: int | None = None
    kill: bool = False


class Killed(BaseException):
    pass


class Violation(AssertionError):
    pass


# -- who runs


class Actor:
    """A driver on a thread of its own, which runs only while it is its turn."""

    def __init__(self, world: World, number: int, work: Callable[[Actor], None]) -> None:
        self.number = number
        self.steps = 0
        self.limit: int | None = None
        self.killed = False
        self.ended = False
        self.error: BaseException | None = None
        self.trace: list[str] = []
        self._turn = threading.Semaphore(0)
        self._paused = threading.Semaphore(0)
        self._work = work
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def _main(self) -> None:
        self._turn.acquire()
        _here.actor = self
        try:
            self._work(self)
        except BaseException as error:
            self.error = error
        self.ended = True
        self._paused.release()

    def step(self, what: str) -> None:
        """About to do something that others can see."""
        if not self.killed and self.limit is not None and self.steps >= self.limit:
            self._paused.release()
            self._turn.acquire()
        if self.killed:
            raise Killed
        self.steps += 1
        self.trace.append(what)

    def run(self, segment: Segment) -> None:
        if self.ended:
            return
        self.limit = segment.until
        self._resume()
        if segment.kill and not self.ended:
            self.killed = True
            self._resume()

    def park(self) -> None:
        """Nothing to do until others have done something."""
        self._paused.release()
        self._turn.acquire()
        if self.killed:
            raise Killed

    def _resume(self) -> None:
        self._turn.release()
        if not self._paused.acquire(timeout=300):
            raise Violation(f"driver {self.number} hangs after {self.trace[-3:]}")


_here = threading.local()


def step(what: str) -> Actor | None:
    actor: Actor | None = getattr(_here, "actor", None)
    if actor is not None:
        actor.step(what)
    return actor


# -- what is shared


@dataclass
class World:
    """Storage, the sink's directory, and what a reader has taken away from there."""

    output: Path
    reader: str = "none"  # or "greedy": takes each file when it appears; "half": every other one
    fine: bool = False
    files: dict[str, bytes] = field(default_factory=dict)
    taken: list[tuple[int, str]] = field(default_factory=list)
    staged_by: dict[str, int] = field(default_factory=dict)
    generations: dict[int, int] = field(default_factory=dict)  # of drivers, by number
    appeared: int = 0
    ledger: list[tuple[int, str]] = field(default_factory=list)  # (epoch, numbers) of the sink whose output tasks commit
    sent: dict[str, int] = field(default_factory=dict)  # the newest epoch of each of its groups
    fences: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    runs: dict[str, Actor] = field(default_factory=dict)
    savepoint: Manifest | None = None  # what a driver was stopped with

    def is_dead(self, run: str) -> bool:
        return self.runs[run].killed

    def read_output(self, path: Path) -> None:
        self.appeared += 1
        if self.reader == "greedy" or (self.reader == "half" and self.appeared % 2):
            self.taken.append(_content(path))
            os.unlink(path)

    def published(self) -> list[tuple[int, str]]:
        """(epoch, number) of all that was ever visible."""
        visible = [_content(path) for path in sorted(self.output.glob("part-*"))]
        return [(epoch, line) for epoch, text in self.taken + visible + self.ledger for line in text.split()]


def _content(path: Path) -> tuple[int, str]:
    match = FINAL.fullmatch(path.name)
    assert match is not None, path
    return int(match[1]), path.read_text()


class ModelStorage:
    """One driver's way to the shared storage."""

    url = "memory://protocol"

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def _step(self, verb: str, path: str) -> None:
        if path.startswith((PATHS.runs, PATHS.job_file, "sinks/")):  # conveniences
            if (actor := getattr(_here, "actor", None)) is not None and actor.killed:
                raise Killed
            return
        step(f"{verb} {path.removeprefix(PATHS.directory)}")

    def read(self, path: str) -> bytes:
        self._step("read", path)
        if path not in self._files:
            raise NotFound(f"there is no file {path}")
        return self._files[path]

    def list(self, prefix: str = "", after: str = "") -> list[str]:
        self._step("list", prefix)
        return sorted(path for path in self._files if path > after and (path.startswith(f"{prefix}/") or not prefix))

    def put(self, path: str, data: bytes) -> None:
        self._step("put", path)
        self._files[path] = data

    def create(self, path: str, data: bytes) -> None:
        self._step("create", path)
        if path in self._files:
            raise AlreadyExists(f"{path} exists already")
        self._files[path] = data

    def delete(self, path: str) -> None:
        self._step("delete", path)
        self._files.pop(path, None)

    def delete_all(self, paths: list[str]) -> None:
        for path in paths:
            self.delete(path)

    def delete_prefix(self, prefix: str) -> None:
        for path in self.list(prefix):
            self.delete(path)

    def exists(self, path: str) -> bool:
        self._step("exists", path)
        return path in self._files

    def size(self, path: str) -> int:
        return len(self._files[path])

    def modified_ms(self, path: str) -> int:
        return 0


class ModelExecutor:
    """Two subtasks that write down the numbers they get, and add them up."""

    has_other_hosts = False

    def __init__(self, driver_number: int, world: World, storage: ModelStorage, graph: Any, sink: Any) -> None:
        self._number = driver_number
        self._world = world
        self._storage = storage
        self._sink = sink
        (self._uid,) = [operator.uid for operator in graph.sinks]

    def start(self, spec: Any) -> None: ...

    def prepare(self, spec: Any, epoch: int) -> list[Any]:
        return []

    def discard(self, spec: Any) -> None: ...

    def run_epoch(self, ctx: EpochContext, source_tasks: Sequence[bytes], frame: Any = None) -> list[bytes]:
        ranges = [each for task in source_tasks for each in pickle.loads(task)]
        numbers = [n for _, each in ranges for n in range(each.start, each.end)]
        progress = [SplitProgress(origin, r.split, r.piece, -(2**63), r.end - r.start) for origin, r in ranges]
        try:
            totals = state_at(self._world.files, ctx.committed) if ctx.snapshot_subtasks else {}
        except KeyError as missing:
            raise NotFound(f"there is no file {missing}") from None
        rows = [CommitRow(0, 0, f"e{ctx.epoch}d{self._number}", progress=progress)]
        for subtask in range(SUBTASKS):
            mine = [n for n in numbers if n % SUBTASKS == subtask]
            attempt = f"d{self._number}e{ctx.epoch}s{subtask}x"
            rows.append(
                CommitRow(
                    1,
                    subtask,
                    attempt,
                    changes=self._changes(ctx, subtask, attempt, sum(mine)),
                    snapshot=self._snapshot(ctx, subtask, attempt, totals),
                    committables={self._uid: self._stage(ctx, subtask, attempt, mine)},
                )
            )
        return list(map(encode_commit, rows))

    def _changes(self, ctx: EpochContext, subtask: int, attempt: str, total: int) -> Changes:
        data = str(total).encode()
        if subtask == 0:
            return Changes(None, data, 1, len(data), "0" * 64)
        path = PATHS.changelog(ctx.epoch, 1, subtask, attempt)
        self._storage.put(path, data)
        return Changes(path, None, 1, len(data), "0" * 64)

    def _snapshot(self, ctx: EpochContext, subtask: int, attempt: str, totals: dict[int, int]) -> Snapshot | None:
        if subtask not in ctx.snapshot_subtasks:
            return None
        path = PATHS.snapshot(ctx.committed, subtask, attempt)
        self._storage.put(path, str(totals[subtask]).encode())
        return Snapshot(path, ctx.committed, 1, 1, "0" * 64)

    def _stage(self, ctx: EpochContext, subtask: int, attempt: str, numbers: list[int]) -> list[Any]:
        step(f"stage {ctx.epoch} {subtask}")
        generation = {"generation": ctx.generation} if "generation" in SETTINGS else {}
        writer = self._sink.create_writer(
            SinkContext(self._uid, JOB, ctx.epoch, subtask, attempt, **generation, state_root=ModelStorage.url, inline_bytes=0)
        )
        if numbers:
            writer.write(_Batch(numbers))
        found: list[Any] = writer.prepare_commit()
        for each in found:
            if "staged" in each:
                self._world.staged_by[each["staged"]] = ctx.generation
        return found

    def run_tasks(self, fn: Callable[[bytes], bytes], args: Sequence[bytes], description: str) -> list[bytes]:
        return [fn(arg) for arg in args]

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class _Batch:
    values: list[Any]
    table: None = None
    timestamps: None = None
    type: Any = None


def state_at(files: dict[str, bytes], epoch: int) -> dict[int, int]:
    """Each subtask's total at a committed epoch, by the rules in words: the newest snapshot and the changes after it."""
    manifest = json.loads(files[PATHS.manifest(epoch)])
    totals = {}
    for subtask in range(SUBTASKS):
        refs = [ref for ref in manifest["snapshots"] if ref["subtask"] == subtask]
        base = max(refs, key=lambda ref: ref["epoch"], default=None)
        total = 0 if base is None else int(files[base["path"]])
        at = manifest
        while at is not None and at["epoch"] > (0 if base is None else base["epoch"]):
            for ref in at["changes"]:
                if ref["subtask"] == subtask and ref["stage"] == 1:
                    total += int(_decoded(ref["inline"]) if ref["path"] is None else files[ref["path"]])
            before = at["parent"]["epoch"] if at["kind"] == "start" else at["epoch"] - 1
            ends = not before or before <= (0 if base is None else base["epoch"])
            # Where a manifest is missing that had changes, the total tells: they are in it, or named by it.
            found = None if ends else files.get(PATHS.manifest(before))
            at = None if found is None else json.loads(found)
        totals[subtask] = total
    return totals


def _decoded(text: str) -> bytes:
    import base64

    return base64.b64decode(text)


# -- rescaling, without threads


class Returned(BaseException):
    pass


class NoWait(threading.Event):
    """Nothing remains to be done where a thread would wait."""

    def wait(self, timeout: float | None = None) -> bool:
        raise Returned


class Inline:
    """A thread that is over when it has been started."""

    def __init__(self, target: Callable[[], None], **_: Any) -> None:
        self._target = target

    def start(self) -> None:
        with suppress(Returned):
            self._target()

    def join(self) -> None: ...


class Asks:
    """Asks for other parallelisms once a driver has published so many epochs, or to stop."""

    driver: JobDriver

    def __init__(self, plan: dict[int, int], stop: Stop | None) -> None:
        self._plan = plan
        self._stop = stop
        self._published = 0

    def on_step(self, phase: str, epoch: int) -> None:
        if phase == "published":
            self._published += 1
            if self._published in self._plan:
                self.driver.rescale(self._plan[self._published])
            if self._stop is not None and self._published == self._stop.epochs:
                self.driver.savepoint(stop=True, drain=self._stop.drain)


class Stop(NamedTuple):
    """Stop a driver with a savepoint once it has published so many epochs."""

    epochs: int
    drain: bool = False


def made(self: Savepoints, request: Any, manifest: Manifest) -> str:
    """A savepoint, whose files are those of the checkpoint."""
    step("savepoint")
    _world().savepoint = manifest
    return "savepoint"


# -- standing by, without clocks


class ModelStandby(Standby):
    """For whom time passes by only while its leader is dead."""

    def __init__(self, past: Any, follow: Any) -> None:
        super().__init__(past, follow, self._now)
        self._time = 0.0

    def _now(self) -> float:
        newest = max(path for path in _world().files if re.fullmatch(rf"{PATHS.checkpoints}/\d+\.json", path))
        self._time += 10 * _world().is_dead(json.loads(_world().files[newest])["run"])
        return self._time


def parked(self: Inbox, seconds: float) -> bool:
    if seconds:
        _here.actor.park()
    return self.cancelled


# -- a job's directory, with steps


class ModelPath(type(Path())):  # type: ignore[misc]
    """Paths of the file sink whose changes are steps."""

    def rename(self, target: Any) -> Any:
        step(f"rename {self.name}")
        done = super().rename(target)
        _world().read_output(Path(target))
        return done

    def exists(self, **options: Any) -> bool:
        if _world().fine:
            step(f"exists {self.name}")
        return super().exists(**options)

    def unlink(self, missing_ok: bool = False) -> None:
        actor = step(f"unlink {self.name}")
        world = _world()
        if actor is not None and super().exists():
            owner = world.staged_by.get(str(self), 0)
            mine = world.generations.get(actor.number, 0)
            if owner > mine:
                world.wrong.append(f"driver {actor.number}, generation {mine}, removes {self.name} of generation {owner}")
        super().unlink(missing_ok=missing_ok)


_current: list[World] = []
_steps: dict[str, dict[tuple[Segment, ...], int]] = {}  # by model, by schedule


def _world() -> World:
    return _current[-1]


@dataclass
class Model:
    """A job of some numbers, ready to be run by any schedule. ``faults``: patches that undo a remedy. ``rescales``: after how
    many of its epochs each driver changes its parallelism, and to what; the numbers stay with two subtasks. ``stops``: which
    drivers are stopped. ``standbys``: those that stand by. ``late``: those that are to start from the savepoint, as it was asked
    for when that was made."""

    numbers: int = 6
    each: int = 2
    retained: int = 1
    fine: bool = False  # whether looking for a file is a step of its own
    faults: Sequence[Any] = ()
    rescales: Mapping[int, int] = field(default_factory=dict)
    stops: Mapping[int, Stop] = field(default_factory=dict)
    standbys: Collection[int] = ()
    late: Collection[int] = ()
    sink: Callable[[Path], Any] = fp.FileSink.text

    def __post_init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.output = self._directory / "out"
        env = fp.StreamExecutionEnvironment.get_execution_environment()
        env.set_state_root(str(self._directory / "unused")).set_parallelism(SUBTASKS).set_max_epoch_rows(self.each)
        checkpoint = CheckpointOptions(num_retained=self.retained, interval_ms=1)
        env.options = dataclasses.replace(env.options, checkpoint=checkpoint, restart=RestartStrategy.none())
        sink = self.sink(self.output)
        env.from_collection(list(range(self.numbers)), int).uid("in").sink_to(sink).uid("out")
        env.launch = Launch(options={"engine": "local"})
        prepared = prepare(env, JOB)
        self._sink = sink
        self._graph = prepared.driver.graph
        self._options = prepared.options

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    @contextmanager
    def patched(self) -> Iterator[None]:
        """What makes it fast, deterministic and stepwise."""
        walk = os.walk

        def stepwise(top: Any) -> Any:
            step("walk")
            return walk(top)

        class NoTimeout:
            passed = False

            def __init__(self, *_: Any) -> None: ...
            def running(self) -> AbstractContextManager[None]:
                return nullcontext()

            def close(self) -> None: ...

        at_once = type("threads", (), {"Event": NoWait, "Thread": Inline})
        with ExitStack() as stack:
            for each in (
                patch.object(file_sink, "Path", ModelPath),
                patch.object(local_files, "Path", ModelPath),
                patch.object(local_files, "sync_directory", lambda _: None),
                patch.object(os, "fsync", lambda _: None),
                patch.object(os, "walk", stepwise),
                patch.object(epochs, "EpochTimeout", NoTimeout),
                patch.object(rescaling, "threading", at_once),
                patch.object(Savepoints, "make", made),
                patch.object(succession, "Standby", ModelStandby),
                patch.object(Inbox, "pause", parked),
                patch.object(history, "ThreadPoolExecutor", AtOnce),
                patch.object(epochs, "SNAPSHOT_CHAIN", 1),
                patch.object(garbage, "EVERY_EPOCHS", 1),
                patch.object(garbage, "ThreadPoolExecutor", AtOnce),
                patch.object(garbage, "PAUSE_S", 0),
                patch.object(JobDriver, "_wait", lambda *_: None),
                *self.faults,
            ):
                stack.enter_context(each)
            yield

    def run(self, schedule: Sequence[Segment], reader: str = "none", check: bool = True) -> World:
        """Run a schedule, then everyone to their end, then one more driver, which finishes what is left; and check."""
        world = World(self.output, reader, self.fine)
        shutil.rmtree(self.output, ignore_errors=True)
        self.output.mkdir(parents=True)
        _current.append(world)
        actors: dict[int, Actor] = {}
        self.steps = {}
        try:
            for segment in schedule:
                if segment.driver not in actors:
                    actors[segment.driver] = Actor(world, segment.driver, lambda actor: self._drive(world, actor))
                actors[segment.driver].run(segment)
            for _ in actors:  # one that stands by goes on once another has ended
                for number in sorted(actors):
                    actors[number].run(Segment(number))
            last = len(actors)
            self.steps = {number: actor.steps for number, actor in actors.items()}
            actors[last] = Actor(world, last, lambda actor: self._drive(world, actor))
            actors[last].run(Segment(last))
            if isinstance(actors[last].error, StoppedWithDrain):
                self._check_published(world)
                last += 1
                actors[last] = Actor(world, last, lambda actor: self._drive(world, actor, allow_drained=True))
                actors[last].run(Segment(last))
            self.traces = {number: actor.trace for number, actor in actors.items()}
            if check:
                self._check(world, actors)
        finally:
            _current.pop()
        return world

    def steps_of(self, *schedule: Segment) -> int:
        """How many steps its last driver takes; counted once for all models of these options, if they do all they should."""
        known = _steps.setdefault(repr(self), {}) if not self.faults else {}
        if schedule not in known:
            self.run(schedule, check=False)
            known[schedule] = self.steps[schedule[-1].driver]
        return known[schedule]

    def _drive(self, world: World, actor: Actor, allow_drained: bool = False) -> None:
        storage = ModelStorage(world.files)
        executor = ModelExecutor(actor.number, world, storage, self._graph, self._sink)
        run = Run(
            JOB,
            self._graph,
            self._options,
            SUBTASKS,
            "unused",
            restore=RestoreOptions(allow_drained=allow_drained),
            standby=actor.number in self.standbys,
            predecessor=self._predecessor(world, actor, storage),
        )
        asks = Asks(dict(self.rescales), self.stops.get(actor.number))
        driver = asks.driver = JobDriver(run, storage, executor, now_ms=lambda: 1000, steps=asks)
        world.runs[driver.run_id] = actor
        restore = driver.starter.restore
        savepoint = world.savepoint if actor.number in self.late else None

        def restored(epoch: Any) -> Any:
            saved = None if savepoint is None else from_checkpoint(savepoint)
            base = restore(epoch) if saved is None else dataclasses.replace(saved, epoch=epoch.epoch + 1)
            newest = max((p for p in world.files if p.startswith(PATHS.checkpoints) and p.endswith("json")), default=None)
            world.generations[actor.number] = 1 + (json.loads(world.files[newest])["generation"] if newest else 0)
            return base

        driver.starter.restore = restored  # type: ignore[method-assign]
        driver.run()

    def _predecessor(self, world: World, actor: Actor, storage: ModelStorage) -> Predecessor | None:
        """What its start is said to succeed, where some are late: the newest run when it is asked for."""
        if not self.late:
            return None
        if actor.number in self.late:
            assert world.savepoint is not None
            return Predecessor(world.savepoint.run)
        return Predecessor(History(storage, PATHS).newest_run())

    def _check_published(self, world: World) -> None:
        """All that was committed when a start was refused."""
        newest = json.loads(world.files[max(path for path in world.files if path.startswith(PATHS.checkpoints))])
        read = sum(split["count"] for split in newest["sources"]["in"]["splits"].values())
        found = sorted(int(number) for _, number in world.published())
        if found != list(range(read)):
            world.wrong.append(f"refused with {found} published of {read} that are committed")

    def _check(self, world: World, actors: dict[int, Actor]) -> None:
        wrong = list(world.wrong)
        for actor in actors.values():
            replaced = world.generations.get(actor.number, 0) < max(world.generations.values())
            gone = [NotFound] if replaced else []  # files of an old run may have gone
            expected = (StaleGeneration, Killed, Overtaken, StoppedWithDrain, *gone)
            if actor.number in self.standbys:
                expected = (Killed,)
            if actor.error is not None and not isinstance(actor.error, expected):
                wrong.append(f"driver {actor.number} ended with {type(actor.error).__name__}: {actor.error}")
        found = world.published()
        counts = Counter(number for _, number in found)
        if lost := [n for n in range(self.numbers) if not counts[str(n)]]:
            wrong.append(f"lost: {lost}")
        if twice := [n for n, count in counts.items() if count > 1]:
            wrong.append(f"published more than once: {twice}")
        in_order = [int(n) // self.each for _, n in sorted(found, key=lambda each: each[0])]
        if in_order != sorted(in_order):
            wrong.append(f"epochs out of order: {in_order}")
        if left := list(self.output.glob(".*")):
            newest_generation = max(world.generations.values())
            old = [p.name for p in left if world.staged_by.get(str(p), 0) == newest_generation]
            if old:
                wrong.append(f"left behind: {old}")
        newest = max(p for p in world.files if re.fullmatch(rf"{PATHS.checkpoints}/\d+\.json", p))
        try:
            totals = state_at(world.files, json.loads(world.files[newest])["epoch"])
        except KeyError as missing:
            wrong.append(f"the newest checkpoint needs {missing}, which is gone")
        else:
            right = {s: sum(n for n in range(self.numbers) if n % SUBTASKS == s) for s in range(SUBTASKS)}
            if totals != right:
                wrong.append(f"state is {totals}, not {right}")
        if wrong:
            raise Violation("; ".join(wrong))


# -- schedules


def sleeps(model: Model, first: int = 0) -> Iterator[list[Segment]]:
    """Every schedule of two drivers with two switches in the middle: the one sleeps before each of its steps, the other
    starts and runs up to each of its own, or to its end, then the first one wakes up and runs to its end."""
    for asleep in range(first, model.steps_of(Segment(0)) + 1):
        for awake in range(1, model.steps_of(Segment(0, asleep), Segment(1)) + 1):
            yield [Segment(0, asleep), Segment(1, awake), Segment(0)]


def kills(model: Model) -> Iterator[list[Segment]]:
    """A driver is killed before each of its steps, the next one before each of its own."""
    for first in range(model.steps_of(Segment(0))):
        for second in range(model.steps_of(Segment(0, first, kill=True), Segment(1)) + 1):
            yield [Segment(0, first, kill=True), Segment(1, second, kill=True)]


def killed_once(model: Model) -> Iterator[list[Segment]]:
    """A driver is killed before each of its steps."""
    for at in range(model.steps_of(Segment(0))):
        yield [Segment(0, at, kill=True)]


def deaths_beside(model: Model) -> Iterator[list[Segment]]:
    """One driver sleeps before each of its steps; another is killed before each of its own, and the first wakes up."""
    for asleep, awake, last in sleeps(model):
        yield [asleep, awake._replace(kill=True), last]


def three(model: Model) -> Iterator[list[Segment]]:
    """Two drivers sleep, each before each of its steps, while a third one runs to its end; then either wakes up first."""
    for first, second, _ in sleeps(model):
        yield [first, second, Segment(2), Segment(0), Segment(1)]
        yield [first, second, Segment(2), Segment(1), Segment(0)]


def takes_over(model: Model, step: int = 1) -> Iterator[list[Segment]]:
    """A leader is killed before some of its steps; two standbys take over, and switch before each of their steps, or before
    each ``step``-th of the first one's."""
    for death in range(1, model.steps_of(Segment(0)), 9):
        for first in range(death % step, model.steps_of(Segment(0, death, kill=True), Segment(1)), step):
            start = [Segment(0, death, kill=True), Segment(1, first)]
            for second in range(1, model.steps_of(*start, Segment(2)) + 1):
                yield [*start, Segment(2, second), Segment(1)]


def comes_late(model: Model) -> Iterator[list[Segment]]:
    """A driver is stopped with a savepoint. One that is to start from there sleeps before each of its steps, while another starts
    by hand and comes up to each of its own, or to its end."""
    for asleep in range(model.steps_of(Segment(0), Segment(1))):
        for awake in range(1, model.steps_of(Segment(0), Segment(1, asleep), Segment(2)) + 1):
            yield [Segment(0), Segment(1, asleep), Segment(2, awake), Segment(1)]


def drawn(model: Model, seed: int, drivers: int = 3, switches: int = 8) -> Iterator[list[Segment]]:
    """Schedules without end, with any switches and some kills."""
    rng = random.Random(seed)
    while True:
        at = [0] * drivers
        schedule = []
        for _ in range(rng.randint(2, switches)):
            driver = rng.randrange(drivers)
            at[driver] += rng.choice((1, 2, 3, 5, 8, 13, 21, 34))
            schedule.append(Segment(driver, at[driver], rng.random() < 0.1))
        # Drivers are numbered in the order in which they start.
        numbers = {driver: i for i, driver in enumerate(dict.fromkeys(segment.driver for segment in schedule))}
        yield [segment._replace(driver=numbers[segment.driver]) for segment in schedule]


@dataclass
class Report:
    explored: int = 0
    violations: list[tuple[str, list[Segment], str]] = field(default_factory=list)

    def said(self, what: str) -> int:
        """How many violations are of this kind."""
        return sum(what in message for _, _, message in self.violations)

    def __str__(self) -> str:
        shown = [f"{reader}, {[tuple(s) for s in schedule]}: {said}" for reader, schedule, said in self.violations[:5]]
        return "\n".join([f"{len(self.violations)} of {self.explored} schedules go wrong", *shown])


def explore(
    model: Model,
    schedules: Callable[[Model], Iterator[list[Segment]]],
    readers: Sequence[str] = ("half",),
    *,
    most: int | None = None,
    every: int = 1,
    enough: int | None = None,
) -> Report:
    """Run schedules with each reader: all of them, or every n-th, or the first ``most``; ``enough``: up to so many violations."""
    report = Report()
    with model.patched():
        for schedule in islice(schedules(model), 0, most, every):
            for reader in readers:
                report.explored += 1
                try:
                    model.run(schedule, reader)
                except Violation as violation:
                    report.violations.append((reader, schedule, str(violation)))
                    if enough is not None and len(report.violations) >= enough:
                        return report
    return report
