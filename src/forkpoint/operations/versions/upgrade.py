"""Replaces the program of a running job, and rolls back if the new one fails."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from functools import partial

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import Manifest
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.driver.start.program_check import check_program
from forkpoint.driver.start.programs import NO_RECORD, Program, load_files, load_program
from forkpoint.driver.start.restorer import is_usable_in_place
from forkpoint.errors import ForkpointError
from forkpoint.graph.job import JobGraph
from forkpoint.graph.options import Autoscale, RestoreOptions, SavepointSchedule
from forkpoint.operations.jobs.running import wait_for_savepoint
from forkpoint.operations.launch.recorded import pack
from forkpoint.operations.launch.request import RunRequest
from forkpoint.operations.observer import SILENT, Observer
from forkpoint.operations.roots import StateRoot
from forkpoint.operations.versions.check import inspect_program
from forkpoint.operations.versions.replacement import NotHandedOver, Replacement, Upgraded
from forkpoint.protocol.client import RunClient
from forkpoint.protocol.registry import find_live
from forkpoint.pyflink import install
from forkpoint.savepoint.catalog.dispose import dispose_savepoint
from forkpoint.savepoint.format.opened_savepoint import open_savepoint
from forkpoint.savepoint.restore.restore_plan import RestorePlan
from forkpoint.types.lookup import Program as Values
from forkpoint.types.lookup import values_of

WATCH_EPOCHS = 3
TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True)
class Refused:
    """The program does not fit the job's state; ``plan`` has the reasons. The job was not stopped."""

    job: str
    run: str
    plan: RestorePlan


def upgrade(
    job: str,
    request: RunRequest,
    *,
    watch_epochs: int = WATCH_EPOCHS,
    timeout_seconds: float = TIMEOUT_SECONDS,
    stop_first: bool = False,
    state_root: str | None = None,
    verbose: bool = False,
    observer: Observer = SILENT,
) -> Upgraded | Refused:
    """Replace the program of a job; roll back if the new one fails.

    The program is first checked against the job's state. Then it starts while the old one runs, catches its stores up with the
    job, and takes over between two epochs. With ``stop_first``, or if state has to be converted, the job stops with a savepoint
    instead, and the program starts from it.

    The program's output is withheld until it has committed its first ``watch_epochs`` epochs (0: it only has to start). If it
    fails before, or takes longer than ``timeout_seconds``, the old program resumes from its last epoch. Raises DriverFailed if
    that fails, too.
    """
    if request.pyflink:
        install()
    pack(request.ship_env, observer)
    root = StateRoot(StateRoot(state_root).place)
    with find_live(root.storage, job) as client:
        run = client.endpoint.run
        old = _recorded(root, job, run, request.app)
        program = inspect_program(request.app, request.arguments, None, root)
        newest = _newest(root, job, run)
        with values_of(Values(allow_pickle=program.options.allow_pickle)):
            plan = _plan(client, newest, program.graph, request.restore, observer)
        if plan.refused:
            return Refused(job, run, plan)
        request = replace(
            request,
            savepoint_schedule=request.savepoint_schedule or _schedule(old),
            autoscale=request.autoscale or _autoscale(old),
            name=job if program.name != job else None,
            engine=request.engine or (_engine(old) if program.options.engine is None else None),
        )
        replacement = Replacement(root, job, run, request, watch_epochs, timeout_seconds, verbose, observer)
        if not stop_first and is_usable_in_place(newest, program.graph, plan):
            try:
                return replacement.hand_over(client)
            except NotHandedOver as why:
                observer.remark(f"{why}; so the job is stopped first")
        return replacement.stop_and_start(client)


def _recorded(root: StateRoot, job: str, run: str, app: str) -> Program:
    """The recorded program of the job's run. Raises ForkpointError if it cannot be started again."""
    program = load_program(root.storage, job, run)
    if program is None:
        raise ForkpointError(
            f"a rollback would be impossible: run {run!r} of job {job!r} has no recorded program: {NO_RECORD}. "
            f"Upgrade it by hand: `forkpoint stop {shlex.quote(job)}`, then start {app} as you started the old one, or with "
            f"`forkpoint run -d -s latest {shlex.quote(str(app))}`"
        )
    load_files(root.storage, job, run, program)
    return program


def _newest(root: StateRoot, job: str, run: str) -> Manifest:
    newest = History(root.storage, JobPaths(job)).newest()
    if newest is None:
        raise ForkpointError(
            f"run {run!r} of job {job!r} has only just started, so it has no state to resume from; try again in a moment"
        )
    return newest


def _plan(client: RunClient, newest: Manifest, graph: JobGraph, restore: RestoreOptions, observer: Observer) -> RestorePlan:
    """The plan for restoring the job's state to the new program."""
    compared = partial(check_program, graph, renames=restore.renames, accept_empty=restore.accept_empty)
    plan = compared(newest, allow_non_restored=restore.allow_non_restored)
    if plan.refused and not compared(newest, allow_non_restored=True).refused:
        return _counted(client, graph, restore, observer)
    return plan


def _counted(client: RunClient, graph: JobGraph, restore: RestoreOptions, observer: Observer) -> RestorePlan:
    """The plan for a savepoint, which unlike a checkpoint counts entries: the program may lack empty states."""
    observer.remark(f"checking whether the removed states of {client.endpoint.job} are empty")
    requested = client.savepoint(note="to check an upgrade")
    opened = open_savepoint(wait_for_savepoint(client, requested, "counting", observer))
    try:
        return check_program(graph, opened.savepoint, renames=restore.renames, accept_empty=restore.accept_empty)
    finally:
        dispose_savepoint(opened, runs=[], savepoints=[], force=True)


def _schedule(program: Program) -> SavepointSchedule | None:
    recorded = program.options.get("savepoint_schedule")
    return SavepointSchedule(**recorded) if isinstance(recorded, dict) else None


def _engine(program: Program) -> str | None:
    """The engine of the job, regardless of this process's environment."""
    given = program.options.get("engine") or program.engine
    return given if isinstance(given, str) else None


def _autoscale(program: Program) -> Autoscale | None:
    recorded = program.options.get("autoscale")
    return Autoscale(**recorded) if isinstance(recorded, dict) else None
