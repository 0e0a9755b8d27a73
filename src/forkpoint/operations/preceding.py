"""Which run a start succeeds. That is decided when the start is asked for, however late its driver comes up."""

from __future__ import annotations

from dataclasses import replace

from forkpoint.checkpoint.paths import JobPaths
from forkpoint.control.programs import find_program
from forkpoint.driver.commit.history import History
from forkpoint.driver.start.restorer import NONE
from forkpoint.errors import SavepointCorrupt, SavepointNotFound, StorageError
from forkpoint.operations.recorded import PREFIX
from forkpoint.operations.request import RunRequest
from forkpoint.operations.roots import StateRoot
from forkpoint.savepoint.catalog.listing import LATEST
from forkpoint.savepoint.catalog.naming import named_savepoint
from forkpoint.storage.base import Storage


def with_predecessor(root: StateRoot, request: RunRequest) -> RunRequest:
    """The request with the run that its start succeeds: the newest one of its job, as far as the job is known before the program
    runs. Otherwise the driver looks for it, before its engine starts."""
    if request.predecessor is not None or request.standby or request.succeeds is not None:
        return request
    try:
        job = _job(root.storage, request)
        run = None if job is None else History(root.storage, JobPaths(job)).newest_run()
    except (StorageError, SavepointCorrupt, SavepointNotFound):  # the start then says why
        return request
    return request if job is None else replace(request, predecessor=(job, run))


def _job(storage: Storage, request: RunRequest) -> str | None:
    """The job's name, from the request or what it starts from."""
    if request.name is not None:
        return request.name
    if request.app.startswith(PREFIX):
        job, program = find_program(storage, request.app.removeprefix(PREFIX))
        return program.name or job
    savepoint = request.restore.savepoint
    return None if savepoint in (None, LATEST, NONE) else named_savepoint(storage, savepoint).savepoint.job
