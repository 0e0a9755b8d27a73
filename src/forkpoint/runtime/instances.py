"""Which class runs which operator."""

from __future__ import annotations

import pickle
from typing import Any

from forkpoint.errors import GraphError
from forkpoint.functions import CheckpointListener
from forkpoint.graph.job import Operator
from forkpoint.graph.transformations import (
    FilterSpec,
    FlatMapSpec,
    KeyedProcessSpec,
    MapSpec,
    MapWithStateSpec,
    ProcessSpec,
    ReduceSpec,
    RollingSpec,
    WindowSpec,
)
from forkpoint.runtime.batch import Batch
from forkpoint.runtime.keyed_state import ChangeLog, KeyedBackend, StateRecord
from forkpoint.runtime.operator_state import OperatorState, SnapshotContext, checkpointed
from forkpoint.runtime.operators.base import Epoch, OperatorInstance, Outputs, TaskInfo
from forkpoint.runtime.operators.keyed_functions import FlatMapWithState, MapWithState, Reduce
from forkpoint.runtime.operators.keyed_process import KeyedProcess
from forkpoint.runtime.operators.rolling import Rolling
from forkpoint.runtime.operators.stateless import Filter, FlatMap, Map, Process
from forkpoint.runtime.operators.window import WindowOperator
from forkpoint.state import Store, key_group_range
from forkpoint.types import dumps


class Checkpointed:
    """An operator whose function keeps operator state: restored before ``open()``, written at each epoch's end."""

    def __init__(self, info: TaskInfo, spec: Any, store: Store, *, restored: bool) -> None:
        function = checkpointed(spec.fn)
        assert function is not None
        self._function = function
        self._state = OperatorState(store, info.operator.uid, info.subtask, restored=restored)
        function.initialize_state(self._state)
        self._inner: Any = make_inner(info, spec, store)
        self._log = ChangeLog()

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        outputs: Outputs = self._inner.run(inputs, epoch)
        self._function.snapshot_state(SnapshotContext(epoch.id, epoch.processing_time_ms))
        return outputs

    def changes(self) -> ChangeLog:
        log = self._state.collect()
        if hasattr(self._inner, "changes"):
            keyed = self._inner.changes()
            log.keys.extend(keyed.keys)
            log.values.extend(keyed.values)
        return log

    def states(self) -> list[StateRecord]:
        keyed = self._inner.states() if hasattr(self._inner, "states") else []
        return [*self._state.records, *keyed]

    def next_processing_timer_ms(self) -> int | None:
        return self._inner.next_processing_timer_ms() if hasattr(self._inner, "next_processing_timer_ms") else None

    def close(self) -> None:
        self._inner.close()


def make_instance(
    info: TaskInfo, store: Store | None, *, restored: bool
) -> tuple[OperatorInstance, CheckpointListener | None]:
    """An operator's instance for one subtask, with a copy of the function of its own, and its listener if it is one."""
    spec = private_copy(info.operator)
    fn = getattr(spec, "fn", None)
    listener = fn if isinstance(fn, CheckpointListener) else None
    if checkpointed(fn) is not None:
        assert store is not None
        return Checkpointed(info, spec, store, restored=restored), listener
    return make_inner(info, spec, store), listener


def private_copy(operator: Operator) -> Any:
    """Functions have attributes; subtasks that share a process must not share those."""
    return pickle.loads(dumps(operator.spec))


def make_inner(info: TaskInfo, spec: Any, store: Store | None) -> OperatorInstance:
    match spec:
        case MapSpec(fn=fn):
            return Map(info, fn)
        case FlatMapSpec(fn=fn):
            return FlatMap(info, fn)
        case FilterSpec(fn=fn):
            return Filter(info, fn)
        case ProcessSpec(fn=fn):
            return Process(info, fn)
    key = info.operator.key
    assert key is not None
    assert key.key_type is not None
    assert store is not None
    backend = KeyedBackend(info.operator.uid, key.key_type, info.max_parallelism, store, info.known_states)
    backend.groups = key_group_range(info.subtask, info.parallelism, info.max_parallelism)
    match spec:
        case KeyedProcessSpec(fn=fn):
            return KeyedProcess(info, backend, fn)
        case MapWithStateSpec(flat=True):
            return FlatMapWithState(info, backend, spec)
        case MapWithStateSpec():
            return MapWithState(info, backend, spec)
        case ReduceSpec(fn=fn, value_type=value_type):
            return Reduce(info, backend, value_type, fn)
        case RollingSpec():
            return Rolling(info, backend, spec)
        case WindowSpec():
            return WindowOperator(info, backend, spec)
    raise GraphError(f"operator {info.operator.uid!r}: nothing runs a {type(spec).__name__}")
