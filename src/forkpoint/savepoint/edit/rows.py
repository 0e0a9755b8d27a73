"""Rows of a state's files: key groups, order, and list indexes. Pure.

All files of a savepoint have their rows in store order (see ``store_order``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.errors import EditRefused
from forkpoint.savepoint.format.layout import Layout
from forkpoint.savepoint.format.rows import INDEX_BYTES, Rows, is_listed, store_order
from forkpoint.savepoint.format.sorting import sorted_by


def grouped(layout: Layout, table: pa.Table, max_parallelism: int) -> tuple[pa.Table, list[bytes]]:
    """The table with its key groups at this max parallelism, and its ``store_order``."""
    rows = Rows(layout, table)
    groups = pa.array(rows.key_groups(max_parallelism).astype(np.int32))
    rows.parts["key_group"] = [groups]
    return table.set_column(0, layout.schema.field(0), groups), store_order(rows)


def list_name(order: bytes) -> bytes:
    """The part of ``store_order`` that the elements of one list share."""
    return order[:-INDEX_BYTES]


def in_order(layout: Layout, table: pa.Table) -> pa.Table:
    """The sorted table, with each list's elements numbered from 0.

    Broadcast state keeps the order of its rows. Merges duplicate timers; other duplicates raise EditRefused naming the key.
    """
    if not table.num_rows:
        return table
    order = store_order(Rows(layout, table))
    if layout.info.kind != "broadcast":
        return distinct(layout, *sorted_by(table, pa.array(order, pa.large_binary())))
    seen: set[bytes] = set()
    for row, key in enumerate(order):
        if key in seen:
            raise _duplicate(layout, table.slice(row, 1))
        seen.add(key)
    return _indexed(layout, table, np.arange(len(order)))


def distinct(layout: Layout, table: pa.Table, order: pa.Array) -> pa.Table:
    """``in_order`` for sorted rows. ``order``: their ``store_order``."""
    repeats = np.asarray(pc.equal(order[1:], order[:-1]).to_numpy(zero_copy_only=False), bool)
    if repeats.any():
        if not layout.info.is_timers:
            raise _duplicate(layout, table.slice(int(np.flatnonzero(repeats)[0]), 1))
        first = pa.array(np.concatenate([[True], ~repeats]))
        table, order = table.filter(first), order.filter(first)
    if not is_listed(layout):
        return table
    names = list(map(list_name, order.to_pylist()))
    starts = np.array([i for i, name in enumerate(names) if i == 0 or name != names[i - 1]], np.int64)
    lengths = np.diff(np.append(starts, len(names)))
    return _indexed(layout, table, np.arange(len(names)) - np.repeat(starts, lengths))


def _indexed(layout: Layout, table: pa.Table, indexes: Any) -> pa.Table:
    at = layout.schema.get_field_index(layout.part("index").names[0])
    return table.set_column(at, layout.schema.field(at), pa.array(indexes, pa.int64()))


def _duplicate(layout: Layout, row: pa.Table) -> EditRefused:
    shown = {part.role: Rows(layout, row).objects(part.role)[0] for part in layout.parts if not part.raw}
    what = ", ".join(f"{role} {shown[role]!r}" for role in ("key", "map_key", "namespace", "subtask", "index") if role in shown)
    return EditRefused(
        f"{layout.info.where}: there would be two entries for {what}, and one would be lost; keep the keys distinct, or "
        "aggregate the data first"
    )


def objects_of(layout: Layout, table: pa.Table) -> dict[str, list[Any]]:
    """The Python objects of all parts, by role."""
    rows = Rows(layout, table)
    return {part.role: rows.objects(part.role) for part in layout.parts}
