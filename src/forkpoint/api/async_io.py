"""AsyncDataStream: streams whose elements are looked up, enriched or sent elsewhere, many at a time."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, TypeAlias

from forkpoint.api.base import check_function, operator_name
from forkpoint.api.signatures import output_type as type_of_output
from forkpoint.api.streams import DataStream
from forkpoint.errors import ConfigError, GraphError
from forkpoint.functions import AsyncFunction, AsyncRetryStrategy, to_ms
from forkpoint.types.variables import IN, OUT, R, T

Asks: TypeAlias = AsyncFunction[IN, OUT] | Callable[[IN], Awaitable[Iterable[OUT] | None]]


class AsyncDataStream:
    """Flink's async I/O. A function is an AsyncFunction, or a plain ``async def`` from an element to a list of results.

    At most ``capacity`` requests of a subtask are in flight. ``timeout`` (timedelta, or int ms; at least 1 ms) is that of
    one element, over all its attempts; when it is over, the function's ``timeout(value)`` has its say, by default an
    error. Results stand where their element stood in every method: an epoch's results leave together, so order costs
    nothing here, and a slow request holds up no other. All requests of an epoch are answered within it.
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream[T], async_function: Asks[T, R], timeout: timedelta | int, capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream[R]:  # fmt: skip
        """Flink's ``unorderedWait``; the same as ``ordered_wait``."""
        return _wait(data_stream, async_function, timeout, None, capacity, output_type)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream[T], async_function: Asks[T, R], timeout: timedelta | int,
        async_retry_strategy: AsyncRetryStrategy, capacity: int = 100, output_type: Any = None,
    ) -> DataStream[R]:  # fmt: skip
        """Flink's ``unorderedWaitWithRetry``; the same as ``ordered_wait_with_retry``."""
        return _wait(data_stream, async_function, timeout, _strategy(async_retry_strategy), capacity, output_type)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream[T], async_function: Asks[T, R], timeout: timedelta | int, capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream[R]:  # fmt: skip
        """The results of the function for each element, in the elements' order."""
        return _wait(data_stream, async_function, timeout, None, capacity, output_type)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream[T], async_function: Asks[T, R], timeout: timedelta | int,
        async_retry_strategy: AsyncRetryStrategy, capacity: int = 100, output_type: Any = None,
    ) -> DataStream[R]:  # fmt: skip
        """``ordered_wait``, asking again where the strategy says so."""
        return _wait(data_stream, async_function, timeout, _strategy(async_retry_strategy), capacity, output_type)


def _wait(
    stream: DataStream[T], fn: Asks[T, R], timeout: timedelta | int, retry: AsyncRetryStrategy | None, capacity: int,
    output_type: Any,
) -> DataStream[R]:  # fmt: skip
    from forkpoint.runtime.operators.async_wait import AsyncSpec  # and with it asyncio

    if not isinstance(stream, DataStream):
        raise GraphError(f"AsyncDataStream takes a DataStream, not {stream!r}")
    check_function(fn, AsyncFunction, "async_wait", keyed=False)
    asks = fn.async_invoke if isinstance(fn, AsyncFunction) else fn
    if not (inspect.iscoroutinefunction(asks) or inspect.iscoroutinefunction(getattr(asks, "__call__", None))):  # noqa: B004
        raise GraphError(
            f"async_wait({fn!r}): declare it as 'async def'; a function that blocks can be called from one with "
            "'await asyncio.to_thread(…)'"
        )
    if capacity < 1:
        raise ConfigError(f"the capacity of async_wait({fn!r}) is {capacity}; it must be at least 1")
    spec = AsyncSpec(fn, to_ms(timeout, "the timeout of async_wait", minimum_ms=1), capacity, retry)
    found = type_of_output(output_type, fn, "async_invoke", many=True)
    return stream._operator(spec, operator_name("async_wait", fn), found)


def _strategy(strategy: Any) -> AsyncRetryStrategy:
    if not isinstance(strategy, AsyncRetryStrategy):
        raise GraphError(f"async_retry_strategy must be an AsyncRetryStrategy, not {strategy!r}")
    return strategy
