"""Windows of a keyed stream: Flink's WindowOperator, a key at a time.

Contents, triggers' state and timers have the window as their namespace. A window goes when the watermark passes its last
moment plus the allowed lateness (for windows of processing time: when the wall clock passes its last moment), and with
it everything that was kept for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from forkpoint.errors import UserFunctionError
from forkpoint.functions import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    AggregateFunction,
    AggregatingStateDescriptor,
    GlobalWindow,
    KeyedProcessFunction,
    ListStateDescriptor,
    MergingWindowAssigner,
    ProcessWindowFunction,
    ReduceFunction,
    ReducingStateDescriptor,
    StateDescriptor,
    TimeDomain,
    TimestampedValue,
    TriggerResult,
    declared_states,
)
from forkpoint.runtime.event_time.timers import Timers, to_flink_ms
from forkpoint.runtime.operators.base import TaskInfo, shorten
from forkpoint.runtime.operators.keyed_process import (
    ElementContext,
    Emission,
    TimerContext,
    TimestampedProcess,
    own_key,
)
from forkpoint.runtime.operators.outlet import Outlet
from forkpoint.runtime.operators.rolling import Rolling, rolling_function
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.runtime.state.namespace import Namespace
from forkpoint.runtime.windows.contexts import (
    AssignerContext,
    Clock,
    KeyStateContext,
    WindowContext,
    WindowEvictorContext,
    WindowStateContext,
    WindowTriggerContext,
    check_name,
)
from forkpoint.runtime.windows.merging import MergingWindows
from forkpoint.runtime.windows.spec import CONTENTS, WindowSpec

_KNOWN_WINDOWS = 4096

Encode = Callable[[Any], bytes]


def window_encoder(spec: WindowSpec) -> tuple[Encode, Callable[[bytes], Any]]:
    """How windows become namespaces, and back; the one window of GlobalWindows is the empty namespace."""
    type = spec.window_type
    if type is not None:
        return type.encode, type.decode
    only = GlobalWindow()

    def encode(window: Any) -> bytes:
        if window != only:
            raise UserFunctionError(
                f"{spec.assigner.describe()} assigned {window!r}, but its window_type() is None, which stands for "
                "GlobalWindow(); return the type of the windows there"
            )
        return b""

    return encode, lambda namespace: only


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


class WindowRunner(KeyedProcessFunction):
    """What happens to an element and at a timer; ``stamps`` gets the timestamp of each output, ``dropped`` counts late
    elements that go nowhere."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: WindowSpec) -> None:
        self._info, self._backend, self._spec = info, backend, spec
        self._assigner, self._trigger, self._evictor = spec.assigner, spec.trigger, spec.evictor
        self._event_time = spec.assigner.is_event_time()
        self._lateness_ms = spec.lateness_ms if self._event_time else 0
        self._encoded, self._decode = window_encoder(spec)
        self._namespaces: dict[Any, bytes] = {}
        type = spec.window_type
        merging = isinstance(spec.assigner, MergingWindowAssigner)
        self._contents_namespace, self._namespace = Namespace(type), Namespace(type)
        self._contents = backend.get(contents_descriptor(spec, info.operator.uid), self._contents_namespace)
        self._merging: MergingWindows | None = None
        if isinstance(spec.assigner, MergingWindowAssigner):
            assert type is not None
            self._merging = MergingWindows(backend, spec.assigner, type)
        self._assigner_context = AssignerContext(info, backend)
        self._clock = clock = Clock(backend)
        self._trigger_context = WindowTriggerContext(clock, self._namespace)
        self._evictor_context = WindowEvictorContext(clock)
        self._window_state = WindowStateContext(info, backend, self._namespace, merging=merging)
        self._context = WindowContext(clock, self._window_state, KeyStateContext(info, backend))
        self._on_contents = self._output()
        self.outlet: Outlet
        self.stamps: list[int] = []
        self.dropped = 0

    @property
    def timers(self) -> Timers:
        return self._trigger_context.timers

    @timers.setter
    def timers(self, timers: Timers) -> None:
        self._trigger_context.timers = timers

    # -- the user's functions

    def declare_states(self) -> Mapping[str, StateDescriptor]:
        states = {} if self._spec.fn is None else declared_states(self._spec.fn)
        for descriptor in states.values():
            check_name(self._info.operator.uid, descriptor.name)
        return states

    def open(self, runtime_context: Any) -> None:
        fn, combine = self._spec.fn, self._spec.combine
        if fn is not None:
            mine = vars(self)
            vars(fn).update({attribute: mine[attribute] for attribute in self.declare_states()})
            fn.open(self._context.global_state())
        if isinstance(combine, ReduceFunction | AggregateFunction):
            combine.open(runtime_context)

    def close(self) -> None:
        if self._spec.fn is not None:
            self._spec.fn.close()
        if isinstance(self._spec.combine, ReduceFunction | AggregateFunction):
            self._spec.combine.close()

    def _output(self) -> Callable[[Any, Iterable[Any]], Iterable[Any] | None]:
        """``f(window, elements)``: the results of a window."""
        fn, context, backend = self._spec.fn, self._context, self._backend
        match fn:
            case None:
                return lambda window, elements: elements
            case ProcessWindowFunction():
                return lambda window, elements: fn.process(own_key(backend), context, elements)
            case _:
                return lambda window, elements: fn.apply(own_key(backend), window, elements)

    def _encode(self, window: Any) -> bytes:
        """The namespace of a window; the same few windows come again and again."""
        namespace = self._namespaces.get(window)
        if namespace is None:
            if len(self._namespaces) >= _KNOWN_WINDOWS:
                self._namespaces.clear()
            namespace = self._namespaces[window] = self._encoded(window)
        return namespace

    # -- elements

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> list[Any] | None:
        assert isinstance(ctx, ElementContext)
        timestamp = ctx.timestamp()
        stamp = MIN_WATERMARK if timestamp is None else timestamp
        self._clock.watermark_ms = to_flink_ms(self._backend.watermark())
        windows = self._assigner.assign_windows(value, stamp, self._assigner_context)
        out: list[Any] = []
        skipped = True
        for assigned in windows:
            if self._merging is None:
                window = state_window = assigned
                if self._is_late(window):
                    continue
            else:
                window = self._merging.add(assigned, self._on_merge)
                if self._is_late(window):
                    self._merging.retire(window)
                    continue
                state_window = self._merging.state_window(window)
            skipped = False
            namespace = self._namespace.current = self._encode(window)
            self._contents_namespace.current = namespace if state_window is window else self._encode(state_window)
            self._contents.add(value if self._evictor is None else (value, stamp))
            result = self._trigger.on_element(value, stamp, window, self._trigger_context)
            self._react(result, window, out)
            self._register_cleanup(window, namespace)
        if skipped and self._element_is_late(timestamp):
            if self._spec.late_tag is None:
                self.dropped += 1
            else:
                out.extend(self.outlet.taking([(self._spec.late_tag, value)]))
                self.stamps.append(stamp)
        return out or None

    def _on_merge(self, merged: Any, members: list[Any], state_window: Any, others: list[Any]) -> None:
        context, encode = self._trigger_context, self._encode
        self._namespace.current = encode(merged)
        context.merged = [encode(m) for m in members if m != merged]
        self._trigger.on_merge(merged, context)
        for member in members:
            if member != merged:
                self._namespace.current = namespace = encode(member)
                self._trigger.clear(member, context)
                self._delete_cleanup(member, namespace)
        self._contents.merge(encode(state_window), [encode(other) for other in others])

    def _is_late(self, window: Any) -> bool:
        return self._event_time and self._cleanup_time(window) <= self._clock.watermark_ms

    def _element_is_late(self, timestamp: int | None) -> bool:
        latest = self._clock.watermark_ms - self._lateness_ms
        return self._event_time and timestamp is not None and timestamp <= latest

    # -- the end of windows

    def _cleanup_time(self, window: Any) -> int:
        end: int = window.max_timestamp()
        return min(MAX_WATERMARK, end + self._lateness_ms)

    def _register_cleanup(self, window: Any, namespace: bytes) -> None:
        time = self._cleanup_time(window)
        if time < MAX_WATERMARK:
            (self.timers.event if self._event_time else self.timers.processing).register(time, namespace)

    def _delete_cleanup(self, window: Any, namespace: bytes) -> None:
        time = self._cleanup_time(window)
        if time < MAX_WATERMARK:
            (self.timers.event if self._event_time else self.timers.processing).delete(time, namespace)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> list[Any] | None:
        assert isinstance(ctx, TimerContext)
        self._clock.watermark_ms = to_flink_ms(self._backend.watermark())
        namespace = ctx.namespace
        window = self._decode(namespace)
        if self._merging is None:
            state_window = window
        else:
            state_window = self._merging.state_window(window)
            if state_window is None:
                return None  # a timer of a window that has become part of another
        self._namespace.current = namespace
        self._contents_namespace.current = self._encode(state_window)
        event = ctx.time_domain() is TimeDomain.EVENT_TIME
        react = self._trigger.on_event_time if event else self._trigger.on_processing_time
        out: list[Any] = []
        self._react(react(timestamp, window, self._trigger_context), window, out)
        if event == self._event_time:
            if timestamp >= self._cleanup_time(window):
                self._remove(window)
            else:
                # The allowed lateness may be another than when the window began.
                self._register_cleanup(window, namespace)
        return out or None

    def _remove(self, window: Any) -> None:
        self._contents.clear()
        self._trigger.clear(window, self._trigger_context)
        if isinstance(self._spec.fn, ProcessWindowFunction):
            self._context.at = window
            self._spec.fn.clear(self._context)
            self._window_state.clear()
        if self._merging is not None:
            self._merging.retire(window)

    # -- results

    def _react(self, result: TriggerResult, window: Any, out: list[Any]) -> None:
        if not isinstance(result, TriggerResult):
            raise UserFunctionError(
                f"operator {self._info.operator.uid!r}: the trigger {type(self._trigger).__name__} returned {shorten(result)}; "
                "on_element(), on_event_time() and on_processing_time() have to return a TriggerResult"
            )
        fire, purge = result.value
        if fire:
            self._emit(window, out)
        if purge:
            self._contents.clear()

    def _emit(self, window: Any, out: list[Any]) -> None:
        contents = self._contents.get()
        if self._spec.contents == "list":
            if not contents:
                return
            if self._evictor is not None:
                self._emit_evicted(window, list(map(TimestampedValue._make, contents)), out)
                return
        elif contents is None:
            return
        else:
            contents = [contents]
        self._collect(window, contents, out)

    def _emit_evicted(self, window: Any, elements: list[TimestampedValue], out: list[Any]) -> None:
        assert self._evictor is not None
        context = self._evictor_context
        kept = self._kept(self._evictor.evict_before(elements, len(elements), window, context), "evict_before")
        results = self._combined([e.value for e in kept])
        if results is not None:
            self._collect(window, results, out)
        kept = self._kept(self._evictor.evict_after(kept, len(kept), window, context), "evict_after")
        if len(kept) < len(elements):
            self._contents.update(map(tuple, kept))

    def _kept(self, kept: Any, method: str) -> list[TimestampedValue]:
        if not isinstance(kept, Iterable):
            raise UserFunctionError(
                f"operator {self._info.operator.uid!r}: {type(self._evictor).__name__}.{method}() returned {shorten(kept)}; "
                "it has to return the elements that stay in the window"
            )
        return list(kept)

    def _combined(self, values: list[Any]) -> list[Any] | None:
        """What ``combine`` makes of all elements; None where a reduction has nothing to reduce."""
        combine = self._spec.combine
        if combine is None:
            return values
        if isinstance(combine, AggregateFunction):
            accumulator = combine.create_accumulator()
            for value in values:
                accumulator = combine.add(value, accumulator)
            return [combine.get_result(accumulator)]
        if not values:
            return None
        reduce = reduction(combine, self._info.operator.uid)
        result = values[0]
        for value in values[1:]:
            result = reduce(result, value)
        return [result]

    def _collect(self, window: Any, elements: Iterable[Any], out: list[Any]) -> None:
        self._context.at = window
        results = self._on_contents(window, elements)
        if results is not None:
            before = len(out)
            out.extend(self.outlet.taking(results))
            self.stamps.extend([min(window.max_timestamp(), MAX_WATERMARK)] * (len(out) - before))


class WindowOperator(TimestampedProcess):
    """Runs the windows of one operator on one subtask."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: WindowSpec) -> None:
        self._runner = WindowRunner(info, backend, spec)
        super().__init__(info, backend, self._runner, spec.window_type)
        self._runner.timers = self._timers
        self._runner.outlet = self._outlet

    def _emission(self) -> Emission:
        return Emission()  # the runner takes the results of a window as it gets them
