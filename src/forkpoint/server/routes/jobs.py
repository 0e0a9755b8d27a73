"""Routes: jobs, at Flink's paths, with forkpoint's additions."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from forkpoint import operations
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import LOGS
from forkpoint.driver.start.programs import load_program
from forkpoint.errors import JobNotFound
from forkpoint.operations.shapes import explained_json, savepoints_json
from forkpoint.savepoint.catalog.labels import check_label
from forkpoint.server import flink
from forkpoint.server import messages as m
from forkpoint.server.context import ERRORS, Job, Served, command, now_ms
from forkpoint.server.requests import Asked
from forkpoint.server.segments import SegmentRoute
from forkpoint.server.service import CheckpointNotFound

router = APIRouter(route_class=SegmentRoute, responses=ERRORS, tags=["jobs"])
LOG_LINES = 10_000
LOG_BYTES = 8_000_000  # of the end of a log, in which the lines are


@router.get("/jobs", response_model=m.JobIds)
def jobs(served: Served) -> m.JobIds:
    """The ids and states of all jobs."""
    return m.JobIds(jobs=[m.JobIdStatus(id=entry.id, status=flink.state_of(entry)) for entry in served.service.jobs()])


@router.get("/jobs/overview", response_model=m.JobOverviews, openapi_extra=command("list"))
def overview(served: Served) -> m.JobOverviews:
    """All jobs, by their start, the latest first."""
    now = now_ms()
    return m.JobOverviews(jobs=[flink.overview(entry, now) for entry in served.service.jobs()])


@router.get("/jobs/{job}", response_model=m.JobDetails)
def details(entry: Job, served: Served) -> m.JobDetails:
    """A job: its operators with counts and watermarks, its sources' splits, its plan."""
    service = served.service
    measured = service.metrics(entry)
    newest = History(entry.storage, entry.paths).newest()
    return flink.details(entry, service.plan(entry), service.record(entry), measured, newest, now_ms())


@router.get("/jobs/{job}/status", response_model=m.JobStatusShown)
def status(entry: Job) -> m.JobStatusShown:
    """The state of a job."""
    return m.JobStatusShown(status=flink.state_of(entry))


@router.get("/jobs/{job}/execution-result", response_model=m.ExecutionResult, response_model_exclude_none=True)
def execution_result(entry: Job) -> m.ExecutionResult:
    """The end of a job's newest run."""
    return flink.execution_result(entry)


@router.get("/jobs/{job}/plan", response_model=m.PlanAnswer)
def plan(entry: Job, served: Served) -> m.PlanAnswer:
    """The operators of a job and their connections."""
    service = served.service
    return m.PlanAnswer(plan=flink.plan(entry, service.plan(entry), service.record(entry)))


@router.get("/jobs/{job}/config", response_model=m.JobConfig)
def config(entry: Job, served: Served) -> m.JobConfig:
    """The recorded options of a job's newest run."""
    return flink.config(entry, served.service.record(entry))


@router.get("/jobs/{job}/exceptions", response_model=m.JobExceptions)
def exceptions(entry: Job, served: Served) -> m.JobExceptions:
    """The failures of a job's newest run, newest first."""
    return flink.exceptions(entry, served.service.journal(entry))


@router.get("/jobs/{job}/checkpoints", response_model=m.Checkpoints)
def checkpoints(entry: Job, served: Served) -> m.Checkpoints:
    """A running job's latest epochs as checkpoints, newest first."""
    return flink.checkpoints(entry, served.service.journal(entry))


@router.get("/jobs/{job}/checkpoints/config", response_model=m.CheckpointsConfig)
def checkpoints_config(entry: Job, served: Served) -> m.CheckpointsConfig:
    """A job's configuration of checkpoints."""
    return flink.checkpoints_config(entry, served.service.record(entry))


@router.get("/jobs/{job}/checkpoints/details/{epoch}", response_model=m.Checkpoint)
def checkpoint(entry: Job, epoch: int, served: Served) -> m.Checkpoint:
    """One of a running job's latest epochs."""
    found = next((e for e in flink.checkpoints(entry, served.service.journal(entry)).history if e.id == epoch), None)
    if found is None:
        raise CheckpointNotFound(
            f"job {entry.name!r} has no checkpoint {epoch} among the latest, which its driver keeps while it runs; "
            "see /checkpoints"
        )
    return found


@router.get("/jobs/{job}/runs", response_model=m.Runs)
def runs(entry: Job, request: Request) -> m.Runs:
    """A job's runs, newest first, with their programs."""
    operates = request.state.role == "operate"

    def shown(view: Any) -> m.RunShown:
        program = load_program(entry.storage, entry.name, view.run)
        return m.RunShown(
            run=view.run,
            state=view.state,
            newest=view.newest,
            started_ms=view.started_ms,
            ended_ms=view.ended_ms,
            epoch=view.epoch,
            restarts=view.restarts,
            reason=view.reason,
            parent=view.parent.content(),
            program=None if program is None else program.app,
            arguments=program.arguments if program is not None and operates else None,
        )

    return m.Runs(runs=[shown(view) for view in entry.runs])


@router.get("/jobs/{job}/savepoints", openapi_extra=command("savepoints"))
def savepoints(entry: Job) -> dict[str, Any]:
    """The savepoints of a job, oldest first, as `forkpoint savepoints` prints them."""
    return savepoints_json(operations.savepoints(entry.name, state_root=entry.root.place))


@router.get("/jobs/{job}/explanation", openapi_extra=command("explain"))
def explanation(entry: Job) -> dict[str, Any]:
    """The operators of a job's newest run, and how much they have read and keep, as `forkpoint explain` prints them."""
    return explained_json(operations.explain(entry.name, state_root=entry.root.place))


@router.get("/jobs/{job}/log", response_class=PlainTextResponse)
def log(entry: Job, lines: Annotated[int, Query(ge=1, le=LOG_LINES)] = 200) -> str:
    """The last lines of the log of a job that runs in the background."""
    endpoint, root = entry.view.endpoint, entry.root
    path = None if endpoint is None or endpoint.log is None else Path(endpoint.log).resolve()
    if path is None or not path.is_relative_to((Path(root.log_directory) / LOGS).resolve()):
        raise JobNotFound(f"job {entry.name!r} has no log below the state root: it does not run in the background")
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - LOG_BYTES)
            file.seek(start)
            if start:
                file.readline()  # the rest of a line
            return b"".join(deque(file, lines)).decode(errors="replace")
    except OSError as error:
        raise JobNotFound(f"the log of job {entry.name!r} cannot be read: {error.strerror}") from None


@router.post("/jobs/{job}/savepoints", status_code=202, response_model=m.RequestId, openapi_extra=command("savepoint"))
def take_savepoint(entry: Job, body: m.SavepointBody, request: Request, served: Served) -> m.RequestId:
    """Take a savepoint of a running job; `cancel-job` stops the job with it."""
    directory = served.service.directory(body.target_directory, entry)
    if body.label is not None:
        check_label(body.label)
    served.service.client(entry).close()

    def work(asked: Asked) -> dict[str, Any]:
        name, root = entry.name, entry.root.place
        if body.cancel_job:
            stopped = operations.stop(
                name,
                directory,
                skip_unreadable=body.skip_unreadable,
                self_contained=body.self_contained,
                state_root=root,
                observer=asked,
            )
            return {"job": name, "run": stopped.run, "savepoint": stopped.savepoint}
        taken = operations.savepoint(
            name,
            directory,
            label=body.label,
            note=body.note,
            skip_unreadable=body.skip_unreadable,
            self_contained=body.self_contained,
            state_root=root,
            observer=asked,
        )
        return {"job": name, "run": taken.run, "savepoint": taken.savepoint}

    return served.begin("savepoint", entry.name, request, work, body.trigger_id)


@router.post("/jobs/{job}/stop", status_code=202, response_model=m.RequestId, openapi_extra=command("stop"))
def stop(entry: Job, body: m.StopBody, request: Request, served: Served) -> m.RequestId:
    """Stop a job with a savepoint. Poll for the answer at the path for savepoints."""
    directory = served.service.directory(body.target_directory, entry)
    served.service.client(entry).close()

    def work(asked: Asked) -> dict[str, Any]:
        stopped = operations.stop(
            entry.name,
            directory,
            drain=body.drain,
            skip_unreadable=body.skip_unreadable,
            self_contained=body.self_contained,
            state_root=entry.root.place,
            observer=asked,
        )
        return {"job": entry.name, "run": stopped.run, "savepoint": stopped.savepoint, "drained": stopped.drained}

    return served.begin("savepoint", entry.name, request, work, body.trigger_id)


@router.get("/jobs/{job}/savepoints/{trigger}", response_model=m.SavepointStatus, response_model_exclude_none=True)
def savepoint_status(entry: Job, trigger: str, served: Served) -> m.SavepointStatus:
    """The status of a requested savepoint or stop."""
    found = served.requests.find(trigger, "savepoint", entry.name)
    if not found.future.done():
        return m.SavepointStatus(status=m.AsynchronousStatus(id="IN_PROGRESS"))
    error = found.future.exception()
    operation = (
        m.SavepointOperation(location=found.future.result()["savepoint"])
        if error is None
        else m.SavepointOperation(failure_cause=failure_cause(error))
    )
    return m.SavepointStatus(status=m.AsynchronousStatus(id="COMPLETED"), operation=operation)


def failure_cause(error: BaseException) -> m.FailureCause:
    return m.FailureCause(class_=f"forkpoint.{type(error).__name__}", stack_trace=str(error))


@router.patch("/jobs/{job}", status_code=202, response_model=m.Empty, openapi_extra=command("cancel"))
def cancel(entry: Job, served: Served, mode: Literal["cancel"] = "cancel") -> m.Empty:
    """Cancel a job, without a savepoint."""
    with served.service.client(entry) as client:
        client.cancel()
    served.service.changed()
    return m.Empty()


@router.patch("/jobs/{job}/rescaling", status_code=202, response_model=m.RequestId, openapi_extra=command("rescale"))
def rescale(entry: Job, parallelism: Annotated[int, Query(ge=1, le=32768)], request: Request, served: Served) -> m.RequestId:
    """Change the parallelism of a running job."""
    served.service.client(entry).close()

    def work(asked: Asked) -> dict[str, Any]:
        done = operations.rescale(entry.name, parallelism, state_root=entry.root.place, observer=asked)
        return {"job": done.job, "run": done.run, "parallelism": done.parallelism, "epoch": done.epoch}

    return served.begin("rescale", entry.name, request, work)


@router.get("/jobs/{job}/rescaling/{trigger}", response_model=m.DisposalStatus, response_model_exclude_none=True)
def rescale_status(entry: Job, trigger: str, served: Served) -> m.DisposalStatus:
    """The status of a rescaling."""
    return disposal_status(served.requests.find(trigger, "rescale", entry.name))


def disposal_status(found: Asked) -> m.DisposalStatus:
    if not found.future.done():
        return m.DisposalStatus(status=m.AsynchronousStatus(id="IN_PROGRESS"))
    error = found.future.exception()
    operation = m.DisposalOperation(failure_cause=None if error is None else failure_cause(error))
    return m.DisposalStatus(status=m.AsynchronousStatus(id="COMPLETED"), operation=operation)
