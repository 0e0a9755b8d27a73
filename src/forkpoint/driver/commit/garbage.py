"""Schedules the garbage collection of checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import Manifest
from forkpoint.errors import StaleGeneration

log = logging.getLogger("forkpoint")

EVERY_EPOCHS = 20


@dataclass
class GarbageCollection:
    """Collects the garbage of one run every twenty epochs."""

    history: History
    run: str
    num_retained: int
    _collected: int = 0  # the newest epoch at the last collection

    def collect_if_due(
        self, newest: Manifest, pinned: Callable[[], Collection[int]], since: Callable[[], Collection[int]] = tuple
    ) -> None:
        """``pinned``: epochs whose files are needed in addition to those of the retained checkpoints. ``since``: the epochs of
        the last savepoints."""
        if newest.epoch < self._collected + EVERY_EPOCHS:
            return
        self._collected = newest.epoch
        try:
            self.history.collect_garbage(self.run, self.num_retained, pinned(), since())
        except StaleGeneration:
            raise
        except Exception:
            log.exception("job %r: old checkpoints were not removed; the next collection retries", newest.job)
