"""The contexts of assigners, triggers, evictors and window functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forkpoint.errors import GraphError, UserFunctionError
from forkpoint.functions import (
    MIN_WATERMARK,
    EvictorContext,
    OnMergeContext,
    ProcessWindowFunction,
    StateDescriptor,
    WindowAssignerContext,
)
from forkpoint.runtime.event_time.timers import Timers
from forkpoint.runtime.operators.base import Context, TaskInfo
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.runtime.state.namespace import Namespace
from forkpoint.runtime.windows.merging_windows import MERGING_WINDOWS
from forkpoint.runtime.windows.spec import CONTENTS

ASSIGNER, TRIGGER, WINDOW = "assigner/", "trigger/", "window/"  # prefixes of state names


class AssignerContext(WindowAssignerContext):
    def __init__(self, info: TaskInfo, backend: KeyedBackend) -> None:
        self._backend = backend
        self._runtime = AssignerStateContext(info, backend)

    def get_current_processing_time(self) -> int:
        return self._backend.processing_time_ms

    def get_runtime_context(self) -> Context:
        return self._runtime


class KeyStateContext(Context):
    """Keyed state shared by all windows. It refuses the names of the operator's internal states."""

    _backend: KeyedBackend

    def _state(self, descriptor: Any) -> Any:
        check_name(self._info.operator.uid, self._backend.described(descriptor).name)
        return self._backend.get(descriptor)


class AssignerStateContext(KeyStateContext):
    """Keyed state of the assigner, under prefixed names."""

    def _state(self, descriptor: Any) -> Any:
        return self._backend.get(descriptor, prefix=ASSIGNER)


def check_name(uid: str, name: str) -> None:
    if name in (CONTENTS, MERGING_WINDOWS) or name.startswith((ASSIGNER, TRIGGER, WINDOW)):
        raise GraphError(
            f"operator {uid!r}: a state named {name!r} is reserved for the windows; give the function's state another name"
        )


class WindowStateContext(KeyStateContext):
    """State of the current key and window."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, namespace: Namespace, *, merging: bool) -> None:
        super().__init__(info, backend)
        self._namespace, self._merging = namespace, merging
        self._handles: dict[str, Any] = {}

    def _state(self, descriptor: Any) -> Any:
        if self._merging:
            raise UserFunctionError(
                f"operator {self._info.operator.uid!r}: window_state() is not available with windows that merge, whose "
                "states cannot be merged; use global_state()"
            )
        descriptor = self._backend.described(descriptor)
        handle = self._handles[descriptor.name] = self._backend.get(descriptor, self._namespace, WINDOW)
        return handle

    def clear(self) -> None:
        """Clear all states of the current window."""
        for handle in self._handles.values():
            handle.clear()


@dataclass(eq=False)
class Clock(EvictorContext):
    """Both clocks at the current element or timer, which is all that evictors see."""

    backend: KeyedBackend
    watermark_ms: int = MIN_WATERMARK

    def get_current_processing_time(self) -> int:
        return self.backend.processing_time_ms

    def get_current_watermark(self) -> int:
        return self.watermark_ms


class WindowTriggerContext(OnMergeContext):
    """The trigger's view of the current window."""

    def __init__(self, clock: Clock, namespace: Namespace) -> None:
        self._clock = clock
        self._namespace = namespace
        self.timers: Timers
        self.merged: list[bytes] = []

    def get_current_processing_time(self) -> int:
        return self._clock.get_current_processing_time()

    def get_current_watermark(self) -> int:
        return self._clock.get_current_watermark()

    def register_event_time_timer(self, time: int) -> None:
        self.timers.event.register(time, self._namespace.current)

    def register_processing_time_timer(self, time: int) -> None:
        self.timers.processing.register(time, self._namespace.current)

    def delete_event_time_timer(self, time: int) -> None:
        self.timers.event.delete(time, self._namespace.current)

    def delete_processing_time_timer(self, time: int) -> None:
        self.timers.processing.delete(time, self._namespace.current)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        return self._clock.backend.get(state_descriptor, self._namespace, TRIGGER)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        self.get_partitioned_state(state_descriptor).merge(self._namespace.current, self.merged)


class WindowContext(ProcessWindowFunction.Context):
    """The window function's view of the current window."""

    def __init__(self, clock: Clock, window_state: Context, global_state: Context) -> None:
        self._clock = clock
        self._window_state, self._global_state = window_state, global_state
        self.at: Any = None

    def window(self) -> Any:
        return self.at

    def current_processing_time(self) -> int:
        return self._clock.get_current_processing_time()

    def current_watermark(self) -> int:
        return self._clock.get_current_watermark()

    def window_state(self) -> Context:
        return self._window_state

    def global_state(self) -> Context:
        return self._global_state
