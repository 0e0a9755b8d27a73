"""One run of a job, epoch by epoch, in the order of the commit protocol."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from forkpoint.driver.commit import (
    Positions,
    build_manifest,
    chains,
    due_snapshots,
    next_idle_ms,
    raise_failure,
    released_origins,
    split_starts,
)
from forkpoint.driver.executor import Executor
from forkpoint.driver.history import History
from forkpoint.driver.planner import SourcePlanner
from forkpoint.errors import JobFailed
from forkpoint.graph.job import JobGraph
from forkpoint.graph.transformations import EpochSinkSpec, SinkSpec
from forkpoint.runtime.epoch import CommitRow, EpochContext, decode_commit
from forkpoint.snapshot.manifest import Manifest, SourcePosition

SNAPSHOT_CHAIN = 100
SNAPSHOT_RATIO = 1.0


class Steps(Protocol):
    """Sees a run's epochs go by. ``step`` is one of: planned, computed, written, committed, published."""

    def on_step(self, step: str, epoch: int) -> None: ...


class NoSteps:
    def on_step(self, step: str, epoch: int) -> None:
        return None


@dataclass
class Progress:
    """What a run knows beside its manifest: who wrote the last epoch, when something is due, how long chains are."""

    previous: dict[str, str] = field(default_factory=dict)
    next_timer_ms: int | None = None
    since_snapshot: dict[int, tuple[int, int]] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)


class EpochRunner:
    """Runs epochs one after the other from a committed manifest. One thread at a time."""

    def __init__(
        self, *, run: str, graph: JobGraph, manifest: Manifest, history: History, executor: Executor,
        timeout_ms: int, max_rows: int | None, now_ms: Callable[[], int], steps: Steps,
    ) -> None:  # fmt: skip
        self.graph = graph
        self.manifest = manifest
        self._run = run
        self._history = history
        self._executor = executor
        self._timeout_ms = timeout_ms
        self._now_ms = now_ms
        self._began_ms = now_ms()
        self._steps = steps
        native = {uid: p.position for uid, p in manifest.sources.items() if p.kind == "native"}
        self.planner = SourcePlanner(graph, native, manifest.parallelism, max_rows)
        self._failure: Exception | None = None
        self.progress = Progress(
            next_timer_ms=0 if _has_processing_timers(manifest) else None, since_snapshot=chains(manifest)
        )

    # -- what the next epoch would do

    def due_ms(self) -> int | None:
        """When an epoch is needed although nothing came in: a timer, or a split that turns idle."""
        times = (self.progress.next_timer_ms, next_idle_ms(self.graph, self.manifest, self._now_ms()))
        return min((t for t in times if t is not None), default=None)

    def step(
        self, *, drain: bool = False, frame: Any = None, frames: Mapping[str, SourcePosition] | None = None
    ) -> bool:
        """Run one epoch if there is anything to do; False if there was nothing.

        Whatever it raises it raises again when called again: the planner is then ahead of what was committed.
        """
        if self._failure is not None:
            raise self._failure
        try:
            return self._step(drain, frame, frames or {})
        except Exception as error:
            self._failure = error
            raise

    def _step(self, drain: bool, frame: Any, frames: Mapping[str, SourcePosition]) -> bool:
        tasks = self.planner.plan()
        finished = frozenset(self.planner.finished())
        ends = bool(self.graph.sources) and finished == {o.uid for o in self.graph.sources}
        due = self.due_ms()
        now_ms = max(self._now_ms(), self.manifest.processing_time_ms)
        if not (tasks or frame is not None or drain or ends or (due is not None and due <= now_ms)):
            return False
        self._epoch(tasks, frame, Positions(self.planner.positions(), frames, finished), now_ms, drain or ends, ends)
        return True

    @property
    def ended(self) -> bool:
        return self.manifest.kind == "end"

    # -- one epoch

    def _epoch(
        self, tasks: Sequence[bytes], frame: Any, positions: Positions, now_ms: int, drain: bool, ends: bool
    ) -> None:
        context = self._context(now_ms, drain)
        epoch = context.epoch
        self._steps.on_step("planned", epoch)
        rows = self._compute(context, tasks, frame)
        raise_failure(rows)
        self._steps.on_step("computed", epoch)
        self._write_epoch_sinks(rows, epoch)
        self._steps.on_step("written", epoch)
        manifest = build_manifest(
            self.manifest, self.graph, context, rows, positions, run=self._run, created_ms=self._now_ms(),
            kind="end" if ends else "epoch", drained=drain,
        )  # fmt: skip
        self._history.commit(manifest)
        self.manifest = manifest
        self._steps.on_step("committed", epoch)
        publish(self.graph, manifest)
        self._steps.on_step("published", epoch)
        self._remember(context, rows)

    def _context(self, now_ms: int, drain: bool) -> EpochContext:
        before = self.manifest
        return EpochContext(
            generation=before.generation,
            epoch=before.epoch + 1,
            committed=before.epoch,
            processing_time_ms=now_ms,
            drain=drain,
            previous=self.progress.previous,
            splits=split_starts(self.graph, before, now_ms),
            watermarks=dict(before.watermarks),
            released=released_origins(self.graph, before, self._began_ms, now_ms),
            snapshot_subtasks=due_snapshots(
                before, self.progress.since_snapshot, chain=SNAPSHOT_CHAIN, ratio=SNAPSHOT_RATIO
            ),
        )

    def _compute(self, context: EpochContext, tasks: Sequence[bytes], frame: Any) -> list[CommitRow]:
        late = threading.Event()

        def interrupt() -> None:
            late.set()
            self._executor.interrupt()

        timer = threading.Timer(self._timeout_ms / 1000, interrupt)
        timer.daemon = True
        timer.start()
        try:
            blobs = self._executor.run_epoch(context, tasks, frame)
        except Exception as error:
            if late.is_set():
                raise JobFailed(
                    f"epoch {context.epoch} took longer than the checkpoint timeout of {self._timeout_ms} ms; raise it with "
                    "set_checkpoint_timeout(), or lower the limit of elements an epoch"
                ) from error
            raise
        finally:
            timer.cancel()
        return list(map(decode_commit, blobs))

    def _write_epoch_sinks(self, rows: Sequence[CommitRow], epoch: int) -> None:
        """Sinks that need the engine's own writers: before the manifest, so they may see an epoch twice."""
        for operator in self.graph.sinks:
            if isinstance(operator.spec, EpochSinkSpec):
                paths = [c["path"] for row in rows for c in row.committables.get(operator.uid, ())]
                operator.spec.fn(self._executor.staged_frame(paths, operator.spec.type), epoch)

    def _remember(self, context: EpochContext, rows: Sequence[CommitRow]) -> None:
        progress = self.progress
        progress.previous = {f"{row.stage}-{row.subtask}": row.attempt for row in rows}
        timers = [row.next_processing_timer_ms for row in rows if row.next_processing_timer_ms is not None]
        progress.next_timer_ms = min(timers, default=None)
        for row in rows:
            if row.stage == 0:
                continue
            epochs, size = progress.since_snapshot.get(row.subtask, (0, 0))
            if row.snapshot is not None:
                epochs, size = 0, 0
            size += row.changes.size if row.changes is not None else 0
            progress.since_snapshot[row.subtask] = (epochs + (row.stage == 1), size)
        for row in rows:
            for counts in (row.records_in, row.records_out):
                for uid, count in counts.items():
                    progress.records[uid] = progress.records.get(uid, 0) + count

    def close(self) -> None:
        self.planner.close()


def publish(graph: JobGraph, manifest: Manifest) -> None:
    """Make the committed epoch's output visible; repeated at the next start if it was cut short."""
    for operator in graph.sinks:
        if isinstance(operator.spec, SinkSpec):
            operator.spec.sink.commit(manifest.sinks.get(operator.uid, []), manifest.epoch)


def clean_sinks(graph: JobGraph, job: str, before_epoch: int | None) -> None:
    for operator in graph.sinks:
        if isinstance(operator.spec, SinkSpec):
            operator.spec.sink.cleanup(operator.uid, job, before_epoch)


def _has_processing_timers(manifest: Manifest) -> bool:
    return any(s.kind == "timers-processing" for s in manifest.states)


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000
