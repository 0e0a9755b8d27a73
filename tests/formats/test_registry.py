"""Schema registry: Confluent's own serializers and deserializers are the other side, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cloudpickle
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from forkpoint import Row, Types
from forkpoint.connectors.formats.avro import AvroRowDeserializationSchema, AvroRowSerializationSchema
from forkpoint.connectors.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from forkpoint.connectors.formats.protobuf import (
    ProtobufDeserializationSchema,
    ProtobufMessage,
    ProtobufSerializationSchema,
)
from forkpoint.connectors.formats.registry import (
    ConfluentRegistryDeserializationSchema,
    ConfluentRegistrySerializationSchema,
    SchemaRegistry,
)
from forkpoint.errors import ConfigError, StorageError, SystemUnavailable
from formats.messages import Batch, elements, messages, read
from formats.protos import SHOP
from servers.schema_registry import Registry, schema_registry

CONTEXT = SerializationContext("orders", MessageField.VALUE)


def record(*fields: tuple[str, Any, Any], name: str = "Order") -> str:
    made = [{"name": n, "type": t} | ({} if d is ... else {"default": d}) for n, t, d in fields]
    return json.dumps({"type": "record", "name": name, "namespace": "shop", "fields": made})


V1 = record(("id", "int", ...), ("item", "string", ...))
V2 = record(("id", "long", ...), ("price", ["null", "double"], None), ("item", "string", "?"))
JSON = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}})


@dataclass
class Order:
    id: int


@pytest.fixture
def server() -> Iterator[Registry]:
    with schema_registry() as server:
        yield server


@pytest.fixture
def client(server: Registry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": server.url}) as client:
        yield client


# -- Avro -------------------------------------------------------------------------------------------------------------


def test_avro_of_several_writers_is_resolved_to_the_declared_schema(server: Registry, client: SchemaRegistryClient) -> None:
    old, new = AvroSerializer(client, V1), AvroSerializer(client, V2)
    values = [
        old({"id": 1, "item": "a"}, CONTEXT),
        new({"id": 2**40, "item": "b", "price": 0.5}, CONTEXT),
        old({"id": 3, "item": "c"}, CONTEXT),
        None,
        b"\0\0\0\0\x63rest",
        b"\1\0\0\0\1",
        b"\0\0\0",
        old({"id": 4, "item": "d"}, CONTEXT)[:-1],
    ]
    schema = ConfluentRegistryDeserializationSchema(
        AvroRowDeserializationSchema(avro_schema_string=V2), SchemaRegistry(server.url)
    )
    found = schema.deserialize_batch(messages(*values))
    assert elements(schema, found) == [
        Row(id=1, price=None, item="a"),
        Row(id=2**40, price=0.5, item="b"),
        Row(id=3, price=None, item="c"),
    ]
    assert found.indices == [0, 1, 2]
    assert [(each.index, each.problem.partition(" (")[0]) for each in found.bad] == [
        (4, f"the schema registry {server.url} has no schema with id 99"),
        (5, "no header of a schema registry"),
        (6, "no header of a schema registry"),
        (7, "not Avro of the schema"),
    ]


def test_schemas_are_asked_for_once(server: Registry, client: SchemaRegistryClient) -> None:
    message = AvroSerializer(client, V1)({"id": 1, "item": "a"}, CONTEXT)
    server.requests.clear()
    for _ in range(3):
        shipped = cloudpickle.dumps(
            ConfluentRegistryDeserializationSchema(
                AvroRowDeserializationSchema(avro_schema_string=V1), SchemaRegistry(server.url)
            )
        )
        assert read(cloudpickle.loads(shipped), message, message) == [Row(id=1, item="a")] * 2
    assert server.requests == ["GET /schemas/ids/1"]
    writer = ConfluentRegistrySerializationSchema(
        AvroRowSerializationSchema(avro_schema_string=V1), SchemaRegistry(server.url), "x"
    )
    for _ in range(3):
        assert cloudpickle.loads(cloudpickle.dumps(writer)).serialize((1, "a")) == message
    assert server.requests == ["GET /schemas/ids/1", "POST /subjects/x/versions"]


def test_avro_for_confluents_deserializer(server: Registry, client: SchemaRegistryClient) -> None:
    inner = AvroRowSerializationSchema(avro_schema_string=V2)
    schema = ConfluentRegistrySerializationSchema(inner, SchemaRegistry(server.url), "orders-value")
    written = schema.serialize_batch(Batch([Row(id=1, price=None, item="a"), (2, 0.5, "b")])).to_pylist()
    assert [AvroDeserializer(client)(message, CONTEXT) for message in written] == [
        {"id": 1, "price": None, "item": "a"},
        {"id": 2, "price": 0.5, "item": "b"},
    ]
    assert client.get_latest_version("orders-value").schema.schema_str == V2
    assert schema.serialize_batch(Batch([])).to_pylist() == []


def test_references_of_a_writers_schema(server: Registry, client: SchemaRegistryClient) -> None:
    item = record(("name", "string", ...), name="Item")
    client.register_schema("item", Schema(item))
    reference: Any = [{"name": "shop.Item", "subject": "item", "version": 1}]
    order = record(("id", "int", ...), ("item", "shop.Item", ...))
    server.ids[json.dumps({"schemaType": "AVRO", "schema": order, "references": reference}, sort_keys=True)] = 2
    whole = record(("id", "int", ...), ("item", json.loads(item), ...))
    payload = AvroRowSerializationSchema(avro_schema_string=whole).serialize({"id": 1, "item": {"name": "a"}})
    schema = ConfluentRegistryDeserializationSchema(
        AvroRowDeserializationSchema(avro_schema_string=whole), SchemaRegistry(server.url)
    )
    assert read(schema, b"\0\0\0\0\2" + payload) == [Row(id=1, item=Row(name="a"))]


# -- JSON -------------------------------------------------------------------------------------------------------------


def test_json_of_confluents_serializer(server: Registry, client: SchemaRegistryClient) -> None:
    schema = ConfluentRegistryDeserializationSchema(JsonRowDeserializationSchema(Order), SchemaRegistry(server.url))
    serializer = JSONSerializer(JSON, client)
    assert read(schema, *(serializer({"id": i}, CONTEXT) for i in range(3))) == [Order(0), Order(1), Order(2)]


def test_json_is_registered_with_its_schema(server: Registry, client: SchemaRegistryClient) -> None:
    inner = JsonRowSerializationSchema(Order)
    schema = ConfluentRegistrySerializationSchema(inner, SchemaRegistry(server.url), "orders-value", json_schema=JSON)
    assert schema.serialize(Order(5)) == b'\0\0\0\0\1{"id":5}'
    assert schema.serialize(Order(5)) == JSONSerializer(JSON, client)({"id": 5}, CONTEXT).replace(b": ", b":")
    with pytest.raises(ConfigError, match="give json_schema if, and only if, the format is JSON"):
        ConfluentRegistrySerializationSchema(inner, SchemaRegistry(server.url), "orders-value")


# -- Protobuf ---------------------------------------------------------------------------------------------------------

LINE, ORDER, INNER = (ProtobufMessage(SHOP, name) for name in ("shop.Line", "shop.Order", "shop.Order.Inner"))


@pytest.mark.parametrize(("kind", "value"), [(LINE, {"item": "a", "count": -1}), (ORDER, {"id": 7}), (INNER, {"x": 3})])
def test_protobuf_of_and_for_confluent(kind: ProtobufMessage, value: Any, server: Registry, client: SchemaRegistryClient) -> None:
    cls, registry = kind.message_class, SchemaRegistry(server.url)
    theirs = ProtobufSerializer(cls, client)(cls(**value), CONTEXT)
    (found,) = read(ConfluentRegistryDeserializationSchema(ProtobufDeserializationSchema(kind), registry), theirs)
    assert {name: found[name] for name in value} == value
    ours = ConfluentRegistrySerializationSchema(ProtobufSerializationSchema(kind), registry, "orders-value")
    assert ours.serialize(found) == theirs
    assert ProtobufDeserializer(cls, {"use.deprecated.format": False}, client)(ours.serialize(found), CONTEXT) == cls(**value)


def test_a_message_of_another_kind_is_bad(server: Registry, client: SchemaRegistryClient) -> None:
    line = ProtobufSerializer(LINE.message_class, client)(LINE.message_class(item="a"), CONTEXT)
    inner = ProtobufSerializer(INNER.message_class, client)(INNER.message_class(x=1), CONTEXT)
    schema = ConfluentRegistryDeserializationSchema(ProtobufDeserializationSchema(LINE), SchemaRegistry(server.url))
    found = schema.deserialize_batch(messages(inner, line, line[:5], b"\0\0\0\0\x01\x02\x7f", inner))
    assert [row.item for row in elements(schema, found)] == ["a"]
    assert found.indices == [1]
    assert [(each.index, each.problem) for each in found.bad] == [
        (0, "a message shop.Order.Inner, not shop.Line"),
        (2, "no message indexes after the schema's id"),
        (3, "no message at [-64] in the schema of shop.proto"),
        (4, "a message shop.Order.Inner, not shop.Line"),
    ]


# -- errors -----------------------------------------------------------------------------------------------------------


def test_a_schema_of_another_format_makes_messages_bad(server: Registry, client: SchemaRegistryClient) -> None:
    json_message = JSONSerializer(JSON, client)({"id": 1}, CONTEXT)
    for inner, name in (
        (AvroRowDeserializationSchema(avro_schema_string=V1), "AVRO"),
        (ProtobufDeserializationSchema(LINE), "PROTOBUF"),
    ):
        schema = ConfluentRegistryDeserializationSchema(inner, SchemaRegistry(server.url))
        found = schema.deserialize_batch(messages(json_message))
        assert [each.problem for each in found.bad] == [f"the schema with id 1 is JSON, not {name}"]


def test_without_registration_the_schema_must_be_there(server: Registry, client: SchemaRegistryClient) -> None:
    schema = ConfluentRegistrySerializationSchema(
        AvroRowSerializationSchema(avro_schema_string=V1),
        SchemaRegistry(server.url),
        "orders-value",
        auto_register=False,
    )
    with pytest.raises(
        ConfigError, match=r"not registered for the subject orders-value .*; register it, or set auto_register=True"
    ):
        schema.serialize((1, "a"))
    client.register_schema("orders-value", Schema(V1))
    assert schema.serialize((1, "a"))[:5] == b"\0\0\0\0\1"


def test_a_registry_that_fails_is_no_bad_message(server: Registry) -> None:
    registry = SchemaRegistry(server.url, {"max.retries": 0})
    schema = ConfluentRegistryDeserializationSchema(AvroRowDeserializationSchema(avro_schema_string=V1), registry)
    server.fail_with = 503
    with pytest.raises(SystemUnavailable, match="failed: Told to fail"):
        schema.deserialize_batch(messages(b"\0\0\0\0\1x"))
    server.fail_with = 401
    with pytest.raises(StorageError, match="refused a request: Told to fail"):
        schema.deserialize_batch(messages(b"\0\0\0\0\1x"))
    writer = ConfluentRegistrySerializationSchema(AvroRowSerializationSchema(avro_schema_string=V1), registry, "orders-value")
    server.fail_with = 409
    with pytest.raises(ConfigError, match="refuses the schema: Told to fail"):
        writer.serialize((1, "a"))
    gone = SchemaRegistry("http://127.0.0.1:1", {"max.retries": 0})
    with pytest.raises(SystemUnavailable, match=r"http://127\.0\.0\.1:1 does not answer"):
        ConfluentRegistryDeserializationSchema(schema.format, gone).deserialize_batch(messages(b"\0\0\0\0\1x"))


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(SchemaRegistry("http://registry", {"basic.auth.user.info": "me:secret"}))


def test_bad_messages_are_skipped_on_request(server: Registry) -> None:
    inner = JsonRowDeserializationSchema(Types.ROW_NAMED(["id"], [Types.INT()]), ignore_parse_errors=True)
    schema = ConfluentRegistryDeserializationSchema(inner, SchemaRegistry(server.url))
    found = schema.deserialize_batch(messages(b"x", b'\0\0\0\0\1{"id":1}', b"\0\0\0\0\1{"))
    assert elements(schema, found) == [Row(id=1)]
    assert found.indices == [1]
    assert not found.bad
