"""Rows of a state's files: their key groups, their order, and lists numbered anew. Pure.

All files of a savepoint have their rows in the order of the store: by key group, encoded key and namespace, timers by
time before the key. ``store_order`` is that order as bytes, so that sorting and joining need nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.errors import EditRefused
from forkpoint.savepoint.evolution import Rows
from forkpoint.savepoint.layout import Layout
from forkpoint.savepoint.runs import in_place_order
from forkpoint.state import hash_column, key_group, operator_key, state_key, timer_key

BLOCK_ROWS = 65_536
_INDEX_BYTES = 8  # how `store_order` of a list's element ends


def is_listed(layout: Layout) -> bool:
    """Whether several rows are one list."""
    return layout.has("index") and layout.info.kind != "broadcast"


def with_key_groups(layout: Layout, table: pa.Table, max_parallelism: int) -> pa.Table:
    """The table with the key groups that its keys have at this max parallelism."""
    rows, of = Rows(layout, table), layout.part("key").type
    keys = of.to_arrow(rows.objects("key")) if of.fields else rows.parts["key"][0]
    groups = key_group(hash_column(keys, of), max_parallelism).astype(np.int32)
    return table.set_column(0, layout.schema.field(0), pa.array(groups))


def store_order(layout: Layout, table: pa.Table) -> list[bytes]:
    """For each row its place among all rows of the state; equal for two rows that cannot both be there."""
    rows = Rows(layout, table)

    def numbers(role: str) -> list[int]:
        return rows.parts[role][0].to_pylist()  # type: ignore[no-any-return]

    if layout.info.kind == "broadcast":
        return [operator_key(0, 0, 0) + key for key in rows.encoded("map_key")]
    if layout.info.is_operator_state:
        return [
            operator_key(0, subtask, index) for subtask, index in zip(numbers("subtask"), numbers("index"), strict=True)
        ]
    groups, keys, spaces = numbers("key_group"), rows.encoded("key"), _spaces(layout, rows)
    if layout.info.is_timers:
        times = numbers("timestamp")
        return [timer_key(g, 0, t, k, s) for g, t, k, s in zip(groups, times, keys, spaces, strict=True)]
    names = [state_key(g, 0, k, s) for g, k, s in zip(groups, keys, spaces, strict=True)]
    if is_listed(layout):
        return [name + index.to_bytes(_INDEX_BYTES, "big") for name, index in zip(names, numbers("index"), strict=True)]
    return names


def _spaces(layout: Layout, rows: Rows) -> list[bytes]:
    role = "map_key" if layout.has("map_key") else "namespace"
    if not layout.has(role):  # type: ignore[arg-type]
        return [b""] * rows.count
    if layout.part(role).raw:  # type: ignore[arg-type]
        return rows.parts[role][0].to_pylist()  # type: ignore[no-any-return]
    return rows.encoded(role)


def list_name(order: bytes) -> bytes:
    """What the elements of one list have in common in their ``store_order``."""
    return order[:-_INDEX_BYTES]


def in_order(layout: Layout, table: pa.Table, order: Sequence[bytes]) -> pa.Table:
    """The table sorted, a list's elements numbered from 0. ``order``: the rows' ``store_order``.

    Broadcast state keeps the order in which its keys came. Two timers of one key, time and namespace are one. Any other
    two rows in one place: EditRefused naming the key.
    """
    if not table.num_rows:
        return table
    if layout.info.kind == "broadcast":  # in the order in which its keys came
        return _indexed(layout, table, _as_they_came(layout, table, order))
    return each_once(layout, *in_place_order(table, pa.array(order, pa.large_binary())))


def each_once(layout: Layout, table: pa.Table, places: pa.Array) -> pa.Table:
    """Of rows that are in order: as ``in_order`` leaves them. ``places``: their ``store_order``."""
    double = np.asarray(pc.equal(places[1:], places[:-1]).to_numpy(zero_copy_only=False), bool)
    if double.any():
        if not layout.info.is_timers:
            raise _twice(layout, table.slice(int(np.flatnonzero(double)[0]), 1))
        first = pa.array(np.concatenate([[True], ~double]))
        table, places = table.filter(first), places.filter(first)
    return _numbered(layout, table, places.to_pylist()) if is_listed(layout) else table


def _as_they_came(layout: Layout, table: pa.Table, order: Sequence[bytes]) -> Any:
    seen: set[bytes] = set()
    for row, place in enumerate(order):
        if place in seen:
            raise _twice(layout, table.slice(row, 1))
        seen.add(place)
    return np.arange(len(order))


def _numbered(layout: Layout, table: pa.Table, order: Sequence[bytes]) -> pa.Table:
    names = list(map(list_name, order))
    starts = np.array([i for i, name in enumerate(names) if i == 0 or name != names[i - 1]], np.int64)
    lengths = np.diff(np.append(starts, len(names)))
    return _indexed(layout, table, np.arange(len(names)) - np.repeat(starts, lengths))


def _indexed(layout: Layout, table: pa.Table, indexes: Any) -> pa.Table:
    at = layout.schema.get_field_index(layout.part("index").names[0])
    return table.set_column(at, layout.schema.field(at), pa.array(indexes, pa.int64()))


def _twice(layout: Layout, row: pa.Table) -> EditRefused:
    shown = {
        part.role: part.type.from_columns(Rows(layout, row).parts[part.role])[0]
        for part in layout.parts
        if not part.raw
    }
    what = ", ".join(
        f"{role} {shown[role]!r}" for role in ("key", "map_key", "namespace", "subtask", "index") if role in shown
    )
    return EditRefused(
        f"{layout.info.where}: there would be two entries for {what}, and one would be lost; keep the keys apart, or "
        "aggregate the data first"
    )


def blocks(table: pa.Table) -> Iterator[pa.Table]:
    """A table in pieces that make good row groups."""
    for start in range(0, table.num_rows, BLOCK_ROWS):
        yield table.slice(start, BLOCK_ROWS)


def objects_of(layout: Layout, table: pa.Table) -> dict[str, list[Any]]:
    """The Python objects of each part of the rows, by role."""
    rows = Rows(layout, table)
    return {
        part.role: rows.parts[part.role][0].to_pylist() if part.raw else rows.objects(part.role)
        for part in layout.parts
    }
