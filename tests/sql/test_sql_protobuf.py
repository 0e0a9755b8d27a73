"""Tables in Protobuf: by Google's package, which also plays the other side. A job is in test_sql_kafka.py."""

from __future__ import annotations

import pickle
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.text_format import Parse
from google.protobuf.timestamp_pb2 import Timestamp
from test_sql_formats import options, written

import forkpoint as fp
from forkpoint.connectors.formats.protobuf import ProtobufMessage
from forkpoint.relational.changes import row_type
from forkpoint.sql.errors import SqlError
from forkpoint.table.connectors.formats import deserialization, serialization
from forkpoint.table.connectors.kafka import kafka_sink, kafka_source
from forkpoint.table.connectors.options import TableOptions
from formats.protos import SHOP

OLD = """
name: "old.proto" package: "old" syntax: "proto2"
enum_type { name: "Color" value { name: "BLUE" number: 3 } value { name: "RED" number: 1 } }
message_type {
  name: "Item"
  field { name: "id" number: 1 type: TYPE_INT32 label: LABEL_REQUIRED }
  field { name: "n" number: 2 type: TYPE_SINT64 label: LABEL_OPTIONAL default_value: "7" }
  field { name: "color" number: 3 type: TYPE_ENUM type_name: ".old.Color" label: LABEL_OPTIONAL default_value: "RED" }
  field { name: "tags" number: 4 type: TYPE_STRING label: LABEL_REPEATED }
  field { name: "outer" number: 5 type: TYPE_MESSAGE type_name: ".old.Item" label: LABEL_OPTIONAL }
}
"""
ORDERS = (
    "id BIGINT, big DECIMAL(20, 0), item STRING, price DOUBLE, color STRING, tags ARRAY<STRING>, stock MAP<STRING, INT>, "
    "`lines` ARRAY<ROW<item STRING, `count` INT>>, at TIMESTAMP_LTZ(3), lasted ROW<seconds BIGINT, nanos INT>, card STRING, "
    "cash DOUBLE, note STRING, by_name MAP<BIGINT, ROW<item STRING>>, colors ARRAY<INT>, data BYTES"
)
TIME = datetime(1969, 12, 31, 23, 59, 58, 4, UTC)
FULL = fp.Row(
    *(-5, Decimal(2**64 - 1), "ä", 0.0, "RED", ["a", "b"], {"x": 1, "y": 2}, [fp.Row(item="i", count=2)], TIME),
    *(fp.Row(seconds=1, nanos=2), "1234", None, "n", {7: fp.Row(item="q")}, [1, 9], b"\xff"),
)
EMPTY = fp.Row(*[None] * 16)
DEFAULTS = "'protobuf.read-default-values' = 'true'"
CLASS, FILE, NAME = (f"'protobuf.{name}' = " for name in ("message-class-name", "descriptor-file", "message-name"))
ORDER, LINE = (ProtobufMessage(SHOP, name).message_class for name in ("shop.Order", "shop.Line"))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with sets of descriptors, and a module such as protoc generates, which can be imported."""
    (tmp_path / "shop.desc").write_bytes(SHOP)
    old = Parse(OLD, FileDescriptorProto())
    (tmp_path / "old.desc").write_bytes(FileDescriptorSet(file=[old]).SerializeToString())
    (tmp_path / "shop_pb2.py").write_text(
        "from forkpoint import ProtobufMessage\n"
        f"Order, Line = (ProtobufMessage({SHOP!r}, name).message_class for name in ('shop.Order', 'shop.Line'))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def orders(files: Path) -> str:
    return f"'protobuf.descriptor-file' = '{files / 'shop.desc'}', 'protobuf.message-name' = 'shop.Order'"


def table(columns: str, *given: str) -> TableOptions:
    return options(columns, ", ".join(["'format' = 'protobuf'", *given]))


def read(of: TableOptions, *messages: bytes | None) -> tuple[list[Any], list[tuple[int, str]]]:
    """The rows, and which messages are bad, as a worker reads them."""
    shipped = pickle.dumps(deserialization(of, of.table.schema))
    assert b"shop_pb2" not in shipped  # a worker may not have it
    found = pickle.loads(shipped).deserialize_batch(pa.array(messages, pa.binary()))
    return row_type(of.table.schema).from_columns(found.elements.columns), [(each.index, each.problem) for each in found.bad]


def test_values_of_each_type(orders: str) -> None:
    of = table(ORDERS, orders)
    messages = written(of, FULL, EMPTY).to_pylist()
    made = ORDER(
        id=-5,
        big=2**64 - 1,
        item="ä",
        price=0,
        color="RED",
        tags=["a", "b"],
        stock={"x": 1, "y": 2},
        lines=[{"item": "i", "count": 2}],
        at=TIME,
        lasted={"seconds": 1, "nanos": 2},
        card="1234",
        note={"value": "n"},
        by_name={7: {"item": "q"}},
        colors=[1, 9],
        data=b"\xff",
    )
    assert messages == [made.SerializeToString(deterministic=True), b""]
    unset = fp.Row(0, Decimal(0), "", None, "UNKNOWN", *[None] * 10, b"")  # a field without presence has no NULL
    assert read(of, messages[0], None, b"") == ([FULL, unset], [])
    # other types of the same fields, and arrays and maps without NULL
    others = (
        "big BIGINT, color TINYINT, tags ARRAY<STRING> NOT NULL, stock MAP<STRING, INT> NOT NULL, at ROW<seconds BIGINT>, "
        "lasted ROW<nanos INT, seconds BIGINT>, note ROW<`value` STRING>, colors ARRAY<STRING>"
    )
    of = table(others, orders)
    row = fp.Row(5, 9, [], {}, fp.Row(seconds=-1), fp.Row(nanos=1, seconds=2), fp.Row(value=""), ["BLUE", "9"])
    assert read(of, *written(of, row).to_pylist()) == ([row], [])
    assert read(table("at TIMESTAMP", orders), messages[0])[0] == [fp.Row(TIME.replace(tzinfo=None))]


def test_null_and_defaults(files: Path, orders: str) -> None:
    """As in Flink, what a message lacks is NULL or a default, except that fields of proto3 that say whether they are there have
    NULL. NULL in an array or a map is a default."""
    items = f"'protobuf.descriptor-file' = '{files / 'old.desc'}', 'protobuf.message-name' = 'old.Item'"
    columns = "id INT, n BIGINT, color STRING, tags ARRAY<STRING>, `outer` ROW<n BIGINT, tags ARRAY<STRING>>"
    lacking = fp.Row(1, *[None] * 4)
    (message,) = written(table(columns, items), lacking).to_pylist()
    assert read(table(columns, items), message) == ([lacking], [])
    assert read(table(columns, items, DEFAULTS), message)[0] == [fp.Row(1, 7, "RED", [], fp.Row(n=7, tags=[]))]
    with pytest.raises(fp.TypeNotSupported, match="missing required fields: id"):
        written(table("n BIGINT", items), fp.Row(1))
    columns = "price DOUBLE, card STRING, at TIMESTAMP_LTZ(3), note STRING"
    assert read(table(columns, orders), b"")[0] == [fp.Row(*[None] * 4)]
    assert read(table(columns, orders, DEFAULTS), b"")[0] == [fp.Row(0.0, "", datetime(1970, 1, 1, tzinfo=UTC), "")]
    columns = "tags ARRAY<STRING>, stock MAP<STRING, INT>, `lines` ARRAY<ROW<item STRING>>, colors ARRAY<STRING>"
    of = table(columns, orders, "'protobuf.write-null-string-literal' = '-'")
    messages = written(of, fp.Row([None, "a"], {"x": None}, [None, fp.Row(item=None)], [None]))
    assert read(of, *messages.to_pylist())[0] == [fp.Row(["-", "a"], {"x": 0}, [fp.Row(item="")] * 2, ["UNKNOWN"])]


def test_bad_messages_and_rows(orders: str) -> None:
    late = ORDER(at={"seconds": 2**50}).SerializeToString()
    messages = [ORDER(big=2**63).SerializeToString(), None, ORDER(big=1).SerializeToString(), b"\xff", late]
    columns = "big BIGINT, at TIMESTAMP(3)"
    rows, bad = read(table(columns, orders), *messages)
    assert rows == [fp.Row(1, None)]
    assert [(at, problem.split()[0]) for at, problem in bad] == [(0, "big:"), (3, "not"), (4, "at:")]
    assert read(table(columns, orders, "'protobuf.ignore-parse-errors' = 'true'"), *messages) == (rows, [])
    _, ((_, problem),) = read(table("price DOUBLE NOT NULL", orders), b"")
    assert problem == "price: the message lacks it, and the column is NOT NULL"
    for columns, value, problem in (
        ("color STRING", "PINK", "color: shop.Color has no value 'PINK'"),
        ("big BIGINT", -1, "big: Value out of range: -1"),
    ):
        with pytest.raises(fp.TypeNotSupported, match=f"a row cannot be written as the message shop.Order: {problem}"):
            written(table(columns, orders), fp.Row(value))


@pytest.mark.usefixtures("files")
def test_messages_are_named_by_a_class() -> None:
    """Of records' keys by options of their own."""
    for columns, given, message, row in (
        ("item STRING, `count` INT", CLASS + "'shop_pb2.Line'", LINE(item="a", count=1), fp.Row("a", 1)),
        ("x INT", "'value.protobuf.message-class-name' = 'shop_pb2.Order$Inner'", ORDER.Inner(x=1), fp.Row(1)),
        ("nanos INT", CLASS + "'google.protobuf.timestamp_pb2.Timestamp'", Timestamp(nanos=5), fp.Row(5)),
    ):
        assert read(table(columns, given), message.SerializeToString())[0] == [row]
    keyed = (
        "'properties.bootstrap.servers' = 'x', 'protobuf.message-class-name' = 'shop_pb2.Order', 'key.fields' = 'item', "
        "'key.format' = 'protobuf', 'key.protobuf.message-class-name' = 'shop_pb2.Line'"
    )
    for make in (kafka_source, kafka_sink):
        of = table("id BIGINT, item STRING", keyed)
        make(of)
        of.finish()


COLUMNS = [
    ("x INT", "column 'x': the message shop.Order has no such field; there are id, big, "),
    ("items STRING", "column 'items': the message shop.Order has no such field; did you mean 'item'?"),
    ("id INT", "column 'id' is INT, but the field shop.Order.id is int64; declare it BIGINT"),
    ("big INT", "declare it BIGINT or DECIMAL(20, 0)"),
    ("color DOUBLE", "is shop.Color; declare it STRING or INT or BIGINT or SMALLINT or TINYINT"),
    ("tags STRING", "is STRING, but the field shop.Order.tags is repeated string; declare it ARRAY<STRING>"),
    ("stock MAP<STRING, BIGINT>", "is map<string, int32>; declare it MAP<STRING, INT>"),
    ("`lines` ARRAY<ROW<item STRING, n INT>>", "column 'lines.n': the message shop.Line has no such field; there are item, "),
    ("`lines` ARRAY<STRING>", "is repeated shop.Line; declare it ARRAY<ROW<item STRING, count INT>>"),
    ("at BIGINT", "declare it TIMESTAMP_LTZ or TIMESTAMP or ROW<seconds BIGINT, nanos INT>"),
    ("note INT", "is google.protobuf.StringValue; declare it STRING"),
    ("extra ROW<`fields` INT>", "declare it MAP<STRING, ROW<null_value STRING, number_value DOUBLE, string_value STRING, "),
]
MESSAGES = [
    (CLASS + "'com.shop.Order'", "there is no such class of messages (No module named 'com'); write module.Class, of a module"),
    (CLASS + "'shop_pb2.Lines'", "has no attribute 'Lines'); write module.Class, of a module that protoc --python_out has made"),
    (CLASS + "'datetime.date'", "is not a message class that protoc generated"),
    (f"{FILE}'none.desc', {NAME}'shop.Order'", "the file cannot be read (No such file or directory)"),
    (FILE + "'none.desc'", "table 't': the format 'protobuf' needs the option 'protobuf.message-class-name', or 'protobuf.desc"),
]


def test_what_does_not_fit_is_refused(orders: str) -> None:
    for columns, problem in COLUMNS:
        for make in (deserialization, serialization):
            of = table(columns, orders)
            with pytest.raises(SqlError, match=r"SQL, line 1, column 14: .*" + re.escape(problem)):
                make(of, of.table.schema)
    for given, problem in (*MESSAGES, (orders.replace("shop.O", "O"), "no message 'Order' in the descriptor set")):
        of = table("id BIGINT", given)
        with pytest.raises(SqlError, match=re.escape(problem)):
            deserialization(of, of.table.schema)
