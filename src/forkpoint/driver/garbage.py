"""Removing what no retained checkpoint needs."""

from __future__ import annotations

from collections.abc import Collection

from forkpoint.driver.history import History
from forkpoint.snapshot.gc import GcPlan, plan_gc


def garbage(history: History, num_retained: int, pinned: Collection[int]) -> GcPlan:
    """What would be removed now."""
    files = history.storage.list(history.paths.directory)
    manifests = [history.load(epoch) for epoch in history.epochs()]
    return plan_gc(history.paths.job, manifests, files, num_retained=num_retained, pinned=pinned)


def collect_garbage(history: History, num_retained: int, pinned: Collection[int]) -> GcPlan:
    plan = garbage(history, num_retained, pinned)
    for path in plan.paths:
        history.storage.delete(path)
    return plan
