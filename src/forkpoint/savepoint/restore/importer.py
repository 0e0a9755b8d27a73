"""Imports a savepoint's state into a job's storage, for any parallelism and max parallelism."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from forkpoint.checkpoint.manifest import SnapshotRef
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import RestoreRefused
from forkpoint.savepoint.format.entries import EntryTarget
from forkpoint.savepoint.format.layers import SavedFile
from forkpoint.savepoint.format.opened_savepoint import OpenedSavepoint
from forkpoint.savepoint.format.sorting import Run, Slice, cut_subtasks, slice_count
from forkpoint.savepoint.format.tasks import Progress, RunTasks, TaskRunner, no_progress
from forkpoint.savepoint.restore.evolution import Change
from forkpoint.savepoint.restore.import_task import CutFiles, ImportSlice, StateImport, WrittenSnapshot, cut_files, import_slice
from forkpoint.savepoint.restore.restore_plan import StateMapping
from forkpoint.storage.base import Storage
from forkpoint.types import dumps


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
    """Write the mapped states as snapshots of ``epoch``, and return their references for the start manifest.

    The snapshots cover all key groups; each belongs to one subtask, and every subtask has at least one. ``states`` comes
    from ``plan_restore``. ``now_ms``: the TTL stamp of entries whose state did not have a time to live before.

    Verifies every file as it reads it. On any error (SavepointCorrupt, NotFound, StorageError, or an error raised by
    ``progress``), removes the files written so far.
    """
    plan = _Plan(opened, storage, paths, epoch, parallelism, max_parallelism, tuple(states), now_ms, uuid.uuid4().hex[:12])
    groups = range(len(plan.groups) if plan.regrouped else 0)
    unneeded = [plan.run_path(group, piece) for group in groups for piece in plan.slices]
    try:
        return plan.run(run_tasks, progress)
    except BaseException:
        unneeded += map(plan.snapshot_path, plan.slices)
        raise
    finally:
        for path in unneeded:
            storage.delete(path)


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

    @property
    def regrouped(self) -> bool:
        """Whether keys get new key groups."""
        return self.rekeyed or self.opened.savepoint.max_parallelism != self.max_parallelism

    @property
    def rekeyed(self) -> bool:
        """Whether keys are migrated, or converted to their key form."""
        return any(m.keys or (m.to_key_form and not m.target.is_operator_state) for m in self.states)

    @cached_property
    def imports(self) -> list[StateImport]:
        savepoint = self.opened.savepoint
        saved = {(state.info.uid, state.info.name): state for state in self.opened.states()}
        regrouped = self.max_parallelism if self.regrouped else None
        found: list[StateImport] = []
        for mapping in self.states:
            state = saved.get((mapping.saved_uid, mapping.saved_name))
            if state is None:
                raise RestoreRefused(
                    f"{self.opened.url} has no state {mapping.saved_name!r} of operator {mapping.saved_uid!r} to restore"
                )
            info, declared = state.info, mapping.target
            ttl = declared.ttl_ms is not None and not info.is_operator_state
            target = EntryTarget(declared.sid, ttl, self.now_ms, self.epoch, regrouped)
            files = tuple(self.opened.file(file) for file in state.files if file.entries)
            parallelisms = savepoint.max_parallelism, savepoint.parallelism
            validator = b"" if mapping.validates is None else dumps(mapping.validates)
            found.append(StateImport(info, target, files, *parallelisms, _change(mapping, info), validator))
        return found

    @cached_property
    def keyed(self) -> list[StateImport]:
        return [state for state in self.imports if not state.info.is_operator_state]

    @cached_property
    def entries(self) -> int:
        return sum(file.entries for state in self.keyed for file in state.files)

    @cached_property
    def slices(self) -> list[Slice]:
        return cut_subtasks(self.max_parallelism, self.parallelism, self.entries)

    def snapshot_path(self, piece: Slice) -> str:
        return self.paths.snapshot(self.epoch, piece.subtask, self.slice_attempt(piece))

    def slice_attempt(self, piece: Slice) -> str:
        return f"{self.attempt}-{piece.number}"

    def run_path(self, group: int, piece: Slice) -> str:
        return self.paths.staging(self.epoch, "restore", f"{self.attempt}-{group}-{piece.number}")

    @cached_property
    def groups(self) -> list[tuple[StateImport, ...]]:
        """The files by state, in groups of about equally many entries."""
        states = self.keyed
        pieces = [(file.entries, number, file) for number, state in enumerate(states) for file in state.files]
        pieces.sort(key=lambda piece: (-piece[0], piece[1], piece[2].name))
        groups: list[dict[int, list[SavedFile]]] = [{} for _ in range(min(slice_count(self.entries), len(pieces)))]
        sizes = [0] * len(groups)
        for entries, number, file in pieces:
            smallest = sizes.index(min(sizes))
            groups[smallest].setdefault(number, []).append(file)
            sizes[smallest] += entries
        return [tuple(replace(states[number], files=tuple(files)) for number, files in sorted(group.items())) for group in groups]

    def run(self, run_tasks: RunTasks, progress: Progress) -> list[SnapshotRef]:
        cuts = self.cut_tasks() if self.regrouped else []
        run = TaskRunner(run_tasks, progress, len(cuts) + len(self.slices), self.parallelism)
        runs = [each for found in run(cut_files, cuts) for each in found] if cuts else []
        written = run(import_slice, [self.import_task(piece, runs) for piece in self.slices])
        if not self.regrouped:
            self.check_all_read(written)
        return [
            SnapshotRef(
                subtask=piece.subtask,
                attempt=self.slice_attempt(piece),
                epoch=self.epoch,
                path=file.path,
                entries=file.entries,
                bytes=file.size,
                checksum=file.checksum,
                kg_start=piece.kg_start,
                kg_stop=piece.kg_stop,
            )
            for piece, file in zip(self.slices, written, strict=True)
        ]

    def check_all_read(self, written: Sequence[WrittenSnapshot]) -> None:
        """Raises SavepointCorrupt if rows are outside the key groups that savepoint.json lists for their file."""
        read: Counter[str] = Counter()
        for each in written:
            read.update(each.rows)
        for state in self.keyed:
            for file in state.files:
                file.check_found(read[file.name])

    def cut_tasks(self) -> list[CutFiles]:
        source, target = self.opened.storage.url, self.storage.url
        cuts = tuple(piece.kg_start for piece in self.slices)
        return [
            CutFiles(source, target, group, cuts, tuple(self.run_path(number, piece) for piece in self.slices))
            for number, group in enumerate(self.groups)
        ]

    def import_task(self, piece: Slice, runs: Sequence[Run]) -> ImportSlice:
        states = [
            replace(state, files=files)
            for state in ([] if self.regrouped else self.keyed)
            if (files := tuple(file for file in state.files if file.overlaps(piece.kg_start, piece.kg_stop)))
        ]
        operator_state = tuple(state for state in self.imports if state.info.is_operator_state) if piece.first else ()
        return ImportSlice(
            self.opened.storage.url,
            self.storage.url,
            self.snapshot_path(piece),
            piece.kg_start,
            piece.kg_stop,
            tuple(states),
            tuple(run.file for run in runs if run.slice == piece.number),
            operator_state,
            piece.subtask,
            self.parallelism,
            self.rekeyed,
        )


def _change(mapping: StateMapping, info: StateInfo) -> Change | None:
    """The change of a saved state's rows; None if at most their stamps change."""
    if not mapping.migrates:
        return None
    names = ("kind", "key_type", "value_type", "namespace_type", "canonical_keys")
    declared = info.replace(**{name: getattr(mapping.target, name) for name in names})
    values, keys = (dumps(steps) if steps else b"" for steps in (mapping.values, mapping.keys))
    return Change(declared, mapping.step, values, keys)
