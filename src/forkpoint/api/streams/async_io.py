"""AsyncDataStream: concurrent requests to external systems."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, TypeAlias

from forkpoint.api.streams.base import check_function, operator_name
from forkpoint.api.streams.streams import DataStream
from forkpoint.errors import ConfigError, GraphError
from forkpoint.functions import AsyncFunction, AsyncRetryStrategy, to_ms
from forkpoint.types.variables import IN, OUT, R, T

AsyncCallable: TypeAlias = AsyncFunction[IN, OUT] | Callable[[IN], Awaitable[Iterable[OUT] | None]]


class AsyncDataStream:
    """Flink's async I/O. Functions are AsyncFunctions or plain ``async def`` callables that return a list of results.

    Each subtask has at most ``capacity`` requests in flight. ``timeout`` (timedelta or int ms, at least 1 ms) covers all
    attempts for one element; when it expires, ``AsyncFunction.timeout(value)`` is called, which raises TimeoutError by
    default. All methods keep the order of the elements: an epoch's results are emitted together, so a slow request does
    not delay others. All requests of an epoch complete within it.
    """

    @staticmethod
    def ordered_wait(
        data_stream: DataStream[T],
        async_function: AsyncCallable[T, R],
        timeout: timedelta | int,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream[R]:
        """Emit the function's results for each element, in the order of the elements.

        ``unordered_wait`` (Flink's ``unorderedWait``) is the same.
        """
        return _wait(data_stream, async_function, timeout, None, capacity, output_type)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream[T],
        async_function: AsyncCallable[T, R],
        timeout: timedelta | int,
        async_retry_strategy: AsyncRetryStrategy,
        capacity: int = 100,
        output_type: Any = None,
    ) -> DataStream[R]:
        """Like ``ordered_wait``, but retries requests according to the strategy.

        ``unordered_wait_with_retry`` (Flink's ``unorderedWaitWithRetry``) is the same.
        """
        if not isinstance(async_retry_strategy, AsyncRetryStrategy):
            raise GraphError(f"async_retry_strategy must be an AsyncRetryStrategy, not {async_retry_strategy!r}")
        return _wait(data_stream, async_function, timeout, async_retry_strategy, capacity, output_type)

    unordered_wait = ordered_wait
    unordered_wait_with_retry = ordered_wait_with_retry


def _wait(
    stream: DataStream[T],
    fn: AsyncCallable[T, R],
    timeout: timedelta | int,
    retry: AsyncRetryStrategy | None,
    capacity: int,
    output_type: Any,
) -> DataStream[R]:
    from forkpoint.runtime.operators.requests.async_wait import AsyncSpec  # imports asyncio

    if not isinstance(stream, DataStream):
        raise GraphError(f"AsyncDataStream takes a DataStream, not {stream!r}")
    check_function(fn, AsyncFunction, "async_wait", keyed=False)
    invoke = fn.async_invoke if isinstance(fn, AsyncFunction) else fn
    if not (inspect.iscoroutinefunction(invoke) or inspect.iscoroutinefunction(getattr(invoke, "__call__", None))):  # noqa: B004
        raise GraphError(
            f"async_wait({fn!r}): declare it as 'async def'; call blocking functions with 'await asyncio.to_thread(…)'"
        )
    if capacity < 1:
        raise ConfigError(f"the capacity of async_wait({fn!r}) is {capacity}; it must be at least 1")
    spec = AsyncSpec(fn, to_ms(timeout, "the timeout of async_wait", minimum_ms=1), capacity, retry)
    found = stream._output_type(output_type, fn, "async_invoke", many=True)
    return stream._operator(spec, operator_name("async_wait", fn), found)
