"""Messages with a schema in a Confluent Schema Registry: a header with the schema's id, then Avro, JSON or Protobuf."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import methodcaller
from typing import Any, Generic

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.connectors.formats.avro import AvroRowDeserializationSchema, AvroRowSerializationSchema, parse_schema
from forkpoint.connectors.formats.batches import BatchDeserializationSchema, Declared, Part, spans
from forkpoint.connectors.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from forkpoint.connectors.formats.protobuf import (
    ProtobufDeserializationSchema,
    ProtobufSerializationSchema,
    indexes_of,
    message_at,
    schemas_of,
)
from forkpoint.connectors.formats.records import Unreadable
from forkpoint.contract.format import BadMessage, SerializationSchema
from forkpoint.contract.sink import SinkBatch
from forkpoint.errors import ConfigError, StorageError, SystemUnavailable
from forkpoint.extras import require
from forkpoint.types import TypeInformation
from forkpoint.types.variables import T

_HEADER = struct.Struct(">BI")


@dataclass(frozen=True)
class SchemaRegistry:
    """A Confluent Schema Registry. ``config``: further settings of confluent-kafka's SchemaRegistryClient, such as
    ``{"basic.auth.user.info": "user:password"}``."""

    url: str
    config: Mapping[str, Any] | tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        require("confluent_kafka.schema_registry", "A schema registry")
        require("authlib", "A schema registry")
        object.__setattr__(self, "config", tuple(sorted(dict(self.config).items())))

    def __repr__(self) -> str:
        return f"SchemaRegistry({self.url!r})"  # the settings hold secrets

    def schema(self, id: int, notation: str | None = None) -> Any:
        """The schema with this id. Raises Unreadable if there is none."""
        found = self._ask(lambda client: client.get_schema(id, fmt=notation))
        if found is None:
            raise Unreadable(f"the schema registry {self.url} has no schema with id {id}")
        return found

    def references(self, schema: Any) -> list[Any]:
        """The schemas that a schema refers to, directly or indirectly, in the order of their dependencies."""
        found = []
        for reference in schema.references or ():
            version = self._ask(methodcaller("get_version", reference.subject, reference.version))
            if version is None:
                raise Unreadable(f"the schema registry {self.url} has no version {reference.version} of {reference.subject}")
            found += [*self.references(version.schema), version.schema]
        return found

    def register(self, subject: str, schema: Any) -> int:
        """Register a schema for a subject, unless it is registered already. Returns its id."""
        id = self._ask(lambda client: client.register_schema(subject, schema))
        if id is None:
            raise ConfigError(f"the schema registry {self.url} does not register schemas for {subject}")
        return int(id)

    def lookup(self, subject: str, schema: Any) -> tuple[int, int]:
        """The id and version of a schema registered for a subject. Raises ConfigError if it is not registered."""
        found = self._ask(lambda client: client.lookup_schema(subject, schema))
        if found is None:
            raise ConfigError(
                f"the schema is not registered for the subject {subject} in {self.url}; register it, or set auto_register=True"
            )
        return int(found.schema_id), int(found.version)

    def _ask(self, request: Callable[[Any], Any]) -> Any:
        """The registry's answer; None if it found nothing."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        client = _client(self, os.getpid())
        try:
            return request(client)
        except SchemaRegistryError as error:
            status = error.http_status_code
            if status == 404:
                return None
            if status >= 500:
                raise SystemUnavailable(f"the schema registry {self.url} failed: {error}") from error
            if status in (409, 422):
                raise ConfigError(f"the schema registry {self.url} refuses the schema: {error}") from error
            raise StorageError(f"the schema registry {self.url} refused a request: {error}") from error
        except Exception as error:  # from the HTTP client, whose package depends on the version of confluent-kafka
            raise SystemUnavailable(f"the schema registry {self.url} does not answer: {error}") from error


@lru_cache(maxsize=64)
def _client(registry: SchemaRegistry, process: int) -> Any:
    """The process's client, which caches schemas and ids."""
    from confluent_kafka.schema_registry import SchemaRegistryClient

    return SchemaRegistryClient({"url": registry.url, **dict(registry.config)})


# -- reading -----------------------------------------------------------------------------------------------------------

_Deserialization = AvroRowDeserializationSchema | JsonRowDeserializationSchema[Any] | ProtobufDeserializationSchema


@dataclass(frozen=True)
class ConfluentRegistryDeserializationSchema(Declared, BatchDeserializationSchema[Any]):
    """Reads messages with Confluent's header, followed by ``format``: AvroRowDeserializationSchema,
    JsonRowDeserializationSchema or ProtobufDeserializationSchema.

    Avro is read by the writer's schema, from the registry, and resolved to the schema of ``format``.
    """

    format: _Deserialization
    registry: SchemaRegistry
    ignore_parse_errors: bool = False

    def __post_init__(self) -> None:
        if self.format.ignore_parse_errors:
            object.__setattr__(self, "ignore_parse_errors", True)

    def get_produced_type(self) -> TypeInformation[Any]:
        return self.format.get_produced_type()

    def read(self, messages: pa.BinaryArray) -> Iterator[Part]:
        data, starts, ends = spans(messages)
        headed = ends - starts >= _HEADER.size
        headed[headed] = data[starts[headed]] == 0
        if not headed.all():
            yield self._all_bad(np.flatnonzero(~headed), "no header of a schema registry (0, and an id of 4 bytes)")
        at = starts[headed][:, None] + np.arange(1, _HEADER.size)
        ids = data[at].copy().view(">u4")[:, 0] if len(at) else np.empty(0, np.uint32)
        for id in np.unique(ids):
            indices = np.flatnonzero(headed)[ids == id]
            of_schema = messages if len(indices) == len(messages) else messages.take(pa.array(indices))
            for part in self._parts(int(id), _without(of_schema, _HEADER.size)):
                yield part.at(indices)

    def _parts(self, id: int, messages: pa.BinaryArray) -> Iterator[Part]:
        if isinstance(self.format, ProtobufDeserializationSchema):
            yield from self._protobuf(id, self.format, messages)
        elif isinstance(self.format, AvroRowDeserializationSchema):
            try:
                writer = _avro_schema(self.registry, id)
            except Unreadable as error:
                yield self._all_bad(range(len(messages)), str(error))
            else:
                yield from self.format.read_written_by(writer, messages)
        else:
            yield from self.format.read(messages)

    def _protobuf(self, id: int, inner: ProtobufDeserializationSchema, messages: pa.BinaryArray) -> Iterator[Part]:
        kinds: dict[bytes, list[int]] = {}
        for index, message in enumerate(messages.to_pylist()):
            kinds.setdefault(message[: _end_of_indexes(message)], []).append(index)
        for indexes, found in kinds.items():
            places = np.array(found, np.int64)
            try:
                if not indexes:
                    raise Unreadable("no message indexes after the schema's id")
                name = _protobuf_name(self.registry, id, indexes)
                if name not in (None, inner.kind.name):
                    raise Unreadable(f"a message {name}, not {inner.kind.name}")
            except Unreadable as error:
                yield self._all_bad(found, str(error))
                continue
            for part in inner.read(_without(messages.take(pa.array(places)), len(indexes))):
                yield part.at(places)

    def _all_bad(self, indices: Iterable[int], problem: str) -> Part:
        none = pa.RecordBatch.from_pylist([], schema=self.get_produced_type().arrow_schema)
        return Part(none, np.empty(0, np.int64), tuple(BadMessage(int(index), problem) for index in indices))


def _without(messages: pa.BinaryArray, header: int) -> pa.BinaryArray:
    """The messages without a header of this size. (Arrow's binary_slice fails on messages of different sizes.)"""
    return pa.array([message[header:] for message in messages.to_pylist()], pa.binary())


@lru_cache(maxsize=1024)
def _avro_schema(registry: SchemaRegistry, id: int) -> Any:
    schema = registry.schema(id)
    if (schema.schema_type or "AVRO") != "AVRO":
        raise Unreadable(f"the schema with id {id} is {schema.schema_type}, not AVRO")
    return parse_schema(schema.schema_str, tuple(reference.schema_str for reference in registry.references(schema)))


@lru_cache(maxsize=1024)
def _protobuf_name(registry: SchemaRegistry, id: int, indexes: bytes) -> str | None:
    """The full name of the writer's message; None if the registry has only the source of its file."""
    schema = registry.schema(id, "serialized")
    if schema.schema_type != "PROTOBUF":
        raise Unreadable(f"the schema with id {id} is {schema.schema_type or 'AVRO'}, not PROTOBUF")
    return message_at(schema.schema_str, _varints(indexes)[1:] or [0])


def _varints(data: bytes) -> list[int]:
    """Zigzag varints; the first one is the number of the others."""
    values, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            values.append((value >> 1) ^ -(value & 1))
            value = shift = 0
    return values


def _end_of_indexes(message: bytes) -> int:
    """The end of the message indexes, or the message's end if it truncates them."""
    count = None
    at = left = 0
    while at < len(message):
        end = at + 1
        while message[end - 1] & 0x80 and end < len(message):
            end += 1
        if count is None:
            (count,) = _varints(message[at:end]) or (0,)
            left = count + 1
        at, left = end, left - 1
        if left <= 0:
            break
    return at


# -- writing -----------------------------------------------------------------------------------------------------------

_Serialization = AvroRowSerializationSchema | JsonRowSerializationSchema[Any] | ProtobufSerializationSchema


@dataclass(frozen=True)
class ConfluentRegistrySerializationSchema(Declared, SerializationSchema[T], Generic[T]):
    """Writes elements in ``format`` after Confluent's header, with the id of the format's schema.

    ``subject``: the name of the schema in the registry; by the usual strategy ``f"{topic}-value"`` or ``f"{topic}-key"``.
    With ``auto_register=False``, the schema must be registered already. ``json_schema``: the JSON schema, if the format is JSON.
    """

    format: _Serialization
    registry: SchemaRegistry
    subject: str
    auto_register: bool = True
    json_schema: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.format, JsonRowSerializationSchema) != (self.json_schema is not None):
            raise ConfigError("ConfluentRegistrySerializationSchema: give json_schema if, and only if, the format is JSON")

    def serialize(self, element: T) -> bytes:
        return self._header() + self.format.serialize(element)

    def serialize_batch(self, batch: SinkBatch[T]) -> pa.BinaryArray:
        messages = self.format.serialize_batch(batch)
        if not len(messages):
            return messages
        return pc.binary_join_element_wise(pa.scalar(self._header()), messages, b"")

    def _header(self) -> bytes:
        indexes = b""
        if isinstance(self.format, ProtobufSerializationSchema):
            indexes = _encoded(indexes_of(self.format.kind.descriptor))
        return _HEADER.pack(0, _id(self, os.getpid())) + indexes


@lru_cache(maxsize=1024)
def _id(schema: ConfluentRegistrySerializationSchema[Any], process: int) -> int:
    """The id of a schema, requested once per process."""
    from confluent_kafka.schema_registry import Schema, SchemaReference

    registry, inner, subject = schema.registry, schema.format, schema.subject

    def find(subject: str, declared: Any) -> int:
        return registry.register(subject, declared) if schema.auto_register else registry.lookup(subject, declared)[0]

    if isinstance(inner, AvroRowSerializationSchema):
        return find(subject, Schema(inner.avro_schema_string, "AVRO"))
    if isinstance(inner, JsonRowSerializationSchema):
        return find(subject, Schema(schema.json_schema, "JSON"))
    references: dict[str, Any] = {}  # by file
    *imported, own = schemas_of(inner.kind.descriptor)
    for name, text, imports in imported:
        declared = Schema(text, "PROTOBUF", [references[file] for file in imports if file in references])
        find(name, declared)
        references[name] = SchemaReference(name, name, registry.lookup(name, declared)[1])
    return find(subject, Schema(own[1], "PROTOBUF", [references[file] for file in own[2] if file in references]))


def _encoded(indexes: list[int]) -> bytes:
    """Message indexes as zigzag varints after their number; [0] is one zero."""
    if indexes == [0]:
        return b"\0"
    out = bytearray()
    for value in (len(indexes), *indexes):
        left = value << 1
        while left > 0x7F:
            out.append(left & 0x7F | 0x80)
            left >>= 7
        out.append(left)
    return bytes(out)
