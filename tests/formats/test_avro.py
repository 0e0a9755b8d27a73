"""Avro: by fastavro, which also plays the other side."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import cloudpickle
import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint import Instant, Row, Types
from forkpoint.connectors.formats.avro import AvroRowDeserializationSchema, AvroRowSerializationSchema
from forkpoint.errors import ConfigError, RecordParseError, TypeNotSupported
from formats.messages import Batch, elements, messages, read

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
            {"name": "price", "type": ["null", "double"], "default": None},
            {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
            {"name": "by_name", "type": {"type": "map", "values": ["null", "int"]}, "default": {}},
            {
                "name": "lines",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Line",
                        "fields": [{"name": "item", "type": "string"}, {"name": "color", "type": "Color"}],
                    },
                },
                "default": [],
            },
        ],
    }
)
LOGICAL = {
    "date": ({"type": "int", "logicalType": "date"}, Types.SQL_DATE(), date(2024, 2, 29)),
    "time_ms": ({"type": "int", "logicalType": "time-millis"}, Types.SQL_TIME(), time(1, 2, 3, 4000)),
    "time_us": ({"type": "long", "logicalType": "time-micros"}, Types.SQL_TIME(), time(1, 2, 3, 4)),
    "at_ms": (
        {"type": "long", "logicalType": "timestamp-millis"},
        Types.INSTANT(),
        datetime(2024, 2, 29, 1, tzinfo=UTC),
    ),
    "at_us": (
        {"type": "long", "logicalType": "timestamp-micros"},
        Types.INSTANT(),
        datetime(2024, 2, 29, 1, 2, 3, 4, UTC),
    ),
    "local": (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        Types.SQL_TIMESTAMP(),
        datetime.fromisoformat("2024-02-29T01:02:03"),
    ),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        Types.BIG_DEC(),
        Decimal("-12.34"),
    ),
    "fixed_decimal": (
        {"type": "fixed", "name": "F", "size": 8, "logicalType": "decimal", "precision": 9, "scale": 2},
        Types.BIG_DEC(),
        Decimal("12.30"),
    ),
    "uuid": ({"type": "string", "logicalType": "uuid"}, Types.UUID(), UUID(int=5)),
    "fixed": ({"type": "fixed", "name": "G", "size": 2}, Types.BYTES(), b"ab"),
    "unknown": ({"type": "string", "logicalType": "color"}, Types.STRING(), "red"),
    "bytes": ("bytes", Types.BYTES(), b"\0\xff"),
    "float": ("float", Types.FLOAT(), 0.5),
    "boolean": ("boolean", Types.BOOLEAN(), True),
}


class Color(Enum):
    RED = "RED"
    BLUE = "BLUE"


class Line(NamedTuple):
    item: str
    color: Color


@dataclass
class Order:
    id: int
    lines: list[Line]
    by_name: dict[str, int | None]
    color: Color
    price: float | None = None


def written(schema: str, *values: Any) -> list[bytes]:
    """By fastavro itself."""
    parsed = fastavro.parse_schema(json.loads(schema))
    out = []
    for value in values:
        data = io.BytesIO()
        fastavro.schemaless_writer(data, parsed, value)
        out.append(data.getvalue())
    return out


def test_reads_rows_that_fastavro_wrote() -> None:
    schema = AvroRowDeserializationSchema(avro_schema_string=ORDER)
    found = read(
        schema,
        *written(
            ORDER,
            {"id": 1, "color": "RED"},
            {
                "id": 2,
                "color": "BLUE",
                "price": 1.5,
                "tags": ["a"],
                "by_name": {"x": None},
                "lines": [{"item": "i", "color": "RED"}],
            },
        ),
    )
    assert found == [
        Row(id=1, color="RED", price=None, tags=[], by_name={}, lines=[]),
        Row(id=2, color="BLUE", price=1.5, tags=["a"], by_name={"x": None}, lines=[Row(item="i", color="RED")]),
    ]


def test_reads_and_writes_a_class() -> None:
    orders = [Order(1, [Line("a", Color.RED)], {"x": 1, "y": None}, Color.BLUE, 0.5), Order(2, [], {}, Color.RED)]
    messages_ = AvroRowSerializationSchema(avro_schema_string=ORDER).serialize_batch(Batch(orders)).to_pylist()
    assert read(AvroRowDeserializationSchema(avro_schema_string=ORDER, type_info=Order), *messages_) == orders
    record: Any = fastavro.schemaless_reader(io.BytesIO(messages_[0]), fastavro.parse_schema(json.loads(ORDER)), None)
    assert record == {
        "id": 1,
        "color": "BLUE",
        "price": 0.5,
        "tags": [],
        "by_name": {"x": 1, "y": None},
        "lines": [{"item": "a", "color": "RED"}],
    }


@pytest.mark.parametrize("name", LOGICAL)
def test_types(name: str) -> None:
    avro, type, value = LOGICAL[name]
    for field, expected in ((avro, value), (["null", avro], value), ([avro, "null"], None)):
        text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": field}]})
        schema = AvroRowDeserializationSchema(avro_schema_string=text)
        fields = schema.get_produced_type().fields or ()
        assert (fields[0].type if field is avro else fields[0].type.children[0]) == type
        assert fields[0].type.nullable == (field is not avro)
        assert read(schema, *written(text, {"x": expected})) == [Row(x=expected)]
        assert AvroRowSerializationSchema(avro_schema_string=text).serialize(Row(x=expected)) == written(text, {"x": expected})[0]


def test_other_unions_are_dynamic() -> None:
    text = json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "x", "type": ["null", "string", "long"]}, {"name": "n", "type": "null"}],
        }
    )
    values = [Row(x="a", n=None), Row(x=5, n=None), Row(x=None, n=None)]
    messages_ = AvroRowSerializationSchema(avro_schema_string=text).serialize_batch(Batch(values)).to_pylist()
    assert read(AvroRowDeserializationSchema(avro_schema_string=text), *messages_) == values


def test_values_that_are_no_records() -> None:
    for text, value in (('"string"', "a"), ('["null", "long"]', None), ('{"type": "array", "items": "int"}', [1])):
        (message,) = written(text, value)
        assert read(AvroRowDeserializationSchema(avro_schema_string=text), message) == [value]
        assert AvroRowSerializationSchema(avro_schema_string=text).serialize(value) == message


ROWS = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "a", "type": "long"},
            {"name": "b", "type": ["null", "string"]},
            {"name": "c", "type": {"type": "array", "items": "double"}},
        ],
    }
)


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.none() | st.text(), st.lists(st.floats(allow_nan=False)))))
def test_round_trip(values: list[tuple[Any, ...]]) -> None:
    schema = AvroRowSerializationSchema(avro_schema_string=ROWS)
    for rows in (values, [Row(*v) for v in values], [Row(c=c, b=b, a=a) for a, b, c in values]):
        messages_ = schema.serialize_batch(Batch(rows)).to_pylist()
        assert read(AvroRowDeserializationSchema(avro_schema_string=ROWS), *messages_) == [
            Row(a=a, b=b, c=c) for a, b, c in values
        ]


@given(st.lists(st.binary(max_size=20), max_size=4))
def test_any_bytes_are_elements_or_bad(values: list[bytes]) -> None:
    schema = AvroRowDeserializationSchema(avro_schema_string=ORDER)
    found = schema.deserialize_batch(messages(*values))
    assert len(elements(schema, found)) + len(found.bad) == len(values)
    for index, value in enumerate(values):
        if any(bad.index == index for bad in found.bad):
            with pytest.raises(RecordParseError):
                schema.deserialize(value)
        else:
            schema.deserialize(value)


def test_bad_messages_are_named() -> None:
    schema = AvroRowDeserializationSchema(avro_schema_string='"string"')
    found = schema.deserialize_batch(messages(b"\x02a", b"\x02", b"\x02ab", b"\x02\xff", None))
    assert found.indices == [0]
    assert [(b.index, b.problem.partition(":")[0]) for b in found.bad] == [
        (1, "not Avro of the schema (it ends within a value, or a length in it is wrong)"),
        (2, "not Avro of the schema (1 bytes left over)"),
        (3, "not Avro of the schema (a string in it is not UTF-8)"),
    ]


def test_a_schema_can_be_shipped_after_its_use() -> None:
    for schema in (
        AvroRowDeserializationSchema(avro_schema_string=ORDER, type_info=Order),
        AvroRowSerializationSchema(avro_schema_string=ORDER),
    ):
        assert schema.schema["name"] == "shop.Order"
        assert cloudpickle.loads(cloudpickle.dumps(schema)) == schema


@dataclass
class Moment:
    at: Instant  # type: ignore[valid-type]


def test_errors_name_the_remedy() -> None:
    with pytest.raises(ConfigError, match="record_class is a Java class; give avro_schema_string"):
        AvroRowDeserializationSchema("org.example.Order")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="give avro_schema_string"):
        AvroRowSerializationSchema()
    for text in ("{", '{"type": "recrod"}', '{"type": "record"}', "5"):
        with pytest.raises(ConfigError, match="not an Avro schema"):
            AvroRowDeserializationSchema(avro_schema_string=text)
    node = json.dumps({"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]})
    with pytest.raises(ConfigError, match="Node contains itself, so it has no columns; give type_info"):
        AvroRowDeserializationSchema(avro_schema_string=node)
    with pytest.raises(TypeNotSupported, match="cannot be written by the Avro schema"):
        AvroRowSerializationSchema(avro_schema_string=ORDER).serialize({"id": "x"})


def test_a_record_that_contains_itself_is_read_as_a_dynamic_value() -> None:
    text = json.dumps(
        {
            "type": "record",
            "name": "Node",
            "fields": [{"name": "id", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
        }
    )
    schema = AvroRowDeserializationSchema(
        avro_schema_string=text, type_info=Types.ROW_NAMED(["id", "next"], [Types.INT(), Types.ANY()])
    )
    nested = {"id": 1, "next": {"id": 2, "next": None}}
    assert read(schema, *written(text, nested)) == [Row(id=1, next={"id": 2, "next": None})]
    assert AvroRowSerializationSchema(avro_schema_string=text).serialize(nested) == written(text, nested)[0]


def test_rows_of_a_row_type_without_names_are_written_by_position():
    """As Flink writes them, also inside each other and in lists. Fails before: the schema has no field f0."""
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "long"}]}
    fields = [
        {"name": "id", "type": "int"},
        {"name": "inner", "type": inner},
        {"name": "many", "type": {"type": "array", "items": "Inner"}},
    ]
    schema = json.dumps({"type": "record", "name": "Outer", "fields": fields})
    of = Types.ROW([Types.LONG()])
    type = Types.ROW([Types.INT(), of, Types.LIST(of)])
    (row,) = type.from_columns(type.to_columns([(1, (2,), [(3,), (4,)])]))
    data = AvroRowSerializationSchema(avro_schema_string=schema).serialize(row)
    read = AvroRowDeserializationSchema(avro_schema_string=schema).deserialize(data)
    assert read == Row(id=1, inner=Row(x=2), many=[Row(x=3), Row(x=4)])
