"""What of sqlglot's syntax is read here. Everything else is refused: a part that nobody reads would change a query silently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from forkpoint.sql.errors import SqlError

_OPERATOR = frozenset({"this", "expression"})
_SORTED = frozenset({"order", "limit", "offset", "with_", "distinct"})
_PARTS: dict[type, frozenset[str]] = {
    exp.Select: _SORTED | {"expressions", "from_", "where", "group", "having", "joins", "windows", "hint"},
    exp.Join: frozenset({"this", "on", "using", "side", "kind", "method"}),
    exp.Union: _OPERATOR | _SORTED,
    exp.Intersect: _OPERATOR | _SORTED,
    exp.Except: _OPERATOR | _SORTED,
    exp.Window: frozenset({"this", "partition_by", "order", "spec", "alias", "over"}),
    exp.WindowSpec: frozenset({"kind", "start", "start_side", "end", "end_side"}),
    exp.Order: frozenset({"expressions"}),
    exp.Ordered: frozenset({"this", "desc", "nulls_first"}),
    exp.Limit: frozenset({"expression"}),
    exp.Fetch: frozenset({"count", "direction", "limit_options"}),
    exp.LimitOptions: frozenset({"rows"}),
    exp.Offset: frozenset({"expression"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.TryCast: frozenset({"this", "to", "safe"}),
    exp.RowNumber: frozenset(),
    exp.Rank: frozenset(),
    exp.DenseRank: frozenset(),
    exp.Lag: frozenset({"this", "offset", "default"}),
    exp.Lead: frozenset({"this", "offset", "default"}),
    exp.From: frozenset({"this"}),
    exp.With: frozenset({"expressions"}),
    exp.CTE: frozenset({"this", "alias"}),
    exp.Subquery: frozenset({"this", "alias"}),
    exp.Table: frozenset({"this", "db", "catalog", "alias", "version"}),
    exp.Version: frozenset({"this", "kind", "expression"}),
    exp.Unnest: frozenset({"expressions", "alias", "offset"}),
    exp.TableAlias: frozenset({"this", "columns"}),
    exp.Values: frozenset({"expressions", "alias"}),
    exp.Where: frozenset({"this"}),
    exp.Having: frozenset({"this"}),
    exp.Group: frozenset({"expressions"}),
    exp.Distinct: frozenset({"expressions"}),
    exp.Column: frozenset({"this", "table", "db", "catalog"}),
    exp.Star: frozenset(),
    exp.Alias: frozenset({"this", "alias"}),
    exp.Like: _OPERATOR | {"negate"},
    exp.Between: frozenset({"this", "low", "high"}),
    exp.In: frozenset({"this", "expressions", "query"}),
    exp.Filter: _OPERATOR,
    exp.JSONObject: frozenset({"expressions", "null_handling"}),
    exp.JSONObjectAgg: frozenset({"expressions", "null_handling"}),
}
_NAMES = {
    "laterals": "LATERAL",
    "match": "MATCH_RECOGNIZE",
    "pivots": "PIVOT",
    "locks": "FOR UPDATE",
    "sample": "TABLESAMPLE",
    "except_": "EXCEPT in a list of columns",
    "replace": "REPLACE in a list of columns",
    "this": "ORDER BY in an aggregate",
    "on": "DISTINCT ON",
    "recursive": "WITH RECURSIVE",
    "symmetric": "BETWEEN SYMMETRIC",
    "db": "a name of three parts",
    "with_ties": "WITH TIES",
}


def refuse_unread_parts(tree: Any, error: Callable[[Any, str], SqlError]) -> None:
    """Raise the error for the first part of a query that the binder does not read."""
    for node in tree.walk():
        known = _PARTS.get(type(node))
        if known is None and isinstance(node, exp.AggFunc):
            known = frozenset({"this", "big_int", "distinct", "expressions"})
        if known is None:
            continue
        for name, value in node.args.items():
            if value and name not in known:
                part = next(iter(value), node) if isinstance(value, list) else value
                at = part if isinstance(part, exp.Expression) else node
                raise error(at, f"{_NAMES.get(name, name.strip('_').replace('_', ' ').upper())} is not supported yet")
