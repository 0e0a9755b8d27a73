"""Keyed operators around one plain function and one value for each key: map_with_state, reduce."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np

from forkpoint.functions import ReduceFunction, ValueStateDescriptor
from forkpoint.graph.transformations import MapWithStateSpec
from forkpoint.runtime.batch import Batch, DerivedBatch
from forkpoint.runtime.grouping import group_by_key
from forkpoint.runtime.keyed_state import ChangeLog, KeyedBackend
from forkpoint.runtime.operators.base import Context, Epoch, KeyedOperator, Outputs, TaskInfo, user_error
from forkpoint.runtime.operators.keyed_process import key_blocks
from forkpoint.types import TypeInformation
from forkpoint.types.containers import optional

STATE_NAME = "state"


class _OneValue(KeyedOperator):
    """Runs ``_run_key`` over the elements of each key, with what is kept of the key's value before and after."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, type: Any) -> None:
        assert info.operator.key is not None
        self._uid = info.operator.uid
        self._type = info.operator.output_type
        self._key = info.operator.key
        self._backend = backend
        self._state = backend.get(ValueStateDescriptor(STATE_NAME, type))
        guard = self._state.guard
        self._give: Callable[[Any], Any] = guard.give
        self._keep: Callable[[Any], Any] = lambda value: None if value is None else guard.keep(value)

    def _run_key(self, values: list[Any], start: int, stop: int, state: Any, out: list[Any]) -> Any:
        raise AssertionError("each operator has its own")

    def _finish(self, batch: Batch, order: Any, out: list[Any]) -> Batch:
        """One output an element."""
        return DerivedBatch(batch.size, lambda: batch.places(order), values=out, type=self._type)

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0]
        groups = group_by_key(batch, self._key)
        backend, state, run_key = self._backend, self._state, self._run_key
        backend.begin(groups.keys, epoch.processing_time_ms, lambda: epoch.window.start)
        states, keys = state.kept_values(), groups.keys
        out: list[Any] = []
        k = 0
        try:
            for first, last, values, starts in key_blocks(batch, groups):
                base = starts[first]
                for k in range(first, last):
                    backend.current_key = keys[k]
                    states[k] = run_key(values, starts[k] - base, starts[k + 1] - base, states[k], out)
        except Exception as error:
            done = self._done(out)
            value = batch.objects(groups.order[done : done + 1])[0]
            raise user_error(self._uid, error, value, groups.keys[k], keyed=True) from error
        state.set_all(states)
        return Outputs(self._finish(batch, groups.order, out))

    def _done(self, out: list[Any]) -> int:
        """How many elements have been processed in full."""
        return len(out)

    def changes(self) -> ChangeLog:
        return self._backend.collect()


class MapWithState(_OneValue):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: MapWithStateSpec) -> None:
        super().__init__(info, backend, spec.state_type)
        self._fn: Callable[[Any, Any], tuple[Any, Any]] = spec.fn
        if spec.state_type.immutable:
            self._run_key = MethodType(optional(spec.state_type).specialized(_RUN_KEY), self)  # type: ignore[method-assign]

    def _run_key(self, values: list[Any], start: int, stop: int, state: Any, out: list[Any]) -> Any:
        fn, append = self._fn, out.append
        for value in values[start:stop]:
            result, state = fn(value, None if state is None else self._give(state))
            state = self._keep(state)
            append(result)
        return state


_RUN_KEY = """
def run_key(self, values, start, stop, state, out):
    fn, append = self._fn, out.append
    for value in values[start:stop]:
        result, state = fn(value, state)
        if not EXACT(state):
            state = self._keep(state)
        append(result)
    return state
"""


class FlatMapWithState(_OneValue):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: MapWithStateSpec) -> None:
        super().__init__(info, backend, spec.state_type)
        self._fn: Callable[[Any, Any], tuple[Any, Any]] = spec.fn
        self._counts: list[int] = []

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        self._counts = []
        return super().run(inputs, epoch)

    def _run_key(self, values: list[Any], start: int, stop: int, state: Any, out: list[Any]) -> Any:
        fn, extend, count = self._fn, out.extend, self._counts.append
        for value in values[start:stop]:
            results, state = fn(value, None if state is None else self._give(state))
            state = self._keep(state)
            before = len(out)
            if results is not None:
                extend(results)
            count(len(out) - before)
        return state

    def _done(self, out: list[Any]) -> int:
        return len(self._counts)

    def _finish(self, batch: Batch, order: Any, out: list[Any]) -> Batch:
        each = super()._finish(batch, order, [])
        return each.expand(out, np.array(self._counts, dtype=np.int64), self._type)


class Reduce(_OneValue):
    """The running reduction; every element comes out as the value so far."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, value_type: TypeInformation, fn: Any) -> None:
        super().__init__(info, backend, value_type)
        if isinstance(fn, ReduceFunction):
            fn.open(Context(info, backend))
            self._reduce: Callable[[Any, Any], Any] = fn.reduce
        else:
            self._reduce = fn

    def _run_key(self, values: list[Any], start: int, stop: int, state: Any, out: list[Any]) -> Any:
        keep, give, reduce = self._state.guard.keep, self._state.guard.give, self._reduce
        for value in values[start:stop]:
            kept = keep(value)
            state = kept if state is None else keep(reduce(give(state), give(kept)))
            out.append(give(state))
        return state
