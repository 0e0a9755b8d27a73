"""The size of each state of a job, from the reports of its tasks. Pure.

A manifest has the job's sums. Each epoch adds its changes, which tasks measure, or estimate if there are many. Once all subtasks
have read their stores, to build them or to write snapshots, their exact counts replace the sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from forkpoint.checkpoint.manifest import Manifest, StateAmount
from forkpoint.runtime.exchange.control import CommitRow
from forkpoint.state import Amount, Amounts, Changes, sid_of, sum_amounts


@dataclass(frozen=True)
class JobAmounts:
    """``sums``: of all subtasks; None if unknown. ``counted``: by subtask, of subtasks that counted since the layout started."""

    sums: Amounts | None = None
    counted: Mapping[int, Amounts] = field(default_factory=dict)

    def after(
        self, rows: Iterable[CommitRow], parallelism: int, recounted: Mapping[int, Amounts] = MappingProxyType({})
    ) -> JobAmounts:
        """The amounts after an epoch with these reports. ``recounted``: before it, by subtask."""
        counted = {**self.counted, **recounted}
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
    """The sums in a manifest."""
    if manifest.amounts is None:
        return None
    return {amount.sid: Amount(amount.entries, amount.bytes) for amount in manifest.amounts}


def to_save(sums: Amounts | None) -> list[StateAmount] | None:
    if sums is None:
        return None
    return [StateAmount(sid=sid, entries=amount.entries, bytes=amount.bytes) for sid, amount in sorted(sums.items())]


def redistributed_amounts(sums: Amounts | None, entries: Mapping[bytes, bytes], changes: Iterable[Changes]) -> Amounts | None:
    """The sums after a redistribution of operator state, of which each subtask may get a copy. ``entries``: all entries before.
    ``changes``: of each subtask."""
    if sums is None:
        return None
    pairs = (pair for change in changes for pair in zip(change.keys, change.values, strict=True))
    now = _amounts([(key, value) for key, value in pairs if value is not None])
    return {**sums, **dict.fromkeys(_amounts(list(entries.items())), Amount(0, 0)), **now}


def _amounts(entries: Sequence[tuple[bytes, bytes]]) -> dict[int, Amount]:
    counts: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for key, value in entries:
        counts[sid_of(key)] += 1
        sizes[sid_of(key)] += len(key) + len(value)
    return {sid: Amount(count, sizes[sid]) for sid, count in counts.items()}
