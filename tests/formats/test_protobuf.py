"""Protobuf: by Google's package, which also plays the other side."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import cloudpickle
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from forkpoint import Instant, Row
from forkpoint.connectors.formats.protobuf import (
    ProtobufDeserializationSchema,
    ProtobufMessage,
    ProtobufSerializationSchema,
)
from forkpoint.errors import ConfigError, TypeNotSupported
from formats.messages import Batch, elements, messages, read
from formats.protos import SHOP, TREE

ORDER = ProtobufMessage(SHOP, "shop.Order")
Message: Any = ORDER.message_class
EMPTY = {
    "id": 0,
    "big": 0,
    "item": "",
    "price": None,
    "color": "UNKNOWN",
    "tags": [],
    "stock": {},
    "lines": [],
    "at": None,
    "lasted": None,
    "card": None,
    "cash": None,
    "note": None,
    "extra": None,
    "by_name": {},
    "colors": [],
    "data": b"",
}
FULL = {
    "id": -5,
    "big": 2**64 - 1,
    "item": "ä",
    "price": 0.0,
    "color": "RED",
    "tags": ["a", ""],
    "stock": {"x": 1},
    "lines": [Row(item="i", count=2)],
    "at": datetime(2024, 5, 1, 1, 2, 3, 4, UTC),
    "lasted": timedelta(seconds=-1.5),
    "card": "1234",
    "cash": None,
    "note": "n",
    "extra": {"a": [1.0, None, {"b": True}]},
    "by_name": {1: Row(item="j", count=0)},
    "colors": ["BLUE", "RED"],
    "data": b"\0\xff",
}


def full() -> Any:
    """By Google's package itself."""
    message = Message(id=-5, big=2**64 - 1, item="ä", price=0.0, color="RED", tags=["a", ""], stock={"x": 1}, card="1234")
    message.lines.add(item="i", count=2)
    message.at.FromDatetime(FULL["at"])
    message.lasted.FromTimedelta(FULL["lasted"])
    message.note.value = "n"
    message.extra.update({"a": [1, None, {"b": True}]})
    message.by_name[1].item = "j"
    message.colors.extend(["BLUE", "RED"])
    message.data = b"\0\xff"
    return message


def test_reads_rows() -> None:
    schema = ProtobufDeserializationSchema(ORDER)
    assert read(schema, b"", full().SerializeToString()) == [Row(**EMPTY), Row(**FULL)]


def test_writes_rows() -> None:
    schema = ProtobufSerializationSchema(ORDER)
    for element in (Row(**FULL), Row(*FULL.values()), tuple(FULL.values()), FULL):
        assert Message.FromString(schema.serialize(element)) == full()
    assert schema.serialize_batch(Batch([Row(**EMPTY)])).to_pylist() == [b""]


class Color(Enum):
    RED = "RED"
    BLUE = "BLUE"


@dataclass
class Line:
    item: str
    count: int


@dataclass
class Order:
    id: int
    lines: list[Line]
    color: Color
    at: Instant | None = None  # type: ignore[valid-type]


def test_reads_and_writes_a_class() -> None:
    orders = [Order(1, [Line("a", 2)], Color.RED, FULL["at"]), Order(2, [], Color.BLUE)]  # type: ignore[arg-type]
    written = ProtobufSerializationSchema(ORDER).serialize_batch(Batch(orders)).to_pylist()
    assert Message.FromString(written[0]).lines[0].item == "a"
    assert read(ProtobufDeserializationSchema(ORDER, type_info=Order), *written) == orders


def test_a_class_that_protoc_generated() -> None:
    schema = ProtobufDeserializationSchema(Timestamp)
    assert read(schema, Timestamp(seconds=5, nanos=6).SerializeToString()) == [Row(seconds=5, nanos=6)]
    assert ProtobufSerializationSchema(Timestamp).serialize((5, 6)) == Timestamp(seconds=5, nanos=6).SerializeToString()
    shipped = cloudpickle.loads(cloudpickle.dumps(schema))
    assert shipped == schema
    assert read(shipped, b"") == [Row(seconds=0, nanos=0)]


def test_an_enums_number_without_a_name_comes_back() -> None:
    message = Message(color=77).SerializeToString()
    (row,) = read(ProtobufDeserializationSchema(ORDER), message)
    assert row.color == "77"
    assert ProtobufSerializationSchema(ORDER).serialize(row) == message


LINES = st.builds(lambda item, count: Row(item=item, count=count), st.text(max_size=4), st.integers(-(2**31), 2**31 - 1))
ROWS = st.builds(
    lambda **values: Row(**{**EMPTY, **values}),
    id=st.integers(-(2**63), 2**63 - 1),
    big=st.integers(0, 2**64 - 1),
    item=st.text(),
    price=st.none() | st.floats(allow_nan=False),
    color=st.sampled_from(["UNKNOWN", "RED", "BLUE"]),
    tags=st.lists(st.text()),
    stock=st.dictionaries(st.text(), st.integers(-9, 9)),
    lines=st.lists(LINES, max_size=2),
    by_name=st.dictionaries(st.integers(0, 9), LINES, max_size=2),
    data=st.binary(),
    at=st.none() | st.datetimes(min_value=datetime(1, 1, 2), timezones=st.just(UTC)),  # noqa: DTZ001  (Hypothesis wants it naive)
)


@given(st.lists(ROWS, max_size=3))
def test_round_trip(rows: list[Row]) -> None:
    written = ProtobufSerializationSchema(ORDER).serialize_batch(Batch(rows)).to_pylist()
    assert read(ProtobufDeserializationSchema(ORDER), *written) == rows


@given(st.lists(st.binary(max_size=12), max_size=4))
def test_any_bytes_are_elements_or_bad(values: list[bytes]) -> None:
    schema = ProtobufDeserializationSchema(ORDER)
    found = schema.deserialize_batch(messages(*values))
    assert len(elements(schema, found)) + len(found.bad) == len(values)


def test_bad_messages_are_named() -> None:
    found = ProtobufDeserializationSchema(ORDER).deserialize_batch(messages(b"", b"\xff", None))
    assert found.indices == [0]
    assert [each.problem.partition("(")[0] for each in found.bad] == ["not a shop.Order "]


def test_errors_name_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"no message 'shop.Nothing' in the descriptor set .*--include_imports"):
        ProtobufDeserializationSchema(ProtobufMessage(SHOP, "shop.Nothing"))
    with pytest.raises(ConfigError, match="is not a message class that protoc generated"):
        ProtobufSerializationSchema(int)
    with pytest.raises(ConfigError, match=r"tree\.Node contains itself"):
        ProtobufDeserializationSchema(ProtobufMessage(TREE, "tree.Node"))
    schema = ProtobufSerializationSchema(ORDER)
    with pytest.raises(TypeNotSupported, match=r"cannot be written as a shop\.Order: it has no field 'x'"):
        schema.serialize({"x": 1})
    with pytest.raises(TypeNotSupported, match=r"shop\.Color has no value 'GREEN'"):
        schema.serialize({"color": "GREEN"})
