"""Adapters that run other functions as process functions, with state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from forkpoint.functions.base import FilterFunction, FlatMapFunction, Function, MapFunction
from forkpoint.functions.checkpointed import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
)
from forkpoint.functions.context import RuntimeContext
from forkpoint.functions.descriptors import StateDescriptor, declared_states
from forkpoint.functions.process import KeyedProcessFunction


class FunctionAdapter(Function):
    """Wraps a user function: exposes its declared states, opens and closes it."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def declare_states(self) -> dict[str, StateDescriptor]:
        """The user function's states. The runtime sets the handles here, and ``open`` passes them on."""
        return declared_states(self.function)

    def open(self, runtime_context: RuntimeContext) -> None:
        mine = vars(self)
        vars(self.function).update({attribute: mine[attribute] for attribute in declared_states(self.function)})
        self.function.open(runtime_context)

    def close(self) -> None:
        self.function.close()


class ListeningFunctionAdapter(FunctionAdapter, CheckpointListener):
    """Forwards checkpoint notifications."""

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        if isinstance(self.function, CheckpointListener):
            self.function.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        if isinstance(self.function, CheckpointListener):
            self.function.notify_checkpoint_aborted(checkpoint_id)


class CheckpointedFunctionAdapter(ListeningFunctionAdapter, CheckpointedFunction):
    """Wraps a function with operator state."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        assert isinstance(self.function, CheckpointedFunction)
        self.function.initialize_state(context)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        assert isinstance(self.function, CheckpointedFunction)
        self.function.snapshot_state(context)


class KeyedAdapter(ListeningFunctionAdapter, KeyedProcessFunction):
    """Runs a MapFunction, FlatMapFunction or FilterFunction as a keyed process function."""

    function: MapFunction | FlatMapFunction | FilterFunction

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:
        match self.function:
            case MapFunction():
                return (self.function.map(value),)
            case FlatMapFunction():
                return self.function.flat_map(value)
            case _:
                return (value,) if self.function.filter(value) else None


class CheckpointedKeyedAdapter(CheckpointedFunctionAdapter, KeyedAdapter): ...


def as_keyed_process(function: MapFunction | FlatMapFunction | FilterFunction) -> KeyedProcessFunction:
    """The function as a KeyedProcessFunction."""
    return (CheckpointedKeyedAdapter if isinstance(function, CheckpointedFunction) else KeyedAdapter)(function)
