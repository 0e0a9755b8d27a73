"""endpoint.json: the address and control port of a run's driver. A driver writes it at its start and removes it at its end.

The record of a killed driver is stale, which only a request detects (`registry`).
"""

from __future__ import annotations

import os
from typing import Annotated, Literal

from msgspec import Meta

from forkpoint.checkpoint.format import Format, Record
from forkpoint.checkpoint.manifest import Count, Name
from forkpoint.checkpoint.paths import JOBS, JobPaths, parse_run_file
from forkpoint.storage.base import LocalStorage, Storage

HOST = "127.0.0.1"


class Endpoint(Record, frozen=True, kw_only=True):
    """``machine``: the host name of the driver's machine, because ``host`` is a loopback address. ``port``: None if the driver
    takes requests only as files. ``token`` authorizes callers; on local disk only the owner can read the record. ``log``: the log
    file of a detached driver. ``standby``: it waits for the death of the job's leader."""

    format_version: Literal[1] = 1
    job: Name
    run: Name
    pid: Count
    machine: str
    host: str
    port: Annotated[int, Meta(gt=0, le=65535)] | None = None
    token: Name | None = None
    started_ms: int
    log: str | None = None
    standby: bool = False


ENDPOINT = Format("endpoint.json", Endpoint, 1)


def register(storage: Storage, endpoint: Endpoint) -> None:
    """Write the record of a starting run."""
    path = JobPaths(endpoint.job).endpoint_file(endpoint.run)
    data = ENDPOINT.dump(endpoint)
    if isinstance(storage, LocalStorage):
        storage.put(path, data, own=True)  # other files may be shared with a group; this one has a secret
    else:
        storage.put(path, data)


def withdraw(storage: Storage, endpoint: Endpoint) -> None:
    """Remove the record of a run that has ended."""
    storage.delete(JobPaths(endpoint.job).endpoint_file(endpoint.run))


def endpoints(storage: Storage, job: str | None = None) -> list[Endpoint]:
    """The records of one job's runs, or of all jobs'; some may be stale."""
    directory = JOBS if job is None else JobPaths(job).runs
    found = (ENDPOINT.load_if_whole(storage, path) for path in storage.list(directory) if is_endpoint(path))
    return [endpoint for endpoint in found if endpoint is not None]


def is_endpoint(path: str) -> bool:
    file = parse_run_file(path)
    return file is not None and file.kind == "endpoint"


def process_exists(pid: int) -> bool:
    """Whether this machine has the process, of any user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
