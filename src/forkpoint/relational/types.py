"""SQL's types, as columns (Arrow) and as elements of streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa

from forkpoint.relational.digits import MOST, OF_INTEGERS, Digits, common
from forkpoint.types import TypeInformation, Types
from forkpoint.types.information import Field as StreamField
from forkpoint.types.kinds.containers import MapType, SequenceType, optional, present
from forkpoint.types.kinds.decimals import DecimalType
from forkpoint.types.kinds.records import RecordType

INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
NUMBERS = (*INTEGERS, "DECIMAL", "FLOAT", "DOUBLE")
"""In the order in which they widen."""
NESTED = ("ARRAY", "MAP", "ROW")
TIMES = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ")
INTERVAL_OF_DAYS, INTERVAL_OF_MONTHS = "INTERVAL DAY TO SECOND", "INTERVAL YEAR TO MONTH"
INTERVALS = (INTERVAL_OF_DAYS, INTERVAL_OF_MONTHS)
CLOCKS = ("TIME", "TIMESTAMP", "TIMESTAMP_LTZ")
"""The types whose values have seconds with digits after the point: as many as are stored, 6, unless a type says fewer."""
STORED = 6

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
    INTERVAL_OF_DAYS: Types.DURATION,
    INTERVAL_OF_MONTHS: Types.INT,
}


class SqlType(msgspec.Struct, frozen=True):
    """A type. ``name``: ``NULL`` is the type of the literal NULL, which fits every type. ``digits``: precision and scale of a
    DECIMAL. ``parts``: the fields of a ROW, the element of an ARRAY, the key and the value of a MAP; all but keys may be NULL.
    Both are unset in other types, which are stored as before there were these. ``precision``: how many digits of seconds the
    values of a time have, if not 6. Plans that run or are stored have it only where a CAST cuts values: see ``plain``."""

    name: str
    nullable: bool = True
    digits: Digits | msgspec.UnsetType = msgspec.UNSET
    parts: tuple[Field, ...] | msgspec.UnsetType = msgspec.UNSET
    precision: int | msgspec.UnsetType = msgspec.UNSET

    def __str__(self) -> str:
        return self.label if self.nullable else f"{self.label} NOT NULL"

    @property
    def label(self) -> str:
        """The type as DDL writes it, without NOT NULL."""
        if self.digits is not msgspec.UNSET:
            return f"{self.name}({self.digits[0]}, {self.digits[1]})"
        if self.precision is not msgspec.UNSET:
            return f"{self.name}({self.precision})"
        if not self.is_nested:
            return self.name
        names = [f"{quoted(each.name)} " if self.name == "ROW" else "" for each in self.fields]
        return f"{self.name}<{', '.join(name + each.type.label for name, each in zip(names, self.fields, strict=True))}>"

    def with_null(self, nullable: bool = True) -> SqlType:
        """The same type with or without NULL among its values."""
        return self if nullable == self.nullable else SqlType(self.name, nullable, self.digits, self.parts, self.precision)

    @property
    def plain(self) -> SqlType:
        """The same type without digits of seconds, also in its parts."""
        if self.is_nested:
            types = [each.type.plain for each in self.fields]
            if all(one is each.type for one, each in zip(types, self.fields, strict=True)):
                return self
            parts = tuple(Field(each.name, of) for each, of in zip(self.fields, types, strict=True))
            return SqlType(self.name, self.nullable, parts=parts)
        return self if self.precision is msgspec.UNSET else SqlType(self.name, self.nullable)

    def same_values(self, other: SqlType) -> bool:
        """Whether the types differ at most in NULL, and in digits of seconds."""
        one, other = self.plain, other.plain
        return (one.name, one.digits, one.parts) == (other.name, other.digits, other.parts)

    @property
    def is_nested(self) -> bool:
        return self.parts is not msgspec.UNSET

    @property
    def fields(self) -> tuple[Field, ...]:
        """The parts; none of a scalar."""
        return () if self.parts is msgspec.UNSET else self.parts

    @property
    def element(self) -> SqlType:
        """Of an ARRAY, or the value of a MAP."""
        return self.fields[-1].type

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
        if self.digits is not msgspec.UNSET:
            return Types.DECIMAL(*self.digits)
        parts = [each.type.stream_type for each in self.fields]
        match self.name:
            case "ARRAY":
                return SequenceType("list", *parts)
            case "MAP":
                return MapType(*parts)
            case "ROW":
                return RecordType("row", "Row", tuple(map(StreamField, (each.name for each in self.fields), parts)))
        return _STREAM_TYPES[self.name]()

    @property
    def is_number(self) -> bool:
        return self.name in NUMBERS

    @property
    def is_integer(self) -> bool:
        return self.name in INTEGERS


_NAMES = {make().kind: name for name, make in _STREAM_TYPES.items() if name not in ("NULL", INTERVAL_OF_MONTHS)}


def sql_type(of: TypeInformation) -> SqlType | None:
    """The SQL type of a type of streams; None if SQL has none for it."""
    inner = present(of)
    match inner:
        case DecimalType(precision=precision, scale=scale):
            return decimal_type((precision, scale), of.nullable)
        case SequenceType(form="list" | "tuple_of", element=element):
            return _nested(array_type, of.nullable, element)
        case MapType(key=key, value=value):
            return _nested(map_type, of.nullable, key, value)
        case RecordType(members=members) if members:
            names = tuple(member.name for member in members)
            return _nested(lambda *types: row_of(names, types), of.nullable, *(member.type for member in members))
    name = _NAMES.get(inner.kind)
    return None if name is None else SqlType(name, nullable=of.nullable)


def _nested(make: Callable[..., SqlType], nullable: bool, *parts: TypeInformation) -> SqlType | None:
    types = list(map(sql_type, parts))
    return None if None in types else make(*types).with_null(nullable)


def array_type(element: SqlType) -> SqlType:
    return SqlType("ARRAY", parts=(Field("element", element.with_null()),))


def map_type(key: SqlType, value: SqlType) -> SqlType:
    return SqlType("MAP", parts=(Field("key", key.with_null(False)), Field("value", value.with_null())))


def row_of(names: Sequence[str], types: Sequence[SqlType]) -> SqlType:
    return SqlType("ROW", parts=tuple(Field(name, of.with_null()) for name, of in zip(names, types, strict=True)))


def quoted(name: str) -> str:
    """A name as SQL writes it."""
    return name if name.isidentifier() and name.isascii() else "`" + name.replace("`", "``") + "`"


def decimal_type(digits: Digits, nullable: bool = True) -> SqlType:
    return SqlType("DECIMAL", nullable, digits)


def time_type(name: str, precision: int, nullable: bool = True) -> SqlType:
    """A time with so many digits of seconds."""
    return SqlType(name, nullable, precision=msgspec.UNSET if precision == STORED else precision)


def precision_of(value: SqlType) -> int:
    """The most digits of seconds that a value has when it is a time, such as a text."""
    if value.name in ("NULL", "DATE"):
        return 0
    return STORED if value.precision is msgspec.UNSET else value.precision


def cuts(given: SqlType, wanted: SqlType) -> bool:
    """Whether values lose digits of seconds if they are converted to a type."""
    if wanted.is_nested:
        return any(cuts(one.type, other.type) for one, other in zip(given.fields, wanted.fields, strict=False))
    return wanted.precision is not msgspec.UNSET and wanted.precision < min(precision_of(given), STORED)


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
BYTES = SqlType("BYTES")


def common_type(types: list[SqlType]) -> SqlType | None:
    """The type to which values of all these types convert without loss of meaning, as in Flink; None if there is none."""
    nullable = any(of.nullable for of in types)
    names = {of.name for of in types} - {"NULL"}
    if "DECIMAL" in names and names <= set(NUMBERS):
        if not names.isdisjoint(("FLOAT", "DOUBLE")):
            return SqlType("DOUBLE", nullable)
        return decimal_type(common([digits_of(of) for of in types if of.name != "NULL"]), nullable)
    if not names.isdisjoint(NESTED):
        return _common_nested([of for of in types if of.name != "NULL"], nullable)
    if len(names) > 1 and names <= set(NUMBERS):
        return SqlType(max(names, key=NUMBERS.index), nullable)
    if names == {"DATE", "TIMESTAMP"}:
        names = {"TIMESTAMP"}
    if len(names) > 1:
        return None
    name = names.pop() if names else "NULL"
    return time_type(name, max(map(precision_of, types)), nullable) if name in CLOCKS else SqlType(name, nullable)


def _common_nested(types: list[SqlType], nullable: bool) -> SqlType | None:
    """The nested type whose parts have the common types of their parts."""
    first = types[0]
    if len({(of.name, len(of.fields)) for of in types}) > 1:
        return None
    found = [common_type([of.fields[at].type for of in types]) for at in range(len(first.fields))]
    parts = [Field(part.name, of) for part, of in zip(first.fields, found, strict=True) if of is not None]
    return SqlType(first.name, nullable, parts=tuple(parts)) if len(parts) == len(found) else None


def widens(given: SqlType, wanted: SqlType) -> bool:
    """Whether INSERT converts values of one type to another."""
    if given.name in NUMBERS and wanted.name in NUMBERS:
        return NUMBERS.index(given.name) <= NUMBERS.index(wanted.name)
    if given.name == "NULL" or given.same_values(wanted) or {given.name, wanted.name} == {"TIMESTAMP", "TIMESTAMP_LTZ"}:
        return True
    same = given.is_nested and given.name == wanted.name and len(given.fields) == len(wanted.fields)
    return same and all(widens(one.type, other.type) for one, other in zip(given.fields, wanted.fields, strict=True))
