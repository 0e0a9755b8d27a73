"""How a standby comes to lead its job."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

from forkpoint.checkpoint.manifest import Manifest
from forkpoint.driver.events import Leading, Listener, StandingBy
from forkpoint.driver.executor import Executor
from forkpoint.driver.layouts import Layouts
from forkpoint.driver.requests import Inbox
from forkpoint.driver.restorer import Restorer
from forkpoint.driver.standby import LeaderEnded, Standby
from forkpoint.driver.starter import Starter
from forkpoint.errors import StaleGeneration
from forkpoint.runtime.exchange.control import JobSpec

log = logging.getLogger("forkpoint")


@dataclass(frozen=True)
class Led:
    """``manifest``: this run's first one; None if the job has already finished. ``layout``: that of prepared stores."""

    manifest: Manifest | None
    layout: JobSpec | None


@dataclass
class Succession:
    """A run that stands by for its job's leader, with stores that follow the leader's epochs."""

    starter: Starter
    restorer: Restorer
    executor: Executor
    layouts: Layouts
    listener: Listener
    inbox: Inbox
    _layout: JobSpec | None = field(default=None, init=False)

    def lead(self) -> Led | LeaderEnded | None:
        """Wait until this run leads the job; None if it is cancelled before."""
        standby = Standby(self.restorer.history, self._prepare)
        while True:
            self.listener.on_event(StandingBy())
            ended = standby.wait(self.inbox.pause)
            if self.inbox.cancelled:
                return None
            if ended is not None:
                return ended
            self.listener.on_event(Leading())
            try:
                manifest = self.starter.start()
            except StaleGeneration as error:  # another standby was faster
                log.warning("%s; it stands by again", error)
                continue
            if manifest is None or self._layout is None or self._layout.parallelism != manifest.parallelism:
                return Led(manifest, None)
            return Led(manifest, replace(self._layout, known_states={state.sid: state for state in manifest.states}))

    def _prepare(self, manifest: Manifest) -> None:
        """Bring the stores up to a manifest of the leader, if this run would resume from its files in place."""
        if not self.restorer.fits(manifest):
            return
        parallelism = self.restorer.parallelism_after(manifest)
        if self._layout is not None and self._layout.parallelism != parallelism:  # the leader was rescaled
            self.executor.discard(self._layout)
            self._layout = None
        if self._layout is None:
            self._layout = self.layouts.next(manifest, parallelism)
        self.executor.prepare(self._layout, manifest.epoch)
