"""User-defined functions: calls of Python in expressions.

A call names its function and the function's version, as in ``slug@1``. The text and the stored form of an expression have nothing
else of it, so a version stands for what the function computes. Operators that evaluate such calls have the functions
themselves (``operators.calling``) and open them; ``known`` makes them known while the operator runs.
"""

from __future__ import annotations

import decimal
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as fields_of
from itertools import repeat
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.errors import TypeNotSupported, UserFunctionError
from forkpoint.relational.expressions import Call, Expression
from forkpoint.relational.functions.registry import Datum, broadcast
from forkpoint.relational.types import SqlType, widens
from forkpoint.runtime.operators.base import NOT_USERS, shorten, user_failure

Form = Literal["general", "pandas", "arrow"]
Columns = Callable[[Call, Sequence[Datum], int], pa.Array]
"""A function of columns: of a call, its arguments, and the number of rows."""
_MANY = 100  # rows, from which on it pays off to look for equal arguments
_EXACT = ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "STRING", "BYTES", "DATE", "DECIMAL")
_DIGITS = decimal.Context(prec=76, rounding=decimal.ROUND_HALF_UP)


@dataclass(frozen=True)
class UserFunction:
    """A function by the name that queries have for it. ``inputs``: the types of its arguments (None: any). ``arity``: the numbers
    of arguments that it takes, from and to (None: any). ``body``: a ScalarFunction. ``form``: what it receives and returns."""

    name: str
    version: str
    inputs: tuple[SqlType, ...] | None
    arity: tuple[int, int | None]
    result: SqlType
    body: Any
    form: Form = "general"
    deterministic: bool = True

    @property
    def identity(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(frozen=True)
class Functions:
    """The functions in reach of a query. ``system``: by name, those that precede SQL's own of the same name. ``find``: the
    others, by name or path. ``called``: all that queries call, by identity."""

    system: Mapping[str, UserFunction]
    find: Callable[[str], UserFunction | None]
    names: frozenset[str]
    called: dict[str, UserFunction]

    def named(self, name: str, own: Container[str]) -> UserFunction | None:
        """The function that a name, or a path with points, means; None if it is none or one of SQL's ``own``."""
        name = name.lower()
        return self.system.get(name) or (None if name.upper() in own else self.find(name))

    def call(self, function: UserFunction, arguments: Sequence[Expression]) -> Expression | str:
        """The call of a function; a text says why there is none."""
        self.called[function.identity] = function
        return call_of(function, arguments)


NO_FUNCTIONS = Functions({}, lambda name: None, frozenset(), {})


def is_user(function: str) -> bool:
    """Whether a call's function is a user's."""
    return "@" in function


def without_versions(text: str) -> str:
    """The text of an expression without the versions of functions: for names that stay when a function changes."""
    return re.sub(r"@[\w.-]+(?=\()", "", text)


def call_of(function: UserFunction, arguments: Sequence[Expression]) -> Expression | str:
    """The call of a function, with its arguments converted to the types that it takes; a text says why there is none."""
    least, most = function.arity
    count = len(arguments)
    if count < least or (most is not None and count > most):
        wanted = str(least) if most == least else f"{least} or more" if most is None else f"{least} to {most}"
        return f"{function.name} takes {wanted} arguments, not {count}"
    converted = list(arguments)
    for at, wanted_type in enumerate(function.inputs or ()):
        given = arguments[at].type
        if not widens(given, wanted_type):
            return f"{function.name} takes {wanted_type.label} as argument {at + 1}, not {given.label}; CAST it"
        if not given.same_values(wanted_type):
            converted[at] = Call("CAST", (arguments[at],), wanted_type.with_null(given.nullable))
    return Call(function.identity, tuple(converted), function.result)


def calls_in(value: Any) -> Iterator[str]:
    """The user functions that expressions call, in a plan, a definition, a tuple of expressions, or an operator's spec."""
    if isinstance(value, Call):
        if is_user(value.function):
            yield value.function
        yield from calls_in(value.arguments)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from calls_in(each)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from calls_in(getattr(value, name))
    elif is_dataclass(value):
        for field in fields_of(value):
            yield from calls_in(getattr(value, field.name))


# -- running -----------------------------------------------------------------------------------------------------------

_known: ContextVar[Mapping[str, Columns]] = ContextVar("functions")


@contextmanager
def known(functions: Mapping[str, Columns]) -> Iterator[None]:
    """Evaluate calls of these functions, by identity."""
    token = _known.set(functions)
    try:
        yield
    finally:
        _known.reset(token)


def called(call: Call, arguments: Sequence[Datum], rows: int) -> pa.Array:
    return _known.get()[call.function](call, arguments, rows)


def columns_of_function(function: UserFunction, uid: str) -> Columns:
    """An opened function as one of columns. ``uid``: of the operator that calls it."""
    kinds: dict[Form, type[_OfColumns]] = {"general": _General, "pandas": _Pandas, "arrow": _Arrow}
    return kinds[function.form](function, uid)


@dataclass(frozen=True)
class _OfColumns(ABC):
    function: UserFunction
    uid: str

    @abstractmethod
    def __call__(self, call: Call, arguments: Sequence[Datum], rows: int) -> pa.Array: ...

    def failure(self, error: BaseException, arguments: str) -> BaseException:
        return user_failure(self.uid, error, arguments, f"function {self.function.name}")

    def problem(self, problem: str) -> UserFunctionError:
        return UserFunctionError(f"operator {self.uid!r}: function {self.function.name} {problem}")


class _General(_OfColumns):
    """Once for each row."""

    def __call__(self, call: Call, arguments: Sequence[Datum], rows: int) -> pa.Array:
        columns = [each for each in arguments if isinstance(each, pa.Array)]
        once = self.function.deterministic and rows >= _MANY and len(columns) == 1
        if once and all(argument.type.name in _EXACT for argument in call.arguments):
            encoded = columns[0].dictionary_encode(null_encoding="encode")
            distinct = len(encoded.dictionary)
            if 2 * distinct <= rows:
                of_distinct = [encoded.dictionary if each is columns[0] else each for each in arguments]
                return self._rows(call, of_distinct, distinct).take(encoded.indices)
        return self._rows(call, arguments, rows)

    def _rows(self, call: Call, arguments: Sequence[Datum], rows: int) -> pa.Array:
        values = [_objects(each, argument.type) for each, argument in zip(arguments, call.arguments, strict=True)]
        found: list[Any] = []
        given = zip(*values, strict=False) if values else repeat((), rows)
        evaluate, add, row = self.function.body.eval, found.append, ()
        try:
            for row, _ in zip(given, range(rows), strict=False):
                add(evaluate(*row))
        except NOT_USERS:
            raise
        except BaseException as error:
            raise self.failure(error, f"arguments {shorten(row)}") from error
        return self.converted(found, call.type)

    def converted(self, found: list[Any], of: SqlType) -> pa.Array:
        if of.name == "DECIMAL" and of.digits is not msgspec.UNSET:
            unit = decimal.Decimal(1).scaleb(-of.digits[1])
            found = [each.quantize(unit, context=_DIGITS) if isinstance(each, decimal.Decimal) else each for each in found]
        try:
            return of.stream_type.to_arrow(found)
        except TypeNotSupported as error:
            raise self.problem(f"has the result type {of}, but returned {error}") from error


class _Arrow(_OfColumns):
    """Once for all rows, with pyarrow's arrays."""

    def __call__(self, call: Call, arguments: Sequence[Datum], rows: int) -> pa.Array:
        given = [broadcast(each, rows) for each in arguments]
        try:
            found = self.function.body.eval(*map(self.given, given))
        except NOT_USERS:
            raise
        except BaseException as error:
            raise self.failure(error, f"{rows} rows") from error
        return self._checked(self.taken(found, call.type.arrow_type), call.type, rows)

    def given(self, column: pa.Array) -> Any:
        return column

    def taken(self, found: Any, of: pa.DataType) -> pa.Array:
        if not isinstance(found, pa.Array | pa.ChunkedArray):
            raise self.problem(f"must return an Arrow array, not {shorten(found)}")
        return found

    def _checked(self, found: pa.Array | pa.ChunkedArray, of: SqlType, rows: int) -> pa.Array:
        if len(found) != rows:
            raise self.problem(f"returned {len(found)} values for {rows} rows")
        column = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
        try:
            column = pc.cast(column, of.arrow_type)
        except pa.ArrowException as error:
            raise self.problem(f"has the result type {of}, but returned {column.type}: {error}") from error
        if column.null_count and not of.nullable:
            raise self.problem(f"has the result type {of}, but returned NULL")
        return column


class _Pandas(_Arrow):
    """Once for all rows, with pandas.Series."""

    def given(self, column: pa.Array) -> Any:
        if column.null_count and pa.types.is_integer(column.type):  # as floats, large ones would lose digits
            return column.to_pandas(types_mapper={column.type: _nullable(column.type)}.get)
        return column.to_pandas()

    def taken(self, found: Any, of: pa.DataType) -> pa.Array:
        try:
            return pa.array(found, of, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self.problem(f"has the result type {self.function.result}, but returned {shorten(found)}: {error}") from error


def _nullable(of: pa.DataType) -> Any:
    import pandas as pd

    return {8: pd.Int8Dtype, 16: pd.Int16Dtype, 32: pd.Int32Dtype, 64: pd.Int64Dtype}[of.bit_width]()


def _objects(argument: Datum, of: SqlType) -> Any:
    """The values of an argument as Python objects."""
    type = of.with_null().stream_type
    if isinstance(argument, pa.Array):
        return type.from_arrow(argument)
    return repeat(type.from_arrow(pa.array([argument.as_py()], argument.type))[0])
