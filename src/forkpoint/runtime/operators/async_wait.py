"""AsyncFunction: many requests in flight within an epoch, each within a timeout, none lost, and none across the epoch's end.

asyncio says by one exception, CancelledError, that a task was cancelled, whoever did it: the timeout, a failure elsewhere in
the epoch, or the request's own code. A task group takes it for a regular end in all three cases. So each request runs in a
task of its own, which only this module cancels; a CancelledError that it did not cause is an error of the request.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from forkpoint.errors import ForkpointError, GraphError
from forkpoint.functions import AsyncFunction, AsyncRetryStrategy
from forkpoint.functions.async_lookup import no_answer
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.operators.base import NOT_USERS, Context, Epoch, Outputs, TaskInfo, shorten, user_error
from forkpoint.runtime.operators.emission import Outlet
from forkpoint.runtime.operators.instances import ManagedState, RunnableSpec

Invoke = Callable[[Any], Awaitable[list[Any]]]
T = TypeVar("T")
R = TypeVar("R")
_LAST_SECONDS = 1
"""How long tasks may take to end after they were cancelled with their loop."""


@dataclass(frozen=True)
class AsyncSpec(RunnableSpec):
    """An AsyncFunction, or a plain ``async def``; ``timeout_ms`` is for one element over all attempts."""

    kind = "async_wait"

    fn: Any
    timeout_ms: int
    capacity: int
    retry: AsyncRetryStrategy | None

    def instance(self, info: TaskInfo, state: ManagedState) -> AsyncWait:
        return AsyncWait(info, self)


class AsyncWait:
    """Runs one AsyncFunction. Results take the place of their elements, whatever order they complete in."""

    def __init__(self, info: TaskInfo, spec: AsyncSpec) -> None:
        self._uid = info.operator.uid
        self._type = info.operator.output_type
        self._outlet = Outlet(info.operator)
        self._timeout_seconds = spec.timeout_ms / 1000
        self._capacity = spec.capacity
        fn = spec.fn
        self._owner = fn if isinstance(fn, AsyncFunction) else None
        self._function: Callable[[Any], Awaitable[Any]] = fn if self._owner is None else self._owner.async_invoke
        self._invoke = self._invoke_once if spec.retry is None else _retried(self._invoke_once, spec.retry)
        self._timed_out = no_answer if self._owner is None else self._owner.timeout
        self._loop = LoopThread(f"forkpoint-async-{self._uid}-{info.subtask}")
        if self._owner is not None:
            try:
                self._loop.run(call_either(self._owner.open, Context(info, None)))
            except BaseException:
                self._loop.close()
                raise

    def close(self) -> None:
        try:
            if self._owner is not None:
                self._loop.run(call_either(self._owner.close))
        finally:
            self._loop.close()

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0]
        self._outlet.begin(epoch)
        if not batch.size:
            return Outputs(batch.with_values([], self._type))
        results = self._loop.run(run_all(self._answer, batch.values, self._capacity, self._failed))
        counts = np.fromiter(map(len, results), np.int64, batch.size)
        return self._outlet.outputs(batch.expand([r for each in results for r in each], counts, self._type))

    async def _answer(self, value: Any) -> list[Any]:
        try:
            return await within(self._taken(value), self._timeout_seconds)
        except RequestExpired:
            return list(self._outlet.taking(_as_list(self._uid, self._timed_out(value))))

    async def _taken(self, value: Any) -> list[Any]:
        """The results, taken before any other request goes on, which may change them."""
        return list(self._outlet.taking(await self._invoke(value)))

    def _failed(self, value: Any, error: BaseException) -> ForkpointError:
        return user_error(self._uid, error, value)

    async def _invoke_once(self, value: Any) -> list[Any]:
        return _as_list(self._uid, await own_cancellation(self._function(value)))


def _as_list(uid: str, results: Any) -> list[Any]:
    if results is None:
        return []
    if isinstance(results, tuple | str | bytes | Mapping) or not hasattr(results, "__iter__"):
        raise GraphError(
            f"operator {uid!r}: async_invoke() or timeout() returned {shorten(results)}. The result of AsyncFunction should be "
            "of list type; return a list"
        )
    return list(results)


def _retried(invoke: Invoke, strategy: AsyncRetryStrategy) -> Invoke:
    import tenacity  # only needed for retries

    predicate = strategy.get_retry_predicate()
    on_result, on_exception = predicate.result_predicate(), predicate.exception_predicate()

    def should_retry(state: tenacity.RetryCallState) -> bool:
        assert state.outcome is not None
        error = state.outcome.exception()
        if error is None:
            return on_result is not None and on_result(state.outcome.result())
        return (
            on_exception is not None
            and isinstance(error, Exception)
            and (not isinstance(error, ForkpointError) and on_exception(error))
        )

    def last_outcome(state: tenacity.RetryCallState) -> list[Any]:
        assert state.outcome is not None
        results: list[Any] = state.outcome.result()
        return results

    retrying = tenacity.AsyncRetrying(
        retry=should_retry,
        stop=lambda state: not strategy.can_retry(state.attempt_number),
        wait=lambda state: strategy.get_backoff_time_millis(state.attempt_number) / 1000,
        retry_error_callback=last_outcome,
    )

    async def invoke_with_retries(value: Any) -> list[Any]:
        return await retrying.copy()(invoke, value)

    return invoke_with_retries


class RequestCancelled(Exception):
    """A request ended with a CancelledError of its own."""

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
        """The coroutine's result; cancelled if the caller is interrupted."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and what still runs on it: background tasks, and requests that went on after their cancellation."""
        ending = asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop)
        with suppress(TimeoutError):
            ending.result(_LAST_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def call_either(method: Callable[..., Any], *args: Any) -> None:
    """Call a method that may be ``async def``."""
    done = method(*args)
    if inspect.isawaitable(done):
        await done


async def run_all(
    work: Callable[[T], Awaitable[R]], items: Sequence[T], capacity: int, failed: Callable[[T, BaseException], Exception]
) -> list[R]:
    """The result for each item, at most ``capacity`` at a time. The first failure cancels the others and is raised as
    ``failed`` describes it."""
    results: list[Any] = [None] * len(items)
    waiting = iter(enumerate(items))  # shared by the workers

    async def take() -> None:
        for index, item in waiting:
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
    """The request's result. Once its time has passed, it is cancelled and not waited for, whatever it does then.

    Raises:
        RequestExpired: there was none in time.
        RequestCancelled: its own code cancelled it.
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
    """What a request returned or raised, as a value: a SystemExit that leaves a task ends its loop."""
    try:
        return await request, None
    except (*NOT_USERS, asyncio.CancelledError):
        raise
    except BaseException as error:
        return None, error


async def own_cancellation(request: Awaitable[T]) -> T:
    """The result of user code within a request: a CancelledError that it raises by itself becomes RequestCancelled."""
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
