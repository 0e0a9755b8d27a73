"""How many elements an epoch reads, so that its tasks keep to their memory. Pure.

What an element takes is not known in advance: it depends on its size, on the functions' objects and on the store. So the first
epoch is small, and each later one as large as the memory of the one before allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from forkpoint.runtime.exchange.control import Memory

FIRST_ROWS = 500
LEAST_ROWS = 100
_FILLED = 0.85  # of the limit: epochs differ
_GROWTH, _SHRINKAGE = 4.0, 0.125


@dataclass(frozen=True)
class EpochMemory:
    """``rows``: the maximum that the next epoch reads from each source. ``short``: the memory of a process that took more than
    its limit although its epoch had hardly any elements."""

    rows: int = FIRST_ROWS
    short: Memory | None = None

    def after(self, read: int, tasks: Sequence[Memory]) -> EpochMemory:
        """``read``: the most elements that the epoch read from one source. ``tasks``: of each of its tasks."""
        if not read or not tasks:
            return self
        before = {task.process: task.before for task in sorted(tasks, key=lambda task: -task.before)}
        fitting = min((task.limit * _FILLED - before[task.process]) / max(1, task.peak - before[task.process]) for task in tasks)
        rows = round(read * min(max(fitting, _SHRINKAGE), _GROWTH))
        over = max(tasks, key=lambda task: task.peak - task.limit)
        short = over if over.peak > over.limit and read <= LEAST_ROWS else None
        return EpochMemory(max(self.rows, rows) if fitting >= 1 else max(LEAST_ROWS, rows), short)
