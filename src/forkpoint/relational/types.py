"""SQL's scalar types, as columns (Arrow) and as elements of streams."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pyarrow as pa

from forkpoint.types import TypeInformation, Types
from forkpoint.types.kinds.containers import optional, present

INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
NUMBERS = (*INTEGERS, "FLOAT", "DOUBLE")
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
    """A scalar type. ``name``: ``NULL`` is the type of the literal NULL, which fits every type."""

    name: str
    nullable: bool = True

    def __str__(self) -> str:
        return self.name if self.nullable else f"{self.name} NOT NULL"

    def with_null(self, nullable: bool = True) -> SqlType:
        """The same type with or without NULL among its values."""
        return self if nullable == self.nullable else SqlType(self.name, nullable)

    @property
    def stream_type(self) -> TypeInformation:
        """The type of such values in a stream and in state."""
        found = _STREAM_TYPES[self.name]()
        return optional(found) if self.nullable else found

    @property
    def arrow_type(self) -> pa.DataType:
        return _STREAM_TYPES[self.name]().arrow_type

    @property
    def is_number(self) -> bool:
        return self.name in NUMBERS

    @property
    def is_integer(self) -> bool:
        return self.name in INTEGERS


_NAMES = {make().kind: name for name, make in _STREAM_TYPES.items() if name != "NULL"}


def sql_type(of: TypeInformation) -> SqlType | None:
    """The SQL type of a type of streams; None if SQL has none for it."""
    name = _NAMES.get(present(of).kind)
    return None if name is None else SqlType(name, nullable=of.nullable)


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
    if len(names) <= 1:
        return SqlType(names.pop() if names else "NULL", nullable)
    if names <= set(NUMBERS):
        return SqlType(max(names, key=NUMBERS.index), nullable)
    if names <= {"DATE", "TIMESTAMP"}:
        return SqlType("TIMESTAMP", nullable)
    return None
