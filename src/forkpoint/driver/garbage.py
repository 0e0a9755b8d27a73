"""Removes files that no retained checkpoint needs."""

from __future__ import annotations

from collections.abc import Collection

from forkpoint.checkpoint.gc import plan_gc
from forkpoint.driver.history import History


def collect_garbage(history: History, run: str, num_retained: int, pinned: Collection[int]) -> None:
    """Collect garbage as the job's newest run. Raises StaleGeneration in any other: it does not know what is pinned."""
    files = history.storage.list(history.paths.directory)
    manifests = {epoch: history.load(epoch) for epoch in history.epochs()}
    plan = plan_gc(history.paths.job, manifests.values(), files, num_retained=num_retained, pinned=pinned)
    newest = manifests[max(manifests)]
    if newest.run != run:
        mine = max((m for m in manifests.values() if m.run == run), key=lambda m: m.epoch, default=newest)
        raise history.stale(mine, newest)
    by_path = {history.paths.manifest(epoch): manifest for epoch, manifest in manifests.items()}
    for path in plan.manifests:
        history.remove(by_path[path])
    for path in plan.files:
        history.storage.delete(path)
