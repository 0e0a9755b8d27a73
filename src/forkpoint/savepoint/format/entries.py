"""Converts store entries to rows of savepoint files, and back, in blocks of at most some ten thousand entries of one state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, compress, pairwise
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import SavepointCorrupt, TypeNotSupported
from forkpoint.runtime.columnar.msgpack import padded
from forkpoint.runtime.state.broadcast_state import pack_entry, unpack_entry
from forkpoint.runtime.state.ttl import STAMP_BYTES, pack_stamp, unpack_stamp
from forkpoint.savepoint.format.layout import Columns, Layout, Role, layout_of
from forkpoint.savepoint.format.rows import Ints, Rows, bulk_codec
from forkpoint.state import (
    OperatorKey,
    decode_operator_key,
    decode_state_key,
    decode_timer_key,
    operator_key,
    state_key,
    state_key_column,
    timer_key,
)
from forkpoint.types import Types

Entries = tuple[list[bytes], list[bytes]]
"""Store keys and values, in the same order."""

Binary = tuple[pa.Array, pa.Array]
"""The same as arrays of large_binary."""

_KEY_AT = len(state_key(0, 0, b""))  # where the key begins in the store key of a state
_CHUNK_BYTES = 8  # the namespace of a list's chunk: the epoch that appended it, big-endian
_key, _namespace, _timestamp = attrgetter("key"), attrgetter("namespace"), attrgetter("ts_ms")


@dataclass(frozen=True)
class EntryTarget:
    """How a restore writes a state's entries.

    ``sid``: the state's number in the new program. ``ttl``: whether entries get a stamp; ``stamp_ms`` if they had none.
    ``epoch``: of the start manifest. ``max_parallelism``: set if key groups have to be recomputed.
    """

    sid: int
    ttl: bool
    stamp_ms: int
    epoch: int
    max_parallelism: int | None = None


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


class Codec(ABC):
    """Converts one state's entries in both directions. A row is one entry, except in list state."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    @abstractmethod
    def to_table(self, groups: Ints, keys: list[bytes], values: list[bytes]) -> pa.Table:
        """Rows of a block of entries, which are in store order; blocks of list state must be passed in order."""

    def table_of(self, groups: Ints, keys: pa.Array, values: pa.Array) -> pa.Table:
        """``to_table`` of entries in Arrow, which is faster where the types allow it."""
        return self.to_table(groups, keys.to_pylist(), values.to_pylist())

    @abstractmethod
    def to_entries(self, table: pa.Table, target: EntryTarget) -> Entries:
        """Store entries of a block of rows, in no particular order; the last list is held back, as it may continue."""

    def finish(self, target: EntryTarget) -> Entries:
        """The entries that ``to_entries`` held back."""
        return [], []

    def to_binary(self, table: pa.Table, target: EntryTarget) -> Binary:
        """``to_entries`` in Arrow, which is faster where the types allow it."""
        return as_binary(self.to_entries(table, target))

    def identity(self, groups: Ints, keys: list[bytes]) -> dict[str, Columns]:
        """The key groups, and the parts that tell entries apart, of keyed state except lists."""
        raise NotImplementedError(f"{self.layout.info.where} is saved as a whole")

    def to_changes(self, groups: Ints, keys: list[bytes], values: Sequence[bytes | None]) -> pa.Table:
        """Rows of a file of changes, in the order of the entries; those without a value are removed."""
        changes = self.layout.of_changes
        there = np.fromiter((value is not None for value in values), bool, len(values))
        written = list(compress(keys, there.tolist()))
        present = self.to_table(groups[there], written, [value for value in values if value is not None])
        with _explained(self.layout, "stored entries"):
            gone = self.identity(groups[~there], list(compress(keys, (~there).tolist())))
        count = len(values) - len(written)
        parts: dict[str, Columns] = {"removed": [pa.array(~there)]}
        order = pa.array(np.argsort(np.concatenate([np.flatnonzero(there), np.flatnonzero(~there)]), kind="stable"))
        for part in self.layout.parts:
            columns: Columns = self.layout.columns(present, part.role)
            missing = gone.get(part.role) or [pa.nulls(count, column.type) for column in columns]
            joined = [pa.chunked_array([*a.chunks, b], a.type) for a, b in zip(columns, missing, strict=True)]
            parts[part.role] = [column.take(order).combine_chunks() for column in joined]
        return changes.table(parts)

    def _decoded(self, role: Role, raw: list[bytes]) -> list[pa.Array]:
        part = self.layout.part(role)
        return [pa.array(raw, pa.binary())] if part.raw else bulk_codec(part.type).columns(raw)


def as_binary(entries: Entries) -> Binary:
    keys, values = (pa.array(each, pa.large_binary()) for each in entries)
    return keys, values


def _spans(column: pa.Array) -> tuple[Any, Any, Any]:
    """The bytes of a column of large_binary, and where its values begin and end."""
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    low, high = (int(bounds[0]), int(bounds[-1])) if len(bounds) else (0, 0)
    return padded(data.slice(low, high - low)), bounds[:-1] - low, bounds[1:] - low


def _group_numbers(rows: Rows, target: EntryTarget) -> Any:
    return rows.numbers("key_group") if target.max_parallelism is None else rows.key_groups(target.max_parallelism)


def _groups(rows: Rows, target: EntryTarget) -> list[int]:
    groups: list[int] = _group_numbers(rows, target).tolist()
    return groups


def _longs(numbers: Any) -> list[pa.Array]:
    return [pa.array(np.asarray(numbers, dtype=np.int64))]


def _small(numbers: Ints) -> list[pa.Array]:
    return [pa.array(numbers.astype(np.int32))]


class ValueCodec(Codec):
    """Value, reducing, aggregating and map state."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        spaces: tuple[Role, ...] = ("map_key", "namespace")
        self._space = next((role for role in spaces if layout.has(role)), None)
        self._ttl = layout.has("ttl_stamp")

    def identity(self, groups: Ints, keys: list[bytes]) -> dict[str, Columns]:
        parts: dict[str, Columns] = {"key_group": _small(groups)}
        if self._space is None:
            raw = [key[_KEY_AT:] for key in keys]
        else:
            split = list(map(decode_state_key, keys))
            raw = list(map(_key, split))
            parts[self._space] = self._decoded(self._space, list(map(_namespace, split)))
        parts["key"] = self._decoded("key", raw)
        return parts

    def to_table(self, groups: Ints, keys: list[bytes], values: list[bytes]) -> pa.Table:
        with _explained(self.layout, "stored entries"):
            parts = self.identity(groups, keys)
            if self._ttl:
                parts["ttl_stamp"] = _longs(list(map(unpack_stamp, values)))
                values = [value[STAMP_BYTES:] for value in values]
            parts["value"] = self._decoded("value", values)
        return self.layout.table(parts)

    def table_of(self, groups: Ints, keys: pa.Array, values: pa.Array) -> pa.Table:
        parts = self._parts(keys, values)
        if parts is None:
            return super().table_of(groups, keys, values)
        return self.layout.table({"key_group": _small(groups), **parts})

    def _parts(self, keys: pa.Array, values: pa.Array) -> dict[str, Columns] | None:
        """The columns of keys and values that consist of numbers."""
        (data, starts, ends), (content, begins, stops) = _spans(keys), _spans(values)
        parts: dict[str, Columns] = {}
        if self._ttl:
            if (stops - begins < STAMP_BYTES).any():
                return None
            parts["ttl_stamp"] = _longs(np.ndarray((len(content) - 7,), ">i8", content, strides=(1,))[begins])
            begins = begins + STAMP_BYTES
        value = content, begins, stops
        words = np.ndarray((len(data) - 3,), ">u4", data, strides=(1,))
        starts = starts + _KEY_AT
        middles = starts + words[starts - 4].astype(np.int64)  # the length is before the key
        spans = {"key": (data, starts, middles), "value": value}
        if self._space is not None:
            spans[self._space] = (data, middles, ends)
        elif (middles != ends).any():
            return None
        for part in self.layout.parts:
            if part.role in spans:
                found = bulk_codec(part.type).columns_at(*spans[part.role])
                if found is None:
                    return None
                parts[part.role] = found
        return parts

    def to_entries(self, table: pa.Table, target: EntryTarget) -> Entries:
        sid = target.sid
        with _explained(self.layout, "saved rows"):
            rows = Rows(self.layout, table)
            groups, raw, values = _groups(rows, target), rows.encoded("key"), rows.encoded("value")
            if self._space is None:
                keys = [state_key(group, sid, key) for group, key in zip(groups, raw, strict=True)]
            else:
                spaces = rows.encoded(self._space)
                keys = [state_key(g, sid, key, space) for g, key, space in zip(groups, raw, spaces, strict=True)]
            if target.ttl:
                stamps = rows.numbers("ttl_stamp").tolist() if self._ttl else [target.stamp_ms] * len(values)
                values = [pack_stamp(stamp) + value for stamp, value in zip(stamps, values, strict=True)]
        return keys, values

    def to_binary(self, table: pa.Table, target: EntryTarget) -> Binary:
        with _explained(self.layout, "saved rows"):
            rows = Rows(self.layout, table)
            space = None if self._space is None else rows.binary(self._space)
            keys = state_key_column(_group_numbers(rows, target), target.sid, rows.binary("key"), space)
            values = rows.binary("value").cast(pa.large_binary())
            if target.ttl:
                stamps = rows.numbers("ttl_stamp") if self._ttl else np.full(rows.count, target.stamp_ms)
                heads = [None, pa.py_buffer(np.ascontiguousarray(stamps, ">i8"))]
                packed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(STAMP_BYTES), rows.count, heads)
                parts = packed.cast(pa.binary()).cast(pa.large_binary()), values, pa.scalar(b"", pa.large_binary())
                values = pc.binary_join_element_wise(*parts)
            return keys, values


class ListCodec(Codec):
    """List state: a row per element. The store has a chunk per list and epoch that appended; a restore writes one chunk."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self._list = Types.LIST(layout.part("value").type)
        self._stamps = Types.LIST(Types.LONG())
        self._spaced = layout.has("namespace")
        self._ttl = layout.has("ttl_stamp")
        self._last: bytes | None = None  # to_table: the last list of the previous block, and its length so far
        self._length = 0
        self._open: tuple[bytes, list[Any], list[int]] | None = None  # to_entries: the list that may continue

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
                raise ValueError("the numbers of stamps and elements of a list differ")
            split = list(map(decode_state_key, keys))
            chunks = np.repeat(np.arange(len(keys)), counts)  # the chunk of each element
            parts: dict[str, Columns] = {
                "key_group": _small(groups[chunks]),
                "index": _longs(self._indexes([key[:-_CHUNK_BYTES] for key in keys], counts)),
                "value": self.layout.part("value").type.to_columns(list(chain.from_iterable(lists))),
            }
            rows = pa.array(chunks)
            parts["key"] = [c.take(rows) for c in self._decoded("key", list(map(_key, split)))]
            if self._spaced:
                spaces = [key.namespace[:-_CHUNK_BYTES] for key in split]
                parts["namespace"] = [c.take(rows) for c in self._decoded("namespace", spaces)]
            if self._ttl:
                parts["ttl_stamp"] = _longs(list(chain.from_iterable(stamps)))
        return self.layout.table(parts)

    def _indexes(self, lists: list[bytes], counts: Ints) -> Ints:
        """The index of each element in its list, whose chunks are consecutive and may span blocks."""
        bases: list[int] = []
        for name, count in zip(lists, counts.tolist(), strict=True):
            if name != self._last:
                self._last, self._length = name, 0
            bases.append(self._length)
            self._length += count
        ends = np.cumsum(counts)
        rows: Ints = np.arange(int(ends[-1]) if len(ends) else 0)
        indexes: Ints = rows + np.repeat(np.array(bases, np.int64) - (ends - counts), counts)
        return indexes

    def to_entries(self, table: pa.Table, target: EntryTarget) -> Entries:
        with _explained(self.layout, "saved rows"):
            rows = Rows(self.layout, table)
            indexes, values = rows.numbers("index"), rows.objects("value")
            stamps = rows.numbers("ttl_stamp").tolist() if self._ttl else [target.stamp_ms] * len(values)
            starts = np.flatnonzero(indexes == 0)
            continued = int(starts[0]) if len(starts) else len(values)  # elements that continue the previous block's list
            self._check(indexes, starts, continued)
            if self._open is not None:
                self._open[1].extend(values[:continued])
                self._open[2].extend(stamps[:continued])
            if not len(starts):
                return [], []
            done_keys, done_values = self.finish(target)
            keys = self._store_keys(table.take(pa.array(starts)), target)
            bounds = [*starts.tolist(), len(values)]
            lists = [(key, values[a:b], stamps[a:b]) for key, (a, b) in zip(keys, pairwise(bounds), strict=True)]
            self._open = lists.pop()
            return done_keys + keys[:-1], done_values + [self._encoded(v, s, target) for _, v, s in lists]

    def _store_keys(self, firsts: pa.Table, target: EntryTarget) -> list[bytes]:
        """The store keys of lists; ``firsts`` has the first element of each list."""
        rows = Rows(self.layout, firsts)
        chunk = target.epoch.to_bytes(_CHUNK_BYTES, "big")  # sorts before the chunks of later epochs
        spaces = rows.encoded("namespace") if self._spaced else [b""] * rows.count
        return [
            state_key(group, target.sid, key, space + chunk)
            for group, key, space in zip(_groups(rows, target), rows.encoded("key"), spaces, strict=True)
        ]

    def _check(self, indexes: Ints, starts: Ints, continued: int) -> None:
        valid = np.ones(len(indexes), bool)
        valid[1:] = indexes[1:] == indexes[:-1] + 1
        valid[starts] = True
        if continued:
            valid[0] = self._open is not None and indexes[0] == len(self._open[1])
        if not valid.all():
            at = int(np.flatnonzero(~valid)[0])
            raise SavepointCorrupt(
                f"{self.layout.info.where}: the elements of a list are not in order: found index {indexes[at]} where the "
                "list's next element was expected"
            )

    def _encoded(self, values: list[Any], stamps: list[int], target: EntryTarget) -> bytes:
        raw = self._list.encode(values)
        if not target.ttl:
            return raw
        packed = self._stamps.encode(stamps)
        return pack_stamp(len(packed)) + packed + raw

    def finish(self, target: EntryTarget) -> Entries:
        if self._open is None:
            return [], []
        (key, values, stamps), self._open = self._open, None
        return [key], [self._encoded(values, stamps, target)]


class TimerCodec(Codec):
    """Timers of one time domain: entries without values."""

    def identity(self, groups: Ints, keys: list[bytes]) -> dict[str, Columns]:
        split = list(map(decode_timer_key, keys))
        domain = self.layout.info.kind.removeprefix("timers-")
        return {
            "key_group": _small(groups),
            "key": self._decoded("key", list(map(_key, split))),
            "domain": [pa.repeat(pa.scalar(domain, pa.string()), len(keys))],
            "namespace": self._decoded("namespace", list(map(_namespace, split))),
            "timestamp": _longs(list(map(_timestamp, split))),
        }

    def to_table(self, groups: Ints, keys: list[bytes], values: list[bytes]) -> pa.Table:
        with _explained(self.layout, "stored timers"):
            return self.layout.table(self.identity(groups, keys))

    def to_entries(self, table: pa.Table, target: EntryTarget) -> Entries:
        sid = target.sid
        with _explained(self.layout, "saved timers"):
            rows = Rows(self.layout, table)
            columns = _groups(rows, target), rows.numbers("timestamp").tolist(), rows.encoded("key")
            keys = [
                timer_key(group, sid, time, key, space)
                for group, time, key, space in zip(*columns, rows.encoded("namespace"), strict=True)
            ]
        return keys, [b""] * len(keys)


class OperatorCodec(Codec):
    """Operator lists. ``to_entries`` keeps subtask and index; ``redistribute`` then assigns elements to subtasks."""

    def to_table(self, groups: Ints, keys: list[bytes], values: list[bytes]) -> pa.Table:
        with _explained(self.layout, "stored elements"):
            split: list[OperatorKey] = list(map(decode_operator_key, keys))
            return self.layout.table(
                {
                    "subtask": _small(np.array([k.subtask for k in split], np.int64)),
                    "index": _longs([k.element for k in split]),
                    "value": self._decoded("value", values),
                }
            )

    def to_entries(self, table: pa.Table, target: EntryTarget) -> Entries:
        with _explained(self.layout, "saved elements"):
            rows = Rows(self.layout, table)
            subtasks, indexes = rows.numbers("subtask").tolist(), rows.numbers("index").tolist()
            return [operator_key(target.sid, *at) for at in zip(subtasks, indexes, strict=True)], rows.encoded("value")


class BroadcastCodec(Codec):
    """Broadcast state: one subtask's copy."""

    def to_table(self, groups: Ints, keys: list[bytes], values: list[bytes]) -> pa.Table:
        with _explained(self.layout, "stored entries"):
            pairs = list(map(unpack_entry, values))
            return self.layout.table(
                {
                    "index": _longs([decode_operator_key(key).element for key in keys]),
                    "map_key": self._decoded("map_key", [key for key, _ in pairs]),
                    "value": self._decoded("value", [value for _, value in pairs]),
                }
            )

    def to_entries(self, table: pa.Table, target: EntryTarget) -> Entries:
        with _explained(self.layout, "saved entries"):
            rows = Rows(self.layout, table)
            keys = [operator_key(target.sid, 0, index) for index in rows.numbers("index").tolist()]
            return keys, list(map(pack_entry, rows.encoded("map_key"), rows.encoded("value")))


def redistribute(kind: str, keys: list[bytes], values: list[bytes], subtask: int, saved: int, parallelism: int) -> Entries:
    """Selects a subtask's operator state from the entries of all subtasks in the savepoint. Pure.

    A list is split evenly and in order, or keeps its split if the parallelism equals ``saved``. Every subtask gets all
    elements of a union, and the single saved copy of broadcast state.
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
