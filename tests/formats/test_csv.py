"""CSV: the result of a batch is that of its messages one by one, and what is written can be read by others."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint import Row, Types
from forkpoint.connectors.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from forkpoint.connectors.formats.records import RecordConverter
from forkpoint.errors import ConfigError, TypeNotSupported
from forkpoint.types import type_of
from formats.messages import Batch, assert_same, elements, messages, one_by_one, read


class Order(NamedTuple):
    id: int
    item: str
    price: float | None
    paid: bool = False


@dataclass
class Wide:
    day: date | None
    at: datetime | None
    small: int
    texts: list[str]
    data: bytes
    order: Order | None


PLAIN = Types.ROW_NAMED(
    ["l", "b", "d", "f", "s", "t", "day", "at"],
    [
        Types.LONG(),
        Types.BYTE(),
        Types.DOUBLE(),
        Types.FLOAT(),
        Types.STRING(),
        Types.BOOLEAN(),
        Types.SQL_DATE(),
        Types.SQL_TIMESTAMP(),
    ],
)


def check(type: Any, values: list[bytes]) -> None:
    schema = CsvRowDeserializationSchema(type)
    converter = RecordConverter(type_of(type), from_text=True)
    assert_same(schema.deserialize_batch(messages(*values)), one_by_one(schema._values, converter, values))


VALUES = st.one_of(
    st.integers().map(str),
    st.floats().map(repr),
    st.text(max_size=4),
    st.sampled_from(
        [
            "",
            " 1",
            "1 ",
            "+1",
            "0x10",
            "-0",
            "1_0",
            "nan",
            "inf",
            "-Infinity",
            "1e400",
            "127",
            "128",
            "01",
            "٣",
            "true",
            "TRUE",
            "tRuE",
            "0",
            "1",
            "yes",
            "null",
            "NULL",
            "N/A",
            "3.5e38",
            "1.00000017881393432617187500001",
            "2024-02-29",
            "2024-02-30",
            "2024-02-29 10:00:00",
            "2024-02-29T10:00:00.1",
            "2024-02-29T10",
            "\0",
            '"a"',
            '"a,b"',
            '"a',
            'a"b',
            '"a""b"',
            '"a\nb"',
            "a\nb",
            "a\r",
            "#",
        ]
    ),
)
GOOD = st.tuples(
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.integers(-128, 127).map(str),
    VALUES,
    VALUES,
    st.text(st.characters(exclude_characters='",\r\n', exclude_categories=["Cs"]), max_size=3),
    st.sampled_from(["true", "0", "False", "tRue", "2"]),
    st.dates().map(str) | st.just(""),
    st.datetimes().map(str) | st.just(""),
)


@given(st.lists(st.one_of(GOOD, st.lists(VALUES, max_size=9)).map(",".join), max_size=5))
def test_any_messages_are_read_as_one_by_one(values: list[str]) -> None:
    check(PLAIN, [v.encode("utf-8", "surrogatepass") for v in values])
    check(Types.ROW([Types.STRING()]), [v.encode("utf-8", "surrogatepass") for v in values])


@given(st.lists(GOOD.map(",".join), max_size=3))
def test_almost_good_messages_are_read_as_one_by_one(values: list[str]) -> None:
    check(PLAIN, [v.encode() for v in values])


@given(st.lists(st.binary(max_size=12), max_size=4))
def test_any_bytes_are_read_as_one_by_one(values: list[bytes]) -> None:
    check(PLAIN, values)
    check(Types.ROW([Types.STRING()]), values)


@pytest.mark.parametrize(
    "values",
    [
        [b"0x10,1,,,a,1,,"],
        [b"1,1,,,a\0,1,,"],
        [b'1,1,,,"a"b,1,,'],
        [b'1,1,,,a"b"c,1,,'],
        [b"1,1,,1.00000017881393432617187499,,1,,"],
        [b"1,1,nan,inf,,1,,"],
        [b"1,1,,,,1,2024-01-01,2024-01-01"],
        [b"1,1,,,,1,0000-01-01,"],
        [b"1,1,,,\xff,1,,"],
        [b"1,1,,,a,1,,\n1,1,,,a,1,,", b""],
        [b"1,1,,,a,1,,\n1,1,,,a,1,,", b"\n"],
        [b"1,1,,,a,1,,\r1,1,,,a,1,,", b""],
    ],
)
def test_what_arrow_would_read_in_another_way(values: list[bytes]) -> None:
    check(PLAIN, values)


def test_the_builder_is_pyflinks() -> None:
    type = Types.ROW_NAMED(["a", "b", "c"], [Types.INT(), Types.STRING(), Types.LIST(Types.INT())])
    schema = (
        CsvRowDeserializationSchema.Builder(type)
        .set_field_delimiter("|")
        .set_array_element_delimiter("/")
        .set_quote_character("'")
        .set_escape_character("\\")
        .set_null_literal("NIL")
        .set_allow_comments(True)
        .set_ignore_parse_errors(True)
        .build()
    )
    found = schema.deserialize_batch(messages(b"#1|a|", b"1|'a|\\''|1/NIL", b"x|a|", b"NIL|NIL|NIL", b"|\\||", None))
    assert elements(schema, found) == [Row(1, "a|'", [1, None]), Row(a=None, b=None, c=None), Row(a=None, b="|", c=[])]
    assert found.indices == [1, 3, 4]


def test_another_quote() -> None:
    schema = CsvRowDeserializationSchema.Builder(Types.ROW([Types.STRING()])).set_quote_character("'").build()
    assert read(schema, b'"a"') == [Row('"a"')]
    assert read(schema, b"'a'") == [Row("a")]


def test_bad_messages_are_named() -> None:
    found = CsvRowDeserializationSchema(Order).deserialize_batch(
        messages(b"1,a,2,true", b"1,a", b"x,a,1,0", b'1,"a', b"\xff,a,,0")
    )
    assert [(each.index, each.problem) for each in found.bad] == [
        (1, "2 values for the 4 columns id, item, price, paid"),
        (2, "id: expected int, got 'x'"),
        (3, "not CSV (unexpected end of data)"),
        (4, "not UTF-8 (invalid start byte at byte 0)"),
    ]
    assert found.indices == [0]


ORDERS = st.builds(
    Order,
    st.integers(-(2**63), 2**63 - 1),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    st.none() | st.floats(allow_nan=False),
    st.booleans(),
)


@given(st.lists(ORDERS, max_size=4))
def test_round_trip(values: list[Order]) -> None:
    written = CsvRowSerializationSchema(Order).serialize_batch(Batch(values)).to_pylist()
    assert read(CsvRowDeserializationSchema(Order), *written) == values
    assert [next(csv.reader([m.decode()]))[1] for m in written] == [v.item for v in values]


def test_nested_values_come_back() -> None:
    values = [
        Wide(
            date(2024, 1, 2),
            datetime.fromisoformat("2024-01-02T03:04:05"),
            -1,
            ["a", "b,c"],
            b"\0\xff",
            Order(1, "x", None),
        ),
        Wide(None, None, 0, [], b"", None),
    ]
    written = CsvRowSerializationSchema(Wide).serialize_batch(Batch(values)).to_pylist()
    assert read(CsvRowDeserializationSchema(Wide), *written) == values


def test_writing_by_pyflinks_builder() -> None:
    type = Types.ROW_NAMED(["a", "b", "c"], [Types.INT(), Types.STRING(), Types.LIST(Types.INT())])
    builder = CsvRowSerializationSchema.Builder(type).set_field_delimiter("|").set_line_delimiter("").set_null_literal("NIL")
    builder = builder.set_array_element_delimiter("/").set_quote_character("'")
    assert builder.build().serialize_batch(Batch([(1, "x|y'", [1, None]), Row(None, None, [])])).to_pylist() == [
        b"1|'x|y'''|'1/NIL'",
        b"NIL|NIL|",
    ]
    assert builder.disable_quote_character().set_escape_character("\\").build().serialize((1, "|", [])) == b"1|\\||"
    assert CsvRowSerializationSchema(Order).serialize(Order(1, "a", None, True)) == b"1,a,,true\n"
    with pytest.raises(TypeNotSupported, match="set an escape character"):
        CsvRowSerializationSchema.Builder(type).disable_quote_character().build().serialize((1, "a,b", []))


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="the field delimiter must be one character, not ', '"):
        CsvRowDeserializationSchema.Builder(Order).set_field_delimiter(", ")
    with pytest.raises(ConfigError, match="line delimiter must be a line end or empty"):
        CsvRowSerializationSchema.Builder(Order).set_line_delimiter(";")
    with pytest.raises(ConfigError, match="LONG has no fields"):
        CsvRowDeserializationSchema(int)
