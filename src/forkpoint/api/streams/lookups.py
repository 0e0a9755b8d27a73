"""Lookup joins."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, get_origin, overload

from forkpoint.api.streams.base import FieldNames, KeyFunction, StreamBase, operator_name
from forkpoint.api.streams.joined import check_join
from forkpoint.api.streams.signatures import annotated_type, return_annotation
from forkpoint.errors import ConfigError, GraphError
from forkpoint.functions import (
    AsyncLookupFunction,
    AsyncRetryStrategy,
    ExponentialBackoffDelayRetryStrategy,
    FlatJoinFunction,
    JoinFunction,
    LookupFunction,
    to_ms,
)
from forkpoint.functions.base import no_class
from forkpoint.types import TypeInformation, Types
from forkpoint.types.kinds.containers import optional
from forkpoint.types.variables import K, R, T_co, V

if TYPE_CHECKING:
    from forkpoint.api.streams.streams import DataStream
    from forkpoint.runtime.operators.requests.lookup_join import OnMissing

Lookup: TypeAlias = (
    LookupFunction[K, V]
    | AsyncLookupFunction[K, V]
    | Callable[[Sequence[K]], Mapping[K, V]]
    | Callable[[Sequence[K]], Awaitable[Mapping[K, V]]]
)

_POLICIES = ("null", "drop", "fail")
_TIMEOUT = timedelta(seconds=30)


class LookupJoinMixin(StreamBase[T_co]):
    """Lookup joins."""

    @overload
    def lookup_join(
        self,
        lookup: Lookup[K, V],
        function: None = None,
        *,
        key: KeyFunction[T_co, K] | FieldNames | None = None,
        key_type: Any = None,
        on_missing: Literal["null"] = "null",
        cache_ttl: timedelta | int | None = None,
        cache_misses: bool = False,
        timeout: timedelta | int = _TIMEOUT,
        retry_strategy: AsyncRetryStrategy | None = None,
        output_type: Any = None,
    ) -> DataStream[tuple[T_co, V | None]]: ...
    @overload
    def lookup_join(
        self,
        lookup: Lookup[K, V],
        function: FlatJoinFunction[T_co, V | None, R] | Callable[[T_co, V | None], Iterator[R]],
        *,
        key: KeyFunction[T_co, K] | FieldNames | None = None,
        key_type: Any = None,
        on_missing: Literal["null"] = "null",
        cache_ttl: timedelta | int | None = None,
        cache_misses: bool = False,
        timeout: timedelta | int = _TIMEOUT,
        retry_strategy: AsyncRetryStrategy | None = None,
        output_type: Any = None,
    ) -> DataStream[R]: ...
    @overload
    def lookup_join(
        self,
        lookup: Lookup[K, V],
        function: JoinFunction[T_co, V | None, R] | Callable[[T_co, V | None], R],
        *,
        key: KeyFunction[T_co, K] | FieldNames | None = None,
        key_type: Any = None,
        on_missing: Literal["null"] = "null",
        cache_ttl: timedelta | int | None = None,
        cache_misses: bool = False,
        timeout: timedelta | int = _TIMEOUT,
        retry_strategy: AsyncRetryStrategy | None = None,
        output_type: Any = None,
    ) -> DataStream[R]: ...
    @overload
    def lookup_join(
        self,
        lookup: Lookup[K, V],
        function: None = None,
        *,
        key: KeyFunction[T_co, K] | FieldNames | None = None,
        key_type: Any = None,
        on_missing: Literal["drop", "fail"],
        cache_ttl: timedelta | int | None = None,
        cache_misses: bool = False,
        timeout: timedelta | int = _TIMEOUT,
        retry_strategy: AsyncRetryStrategy | None = None,
        output_type: Any = None,
    ) -> DataStream[tuple[T_co, V]]: ...
    @overload
    def lookup_join(
        self,
        lookup: Lookup[K, V],
        function: FlatJoinFunction[T_co, V, R] | Callable[[T_co, V], Iterator[R]],
        *,
        key: KeyFunction[T_co, K] | FieldNames | None = None,
        key_type: Any = None,
        on_missing: Literal["drop", "fail"],
        cache_ttl: timedelta | int | None = None,
        cache_misses: bool = False,
        timeout: timedelta | int = _TIMEOUT,
        retry_strategy: AsyncRetryStrategy | None = None,
        output_type: Any = None,
    ) -> DataStream[R]: ...
    @overload
    def lookup_join(
        self,
        lookup: Lookup[K, V],
        function: JoinFunction[T_co, V, R] | Callable[[T_co, V], R],
        *,
        key: KeyFunction[T_co, K] | FieldNames | None = None,
        key_type: Any = None,
        on_missing: Literal["drop", "fail"],
        cache_ttl: timedelta | int | None = None,
        cache_misses: bool = False,
        timeout: timedelta | int = _TIMEOUT,
        retry_strategy: AsyncRetryStrategy | None = None,
        output_type: Any = None,
    ) -> DataStream[R]: ...
    def lookup_join(
        self,
        lookup: Lookup[Any, Any],
        function: Any = None,
        *,
        key: Any = None,
        key_type: Any = None,
        on_missing: OnMissing = "null",
        cache_ttl: timedelta | int | None = None,
        cache_misses: bool = False,
        timeout: timedelta | int = _TIMEOUT,
        retry_strategy: AsyncRetryStrategy | None = None,
        output_type: Any = None,
    ) -> DataStream[Any]:
        """Join each element with what an external system has for its key: Flink SQL's lookup join.

        Emits pairs (element, found), or the results of ``function(element, found)``: a JoinFunction or callable with one
        result, or a FlatJoinFunction or generator function with any number. Each keeps the place and the timestamp of its
        element.

        ``lookup``: an ``SqlLookup``, an ``HttpLookup``, a LookupFunction, an AsyncLookupFunction, or a callable
        ``f(keys) -> dict``, which may be ``async def``. It is asked once an epoch for each key that is not cached, for many
        keys at a time. ``key`` and ``key_type`` are as in ``key_by``; a keyed stream needs none.

        ``on_missing``: what happens to an element whose key is not found: "null" joins it with None, "drop" drops it,
        "fail" fails the job (JobFailed). ``cache_ttl`` (timedelta or int ms): for how long what was found for a key is used
        without asking again, also after a restart, as it is keyed state; None: no cache. ``cache_misses``: also cache that
        nothing was found.

        ``timeout`` (timedelta or int ms) covers one call and its repetitions. ``retry_strategy``: when a call is repeated,
        by default three times within some 700 ms if the system doesn't work. If it still doesn't, the epoch is repeated
        (SystemUnavailable).
        """
        from forkpoint.runtime.operators.requests.lookup_join import LookupJoinSpec  # imports asyncio

        if on_missing not in _POLICIES:
            raise ConfigError(f"lookup_join(on_missing={on_missing!r}): it must be one of {', '.join(map(repr, _POLICIES))}")
        if cache_misses and cache_ttl is None:
            raise ConfigError("lookup_join(cache_misses=True): there is no cache; set cache_ttl, for how long entries are used")
        if retry_strategy is not None and not isinstance(retry_strategy, AsyncRetryStrategy):
            raise GraphError(f"lookup_join(): retry_strategy must be an AsyncRetryStrategy, not {retry_strategy!r}")
        asked = as_lookup_function(lookup)
        found = _found_type(asked)
        stream = self._keyed_for_lookup(key, key_type)
        type = (
            self._pair_type(found, on_missing, output_type)
            if function is None
            else check_join("lookup_join", self, function, output_type)
        )
        spec = LookupJoinSpec(
            asked,
            function,
            found,
            on_missing,
            None if cache_ttl is None else to_ms(cache_ttl, "cache_ttl", minimum_ms=1),
            cache_misses,
            to_ms(timeout, "the timeout of lookup_join", minimum_ms=1),
            retry_strategy or ExponentialBackoffDelayRetryStrategy(3, 100, 2000, 2.0),
        )
        return stream._operator(spec, operator_name("lookup_join", lookup), type)

    def _keyed_for_lookup(self, key: Any, key_type: Any) -> StreamBase[T_co]:
        if key is None and self._key is None:
            raise GraphError("lookup_join() needs the key to look up; pass key=, or call key_by() first")
        stream = self if key is None else self._plain()._keyed(self._key_of(key, key_type))
        of = stream._key
        assert of is not None
        assert of.key_type is not None
        if not of.key_type.immutable and "any" not in of.key_type.kinds():
            raise GraphError(
                f"lookup_join(): keys of type {of.key_type} cannot be looked up, as they are not hashable; use scalars or tuples"
            )
        return stream

    def _pair_type(self, found: TypeInformation, on_missing: OnMissing, output_type: Any) -> TypeInformation | None:
        if output_type is not None:
            raise GraphError("lookup_join(output_type=…) is the type of the function's results; pass a function, or leave it out")
        if self._type is None:
            return None
        return Types.TUPLE([self._type, optional(found) if on_missing == "null" else found])


class CallableLookup(LookupFunction[Any, Any]):
    """A callable as a lookup function."""

    def __init__(self, function: Callable[[Sequence[Any]], Mapping[Any, Any]]) -> None:
        self.lookup = function  # type: ignore[method-assign]

    def lookup(self, keys: Sequence[Any], /) -> Mapping[Any, Any]:
        raise AssertionError("it is the callable")


class AsyncCallableLookup(AsyncLookupFunction[Any, Any]):
    """An ``async def`` as a lookup function. It gets as many keys at a time as others do."""

    max_batch_size = LookupFunction.max_batch_size

    def __init__(self, function: Callable[[Sequence[Any]], Awaitable[Mapping[Any, Any]]]) -> None:
        self.async_lookup = function  # type: ignore[method-assign,assignment]

    async def async_lookup(self, keys: Sequence[Any], /) -> Mapping[Any, Any]:
        raise AssertionError("it is the callable")


def as_lookup_function(lookup: Any) -> LookupFunction[Any, Any] | AsyncLookupFunction[Any, Any]:
    """The lookup itself, or the function that calls it. GraphError or ConfigError if it cannot be asked."""
    if isinstance(lookup, LookupFunction | AsyncLookupFunction):
        _check(lookup)
        return lookup
    no_class(lookup, "lookup_join()")
    if not callable(lookup) or isinstance(lookup, type):
        raise GraphError(
            f"lookup_join() takes a LookupFunction, an AsyncLookupFunction or a callable f(keys) -> dict, not {lookup!r}"
        )
    return AsyncCallableLookup(lookup) if _is_async(lookup) else CallableLookup(lookup)


def _check(lookup: LookupFunction[Any, Any] | AsyncLookupFunction[Any, Any]) -> None:
    name = type(lookup).__name__
    if isinstance(lookup, LookupFunction) and _is_async(lookup.lookup):
        raise GraphError(f"{name}.lookup is 'async def'; derive {name} from AsyncLookupFunction, and call it async_lookup")
    if isinstance(lookup, AsyncLookupFunction) and not _is_async(lookup.async_lookup):
        raise GraphError(f"{name}.async_lookup: declare it as 'async def', or derive {name} from LookupFunction")
    for what in ("max_batch_size", "capacity"):
        number = getattr(lookup, what, 1)
        if not isinstance(number, int) or number < 1:
            raise ConfigError(f"{name}: {what} is {number!r}; it must be at least 1")


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _found_type(lookup: LookupFunction[Any, Any] | AsyncLookupFunction[Any, Any]) -> TypeInformation:
    """The type of what is found for one key: the declared one, else that of the annotation, else ``Types.ANY()``."""
    declared = lookup.get_produced_type()
    if declared is not None:
        return declared
    method = lookup.lookup if isinstance(lookup, LookupFunction) else lookup.async_lookup
    annotation = return_annotation(method, "__call__")
    parts = get_args(annotation)
    origin = get_origin(annotation)
    if not isinstance(origin, type) or not issubclass(origin, Mapping) or len(parts) != 2:
        return Types.ANY()
    return annotated_type(parts[1]) or Types.ANY()
