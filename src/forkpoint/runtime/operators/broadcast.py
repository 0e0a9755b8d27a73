"""Functions with broadcast state.

A keyed operator processes an epoch key by key, but every key must see a broadcast element at the element's event time. So the
broadcast elements divide an epoch into segments. The operator processes a segment key by key, with the timers that fire before
the next broadcast element, and then that element. An epoch without broadcast elements runs as if there were no second input.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np

from forkpoint.errors import GraphError
from forkpoint.functions import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    MapStateDescriptor,
    State,
    StateDescriptor,
    keyed_states,
)
from forkpoint.graph.specs import DeclaredState
from forkpoint.runtime.event_time.timers import Timers
from forkpoint.runtime.event_time.watermarks import Window
from forkpoint.runtime.exchange.batch import OBJECT_ROWS, Batch, Longs, pick, spread
from forkpoint.runtime.exchange.grouping import Groups
from forkpoint.runtime.operators import stateless
from forkpoint.runtime.operators.base import Epoch, Outputs, TaskInfo
from forkpoint.runtime.operators.broadcast_time import BroadcastTime, waiting_elements
from forkpoint.runtime.operators.co_process import CoProcess, Merged
from forkpoint.runtime.operators.instances import ManagedState, RunnableSpec, states_with_timers
from forkpoint.runtime.operators.keyed_process import ElementContext, Emission, KeyContext, KeyedProcess, TimerContext
from forkpoint.runtime.state.broadcast_state import BroadcastMap
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.state import decode_state_key, sid_ranges
from forkpoint.types import TypeInformation

BroadcastStates = Callable[[MapStateDescriptor[Any, Any]], BroadcastMap]
"""The broadcast states of one operator on one subtask, by descriptor."""


@dataclass(frozen=True)
class BroadcastSpec(RunnableSpec):
    """A function of a stream and a broadcast stream. ``descriptors``: the broadcast states; ``element_type``: the type of the
    broadcast stream."""

    has_operator_state = True

    fn: Any
    descriptors: tuple[MapStateDescriptor[Any, Any], ...]
    element_type: TypeInformation | None

    def states(self) -> list[DeclaredState]:
        descriptors = (*self.descriptors, waiting_elements(self.element_type))
        return [DeclaredState(d.name, "broadcast", d.value_type, d.key_type, keyed=False) for d in descriptors]

    def broadcast_states(self, info: TaskInfo, state: ManagedState) -> tuple[BroadcastStates, BroadcastTime]:
        uid, maps = info.operator.uid, {d.name: state.operator_state.broadcast(d) for d in self.descriptors}
        waiting = state.operator_state.broadcast(waiting_elements(self.element_type))

        def state_of(descriptor: MapStateDescriptor[Any, Any]) -> BroadcastMap:
            found = maps.get(getattr(descriptor, "name", ""))
            if found is None:
                raise GraphError(
                    f"operator {uid!r}: {descriptor!r} is not one of its broadcast states ({', '.join(sorted(maps))}); "
                    "pass its descriptor to broadcast()"
                )
            return found

        return state_of, BroadcastTime(uid, self.element_type, waiting, list(maps.values()))


# -- without keys ------------------------------------------------------------------------------------------------------


class ReadOnlyContext(stateless.ElementContext, BroadcastProcessFunction.ReadOnlyContext):
    """The context of ``process_element``."""

    def __init__(self, states: BroadcastStates) -> None:
        self._states = states

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor[Any, Any]) -> Any:
        return self._states(state_descriptor).read_only


class WritingContext(BroadcastProcessFunction.Context):
    """The context of ``process_broadcast_element``, with the times of ``element`` and writable broadcast states."""

    def __init__(self, states: BroadcastStates, element: BroadcastProcessFunction.ReadOnlyContext) -> None:
        self._states = states
        self._element = element

    def timestamp(self) -> int | None:
        return self._element.timestamp()

    def current_processing_time(self) -> int:
        return self._element.current_processing_time()

    def current_watermark(self) -> int:
        return self._element.current_watermark()

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor[Any, Any]) -> Any:
        return self._states(state_descriptor)


@dataclass(frozen=True)
class BroadcastProcessSpec(BroadcastSpec):
    """A BroadcastProcessFunction on a stream without keys and a broadcast stream."""

    kind = "broadcast_process"

    def instance(self, info: TaskInfo, state: ManagedState) -> BroadcastProcess:
        return BroadcastProcess(info, self.fn, *self.broadcast_states(info, state))


class BroadcastProcess(CoProcess):
    """Runs one BroadcastProcessFunction."""

    def __init__(self, info: TaskInfo, fn: Any, states: BroadcastStates, time: BroadcastTime) -> None:
        context = ReadOnlyContext(states)
        super().__init__(info, fn, (fn.process_element, self._broadcast), context)
        self._time, self._writing = time, WritingContext(states, context)
        self._process_broadcast = fn.process_broadcast_element

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        first, second = inputs
        outputs = super().run([first, self._time.begin(first, second, epoch.first)], epoch)
        self._time.end()
        return outputs

    def _broadcast(self, value: Any, _: Any) -> Iterable[Any] | None:
        provisional = self._time.provisional()
        results: Iterable[Any] | None = self._process_broadcast(value, self._writing)
        return _dropped(results) if provisional else results


def _dropped(results: Iterable[Any] | None) -> tuple[()]:
    """Drop the results, but run a generator to its end."""
    for _ in results or ():
        pass
    return ()


# -- with keys ---------------------------------------------------------------------------------------------------------


class _WithStates(KeyContext):
    """The common base of the contexts of elements and timers."""

    def __init__(self, backend: KeyedBackend, timers: Timers, states: BroadcastStates) -> None:
        super().__init__(backend, timers)
        self._broadcast = states

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor[Any, Any]) -> Any:
        return self._broadcast(state_descriptor).read_only

    def current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    def current_watermark(self) -> int:
        return self._timers.current_watermark()


class KeyedReadOnlyContext(_WithStates, ElementContext, KeyedBroadcastProcessFunction.ReadOnlyContext):
    """The context of ``process_element``."""


class KeyedTimerContext(_WithStates, TimerContext, KeyedBroadcastProcessFunction.OnTimerContext):
    """The context of ``on_timer``."""


_NO_KEY = (
    "a broadcast element has no key; use ctx.apply_to_keyed_state(descriptor, function) to change it for all keys, where "
    "descriptor may be the attribute that holds the state"
)


class EveryKey:
    """Applies functions to a state of all of a subtask's keys, within one epoch.

    The operator's backend has the keys of the epoch. For other keys, each state has a second backend until the end of the
    epoch, so that a call sees the changes of earlier calls.
    """

    def __init__(self, backend: KeyedBackend) -> None:
        self._backend = backend
        self._others: dict[str, KeyedBackend] = {}

    def apply(self, state: StateDescriptor | State, function: Callable[[Any, Any], None]) -> None:
        descriptor = self._backend.described(state)
        own = self._backend.get(descriptor)
        self._backend.scope.bind_only(own)
        _apply(self._backend, own, function)
        self._backend.scope.release(_NO_KEY)
        others = self._others.get(descriptor.name)
        if others is None:
            others = self._others[descriptor.name] = self._other_keys(descriptor)
        _apply(others, others.get(descriptor), function)

    def _other_keys(self, descriptor: StateDescriptor) -> KeyedBackend:
        """A backend for the keys with entries in the store and without elements in the epoch."""
        own, sid = self._backend, self._backend.sid(descriptor.name)
        found: dict[bytes, None] = {}
        for start, stop in own.store.occupied(sid_ranges(*own.groups, sid)):
            found.update((decode_state_key(entry).key, None) for entry, _ in own.store.scan(start, stop))
        for key in own.key_bytes:
            found.pop(key, None)
        backend = KeyedBackend(own.uid, own.key_type, own.max_parallelism, own.store)
        backend.groups = own.groups
        backend.element_time = own.element_time
        backend.get(descriptor)
        backend.begin(list(map(own.key_type.decode, found)), own.processing_time_ms, own.watermark)
        return backend

    def collect(self, log: ChangeLog) -> None:
        for backend in self._others.values():
            for handle in backend.handles:  # no sweepers, which the operator's backend runs
                handle.collect(log)


def _apply(backend: KeyedBackend, handle: Any, function: Callable[[Any, Any], None]) -> None:
    for index, key in enumerate(backend.keys):
        backend.enter(index)
        if handle.alive():
            function(key, handle)
        backend.leave()


class KeyedWritingContext(WritingContext, KeyedBroadcastProcessFunction.Context):
    """The context of ``process_broadcast_element``."""

    every_key: EveryKey | None = None
    provisional = False

    def apply_to_keyed_state(self, state_descriptor: StateDescriptor | State, function: Callable[[Any, Any], None]) -> None:
        assert self.every_key is not None
        if not self.provisional:
            self.every_key.apply(state_descriptor, function)


@dataclass(frozen=True)
class Segments(Groups):
    """An epoch divided at its broadcast elements. ``order`` and ``starts`` describe runs, by segment and key: the elements of one
    key in a segment, or the broadcast element that ends it. ``run_keys``: the index of each run's key, None for a broadcast
    element.
    """

    run_keys: list[int | None]


def cut_at_broadcasts(batch: Merged, groups: Groups) -> Segments:
    """``groups``: the groups of the first input's elements."""
    broadcast = len(groups.keys)
    of_row = np.empty(len(groups.order), dtype=np.int64)
    of_row[groups.order] = np.repeat(np.arange(broadcast), np.diff(groups.starts))
    second = batch.of_second
    codes = np.full(batch.size, broadcast, dtype=np.int64)
    codes[~second] = of_row[batch.rows[~second]]
    segments: Longs = np.cumsum(second) - second
    order = np.lexsort((codes, segments))
    codes, segments = codes[order], segments[order]
    starts = np.flatnonzero((np.diff(codes, prepend=-1) != 0) | (np.diff(segments, prepend=-1) != 0))
    run_keys = [None if code == broadcast else code for code in codes[starts].tolist()]
    return Segments(groups.keys, order, np.append(starts, batch.size), run_keys)


@dataclass(frozen=True)
class KeyedBroadcastProcessSpec(BroadcastSpec):
    """A KeyedBroadcastProcessFunction on a keyed stream and a broadcast stream."""

    kind = "keyed_broadcast_process"
    keyed = True

    def needs_key(self, ordinal: int) -> bool:
        return ordinal == 0

    def states(self) -> list[DeclaredState]:
        return [*states_with_timers(keyed_states(self.fn, self.descriptors)), *super().states()]

    def instance(self, info: TaskInfo, state: ManagedState) -> KeyedBroadcast:
        states, time = self.broadcast_states(info, state)
        return KeyedBroadcast(info, state.keyed, self.fn, states, time, self.descriptors)


class KeyedBroadcast(KeyedProcess):
    """Runs one KeyedBroadcastProcessFunction."""

    def __init__(
        self,
        info: TaskInfo,
        backend: KeyedBackend,
        fn: KeyedBroadcastProcessFunction,
        states: BroadcastStates,
        time: BroadcastTime,
        descriptors: Sequence[MapStateDescriptor[Any, Any]],
    ) -> None:
        self._descriptors = descriptors
        self._time = time
        self._waiting: list[tuple[int, int]] = []  # heap of (time, key): each inactive key's next timer
        self._remaining: list[tuple[int, int]] = []  # the same for keys that were active in this segment
        super().__init__(info, backend, fn)
        self._element_context = read_only = KeyedReadOnlyContext(backend, self._timers, states)
        self._timer_context = KeyedTimerContext(backend, self._timers, states)
        self._writing_context = KeyedWritingContext(states, read_only)

    def _declared(self, fn: Any) -> Mapping[str, StateDescriptor]:
        return keyed_states(fn, self._descriptors)

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        first, second = inputs
        outputs = super().run([first, self._time.begin(first, second, epoch.first)], epoch)
        self._time.end()
        return outputs

    def _elements(self, inputs: list[Batch]) -> tuple[Batch, Groups]:
        first, groups = super()._elements(inputs)
        if not inputs[1].size:
            return first, groups
        merged = Merged(first, inputs[1], (self._process, self._broadcast))
        return merged, cut_at_broadcasts(merged, groups)

    def _run_epoch(self, batch: Batch, groups: Groups, window: Window, emission: Emission) -> None:
        if not isinstance(groups, Segments):
            super()._run_epoch(batch, groups, window, emission)
            return
        self._writing_context.every_key = EveryKey(self._backend)
        order, starts = groups.order, groups.starts.tolist()
        blocks = (batch.objects(order[at : at + OBJECT_ROWS]) for at in range(0, batch.size, OBJECT_ROWS))
        calls = chain.from_iterable(blocks)
        self._wait_for_timers(window, emission)
        runs = [run for run, key in enumerate(groups.run_keys) if key is None]  # the broadcast elements
        positions = spread(pick(batch.positions, order[groups.starts[runs]]), len(runs))
        ends = iter([*np.maximum.accumulate(window.at(positions)).tolist(), window.end])
        before, end = window.before, next(ends)
        for key, start, stop in zip(groups.run_keys, starts, starts[1:], strict=False):
            if key is not None:
                self._run_key(key, islice(calls, stop - start), before, end, emission)
                continue
            self._fire_waiting(before, end, emission)
            results = next(calls)(None)
            if results is not None:
                emission.values.extend(results)  # _broadcast() has taken them
            emission.ends.append(len(emission.values))
            before, end = end, next(ends)
        self._fire_waiting(before, end, emission)

    def _wait_for_timers(self, window: Window, emission: Emission) -> None:
        """Fire processing-time timers, because that time advances before the epoch's first element; queue event-time timers."""
        keys = {key: index for index, key in enumerate(self._backend.key_bytes)}
        self._waiting = [(time, keys[key]) for key, time in self._timers.event.pending().items()]
        heapq.heapify(self._waiting)
        for key in self._timers.processing.pending():
            self._enter(keys[key])
            self._fire_processing(self._backend.processing_time_ms, window.before, emission, keys[key])
            self._leave(keys[key])
        self._queue_remaining()

    def _run_key(self, key: int, calls: Iterator[Any], before: int, end: int, emission: Emission) -> None:
        """Run one key's elements in one segment, up to the watermark at its end."""
        context, out, mark = self._element_context, emission.values, emission.ends.append
        extend = emission.extend
        self._enter(key)
        heap = self._timers.event.heap
        for call in calls:
            armed = bool(heap)
            if armed and (now := self._moment.watermark()) > before:
                self._advance(before, now, emission, key)
                before = now
            results = call(context)
            if results is not None:
                extend(results)
            if heap and not armed:  # no timer could fire until now
                before = max(before, self._moment.watermark())
            mark(len(out))
        self._advance(before, end, emission, key)
        self._leave(key)

    def _fire_waiting(self, before: int, end: int, emission: Emission) -> None:
        """Fire all keys' timers up to the watermark at the end of a segment. Timers of keys with elements in the segment have
        fired; their remaining timers wait for a later watermark, even if their time has passed."""
        ready = set()
        while end > before and self._waiting and self._waiting[0][0] <= end:
            ready.add(heapq.heappop(self._waiting)[1])
        for key in sorted(ready - {key for _, key in self._remaining}):
            self._enter(key)
            self._advance(before, end, emission, key)
            self._leave(key)
        self._queue_remaining()

    def _queue_remaining(self) -> None:
        for timer in self._remaining:
            heapq.heappush(self._waiting, timer)
        self._remaining.clear()

    def _leave(self, key: int) -> None:
        """Leave a key that a later segment may enter again."""
        time_ms = self._timers.event.put_back()
        if time_ms is not None:
            self._remaining.append((time_ms, key))
        self._backend.leave()

    def _broadcast(self, value: Any, _: Any) -> list[Any] | None:
        context = self._writing_context
        context.provisional = self._time.provisional()
        self._backend.scope.release(_NO_KEY)
        results = self._fn.process_broadcast_element(value, context)
        if context.provisional:
            results = _dropped(results)
        taken = None if results is None else list(self._collector.take_each(results))
        self._backend.scope.bind()
        return taken

    def changes(self) -> ChangeLog:
        log = super().changes()
        if self._writing_context.every_key is not None:
            self._writing_context.every_key.collect(log)
            self._writing_context.every_key = None
        return log
