"""`Literal`: a scalar type that allows only some values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from forkpoint.errors import TypeNotSupported
from forkpoint.types.acceptance import Convert, Source
from forkpoint.types.information import TypeInformation
from forkpoint.types.kinds.scalars import ScalarType, scalar
from forkpoint.types.wire import shown


@dataclass(frozen=True, eq=False, repr=False)
class LiteralType(ScalarType):
    """A scalar type whose values must be among ``allowed`` when they are emitted, stored, or read from outside.

    Bytes, columns and description are those of the scalar, so saved values are readable even if they are no longer allowed.
    """

    allowed: tuple[Any, ...]

    def _test(self, value: str, source: Source) -> str:
        first, v = source.once(value)
        base = super()._test(first if first == v else v, source)
        known = source.bind(frozenset(self.allowed))
        return f"({base} and {v} in {known})" if first == v else f"(({first},) and {base} and {v} in {known})"

    @cached_property
    def all_exact(self) -> Callable[[Sequence[Any]], bool]:
        base, allowed = super().all_exact, frozenset(self.allowed)
        return lambda values: base(values) and allowed.issuperset(values)

    @cached_property
    def _coerce(self) -> Convert:
        base = scalar(self.name).accept

        def coerce(value: Any) -> Any:
            result = base(value)
            self._check((result,))
            return result

        return coerce

    def _to_array(self, values: list[Any]) -> pa.Array:
        array = super()._to_array(values)
        self._check(values)
        return array

    def _check(self, values: Iterable[Any]) -> None:
        for value in dict.fromkeys(values):
            if value not in self.allowed:
                raise TypeNotSupported(f"{shown(value)} is not a value of {self!r}")

    def __repr__(self) -> str:
        return f"Literal[{', '.join(map(repr, self.allowed))}]"

    def __reduce__(self) -> tuple[Any, ...]:
        return LiteralType, (self.name, self.allowed)


def literal(of: TypeInformation, values: tuple[Any, ...]) -> TypeInformation:
    """The type of these values of a scalar type; returns any other type unchanged."""
    return LiteralType(of.name, values) if isinstance(of, ScalarType) and of.name != "null" else of


def both(first: TypeInformation, second: TypeInformation) -> TypeInformation:
    """The type that allows the values of two types with the same encoding."""
    if isinstance(first, LiteralType):
        return LiteralType(first.name, (*first.allowed, *second.allowed)) if isinstance(second, LiteralType) else second
    return first
