"""How much there is of each state of a job, as its tasks report it. Pure.

A manifest has the job's sums, which go on from epoch to epoch by what changes. Changes are measured, and estimated if they are
many; once all subtasks have read their stores, to build them or to write snapshots, the sums begin anew from what these found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from forkpoint.checkpoint.manifest import Manifest, StateAmount
from forkpoint.runtime.exchange.control import CommitRow
from forkpoint.state import Amount, Amounts, Changes, sid_of, sum_amounts


@dataclass(frozen=True)
class JobAmounts:
    """``sums``: of all subtasks; None if unknown. ``counted``: by subtask, of those that were counted since the job has its
    present layout."""

    sums: Amounts | None = None
    counted: Mapping[int, Amounts] = field(default_factory=dict)

    def after(self, rows: Iterable[CommitRow], parallelism: int) -> JobAmounts:
        """After an epoch with these reports."""
        counted = dict(self.counted)
        grown: dict[int, list[Amounts]] = {}
        for row in rows:
            if row.counted is not None:
                counted[row.subtask] = row.counted
            if row.changes is not None:
                grown.setdefault(row.subtask, []).append(row.changes.grown)
        for subtask, parts in grown.items():
            if subtask in counted:
                counted[subtask] = sum_amounts([counted[subtask], *parts])
        if len(counted) == parallelism:
            return JobAmounts(sum_amounts(counted.values()), counted)
        if self.sums is None:
            return JobAmounts(None, counted)
        return JobAmounts(sum_amounts([self.sums, *(part for parts in grown.values() for part in parts)]), counted)


def saved(manifest: Manifest) -> Amounts | None:
    """The sums that a manifest has."""
    if manifest.amounts is None:
        return None
    return {each.sid: Amount(each.entries, each.bytes) for each in manifest.amounts}


def to_save(sums: Amounts | None) -> list[StateAmount] | None:
    if sums is None:
        return None
    return [StateAmount(sid=sid, entries=each.entries, bytes=each.bytes) for sid, each in sorted(sums.items())]


def redistributed_amounts(sums: Amounts | None, entries: Mapping[bytes, bytes], changes: Iterable[Changes]) -> Amounts | None:
    """After the operator state of a job has been redistributed: each subtask may get a copy of it. ``entries``: all that there
    was, ``changes``: those of each subtask."""
    if sums is None:
        return None
    present = [list(zip(each.keys, each.values, strict=True)) for each in changes]
    now = _amounts([(key, value) for each in present for key, value in each if value is not None])
    return {**sums, **dict.fromkeys(_amounts(list(entries.items())), Amount(0, 0)), **now}


def _amounts(entries: Sequence[tuple[bytes, bytes]]) -> dict[int, Amount]:
    counts: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for key, value in entries:
        counts[sid_of(key)] += 1
        sizes[sid_of(key)] += len(key) + len(value)
    return {sid: Amount(count, sizes[sid]) for sid, count in counts.items()}
