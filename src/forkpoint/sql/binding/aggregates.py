"""Binds calls of aggregate functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from forkpoint.relational.aggregation.accumulators import AGGREGATES, listed
from forkpoint.relational.aggregation.collected import PERCENTILE
from forkpoint.relational.calls import AggregateCall
from forkpoint.relational.expressions import Call, Column, Expression, Literal, all_of
from forkpoint.relational.functions.user import UserFunction
from forkpoint.relational.precision import converted
from forkpoint.relational.types import BIGINT, BOOLEAN, DOUBLE, SqlType, array_type
from forkpoint.sql.binding.grouping import GROUPING
from forkpoint.sql.binding.json import json_elements, present_only, where_true
from forkpoint.sql.tokens import called_name

if TYPE_CHECKING:
    from forkpoint.sql.binding.expressions import Binder

    Node = Any

_NAMES: Mapping[type, str] = {
    exp.Count: "COUNT",
    exp.Sum: "SUM",
    exp.Avg: "AVG",
    exp.Min: "MIN",
    exp.Max: "MAX",
    exp.StddevPop: "STDDEV_POP",
    exp.StddevSamp: "STDDEV_SAMP",
    exp.Stddev: "STDDEV_SAMP",
    exp.VariancePop: "VAR_POP",
    exp.Variance: "VAR_SAMP",
    exp.FirstValue: "FIRST_VALUE",
    exp.LastValue: "LAST_VALUE",
    exp.ArrayAgg: "ARRAY_AGG",
    exp.JSONObjectAgg: "JSON_OBJECTAGG",
}
_UNKNOWN_TO_SQLGLOT = ("LISTAGG", "SUM0", "COLLECT", "JSON_ARRAYAGG", PERCENTILE)
_OF_DISTINCT = ("COUNT", "SUM", "AVG", "ARRAY_AGG", "COLLECT")
_SAME_IF_DISTINCT = ("MIN", "MAX", "FIRST_VALUE", "LAST_VALUE")


def is_aggregate(node: Node) -> bool:
    if isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
        return isinstance(node.this, exp.ArrayAgg)
    return isinstance(node, exp.Filter | exp.AggFunc) or aggregate_name(node) in _UNKNOWN_TO_SQLGLOT


def bind_aggregate(binder: Binder, node: Node) -> Expression:
    """The column of an aggregate, which the binder's query computes. Raises SqlError."""
    call = node.this if isinstance(node, exp.Filter) else node
    if isinstance(call, exp.Grouping | exp.GroupingId) and binder.aggregates is not None:
        if node.parent_select.args.get("group") is None:
            raise binder.error(call, "GROUPING needs GROUP BY")
        grouping = Call(GROUPING, tuple(map(binder.inside(GROUPING).bind, call.expressions)), BIGINT.with_null(False))
        binder.offsets.setdefault(str(grouping), binder.at(node))
        return grouping
    found = aggregate_call(binder, node, binder.inside("an aggregate"))
    if binder.aggregates is None:
        raise binder.error(call, f"an aggregate ({found.function}) is not allowed {binder.clause}")
    binder.aggregates[str(found)] = found
    binder.offsets.setdefault(str(found), binder.at(node))
    column = Column(str(found), found.type)
    if aggregate_name(call) != "SUM0":
        return column
    zero = Literal("0" if found.type.name == "DECIMAL" else 0, found.type.with_null(False))
    return binder.call("COALESCE", call, [column, zero])


def aggregate_call(binder: Binder, node: Node, inner: Binder) -> AggregateCall:
    """The call of an aggregate. ``inner``: binds its argument."""
    call, condition = (node.this, node.expression.this) if isinstance(node, exp.Filter) else (node, None)
    ignoring_null = isinstance(call, exp.IgnoreNulls)
    if isinstance(call, exp.IgnoreNulls | exp.RespectNulls) and isinstance(call.this, exp.ArrayAgg):
        call = call.this
    function = binder.aggregate_function(call)
    if function is not None:
        return _user_aggregate(binder, call, condition, inner, function)
    name = "SUM" if aggregate_name(call) == "SUM0" else aggregate_name(call)
    if name not in AGGREGATES:
        name = call.sql_name() if isinstance(call, exp.Func) else "WITHIN GROUP"
        raise binder.error(call, f"aggregate {name} is not supported yet; there are {', '.join(AGGREGATES)}")
    distinct, nodes = _arguments(call)
    if not nodes:
        raise binder.error(call, f"{name} takes an argument")
    where = None if condition is None else inner.condition(condition, "FILTER")
    if name == PERCENTILE and not distinct:
        return _percentile(inner, call, nodes, where)
    if distinct and nodes and isinstance(nodes[0], exp.Star):
        raise binder.error(call, f"{name}(DISTINCT *) is not supported; name a column")
    several = len(nodes) > 1 and name != "COUNT"
    if distinct and (several or name not in (*_OF_DISTINCT, *_SAME_IF_DISTINCT)):
        takes = "takes one expression" if name in _OF_DISTINCT else "is not supported yet"
        raise binder.error(call, f"{name}(DISTINCT …) {takes}")
    argument = json_elements(inner, name, call) if name.startswith("JSON_") else _argument(inner, name, nodes, distinct=distinct)
    compared = [] if argument is None else [each.type for each in argument.type.fields] if len(nodes) > 1 else [argument.type]
    if distinct and any(each.is_nested for each in compared):
        raise binder.error(call, f"{name}(DISTINCT …) takes no ARRAY, MAP and ROW yet")
    if name == "ARRAY_AGG" and argument is not None:
        row = binder.call("ROW", call, [argument])
        argument = present_only(binder, call, argument, row) if ignoring_null else row
    found = AGGREGATES[name](None if argument is None else argument.type)
    if isinstance(found, str):
        raise binder.error(call, f"{name} {found}")
    return AggregateCall(name, argument, where, found, distinct and name in _OF_DISTINCT)


def _percentile(binder: Binder, call: Node, nodes: list[Node], where: Expression | None) -> AggregateCall:
    """PERCENTILE(number, fraction or ARRAY of them, how often it counts)."""
    if not 2 <= len(nodes) <= 3:
        raise binder.error(call, "PERCENTILE takes a number, a fraction, and how often it counts")
    given = nodes[1].expressions if isinstance(nodes[1], exp.Array) else [nodes[1]]
    fractions = [float(each.this) if isinstance(each, exp.Literal) and not each.is_string else -1.0 for each in given]
    if not fractions or not all(0 <= each <= 1 for each in fractions):
        raise binder.error(nodes[1], "the fraction of PERCENTILE is a number from 0 to 1, or an ARRAY of such numbers")
    value = binder.bind(nodes[0])
    count = binder.bind(nodes[2]) if len(nodes) == 3 else Literal(1, BIGINT.with_null(False))
    if not value.type.is_number or not count.type.is_integer:
        raise binder.error(call, f"PERCENTILE takes numbers, not {value.type.label} and {count.type.label}")
    parts = [converted(value, DOUBLE), converted(count, BIGINT)]
    counted = binder.call(">", call, [count, Literal(0, BIGINT.with_null(False))])
    present = binder.call("AND", call, [binder.call("IS NOT NULL", call, [value]), counted])
    row = binder.call("ROW", call, parts)
    argument = where_true(present, row)
    of = array_type(DOUBLE) if isinstance(nodes[1], exp.Array) else DOUBLE
    return AggregateCall(" ".join([PERCENTILE, *map(str, fractions)]), argument, where, of)


def _user_aggregate(binder: Binder, call: Node, condition: Node | None, inner: Binder, function: UserFunction) -> AggregateCall:
    distinct, nodes = _arguments(call)
    if not nodes:
        raise binder.error(call, f"{function.name} takes an argument")
    found = binder.scope.functions.call(function, list(map(inner.bind, nodes)), binder.at(call))
    if isinstance(found, str):
        raise binder.error(call, found)
    where = None if condition is None else inner.condition(condition, "FILTER")
    argument = binder.call("ROW", call, list(found.arguments))
    if distinct and any(each.type.is_nested for each in found.arguments):
        raise binder.error(call, f"{function.name}(DISTINCT …) takes no ARRAY, MAP and ROW yet")
    accumulator = function.accumulator or array_type(argument.type)
    return AggregateCall(found.function, argument, where, function.result, distinct, accumulator)


def aggregate_name(call: Node) -> str:
    return _NAMES.get(type(call), "") or called_name(call).partition(" ")[0]


def _arguments(call: Node) -> tuple[bool, list[Node]]:
    """Whether they are DISTINCT, and the arguments."""
    first = [] if isinstance(call, exp.Anonymous) or call.this is None else [call.this]
    nodes = [*first, *call.args.get("expressions", ())]
    if nodes and isinstance(nodes[0], exp.Distinct):
        return True, [*nodes[0].expressions, *nodes[1:]]
    return False, nodes


def _argument(inner: Binder, name: str, nodes: list[Node], *, distinct: bool) -> Expression | None:
    """What is accumulated; None for ``COUNT(*)``."""
    if isinstance(nodes[0], exp.Star):
        if name != "COUNT":
            raise inner.error(nodes[0], f"{name} takes a column, not *")
        return None
    first, *more = map(inner.bind, nodes)
    if name == "COUNT" and more:  # the rows in which none is NULL
        present = all_of(tuple(inner.call("IS NOT NULL", nodes[0], [each]) for each in (first, *more)))
        assert present is not None
        value = inner.call("ROW", nodes[0], [first, *more]) if distinct else Literal(True, BOOLEAN.with_null(False))
        return where_true(present, value)
    if name == "LISTAGG":
        separator = more[0] if more else Literal(",", SqlType("STRING", nullable=False))
        if len(more) > 1 or not isinstance(separator, Literal) or not isinstance(separator.value, str):
            raise inner.error(nodes[-1], "LISTAGG takes a text, and a separator in single quotes")
        text = AGGREGATES[name](first.type)
        return first if isinstance(text, str) else listed(first, separator.value)
    if more:
        raise inner.error(nodes[1], f"{name} takes one argument")
    return first
