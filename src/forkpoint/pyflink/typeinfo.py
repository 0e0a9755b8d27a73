"""The classes behind PyFlink's `Types`, which programs also call: each returns the corresponding type of `Types`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forkpoint import TypeInformation, Types
from forkpoint.types.kinds.records import RecordType

_TEXTS = {
    "big_dec": "BigDecimal",
    "big_int": "BigInteger",
    "boolean": "Boolean",
    "byte": "Byte",
    "char": "Char",
    "double": "Double",
    "float": "Float",
    "instant": "Instant",
    "int": "Integer",
    "long": "Long",
    "short": "Short",
    "string": "String",
}


class _OfFlavor(type(RecordType)):  # type: ignore[misc]
    """All types of the flavor are instances, however they were created."""

    flavor: str

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TypeInformation) and getattr(instance, "flavor", None) == cls.flavor


class RowTypeInfo(RecordType, metaclass=_OfFlavor):
    """``Types.ROW_NAMED`` with names, else ``Types.ROW``, with PyFlink's string form."""

    flavor = "row"

    def __init__(self, field_types: Sequence[Any], field_names: Sequence[str] | None = None) -> None:
        made: Any = Types.ROW(field_types) if field_names is None else Types.ROW_NAMED(field_names, field_types)
        super().__init__(made.flavor, made.name, made.members)

    def __str__(self) -> str:
        return f"RowTypeInfo({', '.join(map('{}: {}'.format, self.names, _texts(self)))})"


class TupleTypeInfo(RecordType, metaclass=_OfFlavor):
    """``Types.TUPLE``, with PyFlink's string form."""

    flavor = "tuple"

    def __init__(self, field_types: Sequence[Any]) -> None:
        made: Any = Types.TUPLE(field_types)
        super().__init__(made.flavor, made.name, made.members)

    def __str__(self) -> str:
        return f"TupleTypeInfo({', '.join(_texts(self))})"


def _texts(record: RecordType) -> list[str]:
    return [_TEXTS.get(of.kind, str(of)) for of in record.get_field_types()]


class BasicTypeInfo:
    """The types of single values."""

    STRING_TYPE_INFO = Types.STRING
    BOOLEAN_TYPE_INFO = Types.BOOLEAN
    BYTE_TYPE_INFO = Types.BYTE
    SHORT_TYPE_INFO = Types.SHORT
    INT_TYPE_INFO = Types.INT
    LONG_TYPE_INFO = Types.LONG
    FLOAT_TYPE_INFO = Types.FLOAT
    DOUBLE_TYPE_INFO = Types.DOUBLE
    CHAR_TYPE_INFO = Types.CHAR
    BIG_INT_TYPE_INFO = Types.BIG_INT
    BIG_DEC_TYPE_INFO = Types.BIG_DEC
    INSTANT_TYPE_INFO = Types.INSTANT


class SqlTimeTypeInfo:
    """The types of times without a zone."""

    DATE = Types.SQL_DATE
    TIME = Types.SQL_TIME
    TIMESTAMP = Types.SQL_TIMESTAMP


class ExternalTypeInfo:
    """Returns the given type."""

    def __new__(cls, type_info: Any) -> Any:
        return type_info
