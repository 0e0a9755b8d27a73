"""Stops a run with a savepoint."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from forkpoint.checkpoint.manifest import Manifest
from forkpoint.driver.observe.events import Outcome
from forkpoint.driver.run.epochs import EpochRunner
from forkpoint.driver.run.requests import SavepointRequest
from forkpoint.driver.savepoints.background import Savepoints
from forkpoint.errors import EngineLost, StaleGeneration

log = logging.getLogger("forkpoint")


@dataclass(frozen=True)
class Result:
    """The end of a run. ``savepoint``: the directory of the savepoint that it stopped with."""

    run: str
    outcome: Outcome
    epoch: int
    savepoint: str | None = None


@dataclass(frozen=True)
class Stopping:
    """Stops a run. ``settle`` blocks until committed output is published and returns whether that succeeded."""

    run: str
    job: str
    savepoints: Savepoints
    settle: Callable[[Outcome], bool]

    def stop(self, request: SavepointRequest, runner: EpochRunner) -> Result | None:
        """Stop with a savepoint. Returns None, and the job continues, if the savepoint fails."""
        try:
            if request.drain:
                runner.step(drain=True)
            try:
                path = self.savepoints.make(request, runner.manifest)
            except Exception as error:
                request.done.set_exception(error)
                if isinstance(error, EngineLost | StaleGeneration):  # the job cannot continue either
                    raise
                if request.drain:  # timers have already fired early, so the job must not continue
                    return self.by_drain(runner.manifest, error)
                log.warning("job %r continues because the savepoint to stop with failed: %s", self.job, error)
                return None
            if runner.manifest.drained_early:
                runner.end_drain(path)
            self.settle("stopped")
        except Exception as error:
            if not request.done.done():
                request.done.set_exception(error)
            raise
        request.done.set_result(path)
        return Result(self.run, "stopped", runner.manifest.epoch, path)

    def by_drain(self, manifest: Manifest, failed: Exception) -> Result:
        """End a run that failed after its drain: with its savepoint, or else the next run resumes from before the drain."""
        if not manifest.withheld:
            return Result(self.run, "stopped", manifest.epoch, str(manifest.metadata["savepoint"]))
        log.error(
            "job %r ends without the savepoint to stop with: %s. The drain's output is dropped; the next run resumes from before "
            "the drain",
            self.job,
            failed,
        )
        return Result(self.run, "stopped", manifest.epoch)
