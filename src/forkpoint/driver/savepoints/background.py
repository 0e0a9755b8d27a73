"""Makes savepoints of a running job: pins a committed epoch and exports it while further epochs run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from forkpoint import logs
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import Manifest
from forkpoint.driver.observe.events import Listener, SavepointEnded, SavepointProgressed
from forkpoint.driver.run.executor import Executor
from forkpoint.driver.run.requests import CancelRequest, Inbox, SavepointRequest
from forkpoint.driver.savepoints.earlier import Earlier
from forkpoint.driver.savepoints.snapshots import is_large
from forkpoint.errors import ConfigError, JobFailed, NotFound
from forkpoint.savepoint.catalog.listing import free_label
from forkpoint.savepoint.catalog.names import new_savepoint_id
from forkpoint.savepoint.export.exporter import export_savepoint
from forkpoint.savepoint.format.tasks import RunTasks, Task
from forkpoint.storage.base import open_storage

log = logging.getLogger("forkpoint")

PAUSE_RATIO = 0.3  # pause per time spent in tasks; leaves the job more than half of the cores
WAIT_S = 0.05


def throttled(
    executor: Executor,
    manifest: Manifest,
    description: str,
    over: Callable[[], bool] = lambda: False,
    waits: Callable[[], bool] = lambda: False,
) -> RunTasks:
    """Runs tasks beside epochs, with the priority of background work if the state is large. Until that is ``over``; while it
    ``waits``, no task starts. On a cluster, on up to half of the cores, with a pause after each batch of tasks."""
    large = is_large(manifest)
    run_tasks = executor.run_in_background if large else executor.run_tasks
    has_priority = large and not executor.has_other_hosts  # of its own, so that it needs no pauses
    batch = max(1, manifest.parallelism // 2)
    pause = 0.0  # after the last batch, possibly of an earlier call

    def run(function: Task, arguments: Sequence[bytes]) -> list[bytes]:
        nonlocal pause
        results: list[bytes] = []
        for start in range(0, len(arguments), batch):
            while waits() and not over():
                time.sleep(WAIT_S)
            if over():
                raise JobFailed("the attempt is over")
            time.sleep(pause)
            began = time.monotonic()
            results += run_tasks(function, arguments[start : start + batch], description)
            pause = 0.0 if has_priority else (time.monotonic() - began) * PAUSE_RATIO
        return results

    return run


@dataclass
class Savepoints:
    """The savepoints of one run."""

    history: History
    executor: Executor
    directory: str | None
    now_ms: Callable[[], int]
    listener: Listener
    earlier: Earlier
    _pinned: dict[str, int] = field(default_factory=dict)
    _labels: set[str] = field(default_factory=set)  # of savepoints in progress
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _threads: list[threading.Thread] = field(default_factory=list)

    def pinned(self) -> set[int]:
        """Epochs whose files a savepoint in progress still reads."""
        return set(self._pinned.values())

    def begin(self, request: SavepointRequest, manifest: Manifest) -> None:
        """Make a savepoint of this committed epoch, or of the earlier one that the request names, in the background. The
        request's future receives its path."""
        savepoint_id = new_savepoint_id()
        epoch = manifest.epoch if request.epoch is None else request.epoch
        self._pinned[savepoint_id] = epoch

        def work() -> None:
            try:
                saved = self._saved(request, manifest)
                request.done.set_result(
                    self._export(request, saved, savepoint_id, throttled(self.executor, manifest, "savepoint"))
                )
            except Exception as error:
                request.done.set_exception(error)
            finally:
                self._pinned.pop(savepoint_id, None)

        thread = threading.Thread(target=logs.carried(work), name=f"forkpoint-savepoint-{savepoint_id}", daemon=True)
        self._threads = [t for t in self._threads if t.is_alive()] + [thread]
        thread.start()

    def make(self, request: SavepointRequest, manifest: Manifest) -> str:
        """Make a savepoint of this committed epoch, with which the run ends, and return its path. Raises StaleGeneration if a
        newer run leads the job, which has not ended."""
        self.history.must_be_newest(manifest)
        return self._export(request, self._saved(request, manifest), new_savepoint_id(), self._run_tasks)

    def _saved(self, request: SavepointRequest, newest: Manifest) -> Manifest:
        """The manifest to save."""
        if request.epoch in (None, newest.epoch):
            return newest
        try:
            return self.history.load(request.epoch)
        except NotFound:
            raise JobFailed(
                f"job {newest.job!r}: epoch {request.epoch} is no longer available; the newest one is {newest.epoch}"
            ) from None

    def finish(self, inbox: Inbox, manifest: Manifest) -> None:
        """Handle the requests that are pending when the job finishes: savepoints have its final state."""
        while (request := inbox.take()) is not None:
            if isinstance(request, SavepointRequest):
                try:
                    request.done.set_result(self.make(request, manifest))
                except Exception as error:
                    request.done.set_exception(error)
            elif isinstance(request, CancelRequest):
                request.done.set_result(None)
            else:
                request.done.set_exception(JobFailed(f"job {manifest.job!r} has finished"))

    def _run_tasks(self, function: Task, arguments: Sequence[bytes]) -> list[bytes]:
        return self.executor.run_tasks(function, arguments, "savepoint")

    def _export(self, request: SavepointRequest, manifest: Manifest, savepoint_id: str, run_tasks: RunTasks) -> str:
        storage, paths = self.history.storage, self.history.paths
        directory = request.directory or self.directory or f"{storage.url.rstrip('/')}/{paths.savepoints}"
        target = open_storage(f"{directory.rstrip('/')}/{savepoint_id}")

        def report(done: int, total: int) -> None:
            self.listener.on_event(SavepointProgressed(savepoint_id, manifest.epoch, done, total))

        with self._reserved(request.label):
            try:
                report(0, 1)
                earlier = None if request.self_contained else self.earlier.beside(target)
                savepoint = export_savepoint(
                    storage=storage,
                    manifest=manifest,
                    target=target,
                    savepoint_id=savepoint_id,
                    run_tasks=run_tasks,
                    label=request.label,
                    note=request.note,
                    progress=report,
                    created_ms=self.now_ms(),
                    schedule_ms=request.schedule_ms,
                    skip_unreadable=request.skip_unreadable,
                    earlier=earlier,
                )
            except Exception as error:
                self.listener.on_event(SavepointEnded(savepoint_id, manifest.epoch, failure=str(error)))
                raise
            self.earlier.made(savepoint, target)
            self.listener.on_event(SavepointEnded(savepoint_id, manifest.epoch, target.url, at_ms=self.now_ms()))
        for state in savepoint.left_out:
            log.warning(
                "job %r: savepoint %s leaves out %d entries of operator %r, state %r, which do not fit its type",
                savepoint.job,
                savepoint_id,
                state.entries,
                state.uid,
                state.state,
            )
        return target.url

    @contextmanager
    def _reserved(self, label: str | None) -> Iterator[None]:
        """Reserve the label for this savepoint. Raises ConfigError if another one has it."""
        if label is None:
            yield
            return
        with self._lock:
            if label in self._labels:
                raise ConfigError(f"another savepoint with the label {label!r} is in progress; choose another label")
            self._labels.add(label)
        try:
            free_label(self.history.storage, self.history.paths.job, label)
            yield
        finally:
            with self._lock:
                self._labels.discard(label)

    def close(self) -> None:
        """Wait for the savepoints in progress."""
        for thread in self._threads:
            thread.join()
