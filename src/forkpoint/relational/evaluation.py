"""Evaluates expressions over the columns of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.errors import JobFailed
from forkpoint.relational.expressions import Call, Column, Expression, Item, Literal
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
        case Call(function, arguments, of):
            values = [_value(argument, columns) for argument in arguments]
            try:
                return _called(function, expression, values)
            except (pa.ArrowInvalid, ValueError) as error:
                raise JobFailed(f"{expression}: {error}") from error


def _called(name: str, call: Call, values: list[Datum]) -> Datum:
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
