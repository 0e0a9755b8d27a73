"""`Types.ANY()`: Python values of any of the plain types, of numpy, and of record classes and Enums (`objects`), encoded so
that they come back exactly.

On the wire None, bool, int of 64 bits, float, str and bytes are themselves, an array is a tuple, a map is a dict with
str keys, a msgpack timestamp is an aware datetime; everything else is an extension with one of the codes below.
Dicts and sets are written in sorted order, so equal values have equal bytes.
"""

from __future__ import annotations

import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from math import prod
from typing import Any
from uuid import UUID

import numpy as np
from msgspec.msgpack import Ext

from forkpoint.decoders import msgpack_decoder
from forkpoint.errors import TypeNotSupported
from forkpoint.types.acceptance import Convert, all_encodable, collections, converted
from forkpoint.types.kinds.objects import (
    MemberName,
    Pickled,
    header_and_values,
    member_bytes,
    member_of,
    object_of,
    split_header,
    stand_in,
    why_opaque,
)
from forkpoint.types.kinds.row import Row, RowKind
from forkpoint.types.lookup import ALLOW_PICKLE, current_program
from forkpoint.types.shipping import dumps
from forkpoint.types.wire import pack, shown, type_name

LIST, SET, FROZENSET, DICT, BIG_INT, DECIMAL, UUID_, DATE, TIME, TIMESTAMP, DURATION, ROW = range(1, 13)
RECORD, MEMBER, BYTEARRAY, COMPLEX, RANGE, DEQUE, ORDERED_DICT, COUNTER, DEFAULT_DICT, ARRAY, NUMBER, PICKLE = range(13, 25)

INT64_MIN, UINT64_MAX = -(2**63), 2**64 - 1

_PLAIN = frozenset({type(None), bool, float, str, bytes})


def int_bytes(value: int) -> bytes:
    """Return the shortest big-endian two's complement of `value`."""
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def int_from_bytes(data: bytes) -> int:
    """The inverse of `int_bytes`."""
    return int.from_bytes(data, "big", signed=True)


def encode_any(value: Any) -> bytes:
    """Encode a dynamic value. Raises TypeNotSupported if `Types.ANY()` does not support it or an inner value."""
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
    # Sorted by encoded key, because the keys may not be comparable.
    return Ext(DICT, pack([_wires(pair) for pair in sorted(value.items(), key=lambda pair: encode_any(pair[0]))]))


def _set(code: int) -> Callable[[Iterable[Any]], Ext]:
    return lambda values: Ext(code, pack(_wires(sorted(values, key=encode_any))))


def _datetime(value: datetime) -> Any:
    return Ext(TIMESTAMP, value.isoformat().encode()) if value.tzinfo is None else value


def _other(value: Any) -> Any:
    if isinstance(value, Enum):
        return Ext(MEMBER, member_bytes(value))
    written = header_and_values(value)
    if written is not None:
        header, values = written
        return Ext(RECORD, header + pack(_wires(values)))
    if isinstance(value, tuple):
        return _wires(value)
    if isinstance(value, Row):
        kind = value.get_row_kind()
        return Ext(ROW, pack([value.field_names, _wires(value), *([] if kind is RowKind.INSERT else [kind.value])]))
    if isinstance(value, np.generic) and value.dtype.kind in _NUMPY:
        texts = isinstance(value, np.str_ | np.bytes_)
        return Ext(NUMBER, pack((value.dtype.kind, value.item()) if texts else (value.dtype.str, value.tobytes())))
    if current_program().allow_pickle:
        return _pickled(value)
    raise TypeNotSupported(f"Types.ANY() has no encoding for {shown(value)}: {why_opaque(type(value))}")


def _pickled(value: Any) -> Ext:
    try:
        return Ext(PICKLE, pack((type_name(type(value)), dumps(value))))
    except Exception as error:
        raise TypeNotSupported(f"{shown(value)} of type {type_name(type(value))} cannot be pickled: {error}") from error


# -- containers and numpy ----------------------------------------------------------------------------------------------

FACTORIES: dict[str, Any] = {
    factory.__name__: factory
    for factory in (bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, Counter, OrderedDict, deque)
}
_NUMPY = "?biufcmMSU"


def _pairs(value: dict[Any, Any], in_order: bool) -> bytes:
    items = value.items() if in_order else sorted(value.items(), key=lambda pair: encode_any(pair[0]))
    return pack([_wires(pair) for pair in items])


def _default_dict(value: defaultdict[Any, Any]) -> Any:
    factory = value.default_factory
    name = None if factory is None else getattr(factory, "__name__", None)
    if factory is not None and FACTORIES.get(str(name)) is not factory:
        if current_program().allow_pickle:
            return _pickled(value)
        raise TypeNotSupported(
            f"Types.ANY() has no encoding for a defaultdict whose factory is {shown(factory)}: only the types "
            f"{', '.join(FACTORIES)} are found again by name; use one of them, or a dict, or {ALLOW_PICKLE}"
        )
    return Ext(DEFAULT_DICT, pack((name, _pairs(value, in_order=False))))


def _array(value: np.ndarray[Any, Any]) -> Any:
    dtype = value.dtype
    if dtype.hasobject or not (dtype.kind in _NUMPY or dtype.names):
        if current_program().allow_pickle:
            return _pickled(value)
        raise TypeNotSupported(
            f"Types.ANY() has no encoding for an array of {dtype}: {shown(value)}; convert it to a list, or to an array of "
            f"numbers, text or times, or set {ALLOW_PICKLE}"
        )
    return Ext(ARRAY, pack((pack(_wire(np.lib.format.dtype_to_descr(dtype))), value.shape, value.tobytes())))


def _dtype(descr: Any) -> np.dtype[Any]:
    dtype = np.lib.format.descr_to_dtype(descr)
    if dtype.hasobject or not (dtype.kind in _NUMPY or dtype.names):
        raise TypeNotSupported(f"a saved value is of numpy's type {dtype}, which is not carried")
    return dtype


def _array_of(descr: Any, shape: Iterable[int], data: bytes) -> np.ndarray[Any, Any]:
    dtype, sizes = _dtype(descr), tuple(shape)
    if min(sizes, default=0) < 0 or prod(sizes) * dtype.itemsize != len(data):
        raise TypeNotSupported(f"a saved array of {dtype} and shape {sizes} has {len(data)} bytes")
    return np.ndarray(sizes, dtype, bytearray(data or b"\0"))


@cache
def _number_dtype(text: str) -> np.dtype[Any]:
    dtype = np.dtype(text)
    if dtype.kind not in _NUMPY:
        raise TypeNotSupported(f"a saved value is of numpy's type {dtype}, which is not carried")
    return dtype


def _number_of(text: str, data: Any) -> Any:
    if text in ("U", "S"):
        return np.str_(data) if text == "U" else np.bytes_(data)
    dtype = _number_dtype(text)
    if dtype.itemsize != len(data):
        raise TypeNotSupported(f"a saved value of {dtype} has {len(data)} bytes")
    return np.ndarray((), dtype, data)[()]


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
    bytearray: lambda value: Ext(BYTEARRAY, bytes(value)),
    complex: lambda value: Ext(COMPLEX, pack((value.real, value.imag))),
    range: lambda value: Ext(RANGE, pack(list(map(_int, (value.start, value.stop, value.step))))),
    deque: lambda value: Ext(DEQUE, pack((value.maxlen, pack(_wires(value))))),
    OrderedDict: lambda value: Ext(ORDERED_DICT, _pairs(value, in_order=True)),
    Counter: lambda value: Ext(COUNTER, _pairs(value, in_order=False)),
    defaultdict: _default_dict,
    np.ndarray: _array,
    MemberName: lambda value: Ext(MEMBER, value.data),
    Pickled: lambda value: Ext(PICKLE, pack((value.name, value.data))),
}


class _Final:
    """A finished list or dict, which `_lift` must not treat as a msgpack array (a tuple) or map."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


_WITHOUT_PARTS: dict[int, Callable[[bytes], Any]] = {
    BIG_INT: int_from_bytes,
    DECIMAL: lambda data: Decimal(data.decode()),
    UUID_: lambda data: UUID(bytes=data),
    DATE: lambda data: date.fromisoformat(data.decode()),
    TIME: lambda data: time.fromisoformat(data.decode()),
    TIMESTAMP: lambda data: datetime.fromisoformat(data.decode()),
    BYTEARRAY: bytearray,
}


def _decoder(own: dict[int, Callable[..., Any]]) -> Callable[[Any], Any]:
    """The inverse of `encode_any`. ``own``: functions that read objects of classes, members of Enums, and pickles."""

    def row(data: bytes) -> Row:
        names, values, *kind = decode(data)
        return Row.of(names, values, *map(RowKind, kind))

    def record(data: bytes) -> Any:
        header, values = split_header(data)
        return own[RECORD](header, decode(values))

    def default_dict(data: bytes) -> defaultdict[Any, Any]:
        name, pairs = decode(data)
        return defaultdict(None if name is None else FACTORIES[name], decode(pairs))

    def queue(data: bytes) -> deque[Any]:
        length, items = decode(data)
        return deque(decode(items), length)

    def array(data: bytes) -> np.ndarray[Any, Any]:
        descr, shape, content = decode(data)
        return _array_of(decode(descr), shape, content)

    lifts: dict[int, Callable[[bytes], Any]] = {
        LIST: lambda data: _Final(list(decode(data))),
        SET: lambda data: set(decode(data)),
        FROZENSET: lambda data: frozenset(decode(data)),
        DICT: lambda data: _Final(dict(decode(data))),
        **_WITHOUT_PARTS,
        DURATION: lambda data: timedelta(*decode(data)),
        ROW: row,
        RECORD: record,
        MEMBER: own[MEMBER],
        COMPLEX: lambda data: complex(*decode(data)),
        RANGE: lambda data: range(*decode(data)),
        DEQUE: queue,
        ORDERED_DICT: lambda data: OrderedDict(decode(data)),
        COUNTER: lambda data: Counter(dict(decode(data))),
        DEFAULT_DICT: default_dict,
        ARRAY: array,
        NUMBER: lambda data: _number_of(*decode(data)),
        PICKLE: lambda data: own[PICKLE](*decode(data)),
    }

    def ext(code: int, data: memoryview) -> Any:
        lift = lifts.get(code)
        if lift is None:
            raise TypeNotSupported(
                f"unknown extension code {code} in an encoded dynamic value; it was written by a newer version of forkpoint"
            )
        return lift(bytes(data))

    unpack = msgpack_decoder(Any, ext_hook=ext)

    def decode(data: Any) -> Any:
        return _lift(unpack(data))

    return decode


def _lift(value: Any) -> Any:
    cls = type(value)
    if cls is list:
        return tuple([item if type(item) in _PLAIN else _lift(item) for item in value])
    if cls is dict:
        return {key: item if type(item) in _PLAIN else _lift(item) for key, item in value.items()}
    return value.value if cls is _Final else value


def _unpickled(name: str, data: bytes) -> Any:
    if not current_program().allow_pickle:
        raise TypeNotSupported(
            f"a saved value is a pickle of {name}, and loading it may run any code: if you trust its author, start the job with "
            f"{ALLOW_PICKLE}"
        )
    return pickle.loads(data)


decode_any = _decoder({RECORD: object_of, MEMBER: member_of, PICKLE: _unpickled})
"""The inverse of `encode_any`, with the program's classes; for bytes or any buffer."""

decode_without_classes = _decoder({RECORD: stand_in, MEMBER: MemberName.of, PICKLE: Pickled})
"""`decode_any` for programs without the classes: decodes objects to rows, members to names, and pickles to `Pickled`."""


# -- accepting ---------------------------------------------------------------------------------------------------------

_FIXED = frozenset({type(None), bool, int, float, bytes, Decimal, UUID, date, timedelta, complex, range})
_FIXED_AND_TEXT = _FIXED | {str}


def accept_without_classes(value: Any) -> Any:
    """`accept_any` for values of `decode_without_classes`."""
    return value if type(value) in _FIXED else decode_without_classes(encode_any(value))


def accept_any(value: Any) -> Any:
    """Return the value itself if it has a plain type and is deeply immutable, else an independent copy.

    Raises TypeNotSupported if `Types.ANY()` does not support it or an inner value.
    """
    cls = type(value)
    if cls in _FIXED:
        return value
    accept = _ACCEPTS.get(cls)
    return decode_any(encode_any(value)) if accept is None else accept(value)


def accept_all_any(values: list[Any]) -> list[Any]:
    """`accept_any` for many values; the list itself if all objects stay the same."""
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
