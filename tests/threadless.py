"""A thread pool without threads, in place of ``ThreadPoolExecutor``."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class AtOnce(Executor):
    """Work is done on the thread that submits it: before the next epoch, and as a part of a schedule."""

    def __init__(self, *_: Any) -> None: ...

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **named))
        except Exception as error:
            future.set_exception(error)
        return future
