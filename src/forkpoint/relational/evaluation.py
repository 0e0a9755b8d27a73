"""Evaluates expressions over the columns of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.errors import JobFailed
from forkpoint.relational.expressions import Call, Column, Expression, Item, Literal
from forkpoint.relational.functions import FUNCTIONS, Datum, broadcast, cast
from forkpoint.relational.types import BOOLEAN


def evaluate(expression: Expression, columns: pa.RecordBatch) -> pa.Array:
    """The expression's value for each row. Raises JobFailed for a value for which a function has no result."""
    if not columns.num_rows:
        return pa.array([], expression.type.arrow_type)
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
                return _called(expression, columns)
            except JobFailed:
                # Another branch may guard the one that failed: CASE WHEN v <> 0 THEN 10 / v END.
                if function not in _LAZY or not columns.num_columns:
                    raise
                return _LAZY[function](expression, columns)


def _called(call: Call, columns: pa.RecordBatch) -> Datum:
    values = [_value(argument, columns) for argument in call.arguments]
    try:
        if call.function in ("CAST", "TRY_CAST"):
            return cast(values[0], call.type, failing_null=call.function == "TRY_CAST")
        function = FUNCTIONS[call.function]
        operands = function.operands([argument.type for argument in call.arguments])
        if operands is not None:
            values = [_converted(value, operands.arrow_type) for value in values]
        elif call.function in ("CASE", "IF"):
            last = len(values) - 1
            values = [v if i % 2 == 0 and i != last else _converted(v, call.type.arrow_type) for i, v in enumerate(values)]
        return _converted(function.kernel(*values), call.type.arrow_type)
    except (pa.ArrowInvalid, ValueError, OverflowError) as error:
        raise JobFailed(f"{call}: {error}") from error


def _converted(value: Datum, to: pa.DataType) -> Datum:
    # Large integers lose digits as DOUBLE; that is no error.
    return value if value.type == to else pc.cast(value, options=pc.CastOptions(to, allow_float_truncate=True))


# -- only the rows that a branch is for --------------------------------------------------------------------------------


def _lazy_case(call: Call, columns: pa.RecordBatch) -> pa.Array:
    *branches, default = call.arguments
    rows = np.arange(columns.num_rows)
    parts: list[tuple[npt.NDArray[np.int64], pa.Array]] = []
    for condition, value in zip(branches[::2], branches[1::2], strict=True):
        pending = columns.take(pa.array(rows))
        found = evaluate(condition, pending).cast(pa.bool_()).fill_null(False).to_numpy(zero_copy_only=False)
        parts.append((rows[found], evaluate(value, columns.take(pa.array(rows[found])))))
        rows = rows[~found]
    parts.append((rows, evaluate(default, columns.take(pa.array(rows)))))
    order = np.argsort(np.concatenate([part for part, _ in parts]))
    values = pa.concat_arrays([_converted(value, call.type.arrow_type) for _, value in parts])
    return values.take(pa.array(order))


def _lazy_coalesce(call: Call, columns: pa.RecordBatch) -> pa.Array:
    *firsts, last = call.arguments
    parts = [part for first in firsts for part in (Call("IS NOT NULL", (first,), BOOLEAN), first)]
    return _lazy_case(Call("CASE", (*parts, last), call.type), columns)


def _lazy_logic(call: Call, columns: pa.RecordBatch) -> pa.Array:
    """The order of conditions means nothing: either may guard the other."""
    left, right = call.arguments
    try:
        return _decided_by(left, right, call, columns)
    except JobFailed:
        return _decided_by(right, left, call, columns)


def _decided_by(first: Expression, second: Expression, call: Call, columns: pa.RecordBatch) -> pa.Array:
    found, other = ("IS TRUE", "IS FALSE") if call.function == "OR" else ("IS FALSE", "IS TRUE")
    decided, unknown = Literal(call.function == "OR", BOOLEAN), Literal(None, BOOLEAN)
    branches = (Call(found, (first,), BOOLEAN), decided, Call(other, (first,), BOOLEAN), second)
    return _lazy_case(Call("CASE", (*branches, Call(found, (second,), BOOLEAN), decided, unknown), call.type), columns)


_LAZY = {
    "CASE": _lazy_case,
    "IF": _lazy_case,
    "COALESCE": _lazy_coalesce,
    "IFNULL": _lazy_coalesce,
    "AND": _lazy_logic,
    "OR": _lazy_logic,
}
