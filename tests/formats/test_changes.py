"""Change records, as the documentation of Debezium and of Flink's formats shows them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint import RowKind
from forkpoint.connectors.formats.changes import (
    CanalJsonDeserializationSchema,
    DebeziumJsonDeserializationSchema,
    MaxwellJsonDeserializationSchema,
)
from formats.messages import elements, messages, read


class Customer(NamedTuple):
    id: int
    first_name: str
    last_name: str | None = None


class Product(NamedTuple):
    id: int
    name: str
    weight: float | None


SOURCE = {
    "version": "3.0.5.Final",
    "connector": "mysql",
    "name": "mysql-server-1",
    "ts_ms": 1465581029100,
    "snapshot": "false",
    "db": "inventory",
    "sequence": None,
    "table": "customers",
    "server_id": 223344,
    "gtid": None,
    "file": "mysql-bin.000003",
    "pos": 484,
    "row": 0,
    "thread": 7,
    "query": None,
}
ANNE = {"id": 1004, "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
MARIE = {**ANNE, "first_name": "Anne Marie"}
AT = datetime(2016, 6, 10, 17, 50, 29, 100_000, UTC)


def debezium(op: str, before: Any, after: Any, source: Any = SOURCE) -> dict[str, Any]:
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1465581029523, "transaction": None}


@pytest.mark.parametrize("with_schema", [False, True])
def test_debezium(with_schema: bool) -> None:
    events = [
        debezium("c", None, ANNE),
        debezium("u", ANNE, MARIE),
        debezium("d", MARIE, None),
        debezium("r", None, ANNE),
    ]
    if with_schema:
        events = [{"schema": {"type": "struct", "fields": [], "name": "Envelope"}, "payload": e} for e in events]
    anne, marie = Customer(1004, "Anne", "Kretchmar"), Customer(1004, "Anne Marie", "Kretchmar")
    place = ("inventory", "customers", AT)
    schema = DebeziumJsonDeserializationSchema(Customer)
    found = read(schema, *(json.dumps(e).encode() for e in events))
    assert found == [
        (RowKind.INSERT, None, anne, *place),
        (RowKind.UPDATE_AFTER, anne, marie, *place),
        (RowKind.DELETE, marie, None, *place),
        (RowKind.INSERT, None, anne, *place),
    ]
    assert found[1].after.first_name == "Anne Marie"
    assert schema.deserialize(json.dumps(events[2]).encode()).kind is RowKind.DELETE


def test_debeziums_bad_messages_and_tombstones() -> None:
    schema = DebeziumJsonDeserializationSchema(Customer)
    events = [
        debezium("t", None, None),
        debezium("d", None, None),
        debezium("c", None, {"id": "x", "first_name": "a"}),
        debezium("u", {"id": 1}, ANNE),
        5,
        debezium("c", None, ANNE, {"ts_ms": "now"}),
        {"schema": {}, "payload": None},
        debezium("c", None, ANNE, None),
    ]
    found = schema.deserialize_batch(messages(None, *(json.dumps(e).encode() for e in events), b"{"))
    assert elements(schema, found) == [(RowKind.INSERT, None, Customer(1004, "Anne", "Kretchmar"), None, None, None)]
    assert list(found.indices or ()) == [8]
    assert {each.index: each.problem for each in found.bad} == {
        1: "op 't' is not a row change: expected 'c', 'r', 'u' or 'd'",
        2: "a change with op 'd' without 'before'; on PostgreSQL, set the table's REPLICA IDENTITY to FULL",
        3: "after: id: expected int, got 'x'",
        4: "before: first_name: missing, and the field has no default",
        5: "expected an object, got 5",
        6: "ts_ms: expected milliseconds since 1970, got 'now'",
        9: "not JSON (Input data was truncated)",
    }


CANAL = {
    "data": [{"id": "111", "name": "scooter", "description": "Big 2-wheel scooter", "weight": "5.18"}],
    "database": "inventory",
    "es": 1589373560000,
    "id": 9,
    "isDdl": False,
    "mysqlType": {"id": "INTEGER", "name": "VARCHAR(255)", "description": "VARCHAR(512)", "weight": "FLOAT"},
    "old": [{"weight": "5.15"}],
    "pkNames": ["id"],
    "sql": "",
    "sqlType": {"id": 4, "name": 12, "description": 12, "weight": 7},
    "table": "products",
    "ts": 1589373560798,
    "type": "UPDATE",
}
CANAL_AT = datetime(2020, 5, 13, 12, 39, 20, tzinfo=UTC)


def test_debezium_without_a_schema_is_read_as_columns() -> None:
    schema = DebeziumJsonDeserializationSchema(Product)
    row, more = {"id": 1, "name": "ä", "weight": None}, {"id": 2**62, "name": "", "weight": 0.1, "ignored": [{}]}
    source = {"db": "inventory", "table": "products", "ts_ms": -1, "lsn": 5}
    events = [
        {"op": "c", "before": None, "after": row, "source": source, "ts_ms": 1},
        {"op": "u", "before": row, "after": more, "source": {**source, "ts_ms": None}},
        {"op": "u", "after": row},
        {"op": "d", "before": more, "source": None},
    ]
    texts = messages(*(json.dumps(event).encode() for event in events))
    assert schema._columns(texts) is not None
    (one_by_one,) = super(DebeziumJsonDeserializationSchema, schema).read(texts)
    (columns,) = schema.read(texts)
    assert columns.elements.equals(one_by_one.elements)
    for event in (
        {"op": "c", "after": {"id": "x"}},
        {"op": "t"},
        {"op": "d", "after": row},
        {"payload": events[0], "schema": {}},
    ):
        assert schema._columns(messages(*texts.to_pylist(), json.dumps(event).encode())) is None


def test_maxwell() -> None:
    event = {"database": "inventory", "table": "products", "ts": 1596684904, "type": "insert"}
    row, old = {"id": 1, "name": "a", "weight": 2.5}, {"weight": 2.0}
    events = [
        {**event, "data": row},
        {**event, "type": "update", "data": row, "old": old},
        {**event, "type": "update", "data": row},
        {**event, "type": "delete", "data": row},
        {**event, "type": "bootstrap-start", "data": {}},
        {**event, "type": "bootstrap-insert", "data": row},
        {**event, "type": "heartbeat"},
    ]
    schema = MaxwellJsonDeserializationSchema(Product)
    found = schema.deserialize_batch(messages(*(json.dumps(e).encode() for e in events)))
    of, place = Product(1, "a", 2.5), ("inventory", "products", datetime(2020, 8, 6, 3, 35, 4, tzinfo=UTC))
    assert [each.problem for each in found.bad] == [
        "type 'heartbeat' is not a row change: expected 'insert', 'update' or 'delete'"
    ]
    assert elements(schema, found) == [
        (RowKind.INSERT, None, of, *place),
        (RowKind.UPDATE_AFTER, Product(1, "a", 2.0), of, *place),
        (RowKind.UPDATE_AFTER, None, of, *place),
        (RowKind.DELETE, of, None, *place),
        (RowKind.INSERT, None, of, *place),
    ]


def test_canal() -> None:
    rows = [{"id": "1", "name": "a", "weight": None}, {"id": "2", "name": "b", "weight": "2"}]
    events = [
        CANAL,
        {**CANAL, "type": "INSERT", "old": None, "data": rows},
        {**CANAL, "type": "ALTER", "old": None, "data": None, "isDdl": True},
        {**CANAL, "type": "UPDATE", "old": [{"weight": "1"}, {"name": None, "weight": None}], "data": rows},
        {**CANAL, "type": "DELETE", "old": None, "data": rows[:1]},
        {**CANAL, "type": "DELETE", "old": None, "data": []},
    ]
    schema = CanalJsonDeserializationSchema(Product)
    found = schema.deserialize_batch(messages(*(json.dumps(e).encode() for e in events)))
    a, b, place = Product(1, "a", None), Product(2, "b", 2.0), ("inventory", "products", CANAL_AT)
    assert [each.problem for each in found.bad] == ["before: name: expected str, got None"]
    assert elements(schema, found) == [
        (RowKind.UPDATE_AFTER, Product(111, "scooter", 5.15), Product(111, "scooter", 5.18), *place),
        (RowKind.INSERT, None, a, *place),
        (RowKind.INSERT, None, b, *place),
        (RowKind.DELETE, a, None, *place),
    ]
    assert list(found.indices or ()) == [0, 1, 1, 4]
    shipped = cloudpickle.loads(cloudpickle.dumps(schema))
    assert read(shipped, json.dumps(CANAL).encode()) == elements(schema, found)[:1]


def test_canals_bad_messages() -> None:
    schema = CanalJsonDeserializationSchema(Product, ignore_parse_errors=False)
    events = [
        {**CANAL, "type": "TRUNCATE"},
        {**CANAL, "data": None},
        {**CANAL, "old": []},
        {**CANAL, "data": [1], "old": None},
    ]
    found = schema.deserialize_batch(messages(*(json.dumps(e).encode() for e in events)))
    assert [each.problem for each in found.bad] == [
        "type 'TRUNCATE' is not a row change: expected 'INSERT', 'UPDATE' or 'DELETE'",
        "data: expected an array, got None",
        "old: expected an array of 1 objects, got []",
        "expected an object, got 1",
    ]
    found = CanalJsonDeserializationSchema(Product, ignore_parse_errors=True).deserialize_batch(messages(b"x"))
    assert not found.bad
    assert not len(found.elements)


ANY: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["c", "u", "d", "INSERT", "UPDATE"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "op",
                    "before",
                    "after",
                    "payload",
                    "schema",
                    "source",
                    "ts_ms",
                    "db",
                    "data",
                    "old",
                    "type",
                    "es",
                    "id",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(st.lists(ANY, max_size=3))
def test_any_json_is_elements_or_bad(values: list[Any]) -> None:
    some = messages(*(json.dumps(v).encode() for v in values))
    for schema in (DebeziumJsonDeserializationSchema(Customer), CanalJsonDeserializationSchema(Customer)):
        found = schema.deserialize_batch(some)
        assert {each.index for each in found.bad}.isdisjoint(found.indices or ())
        assert len(elements(schema, found)) == (len(values) if found.indices is None else len(found.indices))
