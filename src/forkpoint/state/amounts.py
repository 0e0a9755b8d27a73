"""How many entries and bytes there are of each state.

Entries are counted in columns, when they are written or loaded anyway. What a changelog adds is measured: a put may add an entry
or replace one, which only the store can tell. It is asked for a limited number of keys, so many changes are estimated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# So that measuring takes less than a percent of the tasks' time:
_PROBES_PER_SECOND = 5_000
_PROBES = range(64, 256)
_SECONDS = 0.03  # of work, before many changes are measured again
_LEAST_PROBES = 16  # of each state's puts or deletes
_SID = np.arange(2, 6)  # where it is in a store key
_dice = np.random.default_rng()


class Amount(NamedTuple):
    """Entries of a state, and the bytes of their keys and values; or by how much these change."""

    entries: int
    bytes: int


Amounts = Mapping[int, Amount]
"""By state id."""

_NOTHING = Amount(0, 0)


def sum_amounts(parts: Iterable[Amounts]) -> dict[int, Amount]:
    """The sum of several parts. None is below zero: what is estimated may be too small."""
    entries: dict[int, int] = {}
    size: dict[int, int] = {}
    for part in parts:
        for sid, amount in part.items():
            entries[sid] = entries.get(sid, 0) + amount.entries
            size[sid] = size.get(sid, 0) + amount.bytes
    return {sid: Amount(max(0, count), max(0, size[sid])) for sid, count in entries.items()}


class Count:
    """Counts entries, chunk by chunk; each has its keys in order, and no deletes."""

    def __init__(self) -> None:
        self.amounts: dict[int, Amount] = {}

    @property
    def entries(self) -> int:
        return sum(amount.entries for amount in self.amounts.values())

    def add(self, keys: pa.Array, values: pa.Array) -> None:
        if not len(keys):
            return
        sids, sizes = _sids(keys), _lengths(keys) + _lengths(values)
        starts = np.concatenate(([0], np.flatnonzero(sids[1:] != sids[:-1]) + 1))
        counts, sums = np.diff(starts, append=len(sids)), np.add.reduceat(sizes, starts)
        for sid, count, size in zip(sids[starts].tolist(), counts.tolist(), sums.tolist(), strict=True):
            before = self.amounts.get(sid, _NOTHING)
            self.amounts[sid] = Amount(before.entries + count, before.bytes + size)


def growth(
    keys: pa.Array, values: pa.Array, read: Callable[[Sequence[bytes]], Sequence[bytes | None]], probes: int
) -> dict[int, Amount]:
    """By how much changes let each state grow, which may be less than nothing. ``keys`` are in order, each once; a value is null
    for a delete. ``read``: the values before the changes.

    Exact if there are at most ``probes`` changes, or few of each state. Otherwise a sample of about so many stands for the
    others.
    """
    scales: dict[tuple[bytes, bool], float] = {}
    if len(keys) > probes:
        groups = list(_groups(_sids(keys), values))
        limit = max(_LEAST_PROBES, probes // len(groups))
        samples = [_sample(each.places, limit) for each in groups]
        for each, sample in zip(groups, samples, strict=True):
            scales[each.sid.to_bytes(4, "big"), each.puts] = len(each.places) / len(sample)
        chosen = pa.array(np.concatenate(samples))
        keys, values = keys.take(chosen), values.take(chosen)
    entries: dict[tuple[bytes, bool], int] = {}
    sizes: dict[tuple[bytes, bool], int] = {}
    names = keys.to_pylist()
    for name, value, before in zip(names, values.to_pylist(), read(names), strict=True):
        group = name[2:6], value is not None
        entries[group] = entries.get(group, 0) + (value is not None) - (before is not None)
        sizes[group] = sizes.get(group, 0) + _size(name, value) - _size(name, before)
    grown: dict[int, Amount] = {}
    for group, count in entries.items():
        sid, scale = int.from_bytes(group[0], "big"), scales.get(group, 1.0)
        so_far = grown.get(sid, _NOTHING)
        grown[sid] = Amount(so_far.entries + round(count * scale), so_far.bytes + round(sizes[group] * scale))
    return grown


class GrowthMeter:
    """Measures the changelogs of one subtask and stage, one after the other, in proportion to the time that its tasks work.

    A few changes are always measured. Of epochs with many that take a few milliseconds, only some are, and those between are
    taken to be like the one before.
    """

    def __init__(self) -> None:
        self._seconds = 0.0  # since the last measurement
        self._last: dict[int, Amount] = {}
        self._changes = 0  # that were measured then

    def growth(
        self, keys: pa.Array, values: pa.Array, read: Callable[[Sequence[bytes]], Sequence[bytes | None]], seconds: float
    ) -> dict[int, Amount]:
        """``seconds``: for which the task was at work."""
        self._seconds += seconds
        count = len(keys)
        if count > _PROBES.start and self._changes > _PROBES.start and self._seconds < _SECONDS:
            scale = count / self._changes
            return {sid: Amount(round(e * scale), round(b * scale)) for sid, (e, b) in self._last.items()}
        probes = min(max(int(self._seconds * _PROBES_PER_SECOND), _PROBES.start), _PROBES.stop)
        self._seconds, self._changes, self._last = 0.0, count, growth(keys, values, read, probes)
        return self._last


def _size(name: bytes, value: bytes | None) -> int:
    return 0 if value is None else len(name) + len(value)


class _Group(NamedTuple):
    """Where one state's puts are in a changelog, or its deletes."""

    sid: int
    puts: bool
    places: npt.NDArray[np.int64]


def _groups(sids: npt.NDArray[np.uint32], values: pa.Array) -> Iterator[_Group]:
    """Puts and deletes apart: nearly all deletes are of entries that exist, so what is uncertain of puts is not theirs."""
    starts = np.flatnonzero(sids[1:] != sids[:-1]) + 1
    if not len(starts) and not values.null_count:
        yield _Group(int(sids[0]), True, np.arange(len(sids)))
        return
    valid = values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else np.ones(len(sids), bool)
    for sid in sorted({int(sids[0]), *sids[starts].tolist()}):
        mine = sids == sid
        for puts, places in ((True, np.flatnonzero(mine & valid)), (False, np.flatnonzero(mine & ~valid))):
            if len(places):
                yield _Group(sid, puts, places)


def _sample(places: npt.NDArray[np.int64], limit: int) -> npt.NDArray[np.int64]:
    """At most so many of them: one at random in each of as many equal parts."""
    if len(places) <= limit:
        return places
    return places[((np.arange(limit) + _dice.random(limit)) * (len(places) / limit)).astype(np.int64)]


def _sids(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """The state id of each store key."""
    _, offsets, data = keys.buffers()
    starts = np.frombuffer(offsets, np.int64)[keys.offset : keys.offset + len(keys)]
    sids: npt.NDArray[Any] = np.frombuffer(data, np.uint8)[starts[:, None] + _SID]
    return sids.view(">u4").astype(np.uint32)[:, 0]


def _lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    """How many bytes each value has; none if it is null."""
    _, offsets, _ = column.buffers()
    return np.diff(np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1])
