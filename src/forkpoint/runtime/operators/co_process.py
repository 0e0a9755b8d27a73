"""Functions of two inputs: both are merged in order, and each element goes to its input's method.

Interval joins are functions of two keyed inputs that set their outputs' timestamps.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

from forkpoint.functions import Function, KeyedCoProcessFunction
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.exchange.grouping import Groups, group_by_key
from forkpoint.runtime.operators.base import Epoch, Outputs, TaskInfo
from forkpoint.runtime.operators.keyed_process import KeyedProcess, KeyedProcessSpec, TimestampedProcess
from forkpoint.runtime.operators.merged import Merged, Methods
from forkpoint.runtime.operators.spec import ManagedState, RunnableSpec
from forkpoint.runtime.operators.stateless import ElementContext, Process
from forkpoint.runtime.state.keyed_backend import KeyedBackend


class KeyedCoProcess(KeyedProcess):
    """Runs one KeyedCoProcessFunction key by key, both inputs' elements and due timers in order."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, fn: KeyedCoProcessFunction) -> None:
        super().__init__(info, backend, fn)
        second = info.operator.key_of(1)
        assert second is not None
        self._second_key = second
        self._process = operator.call  # the elements are calls
        self._methods = (fn.process_element1, fn.process_element2)

    def _elements(self, inputs: list[Batch]) -> tuple[Batch, Groups]:
        merged = Merged(inputs[0], inputs[1], self._methods)
        return merged, group_by_key(merged, merged.keyed(self._key, self._second_key))


class KeyedCoProcessSpec(KeyedProcessSpec):
    """A KeyedCoProcessFunction on two keyed streams."""

    kind = "keyed_co_process"
    runs = KeyedCoProcess


class IntervalJoinOperator(TimestampedProcess, KeyedCoProcess):
    """Runs one IntervalJoin. An element's pairs take its place, each with the later timestamp of the two."""


class IntervalJoinSpec(KeyedCoProcessSpec):
    """An IntervalJoin of two keyed streams."""

    runs = IntervalJoinOperator


@dataclass(frozen=True)
class CoProcessSpec(RunnableSpec):
    """A CoProcessFunction on two streams without keys."""

    kind = "co_process"

    fn: Any

    @property
    def needs_exchange(self) -> bool:
        return True  # an epoch's elements of both inputs are merged in order

    def instance(self, info: TaskInfo, state: ManagedState) -> CoProcess:
        return CoProcess(info, self.fn, (self.fn.process_element1, self.fn.process_element2))


class CoProcess(Process):
    """Runs one function of two inputs without keys. ``methods``: ``f(element, context)`` for each input's elements."""

    rich = Function

    def __init__(self, info: TaskInfo, fn: Function, methods: Methods, context: ElementContext | None = None) -> None:
        super().__init__(info, fn, operator.call, context)  # the elements are calls
        self._methods = methods

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        return super().run([Merged(inputs[0], inputs[1], self._methods)], epoch)
