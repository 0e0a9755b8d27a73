"""Runs a KeyedProcessFunction on an epoch key by key, with each key's elements and due timers in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from itertools import repeat
from typing import Any, ClassVar, NamedTuple

import numpy as np

from forkpoint.errors import ForkpointError, UserFunctionError
from forkpoint.functions import KeyedProcessFunction, StateDescriptor, TimeDomain, declared_states
from forkpoint.graph.job import Operator
from forkpoint.graph.specs import DeclaredState
from forkpoint.runtime.event_time.timers import Timer, Timers, timer_ms
from forkpoint.runtime.event_time.watermarks import MAX_MS, Window, timer_position
from forkpoint.runtime.exchange.batch import (
    EMPTY_LONGS,
    NO_TIMESTAMP_MS,
    OBJECT_ROWS,
    Batch,
    Coordinates,
    DerivedBatch,
    Longs,
    spread,
)
from forkpoint.runtime.exchange.batch import repeat as repeat_each
from forkpoint.runtime.exchange.grouping import Groups, group_by_key
from forkpoint.runtime.expressions.functions import text_of
from forkpoint.runtime.expressions.steps import Stepping, stepping_process
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
from forkpoint.runtime.operators.emission import Collector
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState, states_with_timers
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.types import TypeInformation, independent

_EVENT_RANK = 2**40
_PROCESSING_RANK = 2**41


class Firing(NamedTuple):
    """A timer that fired: its index in ``Emission.ends``, and the order and timestamp of its outputs."""

    at: int
    position: int
    split: int
    sequence: int
    timestamp: int


class Emission:
    """The outputs of an epoch: outputs of elements in key order, and outputs of timers between them.

    ``ends`` has an entry for each element and each firing: the number of outputs up to and including its own. So the length of
    ``ends`` gives the current element, without a record for each element.
    """

    __slots__ = ("ends", "extend", "firings", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.extend: Callable[[Iterable[Any]], None] = self.values.extend
        self.ends: list[int] = []
        self.firings: list[Firing] = []

    @property
    def element(self) -> int:
        """The index of the current element in key order, which is the number of completed elements."""
        return len(self.ends) - len(self.firings)

    def batch(self, inputs: Batch, order: Longs, type: Any) -> Batch:
        counts = cache(self._counts)  # for both, at most once
        ranks = (lambda: np.repeat(order, counts())) if inputs.ordered and not self.firings else None
        return DerivedBatch(
            len(self.values),
            lambda: self._coordinates(inputs, order, counts()),
            values=self.values,
            type=type,
            ranks=ranks,
        )

    def _counts(self) -> Longs:
        """The number of outputs of each element and firing."""
        return np.diff(np.array(self.ends, dtype=np.int64), prepend=0).astype(np.int64)

    def _coordinates(self, inputs: Batch, order: Longs, counts: Longs) -> Coordinates:
        positions, splits, sequence, timestamps = inputs.coordinates(order)
        if self.firings:
            # np.insert takes indices into the array without the inserted rows.
            entries, moments, ranks, tied, stamps = zip(*self.firings, strict=True)
            at = np.array(entries) - np.arange(len(entries))
            positions = np.insert(spread(positions, len(order)), at, moments)
            splits = np.insert(spread(splits, len(order)), at, ranks)
            sequence = np.insert(sequence, at, tied)
            if timestamps is None:
                timestamps = np.full(len(order), NO_TIMESTAMP_MS)
            timestamps = np.insert(timestamps, at, stamps)
        return (
            repeat_each(positions, counts),
            repeat_each(splits, counts),
            np.repeat(sequence, counts),
            None if timestamps is None else np.repeat(timestamps, counts),
        )


@dataclass(slots=True)
class Moment:
    """Timestamp and watermark of the current element or timer, computed on request."""

    positions: Longs | int
    timestamps: Longs | None
    order: Longs
    window: Window
    emission: Emission
    fired_at: int | None = None  # the watermark while a timer fires

    def close(self) -> None:
        """Release the epoch's elements and outputs."""
        self.positions, self.timestamps, self.order, self.emission = 0, None, EMPTY_LONGS, Emission()

    def watermark(self) -> int:
        if self.fired_at is not None:
            return self.fired_at
        element = self.emission.element
        if element >= len(self.order):
            return self.window.before
        position = self.positions if isinstance(self.positions, int) else int(self.positions[self.order[element]])
        return self.window.at_one(position)

    def timestamp(self) -> int | None:
        if self.timestamps is None:
            return None
        stamp = int(self.timestamps[self.order[self.emission.element]])
        return None if stamp == NO_TIMESTAMP_MS else stamp

    def element_time(self, default: int) -> int:
        """The current element's timestamp; the default if it has none, or while a timer fires."""
        stamp = self.timestamp() if self.fired_at is None else None
        return default if stamp is None else stamp


def own_key(backend: KeyedBackend) -> Any:
    """The current key, as a copy if the function could change it."""
    key = backend.current_key
    return key if backend.key_type.immutable else independent(key)


class KeyContext:
    """The common base of the contexts of elements and timers. One object serves all elements."""

    def __init__(self, backend: KeyedBackend, timers: Timers) -> None:
        self._backend = backend
        self._timers = timers

    def get_current_key(self) -> Any:
        return own_key(self._backend)

    def timer_service(self) -> Timers:
        return self._timers


class ElementContext(KeyContext, KeyedProcessFunction.Context):
    """The context of ``process_element``."""

    moment: Moment | None = None

    def timestamp(self) -> int | None:
        assert self.moment is not None
        return self.moment.timestamp()


class TimerContext(KeyContext, KeyedProcessFunction.OnTimerContext):
    """The context of ``on_timer``."""

    time_ms = 0
    namespace = b""
    domain = TimeDomain.EVENT_TIME

    def timestamp(self) -> int:
        return timer_ms(self.time_ms)

    def time_domain(self) -> TimeDomain:
        return self.domain


class KeyedProcess(KeyedOperator):
    """Runs one KeyedProcessFunction; subclasses run windows and functions of two inputs."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, fn: Any, namespace: TypeInformation | None = None) -> None:
        super().__init__(info, backend)
        self._stage = info.operator.stage
        self._collector = Collector(info.operator)
        self._timers = Timers(backend, namespace)
        self._fn = fn
        self._process: Any = getattr(fn, "process_element", None)
        for attribute, descriptor in self._declared(fn).items():
            fn.__dict__[attribute] = backend.get(descriptor)
        fn.open(Context(info, backend))
        self._element_context = ElementContext(backend, self._timers)
        self._timer_context = TimerContext(backend, self._timers)
        self._next_timer: int | None = None
        self._fires_all = False

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        window, backend, timers = epoch.window, self._backend, self._timers
        self._collector.begin(epoch)
        batch, groups = self._elements(inputs)
        self._fires_all = epoch.fires_all
        processing_ms = MAX_MS if epoch.fires_all else epoch.processing_time_ms
        due = timers.begin(window.end if window.end > window.before else -MAX_MS, processing_ms)
        keys = groups.keys
        if due:
            known = set(map(backend.key_type.encode, keys))
            keys = keys + [backend.key_type.decode(k) for k in due if k not in known]
        emission = self._emission()
        moment = Moment(batch.positions, batch.timestamps, groups.order, window, emission)
        self._element_context.moment = self._moment = moment
        timers.watermark = moment.watermark
        backend.begin(keys, epoch.processing_time_ms, moment.watermark)
        backend.element_time = moment.element_time
        try:
            self._run_epoch(batch, groups, window, emission)
            if emission.element < batch.size:  # the function ended map(), at an unknown element
                raise UserFunctionError(f"operator {self._uid!r}: the function raised StopIteration")
        except (ForkpointError, *NOT_USERS):
            raise
        except BaseException as error:
            at = emission.element
            value = batch.element(int(groups.order[at])) if at < batch.size else None
            keyed = backend.current is not None
            raise user_error(self._uid, error, value, backend.current_key, keyed=keyed) from error
        self._next_timer = timers.processing.earliest_after(processing_ms)
        moment.close()
        backend.scope.release()  # for snapshot_state() in particular
        return self._outputs(emission.batch(batch, groups.order, self._type))

    def _emission(self) -> Emission:
        """A collector for the outputs of a run."""
        emission = Emission()
        emission.extend = self._collector.into(emission.values)
        return emission

    def _elements(self, inputs: list[Batch]) -> tuple[Batch, Groups]:
        """All elements in order, and grouped by key."""
        return inputs[0], group_by_key(inputs[0], self._key)

    def _declared(self, fn: Any) -> Mapping[str, StateDescriptor]:
        """The function's keyed states, by attribute."""
        return declared_states(fn)

    def _run_epoch(self, batch: Batch, groups: Groups, window: Window, emission: Emission) -> None:
        self._run_keys(batch, groups, window, emission)
        for k in range(len(groups.keys), len(self._backend.keys)):  # keys that have only timers
            self._enter(k)
            self._fire_processing(self._backend.processing_time_ms, window.before, emission, k)
            self._advance(window.before, window.end, emission, k)
            if self._fires_all:
                self._fire_processing(MAX_MS, window.end, emission, k)
            self._backend.leave()

    def _outputs(self, batch: Batch) -> Outputs:
        return self._collector.outputs(batch)

    def _run_keys(self, batch: Batch, groups: Groups, window: Window, emission: Emission) -> None:
        backend, timers, context = self._backend, self._timers, self._element_context
        keys, handles, event, processing = backend.keys, backend.handles, timers.event, timers.processing
        process, extend, mark, out = self._process, emission.extend, emission.ends.append, emission.values
        for first, last, values, starts in key_blocks(batch, groups):
            base = starts[first]
            for k in range(first, last):
                # backend.enter(k) and leave() inlined, which saves two calls per key
                backend.current, backend.current_key = k, keys[k]
                for handle in handles:
                    handle.enter(k)
                if event.engaged or processing.engaged:
                    timers.enter(k)
                    if processing.heap:
                        self._fire_processing(backend.processing_time_ms, window.before, emission, k)
                elements = values[starts[k] - base : starts[k + 1] - base]
                heap = event.heap
                if not heap:
                    # No timer can fire until an element registers one.
                    done = 0
                    for results in map(process, elements, repeat(context)):
                        if results is not None:
                            extend(results)
                        if heap:
                            done = emission.element + 1 - starts[k]
                            break
                        mark(len(out))
                    else:
                        if self._fires_all:
                            self._fire_processing(MAX_MS, window.end, emission, k)
                        for handle in handles:
                            handle.leave(k)
                        continue
                    before = max(window.before, self._moment.watermark())
                    mark(len(out))
                    elements = elements[done:]
                else:
                    before = window.before
                for value in elements:
                    now = self._moment.watermark()
                    if now > before:
                        self._advance(before, now, emission, k)
                        before = now
                    results = process(value, context)
                    if results is not None:
                        extend(results)
                    mark(len(out))
                self._advance(before, window.end, emission, k)
                if self._fires_all:
                    self._fire_processing(MAX_MS, window.end, emission, k)
                backend.leave()
        backend.current = None

    def _enter(self, key: int) -> None:
        self._backend.enter(key)
        self._timers.enter(key)

    def _advance(self, before: int, now: int, emission: Emission, key: int) -> None:
        """Advance the watermark from ``before`` to ``now``, firing the key's timers; does nothing if ``now`` is not ahead."""
        if now <= before:
            return
        fires_at = before + 1
        while (timer := self._timers.event.pop(now)) is not None:
            fires_at = max(fires_at, timer[0])  # a timer that another timer registers for an earlier time fires right after it
            self._fire(timer, TimeDomain.EVENT_TIME, fires_at, emission, key)

    def _fire_processing(self, until_ms: int, watermark: int, emission: Emission, key: int) -> None:
        """Fire due timers. Processing time advances before the epoch's first element; at the end of a batch, all are due."""
        while (timer := self._timers.processing.pop(until_ms)) is not None:
            self._fire(timer, TimeDomain.PROCESSING_TIME, watermark, emission, key)

    def _fire(self, timer: Timer, domain: TimeDomain, watermark: int, emission: Emission, key: int) -> None:
        context = self._timer_context
        time_ms, context.namespace = timer
        context.time_ms, context.domain = time_ms, domain
        self._moment.fired_at = MAX_MS if self._fires_all else watermark
        self._timers.closed(self._fires_all)
        try:
            out = self._fn.on_timer(context.timestamp(), context)
            if out is not None:
                emission.extend(out)
        except NOT_USERS:
            raise
        except BaseException as error:
            raise user_error(self._uid, error, f"timer at {time_ms} ms", self._backend.current_key, keyed=True) from error
        self._timers.closed(False)
        self._moment.fired_at = None
        event = domain is TimeDomain.EVENT_TIME
        rank, tie = firing_rank(self._stage, event=event), order_of(self._backend.key_bytes[key])
        stamp = timer_ms(time_ms) if event else NO_TIMESTAMP_MS
        emission.firings.append(Firing(len(emission.ends), timer_position(watermark), rank, tie, stamp))
        emission.ends.append(len(emission.values))

    def changes(self) -> ChangeLog:
        log = ChangeLog()
        self._timers.collect(log)
        states = self._backend.collect()
        log.add(states.keys, states.values)
        return log

    def next_processing_timer_ms(self) -> int | None:
        return self._next_timer

    def has_timers(self) -> bool:
        """Whether timers are saved."""
        return self._timers.saved

    def close(self) -> None:
        self._fn.close()


@dataclass(frozen=True)
class KeyedProcessSpec(KeyedSpec):
    """``runs``: the class of the instances."""

    kind = "keyed_process"
    runs: ClassVar[type[KeyedProcess]] = KeyedProcess

    fn: Any

    def states(self) -> list[DeclaredState]:
        return states_with_timers(declared_states(self.fn))

    def instance(self, info: TaskInfo, state: ManagedState) -> OperatorInstance:
        from forkpoint.runtime.columnar.stepping import process_with_columns  # imports this module

        elements = self.runs(info, state.keyed, self.fn)
        if self.runs is not KeyedProcess:
            return elements
        return process_with_columns(info, state.keyed, elements, self.fn, lambda: self._stepping(info.operator))

    def _stepping(self, operator: Operator) -> Stepping:
        key = operator.key
        return stepping_process(self.fn, operator.input_type, operator.output_type, None if key is None else key.key_type)

    def how(self, operator: Operator) -> str:
        return text_of(self.fn, lambda: self._stepping(operator)) if self.runs is KeyedProcess else ""


class TimestampedProcess(KeyedProcess):
    """Runs a function that collects the timestamps of its outputs in ``stamps`` and counts late elements in ``dropped``."""

    def _outputs(self, batch: Batch) -> Outputs:
        stamps, self._fn.stamps = self._fn.stamps, []
        dropped, self._fn.dropped = self._fn.dropped, 0
        batch.stamp(np.array(stamps, dtype=np.int64), None)
        outputs = super()._outputs(batch)
        outputs.late_records_dropped = dropped
        return outputs


def key_blocks(batch: Batch, groups: Groups) -> Iterator[tuple[int, int, list[Any], list[int]]]:
    """Blocks of keys: (first key, one past the last key, their elements as objects, all keys' starts).

    Only one block at a time has its elements as objects.
    """
    starts = groups.starts.tolist()
    key, count = 0, len(groups.keys)
    while key < count:
        stop = key + 1
        limit = starts[key] + OBJECT_ROWS
        while stop < count and starts[stop + 1] <= limit:
            stop += 1
        yield key, stop, batch.objects(groups.order[starts[key] : starts[stop]]), starts
        key = stop


def order_of(key: bytes) -> int:
    """A number that orders timer firings of different keys at the same time, stable across attempts."""
    short = key if len(key) <= 7 else blake2b(key, digest_size=7).digest()
    return len(key) % 8 << 56 | int.from_bytes(short, "big")


def firing_rank(stage: int, *, event: bool) -> int:
    """The split number for outputs of a timer, so that no output overtakes another output at the same position.

    Event-time timers fire after the outputs of earlier stages' timers at that time, processing-time timers before them.
    """
    return stage - _EVENT_RANK if event else -stage - _PROCESSING_RANK
