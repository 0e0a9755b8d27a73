"""Local stores that follow a job's epochs before the run that they are for leads it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from forkpoint import logs
from forkpoint.checkpoint.manifest import Manifest
from forkpoint.driver.history import History
from forkpoint.errors import ForkpointError

log = logging.getLogger("forkpoint")

CLOSE_SECONDS = 1.0  # a round that takes less leaves little for the first epoch to make up for
CLOSER = 0.7  # a round that takes more than this part of the one before does not get closer to the job


def is_close(took_seconds: float, last_seconds: float) -> bool:
    """Whether stores are as close to the job as they get, after a round that took so long. ``last_seconds``: the one before."""
    return took_seconds < CLOSE_SECONDS or took_seconds > CLOSER * last_seconds


class Follower:
    """Calls ``prepare`` with the newest manifests of the run that leads, on a thread of its own, one at a time. ``on_close`` is
    called there with the epoch after each round that ends close to the job; what it raises, ``follow`` raises."""

    def __init__(
        self,
        history: History,
        prepare: Callable[[Manifest], None],
        on_close: Callable[[int], None] = lambda epoch: None,
    ) -> None:
        self._history = history
        self._prepare = prepare
        self._on_close = on_close
        self._prepared = 0
        self._took = math.inf
        self._thread = ThreadPoolExecutor(1, "forkpoint-prepare")
        self._round: Future[None] | None = None
        self._error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()

    def follow(self, epoch: int) -> None:
        """Begin a round up to this epoch, unless one is running."""
        if self._error is not None:
            raise self._error
        if epoch > self._prepared and (self._round is None or self._round.done()):
            self._prepared = epoch
            self._round = self._thread.submit(logs.carried(self._try), epoch)

    def _try(self, epoch: int) -> None:
        began = time.monotonic()
        try:
            self._prepare(self._history.load(epoch))
        except ForkpointError as error:  # the leader has cleaned up: the next manifest is there
            log.debug("job %r: stores of epoch %d were not prepared: %s", self._history.paths.job, epoch, error)
            return
        except Exception:
            log.exception("job %r: stores of epoch %d were not prepared", self._history.paths.job, epoch)
            return
        last, self._took = self._took, time.monotonic() - began
        if is_close(self._took, last):
            try:
                self._on_close(epoch)
            except Exception as error:
                self._error = error
