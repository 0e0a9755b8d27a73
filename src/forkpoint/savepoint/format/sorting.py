"""External sort: redistributes rows to slices of key groups, each of which fits into the memory of a task.

A first round of tasks splits rows into runs, one per slice. A second round reads and sorts all runs of a slice. The sort keys
are store keys, or similar bytes that begin with the key group.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from forkpoint.checkpoint.format import checksum
from forkpoint.savepoint.format.tasks import FileRef
from forkpoint.state import first_kgs, key_group_range
from forkpoint.storage.base import Storage

_SORT_KEY = "__sort_key"
ENTRIES_PER_PART = 500_000  # in an export, which reads in steps; each part reads all files that it overlaps
ENTRIES_PER_SLICE = 100_000  # in a restore, which sorts in memory
ENTRIES_PER_STEP = 250_000
MAX_SLICES = 64


@dataclass(frozen=True)
class Run:
    """Rows of one slice, with their sort keys."""

    slice: int
    file: FileRef


def write_runs(
    target: Storage, table: pa.Table, sort_keys: Sequence[bytes] | pa.Array, cuts: Sequence[int], path: Callable[[int], str]
) -> list[Run]:
    """Write rows as runs; slice i begins at key group ``cuts[i]``, and its run goes to ``path(i)``."""
    column = sort_keys if isinstance(sort_keys, pa.Array) else pa.array(sort_keys, pa.large_binary())
    slices = np.searchsorted(np.asarray(cuts), first_kgs(column), side="right") - 1
    table = table.append_column(_SORT_KEY, column)
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
    """The sorted rows of runs, and their sort keys."""
    table = pa.concat_tables([pq.read_table(pa.BufferReader(run.read(target))) for run in runs])
    return sorted_by(table.drop_columns([_SORT_KEY]), table.column(_SORT_KEY).combine_chunks())


def sorted_by(table: pa.Table, sort_keys: pa.Array) -> tuple[pa.Table, pa.Array]:
    """Sorts rows and their keys; the sort is stable."""
    order = pc.array_sort_indices(sort_keys)
    return table.take(order), sort_keys.take(order)


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


def slice_count(entries: int, per_slice: int = ENTRIES_PER_SLICE) -> int:
    """The number of slices for this many entries; by default for a restore."""
    return max(1, min(MAX_SLICES, -(-entries // per_slice)))


def cut_groups(max_parallelism: int, parallelism: int, entries: int) -> list[tuple[int, int]]:
    """Ranges of key groups for an export; none spans two subtasks if there are at least as many slices as subtasks."""
    count = slice_count(entries, ENTRIES_PER_PART)
    if count >= parallelism:
        count = -(-count // parallelism) * parallelism
    ranges = (key_group_range(i, count, max_parallelism) for i in range(count))
    return [(start, stop) for start, stop in ranges if start < stop]


def cut_subtasks(max_parallelism: int, parallelism: int, entries: int) -> list[Slice]:
    """Slices for a restore: at least one per subtask; none spans two subtasks."""
    per_subtask = -(-slice_count(entries) // parallelism)
    slices: list[Slice] = []
    for subtask in range(parallelism):
        numbers = range(subtask * per_subtask, (subtask + 1) * per_subtask)
        bounds = [key_group_range(number, parallelism * per_subtask, max_parallelism) for number in numbers]
        ranges = [(start, stop) for start, stop in bounds if start < stop] or bounds[:1]
        for start, stop in ranges:
            slices.append(Slice(start, stop, len(slices), subtask, first=(start, stop) == ranges[0]))
    return slices


def steps(kg_start: int, kg_stop: int, entries: int) -> list[tuple[int, int]]:
    """Splits a slice into ranges of about ENTRIES_PER_STEP entries, as far as key groups allow."""
    groups = kg_stop - kg_start
    count = max(1, min(groups, -(-entries // ENTRIES_PER_STEP)))
    return list(pairwise(kg_start + i * groups // count for i in range(count + 1)))
