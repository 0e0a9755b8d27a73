"""The measurements of an epoch, aggregated from the reports of its tasks. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from forkpoint.protocol.messages import StateMetrics
from forkpoint.state.store import StoreSize

if TYPE_CHECKING:
    from forkpoint.checkpoint.manifest import Manifest, SplitState
    from forkpoint.contract.source import Backlog
    from forkpoint.graph.job import JobGraph
    from forkpoint.runtime.exchange.control import CommitRow, EpochContext, Memory, UserMetric

NOTABLE_MS = 10_000
SKEW_ELEMENTS, SKEWED = 10_000, 1.4
"""An epoch with so many elements is skewed if a subtask gets so many times its even share: with two subtasks, 70 %."""


class UserReport(NamedTuple):
    """One subtask's report of a user metric."""

    uid: str
    subtask: int
    metric: UserMetric


class Hold(NamedTuple):
    """The split that holds back the watermark of a source, or of an operator that assigns timestamps: the slowest; None before
    the first split. ``active_ms``: the processing time of its last element, or of its discovery; ``empty``: it has had no
    element. ``others``: the number of splits that are equally slow. ``next`` and ``furthest``: the slowest and the fastest split
    ahead of it, with their watermarks; None if no split is ahead."""

    split: str | None
    watermark_ms: int
    active_ms: int | None = None
    empty: bool = True
    others: int = 0
    next: tuple[str, int] | None = None
    furthest: tuple[str, int] | None = None

    @property
    def behind_ms(self) -> int | None:
        """Its distance to the next split; None if it has no watermark yet, or no split is ahead."""
        return self.next[1] - self.watermark_ms if self.next is not None and is_time(self.watermark_ms) else None

    @property
    def notable(self) -> bool:
        """Whether it is far behind the next split."""
        return self.next is not None and (self.behind_ms is None or self.behind_ms >= NOTABLE_MS)


class Skew(NamedTuple):
    """The subtask of a keyed operator that gets most elements of an epoch, of ``subtasks``, and its share of them. ``key``: its
    most frequent key as text, if there is one, with about its share of the subtask's elements."""

    subtask: int
    subtasks: int
    share: float
    key: tuple[str, float] | None = None


@dataclass(frozen=True)
class Measurements:
    """Measurements of one epoch, by operator uid: busy time, bytes in and out, changes of user metrics, and unevenly divided
    elements; a process whose memory is ``short`` (``EpochMemory``). At its end: the size of the stores and of each state (None if
    unknown), the sources' backlogs, and the splits that hold watermarks back."""

    busy_us: Mapping[str, int] = field(default_factory=dict)
    bytes_in: Mapping[str, int] = field(default_factory=dict)
    bytes_out: Mapping[str, int] = field(default_factory=dict)
    user: Sequence[UserReport] = ()
    state_size: StoreSize | None = None
    backlog: Mapping[str, Backlog] = field(default_factory=dict)
    holds: Mapping[str, Hold] = field(default_factory=dict)
    states: Sequence[StateMetrics] | None = None
    skews: Mapping[str, Skew] = field(default_factory=dict)
    short: Memory | None = None


def measurements(
    rows: Sequence[CommitRow],
    backlog: Mapping[str, Backlog],
    holds: Mapping[str, Hold],
    states: Sequence[StateMetrics] | None = None,
    skews: Mapping[str, Skew] = MappingProxyType({}),
    short: Memory | None = None,
) -> Measurements:
    busy: Counter[str] = Counter()
    read: Counter[str] = Counter()
    written: Counter[str] = Counter()
    user: list[UserReport] = []
    for row in rows:
        for uid, measured in row.measured.items():
            busy[uid] += measured.busy_us
            read[uid] += measured.bytes_in
            written[uid] += measured.bytes_out
            user += (UserReport(uid, row.subtask, metric) for metric in measured.user)
    sizes = _sum_sizes([r.state_size for r in rows])
    return Measurements(busy, read, written, user, sizes, backlog, holds, states, skews, short)


def skews(graph: JobGraph, rows: Sequence[CommitRow]) -> dict[str, Skew]:
    """The keyed operators with a hot key, or with much more work for one subtask than for the others."""
    from forkpoint.graph.transformations import KeyBy

    keyed = {o.uid for o in graph.operators if any(isinstance(edge.partitioning, KeyBy) for edge in o.inputs)}
    elements: dict[str, Counter[int]] = {}
    for row in rows:
        for uid in keyed & row.records_in.keys():
            elements.setdefault(uid, Counter())[row.subtask] += row.records_in[uid]
    found: dict[str, Skew] = {}
    for uid, counts in elements.items():
        (subtask, most), total = counts.most_common(1)[0], counts.total()
        if len(counts) > 1 and total >= SKEW_ELEMENTS and most * len(counts) >= SKEWED * total:
            hottest = (row.measured[uid].hottest for row in rows if row.subtask == subtask and uid in row.measured)
            found[uid] = Skew(subtask, len(counts), most / total, next(filter(None, hottest), None))
    return found


def states_of(manifest: Manifest) -> list[StateMetrics] | None:
    """The size of each state, from a manifest."""
    if manifest.amounts is None:
        return None
    known = {amount.sid: (amount.entries, amount.bytes) for amount in manifest.amounts}
    return [StateMetrics(s.uid, s.name, s.kind, *known.get(s.sid, (0, 0))) for s in manifest.states]


def _sum_sizes(sizes: Sequence[StoreSize | None]) -> StoreSize | None:
    known = [size for size in sizes if size is not None]
    if not known:
        return None
    numbers = [size.bytes for size in known if size.bytes is not None]
    return StoreSize(sum(size.entries for size in known), sum(numbers) if len(numbers) == len(known) else None)


def holds(graph: JobGraph, manifest: Manifest, context: EpochContext) -> dict[str, Hold]:
    """The split that holds back each watermark at the end of an epoch, by the uid of the watermark's origin. Splits that are idle
    or finished do not count, nor do origins that have ended or are entirely idle."""
    from forkpoint.driver.commit.manifests import split_starts  # clients that show a job's problems load none of this
    from forkpoint.graph.specs import WatermarkSpec
    from forkpoint.runtime.event_time.watermarks import MAX_MS, MIN_MS

    found: dict[str, Hold] = {}
    starts = split_starts(graph, manifest, context.processing_time_ms)
    for operator in graph.operators:
        if not isinstance(operator.spec, WatermarkSpec):
            continue
        known, ended = starts.get(str(operator.id), {}), context.finished.get(str(operator.id), ())
        counting = [name for name, split in known.items() if not split.idle and not split.marked_idle and name not in ended]
        if counting:
            hold = hold_of({name: manifest.sources[operator.uid].splits[name] for name in counting})
        else:
            hold = None if known or operator.id in context.released else Hold(None, MIN_MS)
        if hold is not None and hold.watermark_ms < MAX_MS:
            found[operator.uid] = hold
    return found


def hold_of(splits: Mapping[str, SplitState]) -> Hold | None:
    """The split among these that holds a watermark back; None without splits."""
    ordered = sorted((state.watermark_ms, name) for name, state in splits.items())
    if not ordered:
        return None
    least, name = ordered[0]
    ahead = [(split, watermark_ms) for watermark_ms, split in ordered if watermark_ms > least]
    slowest = splits[name]
    return Hold(
        name,
        least,
        slowest.last_active_ms,
        slowest.count == 0,
        len(ordered) - len(ahead) - 1,
        ahead[0] if ahead else None,
        ahead[-1] if ahead else None,
    )


def is_time(watermark_ms: int) -> bool:
    """Whether a watermark is a point in time: neither the initial nor the final one."""
    from forkpoint.runtime.event_time.watermarks import MAX_MS, MIN_MS

    return MIN_MS < watermark_ms < MAX_MS
