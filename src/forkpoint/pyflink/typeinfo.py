"""The classes behind PyFlink's `Types`, which programs also call: each returns the type that `Types` has for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forkpoint import TypeInformation, Types


class _Row(type):
    """The class of a class whose instances are the ROW types."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, TypeInformation) and getattr(instance, "flavor", None) == "row"


class RowTypeInfo(metaclass=_Row):
    """``Types.ROW_NAMED`` with names, else ``Types.ROW``."""

    def __new__(cls, field_types: Sequence[Any], field_names: Sequence[str] | None = None) -> Any:
        return Types.ROW(field_types) if field_names is None else Types.ROW_NAMED(field_names, field_types)


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
    """The type that it is given."""

    def __new__(cls, type_info: Any) -> Any:
        return type_info
