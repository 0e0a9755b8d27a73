"""Evaluates an expression for single rows, for conditions that are asked of one row at a time.

Comparisons, logic and arithmetic of DOUBLE become Python closures; all else is evaluated over columns of one row.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from forkpoint.relational.evaluation import evaluate
from forkpoint.relational.expressions import Call, Column, Expression, Literal
from forkpoint.relational.types import SqlType

Row = Mapping[str, Any]
Scalar = Callable[[Row], Any]
"""The value for a row by the names of its columns; None is NULL."""

_COMPARISONS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def scalar(expression: Expression, columns: Sequence[Column]) -> Scalar:
    """``columns``: which a row has."""
    found = _closure(expression)
    if found is not None:
        return found
    types = {column.name: column.type for column in columns}

    def over_columns(row: Row) -> Any:
        table = pa.RecordBatch.from_arrays([column_of([row[name]], of) for name, of in types.items()], names=list(types))
        return value_of(evaluate(expression, table), expression.type)

    return over_columns


def column_of(values: Sequence[Any], of: SqlType) -> pa.Array:
    """The values of rows as a column."""
    return of.with_null().stream_type.to_arrow(values) if of.is_nested else pa.array(values, of.arrow_type)


def value_of(column: pa.Array, of: SqlType) -> Any:
    """The only value of a column, as rows have it."""
    return of.with_null().stream_type.from_arrow(column)[0] if of.is_nested else column[0].as_py()


def _closure(expression: Expression) -> Scalar | None:
    match expression:
        case Column(name):
            return operator.itemgetter(name)
        case Literal():
            value = expression.python_value
            return lambda _: value
        case Call(function, (left, right)) if function in _COMPARISONS and _comparable(left, right):
            return _strict(_COMPARISONS[function], _closure(left), _closure(right))
        case Call(function, (left, right)) if function in _ARITHMETIC and expression.type.name == "DOUBLE":
            return _strict(_ARITHMETIC[function], _closure(left), _closure(right))
        case Call("AND", (left, right)):
            return _logical(False, _closure(left), _closure(right))
        case Call("OR", (left, right)):
            return _logical(True, _closure(left), _closure(right))
        case Call("NOT", (of,)):
            inner = _closure(of)
            return None if inner is None else lambda row: None if (value := inner(row)) is None else not value
        case Call("IS NULL", (of,)):
            return _of_null(_closure(of), is_null=True)
        case Call("IS NOT NULL", (of,)):
            return _of_null(_closure(of), is_null=False)
    return None


def _of_null(of: Scalar | None, *, is_null: bool) -> Scalar | None:
    return None if of is None else lambda row: (of(row) is None) is is_null


def _comparable(left: Expression, right: Expression) -> bool:
    """Whether Python compares values of these types as SQL does."""
    one, other = left.type, right.type
    return (one.name == other.name and one.name in ("INT", "BIGINT", "SMALLINT", "TINYINT", "STRING", "BOOLEAN", "DATE")) or (
        one.is_integer and other.is_integer
    )


def _strict(of: Callable[[Any, Any], Any], left: Scalar | None, right: Scalar | None) -> Scalar | None:
    """NULL if one of the operands is."""
    if left is None or right is None:
        return None

    def value(row: Row) -> Any:
        one, other = left(row), right(row)
        return None if one is None or other is None else of(one, other)

    return value


def _logical(decisive: bool, left: Scalar | None, right: Scalar | None) -> Scalar | None:
    """AND (False is decisive) or OR (True is)."""
    if left is None or right is None:
        return None

    def value(row: Row) -> Any:
        one = left(row)
        if one is decisive:
            return decisive
        other = right(row)
        return decisive if other is decisive else None if one is None or other is None else not decisive

    return value
