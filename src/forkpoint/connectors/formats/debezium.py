"""Decodes row values as Debezium's connectors and Kafka Connect's JsonConverter write them.

A Kafka Connect schema names each column's encoding: base64 of an unscaled integer for a decimal, numbers for dates and
times. A message without a schema has only JSON's types, so options have to supply the encoding: see `assumed`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from operator import index
from typing import Any, Literal, TypeAlias, get_args

from forkpoint.connectors.formats.json import JsonText
from forkpoint.connectors.formats.records import Unreadable, shorten
from forkpoint.errors import ConfigError
from forkpoint.types import TypeInformation, Types

Schema: TypeAlias = Mapping[str, Any]
Decode: TypeAlias = Callable[[Any], Any]
DecimalHandlingMode: TypeAlias = Literal["precise", "double", "string"]
TimePrecisionMode: TypeAlias = Literal["adaptive", "adaptive_time_microseconds", "connect", "isostring"]
BinaryHandlingMode: TypeAlias = Literal["bytes", "base64", "base64-url-safe", "hex"]

_NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  # columns without a zone
_CONNECT = "org.apache.kafka.connect.data."
_TIME = "io.debezium.time."
_DECIMAL = _CONNECT + "Decimal"
_VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
_JSON = "io.debezium.data.Json"
_MAX_DIGITS = 100_000  # of a scale; a Decimal with more would be too large to compute with
_NANOS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
_DATES = {_TIME + "Date", _CONNECT + "Date"}
_TIMES = {_TIME + "Time": "ms", _CONNECT + "Time": "ms", _TIME + "MicroTime": "us", _TIME + "NanoTime": "ns"}
_TIMESTAMPS = {
    _TIME + "Timestamp": "ms",
    _CONNECT + "Timestamp": "ms",
    _TIME + "MicroTimestamp": "us",
    _TIME + "NanoTimestamp": "ns",
}
_DURATIONS = {_TIME + "MicroDuration": "us", _TIME + "NanoDuration": "ns", **_TIMES}  # MySQL's TIME is also a duration
_ISO = {_TIME + "IsoDate", _TIME + "IsoTime", _TIME + "IsoTimestamp"}  # written with a Z although columns have no zone
_INTEGERS = ("byte", "short", "int", "long", "big_int")
_SEQUENCES = ("list", "tuple_of", "set", "frozenset")


@dataclass(frozen=True)
class Modes:
    """A connector's configuration, under Debezium's names. None: unknown."""

    decimal_handling_mode: DecimalHandlingMode | None = None
    time_precision_mode: TimePrecisionMode | None = None
    binary_handling_mode: BinaryHandlingMode = "bytes"
    fraction_digits: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        for name, of in (
            ("decimal_handling_mode", DecimalHandlingMode),
            ("time_precision_mode", TimePrecisionMode),
            ("binary_handling_mode", BinaryHandlingMode),
        ):
            value, known = getattr(self, name), get_args(of)
            if value not in known and not (value is None and name != "binary_handling_mode"):
                raise ConfigError(f"Debezium: {name} is {value!r}; give one of {', '.join(map(repr, known))}")
        for column, digits in (self.fraction_digits or {}).items():
            if type(digits) is not int or abs(digits) > _MAX_DIGITS:
                raise ConfigError(
                    f"Debezium: fraction_digits of {column!r} is {digits!r}; give the scale, 2 for NUMERIC(10, 2), "
                    "or the digits of seconds, 6 for TIMESTAMP(6)"
                )


def assumed(type: TypeInformation, modes: Modes, name: str = "") -> Schema:
    """The schema that a connector with these modes would send for a type, as far as the modes define it."""
    kind, digits = type.kind, (modes.fraction_digits or {}).get(name)
    if kind == "optional":
        return assumed(type.children[0], modes, name)
    if type.fields is not None:
        return {"fields": [{**assumed(f.type, modes, f.name), "field": f.name} for f in type.fields]}
    if kind in _SEQUENCES:
        return {"items": assumed(type.children[0], modes, name)}
    if kind == "map":
        return {"values": assumed(type.children[1], modes, name)}
    if kind == "union":
        return _assumed_of_union(type, modes, name)
    if kind == "big_dec":
        return _assumed_decimal(modes, digits, name)
    if kind in ("date", "time", "timestamp", "instant", "duration"):
        return _assumed_time(kind, modes, digits, name)
    return {"type": "bytes" if modes.binary_handling_mode == "bytes" else "string"} if kind == "bytes" else {}


def _assumed_of_union(type: TypeInformation, modes: Modes, name: str) -> Schema:
    of = {child.kind: child for child in type.children}
    for kind in ("big_dec", "timestamp", "instant", "date", "time", "duration", "bytes"):
        if kind in of and (kind in ("big_dec", "bytes") or not of.keys() & set(_INTEGERS)):  # a number is read as the int
            return assumed(of[kind], modes, name)
    return {}


def _assumed_decimal(modes: Modes, digits: int | None, name: str) -> Schema:
    mode = modes.decimal_handling_mode
    if mode == "precise" and digits is not None:
        return {"type": "bytes", "name": _DECIMAL, "parameters": {"scale": str(digits)}}
    if mode == "precise":
        remedy = f"base64 needs the column's scale: give fraction_digits={{{name!r}: …}}"
    else:
        remedy = "text may be base64 or digits: give the connector's decimal_handling_mode ('precise' is its default)"
    return {"type": mode or "bytes", "remedy": remedy}


def _assumed_time(kind: str, modes: Modes, digits: int | None, name: str) -> Schema:
    mode = modes.time_precision_mode
    if mode is None:
        unit = "a number's unit depends on the connector's time_precision_mode: give it"
        return {"remedy": f"{unit}, such as 'adaptive' (PostgreSQL's default) or 'adaptive_time_microseconds' (MySQL's)"}
    if mode == "isostring":
        return {"name": _TIME + "IsoTimestamp"} if kind not in ("instant", "duration") else {}
    if kind == "date":
        return {"name": _TIME + "Date"}
    if kind == "duration":  # PostgreSQL's INTERVAL is microseconds in every mode; MySQL's TIME is not
        ambiguous = {"remedy": "a number may be an INTERVAL or a TIME: declare int"}
        return ambiguous if mode == "connect" else {"name": _TIME + "MicroDuration"}
    stem = "Time" if kind == "time" else "Timestamp"
    if mode == "connect":
        return {"name": _CONNECT + stem}
    if kind == "time" and mode == "adaptive_time_microseconds":
        return {"name": _TIME + "MicroTime"}
    if digits is None:
        return {"remedy": f"its unit depends on the column's digits of seconds: give fraction_digits={{{name!r}: …}}"}
    return {"name": _TIME + ("" if digits <= 3 else "Micro" if digits <= 6 else "Nano") + stem}


def decoder(type: TypeInformation, schema: Schema, modes: Modes) -> Decode | None:
    """Converts a JSON value by the schema, for a field of ``type``. None if no conversion is needed."""
    kind = type.kind
    if kind in ("optional", "union"):
        each = (decoder(child, schema, modes) for child in _inner_types(type))
        return next((_unless_null(decode) for decode in each if decode is not None), None)
    if type.fields is not None or kind in (*_SEQUENCES, "map"):
        return _nested_decoder(type, schema, modes)
    name = schema.get("name")
    name = name if isinstance(name, str) else ""
    remedy = str(schema.get("remedy", ""))
    if kind == "any":
        return _decoder_of_any(name, schema, modes)
    if name in (_DECIMAL, _VARIABLE_SCALE) or kind == "big_dec":
        return _decimal(kind, name, schema, remedy)
    if kind == "bytes" and schema.get("type") == "string":
        return _binary(modes.binary_handling_mode)
    if name in _ISO and kind in ("date", "time", "timestamp"):
        return lambda raw: raw.removesuffix("Z") if isinstance(raw, str) else raw
    numbers = _number_converter(kind, name) or (_refuse(remedy) if remedy else None)
    of_number = None if numbers is None else _of_number(numbers, kind)
    return _interval(of_number) if kind == "duration" else of_number


def _inner_types(type: TypeInformation) -> list[TypeInformation]:
    """The inner types that determine a value's meaning. In a union with str, text may have any of them."""
    if type.kind == "optional":
        return [type.children[0]]
    scalars = [child for child in type.children if child.fields is None and child.kind not in (*_SEQUENCES, "map")]
    has_text = any(child.kind in ("string", "char") for child in scalars)
    likely = [child for child in scalars if not (has_text and child.kind == "bytes")]
    return sorted(likely, key=lambda child: child.kind in (*_INTEGERS, "float", "double"))  # the most specific first


def _decoder_of_any(name: str, schema: Schema, modes: Modes) -> Decode | None:
    """Values of ANY, converted by the schema."""
    if name == _JSON:
        return _from_json(None)
    for names, of in (
        ({_DECIMAL, _VARIABLE_SCALE}, Types.BIG_DEC()),
        (_DATES, Types.SQL_DATE()),
        (_TIMES, Types.SQL_TIME()),
        (_TIMESTAMPS, Types.SQL_TIMESTAMP()),
        (_DURATIONS, Types.DURATION()),
    ):
        if name in names:
            decode = decoder(of, schema, modes)
            return None if decode is None else _unless_null(decode)
    return None


def _nested_decoder(type: TypeInformation, schema: Schema, modes: Modes) -> Decode | None:
    from_json = _from_json(type)
    if type.fields is not None:
        within = row_decoder(type, schema, modes)
        return lambda raw: from_json(raw) if isinstance(raw, str) else within(raw)
    is_map = type.kind == "map"
    inner = schema.get("values" if is_map else "items")
    decode = decoder(type.children[-1], inner, modes) if isinstance(inner, dict) else None

    def of_many(raw: Any) -> Any:
        if isinstance(raw, str):
            return from_json(raw)
        if decode is None:
            return raw
        if isinstance(raw, dict) and is_map:
            return {key: decode(value) for key, value in raw.items()}
        if isinstance(raw, list) and is_map:
            return [[pair[0], decode(pair[1])] if isinstance(pair, list) and len(pair) == 2 else pair for pair in raw]
        return list(map(decode, raw)) if isinstance(raw, list) else raw

    return of_many


def row_decoder(type: TypeInformation, schema: Schema, modes: Modes) -> Decode:
    """Converts a JSON object's values to the declared classes. Returns anything but an object unchanged."""
    described = schema.get("fields")
    by_name = {
        field["field"]: field
        for field in (described if isinstance(described, list) else ())
        if isinstance(field, dict) and isinstance(field.get("field"), str)
    }
    decoders = []
    for field in type.fields or ():
        of = by_name.get(field.name) or assumed(field.type, modes, field.name)
        decode = decoder(field.type, of, modes)
        if decode is not None:
            decoders.append((field.name, decode))

    def row(raw: Any) -> Any:
        if not decoders or not isinstance(raw, dict):
            return raw
        out = dict(raw)
        for name, decode in decoders:
            value = raw.get(name)
            if value is not None:
                try:
                    out[name] = decode(value)
                except Unreadable as error:
                    raise Unreadable(f"{name}: {error}") from None
        return out

    return row


def _unless_null(decode: Decode) -> Decode:
    return lambda raw: None if raw is None else decode(raw)


def _from_json(type: TypeInformation | None) -> Decode:
    json = JsonText(type)

    def convert(raw: Any) -> Any:
        if not isinstance(raw, str):
            return raw
        try:
            return json.decode(raw.encode())
        except Unreadable as error:
            raise Unreadable(f"expected JSON, got {shorten(repr(raw), 80)} ({error})") from None

    return convert


def _decimal(kind: str, name: str, schema: Schema, remedy: str) -> Decode | None:
    if kind in ("string", "char"):
        return None
    parameters = schema.get("parameters")
    scale = parameters.get("scale") if isinstance(parameters, dict) else None

    def convert(raw: Any) -> Any:
        if isinstance(raw, dict):
            value = _decode_unscaled(raw.get("value"), raw.get("scale"))
        elif isinstance(raw, str) and name == _DECIMAL:
            value = _decode_unscaled(raw, scale)
        elif isinstance(raw, str) and schema.get("type") != "string":
            reason = f"text of the type {schema.get('type')} is not read as a Decimal"
            raise Unreadable(f"{shorten(repr(raw), 80)}: {remedy or reason}")
        else:  # a number (decimal.format=NUMERIC) or digits as text
            return raw
        if kind in ("big_dec", "any"):
            return value
        if kind in _INTEGERS and value == (whole := int(value)):
            return whole
        raise Unreadable(f"{shorten(str(value), 80)} is a Decimal: declare the field Decimal")

    return convert


def _decode_unscaled(raw: Any, scale: Any) -> Decimal:
    """Decodes a Decimal from base64 of its unscaled value: big-endian two's complement, like Java's BigInteger."""
    try:
        digits = int(scale if isinstance(scale, str) else index(scale))
        unscaled = int.from_bytes(base64.b64decode(raw, validate=True), "big", signed=True)
        if not raw or abs(digits) > _MAX_DIGITS:
            raise ValueError
        return Decimal(unscaled).scaleb(-digits, Context(prec=_MAX_DIGITS * 10, traps=[Inexact, InvalidOperation]))
    except (TypeError, ValueError, binascii.Error, ArithmeticError):
        raise Unreadable(
            f"expected a Decimal as base64 with a scale, got {shorten(repr(raw), 80)} and the scale {shorten(repr(scale), 80)}"
        ) from None


def _binary(mode: BinaryHandlingMode) -> Decode:
    def convert(raw: Any) -> Any:
        try:
            if mode == "base64":
                return base64.b64decode(raw, validate=True)
            if mode == "base64-url-safe":
                return base64.b64decode(raw, altchars=b"-_", validate=True)
            if mode == "hex":
                return bytes.fromhex(raw)
        except (TypeError, ValueError, binascii.Error):
            raise Unreadable(f"expected bytes as {mode}, got {shorten(repr(raw), 80)}") from None
        raise Unreadable(
            f"{shorten(repr(raw), 80)} is text, not bytes: give the connector's binary_handling_mode, or declare str"
        )

    return convert


def _refuse(remedy: str) -> Decode:
    def refuse(raw: Any) -> Any:
        raise Unreadable(f"{raw}: {remedy}")

    return refuse


def _of_number(convert: Decode, kind: str) -> Decode:
    def of_number(raw: Any) -> Any:
        if type(raw) is not int:  # text is unambiguous
            return raw
        try:
            return convert(raw)
        except (OverflowError, ValueError):
            raise Unreadable(f"{raw} is out of range for a {kind}") from None

    return of_number


def _interval(of_number: Decode | None) -> Decode:
    """An interval's text lists all units. It is a timedelta only without years and months, whose length varies."""

    def convert(raw: Any) -> Any:
        if isinstance(raw, str):
            return "P" + raw.removeprefix("P0Y0M") if raw.startswith("P0Y0M") else raw
        return raw if of_number is None else of_number(raw)

    return convert


def _number_converter(kind: str, name: str) -> Decode | None:
    """Converts numbers of an encoding to values of a kind. Cuts off digits beyond microseconds, towards the past."""
    if kind == "date" and name in _DATES:
        first = date(1970, 1, 1)
        return lambda days: first + timedelta(days)
    if kind == "time" and name in _TIMES:
        nanos = _NANOS[_TIMES[name]]
        return lambda value: _time_of_day(value * nanos // 1000)
    if kind in ("timestamp", "instant") and name in _TIMESTAMPS:
        epoch = _NAIVE_EPOCH if kind == "timestamp" else _NAIVE_EPOCH.replace(tzinfo=UTC)
        of = _NANOS[_TIMESTAMPS[name]]
        return lambda value: epoch + timedelta(microseconds=value * of // 1000)
    if kind == "duration" and name in _DURATIONS:
        unit = _NANOS[_DURATIONS[name]]
        return lambda value: timedelta(microseconds=value * unit // 1000)
    return None


def _time_of_day(micros: int) -> Any:
    if not 0 <= micros < 86_400_000_000:
        raise ValueError
    return (_NAIVE_EPOCH + timedelta(microseconds=micros)).time()
