"""Windows element by element, key by key, as in Flink's WindowOperator.

Contents, trigger state and timers have the window as their namespace. A window and all its state are removed when the
watermark passes its last moment plus the allowed lateness (processing-time windows: when the wall clock passes its last
moment).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from forkpoint.errors import UserFunctionError
from forkpoint.functions import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    AggregateFunction,
    GlobalWindow,
    KeyedProcessFunction,
    MergingWindowAssigner,
    ProcessWindowFunction,
    ReduceFunction,
    StateDescriptor,
    TimeDomain,
    TriggerResult,
    declared_states,
)
from forkpoint.runtime.event_time.timers import Timers, to_flink_ms
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.operators.base import Epoch, Outputs, TaskInfo, shorten
from forkpoint.runtime.operators.keyed_process import ElementContext, Emission, TimerContext, TimestampedProcess
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.runtime.windows.contexts import AssignerContext, WindowTriggerContext, check_name
from forkpoint.runtime.windows.firing import WindowFiring
from forkpoint.runtime.windows.merging_windows import MergingWindows
from forkpoint.runtime.windows.spec import WindowSpec

_KNOWN_WINDOWS = 4096

Encode = Callable[[Any], bytes]


def window_encoder(spec: WindowSpec) -> tuple[Encode, Callable[[bytes], Any]]:
    """Encoder and decoder of windows as namespaces; the single window of GlobalWindows is the empty namespace."""
    type = spec.window_type
    if type is not None:
        return type.encode, type.decode
    only = GlobalWindow()

    def encode(window: Any) -> bytes:
        if window != only:
            raise UserFunctionError(
                f"{spec.assigner.describe()} assigned {window!r}, but its window_type() is None, which means "
                "GlobalWindow(); return the type of the windows from window_type()"
            )
        return b""

    return encode, lambda namespace: only


class ElementWindows(KeyedProcessFunction):
    """Handles each element and timer. ``stamps``: the timestamps of the epoch's outputs; ``dropped``: the number of its late
    elements without a side output."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: WindowSpec, firing: WindowFiring) -> None:
        self._info, self._backend, self._spec, self._firing = info, backend, spec, firing
        self._assigner, self._trigger, self._evictor = spec.assigner, spec.trigger, spec.evictor
        self._event_time = spec.assigner.is_event_time()
        self._lateness_ms = spec.lateness_ms if self._event_time else 0
        self._encoded, self._decode = window_encoder(spec)
        self._namespaces: dict[Any, bytes] = {}
        self._contents, self._clock = firing.contents, firing.clock
        self._contents_namespace, self._namespace = firing.contents_namespace, firing.namespace
        self._merging: MergingWindows | None = None
        if isinstance(spec.assigner, MergingWindowAssigner):
            assert spec.window_type is not None
            self._merging = MergingWindows(backend, spec.assigner, spec.window_type)
        self._assigner_context = AssignerContext(info, backend)
        self._trigger_context = WindowTriggerContext(firing.clock, self._namespace)
        self.stamps: list[int] = []
        self.dropped = 0

    def use(self, timers: Timers) -> None:
        self._trigger_context.timers = timers
        self._cleanup_timers = timers.event if self._event_time else timers.processing

    # -- the user's functions

    def declare_states(self) -> Mapping[str, StateDescriptor]:
        states = {} if self._spec.fn is None else declared_states(self._spec.fn)
        for descriptor in states.values():
            check_name(self._info.operator.uid, descriptor.name)
        return states

    def open(self, runtime_context: Any) -> None:
        fn, combine = self._spec.fn, self._spec.combine
        if fn is not None:
            own = vars(self)
            vars(fn).update({attribute: own[attribute] for attribute in self.declare_states()})
            fn.open(self._firing.context.global_state())
        if isinstance(combine, ReduceFunction | AggregateFunction):
            combine.open(runtime_context)

    def close(self) -> None:
        if self._spec.fn is not None:
            self._spec.fn.close()
        if isinstance(self._spec.combine, ReduceFunction | AggregateFunction):
            self._spec.combine.close()

    def _encode(self, window: Any) -> bytes:
        """The namespace of a window, cached because few windows recur for most elements."""
        namespace = self._namespaces.get(window)
        if namespace is None:
            if len(self._namespaces) >= _KNOWN_WINDOWS:
                self._namespaces.clear()
            namespace = self._namespaces[window] = self._encoded(window)
        return namespace

    # -- elements

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        assert isinstance(ctx, ElementContext)
        timestamp = ctx.timestamp()
        stamp = MIN_WATERMARK if timestamp is None else timestamp
        self._clock.watermark_ms = to_flink_ms(self._backend.watermark())
        windows = self._assigner.assign_windows(value, stamp, self._assigner_context)
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
            self._react(result, window)
            self._register_cleanup(window, namespace)
        if skipped and self._event_time and timestamp is not None and timestamp <= self._clock.watermark_ms - self._lateness_ms:
            if self._spec.late_tag is None:
                self.dropped += 1
            else:
                self._firing.emit([(self._spec.late_tag, value)], stamp)

    def _on_merge(self, merged: Any, members: list[Any], state_window: Any, others: list[Any]) -> None:
        context, encode = self._trigger_context, self._encode
        self._namespace.current = encode(merged)
        context.merged = [encode(m) for m in members if m != merged]
        self._trigger.on_merge(merged, context)
        for member in members:
            if member != merged:
                self._namespace.current = namespace = encode(member)
                self._trigger.clear(member, context)
                if (time := self._cleanup_time(member)) < MAX_WATERMARK:
                    self._cleanup_timers.delete(time, namespace)
        self._contents.merge(encode(state_window), [encode(other) for other in others])

    def _is_late(self, window: Any) -> bool:
        return self._event_time and self._cleanup_time(window) <= self._clock.watermark_ms

    # -- timers and expiry

    def _cleanup_time(self, window: Any) -> int:
        end: int = window.max_timestamp()
        return min(MAX_WATERMARK, end + self._lateness_ms)

    def _register_cleanup(self, window: Any, namespace: bytes) -> None:
        time = self._cleanup_time(window)
        if time < MAX_WATERMARK:
            self._cleanup_timers.register(time, namespace)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> None:
        assert isinstance(ctx, TimerContext)
        self._clock.watermark_ms = to_flink_ms(self._backend.watermark())
        namespace = ctx.namespace
        window = self._decode(namespace)
        state_window = window if self._merging is None else self._merging.state_window(window)
        if state_window is None:
            return  # a timer of a window that has been merged into another
        self._namespace.current = namespace
        self._contents_namespace.current = self._encode(state_window)
        event = ctx.time_domain() is TimeDomain.EVENT_TIME
        react = self._trigger.on_event_time if event else self._trigger.on_processing_time
        self._react(react(timestamp, window, self._trigger_context), window)
        if event == self._event_time:
            if timestamp >= self._cleanup_time(window):
                self._remove(window)
            else:
                # The allowed lateness may have changed since the creation of the window.
                self._register_cleanup(window, namespace)

    def _react(self, result: TriggerResult, window: Any) -> None:
        if not isinstance(result, TriggerResult):
            raise UserFunctionError(
                f"operator {self._info.operator.uid!r}: the trigger {type(self._trigger).__name__} returned {shorten(result)}; "
                "on_element(), on_event_time() and on_processing_time() must return a TriggerResult"
            )
        fire, purge = result.value
        if fire:
            self._firing.fire(window)
        if purge:
            self._contents.clear()

    def _remove(self, window: Any) -> None:
        self._contents.clear()
        self._trigger.clear(window, self._trigger_context)
        if isinstance(self._spec.fn, ProcessWindowFunction):
            self._firing.context.at = window
            self._spec.fn.clear(self._firing.context)
            self._firing.window_state.clear()
        if self._merging is not None:
            self._merging.retire(window)


class ElementKernel(TimestampedProcess):
    """Runs windows element by element, key by key."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: WindowSpec, firing: WindowFiring) -> None:
        self._windows, self._firing = ElementWindows(info, backend, spec, firing), firing
        super().__init__(info, backend, self._windows, spec.window_type)
        self._windows.use(self._timers)
        firing.collector = self._collector

    def run_keys(self, batch: Batch, epoch: Epoch, keys: frozenset[bytes] | None) -> Outputs:
        """Run an epoch. ``keys``: the encoded keys whose timers fire; None for all keys."""
        self._timers.event.only = keys
        try:
            return self.run([batch], epoch)
        finally:
            self._timers.event.only = None
            self._firing.collect_in([], [])

    def _emission(self) -> Emission:
        emission = Emission()
        self._firing.collect_in(emission.values, self._windows.stamps)
        return emission
