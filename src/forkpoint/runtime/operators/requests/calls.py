"""Runs requests to external systems on an event loop: limits concurrency, enforces a timeout, retries by a strategy.

asyncio reports every cancellation of a task with the same exception, CancelledError: by the timeout, by a failure elsewhere in
the epoch, or by the request's own code. A task group treats all three as a regular end. So each request runs in a separate
task, which only this module cancels; a CancelledError with another cause is an error of the request.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from forkpoint.errors import ForkpointError
from forkpoint.functions import AsyncRetryStrategy
from forkpoint.runtime.operators.base import NOT_USERS

if TYPE_CHECKING:
    import tenacity

T = TypeVar("T")
R = TypeVar("R")
_LAST_SECONDS = 1
"""The time for tasks to end after their cancellation with the loop."""


class RequestCancelled(Exception):
    """A request raised CancelledError itself."""

    def __init__(self) -> None:
        super().__init__("CancelledError: the request was cancelled by its own code, not by a timeout of the operator")


class RequestExpired(Exception):
    """A request had no result within its timeout."""


class LoopThread:
    """An event loop that keeps running between epochs, so that clients keep their connections and background tasks."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, and cancel it if the caller is interrupted."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and its tasks: background tasks, and requests that continued after their cancellation."""
        cancellation = asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop)
        with suppress(TimeoutError):
            cancellation.result(_LAST_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def call_either(method: Callable[..., Any], *args: Any) -> None:
    """Call a method that may be ``async def``."""
    result = method(*args)
    if inspect.isawaitable(result):
        await result


async def run_all(
    work: Callable[[T], Awaitable[R]], items: Sequence[T], capacity: int, failed: Callable[[T, BaseException], Exception]
) -> list[R]:
    """The results of all items, with at most ``capacity`` items at a time. The first failure cancels the other items and is
    raised as ``failed(item, error)``."""
    results: list[Any] = [None] * len(items)
    queue = iter(enumerate(items))  # shared by the workers

    async def take() -> None:
        for index, item in queue:
            try:
                results[index] = await own_cancellation(work(item))
            except (*NOT_USERS, asyncio.CancelledError):
                raise
            except BaseException as error:
                raise failed(item, error) from error

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(capacity, len(items))):
                group.create_task(take())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from errors.exceptions[0].__cause__
    return results


async def within(request: Awaitable[T], timeout_seconds: float) -> T:
    """The request's result. After the timeout, the request is cancelled without waiting for its end.

    Raises:
        RequestExpired: the request had no result in time.
        RequestCancelled: the request's own code cancelled it.
    """
    task = asyncio.ensure_future(_outcome(request))
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_seconds)
    except BaseException:
        task.cancel()
        raise
    if not done:
        task.cancel()
        raise RequestExpired
    if task.cancelled():
        raise RequestCancelled
    result, error = task.result()
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


async def _outcome(request: Awaitable[T]) -> tuple[T | None, BaseException | None]:
    """A request's result and error as values, because a SystemExit that leaves a task ends its loop."""
    try:
        return await request, None
    except (*NOT_USERS, asyncio.CancelledError):
        raise
    except BaseException as error:
        return None, error


async def own_cancellation(request: Awaitable[T]) -> T:
    """The result of user code within a request. A CancelledError that it raises itself becomes RequestCancelled."""
    try:
        return await request
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        assert task is not None
        if task.cancelling():
            raise
        raise RequestCancelled().with_traceback(error.__traceback__) from error


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def retried(
    call: Callable[[T], Awaitable[R]],
    strategy: AsyncRetryStrategy,
    *,
    always: tuple[type[Exception], ...] = (),
    results_of: Callable[[R], Any] = lambda result: result,
) -> Callable[[T], Awaitable[R]]:
    """The call with retries by the strategy; the last outcome counts. ``always``: errors to retry whatever the strategy's
    predicates return. ``results_of(result)``: the argument of the result predicate."""
    import tenacity  # only needed for retries

    predicate = strategy.get_retry_predicate()
    on_result, on_exception = predicate.result_predicate(), predicate.exception_predicate()

    def should_retry(state: tenacity.RetryCallState) -> bool:
        assert state.outcome is not None
        error = state.outcome.exception()
        if error is None:
            return on_result is not None and on_result(results_of(state.outcome.result()))
        if isinstance(error, always):
            return True
        from_user = isinstance(error, Exception) and not isinstance(error, ForkpointError)
        return from_user and on_exception is not None and on_exception(error)  # type: ignore[arg-type]

    def last_outcome(state: tenacity.RetryCallState) -> Any:
        assert state.outcome is not None
        return state.outcome.result()

    retrying = tenacity.AsyncRetrying(
        retry=should_retry,
        stop=lambda state: not strategy.can_retry(state.attempt_number),
        wait=lambda state: strategy.get_backoff_time_millis(state.attempt_number) / 1000,
        retry_error_callback=last_outcome,
    )
    return lambda value: retrying.copy()(call, value)
