"""Binds what SQL writes for parts of values: ``a[1]``, ``r.f``, and the constructors ``ARRAY[…]``, ``MAP[…]`` and ``ROW(…)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from forkpoint.relational.expressions import Call, Expression, Literal
from forkpoint.relational.functions.nested import map_parts
from forkpoint.relational.precision import converted
from forkpoint.relational.types import STRING, SqlType

if TYPE_CHECKING:
    from forkpoint.sql.binding.expressions import Binder

    Node = Any


def bind_nested(binder: Binder, node: Node) -> Expression | None:
    """The expression, if it is one of those; None otherwise."""
    match node:
        case exp.Array():
            if not node.expressions:
                raise binder.error(node, "ARRAY[] has no type; write CAST(NULL AS ARRAY<…>), or elements")
            return binder.call("ARRAY", node, list(map(binder.bind, node.expressions)))
        case exp.Bracket(this=exp.Column() as name) if name.sql().upper() == "MAP":
            return _map(binder, node)
        case exp.Bracket():
            if len(node.expressions) != 1:
                raise binder.error(node, "[…] takes one index or key")
            return binder.call("ITEM", node, [binder.bind(node.this), binder.bind(node.expressions[0])])
        case exp.Anonymous() if str(node.this).upper() == "ROW":
            return binder.call("ROW", node, list(map(binder.bind, node.expressions)))
        case exp.Dot(expression=exp.Identifier() as name):
            return field_of(binder, node, binder.bind(node.this), name.name)
        case exp.Column() if len(node.parts) > 1:
            return _column(binder, node)
    return None


def field_of(binder: Binder, node: Node, row: Expression, name: str) -> Expression:
    """The field of a ROW."""
    for field in row.type.fields if row.type.name == "ROW" else ():
        if field.name == name:
            return Call("FIELD", (row, Literal(name, STRING.with_null(False))), field.type)
    known = ", ".join(field.name for field in row.type.fields)
    has = f"has the fields {known}" if row.type.name == "ROW" else f"is {row.type.label}, which has no fields"
    raise binder.error(node, f"{row} {has}, not {name!r}")


def _column(binder: Binder, node: Node) -> Expression | None:
    """``r.f``, ``t.r.f`` and the like; None if it is a column of a table."""
    first, *rest = (part.name for part in node.parts)
    if binder.scope.has_table(first):
        if len(rest) == 1:
            return None
        found, rest = binder.scope.column(rest[0], first, binder.at(node)), rest[1:]
    elif binder.scope.knows(first, "") or len(rest) > 1:
        found = binder.scope.column(first, "", binder.at(node))
    else:
        return None
    for name in rest:
        found = field_of(binder, node, found, name)
    return found


def _map(binder: Binder, node: Node) -> Expression:
    arguments = list(map(binder.bind, node.expressions))
    types = map_parts([argument.type for argument in arguments])
    return binder.call("MAP", node, [_as(argument, types[at % 2]) for at, argument in enumerate(arguments)])


def _as(value: Expression, of: SqlType | None) -> Expression:
    return value if of is None or of.name == "NULL" else converted(value, of)
