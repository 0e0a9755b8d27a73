"""Runs a program and its jobs in this process, as `forkpoint run` does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from forkpoint.api.launch import Launch, launching
from forkpoint.driver.commit.trial import Trial
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.driver.run.stop import Result
from forkpoint.driver.start.restorer import NONE
from forkpoint.graph.options import RestartStrategy, RestoreOptions
from forkpoint.operations.launch.failed import NoJob, ProgramFailed
from forkpoint.operations.launch.program import Source, as_main, run_program
from forkpoint.operations.launch.program_jobs import Announcer, Driving
from forkpoint.operations.launch.recorded import Invocation, invocation
from forkpoint.operations.launch.request import RunRequest
from forkpoint.operations.roots import StateRoot
from forkpoint.operations.versions.replay import capturing, until_from
from forkpoint.pyflink import install, installed
from forkpoint.savepoint.catalog.listing import LATEST
from forkpoint.savepoint.catalog.names import savepoint_place

if TYPE_CHECKING:
    from forkpoint.protocol.port import Rest


@dataclass(frozen=True)
class ProgramEnd:
    """The end of a program and its jobs. ``code``: the exit code for its process without an error. ``program_error``: the program
    failed, or ran no job. ``job_error``: the error that ended its first failed job."""

    code: int = 0
    program_error: ProgramFailed | NoJob | None = None
    job_error: BaseException | None = None


def drive(
    request: RunRequest,
    announcer: Announcer,
    *,
    log: str | None = None,
    state_root: str | None = None,
    patient: bool = False,
    rest: Callable[[JobDriver], Rest] | None = None,
    work: Callable[[JobDriver], Result] | None = None,
) -> ProgramEnd:
    """Run a program as ``python app`` would, and its jobs with the request's options, to their end.

    Call this on the main thread: Ctrl-C and SIGTERM cancel the jobs. ``log``: the file with this process's output, to show with
    the job. ``patient``, ``rest``: see ``Driving``. ``work``: called with a job's driver instead of running the job. Raises
    ForkpointError only before the program runs.
    """
    if request.pyflink:
        install()
    root = StateRoot(state_root)
    place, storage = root.place, root.storage  # before a recorded program changes the working directory
    restore = request.restore
    if restore.savepoint is not None and restore.savepoint not in (LATEST, NONE):
        restore = replace(restore, savepoint=savepoint_place(storage, restore.savepoint))
    invoked = invocation(root, request)
    options = invoked.options if root.given is None else {**invoked.options, "state_root": place}
    if request.capture is not None:
        # A version that fails must end rather than restart forever, and none may leave savepoints behind.
        options = {**options, "restart": RestartStrategy.none(), "savepoint_schedule": None, "autoscale": None}
    driving = Driving(announcer, invoked.record, log, patient=patient, rest=rest)
    launch = Launch(
        options=options,
        state_root=place,
        job_name=invoked.name,
        restore=None if restore == RestoreOptions() else restore,
        on_driver=driving.on_driver,
        on_step=announcer.starting,
        until=None if request.until is None else until_from(storage, request.until),
        trial=None if request.trial_epochs is None else Trial(request.trial_epochs),
        sinks=None if request.capture is None else capturing(request.capture),
        generated_uids=installed(),
        standby=request.standby,
        succeeds=request.succeeds,
        pinned=request.parallelism is not None and not request.standby and not request.resumed,
        predecessors={} if request.predecessor is None else dict([request.predecessor]),
        force=request.force,
        work=work,
    )
    return _run(invoked, launch, driving, announcer)


def _run(invoked: Invocation, launch: Launch, driving: Driving, announcer: Announcer) -> ProgramEnd:
    app, failure = invoked.source.path, None
    code = 0
    with driving.signals(), launching(launch), as_main(invoked.source, invoked.arguments):
        try:
            code = _exit_code(invoked.source, announcer)
            driving.wait()
        except BaseException as error:
            driving.cancel_all()
            driving.wait()
            failure = error
    if driving.interrupted is not None:
        return ProgramEnd(128 + driving.interrupted)
    if failure is not None and not any(failure is each for each in driving.errors):
        return ProgramEnd(program_error=ProgramFailed(app, failure))
    if failure is not None or driving.errors:
        return ProgramEnd(job_error=failure or driving.errors[0])
    if not driving.started and code == 0:
        return ProgramEnd(program_error=NoJob(app))
    return ProgramEnd(code)


def _exit_code(source: Source, announcer: Announcer) -> int:
    try:
        run_program(source)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        announcer.exiting(str(error.code))
        return 1
    return 0
