"""Keyed operators around one plain function and one value for each key: map_with_state, reduce."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np

from forkpoint.functions import ReduceFunction, ValueStateDescriptor
from forkpoint.graph.transformations import MapWithStateSpec
from forkpoint.runtime.batch import Batch, DerivedBatch
from forkpoint.runtime.grouping import group_by_key
from forkpoint.runtime.keyed_state import ChangeLog, KeyedBackend
from forkpoint.runtime.operators.base import Context, Epoch, KeyedOperator, Outputs, TaskInfo, user_error
from forkpoint.runtime.operators.keyed_process import key_blocks
from forkpoint.runtime.operators.outlet import Outlet
from forkpoint.types import TypeInformation

STATE_NAME = "state"


class _OneValue(KeyedOperator):
    """Runs ``_run_key`` over the elements of each key, with what is kept of the key's value before and after.

    The values of a key go from one call to the next within an epoch. So each becomes what its type says before the next call
    sees it, as it would by a cut between them.
    """

    def __init__(self, info: TaskInfo, backend: KeyedBackend, type: Any) -> None:
        assert info.operator.key is not None
        self._uid = info.operator.uid
        self._type = info.operator.output_type
        self._outlet = Outlet(info.operator, fed_back=True)
        self._key = info.operator.key
        self._backend = backend
        self._unchanging: bool = type.immutable
        self._state = backend.get(ValueStateDescriptor(STATE_NAME, type))
        guard = self._state.guard
        self._give: Callable[[Any], Any] = guard.give
        self._keep: Callable[[Any], Any] = lambda value: None if value is None else guard.keep(value)
        self._one_by_one = True

    def _run_key(self, values: list[Any], start: int, stop: int, state: Any, out: list[Any]) -> Any:
        raise AssertionError("each operator has its own")

    def _finish(self, batch: Batch, order: Any, out: list[Any]) -> Batch:
        """One output an element."""
        return DerivedBatch(batch.size, lambda: batch.places(order), values=out, type=self._type)

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0]
        self._outlet.begin(epoch)
        self._one_by_one = self._outlet.one_by_one or not self._unchanging
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
        return self._outlet.outputs(self._finish(batch, groups.order, out))

    def _reduced(self, reduce: Callable[[Any, Any], Any], values: list[Any], state: Any, out: list[Any]) -> Any:
        """Append the running reductions of one key's elements to ``out``; returns the last."""
        if self._one_by_one:
            keep, give, take, append = self._keep, self._give, self._outlet.take, out.append
            for value in values:
                kept = keep(value)
                state = kept if state is None else keep(reduce(give(state), give(kept)))
                append(take(give(state)))
            return state
        running = accumulate(values, reduce) if state is None else accumulate(values, reduce, initial=state)
        if state is not None:
            next(running)
        out.extend(running)
        return out[-1]

    def _done(self, out: list[Any]) -> int:
        """How many elements have been processed in full."""
        return len(out)

    def changes(self) -> ChangeLog:
        return self._backend.collect()


class MapWithState(_OneValue):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: MapWithStateSpec) -> None:
        super().__init__(info, backend, spec.state_type)
        self._fn: Callable[[Any, Any], tuple[Any, Any]] = spec.fn
        if self._unchanging:
            self._loop = _loop_of(spec.state_type)

    def _run_key(self, values: list[Any], start: int, stop: int, state: Any, out: list[Any]) -> Any:
        if not self._one_by_one:
            return self._loop(self._fn, values[start:stop], state, out.append, self._keep)
        fn, append, take, keep, give = self._fn, out.append, self._outlet.take, self._keep, self._give
        for value in values[start:stop]:
            result, state = fn(value, None if state is None else give(state))
            append(take(result))
            state = keep(state)
        return state


class FlatMapWithState(_OneValue):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: MapWithStateSpec) -> None:
        super().__init__(info, backend, spec.state_type)
        self._fn: Callable[[Any, Any], tuple[Any, Any]] = spec.fn
        self._counts: list[int] = []

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        self._counts = []
        return super().run(inputs, epoch)

    def _run_key(self, values: list[Any], start: int, stop: int, state: Any, out: list[Any]) -> Any:
        fn, extend, count, keep, give = self._fn, self._outlet.into(out), self._counts.append, self._keep, self._give
        for value in values[start:stop]:
            results, state = fn(value, None if state is None else give(state))
            before = len(out)
            if results is not None:
                extend(results)
            state = keep(state)
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
        return self._reduced(self._reduce, values[start:stop], state, out)


def _loop_of(state_type: TypeInformation) -> Callable[..., Any]:
    """The loop over one key's elements, with the test of a state that cannot change compiled into it.

    A call for each element's state would cost more than all else that the loop does beside the user's function.
    """
    return state_type.compiled(
        """
def loop(fn, values, state, append, keep):
    for value in values:
        result, state = fn(value, state)
        append(result)
        if not ({test}) and state is not None:
            state = keep(state)
    return state
""",
        "state",
    )
