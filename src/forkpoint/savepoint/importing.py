"""Bringing a savepoint's state into a job's own storage, for any parallelism and any max parallelism."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from forkpoint.checkpoint.manifest import SnapshotRef
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.checkpoint.savepoint_manifest import SavepointState
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import RestoreRefused, SavepointCorrupt
from forkpoint.savepoint.entries import Moved
from forkpoint.savepoint.evolution import Change
from forkpoint.savepoint.import_task import (
    CutFiles,
    Deal,
    ImportSlice,
    MovedState,
    SavedFile,
    WrittenSnapshot,
    cut_files,
    import_slice,
)
from forkpoint.savepoint.reading import OpenedSavepoint
from forkpoint.savepoint.restore_plan import StateMapping
from forkpoint.savepoint.runs import Run
from forkpoint.savepoint.slices import Slice, cut_subtasks, wanted_slices
from forkpoint.savepoint.tasks import FileRef, Progress, RunTasks, no_progress
from forkpoint.storage.base import Storage
from forkpoint.types import dumps
from forkpoint.types.evolution import Same

_STAGING = "restore"


def import_savepoint(
    *,
    opened: OpenedSavepoint,
    storage: Storage,
    paths: JobPaths,
    epoch: int,
    parallelism: int,
    max_parallelism: int,
    states: Sequence[StateMapping],
    run_tasks: RunTasks,
    progress: Progress = no_progress,
    now_ms: int = 0,
) -> list[SnapshotRef]:
    """Write the mapped states as snapshots of ``epoch`` and return what the start manifest lists of them.

    The snapshots cover all key groups; each is of one subtask, and every subtask has at least one. ``states`` comes from
    ``plan_restore``. ``now_ms``: entries of a state that has a time to live now and had none begin to age then.

    Every file is verified as it is read. If anything fails (SavepointCorrupt, NotFound, StorageError, or what
    ``progress`` raises), the files written so far are removed, and nothing has changed.
    """
    plan = _Plan(
        opened, storage, paths, epoch, parallelism, max_parallelism, tuple(states), now_ms, uuid.uuid4().hex[:12]
    )
    try:
        refs = plan.run(run_tasks, progress)
    except BaseException:
        plan.remove([*plan.snapshot_paths(), *plan.run_paths()])
        raise
    plan.remove(plan.run_paths())
    return refs


@dataclass(frozen=True)
class _Plan:
    opened: OpenedSavepoint
    storage: Storage
    paths: JobPaths
    epoch: int
    parallelism: int
    max_parallelism: int
    states: tuple[StateMapping, ...]
    now_ms: int
    attempt: str

    # -- what there is to do

    @property
    def regrouped(self) -> bool:
        """Whether keys get new key groups."""
        return self.rekeyed or self.opened.savepoint.max_parallelism != self.max_parallelism

    @property
    def rekeyed(self) -> bool:
        """Whether keys are migrated."""
        return any(mapping.keys for mapping in self.states)

    @cached_property
    def keyed(self) -> list[MovedState]:
        return self._all_moved(operator_state=False)

    @cached_property
    def operator_state(self) -> list[MovedState]:
        return self._all_moved(operator_state=True)

    @cached_property
    def entries(self) -> int:
        return sum(file.entries for state in self.keyed for file in state.files)

    @cached_property
    def slices(self) -> list[Slice]:
        return cut_subtasks(self.max_parallelism, self.parallelism, self.entries)

    def _all_moved(self, *, operator_state: bool) -> list[MovedState]:
        """The mapped states of this sort with their files."""
        saved = {(state.info.uid, state.info.name): state for state in self.opened.states()}
        found: list[MovedState] = []
        for mapping in self.states:
            if (mapping.saved_uid, mapping.saved_name) not in saved:
                raise RestoreRefused(
                    f"{self.opened.url} has no state {mapping.saved_name!r} of operator {mapping.saved_uid!r} to restore"
                )
            state = saved[mapping.saved_uid, mapping.saved_name]
            if state.info.is_operator_state == operator_state:
                found.append(self._moved(mapping, state))
        return found

    def _moved(self, mapping: StateMapping, state: SavepointState) -> MovedState:
        info, target = state.info, mapping.target
        ttl = target.ttl_ms is not None and not info.is_operator_state
        moved = Moved(target.sid, ttl, self.now_ms, self.epoch, self.max_parallelism if self.regrouped else None)
        files = tuple(
            SavedFile(self.opened.file(file), file.entries, file.kg_start, file.kg_stop)
            for file in state.files
            if file.entries
        )
        saved = self.opened.savepoint
        return MovedState(info, moved, files, saved.max_parallelism, saved.parallelism, _change(mapping, info))

    def deal(self, piece: Slice) -> Deal | None:
        states = tuple(self.operator_state) if piece.first else ()
        return Deal(states, piece.subtask, self.opened.savepoint.parallelism, self.parallelism) if states else None

    # -- paths

    def snapshot_path(self, piece: Slice) -> str:
        return self.paths.snapshot(self.epoch, piece.subtask, self.slice_attempt(piece))

    def slice_attempt(self, piece: Slice) -> str:
        return f"{self.attempt}-{piece.number}"

    def run_path(self, group: int, piece: Slice) -> str:
        return self.paths.staging(self.epoch, _STAGING, f"{self.attempt}-{group}-{piece.number}")

    def snapshot_paths(self) -> list[str]:
        return [self.snapshot_path(piece) for piece in self.slices]

    def run_paths(self) -> list[str]:
        if not self.regrouped:
            return []
        return [self.run_path(group, piece) for group in range(len(self.groups)) for piece in self.slices]

    def remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.storage.delete(path)

    # -- doing it

    @cached_property
    def groups(self) -> list[tuple[MovedState, ...]]:
        """The files in groups of about as many entries; each state with those of its files that are in it."""
        states = self.keyed
        pieces = [(file.entries, number, file) for number, state in enumerate(states) for file in state.files]
        pieces.sort(key=lambda piece: (-piece[0], piece[1], piece[2].file.name))
        groups: list[dict[int, list[SavedFile]]] = [{} for _ in range(min(wanted_slices(self.entries), len(pieces)))]
        sizes = [0] * len(groups)
        for entries, number, file in pieces:
            smallest = sizes.index(min(sizes))
            groups[smallest].setdefault(number, []).append(file)
            sizes[smallest] += entries
        return [
            tuple(replace(states[number], files=tuple(files)) for number, files in sorted(group.items()))
            for group in groups
        ]

    def run(self, run_tasks: RunTasks, progress: Progress) -> list[SnapshotRef]:
        slices = self.slices
        runs: list[Run] = []
        cutting = self.cut_tasks(slices) if self.regrouped else []
        total = len(cutting) + len(slices)
        waves = {"parallelism": self.parallelism, "total": total}
        if cutting:
            runs = [run for found in cut_files(run_tasks, cutting, progress, **waves) for run in found]
        tasks = [self.import_task(piece, [run.file for run in runs if run.slice == piece.number]) for piece in slices]
        written = import_slice(run_tasks, tasks, progress, done=len(cutting), **waves)
        if not self.regrouped:
            self.check_all_read(written)
        return [
            SnapshotRef(
                subtask=piece.subtask, attempt=self.slice_attempt(piece), epoch=self.epoch, path=file.path,
                entries=file.entries, bytes=file.size, checksum=file.checksum, kg_start=piece.kg_start, kg_stop=piece.kg_stop,
            )
            for piece, file in zip(slices, written, strict=True)
        ]  # fmt: skip

    def check_all_read(self, written: Sequence[WrittenSnapshot]) -> None:
        """Each row is in the key groups of one slice, if savepoint.json says the truth about the files' key groups."""
        read: Counter[str] = Counter()
        for each in written:
            read.update(each.rows)
        for state in self.keyed:
            for file in state.files:
                if (found := read[file.file.name]) != file.entries:
                    raise SavepointCorrupt(
                        f"{file.file.name}: {found} of its {file.entries} rows are in the key groups {file.kg_start} to "
                        f"{file.kg_stop} that were recorded; restore it from a copy"
                    )

    def cut_tasks(self, slices: Sequence[Slice]) -> list[CutFiles]:
        source, target = self.opened.storage.url, self.storage.url
        cuts = tuple(piece.kg_start for piece in slices)
        return [
            CutFiles(source, target, group, cuts, tuple(self.run_path(number, s) for s in slices))
            for number, group in enumerate(self.groups)
        ]

    def import_task(self, piece: Slice, runs: Sequence[FileRef]) -> ImportSlice:
        states = [] if self.regrouped else [_overlapping(s, piece) for s in self.keyed]
        return ImportSlice(
            self.opened.storage.url, self.storage.url, self.snapshot_path(piece), piece.kg_start, piece.kg_stop,
            tuple(state for state in states if state.files), tuple(runs), self.deal(piece), self.rekeyed,
        )  # fmt: skip


def _change(mapping: StateMapping, info: StateInfo) -> Change | None:
    """What becomes of the rows of a saved state; None if its entries stay as they are, but for their stamps."""
    if not (mapping.values or mapping.keys) and isinstance(mapping.step, Same):
        return None
    target = mapping.target
    declared = info.replace(
        kind=target.kind, key_type=target.key_type, value_type=target.value_type, namespace_type=target.namespace_type
    )
    values, keys = (dumps(steps) if steps else b"" for steps in (mapping.values, mapping.keys))
    return Change(declared, mapping.step, values, keys)


def _overlapping(state: MovedState, piece: Slice) -> MovedState:
    files = tuple(f for f in state.files if f.kg_start < piece.kg_stop and piece.kg_start < f.kg_stop)
    return replace(state, files=files)
