"""Builds an epoch's manifest from its tasks' commit rows. Pure."""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from forkpoint.checkpoint.manifest import (
    ChangesRef,
    EpochOutput,
    Manifest,
    OperatorInfo,
    SnapshotRef,
    SourcePosition,
    SplitState,
    StateAmount,
)
from forkpoint.checkpoint.states import StateInfo
from forkpoint.driver.start.program_check import with_versions
from forkpoint.errors import RestoreRefused, error_of
from forkpoint.graph.specs import SourceSpec, TimestampsSpec, WatermarkSpec
from forkpoint.runtime.event_time.watermarks import Splits, origin_splits, watermarks_of
from forkpoint.runtime.exchange.control import CommitRow, EpochContext, Snapshot, SplitProgress, SplitStart
from forkpoint.state import OPERATOR_KG, key_group_range

if TYPE_CHECKING:
    from forkpoint.graph.job import JobGraph, Operator

SNAPSHOT_FLOOR = 8 * 2**20
"""The size of changes, in bytes, below which no snapshot is due: a restore reads and applies them within a second."""

_LONGER = 4


@dataclass(frozen=True)
class Positions:
    """Positions after the epoch, by uid: of native sources, and of DataFrame sources that had a batch."""

    native: Mapping[str, Any]
    frames: Mapping[str, SourcePosition]
    finished: frozenset[str]


def raise_failure(rows: Iterable[CommitRow]) -> None:
    """Raise the first failure that a task reported, as its original error."""
    for row in sorted(rows, key=lambda r: (r.stage, r.subtask)):
        if row.failure is not None:
            raise error_of(row.failure.kind, row.failure.message)


def split_starts(
    graph: JobGraph, manifest: Manifest, now_ms: int, paused: Mapping[str, Collection[str]] = MappingProxyType({})
) -> dict[str, dict[str, SplitStart]]:
    """The splits of each watermark origin at the start of an epoch, and whether they are idle. ``paused`` splits (by source uid)
    are not idle: they were not read."""
    starts: dict[str, dict[str, SplitStart]] = {}
    paused_splits = splits_by_origin(graph, paused)
    for operator in _origins(graph):
        unread = paused_splits.get(str(operator.id), ())
        position = manifest.sources.get(operator.uid)
        if position is not None:
            idle_after = _idleness_ms(operator)
            starts[str(operator.id)] = {
                split: SplitStart(
                    s.watermark_ms,
                    idle_after is not None and now_ms - s.last_active_ms >= idle_after and split not in unread,
                    s.marked_idle,
                    None if s.generator is None else base64.b64decode(s.generator),
                )
                for split, s in position.splits.items()
            }
    return starts


def ended_origins(graph: JobGraph, finished: Collection[str]) -> list[int]:
    """Watermark origins whose sources (``finished``: uids) have all ended."""
    ids = {operator.id for operator in graph.sources if operator.uid in finished}
    return [origin.id for origin in _origins(graph) if graph.sources_of([origin.id]) <= ids]


def silent_origins(graph: JobGraph, manifest: Manifest, began_ms: int, now_ms: int) -> list[int]:
    """Watermark origins without a split since the start, for longer than their idleness timeout."""
    silent = []
    for origin in _origins(graph):
        after, position = _idleness_ms(origin), manifest.sources.get(origin.uid)
        if after is not None and (position is None or not position.splits) and now_ms - began_ms >= after:
            silent.append(origin.id)
    return silent


def splits_by_origin(graph: JobGraph, splits: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """The splits of sources (by uid), by watermark origin (id as text) and under that origin's split names."""
    found: dict[int, list[str]] = {}
    for operator in _origins(graph):  # sources come before their downstream operators
        if operator.inputs:
            found[operator.id] = [
                graph.split_name(operator, o, split) for o in sorted(graph.origins_before(operator)) for split in found[o]
            ]
        else:
            found[operator.id] = list(splits.get(operator.uid, ()))
    return {str(origin): splits for origin, splits in found.items() if splits}


def next_idle_ms(graph: JobGraph, manifest: Manifest, now_ms: int) -> int | None:
    """When the next split becomes idle without new elements."""
    times = [
        s.last_active_ms + after
        for operator in _origins(graph)
        if (after := _idleness_ms(operator)) is not None and operator.uid in manifest.sources
        for s in manifest.sources[operator.uid].splits.values()
        if s.last_active_ms + after > manifest.processing_time_ms
    ]
    return min(times, default=None)


def build_manifest(
    before: Manifest,
    graph: JobGraph,
    context: EpochContext,
    rows: Sequence[CommitRow],
    positions: Positions,
    *,
    run: str,
    created_ms: int,
    kind: str,
    drained: bool,
    withheld: bool = False,
    paused: Mapping[str, Collection[str]] = MappingProxyType({}),
    unpublished: Mapping[str, list[EpochOutput]] = MappingProxyType({}),
    amounts: list[StateAmount] | None = None,
    snapshots: Sequence[SnapshotRef] = (),
) -> Manifest:
    """The manifest of one epoch, including the withheld output of the epochs before it. ``snapshots``: made beside the epochs, of
    an earlier one."""
    joined = joined_splits(graph, context, rows)
    watermarks = watermarks_of(graph, context, joined)
    ends = {o.uid: watermarks.windows[o.id].end for o in graph.operators if o.stage > 0}
    counts, reports, unread = _counts(rows), _reports(rows), splits_by_origin(graph, paused)
    sources = dict(before.sources)
    for operator in _origins(graph):
        splits = joined[operator.id]
        known = before.sources.get(operator.uid)
        states = {
            split: _split_state(
                None if known is None else known.splits.get(split),
                end,
                counts[operator.id, split],
                reports.get((operator.id, split)),
                split in unread.get(str(operator.id), ()),
                context.processing_time_ms,
            )
            for split, end in splits.ends.items()
        }
        sources[operator.uid] = _position(operator, known, positions, states)
    return before.replace(
        run=run,
        generation=context.generation,
        epoch=context.epoch,
        kind=kind,
        created_ms=created_ms,
        processing_time_ms=context.processing_time_ms,
        sources=sources,
        watermarks={**before.watermarks, **ends},
        input_watermarks={**before.input_watermarks, **watermarks.inputs},
        states=with_versions(graph, merge_states(before.states, rows)),
        amounts=amounts,
        operators=operator_infos(graph),
        changes=[_changes_ref(row, before) for row in rows if row.changes is not None],
        snapshots=_snapshots(before, rows, snapshots),
        sinks=_committables(rows, before.sinks if before.withheld else {}),
        unpublished=dict(unpublished),
        staged_from=staged_from(before, unpublished),
        drained=drained,
        withheld=withheld,
    )


def staged_from(before: Manifest, unpublished: Mapping[str, list[EpochOutput]]) -> int | None:
    epochs = [output.epoch for outputs in unpublished.values() for output in outputs]
    if before.withheld:
        epochs.append(before.epoch if before.staged_from is None else before.staged_from)
    return min(epochs, default=None)


def operator_infos(graph: JobGraph) -> list[OperatorInfo]:
    return [OperatorInfo(uid=o.uid, name=o.name, kind=o.kind, stage=o.stage) for o in graph.operators]


def joined_splits(graph: JobGraph, context: EpochContext, rows: Iterable[CommitRow]) -> dict[int, Splits]:
    return origin_splits(graph, context, (p for row in rows for p in row.progress))


def _origins(graph: JobGraph) -> list[Operator]:
    return [o for o in graph.operators if isinstance(o.spec, WatermarkSpec)]


def _idleness_ms(operator: Operator) -> int | None:
    assert isinstance(operator.spec, WatermarkSpec)
    return operator.spec.strategy.idleness_ms


def _counts(rows: Iterable[CommitRow]) -> Counter[tuple[int, str]]:
    counts: Counter[tuple[int, str]] = Counter()
    for row in rows:
        for p in row.progress:
            counts[p.origin, p.split] += p.count
    return counts


def _reports(rows: Iterable[CommitRow]) -> dict[tuple[int, str], SplitProgress]:
    """One piece of each split in the epoch. One task reads a split with a generator as a single piece."""
    return {(p.origin, p.split): p for row in rows for p in row.progress}


def _split_state(
    old: SplitState | None, watermark_ms: int, count: int, report: SplitProgress | None, paused: bool, now_ms: int
) -> SplitState:
    if report is not None:
        marked_idle = report.marked_idle
        generator = None if report.generator is None else base64.b64encode(report.generator).decode()
    else:
        marked_idle, generator = (False, None) if old is None else (old.marked_idle, old.generator)
    return SplitState(
        watermark_ms=watermark_ms,
        last_active_ms=now_ms if count or paused or old is None else old.last_active_ms,
        count=count + (0 if old is None else old.count),
        marked_idle=marked_idle,
        generator=generator,
    )


def _position(
    operator: Operator, known: SourcePosition | None, positions: Positions, splits: dict[str, SplitState]
) -> SourcePosition:
    finished = operator.uid in positions.finished
    if isinstance(operator.spec, SourceSpec):
        position = positions.native.get(operator.uid)
        return SourcePosition(kind=operator.spec.position, position=position, splits=splits, finished=finished)
    if isinstance(operator.spec, TimestampsSpec):
        return SourcePosition(kind=operator.spec.position, splits=splits)
    latest = positions.frames.get(operator.uid, known)
    if latest is None:
        return SourcePosition(kind="spark", splits=splits)
    return latest.replace(splits=splits)


def merge_states(known: Iterable[StateInfo], rows: Iterable[CommitRow]) -> list[StateInfo]:
    """The known states plus the states that tasks opened. Raises RestoreRefused if two states have the same id."""
    states = {s.sid: s for s in known}
    for row in rows:
        for state in row.states:
            old = states.setdefault(state.sid, state)
            if (old.uid, old.name) != (state.uid, state.name):
                raise RestoreRefused(
                    f"state {state.name!r} of operator {state.uid!r} gets the same id as state {old.name!r} of operator "
                    f"{old.uid!r}; rename one of the states"
                )
            if (old.ttl_ms, old.definition) != (state.ttl_ms, state.definition):
                states[state.sid] = state
    return [states[sid] for sid in sorted(states)]


def _changes_ref(row: CommitRow, manifest: Manifest) -> ChangesRef:
    assert row.changes is not None
    start, stop = key_group_range(row.subtask, manifest.parallelism, manifest.max_parallelism)
    inline = row.changes.inline
    return ChangesRef(
        stage=row.stage,
        subtask=row.subtask,
        attempt=row.attempt,
        kg_start=start,
        kg_stop=stop,
        path=row.changes.path,
        inline=None if inline is None else base64.b64encode(inline).decode(),
        entries=row.changes.entries,
        bytes=row.changes.size,
        checksum=row.changes.checksum,
    )


def _snapshots(manifest: Manifest, rows: Iterable[CommitRow], beside: Sequence[SnapshotRef] = ()) -> list[SnapshotRef]:
    """The snapshots that a restore starts from: a new one replaces older ones for the key groups that it covers."""
    own = [_snapshot_ref(row.subtask, row.attempt, row.snapshot, manifest) for row in rows if row.snapshot is not None]
    new = [*beside, *own]
    if not new:
        return manifest.snapshots
    covered = sorted((ref.kg_start, ref.kg_stop) for ref in new if ref.kg_start < ref.kg_stop)
    renewed = {ref.subtask for ref in new}
    # A snapshot without key groups has only the operator state of its subtask.
    kept = [ref for ref in manifest.snapshots if ref.subtask not in renewed or ref.kg_start != ref.kg_stop]
    return [*(part for ref in kept for part in _outside(ref, covered)), *new]


def _snapshot_ref(subtask: int, attempt: str, snapshot: Snapshot, manifest: Manifest) -> SnapshotRef:
    start, stop = key_group_range(subtask, manifest.parallelism, manifest.max_parallelism)
    return SnapshotRef(
        subtask=subtask,
        attempt=attempt,
        epoch=snapshot.epoch,
        kg_start=start,
        kg_stop=stop,
        path=snapshot.path,
        entries=snapshot.entries,
        bytes=snapshot.size,
        checksum=snapshot.checksum,
    )


def _outside(ref: SnapshotRef, covered: Sequence[tuple[int, int]]) -> list[SnapshotRef]:
    """The parts of a snapshot outside of these ranges, which are sorted and disjoint."""
    start, parts = ref.kg_start, []
    first = max(bisect_right(covered, (ref.kg_start, OPERATOR_KG)) - 1, 0)
    for a, b in covered[first:]:
        if a >= ref.kg_stop:
            break
        if b > start:
            parts.append((start, a))
            start = b
    if start == ref.kg_start and not parts:
        return [ref]
    parts.append((start, ref.kg_stop))
    return [ref.replace(kg_start=a, kg_stop=b) for a, b in parts if a < b]


def _committables(rows: Iterable[CommitRow], withheld: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    sinks = {uid: list(committables) for uid, committables in withheld.items()}
    for row in sorted(rows, key=lambda r: (r.stage, r.subtask)):
        for uid, committables in row.committables.items():
            sinks.setdefault(uid, []).extend(committables)
    return sinks


def chains(manifest: Manifest) -> dict[int, tuple[int, int]]:
    """For ``due_snapshots``: the number of epochs since each subtask's last snapshot, including those of earlier runs. Bytes are
    0, because only the manifests of all these epochs have them."""
    found: dict[int, tuple[int, int]] = {}
    for subtask in range(manifest.parallelism):
        start, stop = key_group_range(subtask, manifest.parallelism, manifest.max_parallelism)
        refs = [ref.epoch for ref in manifest.snapshots if ref.kg_start < stop and start < ref.kg_stop]
        found[subtask] = (manifest.epoch - min(refs, default=1), 0)
    return found


def due_snapshots(manifest: Manifest, history: Mapping[int, tuple[int, int]], *, chain: int, ratio: float) -> list[int]:
    """The subtasks that should write a snapshot: changes since the last snapshot (``history``: epochs and bytes, by subtask) span
    many epochs (for a large snapshot, up to four times ``chain``) or exceed its size. A rebuild thus reads a limited number of
    files and about twice the state; and at a hundred epochs a second, not each second goes into a snapshot."""
    sizes: Counter[int] = Counter()
    for ref in manifest.snapshots:
        sizes[ref.subtask] += ref.bytes
    return [
        subtask
        for subtask, (epochs, size) in sorted(history.items())
        if epochs >= chain * min(_LONGER, max(1, sizes[subtask] >> 20))
        or (epochs >= 3 and size > max(ratio * sizes[subtask], SNAPSHOT_FLOOR))
    ]
