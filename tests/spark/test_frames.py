from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from forkpoint.errors import TypeNotSupported
from forkpoint.spark.frames import check_columns, struct_of, to_declared, type_from_frame
from forkpoint.types import TypeInformation, Types, type_of

pytestmark = pytest.mark.spark

EVERYTHING = (
    "b boolean, i1 tinyint, i2 smallint, i4 int, i8 bigint, f4 float, f8 double, d decimal(10,2), s string, "
    "raw binary, day date, at timestamp, local timestamp_ntz, span interval day to second, tags array<string>, "
    "m map<string,bigint>, inner struct<x: bigint, y: array<struct<z: string>>>"
)


class Event(NamedTuple):
    room: int
    kind: str
    note: str | None


def declared(kind: TypeInformation, batch: pa.RecordBatch) -> list[object]:
    return [value for out in to_declared(iter([batch]), kind, "src") for value in kind.from_columns(out.columns)]


def test_every_column_of_a_frame_has_a_type_and_all_can_be_null() -> None:
    kind = type_from_frame(StructType.fromDDL(EVERYTHING))
    assert kind.column_names == [part.split()[0] for part in EVERYTHING.split(", ") if not part.startswith("y:")]
    assert all(field.type.nullable for field in kind.fields or ())


@pytest.mark.spark
def test_rows_of_a_frame_come_out_as_pythons_values(session: SparkSession) -> None:
    frame = session.sql(
        "select 1Y as i1, cast(2.5 as decimal(10,2)) as d, timestamp '2026-01-02 03:04:05' as at, "
        "timestamp_ntz '2026-01-02 03:04:05' as local, array('a', null) as tags, named_struct('x', 7L) as inner, "
        "cast(null as string) as s, map('k', 1L) as m"
    )
    kind = type_from_frame(frame.schema)
    (row,) = declared(kind, frame.toArrow().to_batches()[0])
    assert tuple(row)[:5] == (  # type: ignore[call-overload]
        1,
        Decimal("2.50"),
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        datetime(2026, 1, 2, 3, 4, 5),  # noqa: DTZ001
        ["a", None],
    )
    assert row.inner.x == 7  # type: ignore[attr-defined]
    assert row.s is None  # type: ignore[attr-defined]
    assert row.m == {"k": 1}  # type: ignore[attr-defined]


def test_types_that_have_no_counterpart_are_named() -> None:
    with pytest.raises(TypeNotSupported, match=r"'a\.b\[\]'.*interval year"):
        type_from_frame(StructType.fromDDL("a struct<b: array<interval year to month>>"))


def test_columns_are_found_by_name_reordered_and_cast() -> None:
    batch = pa.record_batch({"KIND": ["motion"], "extra": [1.5], "note": pa.nulls(1), "room": pa.array([3], pa.int32())})
    assert declared(type_of(Event), batch) == [Event(3, "motion", None)]


def test_tuples_and_single_values_are_found_by_position() -> None:
    batch = pa.record_batch({"a": [1, 2], "b": ["x", "y"]})
    assert declared(type_of(tuple[int, str]), batch) == [(1, "x"), (2, "y")]
    assert declared(Types.STRING(), batch.select(["b"])) == ["x", "y"]


def test_what_does_not_fit_is_told_with_source_column_and_types() -> None:
    kind = type_of(Event)
    good = {"room": [1], "kind": ["m"], "note": [None]}
    with pytest.raises(TypeNotSupported, match=r"'src': the DataFrame has no column 'room' \(it has kind, note\)"):
        declared(kind, pa.record_batch({k: v for k, v in good.items() if k != "room"}))
    with pytest.raises(TypeNotSupported, match=r"'src': the DataFrame has several columns 'room' "):
        declared(kind, pa.record_batch([[1], [2], ["m"], ["n"]], names=["Room", "ROOM", "kind", "note"]))
    with pytest.raises(TypeNotSupported, match=r"'src': column 'room' is double in the DataFrame and int64 in"):
        declared(kind, pa.record_batch({**good, "room": [1.5]}))
    with pytest.raises(TypeNotSupported, match=r"'src': column 'kind' holds 1 nulls but is declared string"):
        declared(kind, pa.record_batch({**good, "kind": pa.array([None], pa.string())}))


def test_columns_are_checked_before_anything_runs() -> None:
    schema = StructType.fromDDL("room bigint, kind string, note string, part int")
    check_columns(schema, type_of(Event), "src", "room", None)
    with pytest.raises(TypeNotSupported, match="'src': the split column 'part' is not a field of the declared type"):
        check_columns(schema, type_of(Event), "src", None, "part")
    with pytest.raises(TypeNotSupported, match="no column 'note'"):
        check_columns(StructType(schema.fields[:2]), type_of(Event), "src", None, None)


def test_struct_of_is_the_schema_of_the_types_columns(session: SparkSession) -> None:
    assert struct_of(type_of(Event).arrow_schema) == StructType.fromDDL("room bigint not null, kind string not null, note string")
    assert struct_of(Types.INSTANT().arrow_schema) == StructType.fromDDL("value timestamp not null")
