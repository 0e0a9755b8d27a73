"""The firing of windows: the results of all windows enter the stream in this module, whichever kernel computed the contents.

Element by element, a trigger fires one window (``WindowFiring.fire``). Over columns, all windows that end in an epoch fire
together (``WindowFiring.fire_all``). The timestamp of a result is the last millisecond of its window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from forkpoint.errors import UserFunctionError
from forkpoint.functions import (
    MAX_WATERMARK,
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MergingWindowAssigner,
    ProcessWindowFunction,
    ReduceFunction,
    ReducingStateDescriptor,
    StateDescriptor,
    TimestampedValue,
)
from forkpoint.runtime.columnar.plans import Plan
from forkpoint.runtime.exchange.batch import Batch, Coordinates, DerivedBatch
from forkpoint.runtime.operators.base import TaskInfo, shorten
from forkpoint.runtime.operators.emission import Collector
from forkpoint.runtime.operators.keyed_process import firing_rank, own_key
from forkpoint.runtime.operators.rolling import Rolling, rolling_function
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.runtime.state.namespace import Namespace
from forkpoint.runtime.windows.contexts import Clock, KeyStateContext, WindowContext, WindowStateContext
from forkpoint.runtime.windows.spec import CONTENTS, WindowSpec

if TYPE_CHECKING:
    from forkpoint.runtime.windows.columns import Computed


class WindowFiring:
    """The contents and results of windows. ``plan``: the plan for results over columns, None without support."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: WindowSpec, plan: Plan | None) -> None:
        self._uid, self._stage = info.operator.uid, info.operator.stage
        self._type, self._spec, self._plan = info.operator.output_type, spec, plan
        self.contents_namespace, self.namespace = Namespace(spec.window_type), Namespace(spec.window_type)
        self.contents = backend.get(contents_descriptor(spec, self._uid), self.contents_namespace)
        merging = isinstance(spec.assigner, MergingWindowAssigner)
        self.clock = clock = Clock(backend)
        self.window_state = WindowStateContext(info, backend, self.namespace, merging=merging)
        self.context = WindowContext(clock, self.window_state, KeyStateContext(info, backend))
        self._evictor = spec.evictor
        self._apply = self._window_function(backend)
        self.collector: Collector
        self.collect_in([], [])

    def _window_function(self, backend: KeyedBackend) -> Callable[[Any, Iterable[Any]], Iterable[Any] | None]:
        """``f(window, elements)``: the results of a window."""
        fn, context = self._spec.fn, self.context
        match fn:
            case None:
                return lambda window, elements: elements
            case ProcessWindowFunction():
                return lambda window, elements: fn.process(own_key(backend), context, elements)
            case _:
                return lambda window, elements: fn.apply(own_key(backend), window, elements)

    # -- over columns

    def fire_all(self, computed: Computed) -> Batch:
        """The results of all windows that fire in an epoch."""
        assert self._plan is not None
        assert self._type is not None
        windows, at = computed.windows, computed.fires
        keys, key_of, starts, ends = windows.keys, windows.key_of[at], windows.starts[at], windows.ends[at]
        key, rank = keys.column.take(pa.array(key_of)), firing_rank(self._stage, event=True)

        def coordinates() -> Coordinates:
            return (ends - 1) * 2, rank, keys.tie_breakers[key_of], ends - 1

        results = self._plan.results([leaf.take(pa.array(at)) for leaf in computed.leaves])
        columns = self._plan.shaped(results, key, starts, ends)
        table = pa.RecordBatch.from_arrays(columns, schema=self._type.arrow_schema)
        return DerivedBatch(len(at), coordinates, table=table, type=self._type)

    # -- element by element

    def collect_in(self, values: list[Any], stamps: list[int]) -> None:
        """Append the results of the epoch and their timestamps to these lists."""
        self._values, self._stamps = values, stamps

    def emit(self, results: Iterable[Any], timestamp: int) -> None:
        values, before = self._values, len(self._values)
        values.extend(self.collector.take_each(self.collector.several(results)))
        self._stamps.extend([timestamp] * (len(values) - before))

    def fire(self, window: Any) -> None:
        """Emit the results of the current window, to which ``contents`` is bound."""
        contents = self.contents.get()
        if self._spec.contents != "list":
            if contents is not None:
                self._fire_with(window, [contents])
        elif contents and self._evictor is None:
            self._fire_with(window, contents)
        elif contents:
            self._fire_evicting(window, list(map(TimestampedValue._make, contents)))

    def _fire_with(self, window: Any, elements: Iterable[Any]) -> None:
        self.context.at = window
        results = self._apply(window, elements)
        if results is not None:
            self.emit(results, min(window.max_timestamp(), MAX_WATERMARK))

    def _fire_evicting(self, window: Any, elements: list[TimestampedValue]) -> None:
        assert self._evictor is not None
        context = self.clock
        kept = self._kept(self._evictor.evict_before(elements, len(elements), window, context), "evict_before")
        combined = self._combined([e.value for e in kept])
        if combined is not None:
            self._fire_with(window, combined)
        kept = self._kept(self._evictor.evict_after(kept, len(kept), window, context), "evict_after")
        if len(kept) < len(elements):
            self.contents.update(map(tuple, kept))

    def _kept(self, kept: Any, method: str) -> list[TimestampedValue]:
        if not isinstance(kept, Iterable):
            raise UserFunctionError(
                f"operator {self._uid!r}: {type(self._evictor).__name__}.{method}() returned {shorten(kept)}; "
                "it must return the elements that stay in the window"
            )
        return list(kept)

    def _combined(self, values: list[Any]) -> list[Any] | None:
        """``combine`` applied to all elements; None for a reduction of no elements."""
        combine = self._spec.combine
        if combine is None:
            return values
        if isinstance(combine, AggregateFunction):
            accumulator = combine.create_accumulator()
            for value in values:
                accumulator = combine.add(value, accumulator)
            return [combine.get_result(accumulator)]
        return [reduce(reduction(combine, self._uid), values)] if values else None


def contents_descriptor(spec: WindowSpec, uid: str) -> StateDescriptor:
    type, combine = spec.contents_type, spec.combine
    found: StateDescriptor
    match spec.contents:
        case "reducing":
            found = ReducingStateDescriptor(CONTENTS, reduction(combine, uid), type)
        case "aggregating":
            assert isinstance(combine, AggregateFunction)
            found = AggregatingStateDescriptor(CONTENTS, combine, type)
        case "list":
            found = ListStateDescriptor(CONTENTS, type)
    found.fingerprint = spec.fingerprint
    return found


def reduction(combine: Any, uid: str) -> Callable[[Any, Any], Any]:
    if isinstance(combine, Rolling):
        return rolling_function(combine, uid)
    return combine.reduce if isinstance(combine, ReduceFunction) else combine
