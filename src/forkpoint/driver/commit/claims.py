"""Claims on output locations: keep two jobs under one state root from writing to the same location by mistake."""

from __future__ import annotations

from typing import Literal

from forkpoint.checkpoint.format import Format, Record
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import RUN, Name
from forkpoint.checkpoint.paths import JobPaths, sink_file
from forkpoint.errors import AlreadyExists, ConfigError
from forkpoint.graph.job import JobGraph
from forkpoint.graph.specs import SinkSpec
from forkpoint.storage.base import Storage


class Claim(Record, frozen=True, kw_only=True):
    """The job that owns an output location, until the claim's record or the job is deleted, or the job has finished and another
    one starts from nothing."""

    format_version: Literal[1] = 1
    place: Name
    job: Name
    uid: Name
    claimed_ms: int


CLAIM = Format("sink claim", Claim, 1)


def claim_places(graph: JobGraph, storage: Storage, job: str, now_ms: int, *, from_nothing: bool) -> None:
    """Claim the output locations of the job's sinks. Raises ConfigError if another job owns one: most likely this job is a fork
    that still writes to the original's location. ``from_nothing``: it is none, as it starts without saved state."""
    for operator in graph.sinks:
        place = operator.spec.sink.place if isinstance(operator.spec, SinkSpec) else None
        if place is not None:
            _claim(storage, Claim(place=place, job=job, uid=operator.uid, claimed_ms=now_ms), from_nothing)


def _claim(storage: Storage, claim: Claim, from_nothing: bool) -> None:
    path = sink_file(claim.place)
    try:
        storage.create(path, CLAIM.dump(claim))
        return
    except AlreadyExists:
        owner = CLAIM.load(storage, path).job
    if owner == claim.job:
        return
    deleted = not storage.list(JobPaths(owner).directory)
    if deleted or (from_nothing and _has_finished(storage, JobPaths(owner))):
        storage.put(path, CLAIM.dump(claim))
        return
    raise ConfigError(
        f"sink {claim.uid!r}: {claim.place} already belongs to job {owner!r}, and the results of job {claim.job!r} would mix "
        "with its own. Give this job another place ({job} in a directory's path stands for the job's name), or for files another "
        f"prefix=; if {owner!r} will not write there again, delete {storage.url.rstrip('/')}/{path}"
    )


def _has_finished(storage: Storage, paths: JobPaths) -> bool:
    """Whether a job has written all its output, so that only a run that is told to forget its state would write more."""
    newest = History(storage, paths).newest()
    if newest is None or newest.kind != "end":
        return False
    run = RUN.load_if_whole(storage, paths.run_file(newest.run))
    return run is not None and run.ended_well
