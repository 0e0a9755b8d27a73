"""Restores saved state: chooses a run's initial state, checks that it fits the program, imports it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import Manifest, Parent, SnapshotRef, SourcePosition, StateAmount
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.checkpoint.states import StateInfo
from forkpoint.driver.run.executor import Executor
from forkpoint.driver.start.program_check import check_program
from forkpoint.errors import RestoreRefused
from forkpoint.graph.job import JobGraph
from forkpoint.graph.options import Autoscale, RestoreOptions
from forkpoint.savepoint.catalog.dispose import dispose_claimed
from forkpoint.savepoint.catalog.listing import LATEST, find_savepoint
from forkpoint.savepoint.catalog.names import named_savepoint, new_savepoint_id
from forkpoint.savepoint.export.exporter import export_savepoint
from forkpoint.savepoint.format.opened_savepoint import OpenedSavepoint, open_savepoint
from forkpoint.savepoint.format.tasks import Progress
from forkpoint.savepoint.restore.importer import import_savepoint
from forkpoint.savepoint.restore.restore_plan import RestorePlan
from forkpoint.storage.base import open_storage
from forkpoint.types.variables import T

log = logging.getLogger("forkpoint")
NONE = "none"


@dataclass(frozen=True)
class StartParallelism:
    """``given``: by the command line, the program or the engine. ``pinned``: it applies even if the job was rescaled. ``bounds``:
    of autoscaling; ``given`` is within them."""

    given: int
    pinned: bool = False
    bounds: Autoscale | None = None

    def inherits(self, newest: Manifest | None) -> bool:
        """Whether a run that follows the job's newest manifest keeps its parallelism."""
        return newest is not None and newest.rescaled and not self.pinned

    def after(self, newest: Manifest | None) -> int:
        if newest is None or not self.inherits(newest):
            return self.given
        return newest.parallelism if self.bounds is None else self.bounds.clamp(newest.parallelism)


class StoppedWithDrain(RestoreRefused):
    """The job was stopped with a drain, so it does not resume from its newest checkpoint."""


@dataclass(frozen=True)
class Restored:
    """A run's initial state, imported into the job's storage."""

    parent: Parent
    sources: Mapping[str, SourcePosition] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)
    input_watermarks: Mapping[str, list[int]] = field(default_factory=dict)
    states: tuple[StateInfo, ...] = ()
    snapshots: tuple[SnapshotRef, ...] = ()
    processing_time_ms: int = 0
    amounts: tuple[StateAmount, ...] | None = None  # None: unknown
    epoch: int = 1  # of the run's first manifest; later than the job's and the savepoint's
    on_proven: Callable[[], object] | None = None  # called once the run has committed an epoch
    emptied: tuple[str, ...] = ()  # the operators whose state does not fit, and that start empty


@dataclass(frozen=True)
class Restorer:
    """Chooses a run's initial state and imports it into the job's storage.

    ``ended_well``: whether a run ended regularly. ``progress``: receives the progress of the import.
    """

    options: RestoreOptions
    history: History
    graph: JobGraph
    parallelism: StartParallelism
    executor: Executor
    ended_well: Callable[[str], bool]
    progress: Progress
    now_ms: Callable[[], int]

    def restore(self, newest: Manifest | None) -> Restored | None:
        """``newest``: the job's newest manifest. Returns None if the job has already finished."""
        epoch = newest.epoch + 1 if newest is not None else 1
        name = self.options.savepoint
        if name == NONE:
            return Restored(Parent(), amounts=(), epoch=epoch)
        parallelism = self.parallelism_after(newest)
        if name is None:
            return self._from_newest(newest, epoch, parallelism)
        storage = self.history.storage
        opened = find_savepoint(storage, self._job) if name == LATEST else named_savepoint(storage, name)
        return self._from_savepoint(opened, epoch, parallelism)

    def fits(self, newest: Manifest) -> bool:
        """Whether ``restore`` would use a checkpoint's files in place."""
        fits = _parallelism_fits(newest, self.parallelism_after(newest))
        return fits and is_usable_in_place(newest, self.graph, self._plan(newest))

    def inherits_parallelism(self, newest: Manifest | None) -> bool:
        """Whether the run keeps the parallelism that the job was rescaled to."""
        return self.options.savepoint != NONE and self.parallelism.inherits(newest)

    def parallelism_after(self, newest: Manifest | None) -> int:
        """The run's initial parallelism."""
        chosen = self.parallelism.given if self.options.savepoint == NONE else self.parallelism.after(newest)
        return min(chosen, self.graph.max_parallelism)

    @property
    def _job(self) -> str:
        return self.history.paths.job

    # -- checkpoints

    def _from_newest(self, newest: Manifest | None, epoch: int, parallelism: int) -> Restored | None:
        if newest is None:
            return Restored(Parent(), amounts=(), epoch=epoch)
        if newest.kind == "end" and self.ended_well(newest.run):
            log.warning(
                "job %r has read all its input and finished in epoch %d. To run it again from the beginning, start it without "
                "its state (-s none)",
                newest.job,
                newest.epoch,
            )
            return None
        if newest.drained_early:
            newest = self._past_drain(newest)
        if self._depends_on_entries(newest):
            return self._from_checkpoint_by_savepoint(newest, epoch, parallelism)
        plan = self._plan(newest)
        if _parallelism_fits(newest, parallelism) and is_usable_in_place(newest, self.graph, plan):
            states = tuple(mapping.target for mapping in plan.states)  # same entries, but types as declared now
            return replace(from_checkpoint(newest), states=states, epoch=epoch)
        return self._from_checkpoint_by_savepoint(newest, epoch, parallelism)

    def _past_drain(self, newest: Manifest) -> Manifest:
        """The manifest to resume from if the newest one was drained."""
        if newest.withheld:
            before = self.history.load(newest.epoch - 1)
            log.warning(
                "job %r: its last run ended before it had stopped with a drain, in epoch %d. The drain's output was never "
                "published; the job resumes from epoch %d, as if no stop had been requested",
                newest.job,
                newest.epoch,
                before.epoch,
            )
            return before
        if self.options.allow_drained:
            return newest
        savepoint = newest.metadata.get("savepoint", LATEST)
        raise StoppedWithDrain(
            f"job {newest.job!r} was stopped with a drain in epoch {newest.epoch}: all its windows and timers fired early, so "
            f"new elements would be late. To resume from there nevertheless, restore its savepoint (-s {savepoint}) or its "
            f"checkpoint (--allow-drained); or restore an earlier savepoint, or {NONE!r} to start from scratch"
        )

    def _from_checkpoint_by_savepoint(self, newest: Manifest, epoch: int, parallelism: int) -> Restored:
        """Restore a checkpoint whose files don't fit the changed program, through a temporary savepoint."""
        paths, storage = self.history.paths, self.history.storage
        directory = f"{paths.staging_directory}/{epoch:012d}/_restore/{new_savepoint_id()}"
        target = open_storage(f"{storage.url.rstrip('/')}/{directory}")
        try:
            export_savepoint(
                storage=storage,
                manifest=newest,
                target=target,
                savepoint_id=new_savepoint_id(),
                progress=self.progress,
                run_tasks=lambda fn, args: self.executor.run_tasks(fn, args, "restore: read the checkpoint"),
            )
            restored = self._from_savepoint(open_savepoint(target), epoch, parallelism)
        finally:
            storage.delete_prefix(directory)
        return replace(restored, parent=from_checkpoint(newest).parent, on_proven=None)

    # -- savepoints

    def _from_savepoint(self, opened: OpenedSavepoint, epoch: int, parallelism: int) -> Restored:
        savepoint = opened.savepoint
        plan = self._plan(savepoint)
        for row in plan.rows:
            if row.outcome == "dropped":
                log.warning("job %r: %s %s/%s is not restored: %s", self._job, row.subject, row.uid, row.name, row.why)
            elif row.outcome == "migrated":
                log.info("job %r: %s %s/%s is migrated: %s", self._job, row.subject, row.uid, row.name, row.why)
        if savepoint.drained:
            log.warning(
                "job %r: savepoint %s was drained: all its timers fired early, so results differ from those of a job that "
                "resumes from a savepoint without a drain",
                self._job,
                savepoint.id,
            )
        epoch = max(epoch, savepoint.epoch + 1)
        dispose = partial(dispose_claimed, opened, self.history.storage, self._job)
        snapshots = import_savepoint(
            opened=opened,
            storage=self.history.storage,
            paths=self.history.paths,
            epoch=epoch,
            states=plan.states,
            parallelism=parallelism,
            max_parallelism=self.graph.max_parallelism,
            now_ms=self.now_ms(),
            run_tasks=lambda fn, args: self.executor.run_tasks(fn, args, f"restore savepoint {savepoint.id}"),
            progress=self.progress,
        )
        return Restored(
            parent=opened.as_parent(),
            sources={plan.sources[uid]: p for uid, p in savepoint.sources.items() if uid in plan.sources},
            watermarks=_of_program(savepoint.watermarks, plan),
            input_watermarks=_of_program(savepoint.input_watermarks, plan),
            states=tuple(mapping.target for mapping in plan.states),
            snapshots=tuple(snapshots),
            epoch=epoch,
            on_proven=dispose if self.options.claim else None,
            emptied=plan.emptied,
        )

    def _depends_on_entries(self, newest: Manifest) -> bool:
        """Whether the program fits only if some removed states are empty, which is known for a savepoint but not a checkpoint."""
        if self.options.allow_non_restored or not self._compared(newest, allow_non_restored=False).refused:
            return False
        return not self._compared(newest, allow_non_restored=True).refused

    def _plan(self, saved: Savepoint | Manifest) -> RestorePlan:
        return self._compared(saved, allow_non_restored=self.options.allow_non_restored, must_fit=True)

    def _compared(self, saved: Savepoint | Manifest, *, allow_non_restored: bool, must_fit: bool = False) -> RestorePlan:
        return check_program(
            self.graph,
            saved,
            allow_non_restored=allow_non_restored,
            renames=self.options.renames,
            accept_empty=self.options.accept_empty,
            must_fit=must_fit,
        )


def from_checkpoint(manifest: Manifest) -> Restored:
    """Resume from a checkpoint of the same job, whose files are used in place."""
    return Restored(
        Parent(kind="checkpoint", job=manifest.job, epoch=manifest.epoch, run=manifest.run),
        manifest.sources,
        manifest.watermarks,
        manifest.input_watermarks,
        tuple(manifest.states),
        tuple(manifest.snapshots),
        manifest.processing_time_ms,
        None if manifest.amounts is None else tuple(manifest.amounts),
        emptied=tuple(manifest.emptied) if manifest.kind == "start" else (),  # by a run that has committed no epoch
    )


def _of_program(saved: Mapping[str, T], plan: RestorePlan) -> dict[str, T]:
    """What is saved by operator, by the uids that the operators have in the program."""
    origins = {**{new: old for old, new in plan.uids.items()}, **plan.copies}
    return {new: saved[old] for new, old in origins.items() if old in saved}


def is_usable_in_place(manifest: Manifest, graph: JobGraph, plan: RestorePlan) -> bool:
    """Whether a run of the program can use a checkpoint's files unchanged, at a parallelism that fits: no state is dropped,
    renamed or rewritten. Otherwise the restore goes through a savepoint."""
    if manifest.max_parallelism != graph.max_parallelism or not {s.uid for s in manifest.states} <= set(graph.by_uid):
        return False
    renamed = bool(plan.copies) or any(old != new for old, new in plan.uids.items())
    rewritten = any(mapping.rewritten for mapping in plan.states)
    dropped = any(row.outcome == "dropped" and row.subject == "state" for row in plan.rows)
    return not (renamed or rewritten or dropped)


def _parallelism_fits(manifest: Manifest, parallelism: int) -> bool:
    """Operator state belongs to subtasks, so it requires the same parallelism."""
    return manifest.parallelism == parallelism or not any(state.is_operator_state for state in manifest.states)
