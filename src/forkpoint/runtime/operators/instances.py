"""Which class runs which operator."""

from __future__ import annotations

import pickle
from typing import Any

from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import GraphError
from forkpoint.functions import CheckpointListener
from forkpoint.functions.joins import IntervalJoin
from forkpoint.graph.job import Operator
from forkpoint.graph.transformations import (
    AsyncSpec,
    BroadcastProcessSpec,
    CoProcessSpec,
    EventTimeSortSpec,
    FeedbackSpec,
    FilterSpec,
    FlatMapSpec,
    IterationSpec,
    KeyedBatchSpec,
    KeyedBroadcastProcessSpec,
    KeyedCoProcessSpec,
    KeyedProcessSpec,
    MapSpec,
    MapWithStateSpec,
    ProcessSpec,
    ReduceSpec,
    RollingSpec,
    RunningAggregatesSpec,
    WindowSpec,
)
from forkpoint.runtime.columnar.batch_process import BatchProcess
from forkpoint.runtime.columnar.running import ColumnRolling, RunningAggregates
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.operators.async_wait import AsyncWait
from forkpoint.runtime.operators.base import Epoch, OperatorInstance, Outputs, TaskInfo
from forkpoint.runtime.operators.broadcast import KeyedBroadcast, broadcast_process, broadcast_states
from forkpoint.runtime.operators.co_process import KeyedCoProcess, co_process
from forkpoint.runtime.operators.event_time_sort import EventTimeSort
from forkpoint.runtime.operators.iteration import IterationEnd, IterationStart
from forkpoint.runtime.operators.joins import IntervalJoinOperator
from forkpoint.runtime.operators.keyed_functions import FlatMapWithState, MapWithState, Reduce
from forkpoint.runtime.operators.keyed_process import KeyedProcess
from forkpoint.runtime.operators.stateless import Filter, FlatMap, Map, Process
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.runtime.state.operator_state import OperatorState, SnapshotContext, checkpointed
from forkpoint.runtime.windows.choice import window_operator
from forkpoint.state import Store, key_group_range
from forkpoint.types import dumps


class Checkpointed:
    """An operator with operator state, broadcast state or its function's own: restored before ``open()``, written at each
    epoch's end."""

    def __init__(self, info: TaskInfo, spec: Any, store: Store, *, restored: bool) -> None:
        self._function = checkpointed(spec.fn)
        self._state = OperatorState(store, info.operator.uid, info.subtask, restored=restored)
        if self._function is not None:
            self._function.initialize_state(self._state)
        self._inner: Any = make_inner(info, spec, store, self._state)
        self._log = ChangeLog()

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        outputs: Outputs = self._inner.run(inputs, epoch)
        if self._function is not None:
            self._function.snapshot_state(SnapshotContext(epoch.id, epoch.processing_time_ms))
        return outputs

    def changes(self) -> ChangeLog:
        log = self._state.collect()
        if hasattr(self._inner, "changes"):
            keyed = self._inner.changes()
            log.keys.extend(keyed.keys)
            log.values.extend(keyed.values)
        return log

    def states(self) -> list[StateInfo]:
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
    if checkpointed(fn) is not None or isinstance(spec, BroadcastProcessSpec | KeyedBroadcastProcessSpec):
        assert store is not None
        return Checkpointed(info, spec, store, restored=restored), listener
    return make_inner(info, spec, store), listener


def private_copy(operator: Operator) -> Any:
    """Functions have attributes; subtasks that share a process must not share those."""
    return pickle.loads(dumps(operator.spec))


def make_inner(
    info: TaskInfo, spec: Any, store: Store | None, operator_state: OperatorState | None = None
) -> OperatorInstance:
    match spec:
        case MapSpec(fn=fn):
            return Map(info, fn)
        case FlatMapSpec(fn=fn):
            return FlatMap(info, fn)
        case FilterSpec(fn=fn):
            return Filter(info, fn)
        case ProcessSpec(fn=fn):
            return Process(info, fn)
        case CoProcessSpec(fn=fn):
            return co_process(info, fn)
        case BroadcastProcessSpec(fn=fn, descriptors=descriptors):
            return broadcast_process(info, fn, broadcast_states(info, operator_state, descriptors))
        case AsyncSpec():
            return AsyncWait(info, spec)
    assert store is not None
    match spec:
        case IterationSpec():
            return IterationStart(info, spec, store)
        case FeedbackSpec():
            return IterationEnd(info, spec, store)
    key = info.operator.key
    assert key is not None
    assert key.key_type is not None
    backend = KeyedBackend(info.operator.uid, key.key_type, info.max_parallelism, store, info.known_states)
    backend.groups = key_group_range(info.subtask, info.parallelism, info.max_parallelism)
    match spec:
        case KeyedProcessSpec(fn=fn):
            return KeyedProcess(info, backend, fn)
        case KeyedCoProcessSpec(fn=IntervalJoin() as fn):
            return IntervalJoinOperator(info, backend, fn)
        case KeyedCoProcessSpec(fn=fn):
            return KeyedCoProcess(info, backend, fn)
        case KeyedBroadcastProcessSpec(fn=fn, descriptors=descriptors):
            return KeyedBroadcast(info, backend, fn, broadcast_states(info, operator_state, descriptors), descriptors)
        case MapWithStateSpec(flat=True):
            return FlatMapWithState(info, backend, spec)
        case MapWithStateSpec():
            return MapWithState(info, backend, spec)
        case ReduceSpec(fn=fn, value_type=value_type):
            return Reduce(info, backend, value_type, fn)
        case RollingSpec():
            return ColumnRolling(info, backend, spec)
        case EventTimeSortSpec():
            return EventTimeSort(info, backend, spec)
        case WindowSpec():
            return window_operator(info, backend, spec)
        case KeyedBatchSpec(fn=fn):
            return BatchProcess(info, backend, fn)
        case RunningAggregatesSpec():
            return RunningAggregates(info, backend, spec)
    raise GraphError(f"operator {info.operator.uid!r}: nothing runs a {type(spec).__name__}")
