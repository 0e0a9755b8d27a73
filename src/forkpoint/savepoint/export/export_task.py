"""The tasks of an export, which convert snapshots and changes to Parquet files."""

from __future__ import annotations

from bisect import bisect_left
from copy import copy
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from forkpoint.checkpoint.savepoint_manifest import LeftOutState
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import SavepointCorrupt
from forkpoint.savepoint.export.chain import StateFiles
from forkpoint.savepoint.export.chain_reader import ChainReader, FilesOnStorage, blocks, one_copy
from forkpoint.savepoint.format.entries import Codec, Entries, codec_of
from forkpoint.savepoint.format.parquet import PartWriter, WrittenPart, put_part
from forkpoint.savepoint.format.sorting import steps
from forkpoint.savepoint.format.tasks import TaskOf, task
from forkpoint.savepoint.format.unreadable import LeftOut, readable
from forkpoint.state import OPERATOR_KG, sid_of, sid_range
from forkpoint.storage.base import open_storage


@dataclass(frozen=True)
class StateFile:
    """A state, and the path of its file for this slice."""

    info: StateInfo
    path: str


@dataclass(frozen=True)
class ExportSlice:
    """Key groups ``kg_start`` <= kg < ``kg_stop`` of all keyed states; if the bounds are equal, all operator state. ``chosen``:
    only of these states."""

    storage_url: str
    target_url: str
    kg_start: int
    kg_stop: int
    files: StateFiles
    states: tuple[StateFile, ...]
    entries: int
    chosen: bool = False


@dataclass(frozen=True)
class ExportedSlice:
    """The file of each state in the slice, None without rows; and the unreadable entries."""

    parts: list[WrittenPart | None]
    left_out: list[LeftOutState]


@task(ExportSlice)
def _export_slice(plan: ExportSlice) -> ExportedSlice:
    storage, target = open_storage(plan.storage_url), open_storage(plan.target_url)
    writers = [_StateWriter(state) for state in plan.states]
    reader = ChainReader(plan.files, FilesOnStorage(storage))
    if plan.kg_start == plan.kg_stop:
        _share(reader.operator_state(), writers, OPERATOR_KG, OPERATOR_KG + 1)
    else:
        for start, stop in steps(plan.kg_start, plan.kg_stop, plan.entries):
            if plan.chosen:
                for writer in writers:
                    _share(reader.keyed(start, stop, writer.state.info.sid), [writer], start, stop)
            else:
                _share(reader.keyed(start, stop), writers, start, stop)
    parts = [put_part(target, w.state.path, w.part) if w.part.rows else None for w in writers]
    return ExportedSlice(parts, [w.left_out.record(w.state.info) for w in writers if w.left_out.entries])


export_slice = TaskOf[ExportSlice, ExportedSlice](_export_slice, ExportedSlice)


class _StateWriter:
    """Writes a state's entries as blocks of rows."""

    def __init__(self, state: StateFile) -> None:
        self.state = state
        self._codec: Codec = codec_of(state.info)
        self.part = PartWriter(self._codec.layout)
        self.left_out = LeftOut()

    def write(self, groups: np.ndarray[Any, Any], keys: list[bytes], values: list[bytes]) -> None:
        if self.state.info.kind == "broadcast":
            keys, values = one_copy(self.state.info.sid, (keys, values))
            groups = groups[: len(keys)]
        for low, high in blocks(values):
            block = groups[low:high], keys[low:high], values[low:high]
            before = copy(self._codec)  # a list codec carries indexes from block to block
            try:
                table = self._codec.to_table(*block)
            except SavepointCorrupt:
                self._codec = before
                table = self._codec.to_table(*readable(self.state.info, block, self.left_out))
            self.part.write(table)


def _share(entries: Entries, writers: list[_StateWriter], kg_start: int, kg_stop: int) -> None:
    """Pass the entries of each state, in store order, to its writer. Raises SavepointCorrupt if an entry belongs to no state."""
    keys, values = entries
    shared = 0
    for writer in writers:
        ranges = ranges_of(keys, writer.state.info.sid, kg_start, kg_stop)
        counts = [high - low for low, high in ranges]
        count = sum(counts)
        if count:
            shared += count
            groups = np.repeat(np.arange(kg_start, kg_stop), counts)
            writer.write(groups, _joined(keys, ranges), _joined(values, ranges))
    if shared != len(keys):
        known = {writer.state.info.sid for writer in writers}
        unknown = next(sid_of(key) for key in keys if sid_of(key) not in known)
        raise SavepointCorrupt(
            f"{len(keys) - shared} stored entries belong to no state of the manifest, the first one to state number "
            f"{unknown}; nothing was exported"
        )


def ranges_of(keys: list[bytes], sid: int, kg_start: int, kg_stop: int) -> list[tuple[int, int]]:
    """Where the entries of a state are among sorted store keys, for each key group."""
    found: list[tuple[int, int]] = []
    for group in range(kg_start, kg_stop):
        start, stop = sid_range(group, sid)
        low = bisect_left(keys, start)
        found.append((low, bisect_left(keys, stop, low)))
    return found


def _joined(items: list[bytes], ranges: list[tuple[int, int]]) -> list[bytes]:
    if len(ranges) == 1 and ranges[0] == (0, len(items)):
        return items
    return list(chain.from_iterable(items[low:high] for low, high in ranges))
