"""Protobuf with one message of a declared kind per message; its descriptors, which can be shipped, and its types."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC
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
from forkpoint.connectors.formats.records import RecordConverter, Unreadable, shorten
from forkpoint.contract.format import SerializationSchema
from forkpoint.errors import ConfigError, TypeNotSupported
from forkpoint.extras import require
from forkpoint.types import TypeInformation, TypeLike, Types, type_of
from forkpoint.types.kinds.containers import MapType, SequenceType, optional
from forkpoint.types.kinds.records import row_type

_DYNAMIC = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")


@dataclass(frozen=True)
class ProtobufDeserializationSchema(Declared, BatchDeserializationSchema[Any]):
    """Reads one Protobuf message, of a class that protoc generated or a `ProtobufMessage`, in each message.

    Elements are `Row`s, or of ``type_info``, such as a dataclass, whose fields are found by name. Enums are their names; fields
    with presence (``optional``, messages, members of a oneof) are None if they are not set. With ``ignore_parse_errors``, bad
    messages are skipped silently.
    """

    message: type | ProtobufMessage
    type_info: TypeLike[Any] | None = None
    ignore_parse_errors: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", _message(self.message))
        type = self.kind.element_type if self.type_info is None else type_of(self.type_info)
        object.__setattr__(self, "type_info", type)

    @property
    def kind(self) -> ProtobufMessage:
        """The kind of messages."""
        return self.message  # type: ignore[return-value]  # __post_init__ has made it one

    def get_produced_type(self) -> TypeInformation[Any]:
        return self.type_info  # type: ignore[return-value]  # __post_init__ has made it one

    @cached_property
    def _converter(self) -> RecordConverter:
        return RecordConverter(self.get_produced_type())

    @cached_property
    def _values(self) -> Callable[[Any], dict[str, Any]]:
        return _reader(self.kind.descriptor, {})

    def read(self, messages: pa.BinaryArray) -> Iterator[Part]:
        parse, values = self.kind.message_class.FromString, self._values

        def decode(message: bytes) -> Any:
            try:
                return values(parse(message))
            except Exception as error:  # DecodeError, or a time beyond Python's range
                raise Unreadable(f"not a {self.kind.name} ({shorten(str(error))})") from None

        yield read_each(messages, 0, decode, self._converter)


@dataclass(frozen=True)
class ProtobufSerializationSchema(Declared, SerializationSchema[Any]):
    """Writes each element as a Protobuf message, of a class that protoc generated or a `ProtobufMessage`.

    Fields are found by name; those of tuples by position. None leaves a field unset.
    """

    message: type | ProtobufMessage

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", _message(self.message))

    @property
    def kind(self) -> ProtobufMessage:
        """The kind of messages."""
        return self.message  # type: ignore[return-value]  # __post_init__ has made it one

    def serialize(self, element: Any) -> bytes:
        message = self.kind.message_class()
        value = by_position(element)
        try:
            value = elements_of([value], self.kind.element_type)[0] if is_nameless(value) else value
            _fill(message, to_plain(value))
            data: bytes = message.SerializeToString(deterministic=True)
        except Exception as error:  # Protobuf raises many kinds
            raise TypeNotSupported(f"{element!r} cannot be written as a {self.kind.name}: {error}") from error
        return data


def _message(message: Any) -> ProtobufMessage:
    return message if isinstance(message, ProtobufMessage) else ProtobufMessage.of(message)


# -- reading -----------------------------------------------------------------------------------------------------------

_Reader = Callable[[Any], Any]


def _reader(descriptor: Any, known: dict[str, _Reader]) -> _Reader:
    """Message → its values by name."""
    if descriptor.full_name in known:
        return known[descriptor.full_name]
    parts: list[tuple[str, bool, _Reader]] = []
    known[descriptor.full_name] = lambda message: {
        name: None if present and not message.HasField(name) else read(getattr(message, name)) for name, present, read in parts
    }
    parts += [(f.name, f.has_presence and not f.is_repeated, _field_reader(f, known)) for f in descriptor.fields]
    return known[descriptor.full_name]


def _field_reader(field: Any, known: dict[str, _Reader]) -> _Reader:
    if is_map(field):
        key, value = (_value_reader(f, known) for f in field.message_type.fields)
        return lambda entries: {key(k): value(entries[k]) for k in entries}
    read = _value_reader(field, known)
    return (lambda values: list(map(read, values))) if field.is_repeated else read


def _value_reader(field: Any, known: dict[str, _Reader]) -> _Reader:
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return lambda number: names[number].name if number in names else str(number)
    message = field.message_type
    if message is None:
        return lambda value: value
    if message.full_name == "google.protobuf.Timestamp":
        return lambda value: value.ToDatetime(UTC)
    if message.full_name == "google.protobuf.Duration":
        return lambda value: value.ToTimedelta()
    if message.full_name in _DYNAMIC:
        from google.protobuf.json_format import MessageToDict

        return lambda value: MessageToDict(value)
    if message.full_name in WELL_KNOWN:
        return lambda value: value.value
    return _reader(message, known)


# -- writing -----------------------------------------------------------------------------------------------------------


def _fill(message: Any, values: dict[str, Any]) -> None:
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in values.items():
        field = fields.get(name)
        if field is None:
            raise ValueError(f"it has no field {name!r}")
        if value is None:
            continue
        if is_map(field):
            _fill_map(getattr(message, name), field.message_type.fields_by_name["value"], value)
        elif field.is_repeated:
            target = getattr(message, name)
            for each in value:
                if field.message_type is None:
                    target.append(_scalar(field, each))
                else:
                    _fill_message(target.add(), each)
        elif field.message_type is not None:
            getattr(message, name).SetInParent()
            _fill_message(getattr(message, name), value)
        else:
            setattr(message, name, _scalar(field, value))


def _fill_map(target: Any, of: Any, values: dict[Any, Any]) -> None:
    for key, value in values.items():
        if of.message_type is None:
            target[key] = _scalar(of, value)
        else:
            _fill_message(target[key], value)


def _fill_message(message: Any, value: Any) -> None:
    name = message.DESCRIPTOR.full_name
    if name == "google.protobuf.Timestamp":
        message.FromDatetime(value)
    elif name == "google.protobuf.Duration":
        message.FromTimedelta(value)
    elif name in _DYNAMIC:
        from google.protobuf.json_format import ParseDict

        ParseDict(value, message)
    elif name in WELL_KNOWN:
        message.value = value
    else:
        _fill(message, value)


def _scalar(field: Any, value: Any) -> Any:
    if field.enum_type is None:
        return value
    if isinstance(value, Enum):
        value = value.value if isinstance(value.value, str) else value.name
    named = field.enum_type.values_by_name.get(value)
    if named is not None:
        return named.number
    try:
        return int(value)  # a number without a name is read as text
    except ValueError:
        raise ValueError(f"{field.enum_type.full_name} has no value {value!r}") from None


WELL_KNOWN: dict[str, TypeInformation[Any]] = {
    "google.protobuf.Timestamp": Types.INSTANT(),
    "google.protobuf.Duration": Types.DURATION(),
    "google.protobuf.Struct": Types.ANY(),
    "google.protobuf.Value": Types.ANY(),
    "google.protobuf.ListValue": Types.ANY(),
    "google.protobuf.BoolValue": Types.BOOLEAN(),
    "google.protobuf.BytesValue": Types.BYTES(),
    "google.protobuf.DoubleValue": Types.DOUBLE(),
    "google.protobuf.FloatValue": Types.FLOAT(),
    "google.protobuf.Int32Value": Types.INT(),
    "google.protobuf.Int64Value": Types.LONG(),
    "google.protobuf.StringValue": Types.STRING(),
    "google.protobuf.UInt32Value": Types.LONG(),
    "google.protobuf.UInt64Value": Types.BIG_INT(),
}
# By the names of FieldDescriptor's TYPE_… constants.
_SCALARS: dict[str, TypeInformation[Any]] = {
    "BOOL": Types.BOOLEAN(),
    "STRING": Types.STRING(),
    "BYTES": Types.BYTES(),
    "ENUM": Types.STRING(),
    "FLOAT": Types.FLOAT(),
    "DOUBLE": Types.DOUBLE(),
    "INT32": Types.INT(),
    "SINT32": Types.INT(),
    "SFIXED32": Types.INT(),
    "UINT32": Types.LONG(),
    "FIXED32": Types.LONG(),
    "INT64": Types.LONG(),
    "SINT64": Types.LONG(),
    "SFIXED64": Types.LONG(),
    "UINT64": Types.BIG_INT(),
    "FIXED64": Types.BIG_INT(),
}


@dataclass(frozen=True)
class ProtobufMessage(Declared):
    """A kind of message: ``descriptor_set``, the bytes of a FileDescriptorSet with the file that defines it and all that it
    imports (``protoc --include_imports --descriptor_set_out``), and its full name."""

    descriptor_set: bytes
    name: str

    @staticmethod
    def of(message_class: type) -> ProtobufMessage:
        """The messages of a class that protoc generated."""
        require("google.protobuf", "Protobuf")
        from google.protobuf.descriptor_pb2 import FileDescriptorSet

        descriptor = getattr(message_class, "DESCRIPTOR", None)
        if descriptor is None:
            raise ConfigError(f"Protobuf: {message_class!r} is not a message class that protoc generated")
        files = FileDescriptorSet()
        for file in with_imports(descriptor.file):
            file.CopyToProto(files.file.add())
        return ProtobufMessage(files.SerializeToString(), descriptor.full_name)

    @cached_property
    def descriptor(self) -> Any:
        """The message's descriptor. Raises ConfigError if it is not in the set, or the set is not complete."""
        require("google.protobuf", "Protobuf")
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from google.protobuf.descriptor_pool import DescriptorPool
        from google.protobuf.message import DecodeError

        pool = DescriptorPool()
        try:
            for file in FileDescriptorSet.FromString(self.descriptor_set).file:
                pool.Add(file)
            return pool.FindMessageTypeByName(self.name)
        except (DecodeError, KeyError, TypeError) as error:
            raise ConfigError(
                f"Protobuf: no message {self.name!r} in the descriptor set ({error}); make it with "
                "protoc --include_imports --descriptor_set_out=FILE"
            ) from None

    @cached_property
    def message_class(self) -> Any:
        """A class for the messages."""
        from google.protobuf.message_factory import GetMessageClass

        return GetMessageClass(self.descriptor)

    @cached_property
    def element_type(self) -> TypeInformation[Any]:
        """The type of a message as an element: a ROW. Raises ConfigError if it contains itself."""
        return _row(self.descriptor, ())


def with_imports(file: Any) -> Iterator[Any]:
    """A file after all its direct and indirect imports, without duplicates."""
    seen: dict[str, Any] = {}

    def visit(file: Any) -> None:
        if file.name not in seen:
            for imported in file.dependencies:
                visit(imported)
            seen[file.name] = file

    visit(file)
    return iter(seen.values())


def indexes_of(message: Any) -> list[int]:
    """The place of a message among those of its file, and of the messages that it is nested in."""
    outer = message.containing_type
    if outer is None:
        return [list(message.file.message_types_by_name).index(message.name)]
    return [*indexes_of(outer), [each.name for each in outer.nested_types].index(message.name)]


def schemas_of(message: Any) -> list[tuple[str, str, list[str]]]:
    """The file of a message after all that it imports, each as its name, its schema for a registry, and its imports.

    Google's own files are left out, as registries know them.
    """
    files = [file for file in with_imports(message.file) if not file.name.startswith("google/protobuf/")]
    encoded = [base64.standard_b64encode(file.serialized_pb).decode() for file in files]
    return [(f.name, text, [each.name for each in f.dependencies]) for f, text in zip(files, encoded, strict=True)]


def message_at(schema: str, indexes: list[int]) -> str | None:
    """The full name of the message at a place in a file, which a registry has as `schemas_of` gives it; None if it has the
    file's source, which only protoc can read."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(schema, validate=True))
    except (ValueError, DecodeError):
        return None
    names, messages = [file.package] if file.package else [], file.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            raise Unreadable(f"no message at {indexes} in the schema of {file.name}")
        names.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(names)


def scalar_name(field: Any) -> str:
    """A field's type by the name of FieldDescriptor's constant: "INT32", "MESSAGE" …"""
    return next(name[5:] for name in _constants() if getattr(field, name) == field.type)


def is_map(field: Any) -> bool:
    """Whether a field is a map, which Protobuf represents as repeated messages of key and value."""
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _constants() -> list[str]:
    from google.protobuf.descriptor import FieldDescriptor

    return [name for name in dir(FieldDescriptor) if name.startswith("TYPE_")]


def _row(message: Any, inside: tuple[str, ...]) -> TypeInformation[Any]:
    if message.full_name in inside:
        raise ConfigError(
            f"the Protobuf message {message.full_name} contains itself, so it has no columns; give type_info, with Types.ANY() "
            "for that field"
        )
    inside = (*inside, message.full_name)
    return row_type([f.name for f in message.fields], [_field(f, inside) for f in message.fields])


def _field(field: Any, inside: tuple[str, ...]) -> TypeInformation[Any]:
    if is_map(field):
        key, value = field.message_type.fields
        return MapType(_value(key, inside), _value(value, inside))
    of = _value(field, inside)
    if field.is_repeated:
        return SequenceType("list", of)
    return optional(of) if field.has_presence and not field.is_required and of.kind != "any" else of


def _value(field: Any, inside: tuple[str, ...]) -> TypeInformation[Any]:
    message = field.message_type
    if message is None:
        return _SCALARS[scalar_name(field)]
    return WELL_KNOWN.get(message.full_name) or _row(message, inside)
