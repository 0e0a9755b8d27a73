"""Expressions of a program as data, and their SQL: what they mean is found by the binder, as for any other text."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal

from forkpoint.errors import ConfigError
from forkpoint.sql.errors import did_you_mean
from forkpoint.table.data_types import DataType, RowField
from forkpoint.types import Row


@dataclass(frozen=True)
class Name:
    """A column; or a window, where it is asked for its start or end."""

    name: str


@dataclass(frozen=True)
class Value:
    """A literal. ``type``: None for that of the value."""

    value: Any
    type: DataType | None = None


@dataclass(frozen=True)
class Sql:
    """SQL with expressions in between. ``function``: the name in Flink of an operator, whose place a function of the program with
    that name takes."""

    parts: tuple[str | Node, ...]
    function: str = ""


@dataclass(frozen=True)
class FieldAt:
    """A field of a ROW by its place from 0."""

    of: Node
    at: int


@dataclass(frozen=True)
class Aggregate:
    function: str
    arguments: tuple[Node, ...]
    distinct: bool = False


@dataclass(frozen=True)
class WindowProperty:
    """``what``: START, END or ROWTIME."""

    window: Node
    what: str


@dataclass(frozen=True)
class OverWindow:
    """An aggregate or function over the rows of a window, which is named."""

    call: Node
    window: str


@dataclass(frozen=True)
class Interval:
    """A span of time. ``count``: whole units."""

    count: int
    unit: str


@dataclass(frozen=True)
class Distance:
    """How far a frame of OVER reaches. ``text``: a number of rows, UNBOUNDED or CURRENT ROW."""

    unit: Literal["ROWS", "RANGE"]
    text: str


@dataclass(frozen=True)
class Named:
    of: Node
    names: tuple[str, ...]


@dataclass(frozen=True)
class ColumnRange:
    """Columns from one to another, by name or by number."""

    first: str | int
    last: str | int


@dataclass(frozen=True)
class ColumnSet:
    """The columns of a table that are among these, or that are not."""

    of: tuple[Node, ...]
    without: bool


@dataclass(frozen=True)
class Fields:
    """All fields of a ROW."""

    of: Node


@dataclass(frozen=True)
class FunctionCall:
    """A call of a function that the program gives itself, not its name. ``function``: made by ``udf()``. ``columns``: the names
    of the arguments, if it takes them as a Row."""

    function: Any
    arguments: tuple[Node, ...]
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Relation:
    """A table of the program."""

    table: Any


Node = (
    Name
    | Value
    | Sql
    | FieldAt
    | Aggregate
    | WindowProperty
    | OverWindow
    | Interval
    | Distance
    | Named
    | ColumnRange
    | ColumnSet
    | Fields
    | FunctionCall
    | Relation
)

ALL = Name("*")


def called(function: str, *arguments: Node, clauses: Iterable[str | Node] = ()) -> Sql:
    """A call of a function. ``clauses``: what is between its last argument and the parenthesis."""
    separators = ["", *(", " for _ in arguments[1:])]
    inner = [part for pair in zip(separators, arguments, strict=False) for part in pair]
    return Sql((f"{function}(", *inner, *clauses, ")"))


def infix(one: Node, operator: str, other: Node) -> Sql:
    return Sql(("(", one, f" {operator} ", other, ")"), _OPERATORS.get(operator, ""))


_OPERATORS = {
    "+": "plus",
    "-": "minus",
    "*": "times",
    "/": "divide",
    "%": "mod",
    "AND": "and",
    "OR": "or",
    "=": "equals",
    "<>": "notEquals",
    "<": "lessThan",
    "<=": "lessThanOrEqual",
    ">": "greaterThan",
    ">=": "greaterThanOrEqual",
}


def children(node: Node) -> tuple[Node, ...]:
    match node:
        case Sql(parts):
            return tuple(part for part in parts if not isinstance(part, str))
        case Aggregate(_, arguments) | FunctionCall(_, arguments):
            return arguments
        case WindowProperty(of) | OverWindow(of) | Named(of) | Fields(of) | FieldAt(of):
            return (of,)
    return ()


# -- text --------------------------------------------------------------------------------------------------------------


def _no_name(function: Any, columns: tuple[str, ...]) -> str:
    return repr(function)


@dataclass
class Writer:
    """Writes expressions as SQL. ``windows``: the calls of windows in GROUP BY by alias, with the text of their arguments.
    ``overs``: what follows OVER. ``named``: expressions of GROUP BY that have a name. ``name_of``: the name of a
    function that the program gives itself. ``system``: the names of the program's functions that precede SQL's own. ``types``: of
    the table's columns. ``tables``: the program's tables in the text, by their names there."""

    windows: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    overs: Mapping[str, str] = field(default_factory=dict)
    named: Mapping[str, Node] = field(default_factory=dict)
    name_of: Callable[[Any, tuple[str, ...]], str] = _no_name
    system: Container[str] = ()
    types: Mapping[str, DataType] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)

    def text(self, node: Node) -> str:
        match node:
            case Name(name) if name in self.windows:
                function, arguments = self.windows[name]
                return f"{function}({arguments})"
            case Name(name) if name in self.named:
                return self.text(self.named[name])
            case Name("*"):
                return "*"
            case Name(name):
                return quoted(name)
            case Value(value, type):
                return literal(value) if type is None else f"CAST({literal(value)} AS {type.label})"
            case Sql(function=function) if function.lower() in self.system:
                return f"{quoted(function)}({', '.join(map(self.text, children(node)))})"
            case Sql(parts):
                return "".join(part if isinstance(part, str) else self.text(part) for part in parts)
            case FieldAt(of, at):
                return f"{self.text(of)}.{quoted(self._fields(of, at)[at].name)}"
            case Aggregate(function, arguments, distinct):
                return f"{function}({'DISTINCT ' * distinct}{', '.join(map(self.text, arguments))})"
            case WindowProperty(Name(name), what):
                if name not in self.windows:
                    raise ConfigError(f"{name}.{what.lower()}: there is no window {name!r}; {did_you_mean(name, self.windows)}")
                function, arguments = self.windows[name]
                return f"{function}_{what}({arguments})"
            case OverWindow(call, window):
                if window not in self.overs:
                    raise ConfigError(f"over({window!r}): there is no such over window; {did_you_mean(window, self.overs)}")
                return f"{self.text(call)} OVER ({self.overs[window]})"
            case Interval(count, unit):
                return interval(count, unit)
            case Named(of, _):
                return self.text(of)
            case FunctionCall(function, arguments, columns):
                return f"{self.name_of(function, columns)}({', '.join(map(self.text, arguments))})"
            case Relation(table):
                name = f"table {len(self.tables)}"
                self.tables[name] = table
                return f"(SELECT * FROM {quoted(name)})"
            case ColumnSet() | ColumnRange() | Fields():
                raise ConfigError("a set of columns is an argument of select() and the like, not part of an expression")
            case Distance():
                raise ConfigError("a number of rows is for preceding() and following() of an over window")
            case WindowProperty():
                raise ConfigError("start, end and rowtime are of windows: col('w').start")

    def _fields(self, of: Node, at: int) -> Sequence[RowField]:
        """The fields of a column, or of a field, that is a ROW."""
        match of:
            case Name(name) if name in self.types:
                found: DataType | None = self.types[name]
            case FieldAt(outer, place):
                found = self._fields(outer, place)[place].data_type
            case _:
                found = None
        if found is None or found.name != "ROW" or not 0 <= at < len(found.parts):
            raise ConfigError(f"get({at}) is of a column that is a ROW with more than {at} fields; else give a field's name")
        return found.parts


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"YEAR": ("YEAR", 1), "QUARTER": ("MONTH", 3), "MONTH": ("MONTH", 1), "WEEK": ("DAY", 7)}


def interval(count: int, unit: str) -> str:
    if unit == "MILLI":
        sign, (seconds, rest) = "-" * (count < 0), divmod(abs(count), 1000)
        return f"INTERVAL '{sign}{seconds}.{rest:03}' SECOND" if rest else f"INTERVAL '{sign}{seconds}' SECOND"
    single, factor = _UNITS.get(unit, (unit, 1))
    return f"INTERVAL '{count * factor}' {single}"


def literal(value: Any) -> str:
    """A value of Python as SQL. Raises ConfigError for one of which there is no literal."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case int():
            return str(value) if value >= 0 else f"({value})"
        case float():
            text = repr(value)
            special = text.lstrip("-") in ("inf", "nan")
            return f"CAST('{text}' AS DOUBLE)" if special else _signed(text if "e" in text else f"{text}E0")
        case str():
            return "'" + value.replace("'", "''") + "'"
        case Decimal():
            return _decimal(value)
        case datetime() if value.tzinfo is not None:
            return f"TO_TIMESTAMP_LTZ({_milliseconds(value - _EPOCH, value)}, 3)"
        case datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value}'"
        case time():
            return f"TIME '{value}'"
        case timedelta():
            return interval(_milliseconds(value, value), "MILLI")
        case Row() | tuple():
            return f"ROW({', '.join(map(literal, value))})"
        case list():
            return f"ARRAY[{', '.join(map(literal, value))}]"
        case dict():
            return f"MAP[{', '.join(literal(each) for pair in value.items() for each in pair)}]"
    raise ConfigError(f"SQL has no literal for {type(value).__name__}; use a column, or call a function with it")


def _milliseconds(span: timedelta, of: Any) -> int:
    ms, rest = divmod(span, timedelta(milliseconds=1))
    if rest:
        raise ConfigError(f"a literal of {type(of).__name__} has whole milliseconds, not {of}")
    return ms


def _decimal(value: Decimal) -> str:
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise ConfigError(f"SQL has no DECIMAL {value}")
    text = f"{value:f}"
    return _signed(text) if exponent < 0 else f"CAST('{text}' AS DECIMAL({len(text.lstrip('-'))}, 0))"


def _signed(text: str) -> str:
    return f"({text})" if text.startswith("-") else text


# -- lists of columns --------------------------------------------------------------------------------------------------


def expanded(nodes: Sequence[Node], types: Mapping[str, DataType]) -> Iterator[Node]:
    """The expressions of a list, with columns in place of sets of them. ``types``: of the table's columns."""
    names = list(types)
    for node in nodes:
        match node:
            case Name("*"):
                yield from map(Name, names)
            case ColumnSet(of, without):
                found = [name for each in of for name in _columns(each, names)]
                yield from map(Name, [name for name in names if name not in found] if without else found)
            case ColumnRange():
                yield from map(Name, _columns(node, names))
            case Fields(Name(name)) if name in types and types[name].name == "ROW":
                yield from (Named(Sql((node.of, f".{quoted(f)}")), (f"{name}${f}",)) for f in types[name].names)
            case Fields(of):
                yield of
            case _:
                yield node


def _columns(node: Node, names: list[str]) -> list[str]:
    match node:
        case Name("*"):
            return names
        case Name(name):
            return [name]
        case Value(int() as number):
            return [names[_at(number, names)]]
        case ColumnRange(first, last):
            return names[_at(first, names) : _at(last, names) + 1]
    raise ConfigError("a set of columns consists of columns, their numbers, and range_()")


def _at(column: str | int, names: list[str]) -> int:
    if isinstance(column, int) and 1 <= column <= len(names):
        return column - 1
    if isinstance(column, str) and column in names:
        return names.index(column)
    raise ConfigError(f"there is no column {column!r}; {did_you_mean(str(column), names)}")


def named(nodes: Sequence[Node]) -> list[tuple[str, Node]]:
    """The expressions of a SELECT with their names. As in Flink, aggregates and properties of windows are EXPR$0, EXPR$1 and so
    on, and others named by their position."""
    numbers = _numbered(nodes)
    found = []
    for position, node in enumerate(nodes):
        match node:
            case Named(of, (name, *_)):
                found.append((name, of))
            case Name(name):
                found.append((name, node))
            case _:
                number = numbers.get(repr(node)) if isinstance(node, Aggregate | WindowProperty) else None
                found.append((f"_c{position}" if number is None else f"EXPR${number}", node))
    return found


def _numbered(nodes: Sequence[Node]) -> dict[str, int]:
    found: dict[str, int] = {}

    def visit(node: Node) -> None:
        if isinstance(node, Aggregate | WindowProperty):
            found.setdefault(repr(node), len(found))
        elif not isinstance(node, OverWindow):
            for each in children(node):
                visit(each)

    for node in nodes:
        visit(node)
    return found
