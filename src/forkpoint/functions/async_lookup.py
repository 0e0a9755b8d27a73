"""Functions that call external systems: PyFlink's AsyncFunction with retry strategies, and Flink's lookup functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Generic, NoReturn

from forkpoint.errors import ConfigError
from forkpoint.functions.base import Function, Subscripted
from forkpoint.functions.context import RuntimeContext
from forkpoint.functions.output_tag import Emitted
from forkpoint.functions.state.ttl import to_ms
from forkpoint.types import TypeInformation
from forkpoint.types.variables import IN, OUT, K, T, V

ResultPredicate = Callable[[list[Any]], bool]
ExceptionPredicate = Callable[[Exception], bool]


class AsyncFunction(Function, Generic[IN, OUT]):
    """Makes a request for each element, many concurrently. Run by ``AsyncDataStream``.

    All methods run on one event loop, which lives as long as the subtask, so a client created in ``open`` serves all
    epochs. ``open`` and ``close`` may also be ``async def``.
    """

    def open(self, runtime_context: RuntimeContext, /) -> Awaitable[None] | None:  # type: ignore[override]
        """Called once per subtask, before the first element, with the event loop running."""

    @abstractmethod
    async def async_invoke(self, value: IN, /) -> Emitted[OUT]:
        """Return the elements to emit, usually a list of one; None for none. ``(tag, x)`` goes to a side output.

        A task that is repeated after a failure repeats its requests, so make them idempotent.
        """

    def timeout(self, value: IN, /) -> Emitted[OUT]:
        """Return the elements to emit for a request that timed out. Raises TimeoutError unless overridden."""
        no_answer(value)

    def close(self) -> Awaitable[None] | None:  # type: ignore[override]
        """Called once per subtask at the end, also after a failure, with the event loop running."""


def no_answer(value: Any) -> NoReturn:
    """The default timeout handling: raise TimeoutError."""
    raise TimeoutError("no answer within the timeout; increase it, or override AsyncFunction.timeout(value) to emit a default")


class AsyncRetryPredicate(Subscripted, ABC, Generic[T]):
    """The outcomes that cause a retry. A predicate of None never matches."""

    @abstractmethod
    def result_predicate(self) -> ResultPredicate | None:
        """``f(results)``: whether to retry a request with this list of results."""

    @abstractmethod
    def exception_predicate(self) -> ExceptionPredicate | None:
        """``f(error)``: whether to retry a request that raised this exception."""


class AsyncRetryStrategy(Subscripted, ABC, Generic[T]):
    """Decides whether and when a request is retried. The operator's timeout covers all attempts and pauses.

    Attempts count from 1. After the last attempt, its results are emitted or its exception is raised.
    """

    @staticmethod
    def no_restart() -> AsyncRetryStrategy:
        """A NoRetryStrategy."""
        return NoRetryStrategy()

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: timedelta | int,
        result_predicate: ResultPredicate | None = None,
        exception_predicate: ExceptionPredicate | None = None,
    ) -> AsyncRetryStrategy:
        """A FixedDelayRetryStrategy."""
        return FixedDelayRetryStrategy(max_attempts, backoff_time_millis, result_predicate, exception_predicate)

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: timedelta | int,
        max_retry_delay: timedelta | int,
        multiplier: float,
        result_predicate: ResultPredicate | None = None,
        exception_predicate: ExceptionPredicate | None = None,
    ) -> AsyncRetryStrategy:
        """An ExponentialBackoffDelayRetryStrategy."""
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts, initial_delay, max_retry_delay, multiplier, result_predicate, exception_predicate
        )

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Whether another attempt may follow after ``current_attempts``."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """The pause after ``current_attempts``, in int ms."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate:
        """The outcomes that cause another attempt."""


class RetryPredicate(AsyncRetryPredicate):
    """An AsyncRetryPredicate from two functions."""

    def __init__(
        self, result_predicate: ResultPredicate | None = None, exception_predicate: ExceptionPredicate | None = None
    ) -> None:
        self._on_result = result_predicate
        self._on_exception = exception_predicate

    def result_predicate(self) -> ResultPredicate | None:
        return self._on_result

    def exception_predicate(self) -> ExceptionPredicate | None:
        return self._on_exception


class NoRetryStrategy(AsyncRetryStrategy):
    """Never retries a request."""

    def can_retry(self, current_attempts: int) -> bool:
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        return RetryPredicate()


class _AtMost(AsyncRetryStrategy):
    """Allows up to ``max_attempts`` retries after the first request, as in Flink."""

    def __init__(
        self, max_attempts: int, result_predicate: ResultPredicate | None, exception_predicate: ExceptionPredicate | None
    ) -> None:
        if max_attempts < 1:
            raise ConfigError(f"{type(self).__name__}(max_attempts={max_attempts}): it must be at least 1")
        self._max_attempts = max_attempts
        self._predicate = RetryPredicate(result_predicate, exception_predicate)

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self._max_attempts

    def get_retry_predicate(self) -> AsyncRetryPredicate:
        return self._predicate


class FixedDelayRetryStrategy(_AtMost):
    """Retries a request up to ``max_attempts`` times, with the same pause before each retry (timedelta or int ms).

    ``result_predicate(results)`` and ``exception_predicate(error)`` select the outcomes to retry; without either, there are no
    retries. ConfigError for numbers below 1.
    """

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: timedelta | int,
        result_predicate: ResultPredicate | None = None,
        exception_predicate: ExceptionPredicate | None = None,
    ) -> None:
        super().__init__(max_attempts, result_predicate, exception_predicate)
        self._backoff_ms = to_ms(backoff_time_millis, "the retry delay", minimum_ms=1)

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        return self._backoff_ms


class ExponentialBackoffDelayRetryStrategy(_AtMost):
    """Retries a request up to ``max_attempts`` times, after pauses that grow exponentially.

    The pauses grow by ``multiplier`` from ``initial_delay`` to ``max_retry_delay`` (timedelta or int ms). The predicates are
    as in FixedDelayRetryStrategy. ConfigError for delays or attempts below 1, ``max_retry_delay`` below ``initial_delay``,
    or a multiplier below 1.
    """

    def __init__(
        self,
        max_attempts: int,
        initial_delay: timedelta | int,
        max_retry_delay: timedelta | int,
        multiplier: float,
        result_predicate: ResultPredicate | None = None,
        exception_predicate: ExceptionPredicate | None = None,
    ) -> None:
        super().__init__(max_attempts, result_predicate, exception_predicate)
        self._initial_ms = to_ms(initial_delay, "the initial retry delay", minimum_ms=1)
        self._max_ms = to_ms(max_retry_delay, "the maximum retry delay", minimum_ms=self._initial_ms)
        if multiplier < 1:
            raise ConfigError(f"ExponentialBackoffDelayRetryStrategy(multiplier={multiplier}): it must be at least 1")
        self._multiplier = multiplier

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        pause_ms = self._initial_ms
        for _ in range(current_attempts - 1):
            if pause_ms >= self._max_ms:
                break
            pause_ms = int(pause_ms * self._multiplier)
        return min(pause_ms, self._max_ms)


def empty_result_predicate(result: list[Any]) -> bool:
    """A result predicate that matches an empty result."""
    return not result


def has_exception_predicate(error: Exception) -> bool:
    """An exception predicate that matches any exception."""
    return error is not None


def exception_type_predicate(error: Exception, expected_error_type: type[Exception]) -> bool:
    """Match exceptions of a type: ``partial(exception_type_predicate, expected_error_type=OSError)`` is a predicate."""
    return isinstance(error, expected_error_type)


class LookupFunction(Function, Generic[K, V]):
    """Looks up batches of keys in an external system. Run by ``lookup_join``.

    All methods run on one thread, which lives as long as the subtask. The exception: if a call exceeds the timeout,
    ``close`` is called from another thread while the call still runs.

    Raise SystemUnavailable, a ConnectionError or a TimeoutError while the system is unavailable: the call is retried, then
    the epoch is repeated. Any other exception fails the job.
    """

    max_batch_size: int = 1000
    """The maximum number of keys of one call."""

    def get_produced_type(self) -> TypeInformation[V] | None:
        """The type of the value of one key, which encodes cached values; None: the annotated type of ``lookup``."""
        return None

    @abstractmethod
    def lookup(self, keys: Sequence[K], /) -> Mapping[K, V]:
        """Return the values by key. A key without an entry, or with None, is missing.

        ``keys``: distinct, at most ``max_batch_size``.
        """


class AsyncLookupFunction(Function, Generic[K, V]):
    """Looks up keys in an external system with concurrent requests. Run by ``lookup_join``.

    All methods run on one event loop, which lives as long as the subtask. ``open`` and ``close`` may also be ``async def``.
    Errors are as in LookupFunction.
    """

    max_batch_size: int = 1
    """The maximum number of keys of one call."""
    capacity: int = 100
    """The maximum number of calls that a subtask has in flight."""

    def get_produced_type(self) -> TypeInformation[V] | None:
        """The type of the value of one key, which encodes cached values; None: the annotated type of ``async_lookup``."""
        return None

    def open(self, runtime_context: RuntimeContext, /) -> Awaitable[None] | None:  # type: ignore[override]
        """Called once per subtask, before the first element, with the event loop running."""

    @abstractmethod
    async def async_lookup(self, keys: Sequence[K], /) -> Mapping[K, V]:
        """Return the values by key. A key without an entry, or with None, is missing.

        ``keys``: distinct, at most ``max_batch_size``.
        """

    def close(self) -> Awaitable[None] | None:  # type: ignore[override]
        """Called once per subtask at the end, also after a failure, with the event loop running."""
