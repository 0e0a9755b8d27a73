"""JSON with one value per message, under PyFlink's names, and the types of JSON schemas.

The types are those of Flink's JsonRowSchemaConverter, except that a date-time has a zone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from operator import attrgetter
from typing import Any, Generic

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from forkpoint.connectors.formats.batches import BatchDeserializationSchema, Declared, Part, elements_of, read_each, spans
from forkpoint.connectors.formats.columns import is_utf8, kinds, text_schema, typed_columns
from forkpoint.connectors.formats.flat_json import FlatJson, is_flat
from forkpoint.connectors.formats.jsonable import TimestampFormat, encode_columns, encode_lines
from forkpoint.connectors.formats.records import RecordConverter, Unreadable
from forkpoint.contract.format import SerializationSchema
from forkpoint.contract.sink import SinkBatch
from forkpoint.decoders import json_decoder
from forkpoint.errors import ConfigError
from forkpoint.types import Field, TypeInformation, TypeLike, Types, type_of
from forkpoint.types.kinds.records import RecordType
from forkpoint.types.variables import T

_MAX_BYTES = 1 << 30  # per parse: Arrow's block size is a 32-bit int
_MAX_DEPTH = 200  # levels of nesting that msgspec reads, whatever the stack's depth
# Text that Arrow accepts and msgspec does not, even in ignored fields.
_NOT_FINITE = r"[:,\[\s]-?(?:NaN|Inf(?:inity)?)[\s,}\]]"
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_MIN_SPLIT = 1024
_JSON_NAME = attrgetter("encoded_name")


class JsonText:
    """Reads JSON as values of a type. ``of``: the class to decode, whose fields hold such values. ``nested``: `columns` also
    reads records in columns. ``only_fields``: of what the type has no field for, only the syntax is checked."""

    def __init__(self, type: TypeInformation | None, of: Any = Any, *, nested: bool = False, only_fields: bool = False) -> None:
        self._type = type
        exact = type is not None and not kinds(type).isdisjoint(("big_dec", "decimal"))
        options = {"float_hook": Decimal if exact else None}
        self._flat = FlatJson(type) if type is not None and only_fields and is_flat(type) else None
        self._decode: Callable[[bytes], Any] = json_decoder(of, **options)
        if only_fields and type is not None and type.fields:
            self._decode = _record_decoder(type.fields, self._decode, **options)
        schema = text_schema(type, _JSON_NAME, nested=nested)
        self.fast = schema is not None  # whether `columns` can read the type
        self._exact = pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
        self._ignoring = pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        self._ignores = False  # whether records have other fields

    def decode(self, text: bytes) -> Any:
        """The value of one JSON text. Raises Unreadable."""
        if text.count(b"[") + text.count(b"{") > _MAX_DEPTH and (depth := _depth(text)) > _MAX_DEPTH:
            raise Unreadable(f"JSON nested {depth} levels deep; {_MAX_DEPTH} can be read")
        try:
            return self._decode(text)
        except RecursionError:
            raise Unreadable("JSON nested too deeply to be read") from None
        except (ValueError, ArithmeticError) as error:  # msgspec's errors, wrong UTF-8, a Decimal out of range
            raise Unreadable(str(error)) from None

    def columns(self, data: bytes, rows: int) -> pa.RecordBatch | None:
        """The columns of ``rows`` JSON texts; None if `decode` and `RecordConverter` could return a different result.

        Texts begin with "{" and end with "}"; whitespace with a line end separates them.
        """
        if not self.fast or self._type is None or len(data) > _MAX_BYTES or not is_utf8(data):
            return None
        if self._flat is not None and not self._ignores and (found := self._flat.columns(data, rows)) is not None:
            return found
        table = None if self._ignores else self._read(data, self._exact)
        if table is None:
            if _may_be_too_deep(data, rows):
                return None
            if self._flat is not None and (found := self._flat.columns(data, rows, ignoring=True)) is not None:
                self._ignores = True
                return found
            if pc.match_substring_regex(pa.scalar(data), _NOT_FINITE).as_py():
                return None
            table = self._read(data, self._ignoring)
            self._ignores = table is not None
        return None if table is None or len(table) != rows else typed_columns(table, self._type, _JSON_NAME)

    def _read(self, data: bytes, options: pajson.ParseOptions) -> pa.Table | None:
        reading = pajson.ReadOptions(use_threads=False, block_size=max(len(data) + 1, 1 << 16))
        try:
            return pajson.read_json(pa.BufferReader(data), read_options=reading, parse_options=options)
        except pa.ArrowException:
            return None


def _record_decoder(fields: Sequence[Field], otherwise: Callable[..., Any], **options: Any) -> Callable[[bytes], Any]:
    """Decodes the fields of an object, whatever their values; of others, only the syntax is checked, as Arrow's parser and
    `FlatJson` do. ``otherwise``: decodes what is no object."""
    names = {f"f{i}": field.encoded_name for i, field in enumerate(fields)}  # a name may be no identifier
    record = msgspec.defstruct("Record", [(place, Any, msgspec.UNSET) for place in names], rename=names)
    decode = json_decoder(record, **options)

    def decoded(text: bytes) -> Any:
        try:
            found = decode(text)
        except msgspec.ValidationError:
            return otherwise(text)
        values = ((name, getattr(found, place)) for place, name in names.items())
        return {name: value for name, value in values if value is not msgspec.UNSET}

    return decoded


def _depth(text: bytes) -> int:
    """The nesting depth of arrays and objects."""
    marks = np.frombuffer(_TEXT.sub(b"", text), np.uint8)
    opened = (marks == ord("[")) | (marks == ord("{"))
    closed = (marks == ord("]")) | (marks == ord("}"))
    return int(np.cumsum(opened.astype(np.int64) - closed).max(initial=0))


def _may_be_too_deep(data: bytes, rows: int) -> bool:
    """Whether values may be nested too deeply for msgspec."""
    if data.count(b"[") + data.count(b"{") < rows + _MAX_DEPTH:
        return False
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    if len(ends) > rows:  # a text spans lines
        return True
    if np.diff(ends, prepend=0, append=len(data)).max() < 2 * _MAX_DEPTH:  # every opening bracket needs a closing one
        return False
    return any(text.count(b"[") + text.count(b"{") > _MAX_DEPTH for text in data.split(b"\n"))


@dataclass(frozen=True)
class JsonRowDeserializationSchema(Declared, BatchDeserializationSchema[T], Generic[T]):
    """Reads one JSON value per message as an element of ``type_info``: a type, or a class such as a dataclass.

    Fields are matched by name; unknown fields are ignored. A missing field gets its default, or None if it is optional;
    ``fail_on_missing_field`` makes such a message bad. ``ignore_parse_errors`` silently skips bad messages.
    """

    type_info: TypeLike[T]
    fail_on_missing_field: bool = False
    ignore_parse_errors: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "type_info", type_of(self.type_info))

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        """A builder: set ``type_info``, then ``build()``."""
        return JsonRowDeserializationSchema.Builder()

    def get_produced_type(self) -> TypeInformation[T]:
        return self.type_info  # type: ignore[return-value]  # __post_init__ converts it

    def projected(self, type: RecordType) -> JsonRowDeserializationSchema[Any] | None:
        skips = self.fail_on_missing_field or self.ignore_parse_errors  # which depends on all fields
        return None if skips else JsonRowDeserializationSchema(type)

    @cached_property
    def _json(self) -> JsonText:
        return JsonText(self.get_produced_type(), only_fields=True)

    @cached_property
    def _converter(self) -> RecordConverter:
        return RecordConverter(self.get_produced_type(), defaults=not self.fail_on_missing_field, as_encoded=True)

    def read(self, messages: pa.BinaryArray) -> Iterator[Part]:
        return self._read(messages, 0)

    def _read(self, messages: pa.BinaryArray, start: int) -> Iterator[Part]:
        columns = self._columns(messages)
        if columns is not None:
            yield Part.whole(columns, start)
        elif self._json.fast and len(messages) >= 2 * _MIN_SPLIT:  # a single message must not slow down all others
            half = len(messages) // 2
            yield from self._read(messages[:half], start)
            yield from self._read(messages[half:], start + half)
        else:
            yield read_each(messages, start, self._value, self._converter)

    def _value(self, message: bytes) -> Any:
        try:
            return self._json.decode(message)
        except Unreadable as error:
            raise Unreadable(f"not JSON ({error})") from None

    def _columns(self, messages: pa.BinaryArray) -> pa.RecordBatch | None:
        data = joined(messages)
        batch = None if data is None else self._json.columns(data, len(messages))
        if batch is not None and self.fail_on_missing_field and any(c.null_count for c in batch.columns):
            return None  # missing, or null
        return batch

    class Builder:
        """Builds a JsonRowDeserializationSchema."""

        def __init__(self) -> None:
            self._type_info: Any = None
            self._fail_on_missing_field = False
            self._ignore_parse_errors = False

        def type_info(self, type_info: TypeLike[Any]) -> JsonRowDeserializationSchema.Builder:
            """Set the elements' type: a type, or a class such as a dataclass or NamedTuple."""
            self._type_info = type_of(type_info)
            return self

        def json_schema(self, json_schema: str) -> JsonRowDeserializationSchema.Builder:
            """Set the elements' type from a JSON schema. As in Flink, numbers and integers are BIG_DEC."""
            self._type_info = json_schema_type(json_schema)
            return self

        def fail_on_missing_field(self) -> JsonRowDeserializationSchema.Builder:
            """Treat messages that lack a field as bad."""
            self._fail_on_missing_field = True
            return self

        def ignore_parse_errors(self) -> JsonRowDeserializationSchema.Builder:
            """Skip bad messages silently."""
            self._ignore_parse_errors = True
            return self

        def build(self) -> JsonRowDeserializationSchema[Any]:
            """The schema. Raises ConfigError without a type."""
            if self._type_info is None:
                raise ConfigError("JsonRowDeserializationSchema: call type_info(…) with the elements' type, or json_schema(…)")
            return JsonRowDeserializationSchema(self._type_info, self._fail_on_missing_field, self._ignore_parse_errors)


def joined(messages: pa.BinaryArray) -> bytes | None:
    """The messages joined by newlines; None unless each begins with "{" and ends with "}".

    The sequence "}", newline, "{" never occurs within a JSON text, so there is at least one text per message.
    """
    if not len(messages) or messages.nbytes > _MAX_BYTES:
        return None
    data, starts, ends = spans(messages)
    if not (starts < ends).all() or (data[starts] != ord("{")).any() or (data[ends - 1] != ord("}")).any():
        return None
    return b"\n".join(messages.to_pylist())  # Arrow's binary_join takes longer, of large messages three times as long


@dataclass(frozen=True)
class JsonRowSerializationSchema(Declared, SerializationSchema[T], Generic[T]):
    """Writes each element as a JSON object, with the same bytes as a line of `FileSink.json`.

    ``type_info`` selects the fields to write: by position for tuples and rows without names, by name for other rows.
    ``timestamp_format``: as tables write them, "SQL" or "ISO-8601"; DataStreams of Flink have the latter only.
    """

    type_info: TypeLike[T]
    timestamp_format: TimestampFormat = "ISO-8601"

    def __post_init__(self) -> None:
        object.__setattr__(self, "type_info", type_of(self.type_info))

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        """A builder: set ``with_type_info``, then ``build()``."""
        return JsonRowSerializationSchema.Builder()

    @property
    def _type(self) -> TypeInformation[T]:
        return self.type_info  # type: ignore[return-value]  # __post_init__ converts it

    def serialize(self, element: T) -> bytes:
        return encode_lines(elements_of([element], self._type), self._type, self.timestamp_format)[:-1]

    def serialize_batch(self, batch: SinkBatch[T]) -> pa.BinaryArray:
        table = batch.table
        lines = None if table is None else encode_columns(table, self._type, self.timestamp_format)
        if lines is None:
            lines = encode_lines(elements_of(batch.values, self._type), self._type, self.timestamp_format)
        return pc.split_pattern(pa.array([lines], pa.binary()), b"\n")[0].values[:-1]

    class Builder:
        """Builds a JsonRowSerializationSchema."""

        def __init__(self) -> None:
            self._type_info: Any = None

        def with_type_info(self, type_info: TypeLike[Any]) -> JsonRowSerializationSchema.Builder:
            """Set the elements' type: a type, or a class such as a dataclass or NamedTuple."""
            self._type_info = type_of(type_info)
            return self

        def build(self) -> JsonRowSerializationSchema[Any]:
            """The schema. Raises ConfigError without a type."""
            if self._type_info is None:
                raise ConfigError("JsonRowSerializationSchema: call with_type_info(…) with the elements' type")
            return JsonRowSerializationSchema(self._type_info)


_SCALARS: dict[str, TypeInformation[Any]] = {
    "string": Types.STRING(),
    "number": Types.BIG_DEC(),
    "integer": Types.BIG_DEC(),
    "boolean": Types.BOOLEAN(),
    "null": type_of(None),
}
_FORMATS: dict[str, TypeInformation[Any]] = {"date": Types.SQL_DATE(), "time": Types.SQL_TIME(), "date-time": Types.INSTANT()}


def json_schema_type(text: str) -> TypeInformation[Any]:
    """The type of a JSON schema. Raises ConfigError if it has no single type, for example because of alternatives."""
    try:
        schema = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError(f"not a JSON schema ({error}): {text[:200]}") from None
    return _type(schema, schema, "<root>", 0)


def _type(schema: Any, root: Any, path: str, depth: int) -> TypeInformation[Any]:
    if not isinstance(schema, dict) or depth > 100:
        raise ConfigError(f"JSON schema: {path} has no schema, or a recursive one; give type_info instead")
    if "$ref" in schema:
        return _type(_resolve_reference(schema["$ref"], root, path), root, path, depth + 1)
    alternatives = schema.get("oneOf")
    if alternatives is None:
        kinds = schema.get("type")
        alternatives = [{**schema, "type": kind} for kind in kinds] if isinstance(kinds, list) else [schema]
    others = [each for each in alternatives if not (isinstance(each, dict) and each.get("type") == "null")]
    if len(others) > 1:
        raise ConfigError(f"JSON schema: {path} has several types besides null; give type_info instead")
    if others != [schema]:
        return _type(others[0], root, path, depth + 1) if others else _SCALARS["null"]
    kind = schema.get("type")
    if kind == "object":
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            raise ConfigError(f"JSON schema: the object {path} has no properties; give type_info instead")
        return Types.ROW_NAMED(
            list(properties), [_type(each, root, f"{path}/{name}", depth + 1) for name, each in properties.items()]
        )
    if kind == "array":
        items = schema.get("items")
        if isinstance(items, list):
            return Types.ROW([_type(each, root, f"{path}[{i}]", depth + 1) for i, each in enumerate(items)])
        return Types.OBJECT_ARRAY(_type(items, root, f"{path}[]", depth + 1))
    if kind == "string" and schema.get("contentEncoding") == "base64":
        return Types.BYTES()
    found = (_FORMATS.get(schema.get("format", "")) if kind == "string" else None) or _SCALARS.get(str(kind))
    if found is None:
        raise ConfigError(f"JSON schema: {path} has the unsupported type {kind!r}; give type_info instead")
    return found


def _resolve_reference(reference: Any, root: Any, path: str) -> Any:
    found = root
    for part in str(reference).removeprefix("#").strip("/").split("/"):
        found = found.get(part) if isinstance(found, dict) else None
    if not str(reference).startswith("#/") or found is None:
        raise ConfigError(f"JSON schema: {path} refers to {reference!r}, which is not in the schema")
    return found
