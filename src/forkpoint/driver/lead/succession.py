"""Takes over a job from another run, as its standby or as the successor in a hand-off."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from forkpoint.checkpoint.manifest import Manifest
from forkpoint.driver.lead.handing_over import Follower, Successor
from forkpoint.driver.lead.standby import Over, Standby, TakeOver
from forkpoint.driver.observe.events import CaughtUp, Leading, Listener, StandingBy
from forkpoint.driver.run.executor import Executor
from forkpoint.driver.run.requests import Inbox
from forkpoint.driver.scale.layouts import Layouts
from forkpoint.driver.start.preflight import dry_run
from forkpoint.driver.start.restorer import Restorer
from forkpoint.driver.start.starter import Overtaken, Starter
from forkpoint.errors import JobFailed, RestoreRefused, StaleGeneration
from forkpoint.graph.options import Predecessor
from forkpoint.runtime.exchange.control import JobSpec

log = logging.getLogger("forkpoint")


@dataclass(frozen=True)
class Led:
    """``manifest``: this run's first manifest; None if the job has already finished. ``layout``: of the prepared stores, if
    any."""

    manifest: Manifest | None
    layout: JobSpec | None


class NotInPlace(RestoreRefused):
    """The program fits a job's state but has to convert it, so its stores cannot follow the job."""


@dataclass
class Succession:
    """A run that waits to lead its job, with stores that follow the leader's epochs. ``succeeds``: the run that hands the job
    over to it; None for a standby, which takes over when any leader dies. ``abandoned``: see ``Successor``."""

    starter: Starter
    restorer: Restorer
    executor: Executor
    layouts: Layouts
    listener: Listener
    inbox: Inbox
    succeeds: str | None = None
    abandoned: Callable[[], bool] = lambda: False
    _layout: JobSpec | None = field(default=None, init=False)
    _dry_run_done: bool = field(default=False, init=False)

    def lead(self) -> Led | Over | None:
        """Wait until this run leads the job; None if it is cancelled first."""
        if self.succeeds is not None:
            self._must_fit(self.succeeds)
        while True:
            self.listener.on_event(StandingBy())
            found = self._wait()
            if found is None or self.inbox.cancelled:
                return None
            if not isinstance(found, TakeOver):
                return found
            self.listener.on_event(Leading())
            try:
                manifest = self.starter.start(Predecessor(found.leader))
            except (StaleGeneration, Overtaken) as error:  # another standby was faster
                if self.succeeds is not None:
                    raise
                log.warning("%s; this run stands by again", error)
                continue
            if manifest is None or self._layout is None or self._layout.parallelism != manifest.parallelism:
                return Led(manifest, None)
            states = {state.sid: state for state in manifest.states}
            return Led(manifest, replace(self._layout, known_states=states, restored_from=manifest.epoch))

    def _wait(self) -> Over | TakeOver | None:
        history = self.restorer.history
        with Follower(history, self._prepare, self._caught_up) as follower:
            if self.succeeds is None:
                return Standby(history, follower.follow).wait(self.inbox.pause)
            successor = Successor(history, self.starter.run, self.succeeds, follower.follow, abandoned=self.abandoned)
            successor.wait(self.inbox.pause)
            return TakeOver(self.succeeds)

    def _must_fit(self, leader: str) -> None:
        """Raise NotInPlace if the stores could not follow the job, JobFailed if another run leads it now."""
        newest = self.restorer.history.newest()
        if newest is None or newest.run != leader:
            now = "no run" if newest is None else f"run {newest.run}"
            raise JobFailed(f"job {self.layouts.job!r} is led by {now}, not by run {leader}, which this run is to replace")
        if not self.restorer.fits(newest):
            raise NotInPlace(f"job {newest.job!r}: its state has to be converted for this program")

    def _prepare(self, manifest: Manifest) -> None:
        """Catch the stores up with a manifest of the leader, if this run can use its files in place."""
        if not self.restorer.fits(manifest):
            return
        parallelism = self.restorer.parallelism_after(manifest)
        if self._layout is not None and self._layout.parallelism != parallelism:  # the leader was rescaled
            self.executor.discard(self._layout)
            self._layout = None
        if self._layout is None:
            self._layout = self.layouts.next(manifest, parallelism)
        self.executor.prepare(self._layout, manifest.epoch)

    def _caught_up(self, epoch: int) -> None:
        if not self._dry_run_done and self._layout is not None:
            self._dry_run_done = True
            try:
                dry_run(self.executor, self.layouts.another(self._layout))
            except Exception as error:
                if self.succeeds is not None:  # the new version must not replace one that works; a standby may work later
                    raise
                log.warning("job %r: the standby's dry run has failed: %s", self.layouts.job, error)
        self.listener.on_event(CaughtUp(epoch))
