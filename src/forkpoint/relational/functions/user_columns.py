"""Runs a user's functions over columns: row by row, or over pandas or Arrow columns."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.errors import TypeNotSupported, UserFunctionError
from forkpoint.relational.expressions import Call
from forkpoint.relational.functions.registry import Datum, broadcast
from forkpoint.relational.functions.user import Form, UserFunction
from forkpoint.relational.types import SqlType
from forkpoint.runtime.operators.base import NOT_USERS, shorten, user_failure
from forkpoint.types import Row

_MANY = 100  # rows, from which on it pays off to look for equal arguments
_EXACT = ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "STRING", "BYTES", "DATE", "DECIMAL")
_DIGITS = decimal.Context(prec=76, rounding=decimal.ROUND_HALF_UP)


@dataclass(frozen=True)
class Opened:
    """A function on one subtask. ``uid``: of the operator that calls it."""

    function: UserFunction
    uid: str

    def failure(self, error: BaseException, arguments: str) -> BaseException:
        return user_failure(self.uid, error, arguments, f"function {self.function.name}")

    def problem(self, problem: str) -> UserFunctionError:
        return UserFunctionError(f"operator {self.uid!r}: function {self.function.name} {problem}")

    def converted(self, found: list[Any], of: SqlType, what: str = "result") -> pa.Array:
        """Python's values as a column."""
        if of.name == "DECIMAL" and of.digits is not msgspec.UNSET:
            unit = decimal.Decimal(1).scaleb(-of.digits[1])
            found = [each.quantize(unit, context=_DIGITS) if isinstance(each, decimal.Decimal) else each for each in found]
        try:
            return of.stream_type.to_arrow(found)
        except TypeNotSupported as error:
            raise self.problem(f"has the {what} type {of}, but returned {error}") from error


class General(Opened):
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
        if self.function.kind == "table":
            evaluate = _rows_of(evaluate)
        try:
            for row, _ in zip(given, range(rows), strict=False):
                add(evaluate(*row))
        except NOT_USERS:
            raise
        except BaseException as error:
            raise self.failure(error, f"arguments {shorten(row)}") from error
        return self.converted(found, call.type)


def _rows_of(evaluate: Callable[..., Any]) -> Callable[..., list[Any]]:
    """A table function that returns the list of its rows."""

    def rows(*arguments: Any) -> list[Any]:
        found = evaluate(*arguments)
        if not isinstance(found, list | range | Iterator):
            found = () if found is None else (found,)
        return [each if isinstance(each, tuple | Row) else (each,) for each in found]

    return rows


class OfColumns(Opened):
    """Once for all rows, with pyarrow's arrays, or with pandas.Series."""

    def __call__(self, call: Call, arguments: Sequence[Datum], rows: int) -> pa.Array:
        given = [column_given(broadcast(each, rows), self.function.form) for each in arguments]
        try:
            found = self.function.body.eval(*given)
        except NOT_USERS:
            raise
        except BaseException as error:
            raise self.failure(error, f"{rows} rows") from error
        return self._checked(self._taken(found, call.type.arrow_type), call.type, rows)

    @property
    def _called(self) -> str:
        """The function in PyFlink's messages."""
        return f"{self.function.form.capitalize()} UDF {self.function.name!r}"

    def _taken(self, found: Any, of: pa.DataType) -> pa.Array | pa.ChunkedArray:
        if self.function.form == "arrow":
            if not isinstance(found, pa.Array | pa.ChunkedArray):
                raise self.problem(f"must return an Arrow array, not {shorten(found)}")
            return found
        if isinstance(found, str) or not hasattr(found, "__len__"):
            raise UserFunctionError(
                f"operator {self.uid!r}: The result type of {self._called} must be pandas.Series or pandas.DataFrame, got "
                f"{type(found)}"
            )
        try:
            return column_taken(found, of)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self.problem(f"has the result type {self.function.result}, but returned {shorten(found)}: {error}") from error

    def _checked(self, found: pa.Array | pa.ChunkedArray, of: SqlType, rows: int) -> pa.Array:
        if len(found) != rows:
            raise UserFunctionError(
                f"operator {self.uid!r}: The result length '{len(found)}' of {self._called} is not equal to the input length "
                f"'{rows}'"
            )
        column = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
        try:
            column = pc.cast(column, of.arrow_type)
        except pa.ArrowException as error:
            raise self.problem(f"has the result type {of}, but returned {column.type}: {error}") from error
        if column.null_count and not of.nullable:
            raise self.problem(f"has the result type {of}, but returned NULL")
        return column


def column_given(column: pa.Array, form: Form) -> Any:
    """A column as a function gets it; for pandas, a ROW is a DataFrame of its fields."""
    if form == "arrow":
        return column
    if pa.types.is_struct(column.type):
        import pandas as pd

        names = [field.name for field in column.type]
        return pd.DataFrame({name: column_given(part, form) for name, part in zip(names, column.flatten(), strict=True)})
    if column.null_count and pa.types.is_integer(column.type):  # as floats, large ones would lose digits
        return column.to_pandas(types_mapper={column.type: _nullable(column.type)}.get)
    return column.to_pandas()


def column_taken(found: Any, of: pa.DataType) -> pa.Array:
    """A Series, or what has as many values, as a column; a DataFrame is a ROW with the columns as fields, by position."""
    if not hasattr(found, "columns"):
        return pa.array(found, of, from_pandas=True)
    if not pa.types.is_struct(of) or len(found.columns) != of.num_fields:
        raise ValueError(f"a DataFrame with {len(found.columns)} columns")
    parts = [column_taken(found.iloc[:, at], field.type) for at, field in enumerate(of)]
    return pa.StructArray.from_arrays(parts, fields=list(of))


def _nullable(of: pa.DataType) -> Any:
    import pandas as pd

    return {8: pd.Int8Dtype, 16: pd.Int16Dtype, 32: pd.Int32Dtype, 64: pd.Int64Dtype}[of.bit_width]()


def _objects(argument: Datum, of: SqlType) -> Iterable[Any]:
    """The values of an argument as Python objects."""
    if isinstance(argument, pa.Array):
        return objects_of(argument, of)
    return repeat(objects_of(pa.array([argument.as_py()], argument.type), of)[0])


def objects_of(column: pa.Array, of: SqlType) -> list[Any]:
    """The values of a column as Python objects."""
    return of.with_null().stream_type.from_arrow(column)
