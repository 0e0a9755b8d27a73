"""map, flat_map, filter, process: no state, so they run wherever their input is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from forkpoint.errors import GraphError
from forkpoint.functions import FilterFunction, FlatMapFunction, Function, MapFunction, ProcessFunction, TimerService
from forkpoint.functions.join_functions import tag_left, tag_right
from forkpoint.runtime.event_time.timers import to_flink_ms
from forkpoint.runtime.exchange.batch import NO_TIMESTAMP_MS, Batch, Longs
from forkpoint.runtime.operators.base import USER_ERRORS, Context, Epoch, Outputs, TaskInfo, user_error
from forkpoint.runtime.operators.outlet import Outlet
from forkpoint.runtime.operators.spec import ManagedState, RunnableSpec


class _Stateless:
    def __init__(self, info: TaskInfo, fn: Any, rich: type[Function], method: str) -> None:
        self._uid = info.operator.uid
        self._type = info.operator.output_type
        self._outlet = Outlet(info.operator)
        self._owner = fn if isinstance(fn, rich) else None
        self._fn: Callable[..., Any] = getattr(fn, method) if self._owner is not None else fn
        if self._owner is not None:
            self._owner.open(Context(info, None))

    def close(self) -> None:
        if self._owner is not None:
            self._owner.close()


@dataclass(frozen=True)
class MapSpec(RunnableSpec):
    kind = "map"

    fn: Any

    def instance(self, info: TaskInfo, state: ManagedState) -> Map:
        return Map(info, self.fn)


class Map(_Stateless):
    def __init__(self, info: TaskInfo, fn: Any) -> None:
        super().__init__(info, fn, MapFunction, "map")
        self._hands_on = fn is tag_left or fn is tag_right

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0]
        if self._hands_on:  # the elements have been taken already, and a tag around them is forkpoint's own
            return Outputs(batch.with_values(list(map(self._fn, batch.values)), self._type))
        self._outlet.begin(epoch)
        out: list[Any] = []
        try:
            out.extend(self._outlet.taking(map(self._fn, batch.values)))
        except USER_ERRORS as error:
            raise user_error(self._uid, error, batch.values[len(out)]) from error
        return self._outlet.outputs(batch.with_values(out, self._type))


@dataclass(frozen=True)
class FlatMapSpec(RunnableSpec):
    kind = "flat_map"

    fn: Any

    def instance(self, info: TaskInfo, state: ManagedState) -> FlatMap:
        return FlatMap(info, self.fn)


class FlatMap(_Stateless):
    def __init__(self, info: TaskInfo, fn: Any) -> None:
        super().__init__(info, fn, FlatMapFunction, "flat_map")

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0]
        self._outlet.begin(epoch)
        out: list[Any] = []
        counts: list[int] = []
        extend = self._outlet.into(out)
        try:
            for value in batch.values:
                before = len(out)
                results = self._fn(value)
                if results is not None:
                    extend(results)
                counts.append(len(out) - before)
        except USER_ERRORS as error:
            raise user_error(self._uid, error, batch.values[len(counts)]) from error
        return self._outlet.outputs(batch.expand(out, np.array(counts, dtype=np.int64), self._type))


@dataclass(frozen=True)
class FilterSpec(RunnableSpec):
    kind = "filter"

    fn: Any

    def instance(self, info: TaskInfo, state: ManagedState) -> Filter:
        return Filter(info, self.fn)


class Filter(_Stateless):
    def __init__(self, info: TaskInfo, fn: Any) -> None:
        super().__init__(info, fn, FilterFunction, "filter")

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0]
        kept: list[bool] = []
        own: list[Any] = []
        self._outlet.begin(epoch)
        try:
            if batch.table is None and self._outlet.one_by_one:
                for value in batch.values:  # the predicate may keep what it lets pass
                    kept.append(bool(self._fn(value)))
                    if kept[-1]:
                        own.append(self._outlet.take(value))
            else:
                kept.extend(map(bool, map(self._fn, batch.values)))
        except USER_ERRORS as error:
            raise user_error(self._uid, error, batch.values[len(kept)]) from error
        passed = batch.take(np.flatnonzero(np.array(kept, dtype=bool)))
        if batch.table is not None:
            return Outputs(passed.without_seen_values())
        if self._outlet.one_by_one:
            passed = passed.with_values(own, self._type)
        elif self._type is not None:
            return Outputs(passed)  # it has been looked through where it came from, and nothing can change it
        return self._outlet.outputs(passed)


class ElementContext(ProcessFunction.Context, TimerService):
    """What ``process_element`` of a function without keys sees."""

    def __init__(self) -> None:
        self.index = 0
        self.epoch: Epoch | None = None
        self.timestamps: Longs | None = None
        self.positions: Longs | int = 0

    def timestamp(self) -> int | None:
        if self.timestamps is None or self.timestamps[self.index] == NO_TIMESTAMP_MS:
            return None
        return int(self.timestamps[self.index])

    def timer_service(self) -> ElementContext:
        return self

    def current_processing_time(self) -> int:
        assert self.epoch is not None
        return self.epoch.processing_time_ms

    def register_event_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._refuse()

    def _refuse(self) -> None:
        raise GraphError("timers belong to keys; call key_by() and use a KeyedProcessFunction")

    def current_watermark(self) -> int:
        assert self.epoch is not None
        if self.epoch.on_watermark_read is not None:
            self.epoch.on_watermark_read()
        positions = self.positions
        return to_flink_ms(
            self.epoch.window.at_one(positions if isinstance(positions, int) else int(positions[self.index]))
        )


@dataclass(frozen=True)
class ProcessSpec(RunnableSpec):
    """A ProcessFunction on a stream without keys."""

    kind = "process"

    fn: Any

    def instance(self, info: TaskInfo, state: ManagedState) -> Process:
        return Process(info, self.fn)


class Process(_Stateless):
    def __init__(self, info: TaskInfo, fn: ProcessFunction) -> None:
        super().__init__(info, fn, ProcessFunction, "process_element")
        self._context = ElementContext()

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch, context = inputs[0], self._context
        context.epoch, context.timestamps, context.positions = epoch, batch.timestamps, batch.positions
        out: list[Any] = []
        counts: list[int] = []
        self._outlet.begin(epoch)
        extend = self._outlet.into(out)
        try:
            for i, value in enumerate(batch.values):
                context.index = i
                before = len(out)
                results = self._fn(value, context)
                if results is not None:
                    extend(results)
                counts.append(len(out) - before)
        except USER_ERRORS as error:
            raise user_error(self._uid, error, batch.values[len(counts)]) from error
        return self._outlet.outputs(batch.expand(out, np.array(counts, dtype=np.int64), self._type))
