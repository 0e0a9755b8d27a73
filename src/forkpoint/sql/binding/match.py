"""Binds MATCH_RECOGNIZE: the pattern of a table's rows, what a row must be for each variable, and what is shown of a match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
from sqlglot import exp

from forkpoint.relational.calls import Order
from forkpoint.relational.event_time import is_processing_time, rowtimes, why_not_rowtime
from forkpoint.relational.expressions import Call, Column, Expression, Item, Literal, columns_of
from forkpoint.relational.plan import Match, Plan, Select, is_updating
from forkpoint.relational.row_patterns import MATCH_NUMBER, MATCH_ROWTIME, Defined, Matched, RowPattern
from forkpoint.relational.types import BIGINT, STRING, SqlType
from forkpoint.sql.binding.aggregates import aggregate_call, is_aggregate
from forkpoint.sql.binding.expressions import Binder
from forkpoint.sql.binding.over import order_of
from forkpoint.sql.binding.scopes import Relation, Scope
from forkpoint.sql.binding.times import interval_of
from forkpoint.sql.errors import SqlError, did_you_mean
from forkpoint.sql.match_clauses import PatternText, clauses_of, listed
from forkpoint.sql.tokens import called_name, named_calls

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

    from forkpoint.sql.binding.table_calls import Calls

    Node = Any

_NAVIGATION = ("FIRST", "LAST", "PREV", "NEXT", "CLASSIFIER", MATCH_NUMBER, MATCH_ROWTIME, "MATCH_PROCTIME")
_SKIP = {"TO NEXT ROW": "skip_to_next", "PAST LAST ROW": "skip_past_last_event"}
_WHOLE = ("FINAL", "RUNNING")  # how much of a match a measure reads
_ONE_CALL = "{} is for one call; make it a measure of its own, and compute with both outside"
_LEVELS = ("this", "table", "db", "catalog")  # of a name's parts, the last first
_USE = "PATTERN (A B+) DEFINE A AS A.price > 10"


@dataclass(frozen=True)
class MatchCall:
    """A MATCH_RECOGNIZE. ``data``: the query of its table. ``at``: its offset in the source. ``measures``, ``defined``:
    expressions with their names, and whether a measure is FINAL. ``skip``: with the variable to skip to, or "". ``excluded``:
    the variables whose rows are not shown."""

    at: int
    data: Node
    partition: tuple[Token, ...]
    order: Node
    measures: tuple[tuple[Node, Token, bool], ...]
    all_rows: bool
    skip: tuple[str, str]
    pattern: RowPattern
    pattern_at: int
    within: Node
    subsets: Mapping[str, tuple[str, ...]]
    defined: tuple[tuple[Token, Node], ...]
    excluded: tuple[str, ...]
    function: str = "MATCH_RECOGNIZE"


def match_call(calls: Calls, first: Token, data: list[Token], tokens: list[Token]) -> MatchCall:
    """``data``: the tokens of its table; ``tokens``: those in its parentheses. Raises SqlError."""

    def error(at: Token | int, problem: str) -> SqlError:
        return calls.query.source.error(at if isinstance(at, int) else calls.at(at), problem)

    clauses = clauses_of(tokens, error)
    for word in ("PATTERN", "DEFINE"):
        if not clauses.get(word):
            raise error(first, f"MATCH_RECOGNIZE needs {word}: {_USE}")
    if not clauses.get("ORDER BY"):
        raise error(first, "MATCH_RECOGNIZE needs ORDER BY the event time of its rows")
    for word, rest in (("ONE", "ROW PER MATCH"), ("ALL", "ROWS PER MATCH")):
        if word in clauses and " ".join(token.text.upper() for token in clauses[word]) != rest:
            raise error(clauses[word][0] if clauses[word] else first, f"expected {word} {rest}, and nothing after it")
    opening, closing = clauses["PATTERN"][0], clauses["PATTERN"][-1]
    start, end = calls.at(opening) + 1, calls.at(closing)
    if opening.text != "(" or closing.text != ")":
        raise error(opening, f"PATTERN is in parentheses: {_USE}")
    source = calls.query.source
    text = PatternText(source.text[start:end], start, error)
    pattern = text.read()
    partition = tuple(token for token in clauses.get("PARTITION BY", ()) if token.token_type.name != "COMMA")
    order = calls.parsed([*calls.selecting(clauses["ORDER BY"][0]), *calls.ordering(first, clauses["ORDER BY"])])
    return MatchCall(
        calls.at(first),
        calls.table(data)[0],
        partition,
        order.args["order"],
        tuple(_measure(part, calls, error) for part in listed(clauses["MEASURES"])) if clauses.get("MEASURES") else (),
        "ALL" in clauses,
        _skip(clauses.get("AFTER", []), error),
        pattern,
        start,
        calls.parsed(clauses["WITHIN"]) if clauses.get("WITHIN") else None,
        dict(_subset(part, error) for part in listed(clauses["SUBSET"])) if clauses.get("SUBSET") else {},
        tuple(_definition(part, calls, error) for part in listed(clauses["DEFINE"])),
        tuple(text.excluded),
    )


def _measure(tokens: list[Token], calls: Calls, error: Any) -> tuple[Node, Token, bool]:
    if len(tokens) < 3 or tokens[-2].text.upper() != "AS":
        raise error(tokens[-1], "a measure has a name: LAST(A.price) AS last_price")
    kind = tokens[0].text.upper() if tokens[1].text != "." else ""
    tokens = tokens[1:] if kind in _WHOLE else tokens
    try:
        return calls.parsed(named_calls(tokens[:-2], _NAVIGATION)), tokens[-1], kind == "FINAL"
    except SqlError:
        inner = next((token for token in tokens[:-2] if token.text.upper() in _WHOLE), None)
        if inner is None:
            raise
        raise error(inner, _ONE_CALL.format(inner.text.upper())) from None


def _definition(tokens: list[Token], calls: Calls, error: Any) -> tuple[Token, Node]:
    if len(tokens) < 3 or tokens[1].text.upper() != "AS":
        raise error(tokens[0], f"DEFINE says what a variable is: {_USE}")
    return tokens[0], calls.parsed(named_calls(tokens[2:], _NAVIGATION))


def _skip(tokens: list[Token], error: Any) -> tuple[str, str]:
    """AFTER MATCH SKIP, by default as in Flink."""
    if not tokens:
        return "skip_to_next", ""
    words = [token.text.upper() for token in tokens]
    rest = " ".join(words[2:])
    if words[:2] != ["MATCH", "SKIP"]:
        raise error(tokens[0], "expected AFTER MATCH SKIP PAST LAST ROW, TO NEXT ROW, or TO FIRST or TO LAST and a variable")
    if rest in _SKIP:
        return _SKIP[rest], ""
    if words[2:3] == ["TO"] and len(words) in (4, 5) and (len(words) == 4 or words[3] in ("FIRST", "LAST")):
        return "skip_to_first" if words[3] == "FIRST" and len(words) == 5 else "skip_to_last", tokens[-1].text
    raise error(tokens[-1], "expected AFTER MATCH SKIP PAST LAST ROW, TO NEXT ROW, or TO FIRST or TO LAST and a variable")


def _subset(tokens: list[Token], error: Any) -> tuple[str, tuple[str, ...]]:
    if len(tokens) < 5 or tokens[1].text != "=" or tokens[2].text != "(":
        raise error(tokens[0], "SUBSET gives several variables a name: SUBSET X = (A, B)")
    return tokens[0].text, tuple(token.text for token in tokens[3:-1] if token.token_type.name != "COMMA")


# -- binding -----------------------------------------------------------------------------------------------------------


def bind_match(call: MatchCall, data: Plan, binder: Binder) -> Plan:
    """The rows of the matches. Raises SqlError."""
    source = binder.scope.source

    def error(problem: str, at: Token | None = None) -> SqlError:
        return source.error(call.at if at is None else binder.offset + at.start, problem)

    if is_updating(data):
        raise error("MATCH_RECOGNIZE takes rows that are only added, but its table also changes rows that it had before")
    variables = _variables(call, error, source)
    rows = _Rows(call, data, binder, variables)
    partition = tuple(rows.partitioned(token, error) for token in call.partition)
    order, processing = _order(call, rows, error)
    named = set(call.pattern.variables())
    _check_defined(call, named, error)
    defined = tuple(rows.defined(token, node, error) for token, node in call.defined if token.text in named)
    skip, to = call.skip
    if to and to not in named:
        raise error(f"AFTER MATCH SKIP TO {to}: PATTERN has no such variable; {did_you_mean(to, named)}")
    if skip == "skip_to_first" and to == call.pattern.parts[0].variable and not call.pattern.parts[0].may_lack:
        raise error(f"AFTER MATCH SKIP TO FIRST {to}: every match begins with {to}, so the same match would be found again")
    _check_pattern(call, source)
    reads: dict[str, Matched] = {}
    ordered = [name for name in dict.fromkeys(map(_name_of, order)) if name not in partition] if call.all_rows else []
    others = [each.name for each in data.schema if each.name not in (*partition, *ordered)] if call.all_rows else []
    names = [*partition, *ordered, *others, *(token.text for _, token, _ in call.measures)]
    twice = next((token for _, token, _ in call.measures if names.count(token.text) > 1), None)
    if twice is not None:
        has = "all columns of its rows" if call.all_rows else "those of PARTITION BY come first"
        raise error(f"the result has two columns {twice.text!r}: {has}; rename one", twice)
    measures = [(token.text, rows.measured(node, reads, final)) for node, token, final in call.measures]
    of_rows = {name: rows.of_row(name, reads) for name in (*ordered, *others)}
    within = None if call.within is None else _within_ms(call, binder)
    if not reads:  # a row has columns
        reads["CLASSIFIER()"] = Matched("CLASSIFIER", (), STRING)
    found = Match(
        Select(data, None, tuple(rows.items.values())),
        partition,
        order,
        call.pattern,
        defined,
        tuple(reads.values()),
        skip,
        to,
        within,
        processing,
        call.all_rows,
        call.excluded if call.all_rows else (),
        tuple((at, *of) for at, of in rows.earlier.items()),
    )
    columns = {each.name: each for each in found.schema}
    items = [Item(name, Column(name, columns[name].type)) for name in partition]
    items += [Item(name, of_rows[name]) for name in ordered] + [Item(name, of) for name, of in measures]
    return Select(found, None, (*items, *(Item(name, of_rows[name]) for name in others)))


def _variables(call: MatchCall, error: Any, source: Any) -> dict[str, tuple[str, ...]]:
    """The variables, and those that SUBSET gives a name, with the ones that each stands for."""
    names = list(call.pattern.variables())
    others = [token.text for token, _ in call.defined if token.text not in names]
    twice = next((name for name in call.excluded if names.count(name) > call.excluded.count(name)), None)
    if twice is not None:
        raise source.error(
            call.pattern_at, f"variable {twice!r} is also outside {{- -}}; give it another name there, with the same condition"
        )
    found: dict[str, tuple[str, ...]] = {name: (name,) for name in [*names, *others]}
    for name, parts in call.subsets.items():
        missing = next((part for part in parts if part not in names), None)
        if missing is not None or name in found:
            raise error(f"SUBSET {name}: {missing or name!r} is {'no' if missing else 'a'} variable of PATTERN")
        found[name] = parts
    return found


def _check_defined(call: MatchCall, named: set[str], error: Any) -> None:
    """Refuse a variable that looks like one of PATTERN with another spelling. Flink allows others that PATTERN does not have."""
    lower = {name.lower(): name for name in named - {token.text for token, _ in call.defined}}
    for token, _ in call.defined:
        meant = lower.get(token.text.lower())
        if token.text not in named and meant is not None:
            raise error(f"PATTERN has no variable {token.text!r}; did you mean {meant!r}?", token)


def _check_pattern(call: MatchCall, source: Any) -> None:
    """Refuse what can match no rows, or whose end is not known."""
    parts = call.pattern.parts
    empty = next((each for each in call.pattern.groups() if each.high is None and each.may_lack), None)
    if empty is not None:
        raise source.error(
            call.pattern_at, f"the group {empty} repeats, but may have no rows; make one of its variables necessary"
        )
    if all(part.may_lack for part in parts):
        raise source.error(call.pattern_at, "a pattern that can match no rows is not supported; make a variable necessary")
    for last in call.pattern.ends():
        if last.high == last.low or last.reluctant or (last.low, last.high) == (0, 1):
            continue
        raise source.error(
            call.pattern_at,
            f"the last variable, {last}, is greedy: its end is not known until another row comes; write {last}?, or end with a "
            "variable that is the row after it",
        )


def _order(call: MatchCall, rows: _Rows, error: Any) -> tuple[tuple[Order, ...], bool]:
    """ORDER BY, event time first, and whether it is processing time."""
    found = []
    for node in call.order.expressions:
        of = rows.plain(node.this)
        if not isinstance(of, Column):
            raise rows.binder.error(node, "ORDER BY takes columns here; compute others in a subquery")
        found.append(order_of(node, Column(rows.read(of), of.type), rows.binder))
    first, name = call.order.expressions[0], _name_of(found[0])
    if is_processing_time(rows.data, name):
        return (), True
    if name not in rowtimes(rows.data) or found[0].descending:
        raise rows.binder.error(first, f"ORDER BY starts with event time, ascending: {why_not_rowtime(rows.data, name)}")
    return tuple(found), False


def _name_of(order: Order) -> str:
    assert isinstance(order.of, Column)
    return order.of.name


def _within_ms(call: MatchCall, binder: Binder) -> int:
    node = call.within
    if not isinstance(node, exp.Interval):
        raise binder.error(node, "WITHIN takes an interval, such as WITHIN INTERVAL '1' HOUR")
    unit, count = interval_of(binder, node)
    if unit in ("MONTH", "YEAR") or count < 1000 or count % 1000:
        raise binder.error(node, "WITHIN takes an interval of whole milliseconds, at least one")
    return count // 1000


@dataclass
class _Rows:
    """What is read of rows and matches. ``items``: the columns of the rows, by their texts. ``earlier``: those that show another
    one of the row a number of rows before."""

    call: MatchCall
    data: Plan
    binder: Binder
    variables: Mapping[str, tuple[str, ...]]
    items: dict[str, Item] = field(default_factory=dict)
    earlier: dict[str, tuple[str, int]] = field(default_factory=dict)

    def plain(self, node: Node) -> Expression:
        """An expression of a row's own columns."""
        scope = Scope(self.binder.scope.source, (Relation.of("", self.data),), functions=self.binder.scope.functions)
        return Binder(scope, self.binder.offset, None, "in MATCH_RECOGNIZE").bind(node)

    def read(self, of: Expression) -> str:
        """The name of the column with an expression of a row."""
        name = of.name if isinstance(of, Column) else str(of)
        self.items.setdefault(name, Item(name, of))
        return name

    def before(self, column: str, rows: int, of: SqlType) -> str:
        """The name of the column that shows another one of an earlier row."""
        name = f"PREV({column}, {rows})"
        self.items.setdefault(name, Item(name, Call("CAST", (Literal(None, SqlType("NULL")),), of)))
        self.earlier[name] = column, rows
        return name

    def partitioned(self, token: Token, error: Any) -> str:
        columns = {each.name: each for each in self.data.schema}
        if token.text not in columns:
            raise error(f"there is no column {token.text!r}; {did_you_mean(token.text, columns)}", token)
        if columns[token.text].type.is_nested:
            raise error(f"PARTITION BY takes no {columns[token.text].type.name} yet; partition by its parts", token)
        return self.read(Column(token.text, columns[token.text].type))

    def defined(self, variable: Token, node: Node, error: Any) -> Defined:
        reads: dict[str, Matched] = {}
        if next(each for each in self.call.defined if each[0].text == variable.text)[0] is not variable:
            raise error(f"variable {variable.text!r} is defined twice", variable)
        condition = self._bound(node, _Reads(self, reads, variable.text))
        if condition.type.name != "BOOLEAN":
            raise self.binder.error(node, f"DEFINE {variable.text} AS takes a condition, not {condition.type.name}")
        return Defined(variable.text, condition, tuple(reads.values()))

    def measured(self, node: Node, reads: dict[str, Matched], final: bool) -> Expression:
        if final and self.call.all_rows and called_name(node) not in _NAVIGATION and not is_aggregate(node):
            raise self.binder.error(node, _ONE_CALL.format("FINAL"))
        return self._bound(node, _Reads(self, reads, final=final and self.call.all_rows))

    def of_row(self, name: str, reads: dict[str, Matched]) -> Column:
        """A column of the row itself."""
        of = next(each.type for each in self.data.schema if each.name == name)
        read = Matched("ROW", (), of, self.read(Column(name, of)))
        reads[str(read)] = read
        return Column(str(read), of)

    def _bound(self, node: Node, reads: _Reads) -> Expression:
        return replace(self.binder, matched=reads, clause="in MATCH_RECOGNIZE").bind(node)


@dataclass
class _Reads:
    """Takes what an expression reads of a match out of it. ``found``: by the name of the column that stands for it. ``variable``:
    whose row is asked about; "" in MEASURES, which may be ``final``."""

    rows: _Rows
    found: dict[str, Matched]
    variable: str = ""
    final: bool = False

    def column(self, node: Node, binder: Binder) -> Column | None:
        """The column that stands for a node; None if it is no read itself."""
        name = called_name(node)
        match name:
            case "FIRST" | "LAST":
                return self._kept(self._neighbour(name, node, 0, binder))
            case "PREV":
                return self._kept(self._previous(node, binder))
            case "NEXT":
                raise binder.error(node, "NEXT is not supported; write a variable for the next row")
            case "MATCH_PROCTIME":
                raise binder.error(node, "MATCH_PROCTIME() is not supported yet")
            case "MATCH_NUMBER":
                if self.variable:
                    raise binder.error(node, "MATCH_NUMBER() is for MEASURES: which match it is, is known once it is complete")
                return self._kept(Matched(name, (), BIGINT.with_null(False)))
            case "CLASSIFIER":
                if node.expressions:
                    raise binder.error(node, "CLASSIFIER() takes no variable: it is that of the last row")
                return self._kept(Matched(name, (), STRING))
            case "MATCH_ROWTIME":
                return self._kept(self._rowtime(node, binder))
        if is_aggregate(node):
            return self._kept(self._aggregate(node, binder))
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            return self._kept(self._value("LAST", node, 0, binder))
        return None

    def _kept(self, read: Matched) -> Column:
        read = msgspec.structs.replace(read, final=self.final or (self.rows.call.all_rows and read.function == MATCH_ROWTIME))
        self.found[str(read)] = read
        return Column(str(read), read.type)

    def _rowtime(self, node: Node, binder: Binder) -> Matched:
        time = self.rows.call.order.expressions[0].this.name
        fields = {each.name: each.type for each in self.rows.data.schema}
        if self.variable or time not in rowtimes(self.rows.data):
            raise binder.error(node, "MATCH_ROWTIME() is for MEASURES of rows with event time")
        return Matched(MATCH_ROWTIME, (), fields[time].with_null(False), self.rows.read(Column(time, fields[time])))

    def _previous(self, node: Node, binder: Binder) -> Matched:
        """The rows of a match have no others in between, so the row before is one of them, if a match always has that many.
        Otherwise each row shows what is read of it."""
        read = self._neighbour("PREV", node, 1, binder)
        pattern, variables = self.rows.call.pattern, read.variables or ((self.variable,) if self.variable else ())
        before = min((pattern.before(each) or 0 for each in variables), default=pattern.fewest - 1)
        if read.offset <= before:
            return read
        return msgspec.structs.replace(read, column=self.rows.before(read.column, read.offset, read.type), offset=0)

    def _neighbour(self, name: str, node: Node, offset: int, binder: Binder) -> Matched:
        arguments = node.expressions
        if len(arguments) == 2 and isinstance(arguments[1], exp.Literal) and str(arguments[1].this).isdigit():
            offset = int(arguments[1].this)
        elif len(arguments) != 1:
            raise binder.error(node, f"{name} takes a value, and a whole number of rows: {name}(A.price, 1)")
        if is_aggregate(arguments[0]) or called_name(arguments[0]) in _NAVIGATION:
            raise binder.error(arguments[0], f"{name} takes columns of a row")
        return self._value(name, arguments[0], offset, binder)

    def _value(self, name: str, node: Node, offset: int, binder: Binder) -> Matched:
        """A value of one row: its columns, all of one variable."""
        variables, own = self._own_columns(node, binder)
        of = self.rows.plain(own)
        return Matched(name, variables, of.type.with_null(), self.rows.read(of), offset)

    def _own_columns(self, node: Node, binder: Binder) -> tuple[tuple[str, ...], Node]:
        """The variables that the columns of an expression are of, and the expression without them."""
        own, named = node.copy(), set[str]()
        columns = {each.name for each in self.rows.data.schema}
        for column in own.find_all(exp.Column):
            first, *fields = column.parts
            if first.name in self.rows.variables and fields:
                named.add(first.name)
                if len(fields) > 1 and fields[0].name not in columns:
                    raise binder.error(node, f"there is no column {fields[0].name!r}; {did_you_mean(fields[0].name, columns)}")
                for level, part in zip(_LEVELS, [*reversed(fields), *[None] * len(_LEVELS)], strict=False):
                    column.set(level, part)
            elif not fields or first.name in columns:  # a column, or fields of one
                named.add("")
            else:
                known = did_you_mean(first.name, self.rows.variables)
                raise binder.error(node, f"PATTERN has no variable {first.name!r}; {known}")
        if len(named) > 1:
            raise binder.error(node, f"the columns of {node.sql()} are of several variables; a value is of one row")
        return self.rows.variables.get(next(iter(named), ""), ()), own

    def _aggregate(self, node: Node, binder: Binder) -> Matched:
        variables, own = self._own_columns(node, binder)
        for star in own.find_all(exp.Column):
            if isinstance(star.this, exp.Star):
                star.replace(exp.Star())
        scope = Scope(binder.scope.source, (Relation.of("", self.rows.data),), functions=binder.scope.functions)
        inner = Binder(scope, binder.offset, None, "inside an aggregate")
        call = aggregate_call(inner, own, inner)
        if call.condition is not None or call.accumulator is not msgspec.UNSET or call.distinct:
            raise binder.error(node, "FILTER, DISTINCT and functions in Python are not supported in MATCH_RECOGNIZE yet")
        for column in () if call.argument is None else columns_of(call.argument):
            self.rows.read(column)
        return Matched("AGGREGATE", variables, call.type, call=call)
