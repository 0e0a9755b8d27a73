"""The tasks of an export, which convert snapshots and changes to Parquet files."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.checkpoint.savepoint_manifest import LeftOutState
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import SavepointCorrupt
from forkpoint.savepoint.export.chain import StateFiles
from forkpoint.savepoint.export.chain_reader import ChainReader, FilesOnStorage, blocks, one_copy, sids_of
from forkpoint.savepoint.format.entries import Codec, as_binary, codec_of
from forkpoint.savepoint.format.parquet import PartWriter, WrittenPart, put_part
from forkpoint.savepoint.format.sorting import steps
from forkpoint.savepoint.format.tasks import TaskOf, task
from forkpoint.savepoint.format.unreadable import LeftOut, readable
from forkpoint.state import Columns, first_kgs
from forkpoint.state.arrow_file import as_list
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
        _share(as_binary(reader.operator_state()), writers)
    else:
        for start, stop in steps(plan.kg_start, plan.kg_stop, plan.entries):
            if plan.chosen:
                for writer in writers:
                    _share(reader.keyed_columns(start, stop, writer.state.info.sid), [writer])
            else:
                _share(reader.keyed_columns(start, stop), writers)
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

    def write(self, groups: np.ndarray[Any, Any], keys: pa.Array, values: pa.Array) -> None:
        if self.state.info.kind == "broadcast":
            keys, values = as_binary(one_copy(self.state.info.sid, (as_list(keys), as_list(values))))
        for low, high in blocks(pc.binary_length(values).to_numpy()):
            some, block = groups[low:high], [column.slice(low, high - low) for column in (keys, values)]
            before = copy(self._codec)  # a list codec carries indexes from block to block
            try:
                table = self._codec.table_of(some, *block)
            except SavepointCorrupt:
                self._codec = before
                entries = some, as_list(block[0]), as_list(block[1])
                table = self._codec.to_table(*readable(self.state.info, entries, self.left_out))
            self.part.write(table)


def _share(columns: Columns, writers: list[_StateWriter]) -> None:
    """Pass the entries of each state, in store order, to its writer. Raises SavepointCorrupt if an entry belongs to no state."""
    keys, values = columns
    sids, groups = sids_of(keys), first_kgs(keys)
    shared = 0
    for writer in writers:
        mine = sids == writer.state.info.sid
        if mine.all():
            writer.write(groups, keys, values)
        elif mine.any():
            mask = pa.array(mine)
            writer.write(groups[mine], keys.filter(mask), values.filter(mask))
        shared += int(mine.sum())
    if shared != len(keys):
        known = [writer.state.info.sid for writer in writers]
        unknown = int(sids[~np.isin(sids, known)][0])
        raise SavepointCorrupt(
            f"{len(keys) - shared} stored entries belong to no state of the manifest, the first one to state number "
            f"{unknown}; nothing was exported"
        )
