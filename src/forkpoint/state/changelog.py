"""The changes of one epoch: merged, sliced, and as a file (see arrow_file.py for the format)."""

from __future__ import annotations

import io
from bisect import bisect_left
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.state.arrow_file import CHANGES, ArrowFile, ArrowFileWriter
from forkpoint.state.keys import range_for
from forkpoint.state.store import Changes


def merge(*changes: Changes) -> Changes:
    """All changes as one, in key order; the last change of a key wins. A delete stays a delete."""
    merged: dict[bytes, bytes | None] = {}
    for one in changes:
        merged.update(zip(one.keys, one.values, strict=True))
    return Changes(list(merged), list(merged.values())).in_order()


def slice_changes(changes: Changes, kg_start: int, kg_stop: int) -> Changes:
    """The changes of the key groups kg_start <= kg < kg_stop, from changes in key order."""
    start, stop = range_for(kg_start, kg_stop)
    low, high = bisect_left(changes.keys, start), bisect_left(changes.keys, stop)
    return Changes(changes.keys[low:high], changes.values[low:high])


def write_changes(changes: Changes) -> bytes:
    """The changes as a file, in key order, each key once."""
    sink = io.BytesIO()
    writer = ArrowFileWriter(sink, CHANGES)
    writer.write(*_columns(changes))
    writer.finish()
    return sink.getvalue()


def _columns(changes: Changes) -> tuple[pa.Array, pa.Array]:
    """`Changes.in_order` in Arrow, which does not have to follow pointers."""
    return in_key_order(pa.array(changes.keys, pa.large_binary()), pa.array(changes.values, pa.large_binary()))


def in_key_order(keys: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Entries in key order, each key once, with its last value."""
    if _ascending(keys):
        return keys, values
    order = pc.sort_indices(keys)  # stable: of equal keys the last written comes last
    keys, values = keys.take(order), values.take(order)
    if not _ascending(keys):
        is_last = pa.concat_arrays([pc.not_equal(keys[:-1], keys[1:]), pa.array([True])])
        keys, values = keys.filter(is_last), values.filter(is_last)
    return keys, values


def _ascending(keys: pa.Array) -> bool:
    return len(keys) < 2 or bool(pc.all(pc.less(keys[:-1], keys[1:])).as_py())


def read_changes(data: bytes, name: str = "changelog") -> Changes:
    """The changes in a file, in key order. Raises SavepointCorrupt, which names the file as `name`, if it is damaged."""
    file = ArrowFile(data, CHANGES, name)
    keys: list[bytes] = []
    values: list[Any] = []
    for number in range(len(file.blocks)):
        some_keys, some_values = file.read(number)
        keys += some_keys
        values += some_values
    return Changes(keys, values)
