"""Removing what no retained checkpoint needs."""

from __future__ import annotations

from collections.abc import Collection

from forkpoint.checkpoint.gc import GcPlan, plan_gc
from forkpoint.checkpoint.manifest import Manifest
from forkpoint.driver.history import History


def garbage(history: History, num_retained: int, pinned: Collection[int]) -> GcPlan:
    """What would be removed now."""
    return _looked(history, num_retained, pinned)[0]


def collect_garbage(history: History, run: str, num_retained: int, pinned: Collection[int]) -> GcPlan:
    """Remove it, for the newest run: another one does not know what is pinned. Raises StaleGeneration if it isn't."""
    plan, manifests = _looked(history, num_retained, pinned)
    newest = manifests[max(manifests)]
    if newest.run != run:
        mine = max((m for m in manifests.values() if m.run == run), key=lambda m: m.epoch, default=newest)
        raise history.stale(mine, newest)
    by_path = {history.paths.manifest(epoch): manifest for epoch, manifest in manifests.items()}
    for path in plan.manifests:
        history.remove(by_path[path])
    for path in plan.files:
        history.storage.delete(path)
    return plan


def _looked(history: History, num_retained: int, pinned: Collection[int]) -> tuple[GcPlan, dict[int, Manifest]]:
    files = history.storage.list(history.paths.directory)
    manifests = {epoch: history.load(epoch) for epoch in history.epochs()}
    return plan_gc(history.paths.job, manifests.values(), files, num_retained=num_retained, pinned=pinned), manifests
