"""`Types`: PyFlink's factory of types."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from forkpoint.types.annotations import type_of
from forkpoint.types.information import TypeInformation, TypeLike
from forkpoint.types.kinds.containers import MapType, SequenceType, optional
from forkpoint.types.kinds.decimals import decimal
from forkpoint.types.kinds.records import row_type, tuple_type
from forkpoint.types.kinds.row import Row
from forkpoint.types.kinds.scalars import scalar
from forkpoint.types.variables import K, T, V


class Types:
    """Types by Flink's names. Parameters for types also accept Python annotations.

    As in Flink, the fields of a ROW, the values of a MAP and the elements of a LIST, BASIC_ARRAY and OBJECT_ARRAY may
    be None; the elements of a TUPLE and a PRIMITIVE_ARRAY may not.
    """

    @staticmethod
    def STRING() -> TypeInformation[str]:  # noqa: N802
        """A str."""
        return scalar("string")

    @staticmethod
    def BYTE() -> TypeInformation[int]:  # noqa: N802
        """An int of 8 bits."""
        return scalar("byte")

    @staticmethod
    def BOOLEAN() -> TypeInformation[bool]:  # noqa: N802
        """A bool."""
        return scalar("boolean")

    @staticmethod
    def SHORT() -> TypeInformation[int]:  # noqa: N802
        """An int of 16 bits."""
        return scalar("short")

    @staticmethod
    def INT() -> TypeInformation[int]:  # noqa: N802
        """An int of 32 bits."""
        return scalar("int")

    @staticmethod
    def LONG() -> TypeInformation[int]:  # noqa: N802
        """An int of 64 bits, like the annotation ``int``."""
        return scalar("long")

    @staticmethod
    def FLOAT() -> TypeInformation[float]:  # noqa: N802
        """A float, rounded to 32 bits."""
        return scalar("float")

    @staticmethod
    def DOUBLE() -> TypeInformation[float]:  # noqa: N802
        """A float of 64 bits, like the annotation ``float``."""
        return scalar("double")

    @staticmethod
    def CHAR() -> TypeInformation[str]:  # noqa: N802
        """A str of one character."""
        return scalar("char")

    @staticmethod
    def BIG_INT() -> TypeInformation[int]:  # noqa: N802
        """An int of any size; columns hold its decimal digits."""
        return scalar("big_int")

    @staticmethod
    def BIG_DEC() -> TypeInformation[Decimal]:  # noqa: N802
        """A Decimal, exact including its exponent (keys compare by value: 2.5 for 2.50); columns hold its text."""
        return scalar("big_dec")

    @staticmethod
    def DECIMAL(precision: int, scale: int = 0) -> TypeInformation[Decimal]:  # noqa: N802
        """A Decimal with up to ``precision`` (38) digits, of which exactly ``scale`` are after the point. Values that do not fit
        are refused, not rounded. Columns hold decimal128."""
        return decimal(precision, scale)

    @staticmethod
    def INSTANT() -> TypeInformation[datetime]:  # noqa: N802
        """An aware datetime, restored in UTC, like the annotation `Instant`."""
        return scalar("instant")

    @staticmethod
    def SQL_DATE() -> TypeInformation[date]:  # noqa: N802
        """A date."""
        return scalar("date")

    @staticmethod
    def SQL_TIME() -> TypeInformation[time]:  # noqa: N802
        """A time without a zone."""
        return scalar("time")

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation[datetime]:  # noqa: N802
        """A naive datetime, like the annotation ``datetime``."""
        return scalar("timestamp")

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:  # noqa: N802
        """`ANY`. PyFlink pickles here; forkpoint stores no pickles, so classes need a declared type."""
        return scalar("any")

    @staticmethod
    def ROW(field_types: Sequence[Any]) -> TypeInformation[Row]:  # noqa: N802
        """A `Row` (or a tuple) of fields f0, f1, …"""
        return row_type(None, _nullable(field_types))

    @staticmethod
    def ROW_NAMED(field_names: Sequence[str], field_types: Sequence[Any]) -> TypeInformation[Row]:  # noqa: N802
        """A `Row` (or a tuple) of named fields."""
        return row_type(field_names, _nullable(field_types))

    @staticmethod
    def TUPLE(field_types: Sequence[Any]) -> TypeInformation[tuple[Any, ...]]:  # noqa: N802
        """A tuple of fixed length."""
        return tuple_type([type_of(of) for of in field_types])

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: Any) -> TypeInformation:  # noqa: N802
        """A list of numbers; bytes for BYTE, as in PyFlink."""
        of = type_of(element_type)
        return scalar("bytes") if of.kind == "byte" else SequenceType("list", of)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeLike[T]) -> TypeInformation[list[T]]:  # noqa: N802
        """A list."""
        return SequenceType("list", optional(type_of(element_type)))

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeLike[T]) -> TypeInformation[list[T]]:  # noqa: N802
        """A list."""
        return SequenceType("list", optional(type_of(element_type)))

    @staticmethod
    def MAP(key_type_info: TypeLike[K], value_type_info: TypeLike[V]) -> TypeInformation[dict[K, V]]:  # noqa: N802
        """A dict."""
        return MapType(type_of(key_type_info), optional(type_of(value_type_info)))

    @staticmethod
    def LIST(element_type_info: TypeLike[T]) -> TypeInformation[list[T]]:  # noqa: N802
        """A list."""
        return SequenceType("list", optional(type_of(element_type_info)))

    @staticmethod
    def ANY() -> TypeInformation:  # noqa: N802
        """A dynamic value: None, bool, int, float, str, bytes, tuple, list, dict, set, frozenset, date, time, datetime,
        timedelta, Decimal, UUID or Row, nested; NamedTuples come back as tuples, numpy's numbers as Python's."""
        return scalar("any")

    @staticmethod
    def BYTES() -> TypeInformation[bytes]:  # noqa: N802
        """Bytes."""
        return scalar("bytes")

    @staticmethod
    def UUID() -> TypeInformation[uuid.UUID]:  # noqa: N802
        """A UUID; columns hold its text."""
        return scalar("uuid")

    @staticmethod
    def DURATION() -> TypeInformation[timedelta]:  # noqa: N802
        """A timedelta."""
        return scalar("duration")


def _nullable(types: Sequence[Any]) -> list[TypeInformation]:
    return [optional(type_of(of)) for of in types]
