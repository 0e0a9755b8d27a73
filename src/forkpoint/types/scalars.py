"""Types whose values have no parts: numbers, text, bytes, dates and times, UUIDs, and ANY."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.errors import TypeNotSupported
from forkpoint.types import dynamic
from forkpoint.types.acceptance import Convert, Source
from forkpoint.types.information import NO_NONE, JsonObject, TypeInformation
from forkpoint.types.scalar_specs import EXACT_NAMES, NUMBERS, SPECS, ScalarSpec
from forkpoint.types.wire import shown, type_name


@dataclass(frozen=True, eq=False, repr=False)
class ScalarType(TypeInformation):
    """One of the kinds of `scalar`."""

    name: str

    immutable = True

    @property
    def _spec(self) -> ScalarSpec:
        return SPECS[self.name]

    @property
    def kind(self) -> str:
        return self.name

    def describe(self) -> JsonObject:
        return {"kind": self.name}

    @property
    def wire(self) -> Any:
        return self._spec.wire or self.python_class

    @cached_property
    def lower(self) -> Convert | None:
        return self._spec.lower

    @cached_property
    def lift(self) -> Convert | None:
        return self._spec.lift

    @cached_property
    def arrow_type(self) -> pa.DataType:
        return self._spec.arrow

    def _to_array(self, values: list[Any]) -> pa.Array:
        return self._spec.to_array(values)

    def _to_values(self, array: pa.Array) -> list[Any]:
        return self._spec.to_values(array)

    def _test(self, value: str, source: Source) -> str:
        (first, v), cls = source.once(value), source.bind(self.python_class)
        condition = self._spec.exact
        if not condition:
            return f"type({value}) is {cls}"
        source.names |= EXACT_NAMES
        return f"type({first}) is {cls} and {condition.replace('@', v)}"

    @cached_property
    def all_exact(self) -> Callable[[Sequence[Any]], bool]:
        classes, condition = {self.python_class}, self._spec.all_exact
        if condition is None:
            return lambda values: classes.issuperset(map(type, values))
        return lambda values: classes.issuperset(map(type, values)) and condition(values)

    @cached_property
    def _coerce(self) -> Convert:
        takes = (self.python_class, *self._spec.takes)
        source = Source()
        test = source.compiled(self._test("value", source))
        numbers = self.name in NUMBERS

        def coerce(value: Any) -> Any:
            if not isinstance(value, takes):
                why = NO_NONE if value is None else f"it is of type {type_name(type(value))}"
                raise TypeNotSupported(f"{shown(value)} is not a value of {self!r}: {why}")
            made = self._read_back(int(value) if numbers and isinstance(value, bool | np.bool_) else value)
            if not test(made):
                hint = "; declare Types.BIG_INT()" if self.name == "long" else ""
                raise TypeNotSupported(f"{shown(value)} is not a value of {self!r}: it is out of range{hint}")
            return made

        return coerce

    @property
    def nullable(self) -> bool:
        return self.name == "null"

    @property
    def python_class(self) -> type:
        return self._spec.python_class

    @property
    def sortable(self) -> bool:
        return self._spec.sortable

    def __repr__(self) -> str:
        return self._spec.label

    def __reduce__(self) -> tuple[Any, ...]:
        return scalar, (self.name,)


@dataclass(frozen=True, eq=False, repr=False)
class AnyType(ScalarType):
    """`Types.ANY()`: a dynamic value, in a column as its encoded bytes; None is a value like others, not a null."""

    immutable = False
    encode = staticmethod(dynamic.encode_any)
    decode = staticmethod(dynamic.decode_any)
    accept = staticmethod(dynamic.accept_any)
    accept_all = staticmethod(dynamic.accept_all_any)


_INSTANCES = {name: ScalarType(name) for name in SPECS} | {"any": AnyType("any")}


def scalar(name: str) -> ScalarType:
    """Return the scalar type of this kind."""
    return _INSTANCES[name]


def is_scalar(kind: object) -> bool:
    """Whether `scalar` knows the kind."""
    return kind in _INSTANCES
