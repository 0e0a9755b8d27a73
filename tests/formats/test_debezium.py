"""Debezium's values as its connectors write them by default: with the schema, and without, if options say what it would."""

from __future__ import annotations

import base64
import enum
import json
import logging
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.connectors.formats.changes import DebeziumJsonDeserializationSchema, change_type
from forkpoint.connectors.formats.reading import FormatReader, Unread
from forkpoint.contract.format import Deserialized
from forkpoint.contract.source import ReaderContext
from forkpoint.errors import ConfigError, RecordParseError
from forkpoint.types import type_of
from formats.messages import elements, messages, read

CONNECT, TIME, DATA = "org.apache.kafka.connect.data.", "io.debezium.time.", "io.debezium.data."


def column(type: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": type, "optional": True, **({"name": name, "version": 1} if name else {}), **more}


def decimal_column(scale: int) -> dict[str, Any]:
    return column("bytes", CONNECT + "Decimal", parameters={"scale": str(scale), "connect.decimal.precision": "30"})


VARIABLE = column(
    "struct",
    DATA + "VariableScaleDecimal",
    fields=[
        {"type": "int32", "optional": False, "field": "scale"},
        {"type": "bytes", "optional": False, "field": "value"},
    ],
)


def unscaled(value: int) -> str:
    """As Java's BigInteger.toByteArray: the fewest bytes of two's complement that have a bit for the sign."""
    size = ((value if value >= 0 else ~value).bit_length() // 8) + 1
    return base64.b64encode(value.to_bytes(size, "big", signed=True)).decode()


def message(columns: Mapping[str, dict[str, Any]] | None, after: Any, before: Any = None) -> bytes:
    op = "d" if after is None else "c" if before is None else "u"
    payload = {
        "before": before,
        "after": after,
        "op": op,
        "ts_ms": 1559033904863,
        "transaction": None,
        "source": {
            "version": "3.0.5.Final",
            "connector": "postgresql",
            "db": "shop",
            "table": "orders",
            "ts_ms": 0,
            "lsn": 24,
        },
    }
    if columns is None:
        return json.dumps(payload).encode()
    rows = [
        {
            "type": "struct",
            "fields": [{**of, "field": name} for name, of in columns.items()],
            "optional": True,
            "name": "shop.public.orders.Value",
            "field": field,
        }
        for field in ("before", "after")
    ]
    rest = [{"type": "string", "optional": False, "field": "op"}, {"type": "int64", "optional": True, "field": "ts_ms"}]
    envelope = {
        "type": "struct",
        "fields": [*rows, *rest],
        "optional": False,
        "name": "shop.public.orders.Envelope",
    }
    return json.dumps({"schema": envelope, "payload": payload}).encode()


def one(type: Any, of: dict[str, Any] | None, raw: Any, **modes: Any) -> Any:
    """The value of a column, or the problem with it, by both ways to read a message."""
    schema = DebeziumJsonDeserializationSchema(fp.Types.ROW_NAMED(["x"], [type_of(type)]), **modes)
    text = message(None if of is None else {"x": of}, {"x": raw})
    found = schema.deserialize_batch(messages(text))
    if found.bad:
        with pytest.raises(RecordParseError, match="x"):
            schema.deserialize(text)
        return found.bad[0].problem
    value = elements(schema, found)[0].after[0]
    assert repr(schema.deserialize(text).after[0]) == repr(value)
    return value


class Mood(enum.Enum):
    SAD = "sad"
    OK = "ok"


class Document(NamedTuple):
    tags: list[str]
    price: Decimal


class Order(NamedTuple):
    """A table with a column of each type that PostgreSQL's connector encodes."""

    id: int
    price: Decimal
    ratio: Decimal | None
    day: date
    at: datetime
    at_ms: datetime
    zoned: fp.Instant
    clock: time
    span: timedelta
    key: UUID
    mood: Mood
    doc: Document
    note: str
    data: bytes
    prices: list[Decimal]
    anything: Any


POSTGRES = {
    "id": column("int32"),
    "price": decimal_column(2),
    "ratio": VARIABLE,
    "day": column("int32", TIME + "Date"),
    "at": column("int64", TIME + "MicroTimestamp"),
    "at_ms": column("int64", TIME + "Timestamp"),
    "zoned": column("string", TIME + "ZonedTimestamp"),
    "clock": column("int64", TIME + "MicroTime"),
    "span": column("int64", TIME + "MicroDuration"),
    "key": column("string", DATA + "Uuid"),
    "mood": column("string", DATA + "Enum", parameters={"allowed": "sad,ok"}),
    "doc": column("string", DATA + "Json"),
    "note": column("string"),
    "data": column("bytes"),
    "prices": column("array", items=decimal_column(1)),
    "anything": column("int64", TIME + "MicroTimestamp"),
}
ROW = {
    "id": 1,
    "price": "BNI=",
    "ratio": {"scale": 3, "value": "AQ=="},
    "day": 17702,
    "at": 1529507596945104,
    "at_ms": 1529507596945,
    "zoned": "2018-06-20T15:13:16.945104Z",
    "clock": 54796945104,
    "span": 93784000005,
    "key": "6f1c1b4e-9b1a-4a53-a2a2-9e9a7a7a0b4e",
    "mood": "ok",
    "doc": '{"tags": ["a"], "price": 0.10}',
    "note": "1234",
    "data": "1234",
    "prices": ["1234", "/w=="],
    "anything": 1529507596945104,
}
AT = datetime(2018, 6, 20, 15, 13, 16, 945104)  # noqa: DTZ001
ORDER = Order(
    1,
    Decimal("12.34"),
    Decimal("0.001"),
    date(2018, 6, 20),
    AT,
    AT.replace(microsecond=945000),
    AT.replace(tzinfo=UTC),
    AT.time(),
    timedelta(days=1, hours=2, minutes=3, seconds=4, microseconds=5),
    UUID(ROW["key"]),
    Mood.OK,  # type: ignore[arg-type]
    Document(["a"], Decimal("0.10")),
    "1234",
    b"\xd7\x6d\xf8",
    [Decimal("-265882.4"), Decimal("-0.1")],
    AT,
)


def test_postgres_connectors_defaults_with_the_schema() -> None:
    """Each column type in both rows of an update, by the schema in the message; options of another connector change nothing."""
    text = message(POSTGRES, ROW, {**ROW, "ratio": None})
    others: list[dict[str, Any]] = [{}, {"decimal_handling_mode": "string", "time_precision_mode": "connect"}]
    for modes in others:
        schema = DebeziumJsonDeserializationSchema(Order, **modes)
        schema.deserialize(text)
        shipped = cloudpickle.loads(cloudpickle.dumps(schema))
        for change in (*read(schema, text, text), shipped.deserialize(text)):
            assert change.after == ORDER
            assert str(change.after.doc.price) == "0.10"
            assert change.before == ORDER._replace(ratio=None)


def test_postgres_connectors_defaults_without_the_schema() -> None:
    """The same row with schemas.enable=false, by the connector's modes and the digits of its columns."""
    digits = {"price": 2, "at": 6, "at_ms": 3, "clock": 6, "prices": 1}
    schema = DebeziumJsonDeserializationSchema(
        Order, decimal_handling_mode="precise", time_precision_mode="adaptive", fraction_digits=digits
    )
    assert read(schema, message(None, ROW))[0].after == ORDER._replace(anything=ROW["anything"])


class Sale(NamedTuple):
    price: Decimal
    day: date
    at: datetime
    at_us: datetime
    stamp: fp.Instant
    clock: time
    hours: timedelta
    big: int
    data: bytes


def test_mysql_connectors_defaults() -> None:
    """DECIMAL, DATE, DATETIME and DATETIME(6), TIMESTAMP, TIME (longer than a day, too), BLOB, with the schema and without."""
    columns = {
        "price": decimal_column(4),
        "day": column("int32", TIME + "Date"),
        "at": column("int64", TIME + "Timestamp"),
        "at_us": column("int64", TIME + "MicroTimestamp"),
        "stamp": column("string", TIME + "ZonedTimestamp"),
        "clock": column("int64", TIME + "MicroTime"),
        "hours": column("int64", TIME + "MicroTime"),
        "big": column("int64"),
        "data": column("bytes"),
    }
    row = {
        "price": unscaled(-1),
        "day": -1,
        "at": 1465581029100,
        "at_us": -1,
        "stamp": "2016-06-10T17:50:29Z",
        "clock": 17_764_000_000,
        "hours": -3_020_399_000_000,
        "big": 2**63 - 1,
        "data": "AA==",
    }
    sale = Sale(
        Decimal("-0.0001"),
        date(1969, 12, 31),
        datetime(2016, 6, 10, 17, 50, 29, 100000),  # noqa: DTZ001
        datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
        datetime(2016, 6, 10, 17, 50, 29, tzinfo=UTC),
        time(4, 56, 4),
        -timedelta(hours=838, minutes=59, seconds=59),
        2**63 - 1,
        b"\0",
    )
    assert read(DebeziumJsonDeserializationSchema(Sale), message(columns, None, row))[0].before == sale
    without = DebeziumJsonDeserializationSchema(
        Sale, False, "precise", "adaptive_time_microseconds", fraction_digits={"price": 4, "at": 0, "at_us": 6}
    )
    assert read(without, message(None, row))[0].after == sale


def test_base64_that_is_digits_is_never_read_as_digits() -> None:
    """ "1234" is base64, too: what it is depends on the schema or on decimal_handling_mode alone, and without them it is bad."""
    assert one(Decimal, decimal_column(2), "1234") == Decimal("-26588.24")  # 0xd76df8
    assert one(Decimal, column("string"), "1234") == 1234
    assert one(Decimal, None, "1234", decimal_handling_mode="string") == 1234
    assert one(Decimal, None, unscaled(1234), decimal_handling_mode="precise", fraction_digits={"x": -2}) == 123400
    for raw in ("1234", "12.5"):
        assert "decimal_handling_mode" in one(Decimal | None, None, raw)
        assert "fraction_digits={'x': …}" in one(Decimal, None, raw, decimal_handling_mode="precise")
        assert "double is not" in one(Decimal, column("double"), raw)
        assert "bytes is not" in one(Decimal, column("bytes"), raw)
        assert "1" in one(Decimal, None, raw, decimal_handling_mode="double")
    assert "expected a Decimal as base64" in one(Decimal, decimal_column(2), "12.5")
    for number in (12.5, 7):  # decimal.format=NUMERIC, or decimal.handling.mode=double
        assert one(Decimal, decimal_column(2), number) == Decimal(str(number)) == one(Decimal, None, number)


def test_a_decimal_in_other_declared_types() -> None:
    """Whole ones are ints, as of BIGINT UNSIGNED; none is a float; ANY is a Decimal."""
    assert one(int, decimal_column(0), unscaled(2**62)) == 2**62
    assert "declare the field Decimal" in one(int, decimal_column(1), unscaled(15))
    assert "declare the field Decimal" in one(float, decimal_column(1), "Infinity")
    assert one(Any, decimal_column(1), unscaled(15)) == Decimal("1.5")
    assert one(int | Decimal | None, decimal_column(1), unscaled(15)) == Decimal("1.5")
    assert one(str, decimal_column(1), "1234") == "1234"


@examples(20)
@given(st.integers(-(10**60), 10**60), st.integers(-40, 40))
def test_any_decimal(value: int, scale: int) -> None:
    """Any unscaled value and scale, of a fixed and of a variable scale, with all digits and the scale of the column."""
    expected = repr(Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -scale)))
    assert repr(one(Decimal, decimal_column(scale), unscaled(value))) == expected
    assert repr(one(Decimal, VARIABLE, {"scale": scale, "value": unscaled(value)})) == expected
    modes = {"decimal_handling_mode": "precise", "fraction_digits": {"x": scale}}
    assert repr(one(Decimal, None, unscaled(value), **modes)) == expected


EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001


@examples(20)
@given(st.datetimes(), st.integers(0, 999))
def test_any_time(at: datetime, nanos: int) -> None:
    """Any date, time and timestamp in each unit and mode; digits beyond the unit are cut off, before 1970, too."""
    micros = (at - EPOCH) // timedelta(microseconds=1)
    in_ms = EPOCH + timedelta(milliseconds=micros // 1000)
    day_micros = micros % 86_400_000_000
    days = at.toordinal() - EPOCH.toordinal()
    for type, zone in ((datetime, None), (fp.Instant, UTC)):
        for name, raw, digits, expected in (
            ("Timestamp", micros // 1000, 3, in_ms),
            ("MicroTimestamp", micros, 6, at),
            ("NanoTimestamp", micros * 1000 + nanos, 7, at),
        ):
            aware = expected.replace(tzinfo=zone)
            assert one(type, column("int64", TIME + name), raw) == aware
            assert one(type, None, raw, time_precision_mode="adaptive", fraction_digits={"x": digits}) == aware
        assert one(type, column("int64", CONNECT + "Timestamp"), micros // 1000) == in_ms.replace(tzinfo=zone)
        assert one(type, None, micros // 1000, time_precision_mode="connect") == in_ms.replace(tzinfo=zone)
    iso = at.isoformat(timespec="microseconds")
    assert one(datetime, column("string", TIME + "IsoTimestamp"), iso + "Z") == at
    assert one(datetime, None, iso + "Z", time_precision_mode="isostring") == at
    assert one(fp.Instant, column("string", TIME + "ZonedTimestamp"), f"{iso}{nanos:03}Z") == at.replace(tzinfo=UTC)
    for mode in ("adaptive", "adaptive_time_microseconds", "connect"):
        assert one(date, None, days, time_precision_mode=mode) == at.date()
    assert one(date, column("int32", CONNECT + "Date"), days) == at.date()
    for name, raw, clock in (
        (TIME + "Time", day_micros // 1000, in_ms.time()),
        (CONNECT + "Time", day_micros // 1000, in_ms.time()),
        (TIME + "MicroTime", day_micros, at.time()),
        (TIME + "NanoTime", day_micros * 1000 + nanos, at.time()),
    ):
        assert one(time, column("int64", name), raw) == one(Any, column("int64", name), raw) == clock


def test_a_value_that_does_not_fit_is_bad_and_says_why() -> None:
    """PostgreSQL's infinity, hours of MySQL's TIME, numbers without a known unit, and text where bytes are declared."""
    stamp = column("int64", TIME + "MicroTimestamp")
    assert one(datetime, stamp, 2**63 - 1) == "after: x: 9223372036854775807 is out of range for a timestamp"
    assert one(datetime, stamp, 10**30).endswith("out of range for a timestamp")
    assert one(time, column("int64", TIME + "MicroTime"), -1) == "after: x: -1 is out of range for a time"
    assert one(date, column("int32", TIME + "Date"), 10**9).endswith("out of range for a date")
    for type in (date, datetime, time, timedelta, fp.Instant):
        assert "time_precision_mode: give it" in one(type, None, 5)
    for mode in ("adaptive", "adaptive_time_microseconds"):
        assert "fraction_digits={'x': …}" in one(datetime, None, 5, time_precision_mode=mode)
    assert "declare int" in one(timedelta, None, 5, time_precision_mode="connect")
    assert "expected datetime as text" in one(datetime, column("int64"), 5)
    assert "expected datetime as text" in one(datetime, stamp, 1.5)
    assert "binary_handling_mode" in one(bytes, column("string"), "BEEF")
    assert "as hex" in one(bytes, column("string"), "xyz", binary_handling_mode="hex")
    assert one(int, stamp, 5) == 5
    assert "expected JSON" in one(Document, column("string"), "{")


def test_intervals() -> None:
    """Microseconds by default; text has each unit, and with years or months it is no timedelta."""
    span = timedelta(days=1, hours=2, minutes=3, seconds=4.5)
    for of in (column("string", TIME + "Interval"), None):
        assert one(timedelta | None, of, "P0Y0M1DT2H3M4.5S") == span
        assert "units" in one(timedelta, of, "P1Y2M3DT4H5M6.78S")
    assert one(timedelta, None, span // timedelta(microseconds=1), time_precision_mode="adaptive") == span
    assert one(timedelta, column("int64", TIME + "NanoDuration"), -1) == -timedelta(microseconds=1)
    assert one(Any, column("int64", TIME + "MicroDuration"), 5) == timedelta(microseconds=5)


def test_values_of_unions_and_maps() -> None:
    """A value in a union is what the schema says; without one a number stays the int that it may be."""
    stamp = column("int64", TIME + "MicroTimestamp")
    assert one(int | datetime, stamp, 0) == EPOCH
    assert one(int | datetime, None, 5) == 5
    assert one(dict[str, Decimal], column("map", values=decimal_column(1)), {"a": unscaled(15)}) == {"a": Decimal("1.5")}
    assert one(dict[int, Decimal], column("map", values=decimal_column(1)), [[1, unscaled(15)]]) == {1: Decimal("1.5")}
    assert one(dict[str, str], column("string", DATA + "Json"), '{"a": "1"}') == {"a": "1"}
    assert one(Any, column("string", DATA + "Json"), '{"a": [null]}') == {"a": [None]}
    assert one(str, column("string", DATA + "Json"), '{"a": 1}') == '{"a": 1}'


def test_bytes_in_the_modes_of_binary_handling() -> None:
    """The same text is other bytes in another mode: the schema says that it is text, the option which."""
    for of in (column("string"), None):
        assert one(bytes, of, "beef", binary_handling_mode="hex") == b"\xbe\xef"
        assert one(bytes, of, "beef", binary_handling_mode="base64") == base64.b64decode("beef")
        assert one(bytes | None, of, "-_8=", binary_handling_mode="base64-url-safe") == b"\xfb\xff"
    assert one(bytes | str, column("string"), "beef") in ("beef", base64.b64decode("beef"))


class Reader(FormatReader[Any]):
    """Reads messages as sources with formats do."""

    def read(self, split: Any) -> Any:
        schema = DebeziumJsonDeserializationSchema(Order)
        return self._found(
            schema.deserialize_batch(messages(*split)), len(split), lambda at: Unread("m", {"at": str(at)}, split[at])
        )


def test_a_value_that_cannot_be_read_is_a_dead_letter() -> None:
    """Beside good messages, with the message as it is and the column that is wrong."""
    reader = Reader(fp.OutputTag("bad", fp.DeadLetter), "", logging.getLogger(__name__))
    reader.open(ReaderContext("orders", 0))
    good, bad = message(POSTGRES, ROW), message(POSTGRES, {**ROW, "prices": ["1234", "12.5"]})
    (found,) = reader.read([good, bad, good])
    ((letter,),) = (side.elements for side in found.sides)
    assert (letter.source, letter.place, letter.data) == ("orders", {"at": "1"}, bad)
    assert letter.problem == "after: prices: expected a Decimal as base64 with a scale, got '12.5' and the scale '1'"
    assert [change.after for change in change_type(Order).from_columns(found.elements.columns)] == [ORDER, ORDER]


def test_elements_have_the_time_of_their_message() -> None:
    """Also when there are as many elements as messages: two of one, none of the other."""
    reader = Reader("fail", "", logging.getLogger(__name__))
    (found,) = reader._found(Deserialized([1, 2], [0, 0]), 2, lambda at: Unread("m", {}, b""), np.array([10, 20]))
    assert list(found.timestamps) == [10, 10]


@pytest.mark.parametrize(
    ("modes", "problem"),
    [
        ({"decimal_handling_mode": "exact"}, "'precise', 'double', 'string'"),
        ({"time_precision_mode": "micros"}, "'adaptive'"),
        ({"binary_handling_mode": None}, "'hex'"),
        ({"fraction_digits": {"x": "2"}}, "fraction_digits of 'x'"),
    ],
)
def test_wrong_options_are_refused_where_they_are_given(modes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        DebeziumJsonDeserializationSchema(Order, **modes)


JSON: Any = st.recursive(
    st.none()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["1234", "x", "", "=", CONNECT + "Decimal"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["scale", "value", "name", "fields"]), inner),
    max_leaves=4,
)


@examples(30)
@given(st.sampled_from(sorted(POSTGRES)), JSON, JSON, st.booleans())
def test_a_message_is_an_element_or_bad_whatever_its_schema_says(name: str, of: Any, raw: Any, schema: bool) -> None:
    """No schema and no value stop a job with another error, and a bad message takes no other with it."""
    columns: dict[str, Any] = {**POSTGRES, name: {**POSTGRES[name], **of} if isinstance(of, dict) else POSTGRES[name]}
    text = message(columns, {**ROW, name: raw})
    if schema:
        text = text.replace(b'"fields": [', b'"fields": [' + json.dumps(of).encode() + b", ", 1)
    reader = DebeziumJsonDeserializationSchema(Order)
    found = reader.deserialize_batch(messages(message(POSTGRES, ROW), text, message(POSTGRES, ROW)))
    assert {each.index for each in found.bad} <= {1}
    assert [each.after for each in elements(reader, found)][:: 1 + (not found.bad)] == [ORDER, ORDER]
