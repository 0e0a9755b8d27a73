"""Routes: programs, and the operations that start or replace jobs with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field, model_validator
from starlette.requests import Request

from forkpoint.driver.start.programs import find_program
from forkpoint.errors import ConfigError, JobNotFound
from forkpoint.graph.options import LEAST_MEMORY_BYTES, Autoscale, RestoreOptions, SavepointSchedule
from forkpoint.operations import RunRequest, with_predecessor
from forkpoint.operations.launch.recorded import PREFIX
from forkpoint.operations.roots import StateRoot
from forkpoint.server import messages as m
from forkpoint.server.commands import CHECK_SECONDS
from forkpoint.server.context import ERRORS, Context, Job, Served, command
from forkpoint.server.programs import Programs, Uploaded
from forkpoint.server.segments import SegmentRoute
from forkpoint.server.service import JobRunning

router = APIRouter(route_class=SegmentRoute, responses=ERRORS, tags=["programs"])
Setting = Annotated[str, Field(max_length=10_000)]
_LONGEST_MS = 10 * 365 * 24 * 60 * 60 * 1000


class ProgramShown(m.Snake):
    id: str
    name: str
    bytes: int
    uploaded_ms: int


class ProgramList(m.Snake):
    programs: list[ProgramShown]


class StartBody(m.Body):
    """The options of a program's start. ``conf``: Spark's settings; `spark.submit.pyFiles`, `spark.files` and `spark.archives`
    correspond to `--py-files`, `--files` and `--archives`."""

    arguments: list[Setting] = Field(default_factory=list, max_length=1_000)
    parallelism: int | None = Field(None, ge=1, le=32768)
    max_parallelism: int | None = Field(None, ge=1, le=32768)
    memory_bytes: int | None = Field(None, ge=LEAST_MEMORY_BYTES)
    engine: m.Text | None = Field(None, pattern="^(spark|local)$")
    pyflink: bool = False
    allow_non_restored_state: bool = False
    renames: dict[m.Text, m.Text] = Field(default_factory=dict, max_length=1_000)
    accept_empty: list[m.Text] = Field(default_factory=list, max_length=1_000)
    conf: dict[m.Text, Setting] = Field(default_factory=dict, max_length=1_000)
    ship_env: bool = False
    pass_env: list[m.Text] = Field(default_factory=list, max_length=1_000)


class Schedule(m.Body):
    """Scheduled savepoints, one per interval."""

    interval_ms: int = Field(ge=1, le=_LONGEST_MS)
    keep_last: int | None = Field(None, ge=1, le=1_000_000)
    keep_for_ms: int | None = Field(None, ge=1, le=_LONGEST_MS)


class Bounds(m.Body):
    """The bounds of autoscaling, both inclusive."""

    minimum: int = Field(ge=1, le=32768)
    maximum: int = Field(ge=1, le=32768)


class ProgramBody(StartBody):
    """A program, with the options of its start. ``program``: the id of an uploaded program; ``run``: the id of a run, for its
    recorded program."""

    program: m.Text | None = None
    run: m.Text | None = None
    savepoint_schedule: Schedule | None = None
    autoscale: Bounds | None = None

    @model_validator(mode="after")
    def _one_program(self) -> ProgramBody:
        if (self.program is None) == (self.run is None):
            raise ValueError("give either program, the id of an uploaded one, or run, the id of a run")
        return self


class RunBody(ProgramBody):
    """``savepoint``: an id, a label, `latest` or `none`. ``claim``: the run takes ownership of it. ``force``: start even if
    another run has led the job since the request."""

    name: m.Text | None = None
    savepoint: m.Text | None = None
    claim: bool = False
    allow_drained: bool = False
    standby: bool = False
    force: bool = False
    until: m.Text | None = None


class RestartBody(m.Body):
    """``run``: the run of the job whose program, arguments and options to use; None: the newest. ``savepoint``: an id, a label,
    or `latest`; None: the job's last checkpoint."""

    run: m.Text | None = None
    savepoint: m.Text | None = None
    parallelism: int | None = Field(None, ge=1, le=32768)
    allow_non_restored_state: bool = False
    allow_drained: bool = False


class ForkBody(ProgramBody):
    """``origin``: a savepoint's id or label; None for the job's current state."""

    name: m.Text
    origin: m.Text | None = None
    until: m.Text | None = None


class UpgradeBody(ProgramBody):
    watch_epochs: int = Field(3, ge=0, le=1_000_000)
    timeout_seconds: float = Field(300, gt=0, le=1_000_000)
    stop_first: bool = False


class CheckBody(m.Body):
    program: m.Text
    arguments: list[Setting] = Field(default_factory=list, max_length=1_000)
    savepoint: m.Text = "latest"
    name: m.Text | None = None
    pyflink: bool = False
    allow_non_restored_state: bool = False
    renames: dict[m.Text, m.Text] = Field(default_factory=dict, max_length=1_000)
    accept_empty: list[m.Text] = Field(default_factory=list, max_length=1_000)


class AbBody(StartBody):
    """Two versions over the same inputs. ``until``: a time, or a savepoint's id or label. ``samples``: the number of differing
    keys to return for each sink."""

    savepoint: m.Text
    program_a: m.Text
    program_b: m.Text
    until: m.Text | None = None
    keys: list[m.Text] = Field(default_factory=list, max_length=100)
    samples: int = Field(5, ge=0, le=1_000)


@router.get("/programs", response_model=ProgramList)
def programs(served: Served) -> ProgramList:
    """The uploaded programs, newest first."""
    return ProgramList(programs=[_shown(each) for each in _programs(served).all()])


@router.post(
    "/programs",
    status_code=201,
    response_model=ProgramShown,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary", "minLength": 1}}},
        }
    },
)
async def upload(
    request: Request, served: Served, name: Annotated[str, Query(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\.py$")]
) -> ProgramShown:
    """Upload a program: a Python file, or a ZIP archive of it and its modules. ``name``: the program's file."""
    return _shown(_programs(served).add(name, await request.body()))


@router.post("/jobs", status_code=202, response_model=m.RequestId, openapi_extra=command("run"))
def run(body: RunBody, request: Request, served: Served, root: Annotated[str | None, Query()] = None) -> m.RequestId:
    """Start a job in the background, on the server's machine."""
    at = served.service.root(root)
    restored = body.savepoint
    if restored is not None and restored not in ("latest", "none"):
        _, restored = served.service.savepoint(restored, at.place)
    until = None if body.until is None else _until(served, at, body.until)
    asked = _request(
        served,
        at,
        body,
        name=body.name,
        until=until,
        standby=body.standby,
        savepoint=restored,
        claim=body.claim,
        allow_drained=body.allow_drained,
        force=body.force,
    )
    asked = with_predecessor(at, asked)
    return _begin(served, request, "run", body.name, at, ["run", "-d", *asked.command_line])


@router.post("/jobs/{job}/restart", status_code=202, response_model=m.RequestId)
def restart(entry: Job, body: RestartBody, request: Request, served: Served) -> m.RequestId:
    """Restart a job that does not run, on the server's machine, with the program, arguments and options of its newest run."""
    at, run = entry.root, body.run or entry.view.run
    if entry.view.is_live:
        raise JobRunning(f"job {entry.name!r} runs (run {entry.view.run} is {entry.view.state}); stop it first")
    if all(each.run != run for each in entry.runs):
        raise JobNotFound(f"job {entry.name!r} has no run {run!r}")
    find_program(at.storage, run)  # raises if none is recorded
    restored = body.savepoint
    if restored not in (None, "latest"):
        _, restored = served.service.savepoint(restored, at.place)
    restore = RestoreOptions(restored, body.allow_non_restored_state, allow_drained=body.allow_drained)
    asked = with_predecessor(at, RunRequest(f"{PREFIX}{run}", restore=restore, parallelism=body.parallelism))
    return _begin(served, request, "run", entry.name, at, ["run", "-d", *asked.command_line])


@router.post("/jobs/{job}/fork", status_code=202, response_model=m.RequestId, openapi_extra=command("fork"))
def fork(entry: Job, body: ForkBody, request: Request, served: Served) -> m.RequestId:
    """Start a program as a new job, from a savepoint or the current state of a job."""
    at = entry.root
    origin = entry.name if body.origin is None else served.service.savepoint(body.origin, at.place)[1]
    until = None if body.until is None else _until(served, at, body.until)
    asked = _request(served, at, body, name=body.name, until=until)
    arguments = ["fork", "-d", *asked.options, "--", origin, asked.app, *asked.arguments]
    return _begin(served, request, "fork", entry.name, at, arguments)


@router.post("/jobs/{job}/upgrade", status_code=202, response_model=m.RequestId, openapi_extra=command("upgrade"))
def upgrade(entry: Job, body: UpgradeBody, request: Request, served: Served) -> m.RequestId:
    """Replace the program of a running job; rolls back if the new one fails."""
    if body.program is None:
        raise ConfigError("an upgrade needs an uploaded program")
    served.service.client(entry).close()
    asked = _request(served, entry.root, body)
    options = ["--watch-epochs", str(body.watch_epochs), "--timeout", str(body.timeout_seconds)]
    options += ["--stop-first"] if body.stop_first else []
    arguments = ["upgrade", *options, *asked.options, "--", entry.name, asked.app, *asked.arguments]
    return _begin(served, request, "upgrade", entry.name, entry.root, arguments)


@router.post("/check", status_code=202, response_model=m.RequestId, openapi_extra=command("check"))
def check(body: CheckBody, request: Request, served: Served, root: Annotated[str | None, Query()] = None) -> m.RequestId:
    """Check how a restore would treat a savepoint's state in a program."""
    at, saved = served.service.root(root), body.savepoint
    if saved != "latest":
        at, saved = served.service.savepoint(saved, root)
    options = ["-s", saved, *_flags({"-n": body.allow_non_restored_state, "--pyflink": body.pyflink})]
    options += [] if body.name is None else ["--name", body.name]
    options += [part for old, new in body.renames.items() for part in ("--map", f"{old}={new}")]
    options += [part for uid in body.accept_empty for part in ("--accept", f"{uid}=empty")]
    app = str(_programs(served).find(body.program).file)
    return _begin(served, request, "check", body.name, at, ["check", *options, "--", app, *body.arguments])


@router.post("/ab", status_code=202, response_model=m.RequestId, openapi_extra=command("ab"))
def ab(body: AbBody, request: Request, served: Served) -> m.RequestId:
    """Run two programs from a savepoint over the same inputs, and compare their output and state."""
    at, saved = served.service.savepoint(body.savepoint)
    a, b = (str(_programs(served).find(each).file) for each in (body.program_a, body.program_b))
    until = None if body.until is None else _until(served, at, body.until)
    asked = replace(_started(body, a), until=until)
    options = ["--samples", str(body.samples), *(part for each in body.keys for part in ("--key", each))]
    return _begin(served, request, "ab", None, at, ["ab", *options, *asked.options, "--", saved, a, b, *body.arguments])


def _begin(served: Context, request: Request, kind: str, job: str | None, at: StateRoot, arguments: Sequence[str]) -> m.RequestId:
    limit_seconds = CHECK_SECONDS if kind == "check" else None
    return served.begin(kind, job, request, lambda asked: served.commands.run(at, arguments, asked, limit_seconds))


def _request(
    served: Context,
    at: StateRoot,
    body: ProgramBody,
    *,
    savepoint: str | None = None,
    claim: bool = False,
    allow_drained: bool = False,
    **more: Any,
) -> RunRequest:
    app = f"{PREFIX}{body.run}" if body.program is None else str(_programs(served).find(body.program).file)
    started, schedule, bounds = _started(body, app), body.savepoint_schedule, body.autoscale
    return replace(
        started,
        restore=replace(started.restore, savepoint=savepoint, claim=claim, allow_drained=allow_drained),
        savepoint_schedule=None if schedule is None else SavepointSchedule(**schedule.model_dump()),
        autoscale=None if bounds is None else Autoscale(bounds.minimum, bounds.maximum),
        **more,
    )


def _started(body: StartBody, app: str) -> RunRequest:
    """The request for a program with these options."""
    return RunRequest(
        app,
        tuple(body.arguments),
        restore=RestoreOptions(None, body.allow_non_restored_state, dict(body.renames), accept_empty=tuple(body.accept_empty)),
        parallelism=body.parallelism,
        max_parallelism=body.max_parallelism,
        memory_bytes=body.memory_bytes,
        engine=body.engine,
        pyflink=body.pyflink,
        spark=dict(body.conf),
        ship_env=body.ship_env,
        pass_env=tuple(body.pass_env),
    )


def _until(served: Context, at: StateRoot, given: str) -> str:
    """A time, or the path of a savepoint by its name."""
    is_time = given.isdecimal() or given[:4].isdecimal()
    return given if is_time else served.service.savepoint(given, at.place)[1]


def _flags(flags: Mapping[str, bool]) -> list[str]:
    return [flag for flag, on in flags.items() if on]


def _programs(served: Context) -> Programs:
    if served.programs is None:
        raise ConfigError("programs can't be uploaded here; `forkpoint server` takes them")
    return served.programs


def _shown(found: Uploaded) -> ProgramShown:
    return ProgramShown(id=found.id, name=found.name, bytes=found.bytes, uploaded_ms=found.uploaded_ms)
