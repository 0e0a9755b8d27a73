"""Formats of a table's messages: what one writes, it reads again."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import forkpoint as fp
from forkpoint.connectors.formats.avro import AvroRowDeserializationSchema
from forkpoint.relational.changes import row_type
from forkpoint.sql.errors import SqlError, Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import CreateTable
from forkpoint.table.connectors.batches import Columns
from forkpoint.table.connectors.formats import deserialization, serialization
from forkpoint.table.connectors.options import TableOptions
from servers.schema_registry import schema_registry

COLUMNS = (
    "a BOOLEAN, b TINYINT, c SMALLINT, d INT NOT NULL, e BIGINT, f FLOAT, g DOUBLE, h STRING, i BYTES, j DATE, k DECIMAL(10, 2), "
    "l ARRAY<INT>, m MAP<STRING, BIGINT>, n ROW<x INT, y ROW<z STRING>>"
)
VALUES = (True, -1, 300, 70000, 2**40, 0.5, 0.1, "ä", b"\xff", date(2020, 1, 2), Decimal("-12.34"), [1, None], {"k": 1})
TIMES = ", o TIMESTAMP(3), p TIMESTAMP_LTZ(3)"


def options(columns: str, given: str) -> TableOptions:
    source = Text(f"CREATE TABLE t ({columns}) WITH ('connector' = 'kafka', 'topic' = 't', {given})")
    (table,) = parse(source)
    assert isinstance(table, CreateTable)
    return TableOptions(table)


def written(of: TableOptions, *rows: fp.Row) -> pa.BinaryArray:
    type = row_type(of.table.schema)
    batch = Columns(pa.RecordBatch.from_arrays(type.to_columns(list(rows)), schema=type.arrow_schema), type)
    return serialization(of, of.table.schema).serialize_batch(batch).cast(pa.binary())


def read(of: TableOptions, messages: pa.BinaryArray) -> list[Any]:
    found = deserialization(of, of.table.schema).deserialize_batch(messages)
    assert not found.bad
    return row_type(of.table.schema).from_columns(found.elements.columns)


def rows(*times: Any) -> list[fp.Row]:
    full = fp.Row(*VALUES, fp.Row(x=1, y=fp.Row(z="b")), *times)
    return [full, fp.Row(*(value if at == 3 else None for at, value in enumerate(full)))]


def test_timestamps_in_json_have_flinks_forms_at_any_depth() -> None:
    """Of a row with nested values, and of plain columns, which are encoded in another way."""
    time = datetime(2020, 12, 30, 12, 13, 14, 500_000)  # noqa: DTZ001
    instant = datetime(2020, 12, 30, 12, 13, 10, tzinfo=UTC)
    for columns, row in (
        ("o TIMESTAMP(3), p TIMESTAMP_LTZ(3)", fp.Row(time, instant)),
        ("o ARRAY<TIMESTAMP>, p ROW<q TIMESTAMP_LTZ>", fp.Row([time], fp.Row(q=instant))),
    ):
        for given, texts in (
            ("", (b"2020-12-30 12:13:14.5", b"2020-12-30 12:13:10Z")),
            (", 'json.timestamp-format.standard' = 'ISO-8601'", (b"2020-12-30T12:13:14.500000", b"2020-12-30T12:13:10Z")),
        ):
            of = options(columns, "'format' = 'json'" + given)
            messages = written(of, row)
            assert re.findall(rb'"(2020[^"]*)"', messages[0].as_py()) == list(texts)
            assert read(of, messages) == [row]
    of = options("o TIMESTAMP, x DOUBLE", "'format' = 'debezium-json'")
    assert b"2020-12-30 12:13:14.5" in written(of, fp.Row(time, 1.0))[0].as_py()


def test_avro() -> None:
    of = options(COLUMNS, "'format' = 'avro'")
    messages = written(of, *rows())
    assert read(of, messages) == rows()
    with pytest.raises(SqlError, match=re.escape("column 'o': Avro has times in milliseconds or microseconds; give the schema")):
        written(options(COLUMNS + TIMES, "'format' = 'avro'"), *rows(None, None))
    millis = (
        '{"type": "record", "name": "r", "fields": [{"name": "p", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}'
    )
    of = options("p TIMESTAMP_LTZ(3)", f"'format' = 'avro', 'avro.schema' = '{millis}'")
    messages = written(of, fp.Row(datetime(2020, 1, 2, 3, 4, 5, 678000, UTC)))
    (element,) = AvroRowDeserializationSchema(
        avro_schema_string=millis.replace('"logicalType": "timestamp-millis"', '"x": 1')
    ).read(messages)
    assert element.elements.to_pylist() == [{"p": 1577934245678}]
    assert read(of, messages) == [fp.Row(datetime(2020, 1, 2, 3, 4, 5, 678000, UTC))]


def test_avro_with_a_schema_registry() -> None:
    with schema_registry() as server:
        of = options(COLUMNS + TIMES, f"'format' = 'avro-confluent', 'avro-confluent.url' = '{server.url}'")
        times = datetime(2020, 1, 2, 3, 4, 5, 678901), datetime(1969, 12, 31, 23, 0, 0, 1, UTC)  # noqa: DTZ001 (without a zone)
        assert read(of, written(of, *rows(*times))) == rows(*times)
        assert list(server.subjects) == ["t-value"]


def test_raw() -> None:
    text, data = options("k STRING", "'format' = 'raw'"), options("k BYTES", "'format' = 'raw'")
    assert written(text, fp.Row("ä"), fp.Row(None)).to_pylist() == ["ä".encode(), None]
    messages = pa.array(["ä".encode(), None, b"\xff"])
    found = deserialization(text, text.table.schema).deserialize_batch(messages)
    assert (found.elements.to_pylist(), found.indices, [each.index for each in found.bad]) == ([{"k": "ä"}], [0], [2])
    assert read(data, messages) == [fp.Row("ä".encode()), fp.Row(b"\xff")]
    with pytest.raises(SqlError, match="has one column, of type STRING or BYTES"):
        read(options("k STRING, v INT", "'format' = 'raw'"), messages)
