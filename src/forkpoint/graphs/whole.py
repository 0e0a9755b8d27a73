"""Operators that keep what is known about a whole graph, on one subtask: the net changes of its edges have one key."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from forkpoint.graphs.records import net_changes
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.operators.base import Epoch, KeyedOperator, Outputs, TaskInfo
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.types import TypeInformation
from forkpoint.types.keys import key_form
from forkpoint.types.kinds.records import RecordType


class OfWholeGraph(KeyedOperator):
    """Emits a record of type ``of`` for each vertex whose result an epoch has changed."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, vertex_type: TypeInformation, of: RecordType) -> None:
        super().__init__(info, backend)
        self._vertex = key_form(vertex_type)
        self._of, self._stage = of, info.operator.stage
        self._log = ChangeLog()

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        self._log, results = ChangeLog(), dict[bytes, Any]()
        if inputs[0].size:
            self._backend.begin([0], epoch.processing_time_ms, lambda: epoch.window.start)
            results = self._update(inputs[0])
        rows = list(map(self._row, results, results.values()))
        return Outputs(net_changes(rows, list(results), epoch, self._stage, self._of))

    def changes(self) -> ChangeLog:
        return self._log

    def _row(self, key: bytes, result: Any) -> tuple[Any, ...]:
        return self._vertex.decode(key), result

    @abstractmethod
    def _update(self, changes: Batch) -> dict[bytes, Any]:
        """Apply changes of edges to state, and log what it became; the encoded vertices with another result, and that."""
