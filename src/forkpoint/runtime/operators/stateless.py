"""map, flat_map, filter, process: stateless operators, which run in the task of their input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, ClassVar

import numpy as np

from forkpoint.errors import GraphError
from forkpoint.functions import FilterFunction, FlatMapFunction, Function, MapFunction, ProcessFunction, TimerService
from forkpoint.functions.joins import tag_left, tag_right
from forkpoint.graph.job import Operator
from forkpoint.runtime.event_time.timers import to_flink_ms
from forkpoint.runtime.exchange.batch import NO_TIMESTAMP_MS, Batch
from forkpoint.runtime.expressions.functions import OverColumns, column_condition, column_map, condition, mapped, text_of
from forkpoint.runtime.operators.base import Context, Epoch, Outputs, TaskInfo, check_all_done, results_for, user_code
from forkpoint.runtime.operators.emission import Collector
from forkpoint.runtime.operators.instances import ManagedState, RunnableSpec


class Stateless(ABC):
    """Runs the ``method`` (or ``call``) of a function of class ``rich``, or a callable."""

    rich: ClassVar[type[Function]]
    method: ClassVar[str]

    def __init__(self, info: TaskInfo, fn: Any, call: Callable[..., Any] | None = None) -> None:
        self._uid = info.operator.uid
        self._type = info.operator.output_type
        self._collector = Collector(info.operator)
        self._owner = fn if isinstance(fn, self.rich) else None
        self._fn: Callable[..., Any] = call or (fn if self._owner is None else getattr(fn, self.method))
        if self._owner is not None:
            self._owner.open(Context(info, None))
        self._over_columns = self._translated(info.operator) if info.operator.over_columns else None

    def _translated(self, operator: Operator) -> OverColumns | None:
        """The function over columns, if it is an expression."""
        return None

    @abstractmethod
    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs: ...

    def close(self) -> None:
        if self._owner is not None:
            self._owner.close()


@dataclass(frozen=True)
class FunctionSpec(RunnableSpec):
    """An operator that is one function. ``runs``: the class of its instances."""

    runs: ClassVar[type[Stateless]]

    fn: Any

    @property
    def call(self) -> Any:
        """What is called with each element."""
        return getattr(self.fn, self.runs.method) if isinstance(self.fn, self.runs.rich) else self.fn

    def instance(self, info: TaskInfo, state: ManagedState) -> Stateless:
        return self.runs(info, self.fn)


class Map(Stateless):
    rich, method = MapFunction, "map"

    def _translated(self, operator: Operator) -> OverColumns | None:
        return column_map(self._uid, self._fn, operator.input_type, operator.output_type)

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0]
        columns = None if self._over_columns is None else self._over_columns.columns(batch, epoch.id)
        if columns is not None:
            assert self._type is not None
            return Outputs(batch.with_columns(columns, self._type))
        # The elements have been taken, and the tags are internal.
        if self._fn is tag_left or self._fn is tag_right:
            return Outputs(batch.with_values(list(map(self._fn, batch.values)), self._type))
        self._collector.begin(epoch)
        out = results_for(batch, self._uid, self._collector.take_each(map(self._fn, batch.values)))
        return self._collector.outputs(batch.with_values(out, self._type))


class MapSpec(FunctionSpec):
    kind = "map"
    runs = Map

    def how(self, operator: Operator) -> str:
        return text_of(self.call, lambda: mapped(self.call, operator.input_type, operator.output_type))


class FlatMap(Stateless):
    rich: ClassVar[type[Function]] = FlatMapFunction
    method = "flat_map"

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0]
        self._collector.begin(epoch)
        out: list[Any] = []
        ends: list[int] = []
        extend = self._collector.into(out)
        with user_code(self._uid, lambda: batch.element(len(ends))):
            for results in self._results(batch, epoch, ends):
                if results is not None:
                    extend(results)
                ends.append(len(out))
            check_all_done(len(ends), batch)
        counts = np.diff(np.array(ends, dtype=np.int64), prepend=0).astype(np.int64)
        return self._collector.outputs(batch.expand(out, counts, self._type))

    def _results(self, batch: Batch, epoch: Epoch, ends: list[int]) -> Iterator[Iterable[Any] | None]:
        """The function's results for each element; ``ends`` has an entry for each completed element."""
        return map(self._fn, batch.values)


class FlatMapSpec(FunctionSpec):
    kind = "flat_map"
    runs = FlatMap


class Filter(Stateless):
    rich, method = FilterFunction, "filter"

    def _translated(self, operator: Operator) -> OverColumns | None:
        return column_condition(self._uid, self._fn, operator.input_type)

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0]
        passes = None if self._over_columns is None else self._over_columns.mask(batch, epoch.id)
        if passes is not None:
            return Outputs((batch if passes.all() else batch.take(np.flatnonzero(passes))).without_seen_values())
        kept: list[bool] = []
        taken: list[Any] = []
        self._collector.begin(epoch)
        if batch.table is None and self._collector.one_by_one:
            with user_code(self._uid, lambda: batch.values[len(kept)]):
                for value in batch.values:  # the predicate may keep a reference and change the element later
                    kept.append(bool(self._fn(value)))
                    if kept[-1]:
                        taken.append(self._collector.take(value))
        else:
            kept = results_for(batch, self._uid, map(bool, map(self._fn, batch.values)))
        passed = batch.take(np.flatnonzero(np.array(kept, dtype=bool)))
        if batch.table is not None:
            return Outputs(passed.without_seen_values())
        if self._collector.one_by_one:
            passed = passed.with_values(taken, self._type)
        elif self._type is not None:
            return Outputs(passed)  # immutable, and checked by the upstream operator
        return self._collector.outputs(passed)


class FilterSpec(FunctionSpec):
    kind = "filter"
    runs = Filter

    def how(self, operator: Operator) -> str:
        return text_of(self.call, lambda: condition(self.call, operator.input_type))


class ElementContext(ProcessFunction.Context, TimerService):
    """The context of ``process_element`` of a function without keys."""

    def begin(self, epoch: Epoch, batch: Batch, ends: list[int]) -> None:
        """Start a run; ``ends`` has an entry for each completed element."""
        self._epoch, self._ends = epoch, ends
        self._timestamps, self._positions = batch.timestamps, batch.positions

    def timestamp(self) -> int | None:
        if self._timestamps is None:
            return None
        stamp = int(self._timestamps[len(self._ends)])
        return None if stamp == NO_TIMESTAMP_MS else stamp

    def timer_service(self) -> ElementContext:
        return self

    def current_processing_time(self) -> int:
        return self._epoch.processing_time_ms

    def register_event_time_timer(self, timestamp: int) -> None:
        raise GraphError("timers belong to keys; call key_by() and use a KeyedProcessFunction")

    register_processing_time_timer = register_event_time_timer
    delete_event_time_timer = delete_processing_time_timer = register_event_time_timer

    def current_watermark(self) -> int:
        if self._epoch.on_watermark_read is not None:
            self._epoch.on_watermark_read()
        positions = self._positions
        position = positions if isinstance(positions, int) else int(positions[len(self._ends)])
        return to_flink_ms(self._epoch.window.at_one(position))


class Process(FlatMap):
    """As in Flink, a flat_map with a context."""

    rich: ClassVar[type[Function]] = ProcessFunction
    method = "process_element"

    def __init__(
        self, info: TaskInfo, fn: Any, call: Callable[..., Any] | None = None, context: ElementContext | None = None
    ) -> None:
        super().__init__(info, fn, call)
        self._context = context or ElementContext()

    def _results(self, batch: Batch, epoch: Epoch, ends: list[int]) -> Iterator[Iterable[Any] | None]:
        self._context.begin(epoch, batch, ends)
        return map(self._fn, batch.values, repeat(self._context))


class ProcessSpec(FunctionSpec):
    """A ProcessFunction on a stream without keys."""

    kind = "process"
    runs = Process
