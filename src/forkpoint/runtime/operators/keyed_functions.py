"""Keyed operators with a plain function and one value per key: map_with_state, reduce."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from forkpoint.errors import ForkpointError, UserFunctionError
from forkpoint.functions import ReduceFunction, ValueStateDescriptor
from forkpoint.graph.job import Operator
from forkpoint.graph.specs import DeclaredState
from forkpoint.runtime.exchange.batch import Batch, DerivedBatch
from forkpoint.runtime.exchange.grouping import group_by_key
from forkpoint.runtime.expressions.functions import text_of
from forkpoint.runtime.expressions.reducers import how_reduced
from forkpoint.runtime.expressions.steps import Stepping, stepping_with_state
from forkpoint.runtime.operators.base import (
    NOT_USERS,
    Context,
    Epoch,
    KeyedOperator,
    OperatorInstance,
    Outputs,
    TaskInfo,
    user_error,
)
from forkpoint.runtime.operators.emission import ChangingOutput, Collector
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.operators.keyed_process import key_blocks
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.runtime.state.values import KeyCell
from forkpoint.runtime.windows.spec import WindowSpec
from forkpoint.types import TypeInformation
from forkpoint.types.kinds.containers import present

STATE_NAME = "state"

_RUN_EXACT = """
def run_exact(fn, values, state, append):
    for value in values:
        result, state = fn(value, state)
        if not EXACT(state) and state is not None:
            raise ChangingOutput(uid)
        append(result)
    return state
"""


def one_value(type: TypeInformation) -> list[DeclaredState]:
    """The states of an operator that keeps one value per key."""
    return [DeclaredState(STATE_NAME, "value", type)]


class OneValue(KeyedOperator, ABC):
    """Runs ``_run_key`` over the elements of each key; it takes and returns the key's value in its kept form.

    Within an epoch, a call receives the state that the previous call returned. If outputs are taken one by one or the state is
    mutable, the state is converted to its type between the calls, as at the end of an epoch. Otherwise it is only checked; if
    it is not exactly of the type, the epoch is repeated one by one.
    """

    def __init__(self, info: TaskInfo, backend: KeyedBackend, type: Any) -> None:
        super().__init__(info, backend)
        self._collector = Collector(info.operator, fed_back=True)
        self._cell: KeyCell = backend.get(ValueStateDescriptor(STATE_NAME, type)).cell
        self._guard = self._cell.guard
        self._never_at_once = not type.immutable
        self._one_by_one = True

    @abstractmethod
    def _run_key(self, values: list[Any], start: int, stop: int, state: Any, out: list[Any]) -> Any:
        """Append the outputs for ``values[start:stop]`` to ``out``. Takes and returns the state in its kept form."""

    def _kept(self, state: Any) -> Any:
        """The kept form of a state that a function returned."""
        if state is None:
            return None
        kept = self._guard.keep(state)
        if kept is not state:
            self._never_at_once = True
        return kept

    def _given(self, kept: Any) -> Any:
        return None if kept is None else self._guard.give(kept)

    def _finish(self, batch: Batch, order: Any, out: list[Any]) -> Batch:
        """The outputs as a batch, one for each element unless overridden."""
        return DerivedBatch.of(batch, order, values=out, type=self._type)

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0]
        self._collector.begin(epoch)
        self._one_by_one = self._collector.one_by_one or self._never_at_once
        groups = group_by_key(batch, self._key)
        backend, cell, run_key = self._backend, self._cell, self._run_key
        backend.begin(groups.keys, epoch.processing_time_ms, lambda: epoch.window.start)
        states, keys = cell.kept_values(), groups.keys
        out: list[Any] = []
        k = 0
        try:
            for first, last, values, starts in key_blocks(batch, groups):
                base = starts[first]
                for k in range(first, last):
                    backend.current_key = keys[k]
                    states[k] = run_key(values, starts[k] - base, starts[k + 1] - base, states[k], out)
            if self._done(out) < batch.size:  # the function ended accumulate(), at an unknown element
                raise UserFunctionError(f"operator {self._uid!r}: the function raised StopIteration")
        except (ForkpointError, *NOT_USERS):
            raise
        except BaseException as error:
            value = batch.element(int(groups.order[self._done(out)]))
            raise user_error(self._uid, error, value, groups.keys[k], keyed=True) from error
        results = self._finish(batch, groups.order, out)
        cell.set_all(states)
        return self._collector.outputs(results)

    def _done(self, out: list[Any]) -> int:
        """The number of completed elements."""
        return len(out)


@dataclass(frozen=True)
class MapWithStateSpec(KeyedSpec):
    """``fn(element, state | None) -> (out, state | None)``; with ``flat``, ``out`` is an iterable of outputs."""

    kind = "map_with_state"

    fn: Callable[[Any, Any], tuple[Any, Any]]
    state_type: TypeInformation
    flat: bool

    def states(self) -> list[DeclaredState]:
        return one_value(self.state_type)

    def instance(self, info: TaskInfo, state: ManagedState) -> OperatorInstance:
        from forkpoint.runtime.columnar.stepping import with_columns  # imports this module

        elements = (FlatMapWithState if self.flat else MapWithState)(info, state.keyed, self)
        return with_columns(info, state.keyed, elements, lambda: self._stepping(info.operator))

    def _stepping(self, operator: Operator) -> Stepping:
        return stepping_with_state(self.fn, operator.input_type, self.state_type, operator.output_type, flat=self.flat)

    def how(self, operator: Operator) -> str:
        return text_of(self.fn, lambda: self._stepping(operator))


class MapWithState(OneValue):
    flat: ClassVar[bool] = False

    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: MapWithStateSpec) -> None:
        super().__init__(info, backend, spec.state_type)
        self.fn: Callable[[Any, Any], tuple[Any, Any]] = spec.fn
        names = {"ChangingOutput": ChangingOutput, "uid": self._uid}
        self._run_exact = present(spec.state_type).specialized(_RUN_EXACT, **names)

    def _run_key(self, values: list[Any], start: int, stop: int, state: Any, out: list[Any]) -> Any:
        fn, append = self.fn, out.append
        if self._one_by_one:
            take, keep, give = self._collector.take, self._kept, self._given
            for value in values[start:stop]:
                result, state = fn(value, give(state))
                append(take(result))
                state = keep(state)
            return state
        return self._run_exact(fn, values[start:stop], state, append)


class FlatMapWithState(MapWithState):
    flat = True

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        self._counts: list[int] = []
        return super().run(inputs, epoch)

    def _run_key(self, values: list[Any], start: int, stop: int, state: Any, out: list[Any]) -> Any:
        fn, extend, count = self.fn, self._collector.into(out), self._counts.append
        keep, give = self._kept, self._given
        for value in values[start:stop]:
            results, state = fn(value, give(state))
            before = len(out)
            if results is not None:
                extend(results)
            state = keep(state)
            count(len(out) - before)
        return state

    def _done(self, out: list[Any]) -> int:
        return len(self._counts)

    def _finish(self, batch: Batch, order: Any, out: list[Any]) -> Batch:
        per_element = super()._finish(batch, order, [])
        return per_element.expand(out, np.array(self._counts, dtype=np.int64), self._type)


@dataclass(frozen=True)
class ReduceSpec(KeyedSpec):
    kind = "reduce"

    fn: Any
    value_type: TypeInformation

    def states(self) -> list[DeclaredState]:
        return one_value(self.value_type)

    def instance(self, info: TaskInfo, state: ManagedState) -> OperatorInstance:
        from forkpoint.runtime.columnar.running_aggregates import running_reducer  # imports this module

        return running_reducer(info, state.keyed, self.fn, self.value_type)

    def how(self, operator: Operator) -> str:
        return how_reduced(self.fn, operator.input_type)

    def in_batch(self) -> WindowSpec:
        return WindowSpec.of_all("reducing", self.value_type, self.fn)


class RunningReduction(OneValue):
    """Emits the value so far for each element."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, type: TypeInformation, reduce: Callable[[Any, Any], Any]) -> None:
        super().__init__(info, backend, type)
        self._reduce = reduce
        self._all_exact = present(type).all_exact

    def _run_key(self, values: list[Any], start: int, stop: int, state: Any, out: list[Any]) -> Any:
        reduce, elements = self._reduce, values[start:stop]
        if self._one_by_one:
            keep, give, take, append = self._kept, self._given, self._collector.take, out.append
            for value in elements:
                state = keep(value if state is None else reduce(give(state), value))
                append(take(give(state)))
            return state
        running = accumulate(elements, reduce) if state is None else accumulate(elements, reduce, initial=state)
        if state is not None:
            next(running)
        out.extend(running)
        return out[-1]

    def _finish(self, batch: Batch, order: Any, out: list[Any]) -> Batch:
        if not self._one_by_one and not self._all_exact(out):
            raise ChangingOutput(self._uid)
        return super()._finish(batch, order, out)


class Reduce(RunningReduction):
    """A ReduceFunction, or a plain function."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, value_type: TypeInformation, fn: Any) -> None:
        super().__init__(info, backend, value_type, fn.reduce if isinstance(fn, ReduceFunction) else fn)
        self._function = fn if isinstance(fn, ReduceFunction) else None
        if self._function is not None:
            self._function.open(Context(info, backend))

    def close(self) -> None:
        if self._function is not None:
            self._function.close()
