"""Runs lookup functions: batches keys, limits concurrency, retries while the external system is unavailable, enforces a timeout.

Functions with ``async def`` run on an event loop, other functions on a dedicated thread, so a hung call delays an epoch by at
most the timeout.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from forkpoint.errors import ConfigError, ForkpointError, GraphError, JobFailed, SystemUnavailable
from forkpoint.functions import AsyncLookupFunction, AsyncRetryStrategy, LookupFunction
from forkpoint.runtime.operators.base import NOT_USERS, Context, TaskInfo, shorten, user_failure
from forkpoint.runtime.operators.requests.calls import (
    LoopThread,
    RequestExpired,
    call_either,
    own_cancellation,
    retried,
    run_all,
    within,
)

Answer = Mapping[Any, Any]
_Outcome = tuple[Any, BaseException | None]
_UNAVAILABLE = (SystemUnavailable, ConnectionError, TimeoutError)
_TIMEOUT_REMEDY = "increase the timeout or lower max_batch_size"


class CallThread:
    """Runs the methods of one function sequentially on a thread. A thread that hangs in a call ends with the process."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self.busy = False

    def start(self, method: Callable[..., Any], *args: Any) -> Future[_Outcome]:
        """Call a method; the future returns its result and its error."""
        future: Future[_Outcome] = Future()
        self.busy = True
        self._calls.put((future, method, args))
        return future

    def call(self, method: Callable[..., Any], *args: Any) -> Any:
        return result_of(self.start(method, *args).result())

    def end(self) -> None:
        self._calls.put(None)
        if not self.busy:
            self._thread.join()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, method, args = call
            outcome: _Outcome
            try:
                outcome = method(*args), None
            except BaseException as error:
                outcome = None, error
            self.busy = False
            if future.set_running_or_notify_cancel():
                future.set_result(outcome)
            del call, future, method, args, outcome


def result_of(outcome: _Outcome) -> Any:
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


class LookupClient:
    """Calls one subtask's lookup function."""

    def __init__(
        self, info: TaskInfo, lookup: LookupFunction | AsyncLookupFunction, timeout_ms: int, retry: AsyncRetryStrategy
    ) -> None:
        self._uid = info.operator.uid
        self._lookup = lookup
        self._timeout_ms = timeout_ms
        self._call = retried(self._call_once, retry, always=_UNAVAILABLE, results_of=lambda answer: list(answer.values()))
        name = f"forkpoint-lookup-{self._uid}-{info.subtask}"
        self._loop = LoopThread(name)
        self._thread: CallThread | None = None
        try:
            if isinstance(lookup, AsyncLookupFunction):
                self._capacity, self._once = lookup.capacity, lookup.async_lookup
                self._loop.run(call_either(lookup.open, Context(info, None)))
            else:
                self._thread = CallThread(name)
                self._capacity, self._once = 1, self._on_thread
                self._thread.call(lookup.open, Context(info, None))
        except BaseException as error:
            self._end()
            if isinstance(error, NOT_USERS):
                raise
            raise self._failed(error, "open()") from error

    def look_up(self, keys: Sequence[Any]) -> list[Any]:
        """The values of the distinct keys, None for missing keys."""
        size, found = self._lookup.max_batch_size, [None] * len(keys)
        batches = [part[start : start + size] for part in _unequal(keys) for start in range(0, len(part), size)]
        requests = [[keys[i] for i in batch] for batch in batches]

        def failed(keys: Sequence[Any], error: BaseException) -> ForkpointError:
            return self._failed(error, f"the keys {shorten(list(keys))}")

        answers = self._loop.run(run_all(self._answer, requests, self._capacity, failed))
        for batch, answer in zip(batches, answers, strict=True):
            for index in batch:
                found[index] = _value_of(keys[index], answer)
        return found

    def close(self) -> None:
        try:
            if isinstance(self._lookup, AsyncLookupFunction):
                self._loop.run(call_either(self._lookup.close))
            elif self._thread is not None and not self._thread.busy:
                self._thread.call(self._lookup.close)
            else:
                with suppress(Exception):  # a call hangs and has been reported
                    self._lookup.close()
        finally:
            self._end()

    def _end(self) -> None:
        if self._thread is not None:
            self._thread.end()
        self._loop.close()

    async def _answer(self, keys: Sequence[Any]) -> Answer:
        try:
            return await within(self._call(keys), self._timeout_ms / 1000)
        except RequestExpired:
            raise SystemUnavailable(f"no answer within {self._timeout_ms} ms; {_TIMEOUT_REMEDY}") from None

    async def _call_once(self, keys: Sequence[Any]) -> Answer:
        answer: Any = await own_cancellation(self._once(keys))
        if not isinstance(answer, Mapping):
            raise GraphError(f"it returned {shorten(answer)}; return a dict of values by key")
        return answer

    async def _on_thread(self, keys: Sequence[Any]) -> Answer:
        assert self._thread is not None
        assert isinstance(self._lookup, LookupFunction)
        answer: Answer = result_of(await asyncio.wrap_future(self._thread.start(self._lookup.lookup, keys)))
        return answer

    def _failed(self, error: BaseException, subject: str) -> ForkpointError:
        """The error of a lookup, with its operator and ``subject``."""
        text = f"operator {self._uid!r}: the lookup of {subject} failed: "
        match error:
            case SystemUnavailable() | ConfigError() | JobFailed() | GraphError():
                return type(error)(f"{text}{error}")
            case ConnectionError() | TimeoutError():
                return SystemUnavailable(f"{text}{type(error).__name__}: {error}")
        return user_failure(self._uid, error, subject)


def _unequal(keys: Sequence[Any]) -> list[list[int]]:
    """The indices of the keys in lists of unequal keys, because a dict cannot hold both 1 and True."""
    if len(set(keys)) == len(keys):
        return [list(range(len(keys)))]
    lists: list[list[int]] = []
    seen: Counter[Any] = Counter()
    for index, key in enumerate(keys):
        turn, seen[key] = seen[key], seen[key] + 1
        if turn == len(lists):
            lists.append([])
        lists[turn].append(index)
    return lists


def _value_of(key: Any, answer: Answer) -> Any:
    found = answer.get(key)
    if found is None and key != key:  # NaN: the function may return another NaN object
        return next((value for other, value in answer.items() if other != other), None)
    return found
