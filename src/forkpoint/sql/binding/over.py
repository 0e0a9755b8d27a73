"""Binds OVER, and ORDER BY with LIMIT: nodes of the plan that number the rows of partitions, or compute from their neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from sqlglot import exp

from forkpoint.relational.bounds import in_windows
from forkpoint.relational.calls import Frame, Order, OverCall
from forkpoint.relational.event_time import is_processing_time, rowtimes
from forkpoint.relational.expressions import Call, Column, Expression, Literal, all_of, items_of, replace_columns
from forkpoint.relational.functions.changing import ARRIVAL, PROCTIME, clock_call
from forkpoint.relational.functions.times import MONTHS
from forkpoint.relational.plan import Over, Plan, Select, is_updating
from forkpoint.relational.types import BIGINT, BOOLEAN, DOUBLE, SqlType
from forkpoint.sql.binding.aggregates import aggregate_call, aggregate_name, is_aggregate
from forkpoint.sql.binding.times import interval_of
from forkpoint.sql.errors import SqlError

if TYPE_CHECKING:
    from forkpoint.sql.binding.expressions import Binder

OVER = "$over"
_NUMBERS: dict[type, str] = {
    exp.RowNumber: "ROW_NUMBER",
    exp.Rank: "RANK",
    exp.DenseRank: "DENSE_RANK",
    exp.Ntile: "NTILE",
    exp.PercentRank: "PERCENT_RANK",
    exp.CumeDist: "CUME_DIST",
}
_NEIGHBOURS: dict[type, str] = {exp.Lag: "LAG", exp.Lead: "LEAD"}
OF_OVER = frozenset({*_NUMBERS, *_NEIGHBOURS})
"""What has no meaning without OVER."""
_NUMBER = BIGINT.with_null(False)


@dataclass
class Overs:
    """The calls with OVER of one query. Each is a column with a name of its own until its node is made. ``named``: WINDOW."""

    named: dict[str, Any]
    found: dict[str, tuple[tuple[Expression, ...], tuple[Order, ...], OverCall]] = field(default_factory=dict)

    def column(self, node: Any, binder: Binder) -> Column:
        """The column that stands for a call."""
        spec = self._spec(node, binder)
        partition = tuple(map(binder.bind, spec.args.get("partition_by") or ()))
        order = orders(spec.args.get("order"), binder)
        call = _call(node.this, spec, order, binder)
        name = f"{OVER}{len(self.found)}"
        self.found[name] = partition, order, call
        return Column(name, call.type)

    def read(self) -> list[Expression]:
        """What the calls read."""
        return [of for by, order, call in self.found.values() for of in (*by, *(each.of for each in order), *call.arguments)]

    def _spec(self, node: Any, binder: Binder, within: tuple[str, ...] = ()) -> Any:
        """The window of a call: with the parts of the named one that it begins with, and its own."""
        if not node.alias:
            return node
        if node.alias not in self.named or node.alias in within:
            raise binder.error(node, f"there is no WINDOW {node.alias!r}")
        spec = self._spec(self.named[node.alias], binder, (*within, node.alias))
        own = {part: node.args[part] for part in ("partition_by", "order", "spec") if node.args.get(part)}
        return exp.Window(**{**spec.copy().args, **own}) if own else spec

    def added(
        self, plan: Plan, expressions: Sequence[Expression | None], change: Callable[[Expression], Expression]
    ) -> tuple[Plan, list[Expression | None]]:
        """The plan with the columns of the calls, and the expressions over it. ``change``: from the query's columns to those of
        the plan."""
        by_window: dict[str, tuple[tuple[Expression, ...], tuple[Order, ...], dict[str, OverCall]]] = {}
        for name, (partition, order, call) in self.found.items():
            partition = tuple(map(change, partition))
            order = _with_arrival(plan, tuple(Order(change(each.of), each.descending, each.nulls_first) for each in order))
            call = msgspec.structs.replace(call, arguments=tuple(map(change, call.arguments)))
            window = f"{list(map(str, partition))} {list(map(str, order))}"
            by_window.setdefault(window, (partition, order, {}))[2][name] = call
        columns: dict[str, Expression] = {}
        for partition, order, calls in by_window.values():
            node = in_windows(Over(plan, partition, order, tuple({str(call): call for call in calls.values()}.values())))
            columns |= {name: Column(node.name_of(call), call.type) for name, call in calls.items()}
            plan = node
        found = [each and replace_columns(each, lambda column: columns.get(column.name, column)) for each in expressions]
        return plan, found


def _with_arrival(plan: Plan, order: tuple[Order, ...]) -> tuple[Order, ...]:
    """An order by processing time as one by when rows have come, also within an epoch."""
    found: list[Order] = []
    for each in order:
        if isinstance(each.of, Column) and is_processing_time(plan, each.of.name):
            each = msgspec.structs.replace(each, of=clock_call(PROCTIME))
            found += [each, msgspec.structs.replace(each, of=Call(ARRIVAL, (), _NUMBER))]
        else:
            found.append(each)
    return tuple(found)


def orders(node: Any, binder: Binder) -> tuple[Order, ...]:
    """ORDER BY. As in Flink, NULL is less than all values."""
    return tuple(order_of(each, binder.bind(each.this), binder) for each in (() if node is None else node.expressions))


def order_of(node: Any, of: Expression, binder: Binder) -> Order:
    """An element of ORDER BY, by its bound expression."""
    if of.type.is_nested:
        raise binder.error(node, f"{of.type.name} cannot be ordered")
    return Order(of, bool(node.args.get("desc")), bool(node.args.get("nulls_first")))


def _call(node: Any, spec: Any, order: tuple[Order, ...], binder: Binder) -> OverCall:
    if isinstance(node, exp.IgnoreNulls | exp.RespectNulls) and not is_aggregate(node):
        raise binder.error(node, "IGNORE NULLS and RESPECT NULLS are not supported yet")
    if type(node) in _NUMBERS:
        name = _NUMBERS[type(node)]
        if not order:
            raise binder.error(node, f"{name} needs ORDER BY in OVER (…)")
        return _number_call(name, node, binder)
    if type(node) in _NEIGHBOURS:
        return _neighbour(_NEIGHBOURS[type(node)], node, binder)
    if aggregate_name(node) == "SUM0":
        raise binder.error(node, "SUM0 with OVER is not supported yet; use COALESCE(SUM(…) OVER (…), 0)")
    call = aggregate_call(binder, node, binder)
    if call.distinct or call.condition is not None:
        raise binder.error(node, f"{call.function} with OVER cannot have DISTINCT or FILTER yet")
    arguments = () if call.argument is None else (call.argument,)
    return OverCall(call.function, arguments, call.type, _frame(spec, order, binder), call.accumulator)


def _number_call(name: str, node: Any, binder: Binder) -> OverCall:
    if name in ("PERCENT_RANK", "CUME_DIST"):
        return OverCall(name, (), DOUBLE.with_null(False))
    count = node.this if name == "NTILE" else None
    if name == "NTILE" and not (isinstance(count, exp.Literal) and str(count.this).isdigit() and int(count.this) > 0):
        raise binder.error(node, "NTILE takes the number of its groups, a positive whole number")
    return OverCall(name, () if count is None else (_literal(int(count.this)),), _NUMBER)


def _neighbour(name: str, node: Any, binder: Binder) -> OverCall:
    of, offset, default = node.this, node.args.get("offset"), node.args.get("default")
    arguments = [binder.bind(each) for each in (of, offset, default) if each is not None]
    if default is not None:
        filled = binder.call("COALESCE", node, [arguments[0], arguments[2]])
        return OverCall(name, tuple(arguments), filled.type)
    return OverCall(name, tuple(arguments), arguments[0].type.with_null())


def _frame(spec: Any, order: tuple[Order, ...], binder: Binder) -> Frame:
    """The rows that an aggregate reads: by default all, with ORDER BY those up to the current row and its peers."""
    node = spec.args.get("spec")
    if node is None:
        return Frame("RANGE", None, 0 if order else None)
    unit = str(node.args.get("kind")).upper()
    if unit not in ("ROWS", "RANGE") or not order:
        raise binder.error(spec, f"{unit} in OVER (…) needs ORDER BY, and must be ROWS or RANGE")
    before = _distance(node, "start", "PRECEDING", unit, order, binder)
    after = 0 if node.args.get("end") is None else _distance(node, "end", "FOLLOWING", unit, order, binder)
    if unit == "RANGE" and after:
        raise binder.error(spec, "RANGE … FOLLOWING is not supported yet; end with CURRENT ROW")
    return Frame("ROWS" if unit == "ROWS" else "RANGE", before, after)


def _distance(node: Any, end: str, side: str, kind: str, order: tuple[Order, ...], binder: Binder) -> int | None:
    value, given = node.args.get(end), str(node.args.get(f"{end}_side") or "").upper()
    if value == "CURRENT ROW":
        return 0
    if given != side:
        raise binder.error(node, f"a frame must lie between {'n PRECEDING' if end == 'start' else 'CURRENT ROW'} and n FOLLOWING")
    if value == "UNBOUNDED":
        return None
    if isinstance(value, exp.Interval) and kind == "RANGE":
        if len(order) != 1 or order[0].of.type.name not in ("TIMESTAMP", "TIMESTAMP_LTZ"):
            raise binder.error(node, "RANGE with an interval needs ORDER BY one TIMESTAMP")
        unit, count = interval_of(binder, value)
        if unit not in MONTHS:
            return count
    if isinstance(value, exp.Literal) and not value.is_string and str(value.this).isdigit():
        if kind == "RANGE" and (len(order) != 1 or not order[0].of.type.is_integer):
            raise binder.error(node, "RANGE with a number needs ORDER BY one integer")
        return int(value.this)
    raise binder.error(node, "a frame's distance is a whole number, or with RANGE also an interval")


def limited(plan: Plan, tree: Any, order: tuple[Order, ...], error: Callable[[Any, str], SqlError], *, is_last: bool) -> Plan:
    """The first rows of a plan in an order, or all. ``order``: over the plan's columns. ``is_last``: whether these are the rows
    of the result."""
    limit, offset = (_number(tree.args.get(name), error) for name in ("limit", "offset"))
    if limit is None and offset is None:
        first = order[0]
        if not first.descending and isinstance(first.of, Column) and first.of.name in rowtimes(plan) and not is_updating(plan):
            return Over(plan, (), order, (), first.of)
        if is_last:
            return Over(plan, (), order, ())
    if limit is None:
        raise error(
            tree.args.get("order") or tree,
            "ORDER BY needs LIMIT here, or event time as its first column, ascending: the changes of a result have no order",
        )
    call = OverCall("ROW_NUMBER", (), _NUMBER)
    node = Over(plan, (), order, (call,))
    number = Column(node.name_of(call), _NUMBER)
    conditions = [Call("<=", (number, _literal(limit + (offset or 0))), BOOLEAN.with_null(False))]
    if offset:
        conditions.append(Call(">", (number, _literal(offset)), BOOLEAN.with_null(False)))
    return Select(node, all_of(tuple(conditions)), items_of(plan.schema))


def _literal(value: int) -> Literal:
    return Literal(value, SqlType("BIGINT", nullable=False))


def _number(node: Any, error: Callable[[Any, str], SqlError]) -> int | None:
    if node is None:
        return None
    value = node.args.get("count") or node.expression
    if not isinstance(value, exp.Literal) or not str(value.this).isdigit():
        raise error(node, "LIMIT and OFFSET take a whole number")
    return int(value.this)
