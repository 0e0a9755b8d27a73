"""The values of each group and how often it has them: for aggregates over distinct values, and MIN and MAX of changing rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.errors import JobFailed
from forkpoint.functions import MapStateDescriptor
from forkpoint.relational.aggregates import Accumulator, Kind, better
from forkpoint.relational.expressions import Expression
from forkpoint.runtime.columnar.keys import KeySet, codes_of, decode_keys
from forkpoint.runtime.columnar.leaves import Codec
from forkpoint.runtime.exchange.batch import Longs, stable_order
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.state import prefix_stop
from forkpoint.types import Types
from forkpoint.types.keys import canonical_column


def values_descriptor(name: str, of: Expression) -> MapStateDescriptor[Any, int]:
    """The state of the values of an expression: the number of rows by value."""
    found: MapStateDescriptor[Any, int] = MapStateDescriptor(name, of.type.with_null(False).stream_type, Types.LONG())
    found.definition = {"values": str(of)}
    return found


@dataclass(frozen=True)
class Crossings:
    """The values that groups have gained (sign 1) or lost (-1) in an epoch; shape (crossings,)."""

    groups: Longs
    values: pa.Array
    signs: Longs


class Multiset:
    """The values of one expression. NULL is not among them."""

    def __init__(self, backend: KeyedBackend, descriptor: MapStateDescriptor[Any, int]) -> None:
        self._backend, self._sid, self._name = backend, backend.sid(descriptor.name), descriptor.name
        self._type, self._counts = descriptor.key_type, Codec(descriptor.value_type)
        backend.record("map", self._name, descriptor.value_type, descriptor.key_type, definition=descriptor.definition)
        self._log = ChangeLog()
        self._keys: KeySet | None = None
        self._groups: Longs = np.empty(0, np.int64)  # of the log's entries

    def update(self, keys: KeySet, groups: Longs, values: pa.Array, weights: Longs | None) -> Crossings:
        """Add rows, or take them back where the weight is negative. ``groups``: of each row, by its index in ``keys``."""
        self._keys, self._log, self._groups = keys, ChangeLog(), np.empty(0, np.int64)
        present = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        groups, values = groups[present], canonical_column(values.take(pa.array(present)), self._type)
        changes = np.ones(len(present), np.int64) if weights is None else weights[present]
        if not len(present):
            return Crossings(groups, values, changes)
        order, codes = stable_order(codes_of([pa.array(groups), values]))
        starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
        firsts, changes = order[starts], np.add.reduceat(changes[order], starts)
        groups, values = groups[firsts], values.take(pa.array(firsts))
        names = keys.names(self._sid, groups, KeySet(values, self._type, 1).encoded)
        raw = self._backend.store.get_many(names)
        before = np.zeros(len(names), np.int64)
        held = np.fromiter((each is not None for each in raw), bool, len(raw))
        before[held] = self._counts.columns([each for each in raw if each is not None])[0].to_numpy(zero_copy_only=False)
        after = before + changes
        if (after < 0).any():
            value = values[int(np.argmax(after < 0))].as_py()
            raise JobFailed(f"operator {self._backend.uid!r}: value {value!r} is removed from a group that does not have it")
        encoded = self._counts.encode_columns([pa.array(after)])
        self._log.add(names, [data if count else None for data, count in zip(encoded, after.tolist(), strict=True)])
        self._groups = groups
        signs = np.sign(after) - np.sign(before)
        crossed = np.flatnonzero(signs)
        return Crossings(groups[crossed], values.take(pa.array(crossed)), signs[crossed])

    def of_group(self, group: int) -> pa.Array:
        """All values of a group, after ``update``."""
        assert self._keys is not None
        prefix = self._keys.names(self._sid, np.array([group]))[0]
        found = {name for name, _ in self._backend.store.scan(prefix, prefix_stop(prefix))}
        for name, value in zip(self._log.keys, self._log.values, strict=True):
            if name.startswith(prefix):
                (found.discard if value is None else found.add)(name)
        return decode_keys([name[len(prefix) :] for name in sorted(found)], self._type)

    def drop(self, groups: npt.NDArray[np.bool_]) -> None:
        """Remove all values of groups, by their indices in ``update``."""
        assert self._keys is not None
        kept = np.flatnonzero(~groups[self._groups]).tolist()
        self._log = ChangeLog([self._log.keys[i] for i in kept], [self._log.values[i] for i in kept])
        self.remove(self._keys.names(self._sid, np.flatnonzero(groups)))

    def remove(self, prefixes: list[bytes]) -> None:
        """Remove all stored values of groups, by their store keys without a value."""
        for prefix in prefixes:
            self._log.delete([name for name, _ in self._backend.store.scan(prefix, prefix_stop(prefix))])

    def collect(self, log: ChangeLog) -> None:
        log.add(self._log.keys, self._log.values)
        self._log = ChangeLog()


def of_distinct(accumulator: Accumulator, crossings: Crossings, multiset: Multiset, saved: pa.Array) -> pa.Array:
    """The accumulator of each group, from the values that it has gained and lost. ``saved``: null for a new group."""
    if accumulator.kind in ("min", "max"):
        return _extremes(accumulator.kind, crossings, multiset, saved)
    signed = crossings.signs
    if accumulator.kind == "sum":
        signed = signed * crossings.values.to_numpy(zero_copy_only=False)
    after = saved.fill_null(0).to_numpy(zero_copy_only=False).copy()
    np.add.at(after, crossings.groups, signed.astype(after.dtype))
    return pa.array(after, accumulator.type.arrow_type)


def _extremes(kind: Kind, crossings: Crossings, multiset: Multiset, saved: pa.Array) -> pa.Array:
    """Gained values compete with the saved extreme. A group that has lost it looks at all its values."""
    gained, lost = np.flatnonzero(crossings.signs > 0), np.flatnonzero(crossings.signs < 0)
    found = better(kind, saved, _by_group(kind, crossings, gained, saved))
    groups = crossings.groups[lost]
    was_extreme = pc.equal(crossings.values.take(pa.array(lost)), saved.take(pa.array(groups))).fill_null(False)
    groups = np.unique(groups[was_extreme.to_numpy(zero_copy_only=False)])
    if not len(groups):
        return found
    of_all = pc.min if kind == "min" else pc.max
    again = pa.array([of_all(multiset.of_group(group)).as_py() for group in groups.tolist()], saved.type)
    at = np.arange(len(saved))
    at[groups] = len(saved) + np.arange(len(groups))
    return pa.concat_arrays([found, again]).take(pa.array(at))


def _by_group(kind: Kind, crossings: Crossings, rows: Longs, like: pa.Array) -> pa.Array:
    """The extreme of each group's values at these rows, null for groups without."""
    table = pa.table({"group": crossings.groups[rows], "value": crossings.values.take(pa.array(rows))})
    found = table.group_by("group", use_threads=False).aggregate([("value", kind)])
    at = np.full(len(like), -1)
    at[found.column("group").to_numpy()] = np.arange(found.num_rows)
    values = found.column(f"value_{kind}").combine_chunks().cast(like.type)
    return values.take(pa.array(at, mask=at < 0))
