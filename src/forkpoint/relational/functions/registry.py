"""How a scalar function is declared: the arguments that it takes, the type of its result, and its kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, TypeAlias

import pyarrow as pa

from forkpoint.relational.expressions import LiteralValue
from forkpoint.relational.types import SqlType, common_type

Datum: TypeAlias = Any
"""A column (pa.Array), or one value for all rows (pa.Scalar)."""
Types = Sequence[SqlType]
Result: TypeAlias = Callable[[Types], SqlType | str]
Check: TypeAlias = Callable[[Any], str | None]
Literals = Sequence[LiteralValue]
"""The arguments that are literals; None for others."""


@dataclass(frozen=True)
class Function:
    """``accepts``: the numbers of arguments, from and to (None: any). ``result``: the type for these arguments; a text says why
    there is none. ``kernel``: receives arguments of the type that ``operands`` chose for all of them (None: as they are).
    ``checks``: by the position of an argument, what is wrong with a literal there; None if nothing is. ``refined``: the digits of
    a DECIMAL result, which may depend on a literal."""

    accepts: tuple[int, int | None]
    result: Result
    kernel: Callable[..., Datum]
    operands: Callable[[Types], SqlType | None] = lambda types: None
    checks: tuple[tuple[int, Check], ...] = ()
    refined: Callable[[SqlType, Literals], SqlType] = lambda found, literals: found


def any_null(types: Types) -> bool:
    return any(of.nullable for of in types)


def fixed(of: SqlType, *accepted: str) -> Result:
    """A result of this type, null if an argument is, for arguments of the accepted types (none: any)."""

    def result(types: Types) -> SqlType | str:
        for given in types:
            if accepted and given.name not in (*accepted, "NULL"):
                return f"takes {' or '.join(accepted)}, not {given.name}"
        return of.with_null(any_null(types))

    return result


def never_null(result: Result) -> Result:
    def checked(types: Types) -> SqlType | str:
        found = result(types)
        return found if isinstance(found, str) else found.with_null(False)

    return checked


def typed(result: Result) -> Result:
    """Refuses NULL without a type, which has no kernel."""

    def checked(types: Types) -> SqlType | str:
        return "takes no NULL without a type; CAST it" if all(of.name == "NULL" for of in types) else result(types)

    return checked


def signature(of: SqlType, *arguments: tuple[str, ...], nullable: bool = False) -> Result:
    """A result of this type, for arguments whose types are each among those given. ``nullable``: NULL may result from any."""

    def result(types: Types) -> SqlType | str:
        for position, (given, accepted) in enumerate(zip(types, arguments, strict=False), 1):
            if given.name not in (*accepted, "NULL"):
                wanted = "an integer" if "BIGINT" in accepted else " or ".join(accepted)
                return f"takes {wanted} as argument {position}, not {given.name}"
        return of.with_null(nullable or any_null(types))

    return result


def common_of(types: Types) -> SqlType | None:
    return common_type(list(types))


def is_scalar(*values: Datum) -> bool:
    return all(isinstance(value, pa.Scalar) for value in values)


def broadcast(value: Datum, size: int) -> pa.Array:
    """A column of ``size`` rows."""
    return pa.repeat(value, size) if isinstance(value, pa.Scalar) else value


def per_distinct(function: Callable[..., Any], result: pa.DataType, *arguments: Datum) -> Datum:
    """A Python function's results, computed once per distinct value of a column. NULL in, NULL out."""
    if any(isinstance(argument, pa.Scalar) and not argument.is_valid for argument in arguments):
        return pa.scalar(None, result)
    columns = [argument for argument in arguments if isinstance(argument, pa.Array)]
    if not columns:
        return pa.scalar(function(*(argument.as_py() for argument in arguments)), result)
    if len(columns) == 1:
        encoded = columns[0].dictionary_encode()
        rows = zip(*(repeat(a.as_py()) if is_scalar(a) else encoded.dictionary.to_pylist() for a in arguments), strict=False)
        return pa.array([function(*row) if None not in row else None for row in rows], result).take(encoded.indices)
    known: dict[tuple[Any, ...], Any] = {}
    found = []
    for row in zip(*(repeat(a.as_py()) if is_scalar(a) else a.to_pylist() for a in arguments), strict=False):
        if row not in known:
            known[row] = None if None in row else function(*row)
        found.append(known[row])
    return pa.array(found, result)
