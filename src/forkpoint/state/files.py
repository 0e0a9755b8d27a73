"""Changelogs (the changes of one epoch) and snapshots (all state of a subtask), readable by ranges of key groups.

See arrow_file.py for the format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from operator import lt

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.state.amounts import Count
from forkpoint.state.arrow_file import CHANGES, SNAPSHOT, ArrowFile, ArrowFileWriter, as_list
from forkpoint.state.store import Changes

_BATCH_ROWS = 16384
_BATCH_BYTES = 8 << 20  # of values
Columns = tuple[pa.Array, pa.Array]
"""Keys and values, as large_binary; a value is null for a delete."""

_HEAD = np.dtype([("kg", ">u2"), ("sid", ">u4"), ("length", ">u4")])  # of a store key of state
_STEP = 64  # entries read at once; a batch exceeds a limit by less than one step


def write_changes(changes: Changes) -> bytes:
    """The changes as a changelog with distinct keys in order."""
    return write_change_columns(change_columns(changes))


def change_columns(changes: Changes) -> Columns:
    """The changes in Arrow, with distinct keys in order: a faster `Changes.in_order`."""
    return in_key_order(pa.array(changes.keys, pa.large_binary()), pa.array(changes.values, pa.large_binary()))


def write_change_columns(columns: Columns) -> bytes:
    writer = ArrowFileWriter(CHANGES)
    writer.write(*columns)
    return writer.finish()


def in_key_order(keys: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Distinct keys in order, each with its last value."""
    if _ascending(keys):
        return keys, values
    order = pc.sort_indices(keys)  # stable: the last write of a key comes last
    keys, values = keys.take(order), values.take(order)
    if not _ascending(keys):
        is_last = pa.concat_arrays([pc.not_equal(keys[:-1], keys[1:]), pa.array([True])])
        keys, values = keys.filter(is_last), values.filter(is_last)
    return keys, values


def _ascending(keys: pa.Array) -> bool:
    return len(keys) < 2 or bool(pc.all(pc.less(keys[:-1], keys[1:])).as_py())


def state_key_column(kgs: npt.NDArray[np.int64], sid: int, keys: pa.Array, namespaces: pa.Array | None = None) -> pa.Array:
    """`state_key` of encoded keys in a binary array, as large_binary."""
    heads = np.empty(len(keys), _HEAD)
    heads["kg"], heads["sid"], heads["length"] = kgs, sid, pc.binary_length(keys).to_numpy()
    column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(_HEAD.itemsize), len(keys), [None, pa.py_buffer(heads)])
    parts = [each.cast(pa.large_binary()) for each in (column.cast(pa.binary()), keys, namespaces) if each is not None]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def read_changes(data: bytes, name: str = "changelog") -> Changes:
    """The changes of a changelog, in key order. Raises SavepointCorrupt with `name` if it is damaged."""
    return as_changes(*read_change_columns(data, name))


def read_change_columns(data: bytes, name: str) -> Columns:
    """`read_changes` in Arrow."""
    file = ArrowFile(data, CHANGES, name)
    none = pa.array([], pa.large_binary())
    columns = [file.read_columns(number) for number in range(len(file.blocks))]
    return pa.concat_arrays([none, *(k for k, _ in columns)]), pa.concat_arrays([none, *(v for _, v in columns)])


def as_changes(keys: pa.Array, values: pa.Array) -> Changes:
    return Changes(as_list(keys), as_list(values))


def first_kgs(keys: pa.Array) -> npt.NDArray[np.int64]:
    """The key group of each store key."""
    _, offsets, data = keys.buffers()
    starts = np.frombuffer(offsets, np.int64)[keys.offset : keys.offset + len(keys)]
    if not len(keys):
        return starts
    content = np.frombuffer(data, np.uint8)
    return content[starts].astype(np.int64) << 8 | content[starts + 1]


def write_snapshot(entries: Iterable[tuple[bytes, bytes]], count: Count | None = None) -> bytes:
    """A store's entries as a snapshot; ``count`` counts them. Raises ValueError unless they are in key order."""
    writer = ArrowFileWriter(SNAPSHOT)
    before = b""
    for keys, values in _batches(entries):
        if not (before < keys[0] and all(map(lt, keys, keys[1:]))):
            raise ValueError(f"the entries of a snapshot are not in key order, near {keys[0].hex()}")
        before = keys[-1]
        columns = pa.array(keys, pa.large_binary()), pa.array(values, pa.large_binary())
        if count is not None:
            count.add(*columns)
        writer.write(*columns)
    return writer.finish()


def write_snapshot_columns(columns: Columns) -> bytes:
    """`write_snapshot` in Arrow."""
    keys, values = columns
    if not _ascending(keys):
        raise ValueError("the entries of a snapshot are not in key order")
    writer = ArrowFileWriter(SNAPSHOT)
    writer.write(keys, values)
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
    """The entries of the key groups kg_start <= kg < kg_stop, in key order, in chunks that a store can load.

    Reads only the batches with these key groups, and checks a batch before it returns its chunk. Raises SavepointCorrupt with
    `name` if a batch is damaged.
    """
    return (as_changes(*columns) for columns in read_snapshot_columns(data, kg_start, kg_stop, name))


def read_snapshot_columns(data: bytes, kg_start: int, kg_stop: int, name: str) -> Iterator[Columns]:
    """`read_snapshot` in Arrow."""
    file = ArrowFile(data, SNAPSHOT, name)
    return (
        _sliced(*file.read_columns(number), kg_start, kg_stop)
        for number, block in enumerate(file.blocks)
        if block.first_kg < kg_stop and block.last_kg >= kg_start
    )


def _sliced(keys: pa.Array, values: pa.Array, kg_start: int, kg_stop: int) -> Columns:
    """The entries of these key groups, from entries in key order."""
    low, high = np.searchsorted(first_kgs(keys), [kg_start, max(kg_start, kg_stop)])
    return keys.slice(low, high - low), values.slice(low, high - low)
