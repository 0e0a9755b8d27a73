"""Binds joins: tables in FROM become one plan, and one scope with the columns of all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from forkpoint.relational.expressions import Expression, all_of, columns_of
from forkpoint.relational.plan import LEFT, RIGHT, Join, JoinKind, Plan
from forkpoint.sql.binding.expressions import Binder
from forkpoint.sql.binding.scopes import OUTER, Relation, Scope
from forkpoint.sql.binding.temporal import is_version, temporal
from forkpoint.sql.errors import SqlError

_KINDS: dict[str, JoinKind] = {
    **dict.fromkeys(("", "INNER", "CROSS"), "inner"),
    **dict.fromkeys(("LEFT", "LEFT OUTER"), "left"),
    **dict.fromkeys(("RIGHT", "RIGHT OUTER"), "right"),
    **dict.fromkeys(("FULL", "FULL OUTER"), "full"),
    "LEFT SEMI": "semi",
    "LEFT ANTI": "anti",
}


def join(
    node: Any, left: tuple[Plan, Scope], right: tuple[Plan, Relation], offset: int, error: Callable[[Any, str], SqlError]
) -> tuple[Plan, Scope]:
    """The join of what stands before a JOIN and of the table after it. ``offset``: of the query in its source."""
    kind = _KINDS.get(f"{node.side} {node.kind}".strip().upper())
    if kind is None or (node.method and str(node.method).upper() != "NATURAL"):
        raise error(node, f"{' '.join(filter(None, (node.method, node.side, node.kind)))} JOIN is not supported yet")
    (left_plan, scope), (right_plan, relation) = left, right
    if relation.alias and any(each.alias == relation.alias for each in scope.relations):
        raise error(node.this, f"FROM has two tables {relation.alias!r}; give one another name: {relation.alias} AS …")
    before = scope.on_side(LEFT)
    inputs = replace(before, relations=(*before.relations, relation.on_side(RIGHT)))
    binder = Binder(inputs, offset, None, "in ON")
    names = [part.name for part in node.args.get("using") or ()]
    if node.args.get("on") is not None and (node.method or str(node.kind).upper() == "CROSS"):
        raise error(node, f"a {node.method or node.kind} JOIN has no ON")
    if node.method:
        names = [name for each in scope.relations for name in each.columns if name in relation.columns]
    if names:
        pairs = {name: _pair(name, scope, relation, binder, node) for name in dict.fromkeys(names)}
        equal = tuple(binder.call("=", node, list(pair)) for pair in pairs.values())
        plan = Join(left_plan, right_plan, kind, all_of(equal))
    else:
        on = node.args.get("on")
        if on is None and str(node.kind).upper() != "CROSS" and _has_word(node, scope, offset):
            raise error(node, f"{kind.upper()} JOIN needs ON or USING; for all pairs, write CROSS JOIN")
        condition = None if on is None else binder.condition(on, "ON")
        if condition is not None and any(column.name.startswith(OUTER) for column in columns_of(condition)):
            raise error(on, "the outer query's columns can be compared in WHERE of the subquery only")
        pairs, plan = {}, Join(left_plan, right_plan, kind, condition)
    if is_version(node.this):
        plan = temporal(plan, node.this.args["version"], binder)
    return plan, _result(plan, scope, relation, pairs, binder, node)


def _is_product(node: Any) -> bool:
    """Whether a table in FROM is joined without a condition of its own: with a comma, or CROSS JOIN."""
    given = any(node.args.get(each) for each in ("on", "using", "side", "method"))
    return (
        isinstance(node.this, exp.Table | exp.Subquery) and not given and node.kind in ("", "CROSS") and not is_version(node.this)
    )


def join_order(select: Any, relations: Sequence[Relation]) -> list[int]:
    """The numbers of the tables in FROM, from 0, in the order in which they are joined: as written, unless all are joined by
    commas. Then, if an equation in WHERE joins a later table with those before, and none joins the next, the later one comes
    first. All pairs of rows are the last resort."""
    nodes, where = select.args.get("joins") or (), select.args.get("where")
    order, rest = [0], list(range(1, len(nodes) + 1))
    if where is None or not all(map(_is_product, nodes)):
        return order + rest
    links = set(_links(where.this, relations))
    while rest:
        found = next((at for at in rest if any(frozenset((at, other)) in links for other in order)), rest[0])
        order.append(found)
        rest.remove(found)
    return order


def _links(condition: Any, relations: Sequence[Relation]) -> Iterator[frozenset[int]]:
    """The pairs of tables that equations compare."""
    for each in condition.flatten() if isinstance(condition, exp.And) else (condition,):
        if isinstance(each, exp.EQ):
            left, right = (_read(side, relations) for side in (each.this, each.expression))
            if left is not None and right is not None and left != right:
                yield frozenset((left, right))


def _read(side: Any, relations: Sequence[Relation]) -> int | None:
    """The table of all columns of one side of an equation, if it is one."""
    found = set() if side.find(exp.Select) else {_table_of(column, relations) for column in side.find_all(exp.Column)}
    return found.pop() if len(found) == 1 else None


def _table_of(column: Any, relations: Sequence[Relation]) -> int | None:
    for at, relation in enumerate(relations):
        if column.table == relation.alias if column.table else column.name in relation.columns:
            return at
    return None


def _has_word(node: Any, scope: Scope, offset: int) -> bool:
    """Whether a join is written with JOIN, not with a comma."""
    starts = [part.meta["start"] for part in node.this.walk() if "start" in part.meta]
    before = scope.source.text[offset : offset + min(starts, default=0)]
    return re.search(r"\bJOIN[\s(]*$", before, re.IGNORECASE) is not None


def _pair(name: str, scope: Scope, relation: Relation, binder: Binder, node: Any) -> tuple[Expression, Expression]:
    """The columns that USING compares."""
    at = binder.at(node)
    one = scope.on_side(LEFT).column(name, "", at)
    other = Scope(scope.source, (relation.on_side(RIGHT),)).column(name, "", at)
    return one, other


def _result(
    plan: Join, scope: Scope, relation: Relation, pairs: dict[str, tuple[Expression, Expression]], binder: Binder, node: Any
) -> Scope:
    """The columns of the join. Those in USING are the left ones; the right ones in a right join, and in a full join whichever
    is there."""
    left = scope.on_side(LEFT, nullable=plan.pads(LEFT))
    if plan.kind in ("semi", "anti"):
        return left
    right = relation.on_side(RIGHT, nullable=plan.pads(RIGHT))
    merged = {}
    for name, (one, other) in pairs.items():
        one, other = left.column(name, "", 0), right.columns[name]
        merged[name] = {"right": other, "full": binder.call("COALESCE", node, [one, other])}.get(plan.kind, one)
    rest = {name: of for name, of in left.merged.items() if name not in merged}
    return replace(left, relations=(*left.relations, right), merged=merged | rest)
