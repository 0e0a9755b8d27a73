"""Plans a savepoint that refers to files of an earlier one: which files it keeps, and what is written. Pure.

A state's files divide its key groups into ranges. Each range has a file with all entries and, from later savepoints, a few files
of changes. A range whose changes have become many or large is written as a whole again; so is a state that is new, has another
description than in the earlier savepoint, or consists of lists or of subtasks' state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from forkpoint.checkpoint.manifest import Manifest
from forkpoint.checkpoint.savepoint_manifest import ChangesFile, Savepoint, SavepointFile
from forkpoint.checkpoint.states import StateInfo
from forkpoint.savepoint.export.chain import StateFiles
from forkpoint.savepoint.export.changes_task import WrittenChanges
from forkpoint.savepoint.format.sorting import ENTRIES_PER_PART, KeyGroupRange

LEAST_BYTES = 4 << 20
"""The size of keyed state below which a savepoint is written as a whole, which takes a moment."""
LARGEST_SHARE = 0.5
"""Of a range's or all entries that have changed, beyond which they are written as a whole."""
MOST_CHANGES = 10
"""Files of changes of a range, which every reader merges."""

Address = tuple[str, str]
"""The uid and name of a state."""


@dataclass(frozen=True)
class Range(KeyGroupRange):
    """Key groups of a state, and their file in the earlier savepoint, if they have one."""

    earlier: SavepointFile | None

    @property
    def kept(self) -> list[SavepointFile | ChangesFile]:
        """The files that the new savepoint refers to."""
        return [] if self.earlier is None or self.is_full else self.earlier.layers

    @property
    def is_full(self) -> bool:
        """Whether its changes have become so many that it is written as a whole."""
        if self.earlier is None:
            return False
        written = sum(each.entries for each in self.earlier.changes)
        return len(self.earlier.changes) >= MOST_CHANGES or written > LARGEST_SHARE * self.earlier.entries


@dataclass(frozen=True)
class Increment:
    """``ranges``: of the states of which the changes are written; all other states are written as a whole. ``changes``: since the
    earlier savepoint."""

    savepoint: Savepoint
    changes: StateFiles
    ranges: Mapping[Address, tuple[Range, ...]]

    def slices(self, parallelism: int) -> list[tuple[int, int]]:
        """Ranges of key groups for tasks, which do not cut a range of a state."""
        starts = [{each.kg_start for each in ranges} for ranges in self.ranges.values()]
        common = sorted(set[int].intersection(*starts))
        last = max(each.kg_stop for ranges in self.ranges.values() for each in ranges)
        count = max(parallelism, -(-self.changes.entries // ENTRIES_PER_PART))
        wanted = [number * last // count for number in range(count)]
        cuts = {max((start for start in common if start <= want), default=0) for want in wanted}
        return list(pairwise([*sorted(cuts), last]))

    def referred(self, directory: str) -> dict[str, list[str]]:
        """The files that the new savepoint refers to, by their directory beside it. ``directory``: of the earlier savepoint."""
        name = directory.rpartition("/")[2]
        found: dict[str, list[str]] = {}
        for ranges in self.ranges.values():
            for layer in (layer for each in ranges for layer in each.kept):
                found.setdefault(layer.savepoint or name, []).append(layer.path)
        return found

    def whole(self) -> dict[tuple[int, int], list[Address]]:
        """The ranges of key groups that are written as a whole, with the states."""
        found: dict[tuple[int, int], list[Address]] = {}
        for address, ranges in self.ranges.items():
            for each in ranges:
                if each.is_full:
                    found.setdefault((each.kg_start, each.kg_stop), []).append(address)
        return found


def increment(earlier: Savepoint, changes: StateFiles, manifest: Manifest) -> Increment | None:
    """The savepoint of ``manifest`` on top of an earlier one of the same job; None if it is to be written as a whole, because it
    is small, or most of it has changed."""
    if earlier.left_out or earlier.max_parallelism != manifest.max_parallelism:
        return None
    saved = {(state.info.uid, state.info.name): state for each in earlier.operators for state in each.states}
    kept = {
        (info.uid, info.name): state
        for info in manifest.states
        if _is_kept(info) and (state := saved.get((info.uid, info.name))) is not None and _same(info, state.info)
    }
    entries, size = (sum(getattr(state, of) for state in kept.values()) for of in ("entries", "bytes"))
    if not kept or size < LEAST_BYTES or changes.entries > LARGEST_SHARE * entries:
        return None
    ranges = {address: tuple(_ranges(state.files, manifest.max_parallelism)) for address, state in kept.items()}
    return Increment(earlier, changes, ranges)


def with_changes(earlier: SavepointFile, directory: str, written: WrittenChanges) -> SavepointFile:
    """A file of the earlier savepoint in ``directory`` with newer changes."""
    name = directory.rpartition("/")[2]
    known = [each.replace(savepoint=each.savepoint or name) for each in earlier.changes]
    changes = known if written.part is None else [*known, written.part.changes()]
    merged = written.entries if changes else None
    return earlier.replace(savepoint=earlier.savepoint or name, changes=changes, merged=merged)


def _is_kept(info: StateInfo) -> bool:
    return not info.is_operator_state and info.kind != "list"


def _same(one: StateInfo, other: StateInfo) -> bool:
    return msgspec.json.encode(one.content()) == msgspec.json.encode(other.content())


def _ranges(files: list[SavepointFile], max_parallelism: int) -> Iterator[Range]:
    """The ranges of a state's files, and those between them, which have no entries."""
    reached = 0
    for file in sorted((file for file in files if file.kg_start < file.kg_stop), key=lambda file: file.kg_start):
        if reached < file.kg_start:
            yield Range(reached, file.kg_start, None)
        yield Range(file.kg_start, file.kg_stop, file)
        reached = file.kg_stop
    if reached < max_parallelism:
        yield Range(reached, max_parallelism, None)
