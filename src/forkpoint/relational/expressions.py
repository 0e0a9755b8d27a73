"""Typed expressions over the columns of a row. They are data: they serialise to JSON, and functions are named."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec

from forkpoint.decoders import convert
from forkpoint.relational.types import INTERVALS, Field, SqlType, cuts

LiteralValue = bool | int | float | str | None
"""Times are ISO 8601 text, bytes are base64, decimals their digits, as msgspec writes them."""

COMMUTATIVE = frozenset({"+", "*", "=", "<>", "AND", "OR"})
_SYMBOLS = frozenset({"+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "AND", "OR", "LIKE", "||"})

_CLASSES: dict[str, Any] = {
    "DECIMAL": Decimal,
    "DATE": date,
    "TIME": time,
    "TIMESTAMP": datetime,
    "TIMESTAMP_LTZ": datetime,
    "BYTES": bytes,
}
_FRACTION = re.compile(r"(\.\d{6})\d+")


class Column(msgspec.Struct, frozen=True, tag_field="node", tag="column"):
    """A column of the input, by its unique name."""

    name: str
    type: SqlType

    def __str__(self) -> str:
        return self.name


class Literal(msgspec.Struct, frozen=True, tag_field="node", tag="literal"):
    value: LiteralValue
    type: SqlType

    def __str__(self) -> str:
        if self.value is None:
            return "NULL"
        if isinstance(self.value, bool):
            return str(self.value).upper()
        if isinstance(self.value, str):
            text = "'" + self.value.replace("'", "''") + "'"
            return text if self.type.name == "STRING" else f"{self.type.name} {text}"
        return f"{self.type.name} {self.value}" if self.type.name in INTERVALS else repr(self.value)

    @property
    def is_valid(self) -> bool:
        """Whether a time has a valid text."""
        try:
            return self.python_value is not self
        except msgspec.ValidationError:
            return False

    @property
    def python_value(self) -> Any:
        """The value as the type's Python class. Digits after microseconds are dropped, as CAST does."""
        of = _CLASSES.get(self.type.name)
        if of is None or self.value is None:
            return self.value
        return convert(_FRACTION.sub(r"\1", str(self.value)) if of in (time, datetime) else self.value, of)


class Call(msgspec.Struct, frozen=True, tag_field="node", tag="call"):
    """A function of ``relational.functions``, by its name there. ``CAST`` and ``TRY_CAST`` convert to ``type``."""

    function: str
    arguments: tuple[Expression, ...]
    type: SqlType

    def __str__(self) -> str:
        arguments = list(map(str, self.arguments))
        if self.function in COMMUTATIVE:
            arguments.sort()  # the text is the identity of an expression
        if self.function in _SYMBOLS:
            return f"({f' {self.function} '.join(arguments)})"
        if self.function in ("CAST", "TRY_CAST"):
            of = self.type if cuts(self.arguments[0].type, self.type) else self.type.plain  # what is stored, too
            return f"{self.function}({arguments[0]} AS {of.label})"
        return f"{self.function}({', '.join(arguments)})"


Expression = Column | Literal | Call


class Item(msgspec.Struct, frozen=True):
    """A named expression: a column of a result."""

    name: str
    of: Expression


def items_of(fields: Iterable[Field]) -> tuple[Item, ...]:
    """The columns of a table, unchanged."""
    return tuple(Item(field.name, Column(field.name, field.type)) for field in fields)


def columns_of(expression: Expression) -> Iterator[Column]:
    """The columns that an expression reads."""
    if isinstance(expression, Column):
        yield expression
    elif isinstance(expression, Call):
        for argument in expression.arguments:
            yield from columns_of(argument)


def path_of(expression: Expression) -> str:
    """The name of a column, or ``row.field`` of a field of a column that is a ROW; "" of other expressions."""
    if isinstance(expression, Column):
        return expression.name
    if isinstance(expression, Call) and expression.function == "FIELD" and (row := path_of(expression.arguments[0])):
        return f"{row}.{_field_name(expression)}"
    return ""


def _field_name(call: Call) -> str:
    name = call.arguments[1]
    assert isinstance(name, Literal)
    return str(name.value)


def read_by(expressions: Iterable[Expression], but: Container[str] = ()) -> dict[str, Column | Call]:
    """What expressions read, by name: columns, and of a column that is a ROW only the fields that they read, as ``row.field``.
    ``but``: columns that are left out, and their fields."""
    found = (each for expression in expressions for each in _read(expression))
    read = dict.fromkeys(each for each in found if next(columns_of(each)).name not in but)
    by_name: dict[str, Column | Call] = {}
    columns = {each.name: each for each in read if isinstance(each, Column)}
    for each in read:
        other = by_name.setdefault(path_of(each), each)
        if other != each:  # a column, or a field of another row, has the same name
            columns |= {column.name: column for part in (each, other) for column in columns_of(part)}
    names = by_name.keys() | columns.keys()
    return columns | {
        name: each for name, each in by_name.items() if isinstance(each, Call) and names.isdisjoint(map(path_of, _rows_of(each)))
    }


def _rows_of(field: Expression) -> Iterator[Expression]:
    """The rows that a field is in."""
    while isinstance(field, Call):
        field = field.arguments[0]
        yield field


def _read(expression: Expression) -> Iterator[Column | Call]:
    if isinstance(expression, Column) or (isinstance(expression, Call) and path_of(expression)):
        yield expression
    elif isinstance(expression, Call):
        for argument in expression.arguments:
            yield from _read(argument)


def replace_columns(expression: Expression, change: Callable[[Column], Expression]) -> Expression:
    """The expression with other expressions in place of its columns."""
    if isinstance(expression, Column):
        return change(expression)
    if isinstance(expression, Call):
        arguments = tuple(replace_columns(argument, change) for argument in expression.arguments)
        return Call(expression.function, arguments, expression.type)
    return expression


def operands_of(function: str, arguments: Iterable[Expression]) -> list[Expression]:
    """What an associative function connects, at any depth, in order."""
    found: list[Expression] = []
    for argument in arguments:
        nested = isinstance(argument, Call) and argument.function == function
        found += operands_of(function, argument.arguments) if nested and isinstance(argument, Call) else [argument]
    return found


def conjuncts_of(condition: Expression | None) -> tuple[Expression, ...]:
    """The conditions that AND connects, without duplicates, ordered by their text."""
    if condition is None:
        return ()
    found = {str(part): part for part in operands_of("AND", [condition])}
    return tuple(found[text] for text in sorted(found))


def all_of(conditions: tuple[Expression, ...]) -> Expression | None:
    """The conditions connected by AND; None if there are none."""
    found: Expression | None = None
    for condition in conditions:
        if found is None:
            found = condition
        else:
            nullable = found.type.nullable or condition.type.nullable
            found = Call("AND", (found, condition), SqlType("BOOLEAN", nullable))
    return found
