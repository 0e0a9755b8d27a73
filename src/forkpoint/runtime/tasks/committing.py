"""Commits of sinks' output, as tasks beside the epochs: on a cluster's executors, or on threads of the driver's process where
all tasks run on its host. Processes keep committers: connecting takes longer than a commit."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from forkpoint import logs
from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.contract.sink import Committer, CommitterContext, CommittingSink
from forkpoint.contract.source import JSON
from forkpoint.runtime.operators.base import user_code
from forkpoint.runtime.tasks.task_log import beside_epochs
from forkpoint.types import dumps

IDLE_SECONDS = 60.0
_THREADS = 16


@dataclass(frozen=True)
class Commit:
    """One task: the output of one group of a sink, of one epoch or several. ``sink``: pickled, once for a run. ``newest``: the
    job's newest epoch."""

    sink: bytes
    context: CommitterContext
    outputs: list[EpochOutput]
    newest: int

    def encode(self) -> bytes:
        return pickle.dumps(self, protocol=5)


class SinkCommits:
    """Makes the commits of a sink of a run."""

    def __init__(self, sink: CommittingSink) -> None:
        self._sink = sink

    @cached_property
    def _pickled(self) -> bytes:
        return dumps(self._sink)

    def of(self, context: CommitterContext, outputs: Sequence[EpochOutput], newest: int) -> list[Commit]:
        """Those of its output of some epochs, one for each group. The ``context`` is of no group."""
        groups = by_group(self._sink, outputs)
        return [Commit(self._pickled, replace(context, group=group), own, newest) for group, own in groups]


def by_group(sink: CommittingSink, outputs: Sequence[EpochOutput]) -> list[tuple[str, list[EpochOutput]]]:
    """Each group of a sink's output, with what it has of each epoch."""
    groups: dict[str, dict[int, list[JSON]]] = {}
    for output in outputs:
        for committable in output.committables:
            groups.setdefault(sink.group(committable), {}).setdefault(output.epoch, []).append(committable)
    return [
        (group, [EpochOutput(epoch=epoch, committables=own) for epoch, own in epochs.items()])
        for group, epochs in sorted(groups.items())
    ]


def commit_output(encoded: bytes) -> bytes:
    """The task: an encoded ``Commit``; the result is empty."""
    _commit(pickle.loads(encoded))
    return b""


def _commit(work: Commit) -> None:
    with user_code(work.context.uid, lambda: "none: commit()"):
        committer = _kept.take(work)
        try:
            committer.commit_together(work.outputs, work.newest)
        except BaseException:
            committer.close()
            raise
        _kept.put(work, committer)


def commit_here(tasks: Sequence[Commit]) -> None:
    """Run the commits in this process, side by side. If some fail, no further one begins, and the first error is raised when
    those that run have ended. Threads that never return end with the process."""
    waiting, lock, about = iter(tasks), threading.Lock(), logs.about_here()
    errors: list[BaseException] = []

    def work() -> None:
        while not errors:
            with lock:
                task = next(waiting, None)
            if task is None:
                return
            try:
                with beside_epochs(logs.of_tasks_here(), about):
                    _commit(task)
            except BaseException as error:
                errors.append(error)

    threads = [
        threading.Thread(target=logs.carried(work), name="forkpoint-commit", daemon=True)
        for _ in range(min(len(tasks), _THREADS) - 1)
    ]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@dataclass
class _Kept:
    """The committers of this process that no task uses at the moment, by sink and context, with the time of their last use."""

    _idle: dict[tuple[bytes, CommitterContext], tuple[float, Committer]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, work: Commit) -> Committer:
        """A committer for the caller alone."""
        with self._lock:
            kept = self._idle.pop((work.sink, work.context), None)
        if kept is not None:
            return kept[1]
        sink: CommittingSink = pickle.loads(work.sink)
        return sink.create_committer(work.context)

    def put(self, work: Commit, committer: Committer) -> None:
        """Keep a committer for the next task, and close those that none has used for a while."""
        now, place = time.monotonic(), (work.sink, work.context)
        with self._lock:
            old = [each for each, (used, _) in self._idle.items() if each == place or now - used > IDLE_SECONDS]
            closing = [self._idle.pop(each)[1] for each in old]
            self._idle[place] = (now, committer)
        for each in closing:
            each.close()


_kept = _Kept()
