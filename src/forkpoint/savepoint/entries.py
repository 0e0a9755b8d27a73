"""Store entries to columns and back: the bytes that the runtime keeps, as typed rows.

A block is at most some ten thousand entries of one state. Per entry there is nothing but decoding and encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import SavepointCorrupt, TypeNotSupported
from forkpoint.runtime.columnar.leaves import Codec as BulkCodec
from forkpoint.runtime.state.broadcast_state import pack_entry, unpack_entry
from forkpoint.runtime.state.ttl import STAMP_BYTES, pack_stamp, unpack_stamp
from forkpoint.savepoint.layout import Layout, Part, Role, layout_of
from forkpoint.state import (
    OperatorKey,
    decode_operator_key,
    decode_state_key,
    decode_timer_key,
    hash_column,
    key_group,
    operator_key,
    state_key,
    timer_key,
)
from forkpoint.types import TypeInformation, Types

Ints = npt.NDArray[np.int64]
Entries = tuple[list[bytes], list[bytes]]
"""Store keys and values, one for one."""

_KEY_AT = len(state_key(0, 0, b""))  # where the key begins in the store key of a state
_CHUNK_BYTES = 8  # the namespace of a list's chunk: the epoch that appended it, big-endian
_key, _namespace, _timestamp = attrgetter("key"), attrgetter("namespace"), attrgetter("ts_ms")


@dataclass(frozen=True)
class Moved:
    """How a state's entries are written on restore.

    ``sid``: its number in the new program. ``ttl``: whether entries have a stamp there, ``stamp_ms`` for those that had
    none. ``epoch``: of the start manifest. ``max_parallelism``: set where key groups must be found anew.
    """

    sid: int
    ttl: bool
    stamp_ms: int
    epoch: int
    max_parallelism: int | None = None


class Codec(Protocol):
    """One state's entries, in both forms."""

    layout: Layout

    def to_table(self, groups: Ints, keys: list[bytes], values: list[bytes]) -> pa.Table:
        """A block of entries in store order, with their key groups. Lists: blocks come one after the other."""

    def to_entries(self, table: pa.Table, moved: Moved) -> Entries:
        """A block of rows as store entries, in no particular order. Lists: only keys that are complete."""

    def finish(self, moved: Moved) -> Entries:
        """What ``to_entries`` still holds back."""


def codec_of(info: StateInfo) -> Codec:
    layout = layout_of(info)
    if info.kind == "broadcast":
        return BroadcastCodec(layout)
    if info.is_operator_state:
        return OperatorCodec(layout)
    if info.is_timers:
        return TimerCodec(layout)
    return ListCodec(layout) if info.kind == "list" else ValueCodec(layout)


@contextmanager
def _explained(layout: Layout, what: str) -> Iterator[None]:
    try:
        yield
    except (msgspec.MsgspecError, TypeNotSupported, ValueError, OverflowError, TypeError) as error:
        if isinstance(error, SavepointCorrupt):
            raise
        raise SavepointCorrupt(f"{layout.info.where}: {what} do not fit its recorded types: {error}") from error


class _Columns:
    """What the codecs share: parts of rows to columns and back."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def _type(self, role: Role) -> TypeInformation:
        return self.layout.part(role).type

    def _table(self, parts: dict[str, Sequence[pa.Array]]) -> pa.Table:
        arrays = [array for part in self.layout.parts for array in parts[part.role]]
        return pa.Table.from_arrays(arrays, schema=self.layout.schema)

    def _values(self, table: pa.Table, role: Role) -> list[Any]:
        return self._type(role).from_columns(self.layout.columns(table, role))

    def _numbers(self, table: pa.Table, role: Role) -> Ints:
        (column,) = self.layout.columns(table, role)
        if column.null_count:
            raise SavepointCorrupt(f"{self.layout.info.where}: column {role} holds {column.null_count} nulls")
        return np.asarray(column.to_numpy()).astype(np.int64, copy=False)

    def _groups(self, table: pa.Table, keys: list[Any], moved: Moved) -> list[int]:
        if moved.max_parallelism is None:
            saved: list[int] = self._numbers(table, "key_group").tolist()
            return saved
        of = self._type("key")
        columns = self.layout.columns(table, "key")
        column = of.to_arrow(keys) if of.fields else columns[0]
        groups: list[int] = key_group(hash_column(column, of), moved.max_parallelism).tolist()
        return groups

    def _encode(self, role: Role, values: list[Any]) -> list[bytes]:
        return list(map(self._type(role).encode, values))

    def _encode_columns(self, role: Role, table: pa.Table) -> list[bytes]:
        """A part of each row as it is stored, for all rows at once where the type allows."""
        return _bulk(self._type(role)).encode_columns([c.combine_chunks() for c in self.layout.columns(table, role)])


def _decoded(part: Part, raw: list[bytes]) -> list[pa.Array]:
    if part.raw:
        return [pa.array(raw, pa.binary())]
    return _bulk(part.type).columns(raw)


@lru_cache(maxsize=256)
def _bulk(type: TypeInformation) -> BulkCodec:
    return BulkCodec(type)


def _longs(numbers: Any) -> list[pa.Array]:
    return [pa.array(np.asarray(numbers, dtype=np.int64))]


def _small(numbers: Ints) -> list[pa.Array]:
    return [pa.array(numbers.astype(np.int32))]


class ValueCodec(_Columns):
    """Value, reducing, aggregating and map state: an entry a row."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._space: Role | None = (
            "map_key" if layout.has("map_key") else "namespace" if layout.has("namespace") else None
        )
        self._ttl = layout.has("ttl_stamp")

    def to_table(self, groups: Ints, keys: list[bytes], values: list[bytes]) -> pa.Table:
        parts: dict[str, Sequence[pa.Array]] = {"key_group": _small(groups)}
        with _explained(self.layout, "stored entries"):
            if self._space is None:
                raw = [key[_KEY_AT:] for key in keys]
            else:
                split = list(map(decode_state_key, keys))
                raw = list(map(_key, split))
                parts[self._space] = _decoded(self.layout.part(self._space), list(map(_namespace, split)))
            parts["key"] = _decoded(self.layout.part("key"), raw)
            if self._ttl:
                parts["ttl_stamp"] = _longs(list(map(unpack_stamp, values)))
                values = [value[STAMP_BYTES:] for value in values]
            parts["value"] = _decoded(self.layout.part("value"), values)
        return self._table(parts)

    def to_entries(self, table: pa.Table, moved: Moved) -> Entries:
        sid = moved.sid
        with _explained(self.layout, "saved rows"):
            objects = self._values(table, "key")
            groups = self._groups(table, objects, moved)
            raw = self._encode("key", objects)
            if self._space is None:
                keys = [state_key(group, sid, key) for group, key in zip(groups, raw, strict=True)]
            else:
                spaces = self._encode(self._space, self._values(table, self._space))
                keys = [state_key(g, sid, key, space) for g, key, space in zip(groups, raw, spaces, strict=True)]
            values = self._encode_columns("value", table)
            if moved.ttl:
                stamps = self._numbers(table, "ttl_stamp").tolist() if self._ttl else [moved.stamp_ms] * len(values)
                values = [pack_stamp(stamp) + value for stamp, value in zip(stamps, values, strict=True)]
        return keys, values

    def finish(self, moved: Moved) -> Entries:
        return [], []


class ListCodec(_Columns):
    """List state: stored in chunks, one for each epoch that appended; a row an element. Restored as one chunk a key."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._list = Types.LIST(self._type("value"))
        self._stamps = Types.LIST(Types.LONG())
        self._spaced = layout.has("namespace")
        self._ttl = layout.has("ttl_stamp")
        self._before: bytes | None = None  # the list that the last block ended with, and its length so far
        self._length = 0
        self._open: tuple[bytes, list[Any], list[int]] | None = None  # to_entries: a list that may go on

    def to_table(self, groups: Ints, keys: list[bytes], values: list[bytes]) -> pa.Table:
        with _explained(self.layout, "stored entries"):
            stamps: list[list[int]] = []
            if self._ttl:
                lengths = list(map(unpack_stamp, values))
                stamps = [
                    self._stamps.decode(value[STAMP_BYTES : STAMP_BYTES + length])
                    for value, length in zip(values, lengths, strict=True)
                ]
                values = [value[STAMP_BYTES + length :] for value, length in zip(values, lengths, strict=True)]
            lists = list(map(self._list.decode, values))
            counts = np.fromiter(map(len, lists), np.int64, len(lists))
            if self._ttl and not np.array_equal(counts, np.fromiter(map(len, stamps), np.int64, len(stamps))):
                raise ValueError("a list has not as many stamps as elements")
            split = list(map(decode_state_key, keys))
            rows = np.repeat(np.arange(len(keys)), counts)  # of each element: its chunk
            parts: dict[str, Sequence[pa.Array]] = {
                "key_group": _small(groups[rows]),
                "index": _longs(self._indexes([key[:-_CHUNK_BYTES] for key in keys], counts)),
                "value": self._type("value").to_columns(list(chain.from_iterable(lists))),
            }
            places = pa.array(rows)
            parts["key"] = [c.take(places) for c in _decoded(self.layout.part("key"), list(map(_key, split)))]
            if self._spaced:
                spaces = [key.namespace[:-_CHUNK_BYTES] for key in split]
                parts["namespace"] = [c.take(places) for c in _decoded(self.layout.part("namespace"), spaces)]
            if self._ttl:
                parts["ttl_stamp"] = _longs(list(chain.from_iterable(stamps)))
        return self._table(parts)

    def _indexes(self, lists: list[bytes], counts: Ints) -> Ints:
        """The index of each element in its list, whose chunks follow one another, maybe from block to block."""
        bases: list[int] = []
        for name, count in zip(lists, counts.tolist(), strict=True):
            if name != self._before:
                self._before, self._length = name, 0
            bases.append(self._length)
            self._length += count
        ends = np.cumsum(counts)
        places: Ints = np.arange(int(ends[-1]) if len(ends) else 0)
        indexes: Ints = places + np.repeat(np.array(bases, np.int64) - (ends - counts), counts)
        return indexes

    def to_entries(self, table: pa.Table, moved: Moved) -> Entries:
        with _explained(self.layout, "saved rows"):
            indexes = self._numbers(table, "index")
            values = self._values(table, "value")
            stamps = self._numbers(table, "ttl_stamp").tolist() if self._ttl else [moved.stamp_ms] * len(values)
            starts = np.flatnonzero(indexes == 0)
            goes_on = int(starts[0]) if len(starts) else len(values)  # elements of the list of the block before
            self._check(indexes, starts, goes_on)
            if self._open is not None:
                self._open[1].extend(values[:goes_on])
                self._open[2].extend(stamps[:goes_on])
            if not len(starts):
                return [], []
            done = self.finish(moved)
            names = self._names(table.take(pa.array(starts)), moved)
            bounds = [*starts.tolist(), len(values)]
            lists = [(n, values[a:b], stamps[a:b]) for n, (a, b) in zip(names, pairwise(bounds), strict=True)]
            self._open = lists.pop()
            encoded = [self._encoded(v, s, moved) for _, v, s in lists]
            return done[0] + [name for name, _, _ in lists], done[1] + encoded

    def _names(self, firsts: pa.Table, moved: Moved) -> list[bytes]:
        """The store key of each list, of which the table has the first element."""
        objects = self._values(firsts, "key")
        groups = self._groups(firsts, objects, moved)
        chunk = moved.epoch.to_bytes(_CHUNK_BYTES, "big")  # those of later epochs come behind it
        spaces = [b""] * len(objects)
        if self._spaced:
            spaces = self._encode("namespace", self._values(firsts, "namespace"))
        return [
            state_key(group, moved.sid, key, space + chunk)
            for group, key, space in zip(groups, self._encode("key", objects), spaces, strict=True)
        ]

    def _check(self, indexes: Ints, starts: Ints, goes_on: int) -> None:
        follows = np.ones(len(indexes), bool)
        follows[1:] = indexes[1:] == indexes[:-1] + 1
        follows[starts] = True
        if goes_on:
            follows[0] = self._open is not None and indexes[0] == len(self._open[1])
        if not follows.all():
            at = int(np.flatnonzero(~follows)[0])
            raise SavepointCorrupt(
                f"{self.layout.info.where}: the elements of a list are not in order: index {indexes[at]} where the list's "
                "next element is expected"
            )

    def _encoded(self, values: list[Any], stamps: list[int], moved: Moved) -> bytes:
        raw = self._list.encode(values)
        if not moved.ttl:
            return raw
        packed = self._stamps.encode(stamps)
        return pack_stamp(len(packed)) + packed + raw

    def finish(self, moved: Moved) -> Entries:
        if self._open is None:
            return [], []
        (name, values, stamps), self._open = self._open, None
        return [name], [self._encoded(values, stamps, moved)]


class TimerCodec(_Columns):
    """Timers of one time domain: entries without values."""

    def to_table(self, groups: Ints, keys: list[bytes], values: list[bytes]) -> pa.Table:
        with _explained(self.layout, "stored timers"):
            split = list(map(decode_timer_key, keys))
            domain = self.layout.info.kind.removeprefix("timers-")
            parts: dict[str, Sequence[pa.Array]] = {
                "key_group": _small(groups),
                "key": _decoded(self.layout.part("key"), list(map(_key, split))),
                "domain": [pa.repeat(pa.scalar(domain, pa.string()), len(keys))],
                "namespace": _decoded(self.layout.part("namespace"), list(map(_namespace, split))),
                "timestamp": _longs(list(map(_timestamp, split))),
            }
        return self._table(parts)

    def to_entries(self, table: pa.Table, moved: Moved) -> Entries:
        sid = moved.sid
        with _explained(self.layout, "saved timers"):
            objects = self._values(table, "key")
            groups = self._groups(table, objects, moved)
            spaces = self._values(table, "namespace")
            if not self.layout.part("namespace").raw:
                spaces = self._encode("namespace", spaces)
            times = self._numbers(table, "timestamp").tolist()
            keys = [
                timer_key(group, sid, time, key, space)
                for group, time, key, space in zip(groups, times, self._encode("key", objects), spaces, strict=True)
            ]
        return keys, [b""] * len(keys)

    def finish(self, moved: Moved) -> Entries:
        return [], []


class OperatorCodec(_Columns):
    """Operator state: an element an entry. ``to_entries`` keeps subtask and index; ``redistribute`` deals them out anew."""

    def to_table(self, groups: Ints, keys: list[bytes], values: list[bytes]) -> pa.Table:
        with _explained(self.layout, "stored elements"):
            split: list[OperatorKey] = list(map(decode_operator_key, keys))
            parts: dict[str, Sequence[pa.Array]] = {
                "subtask": _small(np.array([k.subtask for k in split], np.int64)),
                "index": _longs([k.element for k in split]),
                "value": _decoded(self.layout.part("value"), values),
            }
        return self._table(parts)

    def to_entries(self, table: pa.Table, moved: Moved) -> Entries:
        with _explained(self.layout, "saved elements"):
            keys = [
                operator_key(moved.sid, subtask, index)
                for subtask, index in zip(
                    self._numbers(table, "subtask").tolist(), self._numbers(table, "index").tolist(), strict=True
                )
            ]
            return keys, self._encode("value", self._values(table, "value"))

    def finish(self, moved: Moved) -> Entries:
        return [], []


class BroadcastCodec(_Columns):
    """Broadcast state: an entry of the map an entry, in one subtask's copy."""

    def to_table(self, groups: Ints, keys: list[bytes], values: list[bytes]) -> pa.Table:
        with _explained(self.layout, "stored entries"):
            pairs = list(map(unpack_entry, values))
            parts: dict[str, Sequence[pa.Array]] = {
                "index": _longs([decode_operator_key(key).element for key in keys]),
                "map_key": _decoded(self.layout.part("map_key"), [key for key, _ in pairs]),
                "value": _decoded(self.layout.part("value"), [value for _, value in pairs]),
            }
        return self._table(parts)

    def to_entries(self, table: pa.Table, moved: Moved) -> Entries:
        with _explained(self.layout, "saved entries"):
            encoded = (self._encode(role, self._values(table, role)) for role in ("map_key", "value"))
            keys = [operator_key(moved.sid, 0, index) for index in self._numbers(table, "index").tolist()]
            return keys, list(map(pack_entry, *encoded))

    def finish(self, moved: Moved) -> Entries:
        return [], []


def redistribute(
    kind: str, keys: list[bytes], values: list[bytes], subtask: int, saved: int, parallelism: int
) -> Entries:
    """The entries of one subtask of operator state, from those of all subtasks of the savepoint. Pure.

    A list is dealt out in order and evenly, and stays as it is where the parallelism does; of a union every subtask
    gets all elements, and of broadcast state the one copy that was saved.
    """
    parsed = sorted((decode_operator_key(key), value) for key, value in zip(keys, values, strict=True))
    if not parsed:
        return [], []
    match kind:
        case "operator-union":
            chosen = [value for _, value in parsed]
        case "broadcast":
            chosen = [value for key, value in parsed if key.subtask == parsed[0][0].subtask]
        case _ if saved == parallelism:
            chosen = [value for key, value in parsed if key.subtask == subtask]
        case _:
            count = len(parsed)
            low, high = subtask * count // parallelism, (subtask + 1) * count // parallelism
            chosen = [value for _, value in parsed[low:high]]
    sid = parsed[0][0].sid
    return [operator_key(sid, subtask, index) for index in range(len(chosen))], chosen
