"""Publishes the output of committed epochs, repeats that after a crash, and removes staged output that was never committed.

Most sinks publish on the driver, before the next epoch begins. Tasks commit the output of a ``CommittingSink`` while further
epochs run, several epochs at once if the sink wants that. Some sinks send output while the manifest is written, so that only the
end of a transaction follows. Each manifest lists the output that may be unpublished, for the next start.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forkpoint import logs
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import EpochOutput, Manifest
from forkpoint.contract.sink import CommitterContext, CommittingSink, Sink
from forkpoint.driver.commit.skipped_records import Skipped, commit_accepted, skip_hint
from forkpoint.driver.observe.events import Listener, PublishingProgressed
from forkpoint.driver.run.executor import Executor
from forkpoint.errors import ForkpointError, NotFound, OutputLost, OutputRefused, Unavailable, of_sink
from forkpoint.graph.job import JobGraph
from forkpoint.graph.specs import SinkSpec
from forkpoint.runtime.tasks.commits import Commit, SinkCommits, close_here, commit_here, commit_output, pre_commit_here

log = logging.getLogger("forkpoint")

MAX_UNPUBLISHED_EPOCHS = 4
MAX_BATCH = 100  # epochs in one commit; every manifest lists the output of those that wait
POLL_SECONDS = 0.2
SLOW_SECONDS = 5.0
CLOSE_SECONDS = 3.0
RETRY_SECONDS = (0.1, 0.3, 1.0, 3.0)  # the last delay repeats


def publish(graph: JobGraph, manifest: Manifest) -> None:
    """Publish the epoch's output in the sinks that publish on the driver; the next start repeats an interrupted call. All sinks
    publish, even if staged output of some is missing, which raises NotFound in the end."""
    missing: list[NotFound] = []
    for uid, sink in _published_here(graph):
        try:
            with logs.narrowed(epoch=manifest.epoch, uid=uid):
                sink.commit(manifest.sinks.get(uid, []), manifest.epoch)
        except NotFound as error:
            missing.append(error)
    if manifest.kind == "end":
        for _, sink in _published_here(graph):
            sink.finish(manifest.epoch, manifest.incarnation or "")
    if missing:
        raise NotFound("; ".join(map(str, missing)))


def _published_here(graph: JobGraph) -> Iterator[tuple[str, Sink[Any]]]:
    """The sinks that publish on the driver, with their uids."""
    for operator in graph.sinks:
        if isinstance(operator.spec, SinkSpec) and not isinstance(operator.spec.sink, CommittingSink):
            yield operator.uid, operator.spec.sink


def clean_sinks(graph: JobGraph, job: str, generation: int) -> None:
    """Remove uncommitted staged output of runs up to this generation."""
    for operator in graph.sinks:
        if isinstance(operator.spec, SinkSpec):
            operator.spec.sink.cleanup(operator.uid, job, generation)


def committing_sinks(graph: JobGraph) -> dict[str, CommittingSink]:
    """The sinks whose output is committed by tasks, by uid."""
    return {
        operator.uid: operator.spec.sink
        for operator in graph.sinks
        if isinstance(operator.spec, SinkSpec) and isinstance(operator.spec.sink, CommittingSink)
    }


def batches(sink: CommittingSink, outputs: Sequence[EpochOutput]) -> Iterator[list[EpochOutput]]:
    """A sink's output, divided into consecutive commits."""
    size = 1 if sink.commit_every is None else MAX_BATCH
    for at in range(0, len(outputs), size):
        yield list(outputs[at : at + size])


@dataclass
class _Lane:
    """A sink's queue of committed output that may be unpublished, oldest first. ``due``: the (monotonic) time of the next commit,
    if there is output. ``coming``: the manifest that is being committed, if its output can be sent meanwhile; ``sent``: the
    commits of output that has been sent, and not committed. ``problem``: why publishing fails; ``tried_since``: when the running
    commit began, or what precedes it (monotonic)."""

    sink: CommittingSink
    outputs: list[EpochOutput] = field(default_factory=list)
    coming: Manifest | None = None
    sent: list[Commit] = field(default_factory=list)
    due: float = 0.0
    problem: str | None = None
    tried_since: float | None = None
    thread: threading.Thread | None = None

    @property
    def full(self) -> bool:
        return self._capacity <= 0

    @property
    def behind(self) -> bool:
        return self._capacity <= 1

    @property
    def _capacity(self) -> int:
        """How many more epochs may be unpublished."""
        waiting = 0 if self.sink.commit_every is None else MAX_BATCH
        return waiting + MAX_UNPUBLISHED_EPOCHS - len(self.outputs)

    def add(self, output: EpochOutput) -> None:
        if not self.outputs:
            self._set_due()
        self.outputs.append(output)
        self.coming = None

    def published(self, count: int) -> None:
        del self.outputs[:count]
        self.sent = []
        self.problem = self.tried_since = None
        self._set_due()

    def _set_due(self) -> None:
        every = self.sink.commit_every
        self.due = time.monotonic() + (0 if every is None else every.total_seconds())

    def due_in_s(self, hurry: bool) -> float | None:
        """Time until the next commit; None if there is no output."""
        if not self.outputs:
            return None
        return 0.0 if hurry or len(self.outputs) >= MAX_BATCH else max(0.0, self.due - time.monotonic())


class Publisher:
    """Publishes the output of one run's epochs. Calls ``wake`` when back pressure ends. Thread-safe."""

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
        self.skipped: list[Skipped] | None = None  # refused records; None: a refusal is an error
        self.through: int | None = None  # the last epoch that the sinks on the driver have published

    # -- called by the run

    def begin(self) -> None:
        """Begin a new attempt of the run."""
        with self._changed:
            self._attempt += 1

    def reset(self) -> None:
        """Forget unpublished output: the run resumes from a manifest and publishes it again."""
        with self._changed:
            self._attempt += 1
            self._failure = None
            self._lanes = {uid: _Lane(sink) for uid, sink in self._sinks.items()}
            self._changed.notify_all()

    def prepare(self, manifest: Manifest) -> None:
        """Send output of an epoch that is about to be committed, invisibly, in sinks that can do so while they have nothing to
        commit. ``publish`` of the same manifest follows, or ``reset``."""
        if self.skipped is not None or self._executor.has_other_hosts:
            return
        with self._changed:
            for uid, lane in self._lanes.items():
                if lane.sink.pre_commits and manifest.sinks.get(uid):
                    lane.coming = manifest
                    self._must_run(uid, lane)
            self._changed.notify_all()

    def publish(self, manifest: Manifest) -> None:
        """Publish a newly committed epoch, or queue it for tasks. Raises NotFound if staged output of a sink on the driver is
        gone."""
        publish(self._graph, manifest)
        with self._changed:
            self._newest, self.through = manifest, manifest.epoch
            for uid, lane in self._lanes.items():
                if own := manifest.sinks.get(uid):
                    lane.add(EpochOutput(epoch=manifest.epoch, committables=own))
                    self._must_run(uid, lane)
            self._changed.notify_all()
        self._report()

    def publish_now(self, manifest: Manifest, newest: Manifest) -> None:
        """Block until all output that this manifest lists is published: the unpublished output of earlier epochs, and the epoch's
        own. ``newest``: the run's newest manifest."""
        outputs = {uid: list(manifest.unpublished.get(uid, ())) for uid in self._sinks}
        for uid in self._sinks:
            if committables := manifest.sinks.get(uid):
                outputs[uid].append(EpochOutput(epoch=manifest.epoch, committables=committables))
        self._commit_now(outputs, newest)
        publish(self._graph, manifest)

    def publish_earlier(self, manifest: Manifest, newest: Manifest) -> None:
        """Block until the unpublished output of the epochs before this one, whose own is withheld, is published."""
        self._commit_now(manifest.unpublished, newest)

    def _commit_now(self, outputs: Mapping[str, Sequence[EpochOutput]], newest: Manifest) -> None:
        for uid, sink in self._sinks.items():
            for batch in batches(sink, outputs.get(uid, ())):
                self._commit(uid, sink, newest, batch)

    def unpublished(self) -> dict[str, list[EpochOutput]]:
        """Output that may be unpublished, by uid."""
        with self._changed:
            return {uid: list(lane.outputs) for uid, lane in self._lanes.items() if lane.outputs}

    @property
    def published(self) -> int | None:
        """The epoch up to which all output is published; None if some may be unpublished."""
        with self._changed:
            return None if self._pending or self._failure is not None else self.through

    @property
    def full(self) -> bool:
        """Whether back pressure stops the job: too many epochs are unpublished. Raises the error that stopped publishing."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            return any(lane.full for lane in self._lanes.values())

    def wait(self, seconds: float) -> bool:
        """Flush: wait up to ``seconds`` until all output is published, with no commit delayed; returns whether it is. Raises the
        error that stopped publishing."""
        with self._changed:
            self._hurried += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._failure is not None or not self._pending, seconds)
            self._hurried -= 1
            if self._failure is not None:
                raise self._failure
            return not self._pending

    def settle(self, cancelled: Callable[[], bool]) -> str | None:
        """Block until all output is published. If the run is cancelled before, return why output is unpublished; otherwise raise
        the error that stopped publishing."""
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
        """Why publishing is delayed, for the first sink where it is."""
        with self._changed:
            for uid, lane in self._lanes.items():
                if lane.problem is not None:
                    return lane.problem
                passed_s = 0.0 if lane.tried_since is None else time.monotonic() - lane.tried_since
                if passed_s >= SLOW_SECONDS and lane.outputs:
                    return f"sink {uid!r} has been committing epoch {lane.outputs[0].epoch} for {passed_s:.0f} s"
        return None

    @property
    def _pending(self) -> bool:
        return any(lane.outputs for lane in self._lanes.values())

    def close(self) -> None:
        """Start no further commit. Sent output that is not committed is given up."""
        lanes = list(self._lanes.values())
        self.reset()
        for lane in lanes:
            if lane.sent and lane.thread is not None:
                lane.thread.join(CLOSE_SECONDS)

    def _must_run(self, uid: str, lane: _Lane) -> None:
        if lane.thread is None:
            work, name = logs.carried(self._work), f"forkpoint-publish-{uid}"
            lane.thread = threading.Thread(target=work, args=(uid, lane), name=name, daemon=True)
            lane.thread.start()

    # -- on a sink's thread

    def _work(self, uid: str, lane: _Lane) -> None:
        tries = 0
        try:
            while self._wait_for_output(uid, lane):
                if not lane.outputs:
                    self._pre_commit(uid, lane)
                elif self._try(uid, lane):
                    tries = 0
                else:
                    delay = RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)]
                    tries += 1
                    with self._changed:
                        self._changed.wait_for(lambda: not self._uses(uid, lane), delay)
        except BaseException as error:
            with self._changed:
                if self._uses(uid, lane):
                    self._failure = error
                self._changed.notify_all()
            self._wake()
        finally:
            close_here(lane.sent)

    def _wait_for_output(self, uid: str, lane: _Lane) -> bool:
        """Wait until a commit is due, or output can be sent; returns False once another lane has replaced this one."""
        with self._changed:
            while self._uses(uid, lane) and (seconds := lane.due_in_s(self._hurried > 0)) != 0:
                if lane.coming is not None and not lane.outputs:
                    break
                self._changed.wait(seconds)
            return self._uses(uid, lane)

    def _pre_commit(self, uid: str, lane: _Lane) -> None:
        """Send the coming output. After an error, its commit sends it again."""
        with self._changed:
            manifest, lane.coming = lane.coming, None
        if manifest is None:  # it has been committed meanwhile
            return
        lane.tried_since = time.monotonic()
        output = EpochOutput(epoch=manifest.epoch, committables=manifest.sinks[uid])
        lane.sent = self._commits[uid].of(self._context(uid, manifest), [output], manifest.epoch)
        try:
            with logs.narrowed(job=manifest.job, run=manifest.run, epoch=manifest.epoch, uid=uid):
                pre_commit_here(lane.sent)
        except Exception as error:
            log.debug("epoch %d: the output of %r is sent after the commit: %s", manifest.epoch, uid, error)

    def _try(self, uid: str, lane: _Lane) -> bool:
        """Commit a sink's oldest batch; returns False to retry. One batch at a time: one group's output of an epoch may have to
        precede another group's output of the next."""
        with self._changed:
            outputs, manifest, attempt = next(batches(lane.sink, lane.outputs)), self._newest, self._attempt
            lane.tried_since = time.monotonic()
        assert manifest is not None
        try:
            self._commit(uid, lane.sink, manifest, outputs)
        except Exception as error:
            if not isinstance(error, Unavailable) and attempt == self._attempt:  # an attempt's end interrupts its tasks
                raise
            lane.problem = str(error)
            self._report()
            return False
        with self._changed:
            was_full = lane.full
            lane.published(len(outputs))
            self._changed.notify_all()
        self._report()
        if was_full:
            self._wake()
        return True

    def _uses(self, uid: str, lane: _Lane) -> bool:
        return self._lanes[uid] is lane

    def _commit(self, uid: str, sink: CommittingSink, newest: Manifest, outputs: Sequence[EpochOutput]) -> None:
        """Commit output. ``newest``: the run's newest manifest. A newer run may have published it and removed the files."""
        context, last = self._context(uid, newest), outputs[-1].epoch
        try:
            with logs.narrowed(job=newest.job, run=newest.run, epoch=last, uid=uid):
                if self.skipped is not None:
                    self.skipped += commit_accepted(sink, context, outputs, newest.epoch, self._history.storage)
                    return
                tasks = self._commits[uid].of(context, outputs, newest.epoch)
                if self._executor.has_other_hosts:
                    description = f"forkpoint: publish epoch {last} of {uid}"
                    self._executor.run_beside_epochs(commit_output, [task.encode() for task in tasks], description)
                else:  # in this process: Spark would give a group's output to varying processes, which would all have to connect
                    commit_here(tasks)
        except NotFound as error:
            self._must_lead(newest)
            raise OutputLost(
                f"job {newest.job!r}: epoch {last} is committed, but the output that sink {uid!r} staged for it is gone: "
                f"{error}. Put it back, or restore an earlier savepoint to compute it again"
            ) from error
        except Unavailable as error:
            raise of_sink(uid, error) from error
        except OutputRefused as error:
            self._must_lead(newest)
            raise of_sink(uid, OutputRefused(f"{error}{skip_hint(newest.job)}")) from error
        except ForkpointError as error:
            self._must_lead(newest)
            raise of_sink(uid, error) from error

    def _context(self, uid: str, manifest: Manifest) -> CommitterContext:
        assert manifest.incarnation is not None
        return CommitterContext(uid, manifest.job, "", manifest.incarnation, self._history.storage.url)

    def _must_lead(self, mine: Manifest) -> None:
        """Raise StaleGeneration if a newer run leads the job."""
        newest = self._history.newest()
        if newest is not None and newest.run != mine.run:
            raise self._history.stale(mine, newest)

    def _report(self) -> None:
        with self._changed:
            epochs: Mapping[str, int] = {u: len(lane.outputs) for u, lane in self._lanes.items() if lane.outputs}
            behind = [uid for uid, lane in self._lanes.items() if lane.behind]
        self._listener.on_event(PublishingProgressed(epochs, behind, self._now_ms()))


@dataclass(frozen=True)
class Republisher:
    """Publishes the job's last epoch again at a start or restart. ``ended_well``: whether a run ended regularly; a run that was
    killed after its last commit may have unpublished output."""

    publisher: Publisher
    graph: JobGraph
    history: History
    run: str
    ended_well: Callable[[str], bool]

    def repeat(self, mine: Manifest) -> None:
        """Publish committed output that may be unpublished, then remove uncommitted output. ``mine``: this run's newest manifest.

        It publishes withheld output if the next run continued from it, according to that run's first manifest, and drops it
        otherwise. Later runs repeat this, because that run may have been killed.
        """
        if self.publish(mine):
            clean_sinks(self.graph, mine.job, mine.generation)
        if mine.kind == "start" and not (mine.sources or mine.states):
            for _, sink in _published_here(self.graph):
                sink.begin(mine.epoch, mine.incarnation or "")

    def publish(self, newest: Manifest) -> bool:
        """Publish committed output, up to the job's newest manifest, that may be unpublished. Returns whether uncommitted output
        may be removed: not if output is withheld, as the next run decides about it."""
        self.publisher.reset()
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
                "job %r: output of epoch %d was not found: %s. It was published earlier and removed since",
                last.job,
                last.epoch,
                error,
            )
        except OutputLost as error:
            if must:
                raise
            log.error("job %r: %s", last.job, error)
