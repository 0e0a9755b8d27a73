"""Lookup joins."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, Unpack, get_args, get_origin, overload

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


class _LookupOptions(TypedDict, total=False):
    key_type: Any
    cache_ttl: timedelta | int | None
    cache_misses: bool
    timeout: timedelta | int
    retry_strategy: AsyncRetryStrategy | None
    output_type: Any


class LookupJoinMixin(StreamBase[T_co]):
    """Lookup joins."""

    @overload
    def lookup_join(
        self,
        lookup: Lookup[K, V],
        function: None = None,
        *,
        key: KeyFunction[T_co, K] | FieldNames | None = None,
        on_missing: Literal["null"] = "null",
        **options: Unpack[_LookupOptions],
    ) -> DataStream[tuple[T_co, V | None]]: ...
    @overload
    def lookup_join(
        self,
        lookup: Lookup[K, V],
        function: FlatJoinFunction[T_co, V | None, R] | Callable[[T_co, V | None], Iterator[R]],
        *,
        key: KeyFunction[T_co, K] | FieldNames | None = None,
        on_missing: Literal["null"] = "null",
        **options: Unpack[_LookupOptions],
    ) -> DataStream[R]: ...
    @overload
    def lookup_join(
        self,
        lookup: Lookup[K, V],
        function: JoinFunction[T_co, V | None, R] | Callable[[T_co, V | None], R],
        *,
        key: KeyFunction[T_co, K] | FieldNames | None = None,
        on_missing: Literal["null"] = "null",
        **options: Unpack[_LookupOptions],
    ) -> DataStream[R]: ...
    @overload
    def lookup_join(
        self,
        lookup: Lookup[K, V],
        function: None = None,
        *,
        key: KeyFunction[T_co, K] | FieldNames | None = None,
        on_missing: Literal["drop", "fail"],
        **options: Unpack[_LookupOptions],
    ) -> DataStream[tuple[T_co, V]]: ...
    @overload
    def lookup_join(
        self,
        lookup: Lookup[K, V],
        function: FlatJoinFunction[T_co, V, R] | Callable[[T_co, V], Iterator[R]],
        *,
        key: KeyFunction[T_co, K] | FieldNames | None = None,
        on_missing: Literal["drop", "fail"],
        **options: Unpack[_LookupOptions],
    ) -> DataStream[R]: ...
    @overload
    def lookup_join(
        self,
        lookup: Lookup[K, V],
        function: JoinFunction[T_co, V, R] | Callable[[T_co, V], R],
        *,
        key: KeyFunction[T_co, K] | FieldNames | None = None,
        on_missing: Literal["drop", "fail"],
        **options: Unpack[_LookupOptions],
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
        """Join each element with the value that an external system holds for its key: Flink SQL's lookup join.

        Emits pairs (element, value), or the results of ``function(element, value)``: a JoinFunction or callable returns one
        result, a FlatJoinFunction or generator function any number. A result has the order and timestamp of its element.

        ``lookup``: an ``SqlLookup``, an ``HttpLookup``, a LookupFunction, an AsyncLookupFunction, or a callable
        ``f(keys) -> dict``, which may be ``async def``. In each epoch it is called once for every key that is not cached,
        with batches of keys. ``key`` and ``key_type`` are as in ``key_by``; a keyed stream needs neither.

        ``on_missing``: the policy for elements whose key is not found. "null" joins them with None, "drop" drops them,
        "fail" fails the job (JobFailed). ``cache_ttl`` (timedelta or int ms): how long a value is reused. The cache is keyed
        state, so it survives a restart; None: no cache. ``cache_misses``: also cache keys that were not found.

        ``timeout`` (timedelta or int ms) covers one call and its retries. ``retry_strategy``: by default three retries within
        about 700 ms while the system is unavailable. If they fail, the epoch is repeated (SystemUnavailable).
        """
        from forkpoint.runtime.operators.requests.lookup_join import LookupJoinSpec  # imports asyncio

        if on_missing not in _POLICIES:
            raise ConfigError(f"lookup_join(on_missing={on_missing!r}): it must be one of {', '.join(map(repr, _POLICIES))}")
        if cache_misses and cache_ttl is None:
            raise ConfigError("lookup_join(cache_misses=True): there is no cache; set cache_ttl")
        if retry_strategy is not None and not isinstance(retry_strategy, AsyncRetryStrategy):
            raise GraphError(f"lookup_join(): retry_strategy must be an AsyncRetryStrategy, not {retry_strategy!r}")
        lookup_function = as_lookup_function(lookup)
        value_type = _value_type(lookup_function)
        stream = self._keyed_for_lookup(key, key_type)
        type = (
            self._pair_type(value_type, on_missing, output_type)
            if function is None
            else check_join("lookup_join", self, function, output_type)
        )
        spec = LookupJoinSpec(
            lookup_function,
            function,
            value_type,
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
        assert stream._key is not None
        type = stream._key.key_type
        if not type.immutable and "any" not in type.kinds():
            raise GraphError(
                f"lookup_join(): keys of type {type} are not hashable and cannot be looked up; use scalars or tuples"
            )
        return stream

    def _pair_type(self, value_type: TypeInformation, on_missing: OnMissing, output_type: Any) -> TypeInformation | None:
        if output_type is not None:
            raise GraphError("lookup_join(output_type=…) is the type of the function's results; pass a function, or leave it out")
        if self._type is None:
            return None
        return Types.TUPLE([self._type, optional(value_type) if on_missing == "null" else value_type])


class CallableLookup(LookupFunction[Any, Any]):
    """A callable as a lookup function."""

    def __init__(self, function: Callable[[Sequence[Any]], Mapping[Any, Any]]) -> None:
        self.lookup = function  # type: ignore[method-assign]

    def lookup(self, keys: Sequence[Any], /) -> Mapping[Any, Any]:
        raise AssertionError("replaced by the callable")


class AsyncCallableLookup(AsyncLookupFunction[Any, Any]):
    """An ``async def`` callable as a lookup function, with the batch size of a LookupFunction."""

    max_batch_size = LookupFunction.max_batch_size

    def __init__(self, function: Callable[[Sequence[Any]], Awaitable[Mapping[Any, Any]]]) -> None:
        self.async_lookup = function  # type: ignore[method-assign,assignment]

    async def async_lookup(self, keys: Sequence[Any], /) -> Mapping[Any, Any]:
        raise AssertionError("replaced by the callable")


def as_lookup_function(lookup: Any) -> LookupFunction[Any, Any] | AsyncLookupFunction[Any, Any]:
    """The lookup itself, or an adapter of a callable. GraphError or ConfigError if it is not a valid lookup."""
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
    for setting in ("max_batch_size", "capacity"):
        number = getattr(lookup, setting, 1)
        if not isinstance(number, int) or number < 1:
            raise ConfigError(f"{name}: {setting} is {number!r}; it must be at least 1")


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def _value_type(lookup: LookupFunction[Any, Any] | AsyncLookupFunction[Any, Any]) -> TypeInformation:
    """The type of the value of one key: the declared type, else the annotated type, else ``Types.ANY()``."""
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
