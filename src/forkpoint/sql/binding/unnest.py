"""Binds UNNEST, the elements of arrays as a table, and LATERAL TABLE, the rows of a table function: an array, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from forkpoint.relational.expressions import Column
from forkpoint.relational.plan import Plan, Unnest, element_types
from forkpoint.relational.types import SqlType
from forkpoint.sql.binding.expressions import Binder
from forkpoint.sql.binding.scopes import Relation, Scope

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

Node = Any


def lateral_tables(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with UNNEST in place of LATERAL TABLE, which sqlglot cannot read."""
    from sqlglot.tokenizer_core import TokenType

    found: list[Token] = []
    for token in tokens:
        if token.token_type == TokenType.TABLE and found and found[-1].token_type == TokenType.LATERAL:
            found[-1].token_type, found[-1].text = TokenType.UNNEST, "UNNEST"
        else:
            found.append(token)
    return found


def unnest(node: Node, plan: Plan, scope: Scope, offset: int) -> tuple[Plan, Scope]:
    """What stands before ``CROSS JOIN UNNEST(…)``, with the elements' columns. ``node``: the join."""
    binder = Binder(scope, offset, None, "in UNNEST")
    table, on = node.this, node.args.get("on")
    kind = f"{node.side} {node.kind}".strip().upper()
    always = isinstance(on, exp.Boolean) and bool(on.this)
    if (
        kind not in ("", "CROSS", "INNER", "LEFT", "LEFT OUTER")
        or node.args.get("using")
        or node.method
        or not (on is None or always)
    ):
        raise binder.error(table, "UNNEST takes CROSS JOIN, or LEFT JOIN … ON TRUE, and so does LATERAL TABLE")
    if table.args.get("offset"):
        raise binder.error(table, "WITH ORDINALITY is not supported yet")
    if len(table.expressions) != 1:
        raise binder.error(table, "UNNEST takes one ARRAY or MAP")
    of = binder.bind(table.expressions[0])
    if of.type.name not in ("ARRAY", "MAP"):
        raise binder.error(table, f"UNNEST takes an ARRAY or a MAP, not {of.type.name}")
    alias, names = table.alias, [each.name for each in table.args["alias"].args.get("columns") or ()] if table.alias else []
    if any(each.alias == alias for each in scope.relations if alias):
        raise binder.error(table, f"FROM has two tables {alias!r}; give one another name")
    count = len(element_types(of.type))
    names = names or _element_names(of.type)
    if len(names) != count:
        raise binder.error(table, f"UNNEST has {count} columns; name them: AS t ({', '.join(_element_names(of.type))})")
    label = alias or len(scope.relations)  # two tables without a name may have the same columns
    found = Unnest(plan, of, tuple(f"{label} {name}" for name in names), kind.startswith("LEFT"))
    columns = {name: Column(field.name, field.type) for name, field in zip(names, found.added, strict=True)}
    return found, replace(scope, relations=(*scope.relations, Relation(alias, columns)))


def _element_names(of: SqlType) -> list[str]:
    if of.name == "MAP":
        return ["key", "value"]
    return [field.name for field in of.element.fields] if of.element.name == "ROW" else ["element"]
