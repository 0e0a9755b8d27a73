"""The runs under a state root, according to their records and drivers."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from forkpoint.checkpoint.manifest import RUN, Parent, Run
from forkpoint.checkpoint.paths import JOBS, JobPaths, job_of, parse_run_file
from forkpoint.control.client import ControlClient, Unreachable
from forkpoint.control.endpoint import ENDPOINT, Endpoint, endpoints
from forkpoint.control.messages import StatusMessage
from forkpoint.errors import ForkpointError, JobNotFound
from forkpoint.storage.base import Storage

PROBE_SECONDS = 3.0

RunState = Literal[
    "starting", "running", "restarting", "ending", "silent", "elsewhere", "lost", "unknown",
    "finished", "stopped", "cancelled", "failed", "superseded",
]  # fmt: skip
"""``starting`` to ``ending``: the driver answers. ``silent``: it does not answer in time. ``elsewhere``: it runs, or ran, on
another machine. ``lost``: it was killed. ``unknown``: it has no control port (it was not started by ``forkpoint run``), and
no end on record. The rest are recorded outcomes."""

_FROM_NOTHING = Parent()
_ENDS: dict[RunState, str] = {
    "finished": "has finished",
    "stopped": "was stopped",
    "cancelled": "was cancelled",
    "superseded": "was superseded",
}


@dataclass(frozen=True)
class RunView:
    """One run. ``newest``: it is its job's newest one. ``epoch``, ``records_read`` and ``late_records_dropped`` (by operator
    uid) are None if unknown."""

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

    @property
    def is_live(self) -> bool:
        return self.state in ("starting", "running", "restarting", "ending", "silent")

    @property
    def may_be_live(self) -> bool:
        """Whether it runs, or may run without being reachable from here."""
        return self.is_live or (self.newest and self.state in ("elsewhere", "unknown"))


def list_runs(storage: Storage, job: str | None = None) -> list[RunView]:
    """All recorded runs, of one job or of all, newest first. Calls the drivers that may be running."""
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
    newest: dict[str, str] = {}
    for (name, run), _ in sorted(starts.items(), key=lambda item: (item[1], item[0])):
        newest[name] = run
    epochs = _newest_epochs(paths)
    views = []
    for key in sorted(starts, key=lambda k: (-starts[k], k)):
        is_newest = newest[key[0]] == key[1]
        views.append(_view(storage, key, runs.get(key), ports.get(key), is_newest, epochs.get(key[0])))
    return views


def load_runs(storage: Storage, job: str | None = None) -> list[Run]:
    """The records of all runs, of one job or of all."""
    files = [(parse_run_file(path), path) for path in storage.list(JOBS if job is None else JobPaths(job).runs)]
    found = [RUN.load_if_whole(storage, path) for file, path in files if file is not None and file.kind == "run"]
    return [record for record in found if record is not None]


def live_endpoint(storage: Storage, job: str) -> Endpoint | None:
    """The endpoint of the job's running driver; None if none runs on this machine."""
    return next((each for each in endpoints(storage, job) if _is_here(each) and probe(each) is not None), None)


def find_live(storage: Storage, job: str) -> ControlClient:
    """A client of the job's running driver. Raises JobNotFound, with the job's last known state."""
    endpoint = live_endpoint(storage, job)
    if endpoint is not None:
        return ControlClient(endpoint)
    views = list_runs(storage, job)
    if not views:
        known = sorted({name for path in storage.list(JOBS) if (name := job_of(path)) is not None})
        listed = f"; there are {', '.join(map(repr, known))}" if known else "; there are none yet"
        raise JobNotFound(f"there is no job {job!r} under {storage.url}{listed}")
    raise JobNotFound(f"job {job!r} is not running: {_last_state(views[0])}")


def drop_stale(storage: Storage, job: str) -> None:
    """Remove the endpoints of the job's drivers that were killed."""
    for endpoint in endpoints(storage, job):
        if _is_here(endpoint) and probe(endpoint) is None:
            storage.delete(JobPaths(job).endpoint_file(endpoint.run))


def _last_state(view: RunView) -> str:
    run = f"its last run {view.run}"
    match view.state:
        case "lost":
            log = f"; its log is {view.endpoint.log}" if view.endpoint is not None and view.endpoint.log else ""
            return f"{run} was lost (its driver was killed){log}. Run the program again; it resumes from the last checkpoint"
        case "elsewhere" if view.endpoint is not None:
            return f"{run} was started on machine {view.endpoint.machine!r}; run this command there"
        case "unknown":
            return f"{run} has no control port, as it was not started with `forkpoint run`, and no recorded end"
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
    storage: Storage, key: tuple[str, str], record: Run | None, endpoint: Endpoint | None, newest: bool,
    epoch: int | None,
) -> RunView:  # fmt: skip
    job, run = key
    if record is not None and record.outcome is not None:
        return RunView(
            job, run, record.outcome, newest, record.started_ms, record.ended_ms,
            None if record.ended_ms is None else record.ended_ms - record.started_ms,
            epoch if newest else None, parent=record.parent, reason=record.reason,
        )  # fmt: skip
    started_ms = record.started_ms if record is not None else endpoint.started_ms if endpoint is not None else 0
    parent = record.parent if record is not None else _FROM_NOTHING
    status = probe(endpoint) if endpoint is not None and _is_here(endpoint) else None
    if isinstance(status, StatusMessage):
        return RunView(
            job, run, "ending" if status.state == "ended" else status.state, newest, started_ms, None,
            status.now_ms - status.started_ms, status.epoch, status.restarts, status.records_read, parent, status.failure,
            endpoint, status.late_records_dropped,
        )  # fmt: skip
    state: RunState
    if endpoint is None:
        state = "unknown" if newest else "lost"
    elif not _is_here(endpoint):
        state = "elsewhere"
    elif status == "silent":
        state = "silent"
    else:  # the driver was killed, or has just ended, as its record then says
        state = "lost"
        record = RUN.load_if_whole(storage, JobPaths(job).run_file(run))
        if record is not None and record.outcome is not None:
            return _view(storage, key, record, None, newest, epoch)
    return RunView(
        job, run, state, newest, started_ms, epoch=epoch if newest else None, parent=parent, endpoint=endpoint
    )


def _is_here(endpoint: Endpoint) -> bool:
    return endpoint.machine == socket.gethostname()


def probe(endpoint: Endpoint) -> StatusMessage | Literal["silent"] | None:
    """The driver's status; None if it has ended."""
    with ControlClient(endpoint, PROBE_SECONDS) as client:
        try:
            return client.status()
        except Unreachable:
            return None
        except ForkpointError:
            return "silent"
