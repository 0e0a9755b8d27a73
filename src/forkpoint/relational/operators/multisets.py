"""The values of each group and how often it has them: the rows of joins, and what aggregates over distinct values, and MIN and
MAX of changing rows, need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.functions import MapStateDescriptor
from forkpoint.relational.aggregation.accumulators import Accumulator, Kind, accumulated, better, decimal_sums
from forkpoint.relational.changes import never_added
from forkpoint.relational.expressions import Expression
from forkpoint.relational.operators.retention import stamps_of
from forkpoint.runtime.columnar.codes import codes_of, distinct_codes
from forkpoint.runtime.columnar.keys import KeySet, decode_keys
from forkpoint.runtime.columnar.leaves import Codec, column_of
from forkpoint.runtime.exchange.batch import Longs, stable_order
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.runtime.state.ttl import Stamps
from forkpoint.state import decode_state_key, sid_ranges
from forkpoint.types import TypeInformation, Types
from forkpoint.types.keys import canonical_column
from forkpoint.types.kinds.records import RecordType


def values_descriptor(name: str, of: Expression) -> MapStateDescriptor[Any, int]:
    """The state of the values of an expression: the number of rows by value."""
    found: MapStateDescriptor[Any, int] = MapStateDescriptor(name, of.type.with_null(False).stream_type, Types.LONG())
    found.definition = {"values": str(of)}
    return found


@dataclass(frozen=True)
class Counts:
    """How often groups have values; shape (values,). ``groups``: the index of each value's group."""

    groups: Longs
    values: pa.Array
    counts: Longs

    def take(self, rows: Longs) -> Counts:
        return Counts(self.groups[rows], self.values.take(pa.array(rows)), self.counts[rows])


@dataclass(frozen=True)
class Change:
    """The net change of counts in an epoch: ``counts`` more than ``before``. ``spaces``: the values in encoded form. ``which``:
    the index of the value of each of the epoch's rows."""

    net: Counts
    before: Longs
    spaces: pa.BinaryArray
    which: Longs

    @property
    def crossings(self) -> Counts:
        """The values that groups have gained (1) or lost (-1)."""
        found = Counts(self.net.groups, self.net.values, np.sign(self.before + self.net.counts) - np.sign(self.before))
        return found.take(np.flatnonzero(found.counts))


class Multiset:
    """The values of each group, which are never NULL. ``incomplete``: as of Retention. ``together``: whether all values of a
    group expire together, once the last write of any of them is long enough ago."""

    def __init__(
        self,
        backend: KeyedBackend,
        descriptor: MapStateDescriptor[Any, int],
        *,
        incomplete: bool = False,
        together: bool = False,
    ) -> None:
        self._backend, self._sid, self._name = backend, backend.sid(descriptor.name), descriptor.name
        self._type, self._counts = descriptor.key_type, Codec(descriptor.value_type)
        ttl_ms = None if descriptor.ttl is None else descriptor.ttl.ttl_ms
        self._stamps, self._incomplete, self._together = stamps_of(backend, ttl_ms), incomplete, together
        backend.record("map", self._name, descriptor.value_type, descriptor.key_type, ttl_ms, definition=descriptor.definition)
        self._log = ChangeLog()
        self._groups: Longs = np.empty(0, np.int64)  # of the log's entries

    def update(
        self, keys: KeySet, groups: Longs, values: pa.Array, weights: Longs | None, anew: npt.NDArray[np.bool_] | None = None
    ) -> Change:
        """Add values that are not NULL, or take them back where the weight is negative. ``groups``: of each, by its index in
        ``keys``. ``anew``: the keys of which nothing that is stored counts any more."""
        net, spaces, which = self._net(groups, values, weights)
        if self._together and self._stamps is not None:
            anew = self._expired(keys, self._stamps)
        if anew is not None and anew.any():
            self.remove(keys.names(self._sid, np.flatnonzero(anew)))
        self._groups = net.groups
        if not len(net.groups):
            return Change(net, net.counts, spaces, which)
        names = keys.names(self._sid, net.groups, spaces)
        before = self._stored_counts(names)
        if anew is not None:
            before[anew[net.groups]] = 0
        if self._incomplete:
            net = Counts(net.groups, net.values, np.maximum(net.counts, -before))
        self._put(names, net.values, before + net.counts)
        return Change(net, before, spaces, which)

    def update_part(self, keys: KeySet, whole: Change, rows: Longs, weights: Longs | None) -> Change:
        """``update`` with some ``rows`` of those of a multiset which always has all rows of this one, after its own update. So a
        value that it did not have before is new here, too."""
        which = whole.which[rows]
        counts = np.bincount(which, weights, len(whole.before)).astype(np.int64)
        used = distinct(which)
        net, spaces = Counts(whole.net.groups[used], whole.net.values.take(pa.array(used)), counts[used]), whole.spaces
        self._groups = net.groups
        if not len(used):
            return Change(net, net.counts, spaces, which)
        names = keys.names(self._sid, net.groups, spaces.take(pa.array(used)))
        known, before = np.flatnonzero(whole.before[used]), np.zeros(len(used), np.int64)
        before[known] = self._stored_counts([names[at] for at in known.tolist()])
        self._put(names, net.values, before + net.counts)
        return Change(net, before, spaces, which)

    def _stored_counts(self, names: list[bytes]) -> Longs:
        """The stored counts of values, by their names in the store; 0 for those that are not there."""
        raw: Sequence[bytes | None] = self._backend.store.get_many(names)
        if self._stamps is not None:
            raw = self._stamps.bare(raw) if self._together else self._stamps.live(raw)
        found = np.zeros(len(names), np.int64)
        held = np.fromiter((each is not None for each in raw), bool, len(raw))
        found[held] = self._decoded([each for each in raw if each is not None])
        return found

    def replace(self, old: Sequence[bytes], keys: KeySet, groups: Longs, values: pa.Array, weights: Longs) -> Counts:
        """Store these values in place of the entries with the names ``old``. Returns their net counts."""
        net, spaces, _ = self._net(groups, values, weights)
        rows = np.flatnonzero(net.counts)
        net, spaces = net.take(rows), spaces.take(pa.array(rows))
        self._log.delete(old)
        self._put(keys.names(self._sid, net.groups, spaces), net.values, net.counts)
        return net

    def _net(self, groups: Longs, values: pa.Array, weights: Longs | None) -> tuple[Counts, pa.BinaryArray, Longs]:
        """Each value of a group once, and in encoded form; and of each row, the index of its value."""
        values = _canonical(values, self._type)
        counts = np.ones(len(values), np.int64) if weights is None else weights
        encoded = KeySet(values, self._type, 1).encoded if pa.types.is_struct(values.type) else None
        if encoded is not None and _all_differ([pa.array(groups), *values.flatten()]):
            return Counts(groups, values, counts), encoded, np.arange(len(values))
        firsts, which = distinct_codes(codes_of([pa.array(groups), values if encoded is None else encoded]))
        sums = np.bincount(which, counts, len(firsts)).astype(np.int64)
        found = Counts(groups[firsts], values.take(pa.array(firsts)), sums)
        if encoded is None:
            return found, KeySet(found.values, self._type, 1).encoded, which
        return found, encoded.take(pa.array(firsts)), which

    def _put(self, names: list[bytes], values: pa.Array, counts: Longs) -> None:
        if (counts < 0).any():
            value = values[int(np.argmax(counts < 0))].as_py()
            raise never_added(self._backend.uid, f"{self._name} {value!r}")
        encoded = self._counts.encode_columns([pa.array(counts)])
        if self._stamps is not None:
            encoded = self._stamps.added(encoded)
        self._log.add(names, [data if count else None for data, count in zip(encoded, counts.tolist(), strict=True)])

    def _decoded(self, raw: Sequence[bytes]) -> Longs:
        found: Longs = self._counts.columns(raw)[0].to_numpy(zero_copy_only=False)
        return found

    def of_group(self, keys: KeySet, group: int) -> pa.Array:
        """All values of a group, after ``update``."""
        prefix = keys.names(self._sid, np.array([group]))[0]
        found = set(self._backend.store.scan_prefixes([prefix]).keys)
        for name, value in zip(self._log.keys, self._log.values, strict=True):
            if name.startswith(prefix):
                (found.discard if value is None else found.add)(name)
        return decode_keys([name[len(prefix) :] for name in sorted(found)], self._type)

    def stored(self, keys: KeySet, groups: Longs, saved: TypeInformation | None = None) -> Counts:
        """The stored values of these groups. ``saved``: their type when they were saved, by default that of now."""
        found = scanned(self._backend, self._sid, keys, groups)
        live, values = live_entries(found.values, self._stamps, found.groups if self._together else None)
        spaces = found.spaces if len(live) == len(found.spaces) else [found.spaces[at] for at in live.tolist()]
        return Counts(found.groups[live], decode_keys(spaces, saved or self._type), self._decoded(values))

    def _expired(self, keys: KeySet, stamps: Stamps) -> npt.NDArray[np.bool_]:
        """The keys whose stored values have all expired."""
        found = scanned(self._backend, self._sid, keys, np.arange(len(keys.column)))
        expired = np.ones(len(keys.column), bool)
        expired[found.groups[live_entries(found.values, stamps)[0]]] = False
        without = np.ones(len(keys.column), bool)
        without[found.groups] = False
        return np.asarray(expired & ~without)

    def drop(self, keys: KeySet, groups: npt.NDArray[np.bool_]) -> None:
        """Remove all values of these groups, after ``update``."""
        kept = np.flatnonzero(~groups[self._groups]).tolist()
        self._log = ChangeLog([self._log.keys[i] for i in kept], [self._log.values[i] for i in kept])
        self.remove(keys.names(self._sid, np.flatnonzero(groups)))

    def remove(self, prefixes: list[bytes]) -> None:
        """Remove all stored values of groups, by their store keys without a value."""
        self._log.delete(self._backend.store.scan_prefixes(prefixes).keys)

    def collect(self, log: ChangeLog) -> None:
        log.add(self._log.keys, self._log.values)
        self._log = ChangeLog()


def distinct(indices: Longs) -> Longs:
    """The distinct indices, in order: faster than by sorting or hashing them."""
    found = np.zeros(int(indices.max(initial=-1)) + 1, bool)
    found[indices] = True
    return np.flatnonzero(found)


def _all_differ(columns: Sequence[pa.Array]) -> bool:
    """Whether numbers and times, which are fast to compare, tell all rows apart."""
    codes = codes_of([column for column in columns if pa.types.is_primitive(column.type)])
    return bool(pc.count_distinct(pa.array(codes)).as_py() == len(codes))


def _canonical(values: pa.Array, of: TypeInformation) -> pa.Array:
    if not isinstance(of, RecordType):
        return canonical_column(values, of)
    return column_of([canonical_column(part, field.type) for part, field in zip(values.flatten(), of.members, strict=True)], of)


@dataclass(frozen=True)
class Entries:
    """Entries of a state: the index of the key of each, their names in the store, namespaces and values."""

    groups: Longs
    names: list[bytes]
    spaces: list[bytes]
    values: list[bytes]


def scanned(backend: KeyedBackend, sid: int, keys: KeySet, groups: Longs) -> Entries:
    """The stored entries of a state for the keys at ``groups``."""
    prefixes = keys.names(sid, groups)
    counts, names, values = backend.store.scan_prefixes(prefixes)
    cuts = np.repeat(np.fromiter(map(len, prefixes), np.int64, len(prefixes)), counts).tolist()
    return Entries(np.repeat(groups, counts), names, [name[cut:] for name, cut in zip(names, cuts, strict=True)], values)


@dataclass(frozen=True)
class StoredCounts:
    """All entries of a state of values: their names in the store, keys, values and counts."""

    names: list[bytes]
    keys: pa.Array
    values: pa.Array
    counts: Longs


def stored_counts(
    backend: KeyedBackend,
    name: str,
    of: TypeInformation,
    key_type: TypeInformation,
    ttl_ms: int | None = None,
    *,
    together: bool = False,
) -> StoredCounts:
    """The entries of a state of values. ``of``, ``key_type``: the saved types of values and keys."""
    found = stored_entries(backend, name, ttl_ms, together=together)
    parts = [decode_state_key(entry) for entry, _ in found]
    counts = Codec(Types.LONG()).columns([count for _, count in found])[0].to_numpy(zero_copy_only=False)
    keys, values = (
        decode_keys([each.key for each in parts], key_type),
        decode_keys([each.namespace for each in parts], of),
    )
    return StoredCounts([entry for entry, _ in found], keys, values, counts)


def stored_entries(
    backend: KeyedBackend, name: str, ttl_ms: int | None = None, *, together: bool = False
) -> list[tuple[bytes, bytes]]:
    """All entries of a state, except those that have expired; ``together``: with all others of their key."""
    ranges = sid_ranges(*backend.groups, backend.sid(name))
    found = [entry for start, stop in backend.store.occupied(ranges) for entry in backend.store.scan(start, stop)]
    groups = None
    if together and ttl_ms is not None:
        numbers: dict[bytes, int] = {}
        groups = np.array([numbers.setdefault(decode_state_key(entry).key, len(numbers)) for entry, _ in found], np.int64)
    live, values = live_entries([value for _, value in found], stamps_of(backend, ttl_ms), groups)
    return found if ttl_ms is None else [(found[at][0], value) for at, value in zip(live.tolist(), values, strict=True)]


def live_entries(stored: Sequence[bytes], stamps: Stamps | None, groups: Longs | None = None) -> tuple[Longs, Sequence[bytes]]:
    """Which entries have not expired, and these without their stamps. ``groups``: of entries that expire together."""
    if stamps is None:
        return np.arange(len(stored)), stored
    live = np.fromiter((not stamps.expired(entry) for entry in stored), bool, len(stored))
    if groups is not None and len(groups):
        living = np.zeros(int(groups.max()) + 1, bool)
        living[groups[live]] = True
        live = living[groups]
    found, bare = np.flatnonzero(live), stamps.bare(stored)
    return found, [entry for at in found.tolist() if (entry := bare[at]) is not None]


def of_distinct(accumulator: Accumulator, crossings: Counts, multiset: Multiset, keys: KeySet, saved: pa.Array) -> pa.Array:
    """The accumulator of each group, from the values that it has gained and lost. ``saved``: null for a new group."""
    if accumulator.kind in ("min", "max"):
        return _extremes(accumulator.kind, crossings, multiset, keys, saved)
    if accumulator.kind == "user":
        order, groups = stable_order(crossings.groups)
        starts = np.searchsorted(groups, np.arange(len(saved) + 1))
        return accumulated(accumulator, crossings.values.take(pa.array(order)), crossings.counts[order], starts, saved)
    signed = crossings.counts
    if accumulator.kind == "sum" and pa.types.is_decimal(saved.type):
        return decimal_sums(accumulator, saved, crossings.groups, crossings.values, signed)
    if accumulator.kind == "sum":
        signed = signed * crossings.values.to_numpy(zero_copy_only=False)
    after = saved.fill_null(0).to_numpy(zero_copy_only=False).copy()
    np.add.at(after, crossings.groups, signed.astype(after.dtype))
    return pa.array(after, accumulator.type.arrow_type)


def _extremes(kind: Kind, crossings: Counts, multiset: Multiset, keys: KeySet, saved: pa.Array) -> pa.Array:
    """Gained values compete with the saved extreme. A group that has lost it looks at all its values."""
    gained, lost = np.flatnonzero(crossings.counts > 0), np.flatnonzero(crossings.counts < 0)
    found = better(kind, saved, _by_group(kind, crossings, gained, saved))
    groups = crossings.groups[lost]
    was_extreme = pc.equal(crossings.values.take(pa.array(lost)), saved.take(pa.array(groups))).fill_null(False)
    groups = np.unique(groups[was_extreme.to_numpy(zero_copy_only=False)])
    if not len(groups):
        return found
    of_all = pc.min if kind == "min" else pc.max
    again = pa.array([of_all(multiset.of_group(keys, group)).as_py() for group in groups.tolist()], saved.type)
    at = np.arange(len(saved))
    at[groups] = len(saved) + np.arange(len(groups))
    return pa.concat_arrays([found, again]).take(pa.array(at))


def _by_group(kind: Kind, crossings: Counts, rows: Longs, like: pa.Array) -> pa.Array:
    """The extreme of each group's values at these rows, null for groups without."""
    table = pa.table({"group": crossings.groups[rows], "value": crossings.values.take(pa.array(rows))})
    found = table.group_by("group", use_threads=False).aggregate([("value", kind)])
    at = np.full(len(like), -1)
    at[found.column("group").to_numpy()] = np.arange(found.num_rows)
    values = found.column(f"value_{kind}").combine_chunks().cast(like.type)
    return values.take(pa.array(at, mask=at < 0))
