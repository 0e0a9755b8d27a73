"""External sorting: rows move to other slices of key groups, each of which is small enough for the memory of a task.

Each task writes its rows as runs, one for each slice that some of them belong to. Other tasks then read and sort all runs of a
slice. Rows are sorted by their places: store keys, or similar bytes that begin with the key group.
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
from forkpoint.savepoint.format.tasks import FileRef
from forkpoint.state import key_group_range
from forkpoint.storage.base import Storage

_PLACE = "__place"
ENTRIES_PER_PART = 500_000  # of an export, which reads them in steps; each part reads all files that it overlaps
ENTRIES_PER_SLICE = 100_000  # of a restore, which sorts them in memory
ENTRIES_PER_STEP = 250_000
MAX_SLICES = 64


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


@dataclass(frozen=True)
class KeyGroupRange:
    """Key groups ``kg_start`` <= kg < ``kg_stop``."""

    kg_start: int
    kg_stop: int

    def overlaps(self, kg_start: int, kg_stop: int) -> bool:
        return self.kg_start < kg_stop and kg_start < self.kg_stop


@dataclass(frozen=True)
class Slice(KeyGroupRange):
    """Key groups of one subtask. ``first``: the subtask's first slice."""

    number: int
    subtask: int
    first: bool


def wanted_slices(entries: int) -> int:
    """The number of slices for a restore of this many entries."""
    return _slices(entries, ENTRIES_PER_SLICE)


def _slices(entries: int, each: int) -> int:
    return max(1, min(MAX_SLICES, -(-entries // each)))


def cut_groups(max_parallelism: int, parallelism: int, entries: int) -> list[tuple[int, int]]:
    """Ranges of key groups for an export; none across two subtasks if there are at least as many slices as subtasks."""
    wanted = _slices(entries, ENTRIES_PER_PART)
    if wanted >= parallelism:
        wanted = -(-wanted // parallelism) * parallelism
    ranges = (key_group_range(i, wanted, max_parallelism) for i in range(wanted))
    return [(start, stop) for start, stop in ranges if start < stop]


def cut_subtasks(max_parallelism: int, parallelism: int, entries: int) -> list[Slice]:
    """Slices for a restore: at least one for every subtask, none across two."""
    each = -(-wanted_slices(entries) // parallelism)
    slices: list[Slice] = []
    for subtask in range(parallelism):
        numbers = range(subtask * each, (subtask + 1) * each)
        bounds = [key_group_range(number, parallelism * each, max_parallelism) for number in numbers]
        ranges = [(start, stop) for start, stop in bounds if start < stop] or bounds[:1]
        for start, stop in ranges:
            slices.append(Slice(start, stop, len(slices), subtask, first=(start, stop) == ranges[0]))
    return slices


def steps(kg_start: int, kg_stop: int, entries: int) -> list[tuple[int, int]]:
    """A slice in ranges of about ENTRIES_PER_STEP entries each, as far as key groups allow."""
    groups = kg_stop - kg_start
    count = max(1, min(groups, -(-entries // ENTRIES_PER_STEP)))
    bounds = [kg_start + i * groups // count for i in range(count + 1)]
    return list(pairwise(bounds))
