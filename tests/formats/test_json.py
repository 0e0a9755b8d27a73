"""JSON: the result of a batch is that of its messages one by one, and what is written can be read by others."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import cloudpickle
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_counts import examples
from forkpoint import FileSink, Instant, Row, Types
from forkpoint.connectors.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema, JsonText
from forkpoint.connectors.formats.records import RecordConverter
from forkpoint.contract.sink import SinkContext
from forkpoint.errors import ConfigError, RecordParseError, TypeNotSupported
from forkpoint.types import type_of
from formats.messages import Batch, assert_same, elements, messages, one_by_one, read


class Order(NamedTuple):
    id: int
    item: str
    price: float | None
    paid: bool = False


@dataclass
class Moments:
    day: date | None
    at: datetime | None
    instant: Instant | None  # type: ignore[valid-type]


PLAIN = Types.ROW_NAMED(
    ["l", "i", "b", "d", "f", "s", "t"],
    [Types.LONG(), Types.INT(), Types.BYTE(), Types.DOUBLE(), Types.FLOAT(), Types.STRING(), Types.BOOLEAN()],
)
FLAT = Types.ROW_NAMED(["l", "i", "d", "s", "t"], [Types.LONG(), Types.INT(), Types.DOUBLE(), Types.STRING(), Types.BOOLEAN()])
"""What msgspec's decoder of records reads."""
TIMES = type_of(Moments)


def check(type: Any, values: list[bytes], **options: Any) -> None:
    type = type_of(type)
    schema = JsonRowDeserializationSchema(type, **options)
    converter = RecordConverter(type, defaults=not options.get("fail_on_missing_field", False))
    assert_same(
        schema.deserialize_batch(messages(*values)), one_by_one(JsonText(type, only_fields=True).decode, converter, values)
    )


# -- one batch against its messages one by one ------------------------------------------------------------------------

# Tokens that are read in different ways, in different places: this finds more than text that is rarely valid.
NUMBERS = st.one_of(
    st.integers().map(str),
    st.sampled_from(
        [
            "0",
            "-0",
            "-0.0",
            "1.5",
            "1e400",
            "-1e999",
            "1E5",
            "1e-400",
            "01",
            "1.",
            ".5",
            "+1",
            "0x10",
            "-",
            "1_0",
            "9223372036854775807",
            "9223372036854775808",
            "127",
            "128",
            "3.4028235e38",
            "3.5e38",
            "1e39",
            "NaN",
            "Infinity",
            "-Infinity",
            "Inf",
            "-Inf",
            "nan",
            "9" * 400,
            "9" * 5000,
            "1.00000017881393432617187499",
            "1.00000017881393432617187500001",
        ]
    ),
    st.floats().map(repr),
)
STRINGS = st.one_of(
    st.text(max_size=6).map(lambda s: json.dumps(s, ensure_ascii=False)),
    st.text(max_size=6).map(json.dumps),
    st.sampled_from(['"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"a\nb"', '"}\n{"', '"\\x"', '" NaN,"', '": Inf }"', '"\t"']),
)
OTHERS = st.sampled_from(["true", "false", "null", "tru", "", "[]", "{}", "[1,2]", '{"x":1}', "[" * 300 + "]" * 300, "{]", "//"])
VALUES = st.one_of(NUMBERS, STRINGS, OTHERS)
SPACES = st.sampled_from(["", "", "", " ", "\n", "\r\n", "\t", "\v", "\0", "\ufeff"])


@st.composite
def objects(draw: Any, names: list[str]) -> bytes:
    fields = draw(st.lists(st.tuples(st.sampled_from([*names, "other", "\\u006c"]), VALUES), max_size=8))
    body = ",".join(f'{draw(SPACES)}"{name}"{draw(SPACES)}:{draw(SPACES)}{value}{draw(SPACES)}' for name, value in fields)
    return (draw(SPACES) + "{" + body + "}" + draw(SPACES)).encode("utf-8", "surrogatepass")


@st.composite
def good_objects(draw: Any, names: str = "libdfst") -> bytes:
    """Mostly what columns can be read from, with a number or an ignored field that might be read in another way."""
    values = {
        "l": str(draw(st.integers(-(2**63), 2**63 - 1))),
        "i": str(draw(st.integers(-(2**31), 2**31 - 1))),
        "b": str(draw(st.integers(-128, 127))),
        "d": draw(NUMBERS),
        "f": draw(NUMBERS),
        "s": draw(STRINGS),
        "t": draw(st.sampled_from(["true", "false", "null"])),
    }
    value = {name: values[name] for name in names}
    if draw(st.booleans()):
        value["other"] = draw(VALUES)
    if draw(st.booleans()):
        del value[draw(st.sampled_from(sorted(value)))]
    return ("{" + ",".join(f'"{k}":{v}' for k, v in value.items()) + "}").encode("utf-8", "surrogatepass")


PIECES = st.sampled_from(
    [
        b"{",
        b"}",
        b"{}",
        b"{}{}",
        b'{"l":1}',
        b'{"l":',
        b"1}",
        b"\n",
        b"\0",
        b'{"l":{}',
        b'{"a":[{}',
        b",{}]}",
        b"",
        b" ",
        b'"',
        b'{"s":"',
        b'"}',
        b"[",
        b"\xff",
        b'{"s":"\xff"}',
        b'{"other":"\xff"}',
        b"\xef\xbb\xbf{}",
    ]
)


@given(st.lists(st.one_of(objects(list("libdfst")), good_objects(), st.lists(PIECES, max_size=4).map(b"".join)), max_size=6))
def test_any_messages_are_read_as_one_by_one(values: list[bytes]) -> None:
    check(PLAIN, values)


@given(st.lists(good_objects(), min_size=1, max_size=4))
def test_almost_good_messages_are_read_as_one_by_one(values: list[bytes]) -> None:
    check(PLAIN, values)
    check(PLAIN, values, fail_on_missing_field=True)


@given(st.lists(good_objects("lidst"), min_size=1, max_size=4))
def test_flat_messages_are_read_as_one_by_one(values: list[bytes]) -> None:
    check(FLAT, values)
    check(
        Order, [value.replace(b'"l":', b'"id":').replace(b'"s":', b'"item":').replace(b'"d":', b'"price":') for value in values]
    )


@given(st.lists(st.lists(PIECES, max_size=4).map(b"".join), max_size=5))
def test_boundaries_of_messages_are_kept(values: list[bytes]) -> None:
    check(PLAIN, values)
    check(FLAT, values)


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_any_bytes_are_read_as_one_by_one(values: list[bytes]) -> None:
    check(PLAIN, values)
    check(int, values)


DAYS = st.one_of(
    st.dates().map(str),
    st.sampled_from(["2024-02-30", "0000-01-01", "2024-1-1", "20240101", "-001-01-01", "2024-02-29"]),
)
CLOCKS = st.one_of(
    st.times().map(str),
    st.sampled_from(["24:00:00", "23:59:60", "10:00", "10", "10:00:00.1234567", "10:00:00.", "10:00:00,5", "1:00:00"]),
)
ZONES = st.sampled_from(["", "Z", "z", "+01:00", "-23:59", "+24:00", "+0100", "+01", " UTC", "-00:00"])
MOMENTS = st.tuples(DAYS, st.sampled_from(["T", " ", "t", ""]), CLOCKS, ZONES).map("".join)


@given(st.lists(st.tuples(st.one_of(DAYS, MOMENTS), st.one_of(DAYS, MOMENTS), MOMENTS), min_size=1, max_size=3))
def test_times_are_read_as_one_by_one(values: list[tuple[str, str, str]]) -> None:
    for at in range(3):
        check(
            TIMES,
            [json.dumps(dict(zip(["day", "at", "instant"][at : at + 1], value[at:], strict=False))).encode() for value in values],
        )
    check(TIMES, [json.dumps({"day": a, "at": b, "instant": c}).encode() for a, b, c in values])


def test_a_bad_message_among_many_leaves_the_others() -> None:
    values = [b'{"id":%d,"item":"x","price":null}' % i for i in range(5_000)]
    values[1234] = b'{"id":"x"}'
    values[4321] = b"\0"
    check(Order, values)


@pytest.mark.parametrize(
    "values",
    [
        [b"{}{}", b'{"l":1', b"}"],
        [b"{}{}", b'{"o":', b"{}}"],
        [b"{}{}", b'{"o":{}', b',"l":1}'],
        [b"{} {}", b"{}\0}", b"{}"],
        [b"{}\n{}", b"{}\n", b"{\n}"],
        [b'{"other":"\xff"}'],
        [b'{"s":"\xff"}'],
        [b'{"f":1.00000017881393432617187499}'],
        [b'{"f":3.5e38}'],
        [b'{"d":-0}', b'{"d":0}'],
        [b'{"o":' + b"[" * 1500 + b"]" * 1500 + b"}"],
    ],
)
def test_what_arrow_would_read_in_another_way(values: list[bytes]) -> None:
    check(PLAIN, values)


def test_ignored_fields_do_not_change_the_result() -> None:
    check(Order, [b'{"id":1,"item":"a, Information","price":1,"tags":[1,{"x":[]}]}', b'{"id":2,"item":"b","price":2}'])
    check(Order, [b'{"id":1,"item":"a","price":1,"paid":true,"x":' + b"[" * 2000 + b"]" * 2000 + b"}"] * 2)
    check(Order, [b'{"id":1,"item":"a","price":1,"paid":true,"x":NaN}'] * 2)


# -- elements ---------------------------------------------------------------------------------------------------------


def test_reads_elements_of_a_class() -> None:
    schema = JsonRowDeserializationSchema(Order)
    assert read(schema, b'{"id":1,"item":"a","price":2}', b'{"id":2,"item":"b","paid":true}') == [
        Order(1, "a", 2.0),
        Order(2, "b", None, True),
    ]


def test_the_builder_is_pyflinks() -> None:
    schema = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["id"], [Types.LONG()])).build()
    assert read(schema, b'{"id":1}', b'{"id":null}', b"{}") == [Row(id=1), Row(id=None), Row(id=None)]
    schema = JsonRowDeserializationSchema.builder().type_info(Order).fail_on_missing_field().ignore_parse_errors().build()
    assert schema == JsonRowDeserializationSchema(Order, fail_on_missing_field=True, ignore_parse_errors=True)
    with pytest.raises(ConfigError, match="call type_info"):
        JsonRowDeserializationSchema.builder().build()
    with pytest.raises(ConfigError, match="call with_type_info"):
        JsonRowSerializationSchema.builder().build()


def test_the_type_of_a_json_schema() -> None:
    text = json.dumps(
        {
            "type": "object",
            "definitions": {"line": {"type": "object", "properties": {"item": {"type": "string"}}}},
            "properties": {
                "id": {"type": "integer"},
                "name": {"type": ["string", "null"]},
                "day": {"type": "string", "format": "date"},
                "at": {"type": "string", "format": "date-time"},
                "data": {"type": "string", "contentEncoding": "base64"},
                "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
                "yes": {"oneOf": [{"type": "null"}, {"type": "boolean"}]},
                "pair": {"type": "array", "items": [{"type": "number"}, {"type": "string"}]},
                "none": {"type": "null"},
            },
        }
    )
    line = Types.ROW_NAMED(["item"], [Types.STRING()])
    schema = JsonRowDeserializationSchema.builder().json_schema(text).build()
    assert schema.get_produced_type() == Types.ROW_NAMED(
        ["id", "name", "day", "at", "data", "lines", "yes", "pair", "none"],
        [
            Types.BIG_DEC(),
            Types.STRING(),
            Types.SQL_DATE(),
            Types.INSTANT(),
            Types.BYTES(),
            Types.OBJECT_ARRAY(line),
            Types.BOOLEAN(),
            Types.ROW([Types.BIG_DEC(), Types.STRING()]),
            None,
        ],
    )
    (row,) = read(schema, b'{"id": 1, "lines": [{"item": "a"}], "pair": [1.5, "x"]}')
    assert (row.id, row.lines, row.pair) == (Decimal(1), [Row(item="a")], Row(Decimal("1.5"), "x"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not a JSON schema"),
        ('{"type": "object"}', "the object <root> has no properties"),
        ('{"type": ["string", "number"]}', "<root> has several types besides null"),
        ('{"type": "array"}', "<root>\\[\\] has no schema"),
        ('{"type": "color"}', "unsupported type 'color'"),
        ('{"$ref": "#"}', "refers to '#', which is not in the schema"),
        ('{"$ref": "#/definitions/x"}', "which is not in the schema"),
        ('{"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}', "<root>/a has no schema, or a recursive one"),
    ],
)
def test_json_schemas_without_a_type(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        JsonRowDeserializationSchema.builder().json_schema(text)


def test_tombstones_are_no_elements_and_bad_messages_are_named() -> None:
    schema = JsonRowDeserializationSchema(Order)
    found = schema.deserialize_batch(messages(None, b"", b'{"id":1,"item":"a"}', None, b'{"id":"1","item":"a"}'))
    assert elements(schema, found) == [Order(1, "a", None)]
    assert list(found.indices or ()) == [2]
    assert [(each.index, each.problem) for each in found.bad] == [
        (1, "not JSON (Input data was truncated)"),
        (4, "id: expected int, got '1'"),
    ]


def test_bad_messages_are_skipped_on_request() -> None:
    schema = JsonRowDeserializationSchema(Order, ignore_parse_errors=True)
    found = schema.deserialize_batch(messages(b"{", b'{"id":1,"item":"a"}', None))
    assert elements(schema, found) == [Order(1, "a", None)]
    assert list(found.indices or ()) == [1]
    assert not found.bad


def test_one_message() -> None:
    schema = JsonRowDeserializationSchema(Order)
    assert schema.deserialize(b'{"id":1,"item":"a"}') == Order(1, "a", None)
    with pytest.raises(RecordParseError, match="item: missing, and the field has no default"):
        schema.deserialize(b'{"id":1}')


def test_missing_fields_fail_on_request_though_they_have_defaults() -> None:
    schema = JsonRowDeserializationSchema(Order, fail_on_missing_field=True)
    good = b'{"id":1,"item":"a","price":null,"paid":true}'
    found = schema.deserialize_batch(messages(good, b'{"id":1,"item":"a","price":null}'))
    assert elements(schema, found) == [Order(1, "a", None, True)]
    assert [each.problem for each in found.bad] == ["paid: missing"]


def test_values_that_are_no_records() -> None:
    assert read(JsonRowDeserializationSchema(Types.LIST(Types.INT())), b"[1, null]", b"[]") == [[1, None], []]


class Route(NamedTuple):
    start: Order
    stops: list[Order]


def test_a_record_is_an_object_and_an_array_is_none() -> None:
    schema = JsonRowDeserializationSchema(Order)
    good = b'{"id": 1, "item": "a", "price": 2}'
    found = schema.deserialize_batch(messages(b'[1, "a", 2, true]', good, b'[1, "a"]', b"[]"))
    assert elements(schema, found) == [Order(1, "a", 2.0)]
    expected = "expected an object with the fields id, item, price, paid, got the array"
    assert [each.problem for each in found.bad] == [
        f"{expected} [1, 'a', 2, True]",
        f"{expected} [1, 'a']",
        f"{expected} []",
    ]
    route = JsonRowDeserializationSchema(Route)
    whole = route.deserialize_batch(messages(b'{"start": %b, "stops": [[1, "a"]]}' % good, b'{"start": [1, "a"], "stops": []}'))
    assert [each.problem for each in whole.bad] == [f"stops: {expected} [1, 'a']", f"start: {expected} [1, 'a']"]


def test_tuples_and_rows_without_names_are_arrays() -> None:
    for type, value in (
        (Types.TUPLE([Types.INT(), Types.STRING()]), (1, "a")),
        (Types.ROW([Types.INT(), Types.STRING()]), Row(f0=1, f1="a")),
    ):
        schema: Any = JsonRowDeserializationSchema(type)
        assert read(schema, b'[1, "a"]', b'{"f0": 1, "f1": "a"}') == [value, value]
        bad = schema.deserialize_batch(messages(b"[1]", b'[1, "a", 2]')).bad
        assert [each.problem for each in bad] == [
            "expected an array of 2 values, got [1]",
            "expected an array of 2 values, got [1, 'a', 2]",
        ]


def test_no_messages() -> None:
    assert read(JsonRowDeserializationSchema(Order)) == []
    assert read(JsonRowDeserializationSchema(Order), None) == []


def test_a_slice_of_messages() -> None:
    schema = JsonRowDeserializationSchema(Order)
    some = messages(b"x", b'{"id":1,"item":"a"}', b'{"id":2,"item":"b"}', b"x")[1:3]
    assert elements(schema, schema.deserialize_batch(some)) == [Order(1, "a", None), Order(2, "b", None)]


def test_a_schema_can_be_shipped_after_its_use() -> None:
    schema = JsonRowDeserializationSchema(Order)
    schema.deserialize(b'{"id":1,"item":"a"}')
    assert read(cloudpickle.loads(cloudpickle.dumps(schema)), b'{"id":1,"item":"a"}') == [Order(1, "a", None)]


# -- writing ----------------------------------------------------------------------------------------------------------


class Color(Enum):
    RED = "red"


@dataclass
class Nested:
    color: Color
    at: Instant  # type: ignore[valid-type]
    amount: Decimal
    orders: list[Order]
    by_name: dict[str, int]
    data: bytes


NESTED = [
    Nested(Color.RED, datetime(2024, 5, 1, tzinfo=UTC), Decimal("1.10"), [Order(1, "ä\n", None)], {"a": 1}, b"\xff"),
    Nested(Color.RED, datetime(2024, 5, 1, 1, 2, 3, 4, UTC), Decimal(-1), [], {}, b""),
]
ORDERS = [Order(1, "a", 0.1), Order(2, 'ü\n"', None, True)]


def test_an_integer_of_more_than_64_bits_is_no_member_of_an_enum() -> None:
    schema = JsonRowDeserializationSchema(Types.ROW_NAMED(["color"], [type_of(Color)]))
    found = schema.deserialize_batch(pa.array([b'{"color":"red"}', b'{"color":%d}' % 2**64], pa.binary()))
    assert [bad.problem for bad in found.bad] == ["color: 18446744073709551616 is not valid for Enum Color"]


@pytest.mark.parametrize(("type", "values"), [(Order, ORDERS), (Nested, NESTED)])
@pytest.mark.parametrize("columns", [False, True])
def test_messages_have_the_bytes_of_a_file_sink(type: Any, values: list[Any], columns: bool, tmp_path: Any) -> None:
    batch = Batch(values, type_of(type), columns)
    schema = JsonRowSerializationSchema(type)
    written = schema.serialize_batch(batch)
    writer = FileSink.json(tmp_path).create_writer(SinkContext("sink", "job", 1, 0, "a"))
    writer.write(batch)
    (staged,) = writer.prepare_commit()
    with open(staged["staged"], "rb") as file:
        assert b"".join(m + b"\n" for m in written.to_pylist()) == file.read()
    assert list(map(schema.serialize, values)) == written.to_pylist()
    assert read(JsonRowDeserializationSchema(type), *written.to_pylist()) == values


def test_the_type_says_which_fields_are_written() -> None:
    schema = JsonRowSerializationSchema(Types.ROW_NAMED(["b", "a"], [Types.STRING(), Types.INT()]))
    rows = [Row(a=1, b="x", more=None), Row(b="y", a=2)]
    assert schema.serialize_batch(Batch(rows)).to_pylist() == [b'{"b":"x","a":1}', b'{"b":"y","a":2}']
    assert schema.serialize(rows[0]) == b'{"b":"x","a":1}'
    with pytest.raises(TypeNotSupported, match="has no field 'b'"):
        schema.serialize(Row(a=1, more=2))


def test_tuples_and_rows_get_the_names_of_the_type() -> None:
    schema = (
        JsonRowSerializationSchema.builder().with_type_info(Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])).build()
    )
    assert schema.serialize_batch(Batch([Row(1, "x"), (2, "y"), Row(b="z", a=3)])).to_pylist() == [
        b'{"a":1,"b":"x"}',
        b'{"a":2,"b":"y"}',
        b'{"a":3,"b":"z"}',
    ]


@dataclass
class Scalars:
    if_: int
    text: str | None
    instant: Instant  # type: ignore[valid-type]
    day: date
    lasted: timedelta
    amount: Decimal
    number: float
    yes: bool


SCALARS = st.builds(
    Scalars,
    st.integers(-(2**63), 2**63 - 1),
    st.none() | st.text(),
    st.datetimes(timezones=st.just(UTC)),
    st.dates(),
    st.timedeltas(timedelta(-(10**5)), timedelta(10**5)),
    st.decimals(allow_nan=False),
    st.floats(),
    st.booleans(),
)


@given(st.lists(SCALARS, max_size=3))
def test_columns_are_written_as_their_elements(values: list[Scalars]) -> None:
    schema = JsonRowSerializationSchema(Scalars)
    ours = schema.serialize_batch(Batch(values, type_of(Scalars), columns=True))
    assert ours == schema.serialize_batch(Batch(values))
    row = Types.ROW_NAMED(["if", "class"], [Types.INT(), Types.STRING()])
    rows = [Row.of(("if", "class"), [1, value.text]) for value in values]
    assert JsonRowSerializationSchema(row).serialize_batch(Batch(rows, row, columns=True)) == JsonRowSerializationSchema(
        row
    ).serialize_batch(Batch(rows))


JSON_VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(JSON_VALUES, max_size=4))
@examples(50)
def test_reads_what_the_standard_library_writes_and_vice_versa(values: list[Any]) -> None:
    assert read(JsonRowDeserializationSchema(Types.ANY()), *(json.dumps(v).encode() for v in values)) == values
    assert [json.loads(m) for m in JsonRowSerializationSchema(Types.ANY()).serialize_batch(Batch(values)).to_pylist()] == values


def test_durations_and_more_come_back() -> None:
    types = Types.ROW_NAMED(["d", "u"], [Types.DURATION(), Types.BIG_INT()])
    values = [Row(d=timedelta(hours=1, microseconds=5), u=2**80)]
    (message,) = JsonRowSerializationSchema(types).serialize_batch(Batch(values)).to_pylist()
    assert read(JsonRowDeserializationSchema(types), message) == values


def test_nothing_to_write() -> None:
    assert JsonRowSerializationSchema(Order).serialize_batch(Batch([])) == pa.array([], pa.binary())
