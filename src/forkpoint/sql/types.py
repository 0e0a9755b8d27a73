"""The names of types, in DDL and in CAST."""

from __future__ import annotations

from forkpoint.relational.digits import MOST
from forkpoint.relational.types import (
    CLOCKS,
    INTERVAL_OF_DAYS,
    INTERVAL_OF_MONTHS,
    NESTED,
    SqlType,
    array_type,
    decimal_type,
    map_type,
    row_of,
    time_type,
)
from forkpoint.sql.errors import Text, did_you_mean
from forkpoint.sql.tokens import Tokens, statements_of

TYPES = {
    **{name: name for name in ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BYTES", "DATE")},
    "INTEGER": "INT",
    "VARCHAR": "STRING",
    "CHAR": "STRING",
    "TEXT": "STRING",
    "BINARY": "BYTES",
    "VARBINARY": "BYTES",
    "TIME": "TIME",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMP_LTZ": "TIMESTAMP_LTZ",
    "TIMESTAMPLTZ": "TIMESTAMP_LTZ",
    **dict.fromkeys(("DECIMAL", "DEC", "NUMERIC"), "DECIMAL"),
}
_LATER = {"MULTISET", "RAW"}


def column_type(source: Text, tokens: Tokens) -> SqlType:
    """A type in DDL."""
    at = tokens.offset
    name = tokens.name("a type").upper()
    if name == "INTERVAL":
        return _interval_type(source, tokens, at)
    if tokens.peek("<") or (name == "ROW" and tokens.peek("(")):
        return _nested_type(source, tokens, at, name)
    tokens.take("PRECISION")  # DOUBLE PRECISION
    numbers = []
    if tokens.take("("):
        numbers.append(tokens.number())
        while tokens.take(","):
            numbers.append(tokens.number())
        tokens.expect(")")
    if tokens.take("WITH", "LOCAL", "TIME", "ZONE"):
        name = f"{name}_LTZ"
    tokens.take("WITHOUT", "TIME", "ZONE")
    return named_type(source, at, name, numbers)


def type_of_text(text: str) -> SqlType:
    """The type that a text is, such as ``ARRAY<INT> NOT NULL``. Raises SqlError."""
    source = Text(text, "type")
    tokens = next(statements_of(source), None)
    if tokens is None:
        raise source.error(0, "a type is missing")
    found = column_type(source, tokens)
    if tokens.take("NOT", "NULL"):
        found = found.with_null(False)
    tokens.finish()
    return found


def _interval_type(source: Text, tokens: Tokens, at: int) -> SqlType:
    """``INTERVAL DAY(3) TO SECOND(3)`` and the like: of days and less, or of years and months. All have microseconds."""
    units: list[str] = []
    while not units or tokens.take("TO"):
        units.append(tokens.name("a unit").upper())
        if tokens.take("("):
            tokens.number()
            tokens.expect(")")
    for name, known in ((INTERVAL_OF_DAYS, ("DAY", "HOUR", "MINUTE", "SECOND")), (INTERVAL_OF_MONTHS, ("YEAR", "MONTH"))):
        if units in ([first, last][: len(units)] for n, first in enumerate(known) for last in known[n:]):
            return SqlType(name)
    raise source.error(at, f"there is no INTERVAL {' TO '.join(units)}; write INTERVAL DAY TO SECOND, or INTERVAL YEAR TO MONTH")


def _nested_type(source: Text, tokens: Tokens, at: int, name: str) -> SqlType:
    """``ARRAY<type>``, ``MAP<type, type>`` or ``ROW<name type, …>``."""
    if name not in NESTED:
        raise source.error(at, f"type {name} has no parts; {', '.join(NESTED)} have")
    end = ")" if tokens.take("(") else ">"
    if end == ">":
        tokens.expect("<")
    names: list[str] = []
    parts: list[SqlType] = []
    while not parts or tokens.take(","):
        if name == "ROW":
            names.append(tokens.name("a field"))
        parts.append(column_type(source, tokens))
        if tokens.peek("NOT"):
            raise source.error(tokens.offset, f"NOT NULL inside of {name} is not supported yet; leave it out")
        if tokens.take("COMMENT"):
            tokens.text("a comment in single quotes")
    tokens.expect(end)
    wanted = {"ARRAY": 1, "MAP": 2}.get(name, len(parts))
    if len(parts) != wanted or len(set(names)) < len(names):
        raise source.error(at, f"{name} has {wanted} types, or names a field twice")
    if name == "MAP" and parts[0].is_nested:
        raise source.error(at, f"a MAP's key cannot be {parts[0].name}")
    return row_of(names, parts) if name == "ROW" else array_type(*parts) if name == "ARRAY" else map_type(*parts)


def named_type(source: Text, at: int, name: str, numbers: list[int]) -> SqlType:
    """A type by its name and the numbers in parentheses. Those of texts mean nothing: texts have any length."""
    found = TYPES.get(name)
    if name in NESTED:
        raise source.error(at, f"{name} needs the types of its parts: ARRAY<INT>, MAP<STRING, INT>, ROW<a INT, b STRING>")
    if found is None and name in _LATER:
        raise source.error(at, f"type {name} is not supported yet")
    if found is None:
        raise source.error(at, f"there is no type {name}; {did_you_mean(name, TYPES)}")
    if found != "DECIMAL":
        if len(numbers) > 1:
            raise source.error(at, f"type {name} takes one number, not {len(numbers)}")
        if found not in CLOCKS or not numbers:
            return SqlType(found)
        if numbers[0] > 9:
            raise source.error(at, f"type {name}({numbers[0]}) has 0 to 9 digits of seconds")
        return time_type(found, numbers[0])
    precision, scale = [*numbers, *(10, 0)[len(numbers) :]] if len(numbers) < 3 else (0, 0)
    if not 1 <= precision <= MOST or scale > precision:
        shown = ", ".join(map(str, numbers))
        raise source.error(at, f"type {name}({shown}) has 1 to {MOST} digits, of which at most all are after the point")
    return decimal_type((precision, scale))
