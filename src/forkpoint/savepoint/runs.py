"""External sorting: rows move to other slices of key groups.

Each task writes its rows as runs, one for each slice that some of them belong to. Other tasks then read and sort all runs
of a slice, which fit in memory. Rows are sorted by their places: store keys, or similar bytes that begin with the key
group.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forkpoint.checkpoint.format import checksum
from forkpoint.savepoint.tasks import FileRef
from forkpoint.storage.base import Storage

_PLACE = "__place"


@dataclass(frozen=True)
class Run:
    """Rows of one slice, with their places."""

    slice: int
    file: FileRef


def write_runs(
    target: Storage, table: pa.Table, places: Sequence[bytes], cuts: Sequence[int], path: Callable[[int], str]
) -> list[Run]:
    """Write rows as runs; slice i begins at key group ``cuts[i]``, and its run goes to ``path(i)``."""
    column = pa.array(places, pa.large_binary())
    slices = np.searchsorted(np.asarray(cuts), key_groups(column), side="right") - 1
    table = table.append_column(_PLACE, column)
    order = np.argsort(slices, kind="stable")
    bounds = np.searchsorted(slices[order], np.arange(len(cuts) + 1)).tolist()
    runs = []
    for number, (low, high) in enumerate(pairwise(bounds)):
        if low < high:
            sink = io.BytesIO()
            rows = table.take(pa.array(order[low:high]))
            pq.write_table(rows, sink, compression="lz4", use_dictionary=False, write_statistics=False)
            data = sink.getvalue()
            target.put(path(number), data)
            runs.append(Run(number, FileRef(path(number), path(number), None, len(data), checksum(data))))
    return runs


def read_runs(target: Storage, runs: Iterable[FileRef]) -> tuple[pa.Table, pa.Array]:
    """The rows of runs, in order, and their places."""
    table = pa.concat_tables([pq.read_table(pa.BufferReader(run.read(target))) for run in runs])
    return in_place_order(table.drop_columns([_PLACE]), table.column(_PLACE).combine_chunks())


def in_place_order(table: pa.Table, places: pa.Array) -> tuple[pa.Table, pa.Array]:
    """Rows sorted by their places; the sort is stable."""
    order = pc.array_sort_indices(places)
    return table.take(order), places.take(order)


def key_groups(places: pa.Array) -> npt.NDArray[np.int64]:
    """The key groups of store keys, an array of type large_binary."""
    if not len(places):
        return np.empty(0, np.int64)
    _, offsets, data = places.buffers()
    starts = np.frombuffer(offsets, np.int64, len(places), places.offset * 8)
    raw: Any = np.frombuffer(data, np.uint8)
    found: npt.NDArray[np.int64] = raw[starts].astype(np.int64) << 8 | raw[starts + 1]
    return found
