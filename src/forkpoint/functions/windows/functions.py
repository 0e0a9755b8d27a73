"""Window functions and evictors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Generic, NamedTuple, TypeAlias

from forkpoint.errors import ConfigError
from forkpoint.functions.base import Function, Subscripted, no_class
from forkpoint.functions.context import RuntimeContext
from forkpoint.functions.output_tag import Emitted
from forkpoint.functions.state.ttl import to_ms
from forkpoint.functions.watermarks import MIN_WATERMARK
from forkpoint.types.variables import IN, OUT, K_contra, T_contra, W_co, W_contra


class ProcessWindowFunction(Function, Generic[IN, OUT, K_contra, W_contra]):
    """Computes a window's results from all its elements, or from the one result of ``reduce`` or ``aggregate``.

    States declared as descriptors on the class belong to the key, like those of ``context.global_state()``.
    """

    class Context(Subscripted, ABC, Generic[W_co]):
        """The current window, clocks and state."""

        @abstractmethod
        def window(self) -> W_co:
            """The window."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """The wall clock in int milliseconds, read once per epoch."""

        @abstractmethod
        def current_watermark(self) -> int:
            """The watermark in int milliseconds; MIN_WATERMARK before the first."""

        @abstractmethod
        def window_state(self) -> RuntimeContext:
            """States of this key and window (``get_state(descriptor)`` and so on), removed with the window.

            UserFunctionError for windows that merge, and for map states.
            """

        @abstractmethod
        def global_state(self) -> RuntimeContext:
            """States of this key, shared by all its windows."""

    @abstractmethod
    def process(self, key: K_contra, context: ProcessWindowFunction.Context[W_contra], elements: Iterable[IN], /) -> Emitted[OUT]:
        """Return or yield the results: ``yield x``, or ``yield tag, x`` to a side output.

        Called each time the window fires. The results' timestamp is ``window.max_timestamp()``.
        """

    def clear(self, context: ProcessWindowFunction.Context[W_contra], /) -> None:
        """Called when the window is removed. The runtime clears its ``window_state()`` afterwards."""


class WindowFunction(Function, Generic[IN, OUT, K_contra, W_contra]):
    """Computes a window's results from all its elements."""

    @abstractmethod
    def apply(self, key: K_contra, window: W_contra, inputs: Iterable[IN], /) -> Emitted[OUT]:
        """Return or yield the results. Called each time the window fires."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W_contra]):
    """ProcessWindowFunction for a stream without keys."""

    Context = ProcessWindowFunction.Context[W_co]

    @abstractmethod
    def process(self, context: ProcessWindowFunction.Context[W_contra], elements: Iterable[IN], /) -> Emitted[OUT]:
        """Return or yield the results. Called each time the window fires."""

    def clear(self, context: ProcessWindowFunction.Context[W_contra], /) -> None:
        """Called when the window is removed."""


class AllWindowFunction(Function, Generic[IN, OUT, W_contra]):
    """WindowFunction for a stream without keys."""

    @abstractmethod
    def apply(self, window: W_contra, inputs: Iterable[IN], /) -> Emitted[OUT]:
        """Return or yield the results. Called each time the window fires."""


class TimestampedValue(NamedTuple):
    """An element of a window, for evictors. ``timestamp``: int ms, MIN_WATERMARK without a timestamp."""

    value: Any
    timestamp: int

    def has_timestamp(self) -> bool:
        """Whether the element has a timestamp."""
        return self.timestamp != MIN_WATERMARK


Elements: TypeAlias = Sequence[TimestampedValue]


class EvictorContext(ABC):
    """The clocks for evictors."""

    @abstractmethod
    def get_current_processing_time(self) -> int:
        """The wall clock in int milliseconds, read once per epoch."""

    @abstractmethod
    def get_current_watermark(self) -> int:
        """The watermark in int milliseconds; MIN_WATERMARK before the first."""


class Evictor(ABC, Generic[T_contra, W_contra]):
    """Removes elements from a window when it fires. Windows with an evictor keep all their elements in state."""

    @abstractmethod
    def evict_before(self, elements: Elements, size: int, window: Any, ctx: EvictorContext) -> Elements:
        """Return the elements to keep, before the results are computed. ``size``: the number of elements."""

    @abstractmethod
    def evict_after(self, elements: Elements, size: int, window: Any, ctx: EvictorContext) -> Elements:
        """Return the elements to keep, after the results are computed. ``size``: the number of elements."""

    def describe(self) -> str:
        """The evictor as text. State saved with another description is not restored."""
        return type(self).__qualname__


class _Evictor(Evictor):
    """Evicts by one rule, before or after the results are computed."""

    def __init__(self, *, after: bool) -> None:
        self._after = after

    @abstractmethod
    def _keep(self, elements: Elements) -> Elements:
        """Return the elements to keep."""

    def evict_before(self, elements: Elements, size: int, window: Any, ctx: EvictorContext) -> Elements:
        return elements if self._after else self._keep(elements)

    def evict_after(self, elements: Elements, size: int, window: Any, ctx: EvictorContext) -> Elements:
        return self._keep(elements) if self._after else elements


class CountEvictor(_Evictor):
    """Keeps the last ``max_count`` elements."""

    def __init__(self, max_count: int, *, after: bool) -> None:
        super().__init__(after=after)
        if not isinstance(max_count, int) or isinstance(max_count, bool) or max_count < 0:
            raise ConfigError(f"CountEvictor: the number of elements is {max_count!r}; give an int of at least 0")
        self._count = max_count

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        """Keep the last ``max_count`` elements. ``do_evict_after``: evict after the results are computed, not before."""
        return CountEvictor(max_count, after=do_evict_after)

    def _keep(self, elements: Elements) -> Elements:
        return elements[max(0, len(elements) - self._count) :]

    def describe(self) -> str:
        return f"CountEvictor({self._count}, after={self._after})"


class TimeEvictor(_Evictor):
    """Keeps the elements less than ``window_size`` older than the newest."""

    def __init__(self, window_size: timedelta | int, *, after: bool) -> None:
        super().__init__(after=after)
        self._size_ms = to_ms(window_size, "the size of TimeEvictor")

    @staticmethod
    def of(window_size: timedelta | int, do_evict_after: bool = False) -> TimeEvictor:
        """``window_size``: a timedelta, or int ms. ``do_evict_after``: evict after the results are computed, not before."""
        return TimeEvictor(window_size, after=do_evict_after)

    def _keep(self, elements: Elements) -> Elements:
        if not elements or not elements[0].has_timestamp():
            return elements
        cutoff = max(e.timestamp for e in elements) - self._size_ms
        return [e for e in elements if e.timestamp > cutoff]

    def describe(self) -> str:
        return f"TimeEvictor({self._size_ms} ms, after={self._after})"


class DeltaEvictor(_Evictor):
    """Keeps the elements that differ from the last by less than a threshold."""

    def __init__(self, threshold: float, delta_function: Callable[[Any, Any], float], *, after: bool) -> None:
        super().__init__(after=after)
        no_class(delta_function, "DeltaEvictor.of()")
        if not callable(delta_function):
            raise ConfigError(f"DeltaEvictor.of takes a callable f(element, newest), not {delta_function!r}")
        self._threshold = threshold
        self._delta = delta_function

    @staticmethod
    def of(threshold: float, delta_function: Callable[[Any, Any], float], do_evict_after: bool = False) -> DeltaEvictor:
        """Keep elements with ``delta_function(element, last) < threshold``. ``do_evict_after``: evict after the results."""
        return DeltaEvictor(threshold, delta_function, after=do_evict_after)

    def _keep(self, elements: Elements) -> Elements:
        if not elements:
            return elements
        newest = elements[-1].value
        return [e for e in elements if self._delta(e.value, newest) < self._threshold]

    def describe(self) -> str:
        return f"DeltaEvictor({self._threshold}, after={self._after})"
