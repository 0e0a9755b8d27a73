"""Lookup functions that count what they are asked, and jobs that use them."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import forkpoint as fp

NO_WATERMARKS = fp.WatermarkStrategy.no_watermarks()
ASKED: list[list[Any]] = []  # the batches of this test
TABLE: dict[str, int] = {}  # what the system has


class Order(NamedTuple):
    customer: str
    amount: int


def begin(table: Mapping[str, int]) -> None:
    ASKED.clear()
    TABLE.clear()
    TABLE.update(table)


def ages(keys: Sequence[str]) -> dict[str, int]:
    ASKED.append(list(keys))
    return {key: TABLE[key] for key in keys if key in TABLE}


def asked() -> list[str]:
    return [key for batch in ASKED for key in batch]


class Profiles(fp.AsyncLookupFunction[str, dict[str, Any]]):
    """The most calls that were in flight at a time are in ``MOST``."""

    def __init__(self, capacity: int = 100, max_batch_size: int = 1) -> None:
        self.capacity, self.max_batch_size = capacity, max_batch_size
        self.in_flight = 0

    async def open(self, runtime_context: fp.RuntimeContext) -> None:  # type: ignore[override]
        EVENTS.append("open")

    async def async_lookup(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        ASKED.append(list(keys))
        self.in_flight += 1
        MOST[0] = max(MOST[0], self.in_flight)
        await asyncio.sleep(0.01)
        self.in_flight -= 1
        return {key: {"age": TABLE[key], "tags": ["x"]} for key in keys if key in TABLE}

    async def close(self) -> None:  # type: ignore[override]
        EVENTS.append("close")


MOST = [0]
EVENTS: list[str] = []
THREADS: set[int] = set()


class OfSqlite(fp.LookupFunction[str, int]):
    """A connection of the standard library, which may only be used on the thread that made it."""

    max_batch_size = 2

    def open(self, runtime_context: fp.RuntimeContext) -> None:
        self.connection = sqlite3.connect(":memory:")
        self.connection.execute("CREATE TABLE ages (name TEXT, age INTEGER)")
        self.connection.executemany("INSERT INTO ages VALUES (?, ?)", TABLE.items())

    def lookup(self, keys: Sequence[str]) -> dict[str, int]:
        THREADS.add(threading.get_ident())
        ASKED.append(list(keys))
        marks = ", ".join("?" * len(keys))
        return dict(self.connection.execute(f"SELECT name, age FROM ages WHERE name IN ({marks})", list(keys)))

    def close(self) -> None:
        self.connection.close()


class Hanging(fp.LookupFunction[str, int]):
    """Hangs until it is closed."""

    def open(self, runtime_context: fp.RuntimeContext) -> None:
        self.released = threading.Event()

    def lookup(self, keys: Sequence[str]) -> dict[str, int]:
        ASKED.append(list(keys))
        self.released.wait()
        EVENTS.append("released")
        return {}

    def close(self) -> None:
        self.released.set()


def failing(times: int, error: Exception) -> Callable[[Sequence[str]], dict[str, int]]:
    """Raises the error so many times."""
    return _Failing(times, error)


class _Failing:
    def __init__(self, times: int, error: Exception) -> None:
        self.times, self.error = times, error

    def __call__(self, keys: Sequence[str]) -> dict[str, int]:
        ASKED.append(list(keys))
        if len(ASKED) <= self.times:
            raise self.error
        return {key: TABLE[key] for key in keys if key in TABLE}


def joining(
    lookup: Any, *args: Any, ahead: Callable[[Any], Any] = lambda s: s, strategy: Any = NO_WATERMARKS, **options: Any
) -> Any:
    """A job for `run_local`: its elements are orders."""
    options.setdefault("key", "customer")

    def build(env: Any, source: Any) -> Any:
        orders = ahead(env.from_source(source, strategy, "orders", type_info=Order).uid("orders"))
        return orders.lookup_join(lookup, *args, **options).uid("joined")

    return build


def settle(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.005)
