"""KeyedProcessFunction: key by key through an epoch, elements and due timers of each key in order."""

from __future__ import annotations

from typing import Any

import numpy as np

from forkpoint.functions import KeyedProcessFunction, TimeDomain, declared_states
from forkpoint.runtime.batch import NO_TIMESTAMP_MS, Batch, Longs
from forkpoint.runtime.grouping import Groups, group_by_key
from forkpoint.runtime.keyed_state import ChangeLog, KeyedBackend, StateRecord
from forkpoint.runtime.operators.base import Context, Epoch, Outputs, TaskInfo, split_sides, user_error
from forkpoint.runtime.time import MAX_MS, Window, timer_position
from forkpoint.runtime.timers import Timers, to_flink_ms

BLOCK_ROWS = 65_536


class ElementContext(KeyedProcessFunction.Context):
    """What ``process_element`` sees. One object for the whole epoch; ``index`` moves with the element."""

    __slots__ = ("backend", "index", "timers", "timestamps")

    def __init__(self, backend: KeyedBackend, timers: Timers) -> None:
        self.backend = backend
        self.timers = timers
        self.index = 0
        self.timestamps: Longs | None = None

    def get_current_key(self) -> Any:
        return self.backend.current_key

    def timer_service(self) -> Timers:
        return self.timers

    def timestamp(self) -> int | None:
        if self.timestamps is None:
            return None
        stamp = int(self.timestamps[self.index])
        return None if stamp == NO_TIMESTAMP_MS else stamp


class TimerContext(KeyedProcessFunction.OnTimerContext):
    """What ``on_timer`` sees."""

    __slots__ = ("backend", "domain", "time_ms", "timers")

    def __init__(self, backend: KeyedBackend, timers: Timers) -> None:
        self.backend = backend
        self.timers = timers
        self.time_ms = 0
        self.domain = TimeDomain.EVENT_TIME

    def get_current_key(self) -> Any:
        return self.backend.current_key

    def timer_service(self) -> Timers:
        return self.timers

    def timestamp(self) -> int:
        return to_flink_ms(self.time_ms)

    def time_domain(self) -> TimeDomain:
        return self.domain


class Emission:
    """Where each output came from: elements in key order, with timer firings between them."""

    __slots__ = ("ends", "firings", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.ends: list[int] = []
        self.firings: list[tuple[int, int, int, int]] = []  # index among the ends, position, sequence, timestamp

    def batch(self, inputs: Batch, order: np.ndarray, type: Any) -> Batch:
        counts = np.diff(np.array(self.ends, dtype=np.int64), prepend=0)
        positions, splits, sequence = inputs.positions[order], inputs.splits[order], inputs.sequence[order]
        timestamps = None if inputs.timestamps is None else inputs.timestamps[order]
        if self.firings:
            # np.insert takes indices of the array without the inserted rows.
            at = np.array([f[0] - n for n, f in enumerate(self.firings)])
            positions = np.insert(positions, at, [f[1] for f in self.firings])
            splits = np.insert(splits, at, -1)
            sequence = np.insert(sequence, at, [f[2] for f in self.firings])
            if timestamps is None:
                timestamps = np.full(len(order), NO_TIMESTAMP_MS)
            timestamps = np.insert(timestamps, at, [f[3] for f in self.firings])
        every = Batch(len(positions), positions, splits, sequence, values=[], timestamps=timestamps, ordered=False)
        return every.expand(self.values, counts, type)


class KeyedProcess:
    """Runs one KeyedProcessFunction."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, fn: KeyedProcessFunction) -> None:
        assert info.operator.key is not None
        self._uid = info.operator.uid
        self._type = info.operator.output_type
        self._key = info.operator.key
        self._backend = backend
        self._timers = Timers(backend, info.subtask, info.parallelism)
        self._fn = fn
        for attribute, descriptor in declared_states(fn).items():
            fn.__dict__[attribute] = backend.get(descriptor)
        fn.open(Context(info, backend))
        self._has_timer_method = type(fn).on_timer is not KeyedProcessFunction.on_timer
        self._element_context = ElementContext(backend, self._timers)
        self._timer_context = TimerContext(backend, self._timers)
        self._next_timer: int | None = None

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0]
        window, backend, timers = epoch.window, self._backend, self._timers
        groups = group_by_key(batch, self._key)
        due = timers.begin(window.end if window.end > window.before else -MAX_MS, epoch.processing_time_ms)
        keys = groups.keys
        if due:
            known = set(map(backend.key_type.encode, keys))
            keys = keys + [backend.key_type.decode(k) for k in due if k not in known]
        backend.begin(keys, epoch.processing_time_ms, lambda: self._watermark)
        timers.watermark = lambda: self._watermark
        emission = Emission()
        self._element_context.timestamps = batch.timestamps
        self._window, self._positions, self._fired_at = window, batch.positions, None
        self._run_keys(batch, groups, window, emission)
        self._run_timers_only(range(len(groups.keys), len(keys)), window, emission)
        self._next_timer = timers.processing.earliest_after(epoch.processing_time_ms)
        return split_sides(emission.batch(batch, groups.order, self._type))

    # The watermark is asked for rarely, so it is worked out only then.
    _window: Window
    _positions: Longs
    _fired_at: int | None = None

    @property
    def _watermark(self) -> int:
        if self._fired_at is not None:
            return self._fired_at
        index = self._element_context.index
        return int(self._window.at(self._positions[index : index + 1])[0]) if len(self._positions) else self._window.before

    def _run_keys(self, batch: Batch, groups: Groups, window: Window, emission: Emission) -> None:
        backend, timers, context = self._backend, self._timers, self._element_context
        process, extend, mark, out = self._fn.process_element, emission.values.extend, emission.ends.append, emission.values
        starts = groups.starts.tolist()
        value: Any = None
        key = 0
        try:
            while key < len(groups.keys):
                # Elements become objects block by block, so that few of them exist at a time.
                stop = key + 1
                limit = starts[key] + BLOCK_ROWS
                while stop < len(groups.keys) and starts[stop + 1] <= limit:
                    stop += 1
                base = starts[key]
                indices = groups.order[base : starts[stop]]
                values, places = batch.objects(indices), indices.tolist()
                for k in range(key, stop):
                    backend.enter(k)
                    timers.enter(k)
                    first, last = starts[k] - base, starts[k + 1] - base
                    if timers.processing.heap:
                        self._fired_at = window.before
                        self._fire_processing(emission, k)
                        self._fired_at = None
                    heap = timers.event.heap
                    before = window.before
                    for i in range(first, last):
                        context.index = places[i]
                        value = values[i]
                        if heap:
                            now = self._watermark
                            if now > before:
                                self._advance(before, now, emission, k)
                                before = now
                                context.index = places[i]
                            out_of_element = process(value, context)
                            if out_of_element is not None:
                                extend(out_of_element)
                            mark(len(out))
                            continue
                        out_of_element = process(value, context)
                        if out_of_element is not None:
                            extend(out_of_element)
                        mark(len(out))
                        if heap:  # this element registered the first one: it fires once the watermark moves on from here
                            before = max(before, self._watermark)
                    if heap:
                        before = max(before, self._watermark) if last > first else before
                        self._advance(before, window.end, emission, k)
                    backend.leave()
                key = stop
        except Exception as error:
            raise user_error(self._uid, error, value, backend.current_key, keyed=True) from error

    def _run_timers_only(self, indices: range, window: Window, emission: Emission) -> None:
        for k in indices:
            self._backend.enter(k)
            self._timers.enter(k)
            self._fired_at = window.before
            self._fire_processing(emission, k)
            self._advance(window.before, window.end, emission, k)
            self._fired_at = None
            self._backend.leave()

    def _advance(self, before: int, now: int, emission: Emission, key: int) -> None:
        """Fire the key's timers up to ``now``; the watermark moves on only if it is ahead of ``before``."""
        if now <= before:
            return
        while (timer := self._timers.event.pop(now)) is not None:
            fires_at = max(timer[0], before + 1)
            self._fired_at = fires_at
            self._fire(timer[0], TimeDomain.EVENT_TIME, timer_position(fires_at), emission, key)
        self._fired_at = None

    def _fire_processing(self, emission: Emission, key: int) -> None:
        while (timer := self._timers.processing.pop(self._backend.processing_time_ms)) is not None:
            position = timer_position(self._fired_at if self._fired_at is not None else 0)
            self._fire(timer[0], TimeDomain.PROCESSING_TIME, position, emission, key)

    def _fire(self, time_ms: int, domain: TimeDomain, position: int, emission: Emission, key: int) -> None:
        context = self._timer_context
        context.time_ms, context.domain = time_ms, domain
        try:
            out = self._fn.on_timer(context.timestamp(), context)
            if out is not None:
                emission.values.extend(out)
        except Exception as error:
            raise user_error(self._uid, error, f"timer at {time_ms} ms", self._backend.current_key, keyed=True) from error
        sequence = hash_of(self._backend.key_bytes[key])
        stamp = to_flink_ms(time_ms) if domain is TimeDomain.EVENT_TIME else NO_TIMESTAMP_MS
        emission.firings.append((len(emission.ends), position, sequence, stamp))
        emission.ends.append(len(emission.values))

    def changes(self) -> ChangeLog:
        log = ChangeLog()
        self._timers.collect(log)
        states = self._backend.collect()
        log.keys.extend(states.keys)
        log.values.extend(states.values)
        return log

    def states(self) -> list[StateRecord]:
        return self._backend.records

    def next_processing_timer_ms(self) -> int | None:
        return self._next_timer

    def close(self) -> None:
        self._fn.close()


def hash_of(key: bytes) -> int:
    """A number that orders timer firings of different keys at one time, the same in every attempt."""
    return int.from_bytes(key[-7:], "big")
