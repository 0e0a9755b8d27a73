"""`Types.ANY()`: Python values of any of the plain types, encoded so that they come back exactly.

On the wire None, bool, int of 64 bits, float, str and bytes are themselves, an array is a tuple, a map is a dict with
str keys, a msgpack timestamp is an aware datetime; everything else is an extension with one of the codes below.
Dicts and sets are written in sorted order, so equal values have equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
from msgspec import msgpack
from msgspec.msgpack import Ext

from forkpoint.errors import TypeNotSupported
from forkpoint.types.acceptance import Convert, all_encodable, collections, converted
from forkpoint.types.row import Row, RowKind
from forkpoint.types.wire import from_numpy, pack, shown, type_name

LIST, SET, FROZENSET, DICT, BIG_INT, DECIMAL, UUID_, DATE, TIME, TIMESTAMP, DURATION, ROW = range(1, 13)

INT64_MIN, UINT64_MAX = -(2**63), 2**64 - 1

_PLAIN = frozenset({type(None), bool, float, str, bytes})


def int_bytes(value: int) -> bytes:
    """Return the shortest big-endian two's complement of `value`."""
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def int_from_bytes(data: bytes) -> int:
    """The inverse of `int_bytes`."""
    return int.from_bytes(data, "big", signed=True)


def encode_any(value: Any) -> bytes:
    """Encode a dynamic value. Raises TypeNotSupported if it, or a value inside it, is not of a type of `Types.ANY()`."""
    if type(value) in _PLAIN:
        return pack(value)
    return pack(_wire(value))


def _wire(value: Any) -> Any:
    handler = _HANDLERS.get(type(value))
    return _other(value) if handler is None else handler(value)


def _wires(values: Iterable[Any]) -> list[Any]:
    return [value if type(value) in _PLAIN else _wire(value) for value in values]


def _int(value: int) -> Any:
    return value if INT64_MIN <= value <= UINT64_MAX else Ext(BIG_INT, int_bytes(value))


def _dict(value: dict[Any, Any]) -> Any:
    if all(type(key) is str for key in value):
        return {key: item if type(item) in _PLAIN else _wire(item) for key, item in value.items()}
    # By the encoded key: the keys themselves need not be comparable with each other.
    return Ext(DICT, pack([_wires(pair) for pair in sorted(value.items(), key=lambda pair: encode_any(pair[0]))]))


def _set(code: int) -> Callable[[Iterable[Any]], Ext]:
    return lambda values: Ext(code, pack(_wires(sorted(values, key=encode_any))))


def _datetime(value: datetime) -> Any:
    return Ext(TIMESTAMP, value.isoformat().encode()) if value.tzinfo is None else value


def _other(value: Any) -> Any:
    if isinstance(value, np.bool_ | np.number):
        return _wire(from_numpy(value))
    if isinstance(value, tuple):
        return _wires(value)
    if isinstance(value, Row):
        kind = value.get_row_kind()
        return Ext(ROW, pack([value.field_names, _wires(value), *([] if kind is RowKind.INSERT else [kind.value])]))
    raise TypeNotSupported(
        f"Types.ANY() has no encoding for a value of type {type_name(type(value))}: {shown(value)}; declare the type "
        "of the stream or state (a NamedTuple, dataclass, msgspec.Struct, Enum or Types.*), or convert the value"
    )


_HANDLERS: dict[type, Callable[[Any], Any]] = {
    **dict.fromkeys(_PLAIN, lambda value: value),
    int: _int,
    tuple: _wires,
    dict: _dict,
    list: lambda value: Ext(LIST, pack(_wires(value))),
    set: _set(SET),
    frozenset: _set(FROZENSET),
    Decimal: lambda value: Ext(DECIMAL, str(value).encode()),
    UUID: lambda value: Ext(UUID_, value.bytes),
    datetime: _datetime,
    date: lambda value: Ext(DATE, value.isoformat().encode()),
    time: lambda value: Ext(TIME, value.isoformat().encode()),
    timedelta: lambda value: Ext(DURATION, pack((value.days, value.seconds, value.microseconds))),
}


class _Final:
    """A finished list or dict, which `_lift` must not treat as a msgpack array (a tuple) or map."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _row(data: bytes) -> Row:
    names, values, *kind = decode_any(data)
    return Row.of(names, values, *map(RowKind, kind))


_LIFTS: dict[int, Callable[[bytes], Any]] = {
    LIST: lambda data: _Final(list(decode_any(data))),
    SET: lambda data: set(decode_any(data)),
    FROZENSET: lambda data: frozenset(decode_any(data)),
    DICT: lambda data: _Final(dict(decode_any(data))),
    BIG_INT: int_from_bytes,
    DECIMAL: lambda data: Decimal(data.decode()),
    UUID_: lambda data: UUID(bytes=data),
    DATE: lambda data: date.fromisoformat(data.decode()),
    TIME: lambda data: time.fromisoformat(data.decode()),
    TIMESTAMP: lambda data: datetime.fromisoformat(data.decode()),
    DURATION: lambda data: timedelta(*decode_any(data)),
    ROW: _row,
}


def _ext(code: int, data: memoryview) -> Any:
    lift = _LIFTS.get(code)
    if lift is None:
        raise TypeNotSupported(
            f"unknown extension code {code} in an encoded dynamic value; it was written by a newer version of forkpoint"
        )
    return lift(bytes(data))


_decode = msgpack.Decoder(ext_hook=_ext).decode


def _lift(value: Any) -> Any:
    cls = type(value)
    if cls is list:
        return tuple([item if type(item) in _PLAIN else _lift(item) for item in value])
    if cls is dict:
        return {key: item if type(item) in _PLAIN else _lift(item) for key, item in value.items()}
    return value.value if cls is _Final else value


def decode_any(data: Any) -> Any:
    """Decode what `encode_any` wrote; `data` is bytes or any buffer."""
    return _lift(_decode(data))


# -- accepting ---------------------------------------------------------------------------------------------------------

_FIXED = frozenset({type(None), bool, int, float, bytes, Decimal, UUID, date, timedelta})
_FIXED_AND_TEXT = _FIXED | {str}


def accept_any(value: Any) -> Any:
    """Return the value itself if it is of a plain type and immutable throughout, else an independent one.

    Raises TypeNotSupported if it, or a value inside it, is not of a type of `Types.ANY()`.
    """
    cls = type(value)
    if cls in _FIXED:
        return value
    accept = _ACCEPTS.get(cls)
    return decode_any(encode_any(value)) if accept is None else accept(value)


def accept_all_any(values: list[Any]) -> list[Any]:
    """`accept_any` for many values; the list itself if all of them stay the same objects."""
    classes = set(map(type, values))
    if classes <= _FIXED:
        return values
    if classes <= _FIXED_AND_TEXT and all_encodable([value for value in values if type(value) is str]):
        return values
    return converted(values, accept_any)


def _accept_text(value: str) -> str:
    if not all_encodable((value,)):
        raise TypeNotSupported(f"{shown(value)} is not a value of ANY: UTF-8 cannot encode a lone surrogate")
    return value


def _accept_datetime(value: datetime) -> datetime:
    exact = not value.fold and (value.tzinfo is None or value.tzinfo is UTC)
    return value if exact else decode_any(encode_any(value))


def _accept_time(value: time) -> time:
    exact = not value.fold and value.tzinfo is None
    return value if exact else decode_any(encode_any(value))


_ACCEPTS: dict[type, Convert] = {
    str: _accept_text,
    datetime: _accept_datetime,
    time: _accept_time,
    **collections(_FIXED, accept_all_any),
}
