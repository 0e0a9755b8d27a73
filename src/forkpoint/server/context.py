"""The context and dependencies of all routes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Query
from starlette.requests import Request

from forkpoint.server import messages as m
from forkpoint.server.commands import Commands
from forkpoint.server.errors import ErrorAnswer, described
from forkpoint.server.programs import Programs
from forkpoint.server.requests import Asked, Requests
from forkpoint.server.service import JobEntry, Service


@dataclass(frozen=True)
class Context:
    """``programs``: the uploaded programs; None at a job's own port."""

    service: Service
    requests: Requests
    programs: Programs | None = None
    commands: Commands = field(default_factory=Commands)

    def begin(
        self, kind: str, job: str | None, request: Request, work: Callable[[Asked], dict[str, Any]], request_id: str | None = None
    ) -> m.RequestId:
        """Start a long operation."""
        by = str(getattr(request.state, "role", None))
        return m.RequestId(request_id=self.requests.begin(kind, job, by, work, request_id).id)


async def context_of(request: Request) -> Context:  # async, because FastAPI runs other functions on a thread
    found: Context = request.app.state.context
    return found


RootQuery = Annotated[str | None, Query(description="one of the state roots, if there are several")]


def job_of(job: str, context: Annotated[Context, Depends(context_of)], root: RootQuery = None) -> JobEntry:
    """The job with this name or id."""
    return context.service.job(job, root)


Served = Annotated[Context, Depends(context_of)]
Job = Annotated[JobEntry, Depends(job_of)]
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": text}
    for status, text in {
        400: "the request is invalid",
        401: "no token, or a wrong one",
        403: "the token does not permit this",
        404: "not found",
        409: "not possible in the current state",
        413: "too large",
        503: "try again later",
    }.items()
}


def command(name: str) -> dict[str, Any]:
    """Marks a route as the counterpart of a command."""
    return {"x-forkpoint-command": name}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def shown(asked: Asked) -> m.RequestShown:
    """A request with its progress or result."""
    done = asked.future.done()
    error = asked.future.exception() if done else None
    progress = asked.progress_
    return m.RequestShown(
        id=asked.id,
        kind=asked.kind,
        job=asked.job,
        by=asked.by,
        started_ms=int(asked.started * 1000),
        status="IN_PROGRESS" if not done else "COMPLETED" if error is None else "FAILED",
        step=asked.step,
        done=None if progress is None else progress[0],
        total=None if progress is None else progress[1],
        remarks=list(asked.remarks),
        result=asked.future.result() if done and error is None else None,
        error=None if error is None else described(error),
    )
