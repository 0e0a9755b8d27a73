"""Evaluates expressions over the columns of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.errors import JobFailed
from forkpoint.relational.expressions import Call, Column, Expression, Item, Literal, columns_of, operands_of, path_of
from forkpoint.relational.functions import FUNCTIONS, Datum, broadcast, cast
from forkpoint.relational.functions.casts import only_null
from forkpoint.relational.functions.decimals import decimal_to, rescaled
from forkpoint.relational.functions.nested import part_type, with_parts
from forkpoint.relational.functions.user import called, calls_in, is_user, taken
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
    found = is_true(condition, columns)
    return None if found.all() else np.flatnonzero(found)


def is_true(condition: Expression, columns: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Of each row, whether a condition is true, neither false nor NULL."""
    found: npt.NDArray[np.bool_] = evaluate(condition, columns).fill_null(False).to_numpy(zero_copy_only=False)
    return found


def _value(expression: Expression, columns: pa.RecordBatch) -> Datum:
    match expression:
        case Column(name):
            return columns.column(name)
        case Call("FIELD") if (field := _kept_field(expression, columns)) is not None:
            return columns.column(field)
        case Literal(type=of):
            return pa.scalar(expression.python_value, of.arrow_type)
        case Call(function):
            if function in _GUARDING and columns.num_columns and any(calls_in(expression)):
                return _GUARDING[function](expression, columns)
            try:
                return _called(expression, columns)
            except JobFailed:
                # Rows that a condition excludes need no value, such as the quotient in CASE WHEN v <> 0 THEN 1 / v END.
                if function not in _GUARDING or not columns.num_columns:
                    raise
                return _GUARDING[function](expression, columns)


def _kept_field(field: Call, columns: pa.RecordBatch) -> str | None:
    """The column that has a field of a ROW, where the ROW itself is not there."""
    names, name = columns.schema.names, path_of(field)
    return name if name in names and next(columns_of(field)).name not in names else None


def column_named(name: str, columns: pa.RecordBatch) -> pa.Array:
    """A column, or ``row.field``, the field of a column that is a ROW."""
    if name in columns.schema.names:
        return columns.column(name)
    row, _, field = name.rpartition(".")
    of = column_named(row, columns)
    return of.flatten()[of.type.get_field_index(field)]


def _called(call: Call, columns: pa.RecordBatch) -> Datum:
    if is_user(call.function):
        return called(call, lambda: [_value(argument, columns) for argument in call.arguments], columns)
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
        raise JobFailed(str(error) if call.function == "NOT NULL" else f"{call}: {error}") from error


def _converted(value: Datum, to: pa.DataType) -> Datum:
    if value.type == to:
        return value
    if pa.types.is_nested(to):
        return with_parts(value, to, lambda part, at: _converted(part, part_type(to, at)))
    if pa.types.is_decimal(to):
        return rescaled(value, to)
    if pa.types.is_decimal(value.type):
        return decimal_to(value, to)
    if pa.types.is_duration(to) and pa.types.is_string(value.type):
        return only_null(value, to)
    # Large integers lose digits as DOUBLE; that is no error.
    return pc.cast(value, options=pc.CastOptions(to, allow_float_truncate=True))


# -- only the rows that need a value -----------------------------------------------------------------------------------


def _connected(call: Call, columns: pa.RecordBatch) -> pa.Array:
    """AND or OR, whose operands are each evaluated for the rows that the others leave open, in an order that succeeds; a user's
    functions last."""
    decides, kernel = call.function == "OR", FUNCTIONS[call.function].kernel
    found = pa.repeat(pa.scalar(not decides), columns.num_rows)
    pending = sorted(operands_of(call.function, call.arguments), key=lambda operand: any(calls_in(operand)))
    failure = JobFailed(str(call))
    while pending:
        postponed = []
        for operand in pending:
            open_rows = np.flatnonzero(pc.fill_null(pc.not_equal(found, decides), True).to_numpy(zero_copy_only=False))
            try:
                of_rows = columns if len(open_rows) == columns.num_rows else taken(columns, pa.array(open_rows))
                part = evaluate(operand, of_rows).cast(pa.bool_())
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
        of_rows = taken(columns, pa.array(rows))
        chosen = evaluate(condition, of_rows).cast(pa.bool_()).fill_null(False).to_numpy(zero_copy_only=False)
        values = evaluate(value, taken(of_rows, pa.array(np.flatnonzero(chosen))))
        found = _scattered(_converted(values, call.type.arrow_type), rows[chosen], found)
        rows = rows[~chosen]
    values = evaluate(default, taken(columns, pa.array(rows)))
    return _scattered(_converted(values, call.type.arrow_type), rows, found)


def _first_value(call: Call, columns: pa.RecordBatch) -> pa.Array:
    """COALESCE as CASE."""
    *firsts, last = call.arguments
    parts = [part for first in firsts for part in (Call("IS NOT NULL", (first,), BOOLEAN), first)]
    return _branches(Call("CASE", (*parts, last), call.type), columns)


def _scattered(values: pa.Array, rows: npt.NDArray[np.int64], into: pa.Array) -> pa.Array:
    """``into`` with these values at these rows."""
    at = np.arange(len(into))
    at[rows] = len(into) + np.arange(len(rows))
    return pa.concat_arrays([into, values]).take(pa.array(at))


_GUARDING = {
    "CASE": _branches,
    "IF": _branches,
    "COALESCE": _first_value,
    "IFNULL": _first_value,
    "AND": _connected,
    "OR": _connected,
}
