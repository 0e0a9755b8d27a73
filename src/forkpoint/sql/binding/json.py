"""Binds what makes JSON: ``JSON_OBJECT('k' VALUE v … NULL ON NULL)``, ``JSON_ARRAY(v, …)``, and what their aggregates read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from forkpoint.relational.expressions import Call, Expression, Literal
from forkpoint.relational.functions.json_texts import NULL
from forkpoint.relational.types import STRING, SqlType
from forkpoint.sql.binding.json_paths import bind_path
from forkpoint.sql.json_clauses import NULL_CLAUSES
from forkpoint.sql.tokens import called_name

if TYPE_CHECKING:
    from forkpoint.sql.binding.expressions import Binder

    Node = Any

_CONSTRUCTORS = ("JSON_OBJECT", "JSON_ARRAY", "JSON")
_TEXT = STRING.with_null(False)


def bind_json(binder: Binder, node: Node) -> Expression | None:
    """The expression, if it is one of those; None otherwise."""
    if isinstance(node, exp.JSONObject):
        parts = dict(member for pair in node.expressions for member in [_member(binder, pair, node)])
        members = [part for key in sorted(parts) for part in (Literal(key, _TEXT), parts[key])]
        return binder.call("JSON_OBJECT", node, members)
    if called_name(node) in _arrays():
        return binder.call("JSON_ARRAY", node, [json_text(binder, each, node) for each in node.expressions])
    return bind_path(binder, node)


def _arrays() -> set[str]:
    return {"JSON_ARRAY", *(f"JSON_ARRAY {clause}" for clause in NULL_CLAUSES)}


def _member(binder: Binder, pair: Node, node: Node) -> tuple[str, Expression]:
    key, value = key_and_value(binder, pair, node)
    if not isinstance(key, exp.Literal) or not key.is_string:
        raise binder.error(key, "a key of JSON_OBJECT is a text in single quotes; JSON_OBJECTAGG has others")
    return str(key.this), json_text(binder, value, node)


def key_and_value(binder: Binder, pair: Node, node: Node) -> tuple[Node, Node]:
    if not isinstance(pair, exp.JSONKeyValue):
        raise binder.error(node, f"{node.sql_name()} takes keys and values, such as 'key' VALUE column")
    return pair.this, pair.expression


def json_text(binder: Binder, value: Node, within: Node) -> Expression:
    """A value as JSON, for a call that leaves out NULL. JSON that ``value`` makes is not quoted once more."""
    found = binder.bind(value)
    if not (isinstance(found, Call) and found.function in _CONSTRUCTORS):
        found = binder.call("JSON_STRING", value, [found])
    if not found.type.nullable or not _keeps_null(within):
        return found
    return binder.call("COALESCE", value, [found, Literal(NULL, _TEXT)])


def _keeps_null(node: Node) -> bool:
    """Whether NULL is a value: that of an object unless it is ABSENT ON NULL, that of an array only if it is NULL ON NULL."""
    if isinstance(node, exp.JSONObject | exp.JSONObjectAgg):
        return str(node.args.get("null_handling") or NULL_CLAUSES[0]).upper() == NULL_CLAUSES[0]
    return called_name(node).endswith(f" {NULL_CLAUSES[0]}")


def json_elements(binder: Binder, name: str, node: Node) -> Expression:
    """What JSON_ARRAYAGG and JSON_OBJECTAGG collect."""
    if name == "JSON_ARRAYAGG":
        if len(node.expressions) != 1:
            raise binder.error(node, "JSON_ARRAYAGG takes one argument")
        return json_text(binder, node.expressions[0], node)
    if len(node.expressions) != 1:
        raise binder.error(node, "JSON_OBJECTAGG takes one key and its value: JSON_OBJECTAGG(KEY key VALUE value)")
    key, value = key_and_value(binder, node.expressions[0], node)
    found = binder.bind(key)
    if found.type.name != "STRING":
        raise binder.error(key, f"a key of JSON_OBJECTAGG is a text, not {found.type.label}; CAST it AS STRING")
    text = json_text(binder, value, node)
    return present_only(binder, node, text, binder.call("ROW", node, [found, text]))


def present_only(binder: Binder, node: Node, value: Expression, then: Expression) -> Expression:
    """An expression where a value is present, and NULL where it is NULL."""
    if not value.type.nullable:
        return then
    return where_true(binder.call("IS NOT NULL", node, [value]), then)


def where_true(condition: Expression, then: Expression) -> Expression:
    """An expression where a condition is true, and NULL elsewhere."""
    return Call("CASE", (condition, then, Literal(None, SqlType("NULL"))), then.type.with_null())
