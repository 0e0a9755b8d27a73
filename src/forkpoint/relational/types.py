"""SQL's scalar types, as columns (Arrow) and as elements of streams."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pyarrow as pa

from forkpoint.relational.digits import MOST, OF_INTEGERS, Digits, common
from forkpoint.types import TypeInformation, Types
from forkpoint.types.kinds.containers import optional, present
from forkpoint.types.kinds.decimals import DecimalType

INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
NUMBERS = (*INTEGERS, "DECIMAL", "FLOAT", "DOUBLE")
"""In the order in which they widen."""
TIMES = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ")

_STREAM_TYPES: dict[str, Callable[[], TypeInformation]] = {
    "NULL": Types.STRING,
    "BOOLEAN": Types.BOOLEAN,
    "TINYINT": Types.BYTE,
    "SMALLINT": Types.SHORT,
    "INT": Types.INT,
    "BIGINT": Types.LONG,
    "FLOAT": Types.FLOAT,
    "DOUBLE": Types.DOUBLE,
    "STRING": Types.STRING,
    "BYTES": Types.BYTES,
    "DATE": Types.SQL_DATE,
    "TIME": Types.SQL_TIME,
    "TIMESTAMP": Types.SQL_TIMESTAMP,
    "TIMESTAMP_LTZ": Types.INSTANT,
}


class SqlType(msgspec.Struct, frozen=True):
    """A scalar type. ``name``: ``NULL`` is the type of the literal NULL, which fits every type. ``digits``: precision and
    scale of a DECIMAL; unset in other types, which are stored as before there was DECIMAL."""

    name: str
    nullable: bool = True
    digits: Digits | msgspec.UnsetType = msgspec.UNSET

    def __str__(self) -> str:
        return self.label if self.nullable else f"{self.label} NOT NULL"

    @property
    def label(self) -> str:
        """The type as DDL writes it, without NOT NULL."""
        return self.name if self.digits is msgspec.UNSET else f"{self.name}({self.digits[0]}, {self.digits[1]})"

    def with_null(self, nullable: bool = True) -> SqlType:
        """The same type with or without NULL among its values."""
        return self if nullable == self.nullable else SqlType(self.name, nullable, self.digits)

    def same_values(self, other: SqlType) -> bool:
        """Whether the types differ at most in NULL."""
        return (self.name, self.digits) == (other.name, other.digits)

    @property
    def stream_type(self) -> TypeInformation:
        """The type of such values in a stream and in state."""
        found = self._values
        return optional(found) if self.nullable else found

    @property
    def arrow_type(self) -> pa.DataType:
        if self.digits is not msgspec.UNSET and self.digits[0] > MOST:  # in which decimals are compared
            return pa.decimal256(*self.digits)
        return self._values.arrow_type

    @property
    def _values(self) -> TypeInformation:
        return _STREAM_TYPES[self.name]() if self.digits is msgspec.UNSET else Types.DECIMAL(*self.digits)

    @property
    def is_number(self) -> bool:
        return self.name in NUMBERS

    @property
    def is_integer(self) -> bool:
        return self.name in INTEGERS


_NAMES = {make().kind: name for name, make in _STREAM_TYPES.items() if name != "NULL"}


def sql_type(of: TypeInformation) -> SqlType | None:
    """The SQL type of a type of streams; None if SQL has none for it."""
    inner = present(of)
    if isinstance(inner, DecimalType):
        return decimal_type((inner.precision, inner.scale), of.nullable)
    name = _NAMES.get(inner.kind)
    return None if name is None else SqlType(name, nullable=of.nullable)


def decimal_type(digits: Digits, nullable: bool = True) -> SqlType:
    return SqlType("DECIMAL", nullable, digits)


def digits_of(number: SqlType) -> Digits:
    """The digits of an integer or a DECIMAL."""
    return OF_INTEGERS[number.name] if number.digits is msgspec.UNSET else number.digits


class Field(msgspec.Struct, frozen=True):
    """A column of a table."""

    name: str
    type: SqlType


Schema = tuple[Field, ...]

BOOLEAN = SqlType("BOOLEAN")
BIGINT = SqlType("BIGINT")
DOUBLE = SqlType("DOUBLE")
STRING = SqlType("STRING")


def common_type(types: list[SqlType]) -> SqlType | None:
    """The type to which values of all these types convert without loss of meaning, as in Flink; None if there is none."""
    nullable = any(of.nullable for of in types)
    names = {of.name for of in types} - {"NULL"}
    if "DECIMAL" in names and names <= set(NUMBERS):
        if not names.isdisjoint(("FLOAT", "DOUBLE")):
            return SqlType("DOUBLE", nullable)
        return decimal_type(common([digits_of(of) for of in types if of.name != "NULL"]), nullable)
    if len(names) <= 1:
        return SqlType(names.pop() if names else "NULL", nullable)
    if names <= set(NUMBERS):
        return SqlType(max(names, key=NUMBERS.index), nullable)
    if names <= {"DATE", "TIMESTAMP"}:
        return SqlType("TIMESTAMP", nullable)
    return None
