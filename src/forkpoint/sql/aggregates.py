"""Binds calls of aggregate functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from forkpoint.relational.aggregates import AGGREGATES, listed
from forkpoint.relational.expressions import Call, Column, Expression, Literal, all_of
from forkpoint.relational.plan import AggregateCall
from forkpoint.relational.types import BIGINT, BOOLEAN, SqlType
from forkpoint.sql.grouping import GROUPING
from forkpoint.sql.tokens import CALL

if TYPE_CHECKING:
    from forkpoint.sql.expressions import Binder

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
}
_UNKNOWN_TO_SQLGLOT = ("LISTAGG", "SUM0")
_OF_DISTINCT = ("COUNT", "SUM", "AVG")
_SAME_IF_DISTINCT = ("MIN", "MAX", "FIRST_VALUE", "LAST_VALUE")


def is_aggregate(node: Node) -> bool:
    if isinstance(node, exp.Anonymous):
        return str(node.this).removeprefix(CALL).upper() in _UNKNOWN_TO_SQLGLOT
    return isinstance(node, exp.Filter | exp.AggFunc)


def bind_aggregate(binder: Binder, node: Node) -> Expression:
    """The column of an aggregate, which the binder's query computes. Raises SqlError."""
    call, condition = (node.this, node.expression.this) if isinstance(node, exp.Filter) else (node, None)
    name = str(call.this).removeprefix(CALL).upper() if isinstance(call, exp.Anonymous) else _NAMES.get(type(call), "")
    if isinstance(call, exp.Grouping | exp.GroupingId) and binder.aggregates is not None:
        if node.parent_select.args.get("group") is None:
            raise binder.error(call, "GROUPING needs GROUP BY")
        found = Call(GROUPING, tuple(map(binder.inside(GROUPING).bind, call.expressions)), BIGINT.with_null(False))
        binder.offsets.setdefault(str(found), binder.at(node))
        return found
    if name not in AGGREGATES and name != "SUM0":
        raise binder.error(call, f"aggregate {call.sql_name()} is not supported yet; there are {', '.join(AGGREGATES)}")
    if binder.aggregates is None:
        raise binder.error(call, f"an aggregate ({name}) is not allowed {binder.clause}")
    inner = binder.inside(name)
    distinct, nodes = _arguments(call)
    if not nodes:
        raise binder.error(call, f"{name} takes an argument")
    if distinct and (len(nodes) > 1 or name not in (*_OF_DISTINCT, *_SAME_IF_DISTINCT)):
        takes = "takes one expression" if name in _OF_DISTINCT else "is not supported yet"
        raise binder.error(call, f"{name}(DISTINCT …) {takes}")
    where = None if condition is None else inner.condition(condition, "FILTER")
    if name == "SUM0":
        total = _found(binder, call, AggregateCall("SUM", _argument(inner, "SUM", nodes), where, BOOLEAN))
        zero = Literal("0" if total.type.name == "DECIMAL" else 0, total.type.with_null(False))
        return binder.call("COALESCE", call, [total, zero])
    argument = _argument(inner, name, nodes)
    return _found(binder, call, AggregateCall(name, argument, where, BOOLEAN, distinct and name in _OF_DISTINCT))


def _found(binder: Binder, node: Node, call: AggregateCall) -> Column:
    """The call's column, with the type that its argument gives it."""
    of = AGGREGATES[call.function](None if call.argument is None else call.argument.type)
    if isinstance(of, str):
        raise binder.error(node, f"{call.function} {of}")
    call = AggregateCall(call.function, call.argument, call.condition, of, call.distinct)
    assert binder.aggregates is not None
    binder.aggregates[str(call)] = call
    binder.offsets.setdefault(str(call), binder.at(node))
    return Column(str(call), of)


def _arguments(call: Node) -> tuple[bool, list[Node]]:
    """Whether they are DISTINCT, and the arguments."""
    first = [] if isinstance(call, exp.Anonymous) or call.this is None else [call.this]
    nodes = [*first, *call.args.get("expressions", ())]
    if nodes and isinstance(nodes[0], exp.Distinct):
        return True, [*nodes[0].expressions, *nodes[1:]]
    return False, nodes


def _argument(inner: Binder, name: str, nodes: list[Node]) -> Expression | None:
    """What is accumulated; None for ``COUNT(*)``."""
    if isinstance(nodes[0], exp.Star):
        if name != "COUNT":
            raise inner.error(nodes[0], f"{name} takes a column, not *")
        return None
    first, *more = map(inner.bind, nodes)
    if name == "COUNT" and more:  # the rows in which none is NULL
        present = all_of(tuple(inner.call("IS NOT NULL", nodes[0], [each]) for each in (first, *more)))
        assert present is not None
        values = (Literal(True, BOOLEAN.with_null(False)), Literal(None, SqlType("NULL")))
        return Call("CASE", (present, *values), BOOLEAN)
    if name == "LISTAGG":
        separator = more[0] if more else Literal(",", SqlType("STRING", nullable=False))
        if len(more) > 1 or not isinstance(separator, Literal) or not isinstance(separator.value, str):
            raise inner.error(nodes[-1], "LISTAGG takes a text, and a separator in single quotes")
        text = AGGREGATES[name](first.type)
        return first if isinstance(text, str) else listed(first, separator.value)
    if more:
        raise inner.error(nodes[1], f"{name} takes one argument")
    return first
