"""Windowed streams: triggers, evictors, lateness, and the computations on windows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, overload

from forkpoint.api.streams.aggregates import aggregates_of
from forkpoint.api.streams.base import check_function, check_type, operator_name
from forkpoint.errors import GraphError
from forkpoint.functions import (
    AggregateFunction,
    Aggregator,
    AllWindowFunction,
    Count,
    Evictor,
    Function,
    MergingWindowAssigner,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    TimeWindow,
    Trigger,
    WindowAssigner,
    WindowBound,
    WindowFunction,
    WindowRows,
    declared_states,
    to_ms,
)
from forkpoint.functions.adapters import Fold, KeylessProcess, KeylessWindow, WithKey, user_function
from forkpoint.functions.base import no_class
from forkpoint.runtime.operators.rolling import Rolling, RollingKind
from forkpoint.runtime.windows.spec import Contents, WindowSpec
from forkpoint.types import TypeInformation, Types, infer_type, type_of
from forkpoint.types.variables import A, K, K_co, R, T_co, W, W_co

if TYPE_CHECKING:
    from forkpoint.api.streams.streams import DataStream, KeyedStream

OfWindow: TypeAlias = ProcessWindowFunction[A, R, K, W] | WindowFunction[A, R, K, W]
OfAllWindow: TypeAlias = ProcessAllWindowFunction[A, R, W] | AllWindowFunction[A, R, W]


class WindowSettings(Generic[T_co, W_co]):
    """The settings of all windowed streams. Setters modify the object and return it, for chaining."""

    _tagged = False

    def __init__(self, stream: KeyedStream[T_co, Any], assigner: WindowAssigner[T_co, W_co]) -> None:
        check_type(assigner, WindowAssigner, "window")
        self._stream = stream
        self._value_type = stream._element_type
        self._assigner = assigner
        self._trigger: Trigger[T_co, W_co] | None = None
        self._evictor: Evictor[T_co, W_co] | None = None
        self._lateness_ms = 0
        self._late_tag: OutputTag | None = None

    def trigger(self, trigger: Trigger[T_co, W_co]) -> Self:
        """Replace the assigner's default trigger. GraphError for a trigger that cannot merge, on merging windows."""
        check_type(trigger, Trigger, "trigger")
        if isinstance(self._assigner, MergingWindowAssigner) and not trigger.can_merge():
            raise GraphError(
                f"trigger({trigger.describe()}): the windows of {self._assigner.describe()} merge, but this trigger cannot; "
                "use another, or implement can_merge() and on_merge()"
            )
        self._trigger = trigger
        return self

    def evictor(self, evictor: Evictor[T_co, W_co]) -> Self:
        """Remove elements when a window fires. All elements are then kept in state, even with reduce and aggregate."""
        check_type(evictor, Evictor, "evictor")
        self._evictor = evictor
        return self

    def allowed_lateness(self, time_ms: timedelta | int) -> Self:
        """Keep a window and accept late elements for this long after its end (timedelta or int ms, at least 0).

        By default each late element fires the window again. Has no effect on processing-time windows.
        """
        self._lateness_ms = to_ms(time_ms, "the allowed lateness")
        return self

    def side_output_late_data(self, output_tag: OutputTag[Any]) -> Self:
        """Send elements that are too late for all their windows to a side output instead of dropping them.

        ``get_side_output`` of the result stream reads them.
        """
        check_type(output_tag, OutputTag, "side_output_late_data")
        self._late_tag = output_tag
        return self

    def _add(
        self,
        name: str,
        contents: Contents,
        contents_type: TypeInformation,
        combine: Any,
        fn: Any,
        output_type: TypeInformation | None,
    ) -> DataStream[Any]:
        if isinstance(fn, Function):
            declared_states(fn)
        if self._evictor is not None:
            contents, contents_type = "list", Types.TUPLE([self._value_type, Types.LONG()])
        trigger = self._trigger or self._assigner.get_default_trigger(None)
        spec = WindowSpec(
            self._assigner,
            trigger,
            self._evictor,
            self._lateness_ms,
            self._late_tag,
            contents,
            contents_type,
            combine,
            fn,
            self._tagged,
        )
        return self._stream._operator(spec, name, output_type)


class _Windowed(WindowSettings[T_co, W_co]):
    """The computations of keyed and non-keyed windows."""

    def sum(self, position: int | str = 0) -> DataStream[T_co]:
        """Emit each window's first element with the field (name or index) replaced by the window's sum."""
        return self._rolled("sum", position)

    def min(self, position: int | str = 0) -> DataStream[T_co]:
        """Emit each window's first element with the field replaced by the window's minimum."""
        return self._rolled("min", position)

    def max(self, position: int | str = 0) -> DataStream[T_co]:
        """Emit each window's first element with the field replaced by the window's maximum."""
        return self._rolled("max", position)

    def min_by(self, position: int | str = 0) -> DataStream[T_co]:
        """Emit each window's element with the smallest field; the first among equals."""
        return self._rolled("min_by", position)

    def max_by(self, position: int | str = 0) -> DataStream[T_co]:
        """Emit each window's element with the largest field; the first among equals."""
        return self._rolled("max_by", position)

    def _rolled(self, kind: RollingKind, position: int | str) -> DataStream[Any]:
        self._stream._check_field(kind, position)
        combine = Rolling(kind, position, self._value_type)
        return self._add(f"window: {kind}({position})", "reducing", self._value_type, combine, None, self._stream.get_type())

    def _reduce(self, func: Any, fn: Any, output_type: Any) -> DataStream[Any]:
        check_function(func, ReduceFunction, "reduce", keyed=True)
        _check_stateless("reduce", func)
        found = self._stream.get_type() if fn is None else self._type_of_results(output_type, fn)
        return self._add(operator_name("window: reduce", func), "reducing", self._value_type, func, fn, found)

    def _aggregate(self, func: Any, fn: Any, accumulator_type: Any, output_type: Any) -> DataStream[Any]:
        check_type(func, AggregateFunction, "aggregate")
        _check_stateless("aggregate", func)
        if isinstance(func, Aggregator):
            elements = self._stream.get_type()
            accumulator_type = accumulator_type or func.accumulator_type(elements)
            output_type = func.result_type(elements) if output_type is None and fn is None else output_type
        accumulator = self._stream._output_type(accumulator_type, func, "create_accumulator") or Types.ANY()
        found = (
            self._stream._output_type(output_type, func, "get_result") if fn is None else self._type_of_results(output_type, fn)
        )
        return self._add(operator_name("window: aggregate", func), "aggregating", accumulator, func, fn, found)

    def _agg(self, named: Mapping[str, Aggregator[Any] | WindowBound], *, with_key: bool) -> DataStream[Any]:
        stream, elements = self._stream, self._stream.get_type()
        windows = self._assigner.window_type() == type_of(TimeWindow)
        aggregates, shape = aggregates_of(stream.key, named, elements, windows=windows, with_key=with_key)
        accumulator = aggregates.accumulator_type(elements)
        name = f"window: agg({', '.join(named)})"
        return self._add(name, "aggregating", accumulator, aggregates, WindowRows(shape), shape.type)

    def _type_of_results(self, explicit: Any, fn: Any) -> TypeInformation | None:
        function = user_function(fn)
        method = "apply" if isinstance(function, WindowFunction | AllWindowFunction) else "process"
        return self._stream._output_type(explicit, function, method, many=True)

    def _elements(self, operator: str, fn: Any, output_type: Any) -> DataStream[Any]:
        name, found = operator_name(f"window: {operator}", user_function(fn)), self._type_of_results(output_type, fn)
        return self._add(name, "list", self._value_type, None, fn, found)


class WindowedStream(_Windowed[T_co, W_co], Generic[T_co, K_co, W_co]):
    """A keyed stream in windows: ``keyed.window(TumblingEventTimeWindows.of(timedelta(minutes=1)))``.

    Results have the timestamp ``window.max_timestamp()``.
    """

    @overload
    def reduce(
        self,
        reduce_function: ReduceFunction[T_co] | Callable[[T_co, T_co], T_co],
        window_function: None = None,
        output_type: Any = None,
    ) -> DataStream[T_co]: ...
    @overload
    def reduce(
        self,
        reduce_function: ReduceFunction[T_co] | Callable[[T_co, T_co], T_co],
        window_function: OfWindow[T_co, R, K_co, W_co],
        output_type: Any = None,
    ) -> DataStream[R]: ...
    def reduce(self, reduce_function: Any, window_function: Any = None, output_type: Any = None) -> DataStream[Any]:
        """Reduce each window's elements incrementally; ``window_function`` gets the result as its only element."""
        return self._reduce(reduce_function, _window_function("reduce", window_function), output_type)

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T_co, Any, R],
        window_function: None = None,
        accumulator_type: Any = None,
        output_type: Any = None,
    ) -> DataStream[R]: ...
    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T_co, Any, A],
        window_function: OfWindow[A, R, K_co, W_co],
        accumulator_type: Any = None,
        output_type: Any = None,
    ) -> DataStream[R]: ...
    def aggregate(
        self, aggregate_function: Any, window_function: Any = None, accumulator_type: Any = None, output_type: Any = None
    ) -> DataStream[Any]:
        """Aggregate each window's elements incrementally; ``window_function`` gets the result as its only element.

        ``accumulator_type``: ``Types.*`` or a Python type; by default the return annotation of ``create_accumulator``,
        else ``Types.ANY()``.
        """
        fn = _window_function("aggregate", window_function)
        return self._aggregate(aggregate_function, fn, accumulator_type, output_type)

    def fold(self, initial_value: A, function: Callable[[A, T_co], A], output_type: Any = None) -> DataStream[A]:
        """Fold each window's elements with ``function(accumulator, element)``, starting from a copy of ``initial_value``.

        ``output_type``: the accumulator's type, by default inferred from ``initial_value``. GraphError for merging windows,
        because folded values cannot be merged; use ``aggregate``.
        """
        no_class(function, "fold()")
        if not callable(function):
            raise GraphError(f"fold() takes a function of the accumulator and an element, not {function!r}")
        if isinstance(self._assigner, MergingWindowAssigner):
            raise GraphError(
                f"fold(): the windows of {self._assigner.describe()} merge, but folded values cannot; use aggregate() with a "
                "function that has merge()"
            )
        type = infer_type([initial_value]) if output_type is None else type_of(output_type)
        return self._add("window: fold", "aggregating", type, Fold(initial_value, function), None, type)

    def apply(self, window_function: WindowFunction[T_co, R, K_co, W_co], output_type: Any = None) -> DataStream[R]:
        """Call ``window_function.apply(key, window, elements)`` for each window."""
        check_type(window_function, WindowFunction, "apply")
        return self._elements("apply", window_function, output_type)

    def process(
        self, process_window_function: ProcessWindowFunction[T_co, R, K_co, W_co], output_type: Any = None
    ) -> DataStream[R]:
        """Call ``process_window_function.process(key, context, elements)`` for each window."""
        check_type(process_window_function, ProcessWindowFunction, "process")
        return self._elements("process", process_window_function, output_type)

    def agg(self, **aggregates: Aggregator[Any] | WindowBound) -> DataStream[Any]:
        """Emit a row for each window: ``agg(window_start=fp.WindowStart(), total=fp.Sum("price"), n=fp.Count())``.

        A row has the key, in columns named after its fields (``key`` if it is computed), followed by the aggregates under
        the given names. Columnar input is aggregated column-wise in event-time windows with the default trigger and no
        evictor.
        """
        return self._agg(aggregates, with_key=True)

    def count(self) -> DataStream[tuple[K_co, int]]:
        """Emit ``(key, number of elements)`` for each window."""
        found = Types.TUPLE([self._stream.key.key_type, Types.LONG()])
        return self._add("window: count", "aggregating", Types.LONG(), Count(), WithKey(), found)


class AllWindowedStream(_Windowed[T_co, W_co]):
    """A non-keyed stream in windows. All elements go through one subtask."""

    @overload
    def reduce(
        self,
        reduce_function: ReduceFunction[T_co] | Callable[[T_co, T_co], T_co],
        window_function: None = None,
        output_type: Any = None,
    ) -> DataStream[T_co]: ...
    @overload
    def reduce(
        self,
        reduce_function: ReduceFunction[T_co] | Callable[[T_co, T_co], T_co],
        window_function: OfAllWindow[T_co, R, W_co],
        output_type: Any = None,
    ) -> DataStream[R]: ...
    def reduce(self, reduce_function: Any, window_function: Any = None, output_type: Any = None) -> DataStream[Any]:
        """Reduce each window's elements; ``window_function`` gets the result as its only element."""
        return self._reduce(reduce_function, _keyless("reduce", window_function), output_type)

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T_co, Any, R],
        window_function: None = None,
        accumulator_type: Any = None,
        output_type: Any = None,
    ) -> DataStream[R]: ...
    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T_co, Any, A],
        window_function: OfAllWindow[A, R, W_co],
        accumulator_type: Any = None,
        output_type: Any = None,
    ) -> DataStream[R]: ...
    def aggregate(
        self, aggregate_function: Any, window_function: Any = None, accumulator_type: Any = None, output_type: Any = None
    ) -> DataStream[Any]:
        """Aggregate each window's elements; ``window_function`` gets the result as its only element."""
        fn = _keyless("aggregate", window_function)
        return self._aggregate(aggregate_function, fn, accumulator_type, output_type)

    def apply(self, window_function: AllWindowFunction[T_co, R, W_co], output_type: Any = None) -> DataStream[R]:
        """Call ``window_function.apply(window, elements)`` for each window."""
        check_type(window_function, AllWindowFunction, "apply")
        return self._elements("apply", KeylessWindow(window_function), output_type)

    def process(self, process_window_function: ProcessAllWindowFunction[T_co, R, W_co], output_type: Any = None) -> DataStream[R]:
        """Call ``process_window_function.process(context, elements)`` for each window."""
        check_type(process_window_function, ProcessAllWindowFunction, "process")
        return self._elements("process", KeylessProcess(process_window_function), output_type)

    def agg(self, **aggregates: Aggregator[Any] | WindowBound) -> DataStream[Any]:
        """Emit a row for each window: ``agg(window_start=fp.WindowStart(), total=fp.Sum("price"), n=fp.Count())``."""
        return self._agg(aggregates, with_key=False)

    def count(self) -> DataStream[int]:
        """Emit the number of elements of each window."""
        return self._add("window: count", "aggregating", Types.LONG(), Count(), None, Types.LONG())


def _window_function(operator: str, fn: Any) -> Any:
    if fn is not None and not isinstance(fn, ProcessWindowFunction | WindowFunction):
        raise GraphError(f"{operator}(): the window function is a ProcessWindowFunction or a WindowFunction, not {fn!r}")
    return fn


def _keyless(operator: str, fn: Any) -> Any:
    match fn:
        case None:
            return None
        case ProcessAllWindowFunction():
            return KeylessProcess(fn)
        case AllWindowFunction():
            return KeylessWindow(fn)
    raise GraphError(f"{operator}(): the window function is a ProcessAllWindowFunction or an AllWindowFunction, not {fn!r}")


def _check_stateless(operator: str, func: Any) -> None:
    if isinstance(func, Function) and declared_states(func):
        raise GraphError(
            f"{operator}({type(func).__name__}): the function of a window aggregation cannot declare state; use a "
            "ProcessWindowFunction"
        )
