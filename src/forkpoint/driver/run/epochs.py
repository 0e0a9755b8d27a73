"""Runs a job's epochs: plans, computes, commits, publishes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forkpoint import logs
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import Manifest, SourcePosition
from forkpoint.driver.commit.amounts import JobAmounts, saved, to_save
from forkpoint.driver.commit.manifests import (
    Positions,
    build_manifest,
    chains,
    due_snapshots,
    ended_origins,
    joined_splits,
    next_idle_ms,
    raise_failure,
    silent_origins,
    split_starts,
    splits_by_origin,
    staged_from,
)
from forkpoint.driver.commit.measurements import Measurements, holds, measurements, skews, states_of
from forkpoint.driver.commit.publisher import Publisher
from forkpoint.driver.commit.trial import Trial, TrialProgress
from forkpoint.driver.observe.events import EpochCommitted, EpochReached, Listener, added_up
from forkpoint.driver.run.epoch_memory import EpochMemory
from forkpoint.driver.run.executor import Executor
from forkpoint.driver.run.planner import Alignment, SourcePlanner, source_limits
from forkpoint.driver.run.timing import EpochTimeout, ProcessingClock
from forkpoint.driver.savepoints.snapshots import Merge, Snapshots, is_large
from forkpoint.driver.start.replay import Bound, PositionBound, TimeBound, Until, UntilPositions
from forkpoint.errors import ForkpointError, JobFailed, NotFound, OutputLost, of_sink
from forkpoint.graph.job import JobGraph
from forkpoint.graph.specs import EpochSinkSpec, SinkSpec
from forkpoint.protocol.messages import Phase
from forkpoint.runtime.exchange.control import CommitRow, EpochContext, decode_commit
from forkpoint.runtime.tasks.worker import listeners_of
from forkpoint.savepoint.format.source_logs import store_logs

SNAPSHOT_CHAIN = 500
SNAPSHOT_RATIO = 1.0


@dataclass
class Progress:
    """A run's progress beyond its manifest. ``previous``: the task attempts that wrote the last epoch, by "stage-subtask".
    ``in_flight``: elements within iterations (1 before the first count). ``since_snapshot``: epochs and bytes of changes since
    the last snapshot, by subtask. ``amounts``: the size of each state."""

    previous: dict[str, str] = field(default_factory=dict)
    next_timer_ms: int | None = None
    in_flight: int = 0
    since_snapshot: dict[int, tuple[int, int]] = field(default_factory=dict)
    amounts: JobAmounts = field(default_factory=JobAmounts)


class EpochRunner:
    """Runs epochs in sequence, starting from a committed manifest. Not thread-safe."""

    def __init__(
        self,
        *,
        run: str,
        graph: JobGraph,
        manifest: Manifest,
        history: History,
        executor: Executor,
        publisher: Publisher,
        snapshots: Snapshots,
        timeout_ms: int,
        max_rows: int | None,
        limits_memory: bool,
        now_ms: Callable[[], int],
        listener: Listener,
        until: Until | None = None,
        trial: Trial | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.graph = graph
        self.manifest = manifest
        self._run = run
        self._history = history
        self._executor = executor
        self._publisher = publisher
        self.snapshots = snapshots
        self._timeout_ms = timeout_ms
        self._timeout = EpochTimeout(timeout_ms, executor.interrupt)
        self._wall_ms = now_ms
        self.now_ms = ProcessingClock(now_ms, manifest.processing_time_ms)
        self._began_ms = self.now_ms()
        self._listener = listener
        self.bound = _bound(graph, until, manifest, max_rows)
        self.planner = SourcePlanner(graph, _native(manifest), manifest.parallelism, max_rows, self.bound.stops, wake)
        self._memory = EpochMemory() if limits_memory else None
        if self._memory is not None:
            self.planner.limit(self._memory.rows)
        self._alignment = Alignment(graph)
        self.trial = TrialProgress(trial, self.now_ms())
        self._failure: Exception | None = None
        self.epoch_began_ms: int | None = None  # while an epoch is computed
        self._since_ms = now_ms()  # when the current phase began
        self._listens = bool(listeners_of(graph))
        self._has_epoch_sinks = any(isinstance(operator.spec, EpochSinkSpec) for operator in graph.sinks)
        self._notified = manifest.epoch  # the last epoch that functions were notified of
        self.undecided: Manifest | None = None  # the manifest whose commit is in flight or has failed
        # Uids of operators: whose outputs are taken one by one, that have emitted, that have emitted mutable values.
        self._one_by_one: set[str] = set()
        self._with_outputs: set[str] = set()
        self._with_mutable_outputs: set[str] = set()
        at_once = any(s.kind == "timers-processing" for s in manifest.states) or _changes_results(graph, manifest)
        self.progress = Progress(
            next_timer_ms=0 if at_once else None,
            in_flight=int(graph.loops),
            since_snapshot=chains(manifest),
            amounts=JobAmounts(saved(manifest)),
        )

    def retire(self) -> None:
        """Refuse further epochs, including DataFrame batches: another layout takes over."""
        self._failure = JobFailed(f"job {self.manifest.job!r} has been rescaled; the new layout reads this batch again")

    def close(self) -> None:
        """After the last epoch."""
        self.snapshots.close()
        self._timeout.close()
        self.planner.close()

    # -- planning

    def due_ms(self) -> int | None:
        """When an epoch is due without new input: for a timer, an idleness timeout, or elements in iterations."""
        if self.progress.in_flight:
            return 0
        times = (self.progress.next_timer_ms, next_idle_ms(self.graph, self.manifest, self.now_ms()), self.trial.ends_at_ms())
        return min((t for t in times if t is not None), default=None)

    def step(self, *, drain: bool = False, frame: Any = None, frames: Mapping[str, SourcePosition] | None = None) -> bool:
        """Run one epoch if there is work and no back pressure from sinks; returns whether it ran. After an error, every call
        raises it again, because the planner is ahead of the committed positions."""
        if self._failure is not None:
            raise self._failure
        if self._publisher.full and not drain and frame is None:
            return False
        try:
            storage, paths, before = self._history.storage, self._history.paths, self.manifest
            return self._step(drain, frame, store_logs(storage, paths, before.epoch + 1, frames or {}, before.sources))
        except Exception as error:
            self._failure = error
            raise

    def _step(self, drain: bool, frame: Any, frames: Mapping[str, SourcePosition]) -> bool:
        while True:
            self._since_ms = self._wall_ms()
            tasks = self.planner.plan(self._limits(max(self.now_ms(), self.manifest.processing_time_ms)))
            finished = frozenset(self.planner.finished())
            ends = bool(self.graph.sources) and finished == {o.uid for o in self.graph.sources}
            if self.graph.loops and (tasks or frame is not None or self.progress.in_flight):
                ends = False  # the final watermark follows once the loops are empty
            due = self.due_ms()
            now_ms = max(self.now_ms(), self.manifest.processing_time_ms)
            if not (tasks or frame is not None or drain or ends or (due is not None and due <= now_ms)):
                return False
            positions = Positions(self.planner.positions(), frames, finished)
            if self._epoch(tasks, frame, positions, now_ms, drain or ends, ends):
                return True
            self.planner.rewind(_native(self.manifest))

    def _limits(self, now_ms: int) -> Mapping[str, int | None] | None:
        """The maximum number of elements for each source that the next epoch reads. None: all sources, with their usual
        limits."""
        if not self._alignment.aligns:
            return self.bound.limits()
        silent = silent_origins(self.graph, self.manifest, self._began_ms, now_ms)
        starts = split_starts(self.graph, self.manifest, now_ms, self._alignment.recently_paused)
        return self._alignment.restrict(
            self.bound.limits(),
            self.planner.limits,
            starts,
            self.planner.finished_splits(),
            {*self.planner.finished(), *(self.graph.by_id[o].uid for o in silent)},
            self.planner.pause,
        )

    @property
    def reached(self) -> bool:
        """Whether the run has reached its ``until``."""
        stops, positions = self.bound.frame_stops or {}, self.manifest.sources
        stopped = {u for u, stop in stops.items() if u in positions and positions[u].spark_offset == stop.spark_offset}
        return self.bound.reached({*self.planner.at_stop(), *stopped}, self.planner.finished())

    # -- one epoch

    def _epoch(self, tasks: Sequence[bytes], frame: Any, positions: Positions, now_ms: int, drain: bool, ends: bool) -> bool:
        """Compute and commit an epoch. Returns False if the driver discards it and has to plan it again."""
        context = self._context(now_ms, drain, positions.finished)
        epoch = context.epoch
        self._reached(epoch, "planned")
        rows = self._compute(context, tasks, frame)
        if self._discards(context, rows):
            return False
        self._reached(epoch, "computed")
        self._with_mutable_outputs |= {uid for row in rows for uid in row.mutable}
        self._with_outputs |= {uid for row in rows for uid, count in row.records_out.items() if count}
        stops = drain and not ends  # withhold a drain's early output until the job has stopped with its savepoint
        withheld = stops or self.trial.withholds(now_ms, last=drain)
        self._check_sinks(rows)
        made = self.snapshots.made()
        amounts = self.progress.amounts.after(rows, self.manifest.parallelism, {} if made is None else made.counted())
        manifest = build_manifest(
            self.manifest,
            self.graph,
            context,
            rows,
            positions,
            run=self._run,
            created_ms=self._wall_ms(),
            kind="end" if ends and not _in_flight(rows) else "epoch",
            drained=drain,
            withheld=withheld,
            paused=self._alignment.recently_paused,
            unpublished=self._publisher.unpublished(),
            amounts=to_save(amounts.sums),
            snapshots=() if made is None else made.refs,
        )
        if not withheld and not self._has_epoch_sinks:  # which may take long
            self._publisher.prepare(manifest)
        self.planner.confirm()
        self._write_epoch_sinks(rows, epoch)
        self._reached(epoch, "written")
        before = self.manifest
        self._commit(manifest)
        self.progress.amounts = amounts
        self._alignment.committed(before, manifest)
        self._reached(epoch, "committed")
        self.trial.committed(withheld, self.now_ms())
        if not withheld:  # a withheld epoch may be rolled back: sources must keep the input of the epoch before it
            self.planner.committed(_native(manifest))
            self._publish(manifest)
        self._reached(epoch, "published")
        self._remember(rows, made)
        self._keep_to_memory(rows)
        measured = measurements(
            rows,
            self.planner.backlog(),
            holds(self.graph, manifest, context),
            states_of(manifest),
            skews(self.graph, rows),
            None if self._memory is None else self._memory.short,
        )
        self._listener.on_event(_committed(manifest, rows, made, measured))
        if is_large(manifest) and not self.snapshots.failed:
            self.snapshots.begin(manifest, self.progress.since_snapshot, self._due())
        return True

    def _discards(self, context: EpochContext, rows: Sequence[CommitRow]) -> bool:
        """Whether a computed epoch is discarded, for one of these reasons. Raises the failure of a task.

        - An operator emitted mutable values. Later epochs take its outputs one by one.
        - A function at a source read the watermark, which requires that one task reads a whole split. Later plans do so.
        - It went beyond ``until``.
        """
        if mutable := {uid for row in rows for uid in row.one_by_one}:
            if mutable <= self._one_by_one:
                raise AssertionError(f"operators {sorted(mutable)} already take outputs one by one and request it again")
            self._one_by_one |= mutable
            return True
        raise_failure(rows)
        if needs_whole_splits := {source for row in rows for source in row.needs_whole_splits}:
            self.planner.whole |= needs_whole_splits
            return True
        return not self.bound.may_commit(joined_splits(self.graph, context, rows), self.planner.planned)

    def _keep_to_memory(self, rows: Sequence[CommitRow]) -> None:
        """Let the next epoch read as many elements as fit into a subtask's memory, if that is limited."""
        if self._memory is not None:
            read = [sum(row.records_in.get(o.uid, 0) for row in rows) for o in self.graph.native_sources]
            self._memory = self._memory.after(max(read, default=0), [row.memory for row in rows if row.memory is not None])
            self.planner.limit(self._memory.rows)

    def _check_sinks(self, rows: Sequence[CommitRow]) -> None:
        """Raise ForkpointError before the commit if staged output cannot be published."""
        for operator in self.graph.sinks:
            if isinstance(operator.spec, SinkSpec):
                try:
                    operator.spec.sink.check([c for row in rows for c in row.committables.get(operator.uid, ())])
                except ForkpointError as error:
                    self._history.must_be_newest(self.manifest)  # a newer run may have removed it
                    raise of_sink(operator.uid, error) from error

    def _publish(self, manifest: Manifest) -> None:
        """Publish the epoch's output for the first time."""
        try:
            self._publisher.publish(manifest)
        except NotFound as error:
            self._history.must_be_newest(manifest)  # a newer run may have published it
            raise OutputLost(
                f"job {manifest.job!r}: epoch {manifest.epoch} is committed but cannot be published: {error}. Its staged output "
                "was removed: put it back, or restore an earlier savepoint to compute it again"
            ) from error

    def end_drain(self, savepoint: str) -> None:
        """Complete a drain: commit its savepoint and publish its output."""
        before = self.manifest
        manifest = before.replace(
            epoch=before.epoch + 1,
            created_ms=self._wall_ms(),
            changes=[],
            withheld=False,
            metadata={**before.metadata, "savepoint": savepoint},
            unpublished=(unpublished := self._publisher.unpublished()),
            staged_from=staged_from(before, unpublished),
        )
        self._commit(manifest)
        self.planner.committed(_native(manifest))
        self._publish(manifest)

    def notify(self) -> None:
        """Notify listening functions of the last epoch now: the tasks of the next epoch would, but it may be late or never
        come."""
        if self._listens and self._notified < self.manifest.epoch and not self.manifest.withheld:
            self._notified = self.manifest.epoch
            now_ms = max(self.now_ms(), self.manifest.processing_time_ms)
            self._executor.notify(self._context(now_ms, drain=False, finished=frozenset()))

    def _commit(self, manifest: Manifest) -> None:
        self.undecided = manifest
        self._history.commit(manifest)
        self.manifest, self.undecided = manifest, None

    def _context(self, now_ms: int, drain: bool, finished: frozenset[str]) -> EpochContext:
        before = self.manifest
        ended = ended_origins(self.graph, finished)
        return EpochContext(
            generation=before.generation,
            epoch=before.epoch + 1,
            committed=before.epoch,
            processing_time_ms=now_ms,
            drain=drain,
            previous=self.progress.previous,
            splits=split_starts(self.graph, before, now_ms, self._alignment.recently_paused),
            watermarks=dict(before.watermarks),
            input_watermarks=dict(before.input_watermarks),
            released=[*ended, *silent_origins(self.graph, before, self._began_ms, now_ms)],
            finished=splits_by_origin(self.graph, self._finished_splits(finished)),
            ended=[] if self.graph.loops else ended,  # the final watermark follows once the loops are empty
            one_by_one=sorted(self._one_by_one),
            trusted=sorted(self._with_outputs - self._one_by_one - self._with_mutable_outputs),
            snapshot_subtasks=self._due() if self._within(before) else [],
        )

    def _within(self, manifest: Manifest) -> bool:
        """Whether due snapshots are made within the epoch."""
        return not self.snapshots.in_progress and (self.snapshots.failed or not is_large(manifest))

    def _due(self) -> list[int]:
        return due_snapshots(self.manifest, self.progress.since_snapshot, chain=SNAPSHOT_CHAIN, ratio=SNAPSHOT_RATIO)

    def _finished_splits(self, finished: frozenset[str]) -> dict[str, Collection[str]]:
        """The finished splits by source: reported by the source, or all splits of a source that has ended."""
        splits = self.planner.finished_splits()
        for uid in finished:
            known = self.manifest.sources.get(uid)
            planned = (r.split for r in self.planner.planned.get(uid, ()))
            splits[uid] = {*(known.splits if known is not None else ()), *planned}
        return splits

    def _compute(self, context: EpochContext, tasks: Sequence[bytes], frame: Any) -> list[CommitRow]:
        self.epoch_began_ms = self._wall_ms()
        try:
            with self._timeout.running():
                blobs = self._executor.run_epoch(context, tasks, frame)
        except Exception as error:
            if self._timeout.passed:
                raise JobFailed(
                    f"epoch {context.epoch} took longer than the checkpoint timeout of {self._timeout_ms} ms; raise it with "
                    "set_checkpoint_timeout(), or lower the limit of elements per epoch"
                ) from error
            raise
        finally:
            self.epoch_began_ms = None
        rows = list(map(decode_commit, blobs))
        logs.relay(line for row in rows for line in row.said)
        return rows

    def _write_epoch_sinks(self, rows: Sequence[CommitRow], epoch: int) -> None:
        """Call sinks that write with the engine's own means. This precedes the commit, so they may receive an epoch twice."""
        for operator in self.graph.sinks:
            if isinstance(operator.spec, EpochSinkSpec):
                self._history.must_be_newest(self.manifest)
                paths = [c["path"] for row in rows for c in row.committables.get(operator.uid, ())]
                operator.spec.fn(self._executor.staged_frame(paths, operator.spec.type), epoch)

    def _remember(self, rows: Sequence[CommitRow], made: Merge | None) -> None:
        progress = self.progress
        if made is not None:
            for subtask in made.since:
                progress.since_snapshot[subtask] = made.rest(subtask, progress.since_snapshot[subtask])
        self.snapshots.committed(rows, made)
        progress.previous = {f"{row.stage}-{row.subtask}": row.attempt for row in rows if row.stage > 0}  # 0 has no state
        timers = [row.next_processing_timer_ms for row in rows if row.next_processing_timer_ms is not None]
        progress.next_timer_ms = min(timers, default=None)
        progress.in_flight = _in_flight(rows)
        for row in rows:
            if row.stage == 0:
                continue
            epochs, size = progress.since_snapshot.get(row.subtask, (0, 0))
            if row.snapshot is not None:
                epochs, size = 0, 0
            size += row.changes.size if row.changes is not None else 0
            progress.since_snapshot[row.subtask] = (epochs + (row.stage == 1), size)

    def _reached(self, epoch: int, phase: Phase) -> None:
        since_ms, self._since_ms = self._since_ms, self._wall_ms()
        self._listener.on_event(EpochReached(epoch, phase, self._since_ms, since_ms))


def _native(manifest: Manifest) -> dict[str, Any]:
    return {uid: p.position for uid, p in manifest.sources.items() if p.kind == "native"}


def _changes_results(graph: JobGraph, manifest: Manifest) -> bool:
    """Whether a query has changed since the manifest, so that the first epoch has output even without input."""
    saved = {(state.uid, state.name): state.definition for state in manifest.states if state.definition is not None}
    declared = ((operator.uid, state) for operator in graph.operators for state in operator.spec.states())
    if any(state.is_replaced and state.uid in graph.by_uid for state in manifest.states):
        return True
    return any(saved.get((uid, state.name), state.definition) != state.definition for uid, state in declared)


def _bound(graph: JobGraph, until: Until | None, manifest: Manifest, max_rows: int | None) -> Bound:
    if until is None:
        return Bound()
    if isinstance(until, UntilPositions):
        return PositionBound(graph, until)
    return TimeBound(graph, until, manifest, source_limits(graph, max_rows))


def _in_flight(rows: Sequence[CommitRow]) -> int:
    return sum(row.in_flight for row in rows)


def _committed(manifest: Manifest, rows: Sequence[CommitRow], made: Merge | None, measured: Measurements) -> EpochCommitted:
    beside = 0 if made is None else sum(ref.bytes for ref in made.refs)
    return EpochCommitted(
        manifest.epoch,
        records_in=added_up(row.records_in for row in rows),
        records_out=added_up(row.records_out for row in rows),
        late_records_dropped=added_up(row.late_records_dropped for row in rows),
        watermarks=manifest.watermarks,
        changes_bytes=sum(row.changes.size for row in rows if row.changes is not None),
        snapshot_bytes=beside + sum(row.snapshot.size for row in rows if row.snapshot is not None),
        catch_ups=[row.catch_up for row in rows if row.catch_up is not None],
        stores_reused=sum(row.stage > 0 and row.catch_up is None for row in rows),
        measured=measured,
    )


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000
