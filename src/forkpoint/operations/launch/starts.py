"""Starts jobs in the background: run, fork, replay.

The time of the request determines which run a start succeeds, even if its driver comes up late.
"""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, replace

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.driver.start.programs import find_program
from forkpoint.driver.start.restorer import NONE
from forkpoint.errors import ConfigError, JobFailed, JobNotFound, SavepointCorrupt, SavepointNotFound, StorageError
from forkpoint.operations.jobs.running import wait_for_savepoint
from forkpoint.operations.launch.detached import Started, start_detached, terminable
from forkpoint.operations.launch.recorded import PREFIX, pack
from forkpoint.operations.launch.request import RunRequest
from forkpoint.operations.observer import SILENT, Observer
from forkpoint.operations.roots import StateRoot
from forkpoint.protocol.registry import RunView, find_client, find_live, list_runs
from forkpoint.savepoint.catalog.listing import LATEST
from forkpoint.savepoint.catalog.names import all_savepoints, named_savepoint
from forkpoint.storage.base import Storage
from forkpoint.storage.places import plain_place

_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Replayed:
    """``savepoint``: the final savepoint of the replay; None if its inputs ended first."""

    job: str
    run: str
    savepoint: str | None


def run(request: RunRequest, *, state_root: str | None = None, verbose: bool = False, observer: Observer = SILENT) -> Started:
    """Run a program in a background process, which outlives this one; returns once its job runs.

    ``verbose``: log full tracebacks. Raises DriverFailed if the process ends first.
    """
    root = StateRoot(state_root)
    request = with_predecessor(root, request)
    pack(request.ship_env, observer)
    with terminable(), observer.steps(f"starting {request.app}") as report:
        return start_detached(root, request, report, verbose=verbose)


def wait(job: str, run: str, *, state_root: str | None = None) -> RunView:
    """Wait until a run has ended; returns its view."""
    storage = StateRoot(state_root).storage
    while True:
        view = next((view for view in list_runs(storage, job) if view.run == run), None)
        if view is not None and not view.is_live:
            return view
        time.sleep(_POLL_SECONDS)


def fork(
    origin: str, request: RunRequest, *, state_root: str | None = None, verbose: bool = False, observer: Observer = SILENT
) -> Started:
    """Run a program as a new job, ``request.name``, from a savepoint, or from the current state of a running job."""
    request = forked(origin, request, state_root=state_root, observer=observer)
    return run(request, state_root=state_root, verbose=verbose, observer=observer)


def forked(origin: str, request: RunRequest, *, state_root: str | None = None, observer: Observer = SILENT) -> RunRequest:
    """The request that starts a fork. If ``origin`` is a running job, this takes a savepoint of it."""
    storage, name = StateRoot(state_root).storage, request.name
    if name is None:
        raise ConfigError("a fork needs its own name; give RunRequest(name=…)")
    if storage.list(JobPaths(name).directory):
        raise ConfigError(
            f"job {name!r} already exists under {storage.url}; give the fork another name, or use `forkpoint run -s SAVEPOINT` "
            "to restore that job from a savepoint"
        )
    live = find_client(storage, origin)
    if live is None:
        path = _saved(storage, origin)
    else:
        with live as client:
            requested = client.savepoint(note=f"where {name} was forked")
            path = wait_for_savepoint(client, requested, f"savepoint of {origin}", observer)
        observer.remark(f"forking {name} from savepoint {path}")
    return replace(request, restore=replace(request.restore, savepoint=path), predecessor=(name, None))


def _saved(storage: Storage, origin: str) -> str:
    """The path of a savepoint by its name. Raises JobNotFound if it is the name of a job that does not run."""
    try:
        return plain_place(named_savepoint(storage, origin).url)
    except SavepointNotFound:
        if not storage.list(JobPaths(origin).directory):
            raise
    try:
        find_live(storage, origin).close()
    except JobNotFound as stopped:
        raise JobNotFound(
            f"{stopped}. So there is no current state to fork: wait until a run leads the job, or give one of its savepoints, "
            f"which `forkpoint savepoints {shlex.quote(origin)}` lists"
        ) from None
    raise ConfigError(f"job {origin!r} has just been started; try again")


def replay(request: RunRequest, *, state_root: str | None = None, verbose: bool = False, observer: Observer = SILENT) -> Replayed:
    """Run a program up to ``request.until`` at full speed, and wait for its final savepoint."""
    if request.until is None:
        raise ConfigError("a replay needs an end; give RunRequest(until=…), a time or a savepoint")
    started = run(request, state_root=state_root, verbose=verbose, observer=observer)
    ended = wait(started.job, started.run, state_root=started.state_root)
    if ended.state not in ("stopped", "finished"):
        raise JobFailed(f"run {ended.run} of job {ended.job!r} ended as {ended.state}: {ended.reason or started.log}")
    found = all_savepoints(StateRoot(started.state_root).storage, started.job)
    taken = [each.path for each in found if (made := each.listed.savepoint) is not None and made.run == started.run]
    return Replayed(started.job, started.run, taken[-1] if taken else None)


def with_predecessor(root: StateRoot, request: RunRequest) -> RunRequest:
    """The request with the run that its start succeeds: the newest run of its job, if the job is known before the program runs.
    Otherwise the driver determines it before its engine starts."""
    if request.predecessor is not None or request.standby or request.succeeds is not None:
        return request
    try:
        job = _job(root.storage, request)
        run = None if job is None else History(root.storage, JobPaths(job)).newest_run()
    except (StorageError, SavepointCorrupt, SavepointNotFound):  # the start then raises the same error
        return request
    return request if job is None else replace(request, predecessor=(job, run))


def _job(storage: Storage, request: RunRequest) -> str | None:
    """The job's name, from the request or its initial state."""
    if request.name is not None:
        return request.name
    if request.app.startswith(PREFIX):
        job, program = find_program(storage, request.app.removeprefix(PREFIX))
        return program.name or job
    savepoint = request.restore.savepoint
    return None if savepoint in (None, LATEST, NONE) else named_savepoint(storage, savepoint).savepoint.job
