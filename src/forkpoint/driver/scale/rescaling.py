"""Rescales a running job: builds its stores while epochs run, then switches over with one commit.

That commit is a manifest of kind "start" of the same run, whose parent is the epoch before it. The job runs at the old
parallelism before the commit and at the new one after it, whatever process dies. No epoch is in flight at the commit.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from forkpoint import logs
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import Manifest
from forkpoint.driver.commit.amounts import redistributed_amounts, saved, to_save
from forkpoint.driver.lead.handing_over import is_close
from forkpoint.driver.observe.events import Listener, RescaleEnded, RescaleStarted
from forkpoint.driver.run.executor import Executor
from forkpoint.driver.run.requests import RescaleRequest
from forkpoint.driver.scale.layouts import OperatorState, redistributed, written
from forkpoint.driver.start.restorer import from_checkpoint
from forkpoint.errors import ConfigError
from forkpoint.runtime.exchange.control import JobSpec

log = logging.getLogger("forkpoint")

MAX_LAG = 20  # epochs by which stores may lag while the switch has to wait


@dataclass(frozen=True)
class Switched:
    """A committed switch: the first manifest of the new layout."""

    manifest: Manifest
    spec: JobSpec


class Rescaling:
    """Changes the parallelism, one change at a time. For the driver's thread; another thread builds the stores."""

    def __init__(self, history: History, executor: Executor, now_ms: Callable[[], int], listener: Listener) -> None:
        self._history = history
        self._executor = executor
        self._now_ms = now_ms
        self._listener = listener
        self._current: _Preparation | None = None

    def begin(self, request: RescaleRequest, manifest: Manifest, layout: Callable[[int], JobSpec]) -> None:
        """Start to build the stores, or refuse the request."""
        wanted, current = request.parallelism, self._current
        if problem := refusal(manifest, wanted, None if current is None else current.request.parallelism):
            request.done.set_exception(ConfigError(problem))
        elif wanted == manifest.parallelism:
            request.done.set_result(manifest.epoch)
        else:
            log.info("job %r: building stores for parallelism %d", manifest.job, wanted)
            self._current = _Preparation(request, layout(wanted), manifest, self._executor, self._history)
            self._listener.on_event(RescaleStarted(wanted, manifest.epoch))

    def pinned(self, manifest: Manifest) -> set[int]:
        """Epochs whose files the store builder still reads."""
        current = self._current
        return set() if current is None else set(range(current.reached, manifest.epoch + 1))

    def due(self, manifest: Manifest, *, wait: bool) -> bool:
        """Whether to switch now: the stores have caught up with this epoch, and there is no other reason to ``wait``."""
        current = self._current
        if current is None:
            return False
        current.newest = manifest
        if current.error is not None:
            self._end(current, current.error)
            return False
        if not current.ready.is_set():
            return False
        if wait and manifest.epoch - current.reached > MAX_LAG:
            current.follow()
        return not wait

    def switch(self, manifest: Manifest) -> Switched | None:
        """Commit the new parallelism; None if the request failed before the commit. If the commit fails, the newest manifest has
        the parallelism in force."""
        current = self._current
        assert current is not None
        began = time.monotonic()
        after = rescaled(manifest, current.request.parallelism, self._now_ms())
        try:
            current.operators.advance(manifest)
            changes = redistributed(current.operators.entries, manifest.states, manifest.parallelism, after.parallelism)
            amounts = redistributed_amounts(saved(manifest), current.operators.entries, changes.values())
            refs = written(self._history, after.epoch, changes)
            after = after.replace(changes=refs, amounts=to_save(amounts))
        except Exception as error:
            self._end(current, error)
            return None
        self._history.commit(after)
        self._current = None
        current.finish()
        current.request.done.set_result(after.epoch)
        self._listener.on_event(RescaleEnded(after.parallelism, after.epoch))
        log.info(
            "job %r: parallelism %d from epoch %d on; its stores are %d epochs behind; the switch took %.2f s",
            after.job,
            after.parallelism,
            after.epoch,
            after.epoch - current.reached,
            time.monotonic() - began,
        )
        states = {state.sid: state for state in after.states}
        return Switched(after, replace(current.spec, known_states=states, restored_from=after.epoch))

    def interrupt(self) -> RescaleRequest | None:
        """Give up the preparation because the attempt has failed; returns the request, to begin again."""
        current, self._current = self._current, None
        if current is None:
            return None
        current.abandon()
        return current.request

    def close(self, error: BaseException) -> None:
        """The run has ended, and the engine is closed."""
        if (current := self._current) is not None:
            self._end(current, error)
            current.join()

    @property
    def in_progress(self) -> bool:
        return self._current is not None

    def stop(self) -> None:
        """Start no further work on the engine."""
        if self._current is not None:
            self._current.abandon()

    def _end(self, current: _Preparation, error: BaseException) -> None:
        self._current = None
        current.abandon()
        current.request.done.set_exception(error)
        self._listener.on_event(RescaleEnded(current.request.parallelism, failure=str(error)))
        log.warning("job %r keeps its parallelism: %s", current.spec.job, error)


def refusal(manifest: Manifest, wanted: int, other: int | None) -> str | None:
    """Why a job can't be rescaled, if it can't. ``other``: the target of a rescaling in progress."""
    job = f"job {manifest.job!r}"
    if wanted < 1:
        return f"{job}: parallelism {wanted}; it must be at least 1"
    if wanted > manifest.max_parallelism:
        return (
            f"{job}: parallelism {wanted} is above its max parallelism of {manifest.max_parallelism}. To change that, stop the "
            "job with a savepoint and start it from there with --max-parallelism"
        )
    if other is not None:
        return f"{job} is being rescaled to parallelism {other}; wait until that is done"
    return None


def rescaled(before: Manifest, parallelism: int, now_ms: int) -> Manifest:
    """The first manifest of a new layout of the same run, without changes of operator state."""
    return before.replace(
        epoch=before.epoch + 1,
        kind="start",
        created_ms=now_ms,
        processing_time_ms=max(now_ms, before.processing_time_ms),
        parallelism=parallelism,
        rescaled=True,
        parent=from_checkpoint(before).parent,
        changes=[],
        sinks={},
        drained=False,
        metadata={},
    )


class _Preparation:
    """Builds a layout's stores on its own thread, in rounds; a round catches up with the newest epoch at its start.

    ``newest``: set by the driver. ``reached``: the epoch of the last complete round, initially the first epoch; the builder still
    reads files from there on. While ``ready`` is set, the builder is idle. ``abandon`` also removes the stores.
    """

    def __init__(self, request: RescaleRequest, spec: JobSpec, manifest: Manifest, executor: Executor, history: History) -> None:
        self.request = request
        self.spec = spec
        self.newest = manifest
        self.reached = manifest.epoch
        self.operators = OperatorState(history)
        self.ready = request.prepared
        self.ready.clear()  # a failed attempt may have set it
        self.error: Exception | None = None
        self._executor = executor
        self._ended = self._abandoned = False
        self._again = threading.Event()
        self._thread = threading.Thread(target=logs.carried(self._work), name=f"forkpoint-rescale-{spec.job}", daemon=True)
        self._thread.start()

    def follow(self) -> None:
        """Do another round."""
        self.ready.clear()
        self._again.set()

    def finish(self) -> None:
        self._ended = True
        self._again.set()

    def abandon(self) -> None:
        self._abandoned = True
        self.finish()

    def join(self) -> None:
        self._thread.join()

    def _work(self) -> None:
        try:
            while not self._ended:
                self._catch_up()
                self.ready.set()
                self._again.wait()
                self._again.clear()
        except Exception as error:
            self.error = error
            self.ready.set()
        if self._abandoned or self.error is not None:
            self._executor.discard(self.spec)

    def _catch_up(self) -> None:
        """Run rounds until one is short, or hardly shorter than the previous one."""
        last = math.inf
        while not self._ended:
            began, target = time.monotonic(), self.newest
            self._executor.prepare(self.spec, target.epoch)
            self.operators.advance(target)
            self.reached = target.epoch
            took = time.monotonic() - began
            if is_close(took, last):
                return
            last = took
