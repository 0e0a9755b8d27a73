"""Starts a run: restores its state, commits its first manifest, publishes the output that an earlier run left unpublished."""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable

from forkpoint.checkpoint.manifest import Manifest, SourcePosition
from forkpoint.driver.commit.claims import claim_places
from forkpoint.driver.commit.manifests import operator_infos
from forkpoint.driver.commit.publisher import Publisher, Republisher
from forkpoint.driver.start.records import RunRecords
from forkpoint.driver.start.restorer import Restored, Restorer, StoppedWithDrain
from forkpoint.errors import RestoreRefused, StaleGeneration
from forkpoint.graph.job import JobGraph
from forkpoint.graph.options import Predecessor

log = logging.getLogger("forkpoint")

START_TRIES = 10
START_PAUSE_SECONDS = 0.1


class Overtaken(RestoreRefused):
    """Another run has led the job since this start was requested."""


class Starter:
    """Starts one run of a job and resumes it after a failure. Calls ``on_leading`` once the run leads its job, before it
    publishes the output of an earlier run, which may take long."""

    def __init__(
        self,
        run: str,
        restorer: Restorer,
        records: RunRecords,
        publisher: Publisher,
        on_leading: Callable[[], None] = lambda: None,
    ) -> None:
        self.run = run
        self._on_leading = on_leading
        self._restorer = restorer
        self._history = restorer.history
        self._records = records
        self._republisher = Republisher(publisher, restorer.graph, restorer.history, run, records.ended_well)
        self.restore = restorer.restore
        self._on_proven: Callable[[], object] | None = None

    def start(self, predecessor: Predecessor | None = None) -> Manifest | None:
        """The run's first manifest, committed; None if the job has already finished.

        An older run that is still alive may commit during the restore. The newer run then retries, up to ``START_TRIES`` times.
        Raises Overtaken unless ``predecessor`` is the job's newest run. No run can come in between: the commit fails if another
        manifest follows the restored one. Raises RestoreRefused, with all output published, if the job was stopped with a drain.
        """
        for tries_left in reversed(range(START_TRIES)):
            newest = self._history.newest()
            self._must_succeed(predecessor, newest)
            generation = newest.generation + 1 if newest is not None else 1
            try:
                return self._try(newest, generation)
            except StaleGeneration as error:
                newest = self._history.newest()
                if not tries_left or newest is None or newest.run == self.run or newest.generation >= generation:
                    raise
                log.warning("%s. Retrying", error)
                time.sleep(random.uniform(0, START_PAUSE_SECONDS))
        raise AssertionError

    def _must_succeed(self, predecessor: Predecessor | None, newest: Manifest | None) -> None:
        found = None if newest is None else newest.run
        if predecessor is None or found == predecessor.run:
            return
        job = self._history.paths.job
        named = "no run" if predecessor.run is None else f"run {predecessor.run}"
        now = "its runs have been removed" if newest is None else f"run {found} has led it since, up to epoch {newest.epoch}"
        if not predecessor.forced:
            raise Overtaken(
                f"job {job!r}: this start was to succeed {named}, but {now}. Nothing was restored: a late start would repeat "
                "output. To start the job from there nevertheless, start it again, or with --force"
            )
        log.warning("job %r: this start was to succeed %s, but %s; it continues because of --force", job, named, now)

    def publish(self) -> Manifest | None:
        """Publish the output that the job's last run left, without leading the job; returns its newest manifest, if any. Several
        processes may do this at the same time, including those of replaced runs."""
        newest = self._history.newest()
        if newest is not None:
            self._republisher.publish(newest)
            skipped = self._republisher.publisher.skipped or ()
            self._records.note_published(newest, self._restorer.now_ms(), skipped)
        return newest

    def _try(self, newest: Manifest | None, generation: int) -> Manifest | None:
        try:
            base = self.restore(newest)
        except StoppedWithDrain:
            self.publish()  # no run of this program will
            raise
        if base is None:
            return None
        job, graph, now_ms = self._history.paths.job, self._restorer.graph, self._restorer.now_ms
        claim_places(graph, self._history.storage, job, now_ms(), from_nothing=base.parent.kind == "none")
        manifest = start_manifest(
            job,
            self.run,
            graph,
            base,
            generation=generation,
            parallelism=self._restorer.parallelism_after(newest),
            now_ms=now_ms(),
            rescaled=self._restorer.inherits_parallelism(newest),
            incarnation=None if newest is None else newest.incarnation,
        )
        self._history.commit(manifest, after=newest.epoch if newest is not None else 0)
        if manifest.rescaled and manifest.parallelism != (given := self._restorer.parallelism.given):
            log.warning(
                "job %r keeps parallelism %d, to which it was rescaled, instead of %d; change it with `forkpoint rescale`, or "
                "with -p at a start",
                job,
                manifest.parallelism,
                given,
            )
        self._on_leading()
        self._records.start(manifest)
        self._on_proven = base.on_proven
        self._republisher.repeat(manifest)
        return manifest

    def proven(self) -> None:
        """The run has committed an epoch that will not be rolled back: release the resources of its start."""
        on_proven, self._on_proven = self._on_proven, None
        if on_proven is not None:
            on_proven()

    def resume(self, mine: Manifest, error: BaseException, undecided: Manifest | None = None) -> Manifest:
        """This run's newest manifest after a failure, with its output published. Raises StaleGeneration.

        ``undecided``: a manifest whose commit failed but may still take effect, because storage may execute a request long after
        the client gave it up. Its commit is repeated first: until its fate is known, its files must not be removed.
        """
        if undecided is not None:
            self._history.commit(undecided)
        newest = self.newest_own(mine, error)
        self._republisher.repeat(newest)
        return newest

    def newest_own(self, mine: Manifest, error: BaseException) -> Manifest:
        """This run's newest manifest. Raises StaleGeneration if another run has committed a later one, SavepointCorrupt without
        any manifest."""
        newest = self._history.newest()
        if newest is None:
            raise self._history.gone() from error
        if newest.run != self.run:
            raise self._history.stale(mine, newest) from error
        return newest


def start_manifest(
    job: str,
    run: str,
    graph: JobGraph,
    restored: Restored,
    *,
    generation: int,
    parallelism: int,
    now_ms: int,
    rescaled: bool = False,
    incarnation: str | None = None,
) -> Manifest:
    """The first manifest of a run. Its commit fences all older runs of the job."""
    processing_time_ms = max(now_ms, restored.processing_time_ms)
    return Manifest(
        job=job,
        run=run,
        generation=generation,
        epoch=restored.epoch,
        kind="start",
        created_ms=now_ms,
        processing_time_ms=processing_time_ms,
        parallelism=parallelism,
        rescaled=rescaled,
        max_parallelism=graph.max_parallelism,
        sources={uid: _awake(position, processing_time_ms) for uid, position in restored.sources.items()},
        watermarks=dict(restored.watermarks),
        input_watermarks=dict(restored.input_watermarks),
        states=list(restored.states),
        amounts=None if restored.amounts is None else list(restored.amounts),
        operators=operator_infos(graph),
        snapshots=list(restored.snapshots),
        parent=restored.parent,
        incarnation=incarnation or uuid.uuid4().hex[:12],
        emptied=list(restored.emptied),
    )


def _awake(position: SourcePosition, now_ms: int) -> SourcePosition:
    """Mark splits as active at the start, because no run read them while the job was down."""
    splits = {name: s.replace(last_active_ms=now_ms) for name, s in position.splits.items()}
    return position.replace(splits=splits)
