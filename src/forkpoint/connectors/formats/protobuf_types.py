"""Protobuf's messages: their descriptors, which can be shipped, and their types."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from forkpoint.connectors.formats.batches import Declared
from forkpoint.connectors.formats.records import Unreadable
from forkpoint.errors import ConfigError
from forkpoint.extras import require
from forkpoint.types import TypeInformation, Types
from forkpoint.types.containers import MapType, SequenceType, optional
from forkpoint.types.records import row_type

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
    "BOOL": Types.BOOLEAN(), "STRING": Types.STRING(), "BYTES": Types.BYTES(), "ENUM": Types.STRING(),
    "FLOAT": Types.FLOAT(), "DOUBLE": Types.DOUBLE(),
    "INT32": Types.INT(), "SINT32": Types.INT(), "SFIXED32": Types.INT(), "UINT32": Types.LONG(), "FIXED32": Types.LONG(),
    "INT64": Types.LONG(), "SINT64": Types.LONG(), "SFIXED64": Types.LONG(),
    "UINT64": Types.BIG_INT(), "FIXED64": Types.BIG_INT(),
}  # fmt: skip


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
    """A file after all that it imports, directly or not, each once."""
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
