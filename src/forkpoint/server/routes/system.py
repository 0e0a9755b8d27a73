"""Routes: the server itself, and long requests."""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import Literal

from fastapi import APIRouter
from msgspec import structs
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from forkpoint.errors import ForkpointError
from forkpoint.protocol.exposition import CONTENT_TYPE, Measured, exposition, exposition_of_roots
from forkpoint.server import flink
from forkpoint.server import messages as m
from forkpoint.server.context import ERRORS, RootQuery, Served, command, shown
from forkpoint.server.routes.programs import Setting
from forkpoint.server.segments import SegmentRoute

log = logging.getLogger("forkpoint")

READY = "/ready"
router = APIRouter(route_class=SegmentRoute, responses=ERRORS, tags=["server"])
scraped = APIRouter(route_class=SegmentRoute, responses=ERRORS, tags=["server"])


class Features(m.Shape):
    web_submit: bool
    web_cancel: bool = True
    web_history: bool = False


class ServerConfig(m.Shape):
    """``only``: the served job, at a job's own port. ``role``: the caller's."""

    refresh_interval: int = 1_000
    timezone_name: str = "UTC"
    timezone_offset: int = 0
    flink_version: str
    flink_revision: str
    features: Features
    forkpoint_version: str
    roots: list[str]
    only: str | None
    role: str


class ClusterOverview(m.Shape):
    taskmanagers: int = 0
    slots_total: int = 0
    slots_available: int = 0
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    flink_version: str
    flink_commit: str


class DoctorBody(m.Body):
    """``conf``: Spark's settings, of the cluster."""

    directories: list[m.Text] = Field(default_factory=list, max_length=100)
    conf: dict[m.Text, Setting] = Field(default_factory=dict, max_length=1_000)


class HealthProblem(m.ProblemShown):
    """A problem of the job with this name and id."""

    job: str
    jid: str


class Health(m.Snake):
    """``status``: the highest severity; ``ok`` without problems. ``problems``: the most severe first."""

    status: Literal["ok", "warning", "critical"]
    problems: list[HealthProblem]


class Ready(m.Snake):
    status: Literal["ok"] = "ok"


class RequestList(m.Snake):
    requests: list[m.RequestShown]


@router.get("/config", response_model=ServerConfig)
def config(request: Request, served: Served) -> ServerConfig:
    """The server's configuration."""
    own = version("forkpoint")
    return ServerConfig(
        flink_version=f"forkpoint {own}",
        flink_revision=own,
        features=Features(web_submit=served.programs is not None),
        forkpoint_version=own,
        roots=[root.place for root in served.service.roots],
        only=served.service.only,
        role=str(request.state.role),
    )


@router.get("/overview", response_model=ClusterOverview)
def overview(served: Served) -> ClusterOverview:
    """The number of jobs in each state."""
    states = [flink.state_of(entry) for entry in served.service.jobs()]
    own = version("forkpoint")
    return ClusterOverview(
        jobs_running=sum(each in ("RUNNING", "INITIALIZING", "RESTARTING") for each in states),
        jobs_finished=states.count("FINISHED"),
        jobs_cancelled=states.count("CANCELED"),
        jobs_failed=states.count("FAILED") + states.count("SUSPENDED"),
        flink_version=f"forkpoint {own}",
        flink_commit=own,
    )


@router.get("/health", response_model=Health)
def health(served: Served) -> Health:
    """The jobs' problems in sentences, with their severity."""
    found = [
        HealthProblem(job=entry.name, jid=entry.id, **structs.asdict(problem))
        for entry in served.service.jobs()
        for problem in entry.view.problems
    ]
    problems = sorted(found, key=lambda problem: problem.severity)
    return Health(status=problems[0].severity if problems else "ok", problems=problems)


@router.get("/requests", response_model=RequestList)
def requests(served: Served) -> RequestList:
    """The latest requests, newest first."""
    return RequestList(requests=[shown(each) for each in served.requests.latest()])


@router.get("/requests/{request_id}", response_model=m.RequestShown)
def request_(request_id: str, served: Served) -> m.RequestShown:
    """The progress or result of a request."""
    return shown(served.requests.find(request_id))


@router.post("/doctor", status_code=202, response_model=m.RequestId, openapi_extra=command("doctor"))
def doctor(body: DoctorBody, request: Request, served: Served, root: RootQuery = None) -> m.RequestId:
    """Check that the server's machine, and the hosts of a Spark cluster, can run jobs."""
    at = served.service.root(root)
    options = [part for each in body.directories for part in ("--directory", each)]
    options += [part for name, value in body.conf.items() for part in ("--conf", f"{name}={value}")]

    return served.begin("doctor", None, request, lambda asked: served.commands.run(at, ["doctor", *options], asked))


@scraped.get(READY, response_model=Ready, openapi_extra={"security": []})
def ready(served: Served) -> Ready:
    """Whether all state roots answer: for the probes of Kubernetes and load balancers, which have no token and get no details."""
    try:
        served.service.check()
    except (ForkpointError, OSError):
        log.warning("not ready", exc_info=True)
        raise HTTPException(503, "a state root does not answer; the server's log says why") from None
    return Ready()


@scraped.get("/metrics", response_class=PlainTextResponse)
def metrics(served: Served) -> PlainTextResponse:
    """The metrics of all jobs, for Prometheus."""
    service, roots = served.service, {}
    entries = service.jobs()
    for root in service.roots:
        own = [entry for entry in entries if entry.root == root]
        found = [message for entry in own if (message := service.metrics(entry)) is not None]
        others = {entry.name: entry.view.state for entry in own if entry.view.state in ("lost", "silent", "failed")}
        roots[root.place] = Measured(found, others)
    (only, *more) = roots.values()
    text = exposition_of_roots(roots) if more else exposition(only.jobs, only.others)
    return PlainTextResponse(text, media_type=CONTENT_TYPE)
