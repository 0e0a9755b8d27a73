"""The parallelism that a run starts with: what it was given, unless the job was rescaled to another one."""

from __future__ import annotations

from dataclasses import dataclass

from forkpoint.checkpoint.manifest import Manifest
from forkpoint.graph.options import Autoscale


@dataclass(frozen=True)
class StartParallelism:
    """``given``: by the command line, the program or the engine. ``pinned``: it holds even if the job was rescaled to another
    one. ``bounds``: of autoscaling; ``given`` is within them."""

    given: int
    pinned: bool = False
    bounds: Autoscale | None = None

    def inherits(self, newest: Manifest | None) -> bool:
        """Whether a run that follows this manifest, the job's newest, goes on at its parallelism."""
        return newest is not None and newest.rescaled and not self.pinned

    def after(self, newest: Manifest | None) -> int:
        if newest is None or not self.inherits(newest):
            return self.given
        return newest.parallelism if self.bounds is None else self.bounds.clamp(newest.parallelism)
