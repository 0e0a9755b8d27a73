"""The runs under a state root, according to their records and drivers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import RUN, Parent, Run
from forkpoint.checkpoint.paths import JOBS, JobPaths, job_of, parse_run_file
from forkpoint.checkpoint.unpublished import Unpublished, find_unpublished
from forkpoint.errors import ForkpointError, JobNotFound
from forkpoint.protocol.client import RunClient, Unreachable
from forkpoint.protocol.endpoint import ENDPOINT, Endpoint, endpoints, process_exists
from forkpoint.protocol.http import over_http
from forkpoint.protocol.mailbox import by_mail
from forkpoint.protocol.messages import Problem, StatusMessage
from forkpoint.wording import one_line

if TYPE_CHECKING:
    from forkpoint.storage.base import Storage

T = TypeVar("T")

PROBE_SECONDS = 4.0  # for a list of runs; a mailbox usually needs two seconds
FIND_SECONDS = 10.0  # for a command, which must not miss a busy driver
_PROBES = 16  # in parallel

RunState = Literal[
    "starting",
    "standby",
    "running",
    "restarting",
    "ending",
    "silent",
    "elsewhere",
    "lost",
    "unknown",
    "finished",
    "stopped",
    "cancelled",
    "failed",
    "superseded",
]
"""``starting`` to ``ending``: the driver answers. ``standby``: it waits for the death of the job's leader. ``silent``: it does
not answer in time. ``elsewhere``: it ran on another machine and does not answer: it was killed, or is cut off from the state
root. ``lost``: it was killed. ``unknown``: an older release started it, and no end is recorded. All others are recorded
outcomes."""

_FROM_NOTHING = Parent()
_ENDS: dict[RunState, str] = {
    "finished": "has finished",
    "stopped": "was stopped",
    "cancelled": "was cancelled",
    "superseded": "was superseded",
}


@dataclass(frozen=True)
class RunView:
    """One run. ``newest``: it is its job's newest run. ``epoch``, ``records_read`` and ``late_records_dropped`` (by operator uid)
    are None if unknown. ``doing``: a description of a long epoch or start. ``status``: its driver's answer. ``unpublished``: for
    the newest run of a job that does not run: committed output that may be unpublished."""

    job: str
    run: str
    state: RunState
    newest: bool
    started_ms: int
    ended_ms: int | None = None
    uptime_ms: int | None = None
    epoch: int | None = None
    restarts: int | None = None
    records_read: int | None = None
    parent: Parent = _FROM_NOTHING
    reason: str | None = None
    endpoint: Endpoint | None = None
    late_records_dropped: Mapping[str, int] | None = None
    doing: str | None = None
    status: StatusMessage | None = None
    unpublished: Unpublished | None = None

    @property
    def problems(self) -> Sequence[Problem]:
        """Its problems, the most severe first. A run that a newer one has replaced has none."""
        if self.status is not None:
            return self.status.problems
        found = problem_of_run(self.state, self.run, self.reason) if self.newest else None
        left = None if self.unpublished is None else Problem("warning", "unpublished", None, self.unpublished.text)
        return [problem for problem in (found, left) if problem is not None]

    @property
    def is_live(self) -> bool:
        return self.state in ("starting", "standby", "running", "restarting", "ending", "silent")

    @property
    def may_be_live(self) -> bool:
        """Whether it runs, or may run without being reachable from here."""
        return self.is_live or (self.newest and self.state in ("elsewhere", "unknown"))


def problem_of_run(state: str, run: str, reason: str | None) -> Problem | None:
    """The problem of a run that does not answer or has ended, if any."""
    match state:
        case "lost":
            return Problem("critical", "lost", None, f"lost: the driver of run {run} was killed; run its program again")
        case "failed":
            return Problem("critical", "failed", None, f"failed: {one_line(reason or 'no reason was recorded')}")
        case "silent":
            return Problem("critical", "silent", None, "does not answer, although its driver is alive")
        case "elsewhere":
            return Problem("warning", "elsewhere", None, "does not answer; its driver ran on another machine")
    return None


def list_runs(storage: Storage, job: str | None = None) -> list[RunView]:
    """All recorded runs, of one job or of all, newest first. Queries the drivers that may be running."""
    paths = storage.list(JOBS if job is None else JobPaths(job).directory)
    runs: dict[tuple[str, str], Run] = {}
    ports: dict[tuple[str, str], Endpoint] = {}
    for path in paths:
        file = parse_run_file(path)
        if file is None:
            continue
        if file.kind == "run":
            if (record := RUN.load_if_whole(storage, path)) is not None:
                runs[file.job, file.run] = record
        elif (endpoint := ENDPOINT.load_if_whole(storage, path)) is not None:
            ports[file.job, file.run] = endpoint
    starts = {key: record.started_ms for key, record in runs.items()} | {k: e.started_ms for k, e in ports.items()}
    newest = _newest_runs(runs, ports)
    epochs = _newest_epochs(paths)

    def view(key: tuple[str, str]) -> RunView:
        job, run = key
        found = _view(storage, key, runs.get(key), ports.get(key), newest.get(job) == run, epochs.get(job))
        if not found.newest or found.may_be_live:
            return found
        records = {record.run: record for record in runs.values() if record.job == job}
        return replace(found, unpublished=find_unpublished(History(storage, JobPaths(job)), records))

    with ThreadPoolExecutor(_PROBES) as pool:  # a timeout of a dead driver takes seconds
        return list(pool.map(view, sorted(starts, key=lambda k: (-starts[k], k))))


def _newest_runs(runs: Mapping[tuple[str, str], Run], ports: Mapping[tuple[str, str], Endpoint]) -> dict[str, str]:
    """Each job's newest run: the recorded run with the highest generation, regardless of clocks; or a run that was started later
    and is not recorded yet."""
    newest: dict[str, Run] = {}
    for run in runs.values():
        known = newest.get(run.job)
        if known is None or (known.generation, known.started_ms) < (run.generation, run.started_ms):
            newest[run.job] = run
    found = {job: (run.started_ms, run.run) for job, run in newest.items()}
    for (job, run_id), endpoint in ports.items():
        if (job, run_id) not in runs and not endpoint.standby:
            found[job] = max(found.get(job, (0, "")), (endpoint.started_ms, run_id))
    return {job: run_id for job, (_, run_id) in found.items()}


def load_runs(storage: Storage, job: str | None = None) -> list[Run]:
    """The records of all runs, of one job or of all."""
    files = [(parse_run_file(path), path) for path in storage.list(JOBS if job is None else JobPaths(job).runs)]
    found = [RUN.load_if_whole(storage, path) for file, path in files if file is not None and file.kind == "run"]
    return [record for record in found if record is not None]


def find_client(storage: Storage, job: str) -> RunClient | None:
    """A client of the job's running driver, on any host; None if no driver answers."""
    known = sorted((e for e in endpoints(storage, job) if not e.standby), key=lambda e: -e.started_ms)  # newest first
    here = next((e for e in known if _is_here(e) and _probe_port(e) is not None), None)
    if here is not None:
        return over_http(here)
    with ThreadPoolExecutor(_PROBES) as pool:
        answers = zip(known, pool.map(lambda e: probe(storage, e, FIND_SECONDS), known), strict=True)
        there = next((e for e, answer in answers if isinstance(answer, StatusMessage)), None)
    return None if there is None else by_mail(storage, there)


def client_of(storage: Storage, endpoint: Endpoint) -> RunClient:
    """A client of a run that was alive a moment ago."""
    reachable = _is_here(endpoint) and _probe_port(endpoint) is not None
    return over_http(endpoint) if reachable else by_mail(storage, endpoint)


def asked(storage: Storage, endpoint: Endpoint, ask: Callable[[RunClient], T]) -> T:
    """The answer of a run that was alive a moment ago, through its port or else its mailbox."""
    if _is_here(endpoint) and endpoint.port is not None:
        with suppress(Unreachable), over_http(endpoint) as client:
            return ask(client)
    with by_mail(storage, endpoint) as client:
        return ask(client)


def find_live(storage: Storage, job: str) -> RunClient:
    """A client of the job's running driver. Raises JobNotFound, with the job's last known state."""
    client = find_client(storage, job)
    if client is not None:
        return client
    views = list_runs(storage, job)
    if not views:
        known = sorted({name for path in storage.list(JOBS) if (name := job_of(path)) is not None})
        listed = f"; there are {', '.join(map(repr, known))}" if known else "; there are none yet"
        raise JobNotFound(f"there is no job {job!r} under {storage.url}{listed}")
    raise JobNotFound(f"job {job!r} is not running: {_last_state(views[0])}")


def drop_stale(storage: Storage, job: str) -> None:
    """Remove the endpoints and mailboxes of the job's killed drivers on this machine."""
    paths = JobPaths(job)
    for endpoint in endpoints(storage, job):
        if _is_here(endpoint) and probe(storage, endpoint) is None:
            storage.delete_prefix(paths.requests(endpoint.run))
            storage.delete_prefix(paths.answers(endpoint.run))
            storage.delete(paths.endpoint_file(endpoint.run))


def _last_state(view: RunView) -> str:
    run = f"its last run {view.run}"
    match view.state:
        case "lost":
            log = f"; its log is {view.endpoint.log}" if view.endpoint is not None and view.endpoint.log else ""
            return f"{run} was lost (its driver was killed){log}. Run the program again; it resumes from the last checkpoint"
        case "elsewhere" if view.endpoint is not None:
            return (
                f"{run} was started on machine {view.endpoint.machine!r} and does not answer: its driver was killed, or cannot "
                "reach the state root"
            )
        case "unknown":
            return f"{run} was started by an older release and cannot be commanded; it has no recorded end"
        case "failed":
            return f"{run} failed: {view.reason}"
        case _:
            return f"{run} {_ENDS.get(view.state, f'is {view.state}')}"


def _newest_epochs(paths: Iterable[str]) -> dict[str, int]:
    newest: dict[str, int] = {}
    for path in paths:
        job = job_of(path)
        file = JobPaths(job).parse(path) if job is not None else None
        if job is not None and file is not None and file.area == "manifest":
            newest[job] = max(file.epoch, newest.get(job, 0))
    return newest


def _view(
    storage: Storage, key: tuple[str, str], record: Run | None, endpoint: Endpoint | None, newest: bool, epoch: int | None
) -> RunView:
    job, run = key
    if record is not None and record.outcome is not None:
        return RunView(
            job,
            run,
            record.outcome,
            newest,
            record.started_ms,
            record.ended_ms,
            None if record.ended_ms is None else record.ended_ms - record.started_ms,
            epoch if newest else None,
            parent=record.parent,
            reason=record.reason,
        )
    started_ms = record.started_ms if record is not None else endpoint.started_ms if endpoint is not None else 0
    parent = record.parent if record is not None else _FROM_NOTHING
    # An older run is fenced; only its port answers fast enough to check whether its driver still runs.
    ask = endpoint is not None and (newest or endpoint.standby or (endpoint.port is not None and _is_here(endpoint)))
    status = probe(storage, endpoint) if endpoint is not None and ask else None
    if isinstance(status, StatusMessage):
        return RunView(
            job,
            run,
            "ending" if status.state == "ended" else status.state,
            newest,
            started_ms,
            None,
            status.now_ms - status.started_ms,
            status.epoch,
            status.restarts,
            status.records_read,
            parent,
            status.failure,
            endpoint,
            status.late_records_dropped,
            status.doing,
            status,
        )
    state: RunState
    if endpoint is None:
        state = "unknown" if newest else "lost"
    elif status == "silent":
        state = "silent"
    elif not _is_here(endpoint):
        state = "elsewhere"
    else:  # the driver was killed, or has just ended and recorded its end
        state = "lost"
        record = RUN.load_if_whole(storage, JobPaths(job).run_file(run))
        if record is not None and record.outcome is not None:
            return _view(storage, key, record, None, newest, epoch)
    return RunView(job, run, state, newest, started_ms, epoch=epoch if newest else None, parent=parent, endpoint=endpoint)


def _is_here(endpoint: Endpoint) -> bool:
    return endpoint.machine == socket.gethostname()


def probe(storage: Storage, endpoint: Endpoint, seconds: float = PROBE_SECONDS) -> StatusMessage | Literal["silent"] | None:
    """The driver's status, through its port or, if that is unreachable, its mailbox; "silent" if it is alive but does not answer;
    None if it has ended or may be cut off on another machine."""
    here = _is_here(endpoint)
    if here and endpoint.port is not None:
        found = _probe_port(endpoint)
        if found is not None or not process_exists(endpoint.pid):
            return found
    with by_mail(storage, endpoint, seconds) as client:
        try:
            return client.status()
        except Unreachable:
            return "silent" if here and endpoint.port is None and process_exists(endpoint.pid) else None
        except ForkpointError:
            return "silent"


def _probe_port(endpoint: Endpoint) -> StatusMessage | Literal["silent"] | None:
    if endpoint.port is None:
        return None
    with over_http(endpoint, PROBE_SECONDS) as client:
        try:
            return client.status()
        except Unreachable:
            return None
        except ForkpointError:
            return "silent"
