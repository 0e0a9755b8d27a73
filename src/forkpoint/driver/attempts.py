"""The failed attempts of one run: whether another one follows, after which delay, and what the run says meanwhile."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable

from forkpoint.driver.events import Listener, Restarting
from forkpoint.driver.outages import Outage, outage_after
from forkpoint.driver.restarts import Failures, next_delay_ms
from forkpoint.graph.options import RestartStrategy

log = logging.getLogger("forkpoint")


class Attempts:
    """``restarts``: their number. ``outage``: of storage, while it lasts."""

    def __init__(self, job: str, strategy: RestartStrategy, listener: Listener, now_ms: Callable[[], int]) -> None:
        self._job = job
        self._strategy = strategy
        self._listener = listener
        self._now_ms = now_ms
        self._failures = Failures()
        self._rng = random.Random()
        self.restarts = 0
        self.outage: Outage | None = None

    def failed(self, error: Exception, epoch: int, *, proven: bool) -> float | None:
        """Note that an attempt has failed; the delay before the next one in seconds, or None to give up. ``epoch``: the last
        committed one; ``proven``: it is the run's own."""
        monotonic_ms = int(time.monotonic() * 1000)
        delay_ms, self._failures = next_delay_ms(
            self._strategy, self._failures, error, monotonic_ms, self._rng, proven=proven
        )
        before, self.outage = self.outage, outage_after(self.outage, error, epoch, self._now_ms())
        if delay_ms is None:
            return None
        self.restarts += before is None or self.outage is None  # else storage has not worked since the last one
        return delay_ms / 1000

    def announce(self, error: Exception, delay_seconds: float) -> None:
        """Say that another attempt follows."""
        failure = self.explain(error)
        self._listener.on_event(Restarting(failure, self.restarts, round(delay_seconds * 1000)))
        log.warning("job %r: %s; restart %d in %.1f s", self._job, failure, self.restarts, delay_seconds)

    def explain(self, error: Exception) -> str:
        return str(error) if self.outage is None else self.outage.explain(error)

    def worked(self) -> None:
        """Note that an epoch was committed."""
        if self.outage is not None:
            passed_s = (self._now_ms() - self.outage.since_ms) / 1000
            log.info("job %r goes on: storage works again, after %.0f s", self._job, passed_s)
            self.outage = None
