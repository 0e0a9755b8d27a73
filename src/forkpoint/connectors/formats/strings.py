"""Formats of messages whose bytes are the element: text and bytes."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from forkpoint.contract.format import DeserializationSchema, Deserialized, SerializationSchema
from forkpoint.contract.sink import SinkBatch
from forkpoint.errors import ConfigError, TypeNotSupported
from forkpoint.types import TypeInformation, Types


@dataclass(frozen=True)
class SimpleStringSchema(SerializationSchema[str], DeserializationSchema[str]):
    """A message is text in this encoding. As in Java, invalid bytes become U+FFFD, so that no message is bad."""

    charset: str = "UTF-8"

    def __post_init__(self) -> None:
        try:
            codecs.lookup(self.charset)
        except LookupError:
            raise ConfigError(f"SimpleStringSchema: unknown charset {self.charset!r}; 'UTF-8' is the default") from None

    def get_produced_type(self) -> TypeInformation[str]:
        return Types.STRING()

    def deserialize(self, message: bytes) -> str:
        return message.decode(self.charset, "replace")

    def deserialize_batch(self, messages: pa.BinaryArray) -> Deserialized[str]:
        indices = _indices(messages)
        messages = messages if indices is None else messages.drop_null()
        return Deserialized(_batch(self._texts(messages), self.get_produced_type()), indices)

    def _texts(self, messages: pa.BinaryArray) -> pa.StringArray:
        if self._is_utf8:
            try:
                return messages.cast(pa.string())
            except pa.ArrowInvalid:  # some are not UTF-8
                pass
        return pa.array(list(map(self.deserialize, messages.to_pylist())), pa.string())

    def serialize(self, element: str) -> bytes:
        if not isinstance(element, str):
            raise TypeNotSupported(f"SimpleStringSchema: {element!r} is not a str; map the elements to text")
        return element.encode(self.charset, "replace")

    def serialize_batch(self, batch: SinkBatch[str]) -> pa.BinaryArray:
        table = batch.table
        if self._is_utf8 and table is not None and table.schema.names == ["value"]:
            column = table.column(0)
            if column.type == pa.string() and not column.null_count:
                return column.cast(pa.binary())
        return super().serialize_batch(batch)

    @property
    def _is_utf8(self) -> bool:
        return codecs.lookup(self.charset).name == "utf-8"


@dataclass(frozen=True)
class ByteArraySchema(SerializationSchema[bytes], DeserializationSchema[bytes]):
    """A message's unchanged bytes."""

    def get_produced_type(self) -> TypeInformation[bytes]:
        return Types.BYTES()

    def deserialize(self, message: bytes) -> bytes:
        return message

    def deserialize_batch(self, messages: pa.BinaryArray) -> Deserialized[bytes]:
        indices = _indices(messages)
        messages = messages if indices is None else messages.drop_null()
        return Deserialized(_batch(messages, self.get_produced_type()), indices)

    def serialize(self, element: bytes) -> bytes:
        if not isinstance(element, bytes | bytearray | memoryview):
            raise TypeNotSupported(f"ByteArraySchema: {element!r} is not bytes; map the elements to bytes")
        return bytes(element)

    def serialize_batch(self, batch: SinkBatch[bytes]) -> pa.BinaryArray:
        table = batch.table
        if table is not None and table.schema.names == ["value"] and table.schema.types == [pa.binary()]:
            column = table.column(0)
            if not column.null_count and batch.type in (None, Types.BYTES()):  # a column of ANY is encoded
                return column
        return super().serialize_batch(batch)


@dataclass(frozen=True)
class RowFieldExtractorSchema(SerializationSchema[Any]):
    """Writes one field of a `Row` or tuple, which must be bytes, such as a message's key. None is an empty message."""

    field_index: int

    def __post_init__(self) -> None:
        if self.field_index < 0:
            raise ConfigError(f"RowFieldExtractorSchema: a field's index is not negative: {self.field_index}")

    def serialize(self, element: Any) -> bytes:
        value = element[self.field_index]
        if value is None:
            return b""
        if not isinstance(value, bytes | bytearray):
            raise TypeNotSupported(
                f"RowFieldExtractorSchema: field {self.field_index} of {element!r} is not bytes; encode it in map()"
            )
        return bytes(value)


def _indices(messages: pa.BinaryArray) -> list[int] | None:
    """The indices of messages with a value; None if all have one."""
    if not messages.null_count:
        return None
    return [index for index, valid in enumerate(messages.is_valid().to_pylist()) if valid]


def _batch(column: pa.Array, type: TypeInformation) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([column], schema=type.arrow_schema)
