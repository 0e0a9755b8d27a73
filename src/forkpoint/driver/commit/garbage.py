"""Collects the garbage of checkpoints, on a thread of its own: there may be thousands of files to remove."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from forkpoint import logs
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import Manifest
from forkpoint.errors import StaleGeneration

log = logging.getLogger("forkpoint")

EVERY_EPOCHS = 20
PAUSE_S = 0.05


@dataclass
class GarbageCollection:
    """Collects the garbage of one run every twenty epochs."""

    history: History
    run: str
    num_retained: int
    _collected: int = 0  # the newest epoch at the last collection
    _running: Future[None] | None = None
    _closing: threading.Event = field(default_factory=threading.Event)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "forkpoint-garbage"))

    def collect_if_due(
        self, newest: Manifest, pinned: Callable[[], Collection[int]], since: Callable[[], Collection[int]] = tuple
    ) -> None:
        """``pinned``: epochs whose files are needed in addition to those of the retained checkpoints. ``since``: the epochs of
        the last savepoints. Raises StaleGeneration if the last collection has found a newer run."""
        if self._running is not None and self._running.done():
            self._running.result()
            self._running = None
        if self._running is not None or newest.epoch < self._collected + EVERY_EPOCHS:
            return
        self._collected = newest.epoch
        self._running = self._thread.submit(logs.carried(self._collect), newest, pinned(), since())

    def _collect(self, newest: Manifest, pinned: Collection[int], since: Collection[int]) -> None:
        try:
            pause = partial(self._closing.wait, PAUSE_S)
            self.history.collect_garbage(self.run, self.num_retained, pinned, since, newest.epoch, pause)
        except StaleGeneration:
            raise
        except Exception:
            log.exception("job %r: old checkpoints were not removed; the next collection retries", newest.job)

    def close(self) -> None:
        """Waits for a collection that runs, which no longer pauses."""
        self._closing.set()
        self._thread.shutdown()
