"""Creates the instances that run the graph's operators on a subtask."""

from __future__ import annotations

import pickle

from forkpoint.checkpoint.states import StateInfo
from forkpoint.functions import CheckpointedFunction, CheckpointListener
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.operators.base import Epoch, OperatorInstance, Outputs, StatefulInstance, TaskInfo
from forkpoint.runtime.operators.spec import ManagedState, RunnableSpec
from forkpoint.runtime.state.keyed_backend import ChangeLog
from forkpoint.runtime.state.operator_state import OperatorState, SnapshotContext
from forkpoint.state import Store
from forkpoint.types import dumps


class Checkpointed:
    """An operator with operator state or broadcast state, or whose function has its own: restored before ``open()``, written
    at the end of each epoch."""

    def __init__(self, info: TaskInfo, spec: RunnableSpec, store: Store, *, restored: bool) -> None:
        self._function = spec.function if isinstance(spec.function, CheckpointedFunction) else None
        self._state = OperatorState(store, info.operator.uid, info.subtask, restored=restored)
        if self._function is not None:
            self._function.initialize_state(self._state)
        self.inner = spec.instance(info, ManagedState(info, store, self._state))
        self._keyed = self.inner if isinstance(self.inner, StatefulInstance) else None

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        outputs = self.inner.run(inputs, epoch)
        if self._function is not None:
            self._function.snapshot_state(SnapshotContext(epoch.id, epoch.processing_time_ms))
        return outputs

    def changes(self) -> ChangeLog:
        log = self._state.collect()
        if self._keyed is not None:
            keyed = self._keyed.changes()
            log.keys.extend(keyed.keys)
            log.values.extend(keyed.values)
        return log

    def states(self) -> list[StateInfo]:
        return [*self._state.records, *(() if self._keyed is None else self._keyed.states())]

    def next_processing_timer_ms(self) -> int | None:
        return None if self._keyed is None else self._keyed.next_processing_timer_ms()

    def close(self) -> None:
        self.inner.close()


def make_instance(
    info: TaskInfo, store: Store | None, *, restored: bool
) -> tuple[OperatorInstance, CheckpointListener | None]:
    """An operator's instance for one subtask, with its own copy of the function, and that copy if it is a listener."""
    spec = pickle.loads(dumps(info.operator.spec))  # subtasks in one process must not share its function's attributes
    assert isinstance(spec, RunnableSpec)
    listener = spec.function if isinstance(spec.function, CheckpointListener) else None
    if spec.has_operator_state:
        assert store is not None
        return Checkpointed(info, spec, store, restored=restored), listener
    return spec.instance(info, ManagedState(info, store)), listener
