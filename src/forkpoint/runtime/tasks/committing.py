"""Commits of sinks' output, as tasks beside the epochs: on a cluster's executors, or on threads of the driver's process where
all tasks run on its host. Processes keep committers: connecting takes longer than a commit."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

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
    """One task: the output of one group of a sink, of one epoch or several. ``place``: the pickled sink and the committer's
    context. ``newest``: the job's newest epoch."""

    uid: str
    place: bytes
    outputs: list[EpochOutput]
    newest: int


def commits(sink: CommittingSink, context: CommitterContext, outputs: Sequence[EpochOutput], newest: int) -> list[bytes]:
    """The tasks that commit a sink's output of some epochs, one for each group. The ``context`` is of no group."""
    return [
        pickle.dumps(Commit(context.uid, dumps((sink, replace(context, group=group))), own, newest))
        for group, own in by_group(sink, outputs)
    ]


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
    work: Commit = pickle.loads(encoded)
    with user_code(work.uid, lambda: "none: commit()"):
        committer = _kept.take(work.place)
        try:
            committer.commit_together(work.outputs, work.newest)
        except BaseException:
            committer.close()
            raise
        _kept.put(work.place, committer)
    return b""


def commit_here(tasks: Sequence[bytes]) -> None:
    """Run the tasks in this process, side by side. If some fail, no further one begins, and the first error is raised when
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
                    commit_output(task)
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
    """The committers of this process that no task uses at the moment, by their place, with the time of their last use."""

    _idle: dict[bytes, tuple[float, Committer]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, place: bytes) -> Committer:
        """A committer for the caller alone."""
        with self._lock:
            kept = self._idle.pop(place, None)
        if kept is not None:
            return kept[1]
        sink, context = pickle.loads(place)
        committer: Committer = sink.create_committer(context)
        return committer

    def put(self, place: bytes, committer: Committer) -> None:
        """Keep a committer for the next task, and close those that none has used for a while."""
        now = time.monotonic()
        with self._lock:
            old = [each for each, (used, _) in self._idle.items() if each == place or now - used > IDLE_SECONDS]
            closing = [self._idle.pop(each)[1] for each in old]
            self._idle[place] = (now, committer)
        for each in closing:
            each.close()


_kept = _Kept()
