"""What the tasks of all stages share: the rows that they send, and their sinks."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from forkpoint.graph.job import InEdge, Operator
from forkpoint.runtime.exchange.control import CommitRow, EpochContext, JobSpec, encode_commit
from forkpoint.runtime.exchange.wire import COMMIT, ChunkRow
from forkpoint.runtime.operators.sinks import SinkInstance


@dataclass
class Task(ABC):
    """One attempt of one task of an epoch. ``passing``: rows for other stages and the driver, passed on even if it fails."""

    spec: JobSpec
    context: EpochContext
    stage: int
    subtask: int
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    rows: list[ChunkRow] = field(default_factory=list)
    passing: list[ChunkRow] = field(default_factory=list)
    sinks: dict[str, SinkInstance] = field(default_factory=dict)

    def sink(self, operator: Operator) -> SinkInstance:
        sink = self.sinks.get(operator.uid)
        if sink is None:
            sink = SinkInstance(operator, self.subtask, self.spec, self.context, self.attempt)
            self.sinks[operator.uid] = sink
        return sink

    def send(self, edge: InEdge, target: int, blob: bytes) -> None:
        self.rows.append((target, edge.id, (self.subtask << 32) + len(self.rows), blob))

    @abstractmethod
    def finish(self) -> list[ChunkRow]:
        """All rows of the completed task."""

    def committables(self) -> dict[str, list[Any]]:
        return {uid: done for uid, sink in self.sinks.items() if (done := sink.prepare_commit())}

    def report(self, **parts: Any) -> ChunkRow:
        """The report to the driver, a row that reaches it by way of a subtask."""
        commit = CommitRow(self.stage, self.subtask, self.attempt, **parts)
        return self.subtask % self.spec.parallelism, COMMIT, 0, encode_commit(commit)

    def abort(self) -> None:
        for sink in self.sinks.values():
            sink.abort()
