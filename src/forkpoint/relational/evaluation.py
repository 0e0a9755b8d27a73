"""Evaluates expressions over the columns of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.errors import JobFailed
from forkpoint.relational.expressions import Call, Column, Expression, Item, Literal, operands_of
from forkpoint.relational.functions import FUNCTIONS, Datum, broadcast, cast


def evaluate(expression: Expression, columns: pa.RecordBatch) -> pa.Array:
    """The expression's value for each row. Raises JobFailed for a value for which a function has no result."""
    return broadcast(_value(expression, columns), columns.num_rows)


def evaluate_all(items: Sequence[Item], columns: pa.RecordBatch) -> list[pa.Array]:
    return [evaluate(item.of, columns) for item in items]


def true_rows(condition: Expression | None, columns: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
    """The rows for which a condition is true, neither false nor NULL; None for all rows."""
    if condition is None:
        return None
    found = evaluate(condition, columns).fill_null(False).to_numpy(zero_copy_only=False)
    return None if found.all() else np.flatnonzero(found)


def _value(expression: Expression, columns: pa.RecordBatch) -> Datum:
    match expression:
        case Column(name):
            return columns.column(name)
        case Literal(type=of):
            return pa.scalar(expression.python_value, of.arrow_type)
        case Call(function):
            try:
                return _called(expression, [_value(argument, columns) for argument in expression.arguments])
            except JobFailed:
                # Rows that a condition excludes need no value, such as the quotient in CASE WHEN v <> 0 THEN 1 / v END.
                if function in ("AND", "OR"):
                    return _connected(expression, columns)
                if function in ("CASE", "IF"):
                    return _branches(expression, columns)
                raise


def _called(call: Call, values: list[Datum]) -> Datum:
    try:
        return _result(call, values)
    except (pa.ArrowInvalid, ValueError) as error:
        raise JobFailed(f"{call}: {error}") from error


def _result(call: Call, values: list[Datum]) -> Datum:
    name = call.function
    if name in ("CAST", "TRY_CAST"):
        return cast(values[0], call.type, failing_null=name == "TRY_CAST")
    function = FUNCTIONS[name]
    operands = function.operands([argument.type for argument in call.arguments])
    if operands is not None:
        values = [value if value.type == operands.arrow_type else value.cast(operands.arrow_type) for value in values]
    elif name in ("CASE", "IF"):
        branches = call.type.arrow_type
        last = len(values) - 1
        values = [v if i % 2 == 0 and i != last else v.cast(branches) for i, v in enumerate(values)]
    return function.kernel(*values)


def _connected(call: Call, columns: pa.RecordBatch) -> pa.Array:
    """AND or OR, whose operands are each evaluated for the rows that the others leave open, in an order that succeeds."""
    decides, kernel = call.function == "OR", FUNCTIONS[call.function].kernel
    found = pa.repeat(pa.scalar(not decides), columns.num_rows)
    pending, failure = operands_of(call.function, call.arguments), JobFailed(str(call))
    while pending:
        postponed = []
        for operand in pending:
            open_rows = np.flatnonzero(pc.fill_null(pc.not_equal(found, decides), True).to_numpy(zero_copy_only=False))
            try:
                part = evaluate(operand, columns.take(pa.array(open_rows))).cast(pa.bool_())
            except JobFailed as error:
                postponed.append(operand)
                failure = error
            else:
                found = _scattered(kernel(found.take(pa.array(open_rows)), part), open_rows, found)
        if len(postponed) == len(pending):
            raise failure
        pending = postponed
    return found


def _branches(call: Call, columns: pa.RecordBatch) -> pa.Array:
    """CASE or IF, whose parts are each evaluated for the rows that need them."""
    *parts, default = call.arguments
    found, rows = pa.nulls(columns.num_rows, call.type.arrow_type), np.arange(columns.num_rows)
    for condition, value in zip(parts[::2], parts[1::2], strict=True):
        of_rows = columns.take(pa.array(rows))
        chosen = evaluate(condition, of_rows).cast(pa.bool_()).fill_null(False).to_numpy(zero_copy_only=False)
        found = _scattered(_as(value, call, of_rows.filter(pa.array(chosen))), rows[chosen], found)
        rows = rows[~chosen]
    return _scattered(_as(default, call, columns.take(pa.array(rows))), rows, found)


def _as(value: Expression, call: Call, columns: pa.RecordBatch) -> pa.Array:
    return evaluate(value, columns).cast(call.type.arrow_type)


def _scattered(values: pa.Array, rows: npt.NDArray[np.int64], into: pa.Array) -> pa.Array:
    """``into`` with these values at these rows."""
    at = np.arange(len(into))
    at[rows] = len(into) + np.arange(len(rows))
    return pa.concat_arrays([into, values]).take(pa.array(at))
