"""Recovers a job whose newest checkpoint is damaged, from its newest undamaged checkpoint or savepoint."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import RUN, Manifest, OperatorInfo, Run
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.driver.run.epochs import wall_clock_ms
from forkpoint.driver.start.restorer import from_checkpoint
from forkpoint.errors import ForkpointError, JobFailed, NotFound, SavepointCorrupt, StorageError
from forkpoint.savepoint.export.chain import state_files
from forkpoint.savepoint.format.opened_savepoint import OpenedSavepoint, open_savepoint, verify_files
from forkpoint.savepoint.format.source_logs import log_file
from forkpoint.savepoint.format.tasks import FileRef, Progress, no_progress, run_here
from forkpoint.savepoint.restore.importer import import_savepoint
from forkpoint.savepoint.restore.restore_plan import StateMapping
from forkpoint.storage.base import Storage


@dataclass(frozen=True)
class Candidate:
    """A checked checkpoint or savepoint. ``problem``: why the job can't resume from it, if it can't."""

    kind: Literal["checkpoint", "savepoint"]
    epoch: int
    name: str
    created_ms: int | None
    problem: str | None


@dataclass(frozen=True)
class Lost:
    """The data that a recovery discards. ``epochs``: the discarded committed epochs, readable or not.

    ``elements``: the number of elements that sources will read again, according to readable manifests. ``output``: by sink, the
    number of committables (files, for example) that those epochs published and the job will publish again. ``unknown``:
    discarded epochs with unreadable manifests.
    """

    epochs: tuple[int, ...]
    elements: int
    output: dict[str, int]
    unknown: tuple[int, ...]


@dataclass(frozen=True)
class RecoveryPlan:
    """``checked``: the candidates, newest first. ``origin``: the manifest or savepoint to resume from; None if all are damaged.
    ``undamaged``: the newest checkpoint is undamaged, so no recovery is needed. ``fenced``: epochs that are no longer
    checkpoints; their names stay taken. ``epoch``: of the recovery's manifest."""

    checked: tuple[Candidate, ...]
    origin: Manifest | OpenedSavepoint | None
    undamaged: bool
    lost: Lost
    fenced: tuple[int, ...]
    epoch: int
    generation: int

    @property
    def chosen(self) -> Candidate | None:
        return self.checked[-1] if self.checked and self.checked[-1].problem is None else None


def plan_recovery(
    history: History, savepoints: Sequence[tuple[Savepoint, str]], progress: Progress = no_progress
) -> RecoveryPlan:
    """Check checkpoints and savepoints, newest epoch first, until one is undamaged. A check reads all files that the checkpoint
    or savepoint needs. Changes nothing. ``savepoints``: the job's, with their directories."""
    storage, epochs = history.storage, history.epochs()
    names = [file.epoch for path in storage.list(history.paths.directory) if (file := history.paths.parse(path))]
    readable, unreadable = _load_all(history, epochs)
    verified: dict[FileRef, str | None] = {}
    checked: list[Candidate] = []
    origin: Manifest | OpenedSavepoint | None = None
    # At the same epoch the checkpoint comes first: resuming from it needs no import.
    candidates = sorted(
        [*((e, 1, None) for e in epochs), *((s[0].epoch, 0, s) for s in savepoints)], key=lambda c: (-c[0], -c[1])
    )
    for done, (epoch, _, saved) in enumerate(candidates):
        progress(done, len(candidates))
        if saved is None:
            manifest = readable.get(epoch)
            problem = unreadable[epoch] if manifest is None else _problem(storage, history, manifest, verified)
            provisional = manifest is not None and (manifest.withheld or manifest.drained_early)
            if problem is None and provisional and epoch != epochs[-1]:
                problem = "it belongs to a drain or a trial, from which a job resumes only on request"
            created = None if manifest is None else manifest.created_ms
            checked.append(Candidate("checkpoint", epoch, f"epoch {epoch}", created, problem))
            found: Manifest | OpenedSavepoint | None = manifest
        else:
            savepoint, directory = saved
            found, problem = _opened(storage, directory)
            checked.append(Candidate("savepoint", epoch, savepoint.id, savepoint.created_ms, problem))
        if problem is None:
            origin = found
            break
    undamaged = isinstance(origin, Manifest) and origin.epoch == epochs[-1]
    start = origin.savepoint if isinstance(origin, OpenedSavepoint) else origin
    resumed = 0 if start is None else start.epoch
    discarded = () if undamaged or start is None else tuple(epoch for epoch in epochs if epoch > resumed)
    generations = [m.generation for m in readable.values()]
    return RecoveryPlan(
        tuple(checked),
        origin,
        undamaged,
        _lost(start, discarded, readable),
        tuple(sorted({*unreadable, *discarded})),
        max((*names, resumed), default=0) + 1,
        max(generations, default=0) + 1 + len(unreadable),
    )


def recover(history: History, plan: RecoveryPlan, progress: Progress = no_progress) -> Manifest | None:
    """Execute the plan; returns the manifest that the next run resumes from, or None if the newest one was undamaged. An
    interrupted call can be repeated."""
    origin, manifest = plan.origin, None
    if origin is None:
        raise StorageError(f"job {history.paths.job!r}: there is no undamaged checkpoint or savepoint")
    if not plan.undamaged:
        manifest = _start(history, origin, plan, uuid.uuid4().hex[:12], progress)
        _commit(history, manifest, plan.epoch - 1, "recovered by forkpoint recover")
    for epoch in plan.fenced:
        history.storage.put(history.paths.fence(epoch), b"")
    return manifest


def go_back(history: History, run: str, epoch: int, reason: str) -> Manifest:
    """Roll back a run to an earlier epoch, whose files must still exist; returns the manifest that the next run resumes from.
    Raises JobFailed unless this run is the job's newest and has published no output, which would be published again."""
    newest, origin = history.newest(), history.load(epoch)
    if newest is None or newest.run != run:
        now = "no run leads the job" if newest is None else f"run {newest.run} has led the job since"
        raise JobFailed(f"job {history.paths.job!r}: run {run} is not rolled back because {now}")
    since, _ = _load_all(history, [committed for committed in history.epochs() if committed > epoch])
    if any(manifest.is_final for manifest in since.values()):
        raise JobFailed(f"job {history.paths.job!r}: run {run} is not rolled back because its output has been published")
    manifest = _resumed(origin, uuid.uuid4().hex[:12], newest.generation + 1, newest.epoch + 1)
    _commit(history, manifest, newest.epoch, reason)
    return manifest


def _commit(history: History, manifest: Manifest, after: int, reason: str) -> None:
    """Commit the first manifest of a run that ends at once, and write its record."""
    history.commit(manifest, after=after)
    record = Run(
        job=manifest.job,
        run=manifest.run,
        generation=manifest.generation,
        parent=manifest.parent,
        started_ms=manifest.created_ms,
        ended_ms=wall_clock_ms(),
        outcome="stopped",
        reason=reason,
    )
    history.storage.put(history.paths.run_file(manifest.run), RUN.dump(record))


def _resumed(origin: Manifest, run: str, generation: int, epoch: int) -> Manifest:
    return origin.replace(
        run=run,
        generation=generation,
        epoch=epoch,
        kind="start",
        created_ms=wall_clock_ms(),
        changes=[],
        sinks={},
        parent=from_checkpoint(origin).parent,
        metadata={},
    )


def _load_all(history: History, epochs: Sequence[int]) -> tuple[dict[int, Manifest], dict[int, str]]:
    readable: dict[int, Manifest] = {}
    unreadable: dict[int, str] = {}
    for epoch in epochs:
        try:
            readable[epoch] = history.load(epoch)
        except (SavepointCorrupt, NotFound) as error:
            unreadable[epoch] = str(error)
    return readable, unreadable


def _problem(storage: Storage, history: History, manifest: Manifest, verified: dict[FileRef, str | None]) -> str | None:
    try:
        files = state_files(manifest, history.load)
    except (SavepointCorrupt, StorageError) as error:
        return str(error)
    refs = [base.snapshot for base in files.bases if base.snapshot is not None]
    refs += [snapshot for base in files.operators for snapshot in base.snapshots]
    refs += [log_file(log) for position in manifest.sources.values() for log in position.spark_log_files.values()]
    for ref in [*refs, *(changes.file for changes in files.changes)]:
        if ref not in verified:
            try:
                ref.read(storage)
                verified[ref] = None
            except (SavepointCorrupt, NotFound) as error:
                verified[ref] = str(error)
        if (problem := verified[ref]) is not None:
            return problem
    return None


def _opened(storage: Storage, directory: str) -> tuple[OpenedSavepoint | None, str | None]:
    try:
        opened = open_savepoint(storage, directory)
        verify_files(opened)
    except ForkpointError as error:
        return None, str(error)
    if opened.savepoint.drained:
        return None, "it was drained, so resuming from it changes results; restore it with -s if that is intended"
    return opened, None


def _lost(origin: Manifest | Savepoint | None, discarded: Sequence[int], readable: Mapping[int, Manifest]) -> Lost:
    known = [readable[epoch] for epoch in discarded if epoch in readable]
    output: Counter[str] = Counter()
    for manifest in known:
        if not manifest.withheld:
            output.update({uid: len(committables) for uid, committables in manifest.sinks.items()})
    elements = 0 if origin is None or not known else max(0, _elements_read(known[-1]) - _elements_read(origin))
    unknown = tuple(epoch for epoch in discarded if epoch not in readable)
    return Lost(tuple(discarded), elements, {uid: count for uid, count in output.items() if count}, unknown)


def _elements_read(saved: Manifest | Savepoint) -> int:
    positions = [position for position in saved.sources.values() if position.kind != "watermarks"]
    return sum(split.count for position in positions for split in position.splits.values())


def _start(history: History, origin: Manifest | OpenedSavepoint, plan: RecoveryPlan, run: str, progress: Progress) -> Manifest:
    """The recovery's manifest: the first manifest of a run that ends at once."""
    if isinstance(origin, Manifest):
        return _resumed(origin, run, plan.generation, plan.epoch)
    saved = origin.savepoint
    states = [state.info for operator in saved.operators for state in operator.states]
    snapshots = import_savepoint(
        opened=origin,
        storage=history.storage,
        paths=history.paths,
        epoch=plan.epoch,
        parallelism=saved.parallelism,
        max_parallelism=saved.max_parallelism,
        states=[StateMapping(s.uid, s.name, s) for s in states],
        run_tasks=run_here,
        progress=progress,
        now_ms=wall_clock_ms(),
    )
    return Manifest(
        job=history.paths.job,
        run=run,
        generation=plan.generation,
        epoch=plan.epoch,
        kind="start",
        created_ms=wall_clock_ms(),
        processing_time_ms=saved.created_ms,
        parallelism=saved.parallelism,
        max_parallelism=saved.max_parallelism,
        sources=saved.sources,
        watermarks=saved.watermarks,
        input_watermarks=saved.input_watermarks,
        states=states,
        parent=origin.as_parent(),
        operators=[OperatorInfo(uid=o.uid, name=o.name, kind=o.kind, stage=0) for o in saved.operators],
        snapshots=snapshots,
    )
