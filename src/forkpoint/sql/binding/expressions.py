"""Binds expressions: sqlglot's syntax trees become typed expressions over the columns in scope."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace
from sqlglot import exp

from forkpoint.relational.aggregation.accumulators import AGGREGATES
from forkpoint.relational.calls import AggregateCall
from forkpoint.relational.digits import MOST
from forkpoint.relational.expressions import Call, Column, Expression, Literal, columns_of
from forkpoint.relational.functions import FUNCTIONS, castable
from forkpoint.relational.functions.changing import ARRIVAL, CLOCK, RANDOM, clock_call
from forkpoint.relational.functions.intervals import OF_INTERVALS
from forkpoint.relational.functions.seconds import OF_SECONDS, TIME_TEXT
from forkpoint.relational.functions.times import PART_FUNCTIONS
from forkpoint.relational.functions.user import UserFunction
from forkpoint.relational.precision import converted, same_values
from forkpoint.relational.types import BOOLEAN, INTERVALS, STRING, SqlType, array_type, decimal_type, map_type, time_type
from forkpoint.sql.binding.aggregates import bind_aggregate, is_aggregate
from forkpoint.sql.binding.json import bind_json
from forkpoint.sql.binding.nested import bind_nested
from forkpoint.sql.binding.over import OF_OVER
from forkpoint.sql.binding.scopes import Scope
from forkpoint.sql.binding.times import TIME_CALLS, bind_time, interval_literal, operated
from forkpoint.sql.errors import SqlError, did_you_mean
from forkpoint.sql.tokens import CALL, WINDOW_CALLS
from forkpoint.sql.types import named_type

if TYPE_CHECKING:
    from forkpoint.sql.binding.over import Overs
    from forkpoint.sql.binding.subqueries import Values

    Node = Any


class Reads(Protocol):
    """Columns for what an expression of MATCH_RECOGNIZE reads of a match."""

    def column(self, node: Node, binder: Binder) -> Column | None: ...


_BINARY: Mapping[type, str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.And: "AND",
    exp.Or: "OR",
    exp.DPipe: "||",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_ALIASES = {
    "CHARACTER_LENGTH": "CHAR_LENGTH",
    "CEILING": "CEIL",
    "SUBSTR": "SUBSTRING",
    "MOD": "%",
    **PART_FUNCTIONS,
}
_SYNTAX = {
    *(*OF_INTERVALS, *OF_SECONDS),
    *("AND", "OR", "NOT", "IN", "CASE", "LIKE", "NEGATE", "POSITION", "ARRAY", "MAP", "ROW", "FIELD", "ITEM"),
}
"""Functions that are not called by name."""
_KEYWORDS = {
    "SUBSTRING",
    "TRIM",
    "OVERLAY",
    "FLOOR",
    "CEIL",
    "CEILING",
    "IF",
    "JSON_OBJECT",
    "JSON_ARRAY",
}  # whose arguments may have keywords between them
COMPUTED, SELECTED = "in a computed column", "here"
_CHANGING = {*CLOCK, *RANDOM} - {"UNIX_TIMESTAMP", ARRIVAL}
"""Their values differ each time."""
_NAMED = {name for name in FUNCTIONS if name.replace("_", "").isalnum() and name not in _SYNTAX} | set(_ALIASES) | set(TIME_CALLS)
CALLED = frozenset((_NAMED | _CHANGING | set(WINDOW_CALLS)) - _KEYWORDS)
"""The functions whose calls have a name and arguments, no keywords."""
_OWN = frozenset(_NAMED | _CHANGING | _KEYWORDS | set(WINDOW_CALLS) | set(AGGREGATES))
_INT = 2**31
_SUBQUERIES = "subqueries are values and conditions in SELECT, WHERE and HAVING, outside of aggregates"


def function_names() -> list[str]:
    """The functions that a query may call."""
    return sorted({*_NAMED, *_KEYWORDS, *AGGREGATES})


@dataclass
class Binder:
    """Binds the expressions of one query. ``aggregates``: what it has found, by their text; None where they are not allowed, with
    ``clause``, the name of that place. ``offset``: of the query in its source. ``calls``: what calls mean in this query, by their
    text. ``matched``: what is read of the rows of a match."""

    scope: Scope
    offset: int
    aggregates: dict[str, AggregateCall] | None = None
    clause: str = SELECTED
    offsets: dict[str, int] = field(default_factory=dict)
    values: Values | None = None
    overs: Overs | None = None
    calls: Mapping[str, Expression] = field(default_factory=dict)
    matched: Reads | None = None

    def bind(self, node: Node) -> Expression:
        """The typed expression. Raises SqlError."""
        if self.matched is not None and (column := self.matched.column(node, self)) is not None:
            return column
        asked = self._asked(node)
        if asked is not None:
            return asked
        match node:
            case exp.Paren():
                return self.bind(node.this)
            case exp.Literal():
                return self._literal(node)
            case exp.Boolean():
                return Literal(bool(node.this), BOOLEAN.with_null(False))
            case exp.Null():
                return Literal(None, SqlType("NULL"))
            case exp.Neg():
                return self._negated(node)
            case exp.Not():
                return self.call("NOT", node, [self.bind(node.this)])
            case exp.Is():
                return self._is(node)
            case exp.NullSafeEQ():
                distinct = self.call("IS DISTINCT FROM", node, [self.bind(node.this), self.bind(node.expression)])
                return self.call("NOT", node, [distinct])
            case exp.Between():
                return self._between(node)
            case exp.In():
                if node.args.get("unnest") is not None:
                    raise self.error(node, "IN UNNEST is not supported yet; use ARRAY_CONTAINS")
                return self.call("IN", node, [self.bind(node.this), *map(self.bind, node.expressions)])
            case exp.Like() | exp.SimilarTo() | exp.Escape():
                return self._like(node)
            case exp.Case():
                return self._case(node)
            case exp.If():
                no = node.args.get("false")
                default = Literal(None, SqlType("NULL")) if no is None else self.bind(no)
                return self.call("IF", node, [self.bind(node.this), self.bind(node.args["true"]), default])
            case exp.Cast() | exp.TryCast():
                return self._cast(node)
            case exp.Window():
                if self.overs is None:
                    raise self.error(node, f"OVER is not allowed {self.clause}; select from a subquery with it")
                return self.overs.column(node, self)
            case exp.IgnoreNulls() | exp.RespectNulls() if not is_aggregate(node):
                raise self.error(node, "IGNORE NULLS and RESPECT NULLS are not supported yet")
            case exp.CurrentDatabase():
                return Literal(self.scope.functions.database, STRING.with_null(False))
            case exp.Typeof():
                return Literal(str(self.bind(node.this).type), STRING.with_null(False))
            case exp.Func() if type(node) in OF_OVER:
                raise self.error(node, f"{node.sql_name()} needs OVER (…)")
            case exp.Interval():
                return interval_literal(self, node)
            case exp.Dot(expression=exp.Func()):
                return self._by_path(node)
        nested = bind_nested(self, node) or bind_json(self, node)
        if nested is not None:
            return nested
        if is_aggregate(node) or self.aggregate_function(node) is not None:
            return bind_aggregate(self, node)
        if isinstance(node, exp.Column):
            return self._column(node)
        timed = bind_time(self, node)
        if timed is not None:
            return timed
        if type(node) in _BINARY:
            return operated(self, _BINARY[type(node)], node, [self.bind(node.this), self.bind(node.expression)])
        if isinstance(node, exp.Func):
            return self._function(node)
        if isinstance(node, exp.Subquery) and self.values is not None:
            return self.values.column(node, self.scope, self.error)
        if isinstance(node, exp.Subquery | exp.Exists):
            raise self.error(node, _SUBQUERIES)
        raise self.error(node, f"{node.sql()} is not supported yet")

    def _asked(self, node: Node) -> Expression | None:
        """The answer of a subquery to IN, EXISTS, ANY or ALL."""
        from forkpoint.sql.binding.subqueries import Question

        question = None if isinstance(node, exp.Not) else Question.of(node)
        if question is None:
            return None
        if self.values is None:
            raise self.error(node, f"a subquery is not allowed {self.clause}; {_SUBQUERIES}")
        return self.values.answer(question, node, self)

    # -- leaves

    def _column(self, node: Node) -> Expression:
        if isinstance(node.this, exp.Star):
            raise self.error(node, "* is a list of columns, not a value")
        found = self.scope.column(node.name, node.table, self.at(node))
        for column in columns_of(found):
            self.offsets.setdefault(column.name, self.at(node))
        return found

    def _literal(self, node: Node) -> Expression:
        text = str(node.this)
        if node.is_string:
            return Literal(text, SqlType("STRING", nullable=False))
        return self._number(node, text)

    def _number(self, node: Node, text: str) -> Expression:
        """A literal: whole numbers are integers as far as they fit, others DECIMAL, with an exponent DOUBLE."""
        if "e" in text.lower():
            return Literal(float(text), SqlType("DOUBLE", nullable=False))
        whole, _, fraction = text.removeprefix("-").partition(".")
        if not fraction and -(2**63) <= int(text.rstrip(".")) < 2**63:
            value = int(text.rstrip("."))
            return Literal(value, SqlType("INT" if -_INT <= value < _INT else "BIGINT", nullable=False))
        digits = len(whole + fraction), len(fraction)
        if digits[0] > MOST:
            raise self.error(node, f"{text} has more than {MOST} digits; write it with an exponent, as a DOUBLE")
        return Literal(text.rstrip("."), decimal_type(digits, nullable=False))

    def _negated(self, node: Node) -> Expression:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return self._number(node, f"-{node.this.this}")
        return operated(self, "NEGATE", node, [self.bind(node.this)])

    # -- forms

    def _is(self, node: Node) -> Expression:
        value, what = self.bind(node.this), node.expression
        if isinstance(what, exp.Null):
            return self.call("IS NULL", node, [value])
        if isinstance(what, exp.JSON):
            kind = f"IS JSON {what.this or ''}".strip()
            if kind not in FUNCTIONS or what.args.get("unique"):
                raise self.error(node, f"{kind}{' WITH UNIQUE KEYS' * bool(what.args.get('unique'))} is not supported yet")
            return self.call(kind, node, [value])
        return self.call("IS TRUE" if what.this else "IS FALSE", node, [value])

    def _between(self, node: Node) -> Expression:
        value = self.bind(node.this)
        low = self.call(">=", node, [value, self.bind(node.args["low"])])
        return self.call("AND", node, [low, self.call("<=", node, [value, self.bind(node.args["high"])])])

    def _like(self, node: Node) -> Expression:
        like, escape = (node.this, node.expression) if isinstance(node, exp.Escape) else (node, None)
        if not isinstance(like, exp.Like | exp.SimilarTo):
            raise self.error(like, f"{type(like).__name__.upper()} is not supported yet")
        parts = [self.bind(like.this), self.bind(like.expression), *([] if escape is None else [self.bind(escape)])]
        found = self.call("LIKE" if isinstance(like, exp.Like) else "SIMILAR TO", node, parts)
        return self.call("NOT", node, [found]) if like.args.get("negate") else found

    def _case(self, node: Node) -> Expression:
        parts: list[Expression] = []
        value = None if node.this is None else self.bind(node.this)
        for branch in node.args["ifs"]:
            condition = self.bind(branch.this)
            parts.append(condition if value is None else self.call("=", branch, [value, condition]))
            parts.append(self.bind(branch.args["true"]))
        default = node.args.get("default")
        parts.append(Literal(None, SqlType("NULL")) if default is None else self.bind(default))
        return self.call("CASE", node, parts)

    def _cast(self, node: Node) -> Expression:
        value = self.bind(node.this)
        failing_null = isinstance(node, exp.TryCast)
        found = self._type(node, node.to)
        target = found.with_null(value.type.nullable or failing_null)
        if not castable(value.type, target):
            raise self.error(node, f"cannot CAST {value.type.name} to {target.name}")
        if value.type.name in INTERVALS and target.name == "STRING":
            return self.call(f"{value.type.name} TEXT", node, [value])
        literal = _time_literal(value, target)
        if literal is not None:
            value = literal
            if not isinstance(target.precision, int):  # TIMESTAMP '…' has the digits that are written
                return value
        if target.name == "STRING" and isinstance(value.type.precision, int):
            return self.call(TIME_TEXT, node, [value, Literal(value.type.precision, SqlType("INT", nullable=False))])
        if same_values(value.type, target):
            return converted(value, target)
        return Call("TRY_CAST" if failing_null else "CAST", (value,), target)

    def _type(self, node: Node, of: Node) -> SqlType:
        """A type in CAST. ``node``: where it is."""
        name = str(of.this.name)
        if name == "USERDEFINED":  # sqlglot does not know BYTES
            name = str(of.args["kind"]).upper()
        if isinstance(of.this, exp.Interval):
            raise self.error(node, "CAST to an INTERVAL is not supported yet; multiply one: x * INTERVAL '1' SECOND")
        parts = [self._type(node, part) for part in of.expressions if isinstance(part, exp.DataType)]
        if name in ("ARRAY", "MAP") and len(parts) == (1 if name == "ARRAY" else 2):
            return array_type(*parts) if name == "ARRAY" else map_type(*parts)
        written = [part for part in of.expressions if isinstance(part, exp.DataTypeParam)]
        if not all(part.name.isdecimal() for part in written):
            raise self.error(node, f"{name} takes numbers in parentheses")
        numbers = [int(part.name) for part in written]
        return named_type(self.scope.source, self.at(node), name, numbers)

    def _function(self, node: Node) -> Expression:
        if self.calls and node.sql() in self.calls:
            return self.calls[node.sql()]
        name, arguments = self._called(node)
        user = self.scope.functions.named(name, () if self._in_lateral_table(node) else _OWN)
        if user is not None:
            return self._user_call(node, user, arguments)
        if name in WINDOW_CALLS:
            raise self.error(node, f"{name} belongs to GROUP BY {WINDOW_CALLS[name]}(…), with the same arguments")
        if name in _CHANGING or (name == "UNIX_TIMESTAMP" and not arguments):
            return self._changing(node, name, arguments)
        name = _ALIASES.get(name, name)
        if name not in FUNCTIONS or name in _SYNTAX - {"POSITION"}:
            known = {*_NAMED, *AGGREGATES, *self.scope.functions.names}
            raise self.error(node, f"there is no function {name}; {did_you_mean(name, sorted(known))}")
        return self.call(name, node, [self.bind(argument) for argument in arguments], arguments)

    def _changing(self, node: Node, name: str, arguments: list[Node]) -> Expression:
        """A function of the clock, or a random one."""
        if name in CLOCK:
            if arguments:
                raise self.error(node, f"{name} takes no arguments")
            return clock_call(name)
        of, count = RANDOM[name]
        found = list(map(self.bind, arguments))
        if not count <= len(found) <= count + (name != "UUID") or not all(each.type.is_integer for each in found):
            raise self.error(node, f"{name} takes {'no arguments' if name == 'UUID' else 'integers: a seed, and a bound'}")
        if len(found) > count and not isinstance(found[0], Literal):
            raise self.error(node, f"{name} takes a number as seed")
        same = [each for each in node.root().find_all(type(node)) if each.sql() == node.sql()]
        place = Literal(str(next(at for at, each in enumerate(same) if each is node)), SqlType("STRING", nullable=False))
        return Call(name, (place, *found), SqlType(of, nullable=any(each.type.nullable for each in found)))

    def _called(self, node: Node) -> tuple[str, list[Node]]:
        """A function's name and arguments, as they are written."""
        match node:
            case exp.Anonymous():
                return node.name.removeprefix(CALL).upper(), node.expressions
            case exp.Trim():
                sides = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}
                return sides.get(str(node.args.get("position")), "TRIM"), _arguments(node)
            case exp.StrPosition():
                return "POSITION", [node.args["substr"], node.this]
            case exp.Substring() | exp.Overlay() | exp.Floor() | exp.Ceil():
                return node.sql_name(), _arguments(node)
        start, end = node.meta.get("start"), node.meta.get("end")
        written = "" if start is None else self.scope.source.text[self.offset + start : self.offset + end + 1]
        return (written if written.replace("_", "").isalnum() else node.sql_name()).upper(), _arguments(node)

    def _in_lateral_table(self, node: Node) -> bool:
        """Whether a call is of a table function, of which SQL has none."""
        before = self.scope.source.text[: self.at(node)]
        return isinstance(node.parent, exp.Unnest) and re.search(r"\bLATERAL\s+TABLE\s*\(\s*$", before, re.IGNORECASE) is not None

    def aggregate_function(self, node: Node) -> UserFunction | None:
        """The user's aggregate function that a node calls, if it does."""
        if not isinstance(node, exp.Anonymous):
            return None
        found = self.scope.functions.named(self._called(node)[0], _OWN)
        return found if found is not None and found.kind == "aggregate" else None

    def _user_call(self, node: Node, function: UserFunction, arguments: list[Node]) -> Expression:
        name = function.name
        if function.kind == "process":
            raise self.error(node, f"{name} is a process function; write it in FROM: {name}(TABLE t PARTITION BY k)")
        if function.kind == "table" and not isinstance(node.parent, exp.Unnest):
            raise self.error(node, f"{name} is a table function; write it in FROM: CROSS JOIN LATERAL TABLE({name}(…)) AS x (…)")
        found = self.scope.functions.call(function, list(map(self.bind, arguments)), self.at(node))
        if isinstance(found, str):
            raise self.error(node, found)
        return found

    def _by_path(self, node: Node) -> Expression:
        """A function of another database: ``db.f(x)``."""
        name, arguments = self._called(node.expression)
        path = ".".join([*(part.name for part in node.this.find_all(exp.Identifier)), name])
        function = self.scope.functions.named(path, _OWN)
        if function is None:
            raise self.error(node, f"there is no function {path}; {did_you_mean(path, sorted(self.scope.functions.names))}")
        return self._user_call(node, function, arguments)

    def call(self, name: str, node: Node, arguments: list[Expression], nodes: list[Node] | None = None) -> Expression:
        function = FUNCTIONS[name]
        least, most = function.accepts
        if len(arguments) < least or (most is not None and len(arguments) > most):
            wanted = str(least) if most == least else f"{least} or more" if most is None else f"{least} to {most}"
            raise self.error(node, f"{name} takes {wanted} arguments, not {len(arguments)}")
        found = function.result([argument.type for argument in arguments])
        if isinstance(found, str):
            raise self.error(node, f"{name} {found}")
        for position, check in function.checks:
            literal = arguments[position] if position < len(arguments) else None
            problem = check(literal.value) if isinstance(literal, Literal) and literal.value is not None else None
            if problem is not None:
                raise self.error(node if nodes is None else nodes[position], f"{name}: {problem}")
        literals = [argument.value if isinstance(argument, Literal) else None for argument in arguments]
        return Call(name, tuple(arguments), function.refined(found, literals))

    def inside(self, function: str) -> Binder:
        """The binder of an aggregate's arguments."""
        return Binder(self.scope, self.offset, None, f"inside {function}")

    def condition(self, node: Node, clause: str) -> Expression:
        found = self.bind(node)
        if found.type.name == "NULL":
            return Literal(None, BOOLEAN)
        if found.type.name != "BOOLEAN":
            raise self.error(node, f"{clause} takes a condition, not {found.type.name}")
        return found

    # -- positions

    def at(self, node: Node) -> int:
        """Where a node begins, as far as is known: sqlglot keeps the positions of names and of most functions."""
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        text = self.scope.source.text
        if isinstance(node, exp.Literal) and node.parent is not None:
            written = "'" + node.this.replace("'", "''") + "'" if node.is_string else str(node.this)
            return max(text.find(written, self.at(node.parent)), self.offset)
        if not starts:
            words = [part.sql_name() if isinstance(part, exp.Func) else "NULL" for part in node.find_all(exp.Func, exp.Null)]
            named = [at for word in words if (at := text.upper().find(word, self.offset)) >= 0]
            return min(named) if named else self.offset if node.parent is None else self.at(node.parent)
        start: int = self.offset + min(starts)
        if isinstance(node, exp.Func) and "start" not in node.meta:
            before = text.upper().rfind(node.sql_name(), self.offset, start)
            start = start if before < 0 else before
        return start

    def error(self, node: Node, problem: str) -> SqlError:
        return self.scope.source.error(self.at(node), problem)


def _arguments(node: Node) -> list[Node]:
    """A function's arguments in the order of its text."""
    found: list[Node] = []
    for name in node.arg_types:
        value = node.args.get(name)
        if isinstance(value, list):
            found += value
        elif isinstance(value, exp.Expression):
            found.append(value)
    return found


def _time_literal(value: Expression, target: SqlType) -> Literal | None:
    """``DATE '…'`` and the like, which sqlglot reads as casts of a text; None for other casts."""
    if not isinstance(value, Literal) or value.type.name != "STRING" or target.name not in ("DATE", "TIME", "TIMESTAMP"):
        return None
    text = str(value.value).strip().replace(" ", "T", 1)
    found = Literal(text, SqlType(target.name, nullable=False))
    fraction = re.search(r"\.(\d{1,9})", text)
    if not found.is_valid or target.name == "DATE":
        return found if found.is_valid else None
    return replace(found, type=time_type(target.name, len(fraction[1]) if fraction else 0, nullable=False))
