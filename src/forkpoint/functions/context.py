"""The runtime context of user functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from forkpoint.functions.metrics import MetricGroup
from forkpoint.functions.state.handles import AggregatingState, ListState, MapState, ReducingState, ValueState
from forkpoint.types.variables import IN, NOTHING, OUT, K, T, V

if TYPE_CHECKING:
    from forkpoint.functions.state.descriptors import (
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        ValueStateDescriptor,
    )


class RuntimeContext(ABC):
    """The context passed to ``open()``. The ``get_*_state`` methods raise GraphError on non-keyed streams.

    GraphError for two descriptors of an operator with the same name and different kinds of state.
    """

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor[T, NOTHING]) -> ValueState[T, NOTHING]:
        """The handle of a value state."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """The handle of a list state."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        """The handle of a map state."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor[T]) -> ReducingState[T]:
        """The handle of a reducing state."""

    @abstractmethod
    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor[IN, Any, OUT]) -> AggregatingState[IN, OUT]:
        """The handle of an aggregating state."""

    @abstractmethod
    def get_task_name(self) -> str:
        """The operator's name."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """The operator's parallelism."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """The job's max parallelism, which is its number of key groups."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """The index of this subtask, from 0."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """The number of this attempt, 0 for the first."""

    @abstractmethod
    def get_metrics_group(self) -> MetricGroup:
        """The metrics of this operator on this subtask."""

    def get_task_name_with_subtasks(self) -> str:
        """The operator's name with the subtask, as in ``parse (1/4)``."""
        return f"{self.get_task_name()} ({self.get_index_of_this_subtask() + 1}/{self.get_number_of_parallel_subtasks()})"

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """A job parameter set with ``env.get_config().set_global_job_parameters``, or the default."""
