"""Bringing saved state into a run: decide from what, check that it fits, import it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forkpoint.driver.start import Restored, checkpoint_fits, from_checkpoint
from forkpoint.errors import RestoreRefused
from forkpoint.snapshot.manifest import Parent

if TYPE_CHECKING:
    from forkpoint.driver.job_driver import JobDriver


@dataclass(frozen=True)
class RestoreOptions:
    """``savepoint``: a path or URL, ``"latest"``, ``"none"`` to begin anew, or None: go on from the newest checkpoint."""

    savepoint: str | None = None
    allow_non_restored: bool = False
    renames: dict[str, str] = field(default_factory=dict)
    claim: bool = False


def restorer(driver: JobDriver, options: RestoreOptions) -> Callable[[int], Restored]:
    """What a run restores, as the driver asks for it with the run's first epoch."""

    def restored(epoch: int) -> Restored:
        newest = driver.history.newest()
        if options.savepoint is None and newest is not None and newest.kind != "end":
            if checkpoint_fits(newest, driver.graph, driver.parallelism):
                return from_checkpoint(newest)
            raise RestoreRefused("not yet")
        return Restored(Parent())

    return restored
