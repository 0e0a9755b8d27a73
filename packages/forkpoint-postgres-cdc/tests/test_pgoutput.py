"""What is pure in reading PostgreSQL's changes: messages, snapshots, values, positions."""

from __future__ import annotations

import struct
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from connectors.connector_reading import json_round_trip
from forkpoint_postgres_cdc.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    Malformed,
    Relation,
    Row,
    Truncate,
    Update,
    decode,
    encode,
    relations_of,
)
from forkpoint_postgres_cdc.position import DONE, Part, Position
from forkpoint_postgres_cdc.slot import slot_name
from forkpoint_postgres_cdc.snapshots import Snapshot
from forkpoint_postgres_cdc.transactions import Entry, pack, unpack
from forkpoint_postgres_cdc.values import parse_array, reader

VALUES = st.lists(st.one_of(st.none(), st.just(UNCHANGED), st.binary(max_size=20)), max_size=5).map(tuple)
ROWS = st.builds(Row, VALUES, st.booleans())
IDS = st.integers(0, 2**32 - 1)
CHANGES = st.one_of(
    st.builds(Insert, IDS, VALUES), st.builds(Update, IDS, st.none() | ROWS, VALUES), st.builds(Delete, IDS, ROWS)
)


@given(CHANGES)
def test_a_change_survives_encoding(change: Insert | Update | Delete) -> None:
    assert decode(encode(change)) == change
    assert relations_of(encode(change)) == (change.relation,)


@given(CHANGES, st.data())
def test_what_is_cut_or_changed_is_malformed_or_another_message(change: Insert | Update | Delete, data: Any) -> None:
    encoded = encode(change)
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    with pytest.raises(Malformed):
        decode(cut)
    with pytest.raises(Malformed):
        decode(encoded + b"x")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_malformed(data: bytes) -> None:
    with suppress(Malformed):
        decode(data)


def test_the_other_messages() -> None:
    begin = decode(b"B" + struct.pack(">qqI", 7, 1_000_000, 9))
    assert begin == Begin(7, 1_000_000, 9)
    assert isinstance(begin, Begin)
    assert begin.time == datetime(2000, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert decode(b"C" + struct.pack(">bqqq", 0, 7, 8, 1)) == Commit(7, 8, 1)
    relation = decode(
        b"R" + struct.pack(">I", 5) + b"public\0t\0d" + struct.pack(">h", 1) + b"\1id\0" + struct.pack(">Ii", 23, -1)
    )
    assert isinstance(relation, Relation)
    assert (relation.id, relation.schema, relation.name, relation.identity) == (5, "public", "t", "d")
    assert [(c.name, c.is_key, c.type) for c in relation.columns] == [("id", True, 23)]
    assert decode(b"T" + struct.pack(">ibII", 2, 0, 5, 6)) == Truncate((5, 6), 0)


def test_unchanged_values_are_those_before_where_the_server_tells_them() -> None:
    update = Update(1, Row((b"1", b"large")), (b"2", UNCHANGED))
    assert update.completed().after == (b"2", b"large")
    keyed = Update(1, Row((b"1", None), whole=False), (b"2", UNCHANGED))
    assert keyed.completed().after == (b"2", UNCHANGED)


@given(st.integers(3, 2**40), st.data())
def test_a_snapshot_sees_what_has_ended(xmax: int, data: Any) -> None:
    running = data.draw(st.sets(st.integers(max(3, xmax - 50), max(3, xmax - 1)), max_size=5))
    snapshot = Snapshot.parse(f"{min(running, default=xmax)}:{xmax}:{','.join(map(str, sorted(running)))}")
    xid = data.draw(st.integers(max(3, xmax - 2**31 + 1), xmax + 2**31 - 1))
    assert snapshot.sees(xid % 2**32) == (xid < xmax and xid not in running)


ARRAYS = st.recursive(st.none() | st.text(max_size=5), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=6)


def _array_text(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return "{" + ",".join(map(_array_text, value)) + "}"
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(st.lists(ARRAYS, max_size=4))
def test_arrays(value: list[Any]) -> None:
    assert parse_array(_array_text(value)) == value


def test_arrays_with_bounds_and_without_quotes() -> None:
    assert parse_array("[0:1]={1,2}") == ["1", "2"]
    assert parse_array('{a b,NULL,"NULL",{}}') == ["a b", None, "NULL", []]
    for bad in ("", "{", "1", "{1}}", '{"'):
        with pytest.raises((ValueError, IndexError)):
            parse_array(bad)


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        (fp.Types.LONG(), "-5", -5),
        (fp.Types.BOOLEAN(), "t", True),
        (fp.Types.BIG_DEC(), "1.50", Decimal("1.50")),
        (fp.Types.DECIMAL(10, 1), "1.25", Decimal("1.3")),
        (fp.Types.BYTES(), "\\x00ff", b"\x00\xff"),
        (fp.Types.INSTANT(), "2024-02-03 04:05:06.7+00", datetime(2024, 2, 3, 4, 5, 6, 700_000, UTC)),
        (fp.Types.SQL_TIMESTAMP(), "2024-02-03 04:05:06", datetime.fromisoformat("2024-02-03T04:05:06")),
        (fp.Types.SQL_DATE(), "2024-02-03", date(2024, 2, 3)),
        (fp.Types.LIST(fp.Types.LONG()), "{1,NULL}", [1, None]),
    ],
)
def test_values(type: Any, text: str, value: Any) -> None:
    assert reader(type, "f")(text) == value


def test_a_type_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(fp.ConfigError, match="field 'f' is declared as"):
        reader(fp.Types.MAP(fp.Types.STRING(), fp.Types.LONG()), "f")
    for text in ("NaN", "1000"):
        with pytest.raises(ValueError, match="does not fit"):
            reader(fp.Types.DECIMAL(3, 1), "f")(text)


def test_positions() -> None:
    position = Position("s", 5, 0, {"a": (Part(("1",), "3:5:", 10),)})
    assert position.unread(["a", "b"]) == ["a", "b"]
    position = position.read("a", Part(("2",), "3:5:", 10)).read("a", Part(None, "7:9:8", 20)).read("b", Part(None, "7:9:8", 20))
    assert [part.upto for part in position.tables["a"]] == [("2",), None]
    assert position.unread(["a", "b"]) == []
    assert Position.from_json(json_round_trip(position.to_json())) == position
    assert position.at(19, 3).tables == position.tables
    assert position.at(20).tables == {"a": DONE, "b": DONE}
    with pytest.raises(fp.RestoreRefused, match="version 9"):
        Position.from_json({"version": 9})


def test_packed_changes_come_with_what_they_refer_to() -> None:
    relation, other = (b"R" + struct.pack(">I", id) for id in (1, 2))
    begin, later = b"B1", b"B2"
    entries = [
        Entry(relation, begin, b"I1", 0, 1),
        Entry(other, begin, b"I2", 0, 2),
        Entry(relation, later, b"I3", 0, 0),
    ]
    assert list(unpack(pack(entries))) == [begin, relation, b"I1", other, b"I2", later, b"I3"]


def test_names_of_slots() -> None:
    name = slot_name("Orders of today, " + "x" * 100, "uid", "s3://bucket/")
    assert len(name) <= 63
    assert name.startswith("forkpoint_orders_of_today_")
    names = {slot_name(*given) for given in (("a", "b", "r"), ("a", "c", "r"), ("b", "b", "r"), ("a", "b", "r2"))}
    assert len(names) == 4
