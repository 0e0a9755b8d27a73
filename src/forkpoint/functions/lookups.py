"""Lookup functions: what an external system has for keys. The names are those of Flink's lookup joins."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from typing import Generic

from forkpoint.functions.base import Function
from forkpoint.functions.context import RuntimeContext
from forkpoint.types import TypeInformation
from forkpoint.types.variables import K, V


class LookupFunction(Function, Generic[K, V]):
    """Asks an external system about many keys at once. Run by ``lookup_join``.

    All methods run on one thread, which lives as long as the subtask. Only if a call has not ended within the timeout,
    ``close`` is called from another one while it still runs.

    Raise SystemUnavailable, a ConnectionError or a TimeoutError if the system doesn't work at the moment: the call is
    repeated, and in the end the epoch. Any other exception is a failure of the job.
    """

    max_batch_size: int = 1000
    """How many keys one call gets at most."""

    def get_produced_type(self) -> TypeInformation[V] | None:
        """The type of what is found for one key, by which it is cached; None: that of the annotation of ``lookup``."""
        return None

    @abstractmethod
    def lookup(self, keys: Sequence[K], /) -> Mapping[K, V]:
        """Return what was found, by key. Keys that are left out, or have None, are missing.

        ``keys``: distinct, at most ``max_batch_size``.
        """


class AsyncLookupFunction(Function, Generic[K, V]):
    """Asks an external system with several requests at a time. Run by ``lookup_join``.

    All methods run on one event loop, which lives as long as the subtask. ``open`` and ``close`` may be ``async def``, too.
    Errors are as those of LookupFunction.
    """

    max_batch_size: int = 1
    """How many keys one call gets at most."""
    capacity: int = 100
    """How many calls a subtask has in flight at most."""

    def get_produced_type(self) -> TypeInformation[V] | None:
        """The type of what is found for one key, by which it is cached; None: that of the annotation of ``async_lookup``."""
        return None

    def open(self, runtime_context: RuntimeContext, /) -> Awaitable[None] | None:  # type: ignore[override]
        """Called once per subtask, before the first element, with the event loop running."""

    @abstractmethod
    async def async_lookup(self, keys: Sequence[K], /) -> Mapping[K, V]:
        """Return what was found, by key. Keys that are left out, or have None, are missing.

        ``keys``: distinct, at most ``max_batch_size``.
        """

    def close(self) -> Awaitable[None] | None:  # type: ignore[override]
        """Called once per subtask at the end, also after a failure, with the event loop running."""
