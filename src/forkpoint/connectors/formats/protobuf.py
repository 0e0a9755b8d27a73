"""Protobuf: one message of a declared kind in each message."""

from __future__ import annotations

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
from forkpoint.connectors.formats.protobuf_types import WELL_KNOWN, ProtobufMessage, is_map
from forkpoint.connectors.formats.records import RecordConverter, Unreadable, shorten
from forkpoint.contract.format import SerializationSchema
from forkpoint.errors import TypeNotSupported
from forkpoint.types import TypeInformation, TypeLike, type_of

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
            except Exception as error:  # DecodeError, or a time beyond what Python has
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
        except Exception as error:  # Protobuf raises whatever the value leads to
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
        name: None if present and not message.HasField(name) else read(getattr(message, name))
        for name, present, read in parts
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
