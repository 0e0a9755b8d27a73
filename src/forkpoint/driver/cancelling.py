"""Interrupts the work of a run that was cancelled."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from forkpoint.driver.executor import Executor
from forkpoint.driver.timeouts import INTERRUPT_SECONDS

log = logging.getLogger("forkpoint")

STUCK_SECONDS = 30.0
ABANDON_SECONDS = 10.0  # that savepoints in progress get to complete once the job is cancelled


def interrupt_until_over(
    executor: Executor, over: threading.Event, *, starting: Callable[[], bool], stuck: Callable[[], None]
) -> None:
    """Interrupt repeatedly until the run is ``over``: work may start just after an interrupt, or survive it. ``stuck`` is called
    if it still is not after a while."""
    began = time.monotonic()
    while not over.is_set():
        try:
            if starting() or time.monotonic() - began > ABANDON_SECONDS:
                executor.abandon()
            else:
                executor.interrupt()
        except Exception as error:  # the engine may be shutting down
            log.debug("could not interrupt: %s", error)
        if over.wait(INTERRUPT_SECONDS):
            return
        if time.monotonic() - began > STUCK_SECONDS:
            stuck()
