"""Commits of sink output, as tasks that run concurrently with epochs: on a cluster's executors, or on threads of the driver's
process if all tasks run on its host. Processes keep committers open, because connecting takes longer than a commit."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

from forkpoint import logs
from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.contract.sink import Committer, CommitterContext, CommittingSink
from forkpoint.contract.source import JSON
from forkpoint.runtime.operators.base import user_code
from forkpoint.runtime.tasks.task_log import background_task_log
from forkpoint.types import dumps

IDLE_SECONDS = 60.0
_THREADS = 16


@dataclass(frozen=True)
class Commit:
    """One task: the output of one group of a sink, of one or several epochs. ``sink``: pickled once per run. ``newest``: the
    job's newest epoch."""

    sink: bytes
    context: CommitterContext
    outputs: list[EpochOutput]
    newest: int

    def encode(self) -> bytes:
        return pickle.dumps(self, protocol=5)


class SinkCommits:
    """Creates the commits of one sink of a run."""

    def __init__(self, sink: CommittingSink) -> None:
        self._sink = sink

    @cached_property
    def _pickled(self) -> bytes:
        return dumps(self._sink)

    def of(self, context: CommitterContext, outputs: Sequence[EpochOutput], newest: int) -> list[Commit]:
        """The commits of the sink's output of some epochs, one per group. ``context``: without a group."""
        groups = by_group(self._sink, outputs)
        return [Commit(self._pickled, replace(context, group=group), own, newest) for group, own in groups]


def by_group(sink: CommittingSink, outputs: Sequence[EpochOutput]) -> list[tuple[str, list[EpochOutput]]]:
    """The groups of a sink's output, with their output of each epoch."""
    groups: dict[str, dict[int, list[JSON]]] = {}
    for output in outputs:
        for committable in output.committables:
            groups.setdefault(sink.group(committable), {}).setdefault(output.epoch, []).append(committable)
    return [
        (group, [EpochOutput(epoch=epoch, committables=own) for epoch, own in epochs.items()])
        for group, epochs in sorted(groups.items())
    ]


def commit_output(encoded: bytes) -> bytes:
    """The task of an encoded ``Commit``; the result is empty."""
    _commit(pickle.loads(encoded))
    return b""


def _commit(work: Commit) -> None:
    with _committer(work, "commit") as committer:
        committer.commit_together(work.outputs, work.newest)


def _pre_commit(work: Commit) -> None:
    with _committer(work, "pre_commit") as committer:
        for output in work.outputs:
            committer.pre_commit(output)


@contextmanager
def _committer(work: Commit, method: str) -> Iterator[Committer]:
    with user_code(work.context.uid, lambda: f"none: {method}()"):
        committer = _kept.take(work)
        try:
            yield committer
        except BaseException:
            committer.close()
            raise
        _kept.put(work, committer)


def commit_here(tasks: Sequence[Commit]) -> None:
    """Run the commits in this process, concurrently. After a failure no further commit starts, and the first error is raised once
    the running commits have ended. Threads that hang end with the process."""
    _run(_commit, tasks)


def pre_commit_here(tasks: Sequence[Commit]) -> None:
    """Like ``commit_here``, before the epoch is committed."""
    _run(_pre_commit, tasks)


def close_here(tasks: Sequence[Commit]) -> None:
    """Close the committers of these tasks, of which no commit follows."""
    for task in tasks:
        if (committer := _kept.pop(task)) is not None:
            committer.close()


def _run(step: Callable[[Commit], None], tasks: Sequence[Commit]) -> None:
    queue, lock, about = iter(tasks), threading.Lock(), logs.about_here()
    errors: list[BaseException] = []

    def work() -> None:
        while not errors:
            with lock:
                task = next(queue, None)
            if task is None:
                return
            try:
                with background_task_log(logs.of_tasks_here(), about):
                    step(task)
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
    """The idle committers of this process, by sink and context, with the time of their last use."""

    _idle: dict[tuple[bytes, CommitterContext], tuple[float, Committer]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, work: Commit) -> Committer:
        """A committer for exclusive use by the caller."""
        if (kept := self.pop(work)) is not None:
            return kept
        sink: CommittingSink = pickle.loads(work.sink)
        return sink.create_committer(work.context)

    def pop(self, work: Commit) -> Committer | None:
        with self._lock:
            kept = self._idle.pop((work.sink, work.context), None)
        return None if kept is None else kept[1]

    def put(self, work: Commit, committer: Committer) -> None:
        """Keep a committer for the next task, and close committers without recent use."""
        now, key = time.monotonic(), (work.sink, work.context)
        with self._lock:
            expired = [k for k, (used, _) in self._idle.items() if k == key or now - used > IDLE_SECONDS]
            old = [self._idle.pop(k)[1] for k in expired]
            self._idle[key] = (now, committer)
        for unused in old:
            unused.close()


_kept = _Kept()
