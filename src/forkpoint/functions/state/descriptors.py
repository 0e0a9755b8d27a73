"""State descriptors: a state's name, type and time to live.

A function declares a descriptor as a class attribute. In a running job, the state handle replaces it on the instance.
Descriptors have the handle's methods so that ``self.armed.value()`` type-checks; outside a running job these methods raise
GraphError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Self, overload

from forkpoint.errors import ConfigError, GraphError
from forkpoint.functions.base import AggregateFunction, ReduceFunction, no_class
from forkpoint.functions.state.handles import AggregatingState, ListState, MapState, ReducingState, State, ValueState
from forkpoint.functions.state.ttl import StateTtlConfig
from forkpoint.types import TypeInformation, TypeLike, type_of
from forkpoint.types.keys import key_form
from forkpoint.types.kinds.containers import optional
from forkpoint.types.variables import ACC, IN, NOTHING, OUT, K, S_co, T, V

if TYPE_CHECKING:
    from forkpoint.checkpoint.states import StateKind


class StateDescriptor(State, Generic[S_co]):
    """Base of all state descriptors. ``S_co``: the type of the state handle.

    ``name``: unique within an operator. ``value_type``: the type of one stored value (list element, map value,
    accumulator). ``ttl``: time to live, None for no expiry.

    Types are ``Types.*`` or Python types. TypeNotSupported for a type without a durable encoding.
    """

    kind: ClassVar[StateKind]

    def __init__(self, name: str, value_type: Any) -> None:
        if not isinstance(name, str) or not name:
            raise GraphError(f"a state name must be a non-empty string, not {name!r}")
        self.name = name
        self.value_type: TypeInformation = type_of(value_type)
        self.ttl: StateTtlConfig | None = None
        self.fingerprint: str | None = None  # the meaning of saved values, for states of built-in functions
        self.definition: Any = None  # of a query's state: see StateInfo

    def enable_time_to_live(self, ttl_config: StateTtlConfig | timedelta) -> Self:
        """Make entries expire, and return the descriptor. A timedelta counts from the last write, in processing time."""
        if isinstance(ttl_config, timedelta):
            ttl_config = StateTtlConfig.new_builder(ttl_config).build()
        elif not isinstance(ttl_config, StateTtlConfig):
            raise ConfigError(
                f"state {self.name!r}: enable_time_to_live() takes a StateTtlConfig or a timedelta, not {ttl_config!r}; give "
                "timedelta(hours=1)"
            )
        self.ttl = ttl_config if ttl_config.is_enabled() else None
        return self

    def get_name(self) -> str:
        """The state's name."""
        return self.name

    def clear(self) -> None:
        self._unbound()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def _unbound(self) -> NoReturn:
        raise GraphError(
            f"state {self.name!r} was used outside a running job. A descriptor only declares state; access it in "
            "process_element, on_timer or open of a function on a keyed stream, or in a test harness"
        )


class ValueStateDescriptor(StateDescriptor[ValueState[T, NOTHING]], ValueState[T, NOTHING]):
    """Declares one value per key. ``default_value``: the result of ``value()`` without one; do not modify it in place."""

    kind = "value"

    @overload
    def __init__(self: ValueStateDescriptor[T], name: str, type_info: TypeLike[T], default_value: None = None) -> None: ...
    @overload
    def __init__(self: ValueStateDescriptor[T, T], name: str, type_info: TypeLike[T], default_value: T) -> None: ...
    @overload
    def __init__(self: ValueStateDescriptor[Any], name: str, type_info: Any, default_value: None = None) -> None: ...
    @overload
    def __init__(self: ValueStateDescriptor[Any, Any], name: str, type_info: Any, default_value: Any) -> None: ...
    def __init__(self, name: str, type_info: Any, default_value: Any = None) -> None:
        super().__init__(name, type_info)
        self.default_value = default_value

    def value(self) -> T | NOTHING:
        self._unbound()

    def update(self, value: T | None) -> None:
        self._unbound()


class ListStateDescriptor(StateDescriptor[ListState[T]], ListState[T]):
    """Declares a list per key, or per subtask for operator state."""

    kind = "list"

    @overload
    def __init__(self, name: str, elem_type_info: TypeLike[T]) -> None: ...
    @overload
    def __init__(self: ListStateDescriptor[Any], name: str, elem_type_info: Any) -> None: ...
    def __init__(self, name: str, elem_type_info: Any) -> None:
        super().__init__(name, elem_type_info)

    def get(self) -> Iterable[T]:
        self._unbound()

    def add(self, value: T) -> None:
        self._unbound()

    def add_all(self, values: Iterable[T]) -> None:
        self._unbound()

    def update(self, values: Iterable[T]) -> None:
        self._unbound()


class MapStateDescriptor(StateDescriptor[MapState[K, V]], MapState[K, V]):
    """Declares a map per key. ``key_type`` and ``value_type`` are the types of one entry.

    As in Flink, an entry's value may be None. Record values may be None only if declared Optional, because their fields are
    columns of a savepoint.
    """

    kind = "map"

    @overload
    def __init__(self, name: str, key_type_info: TypeLike[K], value_type_info: TypeLike[V]) -> None: ...
    @overload
    def __init__(self: MapStateDescriptor[Any, Any], name: str, key_type_info: Any, value_type_info: Any) -> None: ...
    def __init__(self, name: str, key_type_info: Any, value_type_info: Any) -> None:
        super().__init__(name, value_type_info)
        if self.value_type.fields is None:
            self.value_type = optional(self.value_type)
        self.key_type: TypeInformation = key_form(type_of(key_type_info))

    def get(self, key: K) -> V | None:
        self._unbound()

    def put(self, key: K, value: V) -> None:
        self._unbound()

    def put_all(self, entries: Mapping[K, V] | Iterable[tuple[K, V]]) -> None:
        self._unbound()

    def remove(self, key: K) -> None:
        self._unbound()

    def contains(self, key: K) -> bool:
        self._unbound()

    def items(self) -> Iterable[tuple[K, V]]:
        self._unbound()

    def keys(self) -> Iterable[K]:
        self._unbound()

    def values(self) -> Iterable[V]:
        self._unbound()

    def is_empty(self) -> bool:
        self._unbound()


class ReducingStateDescriptor(StateDescriptor[ReducingState[T]], ReducingState[T]):
    """Declares a reduced value per key. ``reduce_function``: a ReduceFunction or ``f(a, b)``."""

    kind = "reducing"

    @overload
    def __init__(
        self, name: str, reduce_function: ReduceFunction[Any] | Callable[[Any, Any], Any], type_info: TypeLike[T]
    ) -> None: ...
    @overload
    def __init__(
        self: ReducingStateDescriptor[Any],
        name: str,
        reduce_function: ReduceFunction[Any] | Callable[[Any, Any], Any],
        type_info: Any,
    ) -> None: ...
    def __init__(self, name: str, reduce_function: Any, type_info: Any) -> None:
        super().__init__(name, type_info)
        no_class(reduce_function, f"state {name!r}")
        reduce = reduce_function.reduce if isinstance(reduce_function, ReduceFunction) else reduce_function
        if not callable(reduce):
            raise GraphError(f"state {name!r}: {reduce_function!r} is neither a ReduceFunction nor a callable f(a, b)")
        self.reduce: Callable[[T, T], T] = reduce

    def get(self) -> T | None:
        self._unbound()

    def add(self, value: T) -> None:
        self._unbound()


class AggregatingStateDescriptor(StateDescriptor[AggregatingState[IN, OUT]], AggregatingState[IN, OUT], Generic[IN, ACC, OUT]):
    """Declares an accumulator per key. ``state_type_info``: the accumulator's type."""

    kind = "aggregating"

    def __init__(self, name: str, agg_function: AggregateFunction[IN, ACC, OUT], state_type_info: Any) -> None:
        super().__init__(name, state_type_info)
        if not isinstance(agg_function, AggregateFunction):
            raise GraphError(f"state {name!r}: {agg_function!r} is not an AggregateFunction")
        self.aggregate = agg_function

    def get(self) -> OUT | None:
        self._unbound()

    def add(self, value: IN) -> None:
        self._unbound()


def declared_states(fn: Any) -> dict[str, StateDescriptor]:
    """The state descriptors declared on a function's class: attribute name → descriptor, base classes first.

    An attribute overridden with something else declares no state. GraphError for two descriptors with the same name.
    """
    if hasattr(type(fn), "declare_states"):  # an adapter
        return dict(fn.declare_states())
    cls = fn if isinstance(fn, type) else type(fn)
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        found.update(vars(base))
    states = {attribute: d for attribute, d in found.items() if isinstance(d, StateDescriptor)}
    by_name: dict[str, str] = {}
    for attribute, descriptor in states.items():
        other = by_name.setdefault(descriptor.name, attribute)
        if other != attribute:
            raise GraphError(
                f"{cls.__qualname__} declares two states named {descriptor.name!r} ({other} and {attribute}); "
                "give each its own name"
            )
    return states
