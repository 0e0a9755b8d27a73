"""Counts the entries and bytes of each state.

Snapshots and loads count entries in columns. The growth by a changelog is measured: a put may add or replace an entry, and only
the store knows. The store is probed for a limited number of keys, so the growth by many changes is an estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

# These limits keep the measurement below one percent of the tasks' time.
_PROBES_PER_SECOND = 5_000
_PROBES = range(64, 256)
_SECONDS = 0.03  # of work, before many changes are measured again
_LEAST_PROBES = 16  # of each state's puts or deletes
_SID = np.arange(2, 6)  # the bytes of the sid in a store key
_random = np.random.default_rng()


class Amount(NamedTuple):
    """Entries of a state and the bytes of their keys and values, or the change of both."""

    entries: int
    bytes: int


Amounts = Mapping[int, Amount]
"""By state id."""

_NOTHING = Amount(0, 0)


def sum_amounts(parts: Iterable[Amounts]) -> dict[int, Amount]:
    """The sum of several parts, at least zero, because estimates may be too small."""
    entries: dict[int, int] = {}
    size: dict[int, int] = {}
    for part in parts:
        for sid, amount in part.items():
            entries[sid] = entries.get(sid, 0) + amount.entries
            size[sid] = size.get(sid, 0) + amount.bytes
    return {sid: Amount(max(0, count), max(0, size[sid])) for sid, count in entries.items()}


class Count:
    """Counts entries chunk by chunk. A chunk has its keys in order and no deletes."""

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
    """The growth of each state by changes, which may be negative. ``keys`` are distinct and in order; a value is null for a
    delete. ``read``: the values before the changes.

    Exact for at most ``probes`` changes, or few changes of each state. Otherwise extrapolated from about ``probes`` changes.
    """
    scales: dict[tuple[bytes, bool], float] = {}
    if len(keys) > probes:
        groups = list(_groups(_sids(keys), values))
        limit = max(_LEAST_PROBES, probes // len(groups))
        samples = [_sample(group.indices, limit) for group in groups]
        for group, sample in zip(groups, samples, strict=True):
            scales[group.sid.to_bytes(4, "big"), group.puts] = len(group.indices) / len(sample)
        sampled = pa.array(np.concatenate(samples))
        keys, values = keys.take(sampled), values.take(sampled)
    entries: dict[tuple[bytes, bool], int] = {}
    sizes: dict[tuple[bytes, bool], int] = {}
    names = keys.to_pylist()
    for name, value, before in zip(names, values.to_pylist(), read(names), strict=True):
        kind = name[2:6], value is not None
        entries[kind] = entries.get(kind, 0) + (value is not None) - (before is not None)
        sizes[kind] = sizes.get(kind, 0) + _size(name, value) - _size(name, before)
    grown: dict[int, Amount] = {}
    for kind, count in entries.items():
        sid, scale = int.from_bytes(kind[0], "big"), scales.get(kind, 1.0)
        so_far = grown.get(sid, _NOTHING)
        grown[sid] = Amount(so_far.entries + round(count * scale), so_far.bytes + round(sizes[kind] * scale))
    return grown


class GrowthMeter:
    """Measures the changelogs of one subtask and stage, in proportion to the working time of its tasks.

    A changelog with few changes is always measured. Of short epochs with many changes, only some are measured; the others
    are extrapolated from the last measurement.
    """

    def __init__(self) -> None:
        self._seconds = 0.0  # since the last measurement
        self._last: dict[int, Amount] = {}
        self._changes = 0  # in the last measured changelog

    def growth(
        self, keys: pa.Array, values: pa.Array, read: Callable[[Sequence[bytes]], Sequence[bytes | None]], seconds: float
    ) -> dict[int, Amount]:
        """``seconds``: the working time of the task."""
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
    """The indices of one state's puts, or of its deletes, in a changelog."""

    sid: int
    puts: bool
    indices: npt.NDArray[np.int64]


def _groups(sids: npt.NDArray[np.uint32], values: pa.Array) -> Iterator[_Group]:
    """Puts and deletes are separate: nearly all deletes remove an existing entry, so only puts are uncertain."""
    starts = np.flatnonzero(sids[1:] != sids[:-1]) + 1
    if not len(starts) and not values.null_count:
        yield _Group(int(sids[0]), True, np.arange(len(sids)))
        return
    valid = values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else np.ones(len(sids), bool)
    for sid in sorted({int(sids[0]), *sids[starts].tolist()}):
        own = sids == sid
        for puts, indices in ((True, np.flatnonzero(own & valid)), (False, np.flatnonzero(own & ~valid))):
            if len(indices):
                yield _Group(sid, puts, indices)


def _sample(indices: npt.NDArray[np.int64], limit: int) -> npt.NDArray[np.int64]:
    """At most ``limit`` indices: a random one from each of ``limit`` equal parts."""
    if len(indices) <= limit:
        return indices
    return indices[((np.arange(limit) + _random.random(limit)) * (len(indices) / limit)).astype(np.int64)]


def _sids(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """The state id of each store key."""
    _, offsets, data = keys.buffers()
    starts = np.frombuffer(offsets, np.int64)[keys.offset : keys.offset + len(keys)]
    sids: npt.NDArray[Any] = np.frombuffer(data, np.uint8)[starts[:, None] + _SID]
    return sids.view(">u4").astype(np.uint32)[:, 0]


def _lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    """The number of bytes of each value, 0 for null."""
    _, offsets, _ = column.buffers()
    return np.diff(np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1])
