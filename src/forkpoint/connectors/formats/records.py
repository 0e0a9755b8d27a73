"""Converts the values of files and messages (objects, text, Arrow's values) to elements of a type, and checks every value.

JSON and CSV have fewer types than Python: times are ISO 8601 text, bytes base64, durations ISO 8601 (``PT1H30M``),
Decimals and UUIDs text (or a number), sets and tuples arrays, Enums their value or name. A DECIMAL is a number, rounded half
up to the type's scale, as in Flink. CSV has only text, so numbers and booleans are parsed from text, and lists or objects from
JSON in a field.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from itertools import chain
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa

from forkpoint.connectors.formats.columns import allows
from forkpoint.contract.source import Elements
from forkpoint.decoders import convert as convert_to
from forkpoint.errors import TypeNotSupported
from forkpoint.types import Field, TypeInformation
from forkpoint.types.information import cast_exactly
from forkpoint.types.kinds.decimals import DecimalType
from forkpoint.types.kinds.literals import LiteralType
from forkpoint.types.kinds.records import RecordType

_MISSING = object()
_ENCODED = {"any", "union", "enum", "uuid", "big_int", "big_dec"}


class RecordConverter:
    """Converts records to columns of a type; without a type, leaves them unchanged.

    ``defaults``: a missing field gets its default, or None if it is optional; otherwise the record is bad. ``as_encoded``: fields
    have the names by which msgspec encodes them (``rename``), as in JSON. ``columns``: records come from typed columns, in which
    an integer is not a notation of a float.
    """

    def __init__(
        self,
        type: TypeInformation | None,
        *,
        from_text: bool = False,
        defaults: bool = True,
        as_encoded: bool = False,
        columns: bool = False,
    ) -> None:
        self._type = type
        self._scalars = {**_SCALARS, **(_FROM_TEXT if from_text else {}), **(_FROM_COLUMNS if columns else {})}
        self._as_encoded = as_encoded
        self._from_text = from_text
        self._default = _default if defaults else _no_default

    def convert(self, raws: list[Any]) -> tuple[Elements, list[tuple[int, str]]]:
        """The converted elements, and the index and problem of each record that cannot be converted."""
        if self._type is None:
            return raws, []
        try:
            return self._batch(self._type, raws), []
        except (TypeNotSupported, Unreadable):
            problems = self._problems(self._type, raws, 0)
        bad = {i for i, _ in problems}
        return self._batch(self._type, [raw for i, raw in enumerate(raws) if i not in bad]), problems

    def cast(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """The columns of the type; None if Arrow cannot cast to them without loss or illegal nulls."""
        type = self._type
        if type is None:
            return None
        columns = []
        for field in type.fields if type.fields is not None else (Field("value", type),):
            if field.name not in batch.schema.names:
                return None
            column = batch.column(field.name)
            if not _castable(column.type, field.type):
                return None
            try:
                column = column if column.type == field.type.arrow_type else cast_exactly(column, field.type.arrow_type)
            except pa.ArrowException:
                return None
            if (column.null_count and not field.type.nullable) or not allows(field.type, column):
                return None
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=type.arrow_schema)

    def _batch(self, type: TypeInformation, raws: list[Any]) -> pa.RecordBatch:
        fields = type.fields
        columns = [type.to_arrow(self._values(type, raws))] if fields is None else self._columns(type, fields, raws)
        return pa.RecordBatch.from_arrays(columns, schema=type.arrow_schema)

    def _problems(self, type: TypeInformation, raws: list[Any], at: int) -> list[tuple[int, str]]:
        try:
            self._batch(type, raws)
        except (TypeNotSupported, Unreadable) as e:
            if len(raws) == 1:
                return [(at, str(e))]
            half = len(raws) // 2
            return self._problems(type, raws[:half], at) + self._problems(type, raws[half:], at + half)
        return []

    def _columns(self, type: TypeInformation, fields: tuple[Field, ...], raws: list[Any]) -> list[pa.Array]:
        columns = []
        objects = [raw if isinstance(raw, dict) else _object(raw, type, fields) for raw in raws]
        for field in fields:
            name = field.encoded_name if self._as_encoded else field.name
            found = [raw.get(name, _MISSING) for raw in objects]
            given = [raw for raw in found if raw is not _MISSING]
            try:
                values = self._values(field.type, given)
                if len(given) < len(found):
                    rest = iter(values)
                    values = [self._default(field) if raw is _MISSING else next(rest) for raw in found]
                columns.append(field.type.to_arrow(values))
            except (TypeNotSupported, Unreadable) as e:
                raise Unreadable(f"{field.name}: {e}") from None
        return columns

    def _values(self, type: TypeInformation, raws: list[Any]) -> list[Any]:
        """Elements of a type, converted together, so that nested records also come from columns."""
        kind = type.kind
        if self._from_text and kind in _NESTED and any(isinstance(raw, str) for raw in raws):
            texts = [raw for raw in raws if isinstance(raw, str)]
            from_json = iter(RecordConverter(type, as_encoded=True)._values(type, list(map(_from_json_text, texts))))
            others = iter(self._values(type, [raw for raw in raws if not isinstance(raw, str)]))
            return [next(from_json if isinstance(raw, str) else others) for raw in raws]
        if kind == "optional":
            return self._optional(type.children[0], raws)
        if type.fields is not None:
            return type.from_columns(self._columns(type, type.fields, raws))
        if kind in _SEQUENCES:
            lists = list(map(_as_list, raws))
            elements = iter(self._values(type.children[0], list(chain.from_iterable(lists))))
            build = _SEQUENCES[kind]
            return [build([next(elements) for _ in one]) for one in lists]
        if kind == "map":
            return self._maps(type, raws)
        if kind == "union":
            return [self._member(type, raw) for raw in raws]
        if kind == "enum":
            return [_enum(type, raw, self._from_text) for raw in raws]
        if isinstance(type, DecimalType):
            return [type.rounded(_decimal(raw)) for raw in raws]
        convert = self._scalars.get(kind)
        return raws if convert is None else list(map(convert, raws))

    def _optional(self, of: TypeInformation, raws: list[Any]) -> list[Any]:
        # An empty CSV value is None, except that a str is empty.
        if self._from_text and not _may_be_empty(of):
            raws = [None if raw == "" else raw for raw in raws]
        values = iter(self._values(of, [raw for raw in raws if raw is not None]))
        return [None if raw is None else next(values) for raw in raws]

    def _maps(self, type: TypeInformation, raws: list[Any]) -> list[Any]:
        key_type, value_type = type.children
        pairs = [_as_pairs(raw) for raw in raws]
        # JSON's keys are always text.
        keys_from = RecordConverter(key_type, from_text=True)
        keys = [k for one in pairs for k, _ in one]
        text = all(isinstance(k, str) for k in keys)
        key_values = iter((keys_from if text else self)._values(key_type, keys))
        values = iter(self._values(value_type, [v for one in pairs for _, v in one]))
        return [{next(key_values): next(values) for _ in one} for one in pairs]

    def _member(self, type: TypeInformation, raw: Any) -> Any:
        # Prefer members that represent the value unchanged.
        exact = [] if self._from_text else [member for member in type.children if self._is_like(member, raw)]
        for member in exact or type.children:
            try:
                values = self._values(member, [raw])
                member.to_arrow(values)
                return values[0]
            except (TypeNotSupported, Unreadable):
                continue
        raise Unreadable(f"{shorten(repr(raw))} does not fit any of the types of {type!r}")

    def _is_like(self, member: TypeInformation, raw: Any) -> bool:
        if member.fields is not None and isinstance(raw, dict):
            return raw.keys() <= {field.encoded_name if self._as_encoded else field.name for field in member.fields}
        if member.kind == "enum":
            return type(raw) is (int if member.arrow_type == pa.int64() else str)
        return isinstance(raw, _LIKE.get(member.kind, ())) and not (isinstance(raw, bool) and member.kind != "boolean")


class Unreadable(Exception):
    """A record, or a value in it, cannot be read. The message gives the reason."""


def shorten(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


def _object(raw: Any, type: TypeInformation, fields: tuple[Field, ...]) -> dict[str, Any]:
    """A record from a value that is not an object: an array, if the fields have only positions."""
    if not isinstance(raw, list | tuple):
        raise Unreadable(f"expected an object, got {shorten(repr(raw), 80)}")
    names = [field.name for field in fields]
    if not (isinstance(type, RecordType) and type.is_positional):
        raise Unreadable(f"expected an object with the fields {', '.join(names)}, got the array {shorten(repr(raw), 80)}")
    if len(raw) != len(names):
        raise Unreadable(f"expected an array of {len(names)} values, got {shorten(repr(raw), 80)}")
    return dict(zip(names, raw, strict=True))


def _may_be_empty(type: TypeInformation) -> bool:
    return type.kind in ("string", "char") and (not isinstance(type, LiteralType) or "" in type.allowed)


def _default(field: Field) -> Any:
    if field.has_default:
        return field.make_default()
    if field.type.nullable:
        return None
    raise Unreadable("missing, and the field has no default")


def _no_default(field: Field) -> Any:
    raise Unreadable("missing")


def _castable(found: pa.DataType, type: TypeInformation) -> bool:
    """Whether Arrow's cast equals a conversion of the values."""
    kinds = {type.kind, *(c.kind for c in type.children)} if type.kind == "optional" else {type.kind}
    if found == type.arrow_type:
        return True
    if kinds & _ENCODED or pa.types.is_nested(type.arrow_type):
        return False
    if pa.types.is_dictionary(found):
        found = found.value_type
    family = _family(type.arrow_type)
    return family == _family(found) or (family == "float" and _family(found) == "int")


def _family(type: pa.DataType) -> str:
    is_ = pa.types
    for name, checks in (
        ("int", (is_.is_integer,)),
        ("float", (is_.is_floating,)),
        ("text", (is_.is_string, is_.is_large_string, is_.is_string_view)),
        ("bytes", (is_.is_binary, is_.is_large_binary, is_.is_fixed_size_binary, is_.is_binary_view)),
        ("timestamp", (is_.is_timestamp,)),
    ):
        if any(check(type) for check in checks):
            return name
    return str(type)


def _expect(cls: type) -> Callable[[Any], Any]:
    def convert(raw: Any) -> Any:
        if type(raw) is cls:
            return raw
        raise Unreadable(f"expected {cls.__name__}, got {shorten(repr(raw), 80)}")

    return convert


_MICROS = re.compile(r"-?[0-9]+")
_BEYOND_MICROS = re.compile(r"([.,][0-9]{6})[0-9]+")


def _via(cls: Any) -> Callable[[Any], Any]:
    """Converts text with msgspec; accepts values of the class, which come from Arrow.

    Truncates digits beyond microseconds, because rounding could move an event into the next window.
    """

    def convert(raw: Any) -> Any:
        if type(raw) is cls:
            return raw
        if isinstance(raw, str):
            try:
                return convert_to(_BEYOND_MICROS.sub(r"\1", raw), cls)
            except msgspec.ValidationError as e:
                raise Unreadable(f"{e}: {shorten(raw, 80)!r}") from None
        raise Unreadable(f"expected {cls.__name__} as text, got {shorten(repr(raw), 80)}")

    return convert


def _datetime(raw: Any) -> datetime:
    if isinstance(raw, datetime) and type(raw) is not datetime:  # pandas' Timestamp, which Arrow uses for nanoseconds
        if getattr(raw, "nanosecond", 0):
            raise Unreadable(f"{raw} has nanoseconds, which a datetime cannot hold")
        return datetime.combine(raw.date(), raw.timetz())
    return _datetime_via(raw)  # type: ignore[no-any-return]


def _duration_from_text(raw: Any) -> Any:
    if isinstance(raw, str) and _MICROS.fullmatch(raw):  # the form that an old CSV sink wrote
        try:
            return timedelta(microseconds=int(raw))
        except (OverflowError, ValueError):
            raise Unreadable(f"{shorten(raw, 80)} µs are beyond a timedelta") from None
    return _duration(raw)


_NOT_FINITE = ("NaN", "Infinity", "-Infinity")  # Jackson's JSON, also of Flink and Spark


def _float(raw: Any) -> float:
    if type(raw) in (float, int, Decimal) or raw in _NOT_FINITE:
        return _nearest_float(raw)
    raise Unreadable(f"expected float, got {shorten(repr(raw), 80)}")


def _nearest_float(number: Any) -> float:
    """A number, or its text, as a float. A number beyond the largest float is an error, not an infinity."""
    try:
        value = float(number)
    except OverflowError:
        value = math.inf
    if math.isinf(value) and any(map(str.isdigit, str(number))):
        raise Unreadable(f"{shorten(str(number), 80)!r} is beyond a float")
    return value


def _exact_float(raw: Any) -> float:
    value = _float(raw)
    if type(raw) is int and value != raw:
        raise Unreadable(f"{raw} is not exact as a float; declare the field int")
    return value


def _decimal(raw: Any) -> Decimal:
    if type(raw) in (str, int, Decimal):
        try:
            return Decimal(raw)
        except InvalidOperation:
            pass
    raise Unreadable(f"expected Decimal as text or number, got {shorten(repr(raw), 80)}")


def _bytes(raw: Any) -> bytes:
    if isinstance(raw, bytes):
        return raw
    try:
        return base64.b64decode(raw, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise Unreadable(f"expected bytes as base64, got {shorten(repr(raw), 80)}") from None


def _enum(type: TypeInformation, raw: Any, from_text: bool) -> Any:
    if from_text and type.arrow_type == pa.int64():
        raw = _from_text(int)(raw)
    try:
        return type.decode(msgspec.msgpack.encode(raw))
    except (msgspec.MsgspecError, TypeError, ValueError, KeyError, OverflowError):  # the last one: of more than 64 bits
        raise Unreadable(f"{shorten(repr(raw), 80)} is not valid for {type!r}") from None


def _from_text(cls: type, parse: Callable[[str], Any] | None = None) -> Callable[[Any], Any]:
    def convert(raw: Any) -> Any:
        try:
            if isinstance(raw, str) and "_" not in raw:
                return (parse or cls)(raw.strip())
        except ValueError:
            pass
        raise Unreadable(f"expected {cls.__name__}, got {shorten(repr(raw), 80)}")

    return convert


def bool_of(text: str) -> bool:
    value = {"true": True, "1": True, "false": False, "0": False}.get(text.lower())
    if value is None:
        raise ValueError(text)
    return value


def _from_json_text(raw: Any) -> Any:
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as e:
        raise Unreadable(f"expected JSON, got {shorten(raw, 80)!r} ({e})") from None
    except RecursionError:
        raise Unreadable(f"JSON nested too deeply to be read: {shorten(raw, 80)!r}") from None


def _as_list(raw: Any) -> list[Any]:
    if isinstance(raw, list | tuple):
        return list(raw)
    raise Unreadable(f"expected an array, got {shorten(repr(raw), 80)}")


def _as_pairs(raw: Any) -> list[tuple[Any, Any]]:
    if isinstance(raw, dict):
        return list(raw.items())
    if isinstance(raw, list) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in raw):
        return [(k, v) for k, v in raw]
    raise Unreadable(f"expected an object or an array of pairs, got {shorten(repr(raw), 80)}")


_SEQUENCES: dict[str, Callable[[list[Any]], Any]] = {"list": list, "tuple_of": tuple, "set": set, "frozenset": frozenset}
_NESTED = {*_SEQUENCES, "map", "record"}
# The classes of objects and of Arrow's values that represent only this kind, and no other member of a union.
_LIKE: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(_SEQUENCES, (list, tuple)),
    **dict.fromkeys(("byte", "short", "int", "long", "big_int"), (int,)),
    **dict.fromkeys(("float", "double"), (float,)),
    **dict.fromkeys(("string", "char"), (str,)),
    "boolean": (bool,),
    "bytes": (bytes, str),
    **dict.fromkeys(("big_dec", "decimal"), (Decimal, str)),
    "uuid": (UUID, str),
    "date": (date, str),
    "time": (time, str),
    "timestamp": (datetime, str),
    "instant": (datetime, str),
    "duration": (timedelta, str),
    "map": (dict,),
    "record": (list, tuple),  # by position
}
_INTEGERS = ("byte", "short", "int", "long", "big_int")
_datetime_via = _via(datetime)
_duration = _via(timedelta)
_SCALARS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_INTEGERS, _expect(int)),
    **dict.fromkeys(("float", "double"), _float),
    **dict.fromkeys(("string", "char"), _expect(str)),
    **dict.fromkeys(("timestamp", "instant"), _datetime),
    "boolean": _expect(bool),
    "big_dec": _decimal,
    "bytes": _bytes,
    "uuid": _via(UUID),
    "date": _via(date),
    "time": _via(time),
    "duration": _duration,
    "null": _expect(type(None)),
}
_FROM_TEXT: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_INTEGERS, _from_text(int)),
    **dict.fromkeys(("float", "double"), _from_text(float, _nearest_float)),
    "boolean": _from_text(bool, bool_of),
    "duration": _duration_from_text,
}
_FROM_COLUMNS: dict[str, Callable[[Any], Any]] = dict.fromkeys(("float", "double"), _exact_float)
