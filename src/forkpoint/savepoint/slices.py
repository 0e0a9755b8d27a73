"""Slices of key groups, small enough that each fits into the memory of a task. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from forkpoint.state import key_group_range

ENTRIES_PER_PART = 500_000  # of an export, which reads them in steps; each part reads all files that it overlaps
ENTRIES_PER_SLICE = 100_000  # of a restore, which sorts them in memory
ENTRIES_PER_STEP = 250_000
MAX_SLICES = 64


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
