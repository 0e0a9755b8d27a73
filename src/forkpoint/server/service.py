"""The jobs below one or several state roots, and their drivers' answers. Callers share answers for a second, so that many callers
cost a job at most as much as one. A busy driver that answers late delays no caller."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

from forkpoint.checkpoint.manifest import RUN, Run
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.checkpoint.plan import PLAN, Plan
from forkpoint.errors import ConfigError, ForkpointError, JobNotFound, SavepointNotFound
from forkpoint.operations import follow_state
from forkpoint.operations.roots import StateRoot
from forkpoint.protocol.client import RunClient
from forkpoint.protocol.messages import JournalMessage, MetricsMessage
from forkpoint.protocol.registry import RunView, asked, client_of, list_runs
from forkpoint.savepoint.catalog.names import all_savepoints
from forkpoint.savepoint.inspect.query_limits import QueryLimits
from forkpoint.server.requests import Busy
from forkpoint.state_processor import LiveState, StateFollower
from forkpoint.storage.base import Storage
from forkpoint.storage.places import plain_place

T = TypeVar("T")

FRESH_SECONDS = 1.0
PATIENCE_SECONDS = 0.05  # for a newer answer of a busy driver
STALE_SECONDS = 5.0
# A caller's SQL must not slow down jobs on this machine or other callers.
ROWS = 10_000
QUERY_LIMITS = QueryLimits(seconds=30, rows=ROWS, result_bytes=16 << 20, memory_bytes=1 << 30, spill_bytes=4 << 30, threads=1)
QUERIES_AT_ONCE = 2
QUEUE_SECONDS = 1.0  # short, because a waiting query blocks one of the threads that serve all callers


def job_id(root: str, job: str) -> str:
    """The id of a job in Flink's form: 32 hexadecimal digits."""
    return hashlib.sha256(f"{root}\n{job}".encode()).hexdigest()[:32]


class JobNotRunning(ForkpointError):
    """The job exists but does not run."""


class JobRunning(ForkpointError):
    """The job is already running."""


class CheckpointNotFound(ForkpointError):
    """The journal of the job's driver does not have this checkpoint."""


class RootNotFound(ForkpointError):
    """This state root is not served."""


@dataclass(frozen=True)
class JobEntry:
    """A job. ``view``: its newest run. ``runs``: all its runs, newest first."""

    id: str
    name: str
    root: StateRoot
    view: RunView
    runs: tuple[RunView, ...]

    @property
    def paths(self) -> JobPaths:
        return JobPaths(self.name)

    @property
    def storage(self) -> Storage:
        return self.root.storage


@dataclass
class _Known:
    """A result, or its computation in progress, with its start time. ``before``: the previous result, until this one is
    complete."""

    at: float
    before: _Known | None = None
    result: Future[Any] = field(default_factory=Future)

    def compute(self, compute: Callable[[], Any]) -> None:
        try:
            self.result.set_result(compute())
        except BaseException as error:
            self.result.set_exception(error)
        self.before = None


class _Cache:
    """A cache of results by key. One caller at a time computes a result; others share it until it is stale. If a newer result
    takes long, a caller gets the previous one, unless that is too old."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Any, _Known] = {}

    def get(self, key: Any, compute: Callable[[], T]) -> T:
        known, mine = self._newest(key)
        before = known.before
        if mine and before is None:
            known.compute(compute)
        elif mine:
            threading.Thread(target=known.compute, args=(compute,), name="forkpoint-ask", daemon=True).start()
        if before is not None:
            wait([known.result], min(PATIENCE_SECONDS, max(0.0, before.at + STALE_SECONDS - time.monotonic())))
            if not known.result.done() and time.monotonic() - before.at < STALE_SECONDS:
                return cast("T", before.result.result())
        return cast("T", known.result.result())

    def _newest(self, key: Any) -> tuple[_Known, bool]:
        """The newest result, and whether the caller has to compute it."""
        with self._lock:
            now = time.monotonic()
            self._known = {
                k: known for k, known in self._known.items() if not known.result.done() or now - known.at < STALE_SECONDS
            }
            known = self._known.get(key)
            if known is not None and (not known.result.done() or now - known.at < FRESH_SECONDS):
                return known, False
            before = known if known is not None and known.result.exception() is None else None
            known = self._known[key] = _Known(now, before)
            return known, True

    def clear(self) -> None:
        """Forget all results after a change."""
        with self._lock:
            self._known = {}


class Service:
    """``only``: the served job, at that job's own port; None: all jobs."""

    def __init__(self, roots: tuple[StateRoot, ...], only: str | None = None) -> None:
        self.roots = roots
        self.only = only
        self._cache = _Cache()
        self._lock = threading.Lock()
        self._followers: dict[str, StateFollower] = {}
        self._queries = threading.BoundedSemaphore(QUERIES_AT_ONCE)

    def jobs(self) -> list[JobEntry]:
        """All jobs, by the start of their newest run, the latest first."""
        entries = [entry for root in self.roots for entry in self._cache.get(root, partial(self._listed, root))]
        return sorted(entries, key=lambda entry: -entry.view.started_ms)

    def check(self) -> None:
        """Raise ForkpointError if a state root does not answer, or is missing, for example because a volume is not mounted."""
        for root in self.roots:
            _ = root.existing
        self.jobs()

    def job(self, ref: str, place: str | None = None) -> JobEntry:
        """The job with this name or id, in the state root ``place`` if given. Raises JobNotFound, RootNotFound, and ConfigError
        if several state roots have a job of this name."""
        root = None if place is None else self.root(place)
        entries = [entry for entry in self.jobs() if root is None or entry.root == root]
        named = [entry for entry in entries if entry.name == ref]
        if len(named) > 1:
            listed = ", ".join(f"{entry.id} in {entry.root.place}" for entry in named)
            raise ConfigError(f"several state roots have a job {ref!r}; name its state root with `root`, or use its id: {listed}")
        found = named or [entry for entry in entries if entry.id == ref.lower()]
        if not found:
            known = ", ".join(repr(entry.name) for entry in entries[:20]) or "none"
            raise JobNotFound(f"there is no job {ref!r}; there are: {known}")
        return found[0]

    def root(self, place: str | None) -> StateRoot:
        """The state root with this path or URL; None: the only one. Raises RootNotFound if it is not served, ConfigError if there
        are several."""
        found = [root for root in self.roots if place is None or root.place == place]
        places = ", ".join(root.place for root in self.roots)
        if not found:
            raise RootNotFound(f"the state root {place!r} is not served here; there are {places}")
        if len(found) > 1:
            raise ConfigError(f"name one of the state roots with `root`: {places}")
        return found[0]

    def journal(self, entry: JobEntry) -> JournalMessage | None:
        """The journal of the job's driver; None if it does not run, or does not answer."""
        return self._asked("journal", entry, lambda client: client.journal())

    def metrics(self, entry: JobEntry) -> MetricsMessage | None:
        """The job's metrics; None if it does not run, or does not answer."""
        return self._asked("metrics", entry, lambda client: client.metrics())

    def _asked(self, what: str, entry: JobEntry, ask: Callable[[RunClient], T]) -> T | None:
        endpoint = entry.view.endpoint
        if endpoint is None or not entry.view.is_live:
            return None

        def answer() -> T | None:
            try:
                return asked(entry.storage, endpoint, ask)
            except ForkpointError:  # it has ended, or is too busy to answer
                return None

        return self._cache.get((what, entry.id, endpoint.run), answer)

    def state(self, entry: JobEntry) -> LiveState:
        """The job's state at its last committed epoch, from a local copy that follows it."""
        with self._lock:
            follower = self._followers.get(entry.id)
            if follower is None:
                follower = self._followers[entry.id] = follow_state(entry.name, state_root=entry.root.place)
        return follower.newest()

    @contextmanager
    def querying(self) -> Iterator[QueryLimits]:
        """Acquire a slot for a query, with its limits. Raises Busy while other queries run."""
        if not self._queries.acquire(timeout=QUEUE_SECONDS):
            raise Busy(f"{QUERIES_AT_ONCE} queries are running; try again when they are done")
        try:
            yield QUERY_LIMITS
        finally:
            self._queries.release()

    def client(self, entry: JobEntry) -> RunClient:
        """A client of the job's driver. Raises JobNotRunning."""
        endpoint = entry.view.endpoint
        if endpoint is None or not entry.view.is_live:
            raise JobNotRunning(f"job {entry.name!r} is not running: its last run {entry.view.run} is {entry.view.state}")
        return client_of(entry.storage, endpoint)

    def plan(self, entry: JobEntry) -> Plan:
        """The operators of the job's newest run; none if an older release started it."""
        return PLAN.load_if_whole(entry.storage, entry.paths.plan_file(entry.view.run)) or Plan(operators=[])

    def record(self, entry: JobEntry) -> Run | None:
        return RUN.load_if_whole(entry.storage, entry.paths.run_file(entry.view.run))

    def savepoint(self, ref: str, place: str | None = None) -> tuple[StateRoot, str]:
        """The state root and path of the savepoint with this id, label or path, which must be below the state roots. Raises
        SavepointNotFound, and ConfigError for a label of several savepoints."""
        roots = self.roots if place is None else (self.root(place),)
        found = {
            each.path: root
            for root in roots
            for each in all_savepoints(root.storage, self.only)
            if (made := each.listed.savepoint) is not None and ref in (made.id, made.label, each.path, plain_place(each.path))
        }
        if not found:
            raise SavepointNotFound(f"there is no savepoint with the id, label or path {ref!r} below the state roots")
        if len(found) > 1:
            raise ConfigError(f"{ref!r} is a label of several savepoints; give an id: {', '.join(sorted(found))}")
        ((path, root),) = found.items()
        return root, path

    def directory(self, given: str | None, entry: JobEntry) -> str | None:
        """A caller's directory for savepoints, which must be below the job's state root."""
        if given is None:
            return None
        root = entry.root.place.rstrip("/")
        wanted = given.rstrip("/") if "://" in given else os.path.realpath(given)
        inside = os.path.realpath(root) if "://" not in root else root
        if ".." in given.split("/") or not f"{wanted}/".startswith(f"{inside}/"):
            raise ConfigError(f"savepoints can be written below the state root {root} only, not to {given}; leave it out")
        return wanted

    def changed(self) -> None:
        """Clear the cache after a start, stop or write."""
        self._cache.clear()

    def _listed(self, root: StateRoot) -> list[JobEntry]:
        runs: dict[str, list[RunView]] = {}
        for view in list_runs(root.storage, self.only):
            runs.setdefault(view.job, []).append(view)
        return [
            JobEntry(job_id(root.place, job), job, root, next((v for v in views if v.newest), views[0]), tuple(views))
            for job, views in runs.items()
        ]
