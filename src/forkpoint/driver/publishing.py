"""Publishes a committed epoch's output, repeats that after a crash, and removes staged output that was never committed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from forkpoint.checkpoint.manifest import Manifest
from forkpoint.driver.history import History
from forkpoint.errors import NotFound, OutputLost
from forkpoint.graph.job import JobGraph
from forkpoint.graph.specs import SinkSpec

log = logging.getLogger("forkpoint")


def publish(graph: JobGraph, manifest: Manifest) -> None:
    """Make the committed epoch's output visible; if it is cut short, the next start repeats it. All sinks publish even if some
    lack staged output; then NotFound is raised."""
    missing: list[NotFound] = []
    for operator in graph.sinks:
        if isinstance(operator.spec, SinkSpec):
            try:
                operator.spec.sink.commit(manifest.sinks.get(operator.uid, []), manifest.epoch)
            except NotFound as error:
                missing.append(error)
    if missing:
        raise NotFound("; ".join(map(str, missing)))


def clean_sinks(graph: JobGraph, job: str, generation: int) -> None:
    """Remove uncommitted output that runs up to this generation staged."""
    for operator in graph.sinks:
        if isinstance(operator.spec, SinkSpec):
            operator.spec.sink.cleanup(operator.uid, job, generation)


@dataclass(frozen=True)
class Republisher:
    """Repeats the publishing of the job's last epoch at a start or restart. ``ended_well``: whether a run ended regularly;
    one that was killed after its last commit may have unpublished output."""

    graph: JobGraph
    history: History
    run: str
    ended_well: Callable[[str], bool]

    def repeat(self, mine: Manifest) -> None:
        """Publish committed output that may not be visible yet, then remove uncommitted output. ``mine``: this run's newest
        manifest.

        Withheld output is published if the next run continued from it, and dropped otherwise. The first manifest of that run
        tells; later runs repeat this, as that run may have been killed.
        """
        self.history.must_be_newest(mine)
        last: Manifest | None = mine
        start = mine
        while last is not None and last.kind == "start":
            start, last = last, self.history.before(last.epoch)
        if last is not None:
            own = last.run == self.run
            if own and last.withheld:
                return  # the next run decides
            continued = (start.parent.job, start.parent.epoch, start.parent.run) == (last.job, last.epoch, last.run)
            if continued if last.withheld else not self.ended_well(last.run):
                self._publish_again(last, must=own or continued)
        clean_sinks(self.graph, mine.job, mine.generation)

    def _publish_again(self, last: Manifest, *, must: bool) -> None:
        try:
            publish(self.graph, last)
        except NotFound as error:
            log.warning(
                "job %r: output of epoch %d was not found: %s. It was published before and has been removed since",
                last.job, last.epoch, error,
            )  # fmt: skip
        except OutputLost as error:
            if must:
                raise
            log.error("job %r: %s", last.job, error)
