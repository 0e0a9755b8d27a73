"""Operators that run as instances: their specs and state, and the creation of a subtask's instances."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from forkpoint.checkpoint.states import StateInfo
from forkpoint.functions import CheckpointedFunction, CheckpointListener, StateDescriptor
from forkpoint.graph.specs import DeclaredState, OperatorSpec
from forkpoint.runtime.event_time.timers import timer_states
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.operators.base import Epoch, OperatorInstance, Outputs, StatefulInstance, TaskInfo
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.runtime.state.operator_state import OperatorState, SnapshotContext
from forkpoint.state import Store, key_group_range
from forkpoint.types import dumps

if TYPE_CHECKING:
    from forkpoint.runtime.state.operator_state import OperatorState


class Checkpointed:
    """An operator with operator state or broadcast state, which is restored before ``open()`` and written at the end of each
    epoch."""

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
            log.add(keyed.keys, keyed.values)
        return log

    def states(self) -> list[StateInfo]:
        return [*self._state.records, *(() if self._keyed is None else self._keyed.states())]

    def next_processing_timer_ms(self) -> int | None:
        return None if self._keyed is None else self._keyed.next_processing_timer_ms()

    def close(self) -> None:
        self.inner.close()


def make_instance(info: TaskInfo, store: Store | None, *, restored: bool) -> tuple[OperatorInstance, CheckpointListener | None]:
    """An operator's instance for one subtask, with a copy of the function, and that copy if it is a listener."""
    spec = pickle.loads(dumps(info.operator.spec))  # subtasks in one process must not share the function's attributes
    assert isinstance(spec, RunnableSpec)
    listener = spec.function if isinstance(spec.function, CheckpointListener) else None
    if spec.has_operator_state:
        assert store is not None
        return Checkpointed(info, spec, store, restored=restored), listener
    return spec.instance(info, ManagedState(info, store)), listener


@dataclass
class ManagedState:
    """The state of one operator on one subtask; without a store if the operator is stateless."""

    _info: TaskInfo
    _store: Store | None
    _operator_state: OperatorState | None = None

    @property
    def store(self) -> Store:
        assert self._store is not None
        return self._store

    @property
    def operator_state(self) -> OperatorState:
        assert self._operator_state is not None
        return self._operator_state

    @cached_property
    def keyed(self) -> KeyedBackend:
        info, key = self._info, self._info.operator.key
        assert key is not None
        assert key.key_type is not None
        backend = KeyedBackend(info.operator.uid, key.key_type, info.max_parallelism, self.store, info.known_states)
        backend.groups = key_group_range(info.subtask, info.parallelism, info.max_parallelism)
        return backend


class RunnableSpec(OperatorSpec, ABC):
    """An operator that runs as one instance per subtask."""

    @abstractmethod
    def instance(self, info: TaskInfo, state: ManagedState) -> OperatorInstance:
        """The instance. ``self`` is a copy for the subtask, so the instance owns its function."""


class KeyedSpec(RunnableSpec):
    """An operator with keyed state."""

    keyed = True


def states_with_timers(states: Mapping[str, StateDescriptor]) -> list[DeclaredState]:
    """The states of a function on a keyed stream: its declared states, by attribute, and its timers."""
    return [*map(DeclaredState.of, states.values()), *timer_states()]
