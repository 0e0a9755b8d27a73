"""Binds the clauses of JSON_VALUE, JSON_QUERY and JSON_EXISTS: ``RETURNING``, ``ON EMPTY``, ``ON ERROR``, and wrappers.

They are CASE of what a path has found in a text: a value, nothing (``empty``), or an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from forkpoint.relational.digits import MOST
from forkpoint.relational.expressions import Call, Expression, Literal
from forkpoint.relational.functions import castable
from forkpoint.relational.types import BOOLEAN, NUMBERS, STRING, SqlType, decimal_type
from forkpoint.sql.errors import SqlError
from forkpoint.sql.json_clauses import WITH_PATHS
from forkpoint.sql.tokens import CALL, called_name
from forkpoint.sql.types import type_of_text

if TYPE_CHECKING:
    from forkpoint.sql.binding.expressions import Binder

    Node = Any

_NULL = Literal(None, SqlType("NULL"))
_TEXT = STRING.with_null(False)
_WRAPPERS = {
    "WITHOUT WRAPPER": "",
    "WITHOUT ARRAY WRAPPER": "",
    **dict.fromkeys(("WITH WRAPPER", "WITH ARRAY WRAPPER"), " WITH UNCONDITIONAL ARRAY WRAPPER"),
    **{
        f"WITH {kind} {words}": f" WITH {kind} ARRAY WRAPPER"
        for kind in ("CONDITIONAL", "UNCONDITIONAL")
        for words in ("WRAPPER", "ARRAY WRAPPER")
    },
}
_ANSWERS: dict[str, dict[str, Expression]] = {
    "JSON_VALUE": {"NULL": _NULL},
    "JSON_QUERY": {"NULL": _NULL, "EMPTY ARRAY": Literal("[]", _TEXT), "EMPTY OBJECT": Literal("{}", _TEXT)},
    "JSON_EXISTS": {
        **{str(each).upper(): Literal(each, BOOLEAN.with_null(False)) for each in (True, False)},
        "UNKNOWN": Literal(None, BOOLEAN),
    },
}


def bind_path(binder: Binder, node: Node) -> Expression | None:
    """A call with clauses; None for other nodes."""
    name = called_name(node)
    if name not in WITH_PATHS or not any(map(_clause, node.expressions[2:])):
        return None
    answers: dict[str, Expression | None] = {}
    returning, wrapper, defaults = STRING, "", []
    for each in node.expressions[2:]:
        words = _clause(each)
        if not words:
            defaults.append(each)
        elif words.startswith("RETURNING ") and name != "JSON_EXISTS":
            returning = _type(binder, node, name, words.removeprefix("RETURNING "))
        elif words in _WRAPPERS and name == "JSON_QUERY":
            wrapper = _WRAPPERS[words]
        else:
            answer, _, when = words.rpartition(" ON ")
            known = {**_ANSWERS[name], "ERROR": None}
            if returning.is_nested:
                del known["EMPTY OBJECT"]
            if answer == "DEFAULT" and name == "JSON_VALUE":
                known["DEFAULT"] = binder.bind(defaults.pop())
            if answer not in known or when in answers or (name == "JSON_EXISTS" and when == "EMPTY"):
                raise binder.error(node, f"{name} has no {words} here; it has {', '.join(known)} ON {_whens(name)}")
            answers[when] = known[answer]
    if not returning.is_nested:
        return _Answered(binder, node, name, wrapper, returning.with_null()).of(answers)
    return binder.call("JSON ELEMENTS", node, [_Answered(binder, node, name, wrapper, STRING, of_array=True).of(answers)])


def _whens(name: str) -> str:
    return "ERROR" if name == "JSON_EXISTS" else "EMPTY and ON ERROR"


def _clause(node: Node) -> str:
    """The words of a clause; "" for another argument."""
    text = str(node.this) if isinstance(node, exp.Literal) and node.is_string else ""
    return text.removeprefix(CALL) if text.startswith(CALL) else ""


def _type(binder: Binder, node: Node, name: str, text: str) -> SqlType:
    try:
        found = type_of_text(text)
    except SqlError as error:
        raise binder.error(node, f"RETURNING {text} is no type of SQL") from error
    if name == "JSON_QUERY" and found.label not in ("STRING", "ARRAY<STRING>"):
        raise binder.error(node, f"JSON_QUERY returns STRING and ARRAY<STRING>, not {found.label}")
    if name == "JSON_VALUE" and found.name not in ("STRING", "BOOLEAN", *NUMBERS):
        raise binder.error(node, f"JSON_VALUE returns texts, numbers and BOOLEAN, not {found.label}; CAST its text")
    return found


class _Answered:
    """A call with answers for what is no value."""

    def __init__(self, binder: Binder, node: Node, name: str, wrapper: str, of: SqlType, *, of_array: bool = False) -> None:
        arguments = list(map(binder.bind, node.expressions[:2]))
        self._binder, self._node, self._of = binder, node, BOOLEAN if name == "JSON_EXISTS" else of
        self._value = binder.call(f"{name}{wrapper}", node, arguments)
        self._state = binder.call(f"{name} STATE{wrapper or ' OF ARRAY' * of_array}", node, arguments)

    def of(self, answers: dict[str, Expression | None]) -> Expression:
        error = answers.get("ERROR", _NULL)
        value = self._typed(self._value, "CAST" if error is None else "TRY_CAST")
        if self._of.name == "BOOLEAN" and self._value.type.name == "BOOLEAN":  # JSON_EXISTS
            return self._case([("error", self._answer("error", error))], value)
        if error is not None and value is not self._value:
            value = self._binder.call("COALESCE", self._node, [value, self._answer("error", error)])
        cases = [(when, self._answer(when, answers.get(when.upper(), _NULL))) for when in ("empty", "error")]
        return self._case([("value", value), *cases], _NULL)

    def _case(self, cases: list[tuple[str, Expression]], default: Expression) -> Expression:
        parts: list[Expression] = []
        for state, then in cases:
            parts += [self._binder.call("=", self._node, [self._state, Literal(state, _TEXT)]), then]
        return self._binder.call("CASE", self._node, [*parts, default])

    def _answer(self, when: str, given: Expression | None) -> Expression:
        if given is None:
            given = self._binder.call("JSON ERROR", self._node, [self._state, Literal(when, _TEXT)])
        elif given.type.name != "NULL" and not castable(given.type, self._of):
            raise self._binder.error(self._node, f"DEFAULT is {given.type.label}, which is no {self._of.label}")
        return self._typed(given, "CAST")

    def _typed(self, value: Expression, cast: str) -> Expression:
        if value.type.name == "NULL" or value.type.same_values(self._of):
            return value
        if self._of.is_integer and value.type.name == "STRING":  # of a fraction, the whole part
            value = Call(cast, (value,), decimal_type((MOST, 9)))
        return Call(cast, (value,), self._of)
