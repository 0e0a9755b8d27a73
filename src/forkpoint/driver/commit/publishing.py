"""Publishes committed epochs' output, repeats that after a crash, and removes staged output that was never committed.

Most sinks publish on the driver, before the next epoch begins. The output of a ``CommittingSink`` is committed by tasks beside
the next epochs, that of several at once if the sink wants so; each manifest names what was not known to be published when it was
written, for the next start.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from forkpoint import logs
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import EpochOutput, Manifest
from forkpoint.contract.sink import CommitterContext, CommittingSink
from forkpoint.driver.commit.skipping import Skipped, commit_accepted, skipping
from forkpoint.driver.observe.events import Listener, PublishingProgressed
from forkpoint.driver.run.executor import Executor
from forkpoint.errors import ForkpointError, NotFound, OutputLost, OutputRefused, Unavailable, of_sink
from forkpoint.graph.job import JobGraph
from forkpoint.graph.specs import SinkSpec
from forkpoint.runtime.tasks.committing import Commit, SinkCommits, commit_here, commit_output

log = logging.getLogger("forkpoint")

MAX_UNPUBLISHED_EPOCHS = 4
MAX_TOGETHER = 100  # epochs that wait to be committed together: all manifests meanwhile name their output
POLL_SECONDS = 0.2
SLOW_SECONDS = 5.0
RETRY_SECONDS = (0.1, 0.3, 1.0, 3.0)  # the last one again and again


def publish(graph: JobGraph, manifest: Manifest) -> None:
    """Make the epoch's output visible in the sinks that publish on the driver; if it is cut short, the next start repeats it. All
    sinks publish even if some lack staged output; then NotFound is raised."""
    missing: list[NotFound] = []
    for operator in graph.sinks:
        if isinstance(operator.spec, SinkSpec) and not isinstance(operator.spec.sink, CommittingSink):
            try:
                with logs.narrowed(epoch=manifest.epoch, uid=operator.uid):
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


def committing_sinks(graph: JobGraph) -> dict[str, CommittingSink]:
    """The sinks whose output tasks commit, by uid."""
    return {
        operator.uid: operator.spec.sink
        for operator in graph.sinks
        if isinstance(operator.spec, SinkSpec) and isinstance(operator.spec.sink, CommittingSink)
    }


def unpublished_in(manifest: Manifest, uid: str) -> list[EpochOutput]:
    """A sink's output that may not be published yet when all that is known is this manifest."""
    own = manifest.sinks.get(uid, [])
    return [*manifest.unpublished.get(uid, ()), *([EpochOutput(epoch=manifest.epoch, committables=own)] if own else ())]


def together(sink: CommittingSink, outputs: Sequence[EpochOutput]) -> Iterator[list[EpochOutput]]:
    """A sink's output in the portions that are committed one after the other."""
    size = 1 if sink.commit_every is None else MAX_TOGETHER
    for at in range(0, len(outputs), size):
        yield list(outputs[at : at + size])


@dataclass
class _Lane:
    """One sink's committed output that is not known to be published, oldest first; why that doesn't get on, and since when
    (monotonic) it is tried. ``due``: when (monotonic) the next portion is to be committed, if there is output."""

    sink: CommittingSink
    outputs: list[EpochOutput] = field(default_factory=list)
    due: float = 0.0
    problem: str | None = None
    tried_since: float | None = None
    thread: threading.Thread | None = None

    @property
    def full(self) -> bool:
        return self._room <= 0

    @property
    def behind(self) -> bool:
        return self._room <= 1

    @property
    def _room(self) -> int:
        """How many more epochs may be unpublished."""
        waiting = 0 if self.sink.commit_every is None else MAX_TOGETHER
        return waiting + MAX_UNPUBLISHED_EPOCHS - len(self.outputs)

    def add(self, output: EpochOutput) -> None:
        if not self.outputs:
            self._wait_anew()
        self.outputs.append(output)

    def next(self) -> list[EpochOutput]:
        return next(together(self.sink, self.outputs))

    def published(self, count: int) -> None:
        del self.outputs[:count]
        self.problem = self.tried_since = None
        self._wait_anew()

    def _wait_anew(self) -> None:
        every = self.sink.commit_every
        self.due = time.monotonic() + (0 if every is None else every.total_seconds())

    def due_in_s(self, hurry: bool) -> float | None:
        """How long until the next portion is to be committed; None if there is no output."""
        if not self.outputs:
            return None
        return 0.0 if hurry or len(self.outputs) >= MAX_TOGETHER else max(0.0, self.due - time.monotonic())


class Publisher:
    """Publishes the output of one run's epochs. ``wake`` is called when a job that had to wait may go on. Thread-safe."""

    def __init__(
        self,
        graph: JobGraph,
        executor: Executor,
        history: History,
        listener: Listener,
        wake: Callable[[], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._graph = graph
        self._executor = executor
        self._history = history
        self._listener = listener
        self._wake = wake
        self._now_ms = now_ms
        self._sinks = committing_sinks(graph)
        self._commits = {uid: SinkCommits(sink) for uid, sink in self._sinks.items()}
        self._lanes = {uid: _Lane(sink) for uid, sink in self._sinks.items()}
        self._changed = threading.Condition()
        self._attempt = 0
        self._hurried = 0  # calls of ``wait``
        self._newest: Manifest | None = None
        self._failure: BaseException | None = None
        self.skipped: list[Skipped] | None = None  # the refused records, if they are to be skipped
        self.through: int | None = None  # the last epoch whose output the driver's own sinks have published

    # -- called by the run

    def begin(self) -> None:
        """A new attempt of the run begins. What the last one left is forgotten, unless that continues without a break: a start
        or restart has published it with ``publish_now``."""
        with self._changed:
            self._attempt += 1

    def start_over(self) -> None:
        """Forget what is not published: the run resumes from a manifest, and publishes it again."""
        with self._changed:
            self._attempt += 1
            self._failure = None
            self._lanes = {uid: _Lane(sink) for uid, sink in self._sinks.items()}
            self._changed.notify_all()

    def publish(self, manifest: Manifest) -> None:
        """Publish a newly committed epoch, or let tasks do so. Raises NotFound for staged output of the driver's sinks."""
        publish(self._graph, manifest)
        with self._changed:
            self._newest, self.through = manifest, manifest.epoch
            for uid, lane in self._lanes.items():
                if own := manifest.sinks.get(uid):
                    lane.add(EpochOutput(epoch=manifest.epoch, committables=own))
                    if lane.thread is None:
                        lane.thread = self._start(uid, lane)
            self._changed.notify_all()
        self._tell()

    def publish_now(self, manifest: Manifest, newest: Manifest) -> None:
        """Publish everything that may not be published if this is the job's newest output, and wait for that. ``newest``: the
        run's own newest manifest."""
        for uid, sink in self._sinks.items():
            for outputs in together(sink, unpublished_in(manifest, uid)):
                self._commit(uid, sink, newest, outputs)
        publish(self._graph, manifest)

    def publish_earlier(self, manifest: Manifest, newest: Manifest) -> None:
        """Publish what may not be published of the epochs before a manifest whose own output is withheld, and wait for that."""
        for uid, sink in self._sinks.items():
            for outputs in together(sink, manifest.unpublished.get(uid, ())):
                self._commit(uid, sink, newest, outputs)

    def unpublished(self) -> dict[str, list[EpochOutput]]:
        """By uid, what is not known to be published."""
        with self._changed:
            return {uid: list(lane.outputs) for uid, lane in self._lanes.items() if lane.outputs}

    @property
    def published(self) -> int | None:
        """The epoch up to which everything is known to be published; None if something may not be."""
        with self._changed:
            return None if self._pending or self._failure is not None else self.through

    @property
    def full(self) -> bool:
        """Whether so much is unpublished that the job has to wait. Raises what has made publishing impossible."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            return any(lane.full for lane in self._lanes.values())

    def wait(self, seconds: float) -> bool:
        """Wait until everything is published, which then waits for nothing else, but no longer than this; whether it is. Raises
        what has made that impossible."""
        with self._changed:
            self._hurried += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._failure is not None or not self._pending, seconds)
            self._hurried -= 1
            if self._failure is not None:
                raise self._failure
            return not self._pending

    def settle(self, cancelled: Callable[[], bool]) -> str | None:
        """Wait until everything is published, unless the run is cancelled; if it is not, why. Raises what has made publishing
        impossible, unless the run is cancelled."""
        try:
            while not self.wait(POLL_SECONDS):
                if (problem := self.problem) is not None and cancelled():
                    return f"cancelled before its output was published: {problem}"
        except Exception as error:
            if not cancelled():
                raise
            return f"cancelled before its output was published: {error}"
        return None

    @property
    def problem(self) -> str | None:
        """Why a sink's output is not published at the moment."""
        with self._changed:
            for uid, lane in self._lanes.items():
                if lane.problem is not None:
                    return lane.problem
                passed_s = 0.0 if lane.tried_since is None else time.monotonic() - lane.tried_since
                if passed_s >= SLOW_SECONDS:
                    return f"sink {uid!r} has been committing epoch {lane.outputs[0].epoch} for {passed_s:.0f} s"
        return None

    @property
    def _pending(self) -> bool:
        return any(lane.outputs for lane in self._lanes.values())

    def close(self) -> None:
        """Begin no further commit."""
        self.start_over()

    def _start(self, uid: str, lane: _Lane) -> threading.Thread:
        thread = threading.Thread(target=logs.carried(self._work), args=(uid, lane), name=f"forkpoint-publish-{uid}", daemon=True)
        thread.start()
        return thread

    # -- on a sink's thread

    def _work(self, uid: str, lane: _Lane) -> None:
        try:
            self._commit_all(uid, lane)
        except BaseException as error:
            with self._changed:
                if self._uses(uid, lane):
                    self._failure = error
                self._changed.notify_all()
            self._wake()

    def _commit_all(self, uid: str, lane: _Lane) -> None:
        """Commit a sink's output as long as it is this lane's."""
        tries = 0
        while self._wait_for_output(uid, lane):
            if self._try(uid, lane):
                tries = 0
            else:
                delay = RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)]
                tries += 1
                with self._changed:
                    self._changed.wait_for(lambda: not self._uses(uid, lane), delay)

    def _wait_for_output(self, uid: str, lane: _Lane) -> bool:
        """Wait until output is to be committed; False if it is not this lane's any more."""
        with self._changed:
            while self._uses(uid, lane) and (seconds := lane.due_in_s(self._hurried > 0)) != 0:
                self._changed.wait(seconds)
            return self._uses(uid, lane)

    def _try(self, uid: str, lane: _Lane) -> bool:
        """Commit a sink's oldest output; False if that has to be tried again. One portion at a time: what one group has of an
        epoch may precede what another has of the next."""
        with self._changed:
            outputs, manifest, attempt = lane.next(), self._newest, self._attempt
            lane.tried_since = time.monotonic()
        assert manifest is not None
        try:
            self._commit(uid, lane.sink, manifest, outputs)
        except Exception as error:
            if not isinstance(error, Unavailable) and attempt == self._attempt:  # an attempt's end interrupts its tasks
                raise
            lane.problem = str(error)
            self._tell()
            return False
        with self._changed:
            was_full = lane.full
            lane.published(len(outputs))
            self._changed.notify_all()
        self._tell()
        if was_full:
            self._wake()
        return True

    def _uses(self, uid: str, lane: _Lane) -> bool:
        return self._lanes[uid] is lane

    def _commit(self, uid: str, sink: CommittingSink, newest: Manifest, outputs: Sequence[EpochOutput]) -> None:
        """Commit output. ``newest``: the run's newest manifest. A newer run may have published it, and removed the files."""
        assert newest.incarnation is not None
        root = self._history.storage.url
        context = CommitterContext(uid, newest.job, "", newest.incarnation, root)
        last = outputs[-1].epoch
        try:
            with logs.narrowed(job=newest.job, run=newest.run, epoch=last, uid=uid):
                if self.skipped is not None:
                    self.skipped += commit_accepted(sink, context, outputs, newest.epoch, self._history.storage)
                    return
                tasks = self._commits[uid].of(context, outputs, newest.epoch)
                self._run(tasks, f"forkpoint: publish epoch {last} of {uid}")
        except NotFound as error:
            self._must_lead(newest)
            raise OutputLost(
                f"job {newest.job!r}: epoch {last} is committed, but what sink {uid!r} staged for it is gone: {error}. "
                "Put it back, or restore an earlier savepoint to compute it again"
            ) from error
        except Unavailable as error:
            raise of_sink(uid, error) from error
        except OutputRefused as error:
            self._must_lead(newest)
            raise of_sink(uid, OutputRefused(f"{error}{skipping(newest.job)}")) from error
        except ForkpointError as error:
            self._must_lead(newest)
            raise of_sink(uid, error) from error

    def _run(self, tasks: Sequence[Commit], description: str) -> None:
        """Run commits. On the driver's host this process does that itself: Spark would give a group's output now to one process
        and now to another, and each would connect anew."""
        if self._executor.has_other_hosts:
            self._executor.run_tasks(commit_output, [task.encode() for task in tasks], description)
        else:
            commit_here(tasks)

    def _must_lead(self, mine: Manifest) -> None:
        """Raise StaleGeneration if a newer run leads the job."""
        newest = self._history.newest()
        if newest is not None and newest.run != mine.run:
            raise self._history.stale(mine, newest)

    def _tell(self) -> None:
        with self._changed:
            epochs: Mapping[str, int] = {u: len(lane.outputs) for u, lane in self._lanes.items() if lane.outputs}
            behind = [uid for uid, lane in self._lanes.items() if lane.behind]
        self._listener.on_event(PublishingProgressed(epochs, behind, self._now_ms()))


@dataclass(frozen=True)
class Republisher:
    """Repeats the publishing of the job's last epoch at a start or restart. ``ended_well``: whether a run ended regularly;
    one that was killed after its last commit may have unpublished output."""

    publisher: Publisher
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
        if self.publish(mine):
            clean_sinks(self.graph, mine.job, mine.generation)

    def publish(self, newest: Manifest) -> bool:
        """Publish the committed output up to the job's newest manifest that may not be visible yet. Whether nothing is withheld:
        else, the next run decides on that."""
        self.publisher.start_over()
        self.history.must_be_newest(newest)
        last: Manifest | None = newest
        start = newest
        while last is not None and last.kind == "start":
            start, last = last, self.history.before(last.epoch)
        if last is not None:
            own = last.run == self.run
            continued = (start.parent.job, start.parent.epoch, start.parent.run) == (last.job, last.epoch, last.run)
            if last.withheld and not continued:
                self.publisher.publish_earlier(last, newest)
                return not own
            if last.withheld or not self.ended_well(last.run):
                self._publish_again(last, newest, must=own or continued)
        self.publisher.through = newest.epoch
        return True

    def _publish_again(self, last: Manifest, newest: Manifest, *, must: bool) -> None:
        try:
            self.publisher.publish_now(last, newest)
        except NotFound as error:
            log.warning(
                "job %r: output of epoch %d was not found: %s. It was published before and has been removed since",
                last.job,
                last.epoch,
                error,
            )
        except OutputLost as error:
            if must:
                raise
            log.error("job %r: %s", last.job, error)
