"""Functions that make expressions, by PyFlink's names."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from forkpoint.table.api.expression import Expression, JsonOnNull, TimePointUnit, node_of
from forkpoint.table.api.nodes import ALL, ColumnRange, ColumnSet, Distance, Name, Sql, Value, called, infix
from forkpoint.table.data_types import DataType


def col(name: str) -> Expression:
    """A column."""
    return Expression(Name(name))


def lit(v: Any, data_type: DataType | None = None) -> Expression:
    """A value: numbers, texts, times, lists, dicts, Rows, None."""
    return Expression(Value(v, data_type))


def null_of(data_type: DataType) -> Expression:
    """NULL of a type."""
    return lit(None, data_type)


def call(f: Any, *args: Any) -> Expression:
    """A call of a function by its name in SQL, or of one made by ``udf()``."""
    return Expression(called(f, *map(node_of, args))) if isinstance(f, str) else f(*args)


def call_sql(sql_expression: str) -> Expression:
    """An expression in SQL."""
    return Expression(Sql((sql_expression,)))


def _called(name: str) -> Callable[..., Expression]:
    def function(*args: Any) -> Expression:
        return Expression(called(name, *(node_of(each) for each in args if each is not None)))

    function.__doc__ = f"``{name}(…)`` of SQL."
    return function


# -- conditions


def and_(predicate0: Any, predicate1: Any, *predicates: Any) -> Expression:
    """Whether all conditions are true."""
    return Expression(reduce(lambda one, other: infix(one, "AND", other), map(node_of, (predicate0, predicate1, *predicates))))


def or_(predicate0: Any, predicate1: Any, *predicates: Any) -> Expression:
    """Whether one of the conditions is true."""
    return Expression(reduce(lambda one, other: infix(one, "OR", other), map(node_of, (predicate0, predicate1, *predicates))))


def not_(expression: Any) -> Expression:
    """Whether a condition is false."""
    return Expression(Sql(("(NOT ", node_of(expression), ")")))


def if_then_else(condition: Any, if_true: Any, if_false: Any) -> Expression:
    """One value if the condition is true, else another."""
    return Expression(called("IF", node_of(condition), node_of(if_true), node_of(if_false)))


coalesce = _called("COALESCE")

# -- over windows

UNBOUNDED_ROW, UNBOUNDED_RANGE = Expression(Distance("ROWS", "UNBOUNDED")), Expression(Distance("RANGE", "UNBOUNDED"))
CURRENT_ROW, CURRENT_RANGE = Expression(Distance("ROWS", "CURRENT ROW")), Expression(Distance("RANGE", "CURRENT ROW"))


def row_interval(rows: int) -> Expression:
    """A number of rows, for a window."""
    return Expression(Distance("ROWS", str(int(rows))))


lag, lead = _called("LAG"), _called("LEAD")

# -- columns


def range_(start: str | int, end: str | int) -> Expression:
    """The columns from one to another, by name or by number, the first of which is 1."""
    return Expression(ColumnRange(start, end))


def with_all_columns() -> Expression:
    """All columns of the table."""
    return Expression(ALL)


def with_columns(head: Any, *tails: Any) -> Expression:
    """These columns: names, numbers and ranges."""
    return Expression(ColumnSet(tuple(map(node_of, (head, *tails))), without=False))


def without_columns(head: Any, *tails: Any) -> Expression:
    """All columns but these."""
    return Expression(ColumnSet(tuple(map(node_of, (head, *tails))), without=True))


# -- values and functions

concat, concat_ws = _called("CONCAT"), _called("CONCAT_WS")
pi, e, atan2 = _called("PI"), _called("E"), _called("ATAN2")
to_date, to_timestamp, to_timestamp_ltz = _called("TO_DATE"), _called("TO_TIMESTAMP"), _called("TO_TIMESTAMP_LTZ")
date_format, from_unixtime, unix_timestamp = _called("DATE_FORMAT"), _called("FROM_UNIXTIME"), _called("UNIX_TIMESTAMP")
convert_tz, map_from_arrays = _called("CONVERT_TZ"), _called("MAP_FROM_ARRAYS")
current_date, current_time, current_timestamp = _called("CURRENT_DATE"), _called("CURRENT_TIME"), _called("CURRENT_TIMESTAMP")
local_time, local_timestamp, current_watermark = _called("LOCALTIME"), _called("LOCALTIMESTAMP"), _called("CURRENT_WATERMARK")
current_database, source_watermark = _called("CURRENT_DATABASE"), _called("SOURCE_WATERMARK")
rand, rand_integer, uuid = _called("RAND"), _called("RAND_INTEGER"), _called("UUID")
json, json_string = _called("JSON"), _called("JSON_STRING")
row = _called("ROW")


def json_object(on_null: JsonOnNull, *args: Any) -> Expression:
    """A JSON object of keys, which are texts, and values in turn. ``on_null``: whether NULL is a value."""
    nodes = list(map(node_of, args))
    members = [Sql(("KEY ", key, " VALUE ", value)) for key, value in zip(nodes[::2], nodes[1::2], strict=True)]
    return Expression(called("JSON_OBJECT", *members, clauses=_on_null(on_null) if args else ()))


def json_array(on_null: JsonOnNull, *args: Any) -> Expression:
    """A JSON array. ``on_null``: whether NULL is a value."""
    return Expression(called("JSON_ARRAY", *map(node_of, args), clauses=_on_null(on_null) if args else ()))


def json_object_agg(on_null: JsonOnNull, key_expr: Any, value_expr: Any) -> Expression:
    """A JSON object of the keys and values of a group."""
    member = Sql(("KEY ", node_of(key_expr), " VALUE ", node_of(value_expr)))
    return Expression(called("JSON_OBJECTAGG", member, clauses=_on_null(on_null)))


def json_array_agg(on_null: JsonOnNull, item_expr: Any) -> Expression:
    """A JSON array of the values of a group."""
    return Expression(called("JSON_ARRAYAGG", node_of(item_expr), clauses=_on_null(on_null)))


def _on_null(on_null: JsonOnNull) -> tuple[str, ...]:
    return (f" {on_null.name} ON NULL",)


def negative(v: Any) -> Expression:
    """The number with the other sign."""
    return -Expression(node_of(v))


def log(v: Any, base: Any = None) -> Expression:
    """The logarithm, natural unless a base is given."""
    return Expression(node_of(v)).log(base)


def timestamp_diff(time_point_unit: TimePointUnit, time_point1: Any, time_point2: Any) -> Expression:
    """The whole units from one time to another."""
    return Expression(Sql((f"TIMESTAMPDIFF({time_point_unit.name}, ", node_of(time_point1), ", ", node_of(time_point2), ")")))


def array(head: Any, *tail: Any) -> Expression:
    """An ARRAY of these elements."""
    return Expression(Sql(("ARRAY[", *called("", node_of(head), *map(node_of, tail)).parts[1:-1], "]")))


def map_(key: Any, value: Any, *tail: Any) -> Expression:
    """A MAP of keys and values in turn."""
    return Expression(Sql(("MAP[", *called("", node_of(key), node_of(value), *map(node_of, tail)).parts[1:-1], "]")))
