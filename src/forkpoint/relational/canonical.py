"""The canonical form of plans: plans with the same meaning become equal.

Names of results, the order of conditions, keys and columns, unused columns, and projections in between do not enter it. So it
recognises a query's saved state after the query's text has changed. A stored plan is brought into the form of the running release
before it is compared.
"""

from __future__ import annotations

from collections.abc import Mapping

from forkpoint.relational.expressions import (
    COMMUTATIVE,
    Call,
    Column,
    Expression,
    Item,
    Literal,
    all_of,
    conjuncts_of,
    operands_of,
    replace_columns,
)
from forkpoint.relational.plan import Aggregate, AggregateCall, Plan, Scan, Select, Union, Window, key_name, window_columns
from forkpoint.relational.types import SqlType
from forkpoint.relational.windows import WindowColumn

Replacements = Mapping[str, Expression]
CANONICAL_NAMES = ("$window_start", "$window_end", "$window_time")


def canonical(plan: Plan) -> Plan:
    """The canonical form. Columns are named by the text of their expressions."""
    return canonical_with_columns(plan)[0]


def merged(plan: Plan) -> Plan:
    """The plan with successive projections and filters as one Select."""
    match plan:
        case Scan():
            return plan
        case Aggregate():
            return Aggregate(merged(plan.input), plan.keys, plan.calls)
        case Union():
            return Union(tuple(map(merged, plan.inputs)))
        case Window():
            return Window(merged(plan.input), plan.time, plan.windows, plan.names)
    below = merged(plan.input)
    if not isinstance(below, Select):
        return Select(below, plan.condition, plan.items)
    inner = {item.name: item.of for item in below.items}
    return Select(
        below.input,
        both(below.condition, replaced(plan.condition, inner)),
        tuple(Item(item.name, through(item.of, inner)) for item in plan.items),
    )


def both(one: Expression | None, other: Expression | None) -> Expression | None:
    """The condition that both conditions hold."""
    return all_of((*conjuncts_of(one), *conjuncts_of(other)))


def through(expression: Expression, by: Replacements) -> Expression:
    """The expression over other columns, in canonical form. Columns without a replacement stay: those of a canonical plan."""
    return normal(replace_columns(expression, lambda column: by.get(column.name, column)))


def normal(expression: Expression) -> Expression:
    """The expression with the arguments of commutative functions in the order of their texts."""
    if not isinstance(expression, Call):
        return expression
    arguments = list(map(normal, expression.arguments))
    if expression.function in ("AND", "OR"):
        operands = sorted(operands_of(expression.function, arguments), key=str)
        found = operands[0]
        for operand in operands[1:]:
            found = Call(expression.function, (found, operand), expression.type)
        return found
    if expression.function in COMMUTATIVE:
        arguments.sort(key=str)
    return Call(expression.function, tuple(arguments), expression.type)


def replaced(expression: Expression | None, by: Replacements) -> Expression | None:
    return None if expression is None else through(expression, by)


def canonical_with_columns(plan: Plan) -> tuple[Plan, Replacements]:
    """The canonical form, and its column for each column of the plan."""
    if isinstance(plan, Scan):
        return Scan(plan.table, ()), {field.name: Column(field.name, field.type) for field in plan.fields}
    if isinstance(plan, Aggregate):
        return _canonical_aggregate(plan)
    if isinstance(plan, Window):
        return _canonical_window(plan)
    if isinstance(plan, Union):
        return _canonical_union(plan), {field.name: Column(field.name, field.type) for field in plan.schema}
    plan = merged(plan)
    assert isinstance(plan, Select)
    below, columns = canonical_with_columns(plan.input)
    found = {item.name: through(item.of, columns) for item in plan.items}
    condition = all_of(conjuncts_of(replaced(plan.condition, columns)))
    items = {str(of): of for of in found.values()}
    select = Select(below, condition, tuple(Item(text, items[text]) for text in sorted(items)))
    return select, {name: Column(str(of), of.type) for name, of in found.items()}


def _canonical_aggregate(plan: Aggregate) -> tuple[Plan, Replacements]:
    """Keys and calls refer to the columns below a projection."""
    below, columns = _condition_only(plan.input)
    keys = {key.name: through(key.of, columns) for key in plan.keys}
    named = {name: _key_column(of, keys, below) for name, of in keys.items()}
    calls = {str(call): canonical_call(call, columns) for call in plan.calls}
    items = {str(of): of for name, of in keys.items() if isinstance(named[name], Column)}
    distinct = {str(call): call for call in calls.values()}
    found = Aggregate(
        below,
        tuple(Item(key_name(items[text]), items[text]) for text in sorted(items)),
        tuple(distinct[text] for text in sorted(distinct)),
    )
    return found, named | {name: Column(str(call), call.type) for name, call in calls.items()}


def _condition_only(plan: Plan) -> tuple[Plan, Replacements]:
    """The canonical form of an input whose projection the node above takes over; its condition remains, without items."""
    below = merged(plan)
    if not isinstance(below, Select):
        return canonical_with_columns(below)
    source, inner = canonical_with_columns(below.input)
    condition = all_of(conjuncts_of(replaced(below.condition, inner)))
    columns = {item.name: through(item.of, inner) for item in below.items}
    return source if condition is None else Select(source, condition, ()), columns


def _key_column(key: Expression, keys: Replacements, below: Plan) -> Expression:
    """The column of a key in the result. A window's event time is no key of its own beside the window's end."""
    windows = window_columns(below)
    found = windows.get(key.name) if isinstance(key, Column) else None
    if found is not None and found.role == "time":
        for other in keys.values():
            if isinstance(other, Column) and windows.get(other.name) == WindowColumn("end", found.of):
                return last_moment(Column(key_name(other), other.type), key.type)
    return Column(key_name(key), key.type)


def last_moment(end: Expression, of: SqlType) -> Expression:
    """The last millisecond of a window that ends then."""
    found = Call("PLUS MICROSECONDS", (end, Literal(-1000, SqlType("BIGINT", nullable=False))), end.type)
    return found if of == end.type else Call("CAST", (found,), of)


def _canonical_window(plan: Window) -> tuple[Plan, Replacements]:
    """The window's columns have names that no column of a table has; the others are those below a projection."""
    below, columns = _condition_only(plan.input)
    found = Window(below, through(plan.time, columns), plan.windows, CANONICAL_NAMES)
    added = zip(plan.names, found.added, strict=True)
    return found, {**columns, **{name: Column(field.name, field.type) for name, field in added}}


def _canonical_union(plan: Union) -> Union:
    """Each input is a Select with the union's columns, by position."""
    inputs = []
    for each in plan.inputs:
        source, columns = canonical_with_columns(each)
        condition: Expression | None = None
        if isinstance(source, Select):
            inner = {item.name: item.of for item in source.items}
            condition, source = source.condition, source.input
            columns = {name: through(of, inner) for name, of in columns.items()}
        pairs = zip(plan.schema, each.schema, strict=True)
        inputs.append(Select(source, condition, tuple(Item(field.name, columns[own.name]) for field, own in pairs)))
    return Union(tuple(sorted(inputs, key=repr)))


def canonical_call(call: AggregateCall, columns: Replacements) -> AggregateCall:
    condition = all_of(conjuncts_of(replaced(call.condition, columns)))
    return AggregateCall(call.function, replaced(call.argument, columns), condition, call.type, call.distinct)
