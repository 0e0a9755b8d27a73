"""Runs AsyncFunctions: concurrent requests with a timeout, which all complete within their epoch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from forkpoint.errors import GraphError
from forkpoint.functions import AsyncFunction, AsyncRetryStrategy
from forkpoint.functions.async_lookup import no_answer
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.operators.base import Context, Epoch, Outputs, TaskInfo, shorten, user_error
from forkpoint.runtime.operators.emission import Collector
from forkpoint.runtime.operators.instances import ManagedState, RunnableSpec
from forkpoint.runtime.operators.requests.calls import (
    LoopThread,
    RequestExpired,
    call_either,
    own_cancellation,
    retried,
    run_all,
    within,
)


@dataclass(frozen=True)
class AsyncSpec(RunnableSpec):
    """An AsyncFunction, or a plain ``async def``. ``timeout_ms`` covers all attempts for one element."""

    kind = "async_wait"

    fn: Any
    timeout_ms: int
    capacity: int
    retry: AsyncRetryStrategy | None

    def instance(self, info: TaskInfo, state: ManagedState) -> AsyncWait:
        return AsyncWait(info, self)


class AsyncWait:
    """Runs one AsyncFunction. Results are in the order of their elements, whatever the order of completion."""

    def __init__(self, info: TaskInfo, spec: AsyncSpec) -> None:
        self._uid = info.operator.uid
        self._type = info.operator.output_type
        self._collector = Collector(info.operator)
        self._timeout_seconds = spec.timeout_ms / 1000
        self._capacity = spec.capacity
        fn = spec.fn
        self._owner = fn if isinstance(fn, AsyncFunction) else None
        self._function: Callable[[Any], Awaitable[Any]] = fn if self._owner is None else self._owner.async_invoke
        self._invoke = self._invoke_once if spec.retry is None else retried(self._invoke_once, spec.retry)
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
        self._collector.begin(epoch)
        if not batch.size:
            return Outputs(batch.with_values([], self._type))
        results = self._loop.run(
            run_all(self._answer, batch.values, self._capacity, lambda value, error: user_error(self._uid, error, value))
        )
        counts = np.fromiter(map(len, results), np.int64, batch.size)
        return self._collector.outputs(batch.expand(list(chain.from_iterable(results)), counts, self._type))

    async def _answer(self, value: Any) -> list[Any]:
        try:
            return await within(self._taken(value), self._timeout_seconds)
        except RequestExpired:
            return list(self._collector.take_each(_as_list(self._uid, self._timed_out(value))))

    async def _taken(self, value: Any) -> list[Any]:
        """The results, taken before any other request continues, which may change them."""
        return list(self._collector.take_each(await self._invoke(value)))

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
