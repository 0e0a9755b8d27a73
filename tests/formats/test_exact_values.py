"""Values come as they were written, or not at all: unions, numbers, times, names of fields, infinite numbers."""

# ruff: noqa: UP007, UP014, UP045 - types that are put together by a program have these names

from __future__ import annotations

import dataclasses
import json
import math
import uuid
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import Batch, elements, messages

import forkpoint as fp
from example_counts import examples
from forkpoint.api.launch import Launch
from forkpoint.connectors.files.writer import to_table
from forkpoint.connectors.formats.avro import AvroRowDeserializationSchema, AvroRowSerializationSchema
from forkpoint.connectors.formats.csv import CsvRowSerializationSchema
from forkpoint.connectors.formats.json import JsonRowDeserializationSchema, JsonRowSerializationSchema
from forkpoint.errors import ConfigError, RecordParseError, TypeNotSupported
from forkpoint.spark.frames import to_declared
from forkpoint.types import Instant, Types, type_of
from forkpoint_lakehouse.columns import fit


def elements_and_problems(schema: Any, values: list[bytes]) -> tuple[list[Any], list[str]]:
    found = schema.deserialize_batch(messages(*values))
    return elements(schema, found), [bad.problem for bad in found.bad]


def read(of: Any, text: str) -> Any:
    """The value of a field of this type in a JSON message; the problem if it is refused."""
    record = NamedTuple("Record", [("v", of)])  # type: ignore[misc]
    elements, problems = elements_and_problems(JsonRowDeserializationSchema(record), [b'{"v": %s}' % text.encode()])
    return elements[0].v if elements else problems[0]


@dataclasses.dataclass
class Small:
    x: int


@dataclasses.dataclass
class Large:
    x: int
    y: int


JSON = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=5,
)


@examples(60)
@given(JSON, st.permutations([dict[str, Any], list[Any], str, int, float, bool]))
def test_a_value_of_a_union_keeps_its_type_whatever_the_order_of_the_members(value, members):
    found = read(Union[tuple(members)], msgspec.json.encode(value).decode())
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("of", "text", "expected"),
    [
        (Union[dict, list, str], "[]", []),
        (Union[dict, list, str], '""', ""),
        (Union[dict, list, str], '[["a",1]]', [["a", 1]]),
        (Union[float, int], str(2**53 + 1), 2**53 + 1),
        (Union[float, str], "1", 1.0),
        (Union[Small, Large], '{"x":1,"y":2}', Large(1, 2)),
        (Union[Large, Small], '{"x":1}', Small(1)),
        (Union[Small, str], '{"x":1,"other":2}', Small(1)),
        (Union[datetime, str], '"2024-01-01T00:00:00"', datetime(2024, 1, 1)),  # noqa: DTZ001
        (Union[datetime, str], '"soon"', "soon"),
        (dict[int, int], "[[1,2]]", {1: 2}),
        (float, '"Infinity"', math.inf),
        (float, '"-Infinity"', -math.inf),
        (datetime, '"2024-01-01T00:00:59.999999999"', datetime(2024, 1, 1, 0, 0, 59, 999999)),  # noqa: DTZ001
        (Instant, '"2024-01-01T00:00:59.9999999Z"', datetime(2024, 1, 1, 0, 0, 59, 999999, UTC)),
        (time, '"00:00:59.999999999"', time(0, 0, 59, 999999)),
        (timedelta, '"PT0.9999999S"', timedelta(microseconds=999999)),
        (Decimal, '"0.12345678901"', Decimal("0.12345678901")),
    ],
)
def test_what_json_holds(of, text, expected):
    found = read(of, text)
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (dict[str, int], '""'),
        (dict[str, int], '"ab"'),
        (dict[str, str], '["ab"]'),
        (Union[int, str], "1.0"),
        (int, "true"),
    ],
)
def test_what_is_no_value_of_the_type_is_refused(of, text):
    assert isinstance(read(of, text), str)


class Event(msgspec.Struct, rename={"schema": "$schema", "time": "@timestamp", "sender": "from"}):
    schema: str
    time: datetime
    sender: str = "nobody"


class Outer(msgspec.Struct, rename="camel"):
    first_event: Event
    more_events: list[Event] = []


@pytest.mark.parametrize("count", [1, 3000])  # over columns, too
def test_the_names_that_a_struct_gives_its_fields_are_those_in_json(count):
    events = [Event("a", datetime(2024, 1, 1, 0, 0, n % 60), "me") for n in range(count)]  # noqa: DTZ001
    lines = JsonRowSerializationSchema(Event)
    written = [lines.serialize(event) for event in events]
    assert written[0] == b'{"$schema":"a","@timestamp":"2024-01-01T00:00:00","from":"me"}'
    assert elements_and_problems(JsonRowDeserializationSchema(Event), written) == (events, [])
    assert elements_and_problems(JsonRowDeserializationSchema(Event), [b'{"$schema":"b","@timestamp":"2024-01-01T00:00:00"}'])[
        0
    ] == [Event("b", datetime(2024, 1, 1))]  # noqa: DTZ001


def test_nested_names_and_state():
    outer = Outer(Event("a", datetime(2024, 1, 1)), [Event("b", datetime(2024, 1, 2), "c")])  # noqa: DTZ001
    written = JsonRowSerializationSchema(Outer).serialize(outer)
    assert written == msgspec.json.encode(outer)
    assert elements_and_problems(JsonRowDeserializationSchema(Outer), [written]) == ([outer], [])
    of = type_of(Outer)
    assert of.decode(of.encode(outer)) == outer
    assert [field["name"] for field in of.describe()["fields"]] == [
        "first_event",
        "more_events",
    ]  # state has the fields' own


class Number(NamedTuple):
    v: float
    w: Optional[float] = None


def test_other_formats_have_the_fields_own_names():
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "first", "type": "double"}]})
    message = AvroRowSerializationSchema(avro_schema_string=schema).serialize(Renamed(math.inf))
    avro: Any = AvroRowDeserializationSchema(type_info=Renamed, avro_schema_string=schema)
    assert elements_and_problems(avro, [message]) == ([Renamed(math.inf)], [])
    csv = CsvRowSerializationSchema(type_of(Renamed)).serialize(Renamed(math.inf))
    assert csv == b"Infinity\n"


class Renamed(msgspec.Struct, rename="upper"):
    first: float


@pytest.mark.parametrize("number", [math.inf, -math.inf, 1.5])
def test_infinite_numbers_come_back_from_json(number):
    for element in (Number(number), Number(1.0, number)):
        written = JsonRowSerializationSchema(Number).serialize(element)
        assert elements_and_problems(JsonRowDeserializationSchema(Number), [written]) == ([element], [])


class Inner(NamedTuple):
    a: float


class Nested(NamedTuple):
    inner: Inner


@pytest.mark.parametrize("columns", [False, True])
def test_a_nested_record_is_an_object_also_over_columns(columns):
    """It was an array, which the reader refuses."""
    of = type_of(Nested)
    schema = JsonRowSerializationSchema(Nested)
    found = schema.serialize_batch(Batch([Nested(Inner(1.5)), Nested(Inner(math.inf))], of, columns)).to_pylist()
    assert found == [b'{"inner":{"a":1.5}}', b'{"inner":{"a":"Infinity"}}']


# -- columns of files --------------------------------------------------------------------------------------------------


def rows(path: Path, column: pa.Array, of: Any, **options: Any) -> list[Any]:
    (path / "in").mkdir(exist_ok=True)
    pq.write_table(pa.table({"v": column}), path / "in" / "part.parquet")
    record = NamedTuple("Record", [("v", of)])  # type: ignore[misc]
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.launch = Launch(options={"engine": "local"})
    env.set_state_root(str(path / f"state-{uuid.uuid4().hex}"))
    source = fp.FileSource.parquet(str(path / "in"), record, bounded=True, **options)
    stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "files").uid("files")
    return [row.v for row in stream.execute_and_collect()]


def test_integers_become_floats_only_if_they_are_exact(tmp_path):
    column = pa.array([1, 2**53, -(2**53)], pa.int64())
    assert rows(tmp_path, column, float) == [1.0, 2.0**53, -(2.0**53)]
    with pytest.raises(RecordParseError, match=r"row 1.*9007199254740993.*v: 9007199254740993 is not exact as a float"):
        rows(tmp_path, pa.array([1, 2**53 + 1], pa.int64()), float)
    assert rows(tmp_path, pa.array([1, 2**53 + 1], pa.int64()), float, on_parse_error="skip") == [1.0]
    assert rows(tmp_path, pa.array([2**53 + 1], pa.int64()), int) == [2**53 + 1]


ZONED, LOCAL = pa.array([0], pa.timestamp("us", "UTC")), pa.array([0], pa.timestamp("us"))


@pytest.mark.parametrize(("column", "of"), [(ZONED, datetime), (LOCAL, Instant)])
def test_times_with_a_zone_and_without_one_are_not_taken_for_each_other(tmp_path, column, of):
    with pytest.raises(RecordParseError, match="annotate the field"):
        rows(tmp_path, column, of)


@pytest.mark.parametrize(("column", "of"), [(ZONED, Instant), (LOCAL, datetime)])
def test_times_stay_what_they_are(tmp_path, column, of):
    assert rows(tmp_path, column, of) == column.to_pylist()


@pytest.mark.parametrize("of", [Types.SQL_TIMESTAMP(), type_of(list[datetime]), type_of(Optional[datetime])])
def test_a_column_of_another_zone_is_not_cast(of):
    column = pa.array([[0]] if pa.types.is_list(of.arrow_type) else [0], _zoned(of.arrow_type))
    with pytest.raises(fp.TypeNotSupported, match="times with and without a time zone differ"):
        of.from_arrow(column)


def _zoned(of: pa.DataType) -> pa.DataType:
    return pa.list_(_zoned(of.value_type)) if pa.types.is_list(of) else pa.timestamp("us", "UTC")


NAIVE_AND_AWARE = pa.record_batch({"v": ZONED}), pa.schema([("v", LOCAL.type)])


def test_zones_are_kept_on_the_way_to_files_and_tables_and_from_dataframes():
    """Columns are cast there, too, and lost their zone."""
    batch, schema = NAIVE_AND_AWARE
    local = type_of(NamedTuple("Local", [("v", datetime)]))
    with pytest.raises(ConfigError, match="does not fit"):
        fit(pa.Table.from_batches([batch]), schema, "table")
    with pytest.raises(TypeNotSupported, match="column 'v' is timestamp"):
        list(to_declared(iter([batch]), local, "frame"))
    zoned = type_of(NamedTuple("Zoned", [("v", Instant)]))
    elements_of_stream = Batch(zoned.from_columns(batch.columns), zoned, True)
    with pytest.raises(TypeNotSupported, match="it is aware"):
        to_table(elements_of_stream, local, "out")  # type: ignore[arg-type]
