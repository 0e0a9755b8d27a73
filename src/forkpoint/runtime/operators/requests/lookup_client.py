"""Calls lookup functions: in batches of keys, several at a time, repeated while a system does not work, within a timeout.

Functions with ``async def`` run on an event loop, others on a thread of their own: a call that hangs holds up no epoch longer
than the timeout.
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
_TIMEOUT_REMEDY = "increase the timeout, or let a call have fewer keys (max_batch_size)"


class OwnThread:
    """Runs the methods of one function, one after the other. A thread that is stuck in one ends with the process."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self.busy = False

    def start(self, method: Callable[..., Any], *args: Any) -> Future[_Outcome]:
        """Call a method; gives what it returned and what it raised."""
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


class Asking:
    """Asks one subtask's lookup function."""

    def __init__(
        self, info: TaskInfo, lookup: LookupFunction | AsyncLookupFunction, timeout_ms: int, retry: AsyncRetryStrategy
    ) -> None:
        self._uid = info.operator.uid
        self._lookup = lookup
        self._timeout_ms = timeout_ms
        self._call = retried(self._call_once, retry, always=_UNAVAILABLE, judged=lambda answer: list(answer.values()))
        name = f"forkpoint-lookup-{self._uid}-{info.subtask}"
        self._loop = LoopThread(name)
        self._thread: OwnThread | None = None
        try:
            if isinstance(lookup, AsyncLookupFunction):
                self._capacity, self._once = lookup.capacity, lookup.async_lookup
                self._loop.run(call_either(lookup.open, Context(info, None)))
            else:
                self._thread = OwnThread(name)
                self._capacity, self._once = 1, self._on_thread
                self._thread.call(lookup.open, Context(info, None))
        except BaseException as error:
            self._end()
            if isinstance(error, NOT_USERS):
                raise
            raise self._failed(error, "open()") from error

    def ask(self, keys: Sequence[Any]) -> list[Any]:
        """What was found for each of the distinct keys, None for those that are missing."""
        size, found = self._lookup.max_batch_size, [None] * len(keys)
        batches = [some[start : start + size] for some in _unequal(keys) for start in range(0, len(some), size)]
        asked = [[keys[i] for i in batch] for batch in batches]
        answers = self._loop.run(run_all(self._answer, asked, self._capacity, self._failed_for))
        for batch, answer in zip(batches, answers, strict=True):
            for index in batch:
                found[index] = _answer_for(keys[index], answer)
        return found

    def close(self) -> None:
        try:
            if isinstance(self._lookup, AsyncLookupFunction):
                self._loop.run(call_either(self._lookup.close))
            elif self._thread is not None and not self._thread.busy:
                self._thread.call(self._lookup.close)
            else:
                with suppress(Exception):  # a call hangs, and has been reported
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
            raise GraphError(f"it returned {shorten(answer)}; return a dict of what was found, by key")
        return answer

    async def _on_thread(self, keys: Sequence[Any]) -> Answer:
        assert self._thread is not None
        assert isinstance(self._lookup, LookupFunction)
        answer: Answer = result_of(await asyncio.wrap_future(self._thread.start(self._lookup.lookup, keys)))
        return answer

    def _failed_for(self, keys: Sequence[Any], error: BaseException) -> ForkpointError:
        return self._failed(error, f"the keys {shorten(list(keys))}")

    def _failed(self, error: BaseException, what: str) -> ForkpointError:
        """The error of a lookup, with its operator and ``what`` it was about."""
        text = f"operator {self._uid!r}: the lookup of {what} failed: "
        match error:
            case SystemUnavailable() | ConfigError() | JobFailed() | GraphError():
                return type(error)(f"{text}{error}")
            case ConnectionError() | TimeoutError():
                return SystemUnavailable(f"{text}{type(error).__name__}: {error}")
        return user_failure(self._uid, error, what)


def _unequal(keys: Sequence[Any]) -> list[list[int]]:
    """The indices of the keys; those of one list can be keys of one dict, which takes 1 and True for the same."""
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


def _answer_for(key: Any, answer: Answer) -> Any:
    found = answer.get(key)
    if found is None and key != key:  # NaN, of which the function returned another object
        return next((each for other, each in answer.items() if other != other), None)
    return found
