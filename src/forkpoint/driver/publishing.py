"""Making a committed epoch's output visible, again after a crash, and removing what was staged in vain."""

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
    """Make the committed epoch's output visible; repeated at the next start if it was cut short.

    A sink whose staged output is gone does not keep the others from publishing.
    """
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
    """Remove what runs up to this one staged in vain."""
    for operator in graph.sinks:
        if isinstance(operator.spec, SinkSpec):
            operator.spec.sink.cleanup(operator.uid, job, generation)


@dataclass(frozen=True)
class Republisher:
    """Repeats the publishing of the job's last epoch at a start or restart. ``ended_well`` tells whether a run ended by
    itself: one that was killed after its last commit may still have output to publish."""

    graph: JobGraph
    history: History
    job: str
    run: str
    ended_well: Callable[[str], bool]

    def repeat(self, mine: Manifest) -> None:
        """Publish what was committed but perhaps not made visible; then remove what was staged in vain. ``mine`` is this
        run's newest manifest.

        Withheld output becomes visible if the run that came next went on from it, and is dropped otherwise. That run's first
        manifest says so; a later run does the same, as that one may have been killed.
        """
        self.history.must_be_newest(mine)
        last: Manifest | None = mine
        start = mine
        while last is not None and last.kind == "start":
            start, last = last, self.history.before(last.epoch)
        if last is not None:
            own = last.run == self.run
            if own and last.withheld:
                return  # the run that comes next decides
            went_on = (start.parent.job, start.parent.epoch, start.parent.run) == (last.job, last.epoch, last.run)
            if went_on if last.withheld else not self.ended_well(last.run):
                self._publish_again(last, must=own or went_on)
        clean_sinks(self.graph, self.job, mine.generation)

    def _publish_again(self, last: Manifest, *, must: bool) -> None:
        try:
            publish(self.graph, last)
        except NotFound as error:
            log.warning(
                "job %r: output of epoch %d was not found: %s. It was published before and has been removed since",
                self.job, last.epoch, error,
            )  # fmt: skip
        except OutputLost as error:
            if must:
                raise
            log.error("job %r: %s", self.job, error)
