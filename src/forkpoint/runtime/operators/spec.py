"""Specs of operators that run as instances: how an instance is created, and with which state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from forkpoint.functions import StateDescriptor
from forkpoint.graph.specs import DeclaredState, OperatorSpec
from forkpoint.runtime.event_time.timers import timer_states
from forkpoint.runtime.operators.base import OperatorInstance, TaskInfo
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.state import Store, key_group_range

if TYPE_CHECKING:
    from forkpoint.runtime.state.operator_state import OperatorState


@dataclass
class ManagedState:
    """The stores of one operator's state on one subtask; none if it is stateless."""

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
    """An operator that runs as one instance for each subtask."""

    @abstractmethod
    def instance(self, info: TaskInfo, state: ManagedState) -> OperatorInstance:
        """The instance. ``self`` is the subtask's own copy, so the instance owns its function."""


class KeyedSpec(RunnableSpec):
    """An operator with keyed state."""

    keyed = True


def states_with_timers(states: Mapping[str, StateDescriptor]) -> list[DeclaredState]:
    """The states of a function on a keyed stream: those it declares, by attribute, and its timers."""
    return [*map(DeclaredState.of, states.values()), *timer_states()]
