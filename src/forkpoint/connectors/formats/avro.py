"""Avro with one headerless value per message, under PyFlink's names, and the types of Avro schemas."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import pyarrow as pa

from forkpoint.connectors.formats.batches import (
    BatchDeserializationSchema,
    Declared,
    Part,
    by_position,
    elements_of,
    is_nameless,
    read_each,
)
from forkpoint.connectors.formats.jsonable import to_plain
from forkpoint.connectors.formats.records import RecordConverter, Unreadable
from forkpoint.contract.format import SerializationSchema
from forkpoint.errors import ConfigError, TypeNotSupported
from forkpoint.extras import require
from forkpoint.types import TypeInformation, TypeLike, Types, type_of
from forkpoint.types.kinds.containers import MapType, SequenceType, optional
from forkpoint.types.kinds.records import row_type


def parse_schema(text: str, references: tuple[str, ...] = ()) -> Any:
    """Parse a JSON schema into fastavro's form. Raises ConfigError.

    ``references``: the schemas whose names it uses, in order of use.
    """
    require("fastavro", "Avro")
    import fastavro

    named: dict[str, Any] = {}
    try:
        for reference in references:
            fastavro.parse_schema(json.loads(reference), named)
        return fastavro.parse_schema(json.loads(text), named)
    except (ValueError, TypeError, AttributeError, KeyError, fastavro.schema.SchemaParseException) as error:
        raise ConfigError(f"not an Avro schema ({error or type(error).__name__}): {text[:200]}") from None


@dataclass(frozen=True)
class AvroRowDeserializationSchema(Declared, BatchDeserializationSchema[Any]):
    """Reads one Avro value of the schema per message. Elements have the schema's type (`Row` for a record) or ``type_info``,
    such as a dataclass, whose fields are matched by name.

    A union with null is optional. ``ignore_parse_errors`` silently skips bad messages.
    """

    record_class: None = None
    avro_schema_string: str | None = None
    type_info: TypeLike[Any] | None = None
    ignore_parse_errors: bool = False

    def __post_init__(self) -> None:
        schema = _parse_declared("AvroRowDeserializationSchema", self.record_class, self.avro_schema_string)
        if self.type_info is None:
            object.__setattr__(self, "type_info", avro_type(schema))
        else:
            object.__setattr__(self, "type_info", type_of(self.type_info))

    def get_produced_type(self) -> TypeInformation[Any]:
        return self.type_info  # type: ignore[return-value]  # __post_init__ converts it

    @cached_property
    def schema(self) -> Any:
        """The schema in fastavro's form."""
        assert self.avro_schema_string is not None
        return parse_schema(self.avro_schema_string)

    @cached_property
    def _converter(self) -> RecordConverter:
        return RecordConverter(self.get_produced_type())

    def read(self, messages: pa.BinaryArray) -> Iterator[Part]:
        return self.read_written_by(self.schema, messages)

    def read_written_by(self, writer: Any, messages: pa.BinaryArray) -> Iterator[Part]:
        """Like `read`, for messages written with another schema. Resolves it to this schema."""
        from fastavro import schemaless_reader

        reader = None if writer == self.schema else self.schema

        def decode(message: bytes) -> Any:
            data = io.BytesIO(message)
            try:
                value = schemaless_reader(data, writer, reader)
            except Exception as error:  # fastavro raises many types
                raise Unreadable(f"not Avro of the schema ({_problem(error)})") from None
            if data.tell() != len(message):
                raise Unreadable(f"not Avro of the schema ({len(message) - data.tell()} bytes left over)")
            return value

        yield read_each(messages, 0, decode, self._converter)


def _problem(error: Exception) -> str:
    """What is wrong with bytes that caused this error."""
    match error:
        case EOFError():
            return "it ends within a value, or a length in it is wrong"
        case IndexError():
            return "it ends too early, or the index of an enum symbol or of a union's type is out of range"
        case UnicodeDecodeError():
            return "a string in it is not UTF-8"
        case _:
            return str(error) or "its bytes are not a value"


@dataclass(frozen=True)
class AvroRowSerializationSchema(Declared, SerializationSchema[Any]):
    """Writes each element as an Avro value of the schema. Fields are matched by name; those of tuples and of rows without
    names, by position."""

    record_class: None = None
    avro_schema_string: str | None = None

    def __post_init__(self) -> None:
        _parse_declared("AvroRowSerializationSchema", self.record_class, self.avro_schema_string)

    @cached_property
    def schema(self) -> Any:
        """The schema in fastavro's form."""
        assert self.avro_schema_string is not None
        return parse_schema(self.avro_schema_string)

    @cached_property
    def _type(self) -> TypeInformation[Any]:
        return avro_type(self.schema)

    @cached_property
    def _enums(self) -> bool:
        return '"enum"' in (self.avro_schema_string or "")

    def serialize(self, element: Any) -> bytes:
        from fastavro import schemaless_writer

        out = io.BytesIO()
        try:
            schemaless_writer(out, self.schema, self.plain(element), strict_allow_default=True)
        except Exception as error:  # fastavro raises many types
            raise self.misfit(element, error) from error
        return out.getvalue()

    def plain(self, element: Any) -> Any:
        """An element in fastavro's form."""
        value = by_position(element)
        plain = to_plain(elements_of([value], self._type)[0] if is_nameless(value) else value)
        return _replace_enums(plain) if self._enums else plain

    def misfit(self, element: Any, error: Exception) -> TypeNotSupported:
        """The error for an element that does not fit the schema."""
        return TypeNotSupported(f"{element!r} cannot be written by the Avro schema: {error!r}")


def _replace_enums(value: Any) -> Any:
    """Replaces Enums by symbols: the Enum's value if it is text, otherwise its name."""
    if isinstance(value, dict):
        return {name: _replace_enums(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(_replace_enums, value))
    if isinstance(value, Enum):
        return value.value if isinstance(value.value, str) else value.name
    return value


def _parse_declared(what: str, record_class: object, schema: str | None) -> Any:
    if record_class is not None:
        raise ConfigError(f"{what}: record_class is a Java class; give avro_schema_string")
    if schema is None:
        raise ConfigError(f"{what}: give avro_schema_string")
    return parse_schema(schema)


_PRIMITIVES: dict[Any, TypeInformation[Any]] = {
    "boolean": Types.BOOLEAN(),
    "int": Types.INT(),
    "long": Types.LONG(),
    "float": Types.FLOAT(),
    "double": Types.DOUBLE(),
    "bytes": Types.BYTES(),
    "fixed": Types.BYTES(),
    "string": Types.STRING(),
    "enum": Types.STRING(),
}
_LOGICAL: dict[Any, TypeInformation[Any]] = {
    ("int", "date"): Types.SQL_DATE(),
    ("int", "time-millis"): Types.SQL_TIME(),
    ("long", "time-micros"): Types.SQL_TIME(),
    ("long", "timestamp-millis"): Types.INSTANT(),
    ("long", "timestamp-micros"): Types.INSTANT(),
    ("long", "local-timestamp-millis"): Types.SQL_TIMESTAMP(),
    ("long", "local-timestamp-micros"): Types.SQL_TIMESTAMP(),
    ("bytes", "decimal"): Types.BIG_DEC(),
    ("fixed", "decimal"): Types.BIG_DEC(),
    ("string", "uuid"): Types.UUID(),
}


def avro_type(schema: Any) -> TypeInformation[Any]:
    """The type of a schema in fastavro's form. Raises ConfigError for a record that contains itself.

    A record is a ROW. A union with null is optional; any other union is ANY.
    """
    named: dict[str, Any] = dict(schema.get("__named_schemas", {})) if isinstance(schema, dict) else {}
    return _type(schema, named, ())


def _type(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> TypeInformation[Any]:
    if isinstance(schema, list):
        return _union(schema, named, inside)
    if isinstance(schema, str):
        primitive = _PRIMITIVES.get(schema)
        if primitive is not None:
            return primitive
        return Types.ANY() if schema == "null" else _type(named[schema], named, inside)
    kind = schema["type"]
    if "name" in schema:
        named[schema["name"]] = schema
    if kind in ("record", "error"):
        name = schema["name"]
        if name in inside:
            raise ConfigError(
                f"the Avro record {name} contains itself, so it has no columns; give type_info, with Types.ANY() for that field"
            )
        fields = [(field["name"], _type(field["type"], named, (*inside, name))) for field in schema["fields"]]
        return row_type([field for field, _ in fields], [type for _, type in fields])
    if kind == "array":
        return SequenceType("list", _type(schema["items"], named, inside))
    if kind == "map":
        return MapType(Types.STRING(), _type(schema["values"], named, inside))
    logical = _LOGICAL.get((kind, schema.get("logicalType"))) if isinstance(kind, str) else None
    return logical or _PRIMITIVES.get(kind) or _type(kind, named, inside)


def _union(members: list[Any], named: dict[str, Any], inside: tuple[str, ...]) -> TypeInformation[Any]:
    others = [member for member in members if member not in ("null", {"type": "null"})]
    if len(others) != 1:
        return Types.ANY()
    of = _type(others[0], named, inside)
    return of if len(others) == len(members) or of.kind == "any" else optional(of)
