"""The base of the tasks of all stages: their rows, sinks and reports."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakMethod

from forkpoint.graph.job import InEdge, Operator
from forkpoint.runtime.exchange.control import CommitRow, EpochContext, Failure, JobSpec, Measured, UserMetric, encode_commit
from forkpoint.runtime.exchange.wire import COMMIT, ChunkRow
from forkpoint.runtime.operators.sinks import SinkInstance
from forkpoint.runtime.tasks.measurements import Stopwatch
from forkpoint.runtime.tasks.memory import Watch
from forkpoint.runtime.tasks.task_log import TaskLog


@dataclass
class Task(ABC):
    """One attempt of one task of an epoch. ``forwarded``: rows for other stages and the driver, sent even after a failure."""

    spec: JobSpec
    context: EpochContext
    stage: int
    subtask: int
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    rows: list[ChunkRow] = field(default_factory=list)
    forwarded: list[ChunkRow] = field(default_factory=list)
    sinks: dict[str, SinkInstance] = field(default_factory=dict)
    clock: Stopwatch = field(default_factory=Stopwatch)
    bytes_in: Counter[str] = field(default_factory=Counter)
    bytes_out: Counter[str] = field(default_factory=Counter)
    hottest: dict[str, tuple[str, float]] = field(default_factory=dict)  # keys, by operator
    memory: Watch | None = None  # if it is limited

    def __post_init__(self) -> None:
        about = WeakMethod(self._about)  # in a cycle, a task would hold its rows until the garbage collector runs

        def fields() -> dict[str, Any]:
            alive = about()
            return {} if alive is None else alive()

        self.log = TaskLog(self.spec.logging, fields, (self.spec.run, self.stage, self.subtask))

    def _about(self) -> dict[str, Any]:
        """The fields of log lines."""
        uid = self.clock.uid
        fields = {"job": self.spec.job, "run": self.spec.run_id, "epoch": self.context.epoch}
        return {**fields, **({} if uid is None else {"uid": uid}), "subtask": self.subtask}

    def sink(self, operator: Operator) -> SinkInstance:
        sink = self.sinks.get(operator.uid)
        if sink is None:
            sink = SinkInstance(operator, self.subtask, self.spec, self.context, self.attempt)
            self.sinks[operator.uid] = sink
        return sink

    def send(self, edge: InEdge, target: int, blob: bytes) -> None:
        self.bytes_out[self.spec.graph.by_id[edge.upstream].uid] += len(blob)
        self.rows.append((target, edge.id, (self.subtask << 32) + len(self.rows), blob))

    @abstractmethod
    def finish(self) -> list[ChunkRow]:
        """All rows of the completed task."""

    def committables(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for uid, sink in self.sinks.items():
            self.clock.switch(uid)
            if done := sink.prepare_commit():
                found[uid] = done
        self.clock.switch(None)
        return found

    def measured(self, user: Mapping[str, list[UserMetric]]) -> dict[str, Measured]:
        """The measurements of the operators that have worked. ``user``: the changes of user metrics."""
        return {
            uid: Measured(round(seconds * 1e6), self.bytes_in[uid], self.bytes_out[uid], user.get(uid, []), self.hottest.get(uid))
            for uid, seconds in self.clock.seconds.items()
        }

    def report(self, commit: CommitRow) -> ChunkRow:
        """The report to the driver, a row that reaches it through a subtask."""
        commit.said = self.log.returned()
        commit.memory = None if self.memory is None else self.memory.report()
        return self.subtask % self.spec.parallelism, COMMIT, 0, encode_commit(commit)

    def failed(self, *, one_by_one: Sequence[str] = (), failure: Failure | None = None) -> ChunkRow:
        """The report of a failed task, without other results."""
        return self.report(CommitRow(self.stage, self.subtask, self.attempt, one_by_one=list(one_by_one), failure=failure))

    def abort(self) -> None:
        for sink in self.sinks.values():
            sink.abort()
