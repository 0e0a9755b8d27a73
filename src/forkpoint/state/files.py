"""Changelogs (the changes of one epoch) and snapshots (the whole state of a subtask), readable by ranges of key groups.

See arrow_file.py for the format.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import lt
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.state.arrow_file import CHANGES, SNAPSHOT, ArrowFile, ArrowFileWriter
from forkpoint.state.keys import range_for
from forkpoint.state.store import Changes

_BATCH_ROWS = 16384
_BATCH_BYTES = 8 << 20  # of values
_STEP = 64  # entries read at once; a batch exceeds a limit by less than a step


def write_changes(changes: Changes) -> bytes:
    """The changes as a changelog, in key order, each key once."""
    writer = ArrowFileWriter(CHANGES)
    # `Changes.in_order` in Arrow, which does not have to follow pointers.
    writer.write(*in_key_order(pa.array(changes.keys, pa.large_binary()), pa.array(changes.values, pa.large_binary())))
    return writer.finish()


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
    """The changes in a changelog, in key order. Raises SavepointCorrupt, which names it as `name`, if it is damaged."""
    file = ArrowFile(data, CHANGES, name)
    keys: list[bytes] = []
    values: list[Any] = []
    for number in range(len(file.blocks)):
        some_keys, some_values = file.read(number)
        keys += some_keys
        values += some_values
    return Changes(keys, values)


def write_snapshot(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A store's entries, in key order, as a snapshot. Raises ValueError if they are not in order."""
    writer = ArrowFileWriter(SNAPSHOT)
    before = b""
    for keys, values in _batches(entries):
        if not (before < keys[0] and all(map(lt, keys, keys[1:]))):
            raise ValueError(f"the entries of a snapshot are not in key order, near {keys[0].hex()}")
        before = keys[-1]
        writer.write(pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary()))
    return writer.finish()


def _batches(entries: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[list[bytes], list[bytes]]]:
    source = iter(entries)
    keys: list[bytes] = []
    values: list[bytes] = []
    size = 0
    while step := list(islice(source, _STEP)):
        some_keys, some_values = zip(*step, strict=True)
        keys += some_keys
        values += some_values
        size += sum(map(len, some_values))
        if len(keys) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield keys, values
            keys, values, size = [], [], 0
    if keys:
        yield keys, values


def read_snapshot(data: bytes, kg_start: int, kg_stop: int, name: str = "snapshot") -> Iterator[Changes]:
    """The entries of the key groups kg_start <= kg < kg_stop, in key order, in pieces that a store can load.

    Reads only the batches with these key groups, and checks each before its piece is returned. Raises SavepointCorrupt, which
    names the file as `name`, if one is damaged.
    """
    file = ArrowFile(data, SNAPSHOT, name)
    return (
        slice_changes(Changes(*file.read(number)), kg_start, kg_stop)
        for number, block in enumerate(file.blocks)
        if block.first_kg < kg_stop and block.last_kg >= kg_start
    )


def slice_changes(changes: Changes, kg_start: int, kg_stop: int) -> Changes:
    """The changes of the key groups kg_start <= kg < kg_stop, from changes in key order."""
    start, stop = range_for(kg_start, kg_stop)
    low, high = bisect_left(changes.keys, start), bisect_left(changes.keys, stop)
    return Changes(changes.keys[low:high], changes.values[low:high])
