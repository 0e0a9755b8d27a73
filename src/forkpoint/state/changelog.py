"""The changes of one epoch: what they do, and as bytes (see arrow_file.py for the format)."""

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
    """All changes as one, in key order; later ones over earlier ones. A delete stays a delete."""
    merged: dict[bytes, bytes | None] = {}
    for one in changes:
        merged.update(zip(one.keys, one.values, strict=True))
    return Changes(list(merged), list(merged.values())).in_order()


def slice_changes(changes: Changes, kg_start: int, kg_stop: int) -> Changes:
    """The changes of the key groups kg_start <= kg < kg_stop. The changes have to be in key order."""
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
    """What `Changes.in_order` does, in Arrow: in Python most of the time would go into following pointers."""
    return in_key_order(pa.array(changes.keys, pa.large_binary()), pa.array(changes.values, pa.large_binary()))


def in_key_order(keys: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Entries in key order, each key once; of a repeated key the last one counts."""
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
    """The changes in a file, in key order.

    `name` is what the file is called in the SavepointCorrupt that is raised if a byte of it is wrong or missing.
    """
    file = ArrowFile(data, CHANGES, name)
    keys: list[bytes] = []
    values: list[Any] = []
    for number in range(len(file.blocks)):
        some_keys, some_values = file.read(number)
        keys += some_keys
        values += some_values
    return Changes(keys, values)
