"""Binds temporal joins: ``JOIN t FOR SYSTEM_TIME AS OF o.ts`` reads the version of a row that was valid at a time.

If that time is PROCTIME(), it is a lookup join.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from sqlglot import exp

from forkpoint.relational.canonical import merged
from forkpoint.relational.event_time import is_processing_time, rowtimes, why_not_rowtime
from forkpoint.relational.expressions import (
    Call,
    Column,
    Expression,
    Item,
    Literal,
    all_of,
    columns_of,
    conjuncts_of,
    items_of,
    replace_columns,
)
from forkpoint.relational.plan import LEFT, RIGHT, AsOf, Join, Over, Plan, Scan, Select, is_updating, unwrapped
from forkpoint.relational.types import common_type
from forkpoint.sql.binding.expressions import Binder

_EXAMPLE = "PRIMARY KEY (k) NOT ENFORCED and WATERMARK FOR ts AS ts"


def temporal(join: Join, version: Any, binder: Binder) -> Join:
    """The join as a temporal one. ``version``: FOR SYSTEM_TIME. Raises SqlError."""
    if str(version.args.get("kind")).upper() != "AS OF" or str(version.this).upper() != "TIMESTAMP":
        raise binder.error(version, "FOR SYSTEM_TIME takes AS OF, and a time of the table before it")
    if join.kind not in ("inner", "left"):
        raise binder.error(version, f"a temporal join is a JOIN or a LEFT JOIN, not {join.kind.upper()}")
    time = binder.bind(version.expression)
    if not (isinstance(time, Column) and time.name.startswith(LEFT)):
        problem = "FOR SYSTEM_TIME AS OF takes a column of the table before it: its event time, or a PROCTIME()"
        raise binder.error(version.expression, problem)
    name = time.name.removeprefix(LEFT)
    if is_processing_time(join.left, name):
        return _lookup(join, version, binder)
    if name not in rowtimes(join.left):
        raise binder.error(version.expression, f"column {name!r} is not event time: {why_not_rowtime(join.left, name)}")
    if is_updating(join.left):
        raise binder.error(version.expression, "a temporal join takes rows that are only added, but those before it also change")
    found = _versions(join.right)
    if isinstance(found, str):
        raise binder.error(
            version, f"FOR SYSTEM_TIME needs a table with {_EXAMPLE}, or a view of the latest row of each key: {found}"
        )
    plan, key, of = found
    if of.type.name != time.type.name:
        raise binder.error(version.expression, f"the times of both tables need one type, not {time.type.name} and {of.type.name}")
    join = _keyed(replace(join, right=plan, as_of=AsOf(Column(name, time.type), of)), {each.name for each in key})
    missing = [each.name for each in key if each.name not in [str(other) for _, other in join.keys]]
    if missing:
        raise binder.error(version, f"ON must compare the primary key of the table by =; it lacks {', '.join(missing)}")
    return join


def _lookup(join: Join, version: Any, binder: Binder) -> Join:
    """The join with the rows that a table has at the time at which a row is processed."""
    if is_updating(join.left):
        raise binder.error(
            version.expression,
            "a lookup join takes rows that are only added: what it finds for a row that is removed may differ from what it found "
            "when the row was added",
        )
    found = merged(join.right)
    select = found if isinstance(found, Select) else Select(found, None, items_of(found.schema))
    if not (isinstance(select.input, Scan) and select.condition is None):
        raise binder.error(
            version, "a lookup join reads a table by a key; for the result of a query, join without FOR SYSTEM_TIME"
        )
    join = _keyed(replace(join, lookup=True), {item.name for item in select.items if isinstance(item.of, Column)})
    if not join.keys:
        raise binder.error(version, "ON must compare a column of the table by =, by which its rows are looked up")
    return join


def _keyed(join: Join, columns: set[str]) -> Join:
    """The join with keys in place of the equations of its condition with these columns of the right side."""
    keys: dict[str, tuple[Expression, Expression]] = {}
    rest = []
    for condition in conjuncts_of(join.condition):
        pair = _equation(condition)
        if pair is not None and str(pair[1]) in columns - keys.keys():
            keys[str(pair[1])] = pair
        else:
            rest.append(condition)
    return replace(join, condition=all_of(tuple(rest)), keys=tuple(keys.values()))


def _equation(condition: Expression) -> tuple[Expression, Column] | None:
    """What an equation compares a right column with, an expression over the left input in the column's type."""
    if not (isinstance(condition, Call) and condition.function == "="):
        return None
    for column, other in (condition.arguments, condition.arguments[::-1]):
        if isinstance(column, Column) and column.name.startswith(RIGHT) and _reads_left(other):
            common = common_type([column.type, other.type])
            if common is not None and common.same_values(column.type):
                left = replace_columns(other, lambda each: Column(each.name.removeprefix(LEFT), each.type))
                if not column.type.same_values(other.type):
                    left = Call("CAST", (left,), column.type.with_null(other.type.nullable))
                return left, Column(column.name.removeprefix(RIGHT), column.type)
    return None


def _reads_left(expression: Expression) -> bool:
    return {column.name.startswith(LEFT) for column in columns_of(expression)} == {True}


def _versions(plan: Plan) -> tuple[Plan, tuple[Column, ...], Column] | str:
    """The rows that are the versions of a table, the columns of their key, and their event time; or why it has none."""
    found = merged(plan)
    select = found if isinstance(found, Select) else Select(found, None, items_of(found.schema))
    below, items = select.input, select.items
    match below:
        case Scan(key=(), table=table):
            return f"table {table!r} has no primary key"
        case Scan(rowtime=None, table=table):
            return f"table {table!r} has no watermark"
        case Scan(rowtime=rowtime) if select.condition is None and rowtime is not None:
            read: Plan = replace(below, versions=True)
            keys: list[Expression] = [Column(field.name, field.type) for field in below.schema if field.name in below.key]
            return _named(Select(read, None, items), keys, rowtime)
        case Over(input=read, partition=partition, order=(order,), calls=(call,)) if call.function == "ROW_NUMBER":
            number = below.name_of(call)
            time = unwrapped(order.of)
            if not (order.descending and isinstance(time, Column) and time.name in rowtimes(read)) or is_updating(read):
                return "ROW_NUMBER is over PARTITION BY the key ORDER BY the event time DESC"
            if select.condition is None or not _is_first(select.condition, number):
                return "its condition is that ROW_NUMBER is 1, and nothing else"
            first = Literal(1, call.type)
            items = tuple(
                Item(item.name, replace_columns(item.of, lambda column: first if column.name == number else column))
                for item in items
            )
            return _named(Select(read, None, items), list(partition), time)
    return "rows of other queries and filters have no versions"


def _named(plan: Select, keys: list[Expression], time: Expression) -> tuple[Plan, tuple[Column, ...], Column] | str:
    """The columns that are the key and the time."""
    names = {str(unwrapped(item.of)): Column(item.name, item.of.type) for item in reversed(plan.items)}
    lost = [str(each) for each in (*keys, time) if str(each) not in names]
    if lost:
        return f"the view leaves out {', '.join(lost)}"
    return plan, tuple(names[str(each)] for each in keys), names[str(time)]


def _is_first(condition: Expression, number: str) -> bool:
    match condition:
        case Call("=", (Column(name), Literal(value=1)) | (Literal(value=1), Column(name))):
            return name == number
        case Call("<=", (Column(name), Literal(value=1))) | Call("<", (Column(name), Literal(value=2))):
            return name == number
    return False


def is_version(table: Any) -> bool:
    """Whether a table in FROM is one FOR SYSTEM_TIME."""
    return isinstance(table, exp.Table) and table.args.get("version") is not None
