"""The columns of tables: their types, new ones, partitions, and what does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema
from pyiceberg.catalog import load_catalog

import forkpoint as fp
from forkpoint.errors import ConfigError
from table_jobs import catalog, make_sink
from table_reading import files, iceberg, read, sunk, table


class Old(NamedTuple):
    id: int
    name: str


class New(NamedTuple):
    id: int
    name: str
    score: float
    tags: list[str] | None = None


def test_columns_that_elements_have_and_the_table_lacks_are_added(kind: str, tmp_path: Path, place: Path) -> None:
    sunk(tmp_path / "a", [Old(1, "ann")], Old, make_sink(kind, str(place)))
    sunk(tmp_path / "b", [New(2, "bob", 0.5, ["x"])], New, make_sink(kind, str(place)))
    sunk(tmp_path / "c", [Old(3, "cid")], Old, make_sink(kind, str(place)))
    none = {"score": None, "tags": None}
    assert read(kind, place) == [
        {"id": 1, "name": "ann", **none},
        {"id": 2, "name": "bob", "score": 0.5, "tags": ["x"]},
        {"id": 3, "name": "cid", **none},
    ]
    upsert = make_sink(kind, str(place), mode="upsert", key=("id",))
    sunk(tmp_path / "d", [Old(2, "rob")], Old, upsert)
    assert read(kind, place)[1] == {"id": 2, "name": "rob", **none}  # the row is replaced


def test_without_evolution_a_new_column_is_refused(kind: str, tmp_path: Path, place: Path) -> None:
    sunk(tmp_path / "a", [Old(1, "ann")], Old, make_sink(kind, str(place)))
    with pytest.raises(ConfigError, match=r"table .* has no column 'score', 'tags'; add it .* or set schema_evolution=True"):
        sunk(tmp_path / "b", [New(2, "bob", 0.5)], New, make_sink(kind, str(place), schema_evolution=False))
    assert len(read(kind, place)) == 1


class Odd(NamedTuple):
    id: str
    name: str


class Listed(NamedTuple):
    id: list[int]
    name: str


def test_a_type_that_does_not_fit_is_refused(kind: str, tmp_path: Path, place: Path) -> None:
    sunk(tmp_path / "a", [New(1, "ann", 1.0)], New, make_sink(kind, str(place)))

    with pytest.raises(ConfigError, match=r"column 'id' is int64, which cannot hold the elements' list.*change the table's"):
        sunk(tmp_path / "b", [Listed([1], "x")], Listed, make_sink(kind, str(place)))
    with pytest.raises(ConfigError, match=r"column 'id' is int64, and the elements' string does not fit: .*'seven'"):
        sunk(tmp_path / "c", [Odd("seven", "x")], Odd, make_sink(kind, str(place)))
    assert len(read(kind, place)) == 1


REQUIRED = pa.schema([pa.field("id", pa.int64(), False), pa.field("name", pa.string()), pa.field("at", pa.int64(), False)])


class Loose(NamedTuple):
    id: int | None
    name: str
    at: int


def test_required_columns_need_values(kind: str, tmp_path: Path, place: Path) -> None:
    if kind == "delta":
        DeltaTable.create(place, REQUIRED)
    else:
        found = load_catalog("default", **catalog(str(place)))
        found.create_namespace("ns")
        found.create_table("ns.counts", REQUIRED)
    with pytest.raises(ConfigError, match="its column 'at' is required, and the elements have no such field; add it"):
        sunk(tmp_path / "a", [Old(1, "ann")], Old, make_sink(kind, str(place)))
    with pytest.raises(ConfigError, match="column 'id' is required, and an element has None there; filter"):
        sunk(tmp_path / "b", [Loose(None, "x", 1)], Loose, make_sink(kind, str(place)))
    sunk(tmp_path / "c", [Loose(1, "x", 2)], Loose, make_sink(kind, str(place)))
    assert read(kind, place) == [{"id": 1, "name": "x", "at": 2}]


class Timed(NamedTuple):
    id: int
    lasts: timedelta


class Anything(NamedTuple):
    id: int
    what: Any


def test_elements_that_are_no_rows_are_refused(kind: str, tmp_path: Path, place: Path) -> None:
    with pytest.raises(ConfigError, match=r"column 'lasts' is duration.* has no type for; map it to a str or int"):
        sunk(tmp_path / "a", [Timed(1, timedelta(1))], Timed, make_sink(kind, str(place)))
    with pytest.raises(ConfigError, match=r"elements of .* are not rows; map them to records"):
        sunk(tmp_path / "b", [1, 2], int, make_sink(kind, str(place)))
    with pytest.raises(ConfigError, match=r"column 'what' is of .*, which no column can hold"):
        sunk(tmp_path / "c", [Anything(1, object)], Anything, make_sink(kind, str(place)))


@dataclass(frozen=True)
class Point:
    x: int
    y: float | None


class Everything(NamedTuple):
    n: int
    real: float
    text: str | None
    raw: bytes
    yes: bool
    day: date
    local: datetime
    number: Decimal
    key: UUID
    point: Point
    many: list[Point]
    named: dict[str, int]


def everything(n: int) -> Everything:
    return Everything(
        n,
        n / 3,
        None if n % 2 else f"täxt {n}",
        bytes([n]),
        n % 2 == 0,
        date(2024, 2, 29) + timedelta(n),
        datetime(1969, 12, 31, 23, 59, 59, n),  # noqa: DTZ001
        Decimal(n) / 8,
        UUID(int=n),
        Point(n, None),
        [Point(n, 0.5)] * n,
        {"a": n},
    )


def test_values_of_all_types(kind: str, tmp_path: Path, place: Path) -> None:
    values = [everything(n) for n in range(5)]
    sunk(tmp_path / "root", values, Everything, make_sink(kind, str(place)), 2)
    found = sorted(read(kind, place), key=lambda row: row["n"])
    for row, value in zip(found, values, strict=True):
        assert {**row, "named": dict(row["named"])} == {
            **value._asdict(),
            "number": str(value.number),
            "key": str(value.key),
            "point": {"x": value.n, "y": None},
            "many": [{"x": value.n, "y": 0.5}] * value.n,
            "local": row["local"],
        }
        assert row["local"].replace(tzinfo=None) == value.local
    assert duckdb.read_parquet(files(kind, place)).filter("n = 3").fetchall()[0][1] == 1.0
    assert duckdb.read_parquet(files(kind, place)).aggregate("sum(n)").fetchall() == [(10,)]


class Instant(NamedTuple):
    id: int
    at: Any


def test_instants_are_times_of_utc(kind: str, tmp_path: Path, place: Path) -> None:
    type = fp.Types.ROW_NAMED(["id", "at"], [fp.Types.LONG(), fp.Types.INSTANT()])
    at = datetime(2024, 5, 1, 12, tzinfo=UTC)
    sunk(tmp_path / "root", [fp.Row(id=1, at=at)], type, make_sink(kind, str(place)))
    assert read(kind, place) == [{"id": 1, "at": at}]
    assert table(kind, place).schema.field("at").type.tz == "UTC"


class Event(NamedTuple):
    id: int
    city: str | None
    day: date
    open: bool


CITIES = ["a b/c", "ü%=", None, " ", "x" * 40]


def test_partitions_by_values(kind: str, tmp_path: Path, place: Path) -> None:
    events = [Event(n, CITIES[n % 5], date(2024, 1, 1 + n % 2), n % 3 == 0) for n in range(20)]
    sink = make_sink(kind, str(place), partition_by=("city", "day", "open"))
    sunk(tmp_path / "root", events, Event, sink, 10)
    found = sorted(read(kind, place), key=lambda row: row["id"])
    assert found == [e._asdict() for e in events]
    if kind == "delta":
        chosen = DeltaTable(place).to_pyarrow_table(filters=[("day", "=", date(2024, 1, 2)), ("open", "=", True)])
        assert DeltaTable(place).metadata().partition_columns == ["city", "day", "open"]
    else:
        chosen = iceberg(place).scan("day = '2024-01-02' and open = true").to_arrow()
        assert [field.name for field in iceberg(place).spec().fields] == ["city", "day", "open"]
    assert sorted(chosen.column("id").to_pylist()) == [e.id for e in events if e.day.day == 2 and e.open]


@pytest.mark.parametrize("text", ["", "__HIVE_DEFAULT_PARTITION__"])
@pytest.mark.parametrize(
    "options",
    [{}, {"commit_every": timedelta(seconds=1)}, {"mode": "upsert", "key": "id"}],
    ids=["append", "together", "upsert"],
)
def test_a_text_that_delta_takes_for_null_in_partitions_is_refused(
    tmp_path: Path, place: Path, text: str, options: dict[str, Any]
) -> None:
    day = date(2024, 1, 1)
    sink = make_sink("delta", str(place), partition_by="city", **options)
    sunk(tmp_path / "root", [Event(1, "Bonn", day, True), Event(2, None, day, True)], Event, sink)
    with pytest.raises(
        ConfigError,
        match=rf"sink 'table': Delta table .*: an element has '{text}' in the partition column 'city', where Delta Lake reads "
        "that as null; map it",
    ):
        sunk(tmp_path / "other", [Event(3, "Kyoto", day, True), Event(4, text, day, True)], Event, sink)
    assert [(row["id"], row["city"]) for row in read("delta", place)] == [(1, "Bonn"), (2, None)]


def test_an_iceberg_partition_may_be_an_empty_text(tmp_path: Path, place: Path) -> None:
    sink = make_sink("iceberg", str(place), partition_by="city")
    sunk(tmp_path / "root", [Event(1, "", date(2024, 1, 1), True), Event(2, None, date(2024, 1, 1), True)], Event, sink)
    assert [(row["id"], row["city"]) for row in read("iceberg", place)] == [(1, ""), (2, None)]


class Upper(NamedTuple):
    ID: int
    name: str


class Twice(NamedTuple):
    id: int
    Id: int


class Boxed(NamedTuple):
    box: list[Old]


class BoxedUpper(NamedTuple):
    box: list[Upper]


class BoxedTwice(NamedTuple):
    box: list[Twice]


@pytest.mark.parametrize(
    ("before", "elements", "message"),
    [
        ([Old(1, "ann")], [Upper(2, "bob")], "the elements' field 'ID' differs from its column 'id' only in case"),
        ([], [Twice(1, 2)], "the elements' field 'Id' differs from the field 'id' only in case"),
        (
            [Boxed([Old(1, "a")])],
            [BoxedUpper([Upper(1, "a")])],
            "column 'box': the elements' field 'ID' differs from its",
        ),
        ([], [BoxedTwice([Twice(1, 2)])], "column 'box': the elements' field 'Id' differs from the field 'id'"),
    ],
)
def test_names_that_differ_in_case_only_are_refused_by_delta(
    tmp_path: Path, place: Path, before: list[Any], elements: list[Any], message: str
) -> None:
    if before:
        sunk(tmp_path / "before", before, type(before[0]), make_sink("delta", str(place)))
    for given in ([], elements):  # at the start
        with pytest.raises(ConfigError, match=rf"sink 'table': Delta table .*{message}.*; give the field the column's name"):
            sunk(tmp_path / "root", given, type(elements[0]), make_sink("delta", str(place)))


def test_what_does_not_fit_is_refused_at_the_start(kind: str, tmp_path: Path, place: Path) -> None:
    sunk(tmp_path / "a", [New(1, "ann", 1.0)], New, make_sink(kind, str(place)))

    with pytest.raises(ConfigError, match=r"sink 'table': .*column 'id' is int64, which cannot hold the elements' list"):
        sunk(tmp_path / "b", [], Listed, make_sink(kind, str(place)))
    with pytest.raises(ConfigError, match=r"sink 'table': .*the elements have no key column 'nr'"):
        sunk(tmp_path / "c", [], Old, make_sink(kind, str(place), mode="upsert", key="nr"))
    with pytest.raises(ConfigError, match=r"sink 'table': .*key column 'tags' is list.*, which cannot identify rows"):
        sunk(tmp_path / "d", [], New, make_sink(kind, str(place), mode="upsert", key=("id", "tags")))
    with pytest.raises(ConfigError, match=r"sink 'table': .*elements of .* are not rows"):
        sunk(tmp_path / "e", [], int, make_sink(kind, str(place)))


def test_a_table_that_cannot_be_reached_at_the_start_is_no_mistake(tmp_path: Path) -> None:
    away = {"type": "rest", "uri": "http://127.0.0.1:1"}
    for sink in (fp.IcebergSink(away, "ns.counts"), fp.IcebergSink({}, "ns.counts")):
        sunk(tmp_path / "a", [], Old, sink)
        with pytest.raises(ConfigError, match=r"elements of .* are not rows"):
            sink.check_type(fp.Types.LONG())


def test_columns_that_a_new_table_cannot_be_partitioned_by(kind: str, tmp_path: Path, place: Path) -> None:
    with pytest.raises(ConfigError, match=r"sink 'table': .* cannot be partitioned by column 'tags', which is list"):
        sunk(tmp_path / "a", [], New, make_sink(kind, str(place), partition_by="tags"))
    if kind == "delta":
        with pytest.raises(ConfigError, match="cannot be partitioned by column 'raw', which holds bytes"):
            sunk(tmp_path / "b", [], Everything, make_sink(kind, str(place), partition_by="raw"))


def test_partitions_of_values_that_are_lacking(kind: str, tmp_path: Path, place: Path) -> None:
    sunk(
        tmp_path / "a",
        [Event(1, "b", date(2024, 1, 1), True)],
        Event,
        make_sink(kind, str(place), partition_by=("city",)),
    )

    class Bare(NamedTuple):
        id: int

    sunk(tmp_path / "b", [Bare(2)], Bare, make_sink(kind, str(place)))
    assert [(row["id"], row["city"]) for row in read(kind, place)] == [(1, "b"), (2, None)]


def test_a_column_to_partition_by_that_is_missing(kind: str, tmp_path: Path, place: Path) -> None:
    with pytest.raises(ConfigError, match=r"the elements have no column 'town' to partition by; .* are id, name: correct"):
        sunk(tmp_path / "a", [Old(1, "ann")], Old, make_sink(kind, str(place), partition_by=("town",)))


class Visit(NamedTuple):
    id: int
    at: datetime
    who: str


def test_iceberg_partitions_by_transforms(tmp_path: Path, place: Path) -> None:
    visits = [Visit(n, datetime(2024, 1, 1 + n % 3, n), f"name {n}") for n in range(12)]  # noqa: DTZ001
    by = ("day(at)", "bucket(4, id)", "truncate(6, who)")
    sunk(tmp_path / "root", visits, Visit, make_sink("iceberg", str(place), partition_by=by), 6)
    assert [str(field.transform) for field in iceberg(place).spec().fields] == ["day", "bucket[4]", "truncate[6]"]
    assert sorted(row["id"] for row in read("iceberg", place)) == list(range(12))
    chosen = iceberg(place).scan("at >= '2024-01-02T00:00:00' and at < '2024-01-03T00:00:00'")
    assert sorted(chosen.to_arrow().column("id").to_pylist()) == [v.id for v in visits if v.at.day == 2]
    assert len(list(chosen.plan_files())) == 4
    upsert = make_sink("iceberg", str(place), mode="upsert", key=("id",))
    sunk(tmp_path / "other", [Visit(3, datetime(2025, 1, 1), "new")], Visit, upsert)  # noqa: DTZ001
    assert [row["who"] for row in read("iceberg", place) if row["id"] == 3] == ["new"]
    with pytest.raises(ConfigError, match=r"partition_by='bucket\(id\)' is not a transform; give \"bucket\(16, id\)\""):
        make_sink("iceberg", str(place), partition_by=("bucket(id)",))
    with pytest.raises(ConfigError, match=r"partition_by='week\(at\)' is not a transform; there are .* as in \"day\(at\)\""):
        make_sink("iceberg", str(place), partition_by="week(at)")


def test_an_iceberg_transform_that_does_not_fit_the_column(tmp_path: Path, place: Path) -> None:
    sink = make_sink("iceberg", str(place), partition_by="month(who)")
    with pytest.raises(ConfigError, match=r"cannot be partitioned by month of column 'who': .*Correct partition_by="):
        sunk(tmp_path / "root", [Visit(1, datetime(2024, 1, 1), "ann")], Visit, sink)  # noqa: DTZ001


@pytest.mark.parametrize(
    ("properties", "message"),
    [({"type": "nope"}, "'nope' is not a valid CatalogType"), ({"type": "sql"}, "URI missing"), ({}, "URI missing")],
)
def test_an_iceberg_catalog_that_does_not_exist(tmp_path: Path, properties: dict[str, str], message: str) -> None:
    with pytest.raises(
        ConfigError,
        match=f"sink 'table': Iceberg table ns.counts: the catalog's properties cannot be used: {message}.*\"sql\"",
    ):
        sunk(tmp_path, [Old(1, "ann")], Old, fp.IcebergSink(properties, "ns.counts"))


def test_a_directory_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for directory in ("/proc/table", str(tmp_path / "file" / "table")):
        with pytest.raises(ConfigError, match=r"sink 'table': Delta table .* cannot be written to: .*Correct the path, or grant"):
            sunk(tmp_path / "root", [Old(1, "ann")], Old, fp.DeltaSink(directory))
        properties = {**catalog(str(tmp_path)), "warehouse": f"file://{directory}"}
        with pytest.raises(ConfigError, match=r"sink 'table': Iceberg table .* its files cannot be written: .*Correct the cat"):
            sunk(tmp_path / "root", [Old(1, "ann")], Old, fp.IcebergSink(properties, "ns.counts"))


def test_an_iceberg_table_with_times(tmp_path: Path, place: Path) -> None:
    class Opening(NamedTuple):
        at: time

    sunk(tmp_path / "root", [Opening(time(12, 30))], Opening, make_sink("iceberg", str(place)))
    assert read("iceberg", place) == [{"at": time(12, 30)}]


class Priced(NamedTuple):
    id: int
    price: Decimal


def test_decimals_fit_a_column_of_decimals(kind: str, tmp_path: Path, place: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("price", pa.decimal128(10, 2))])
    if kind == "delta":
        DeltaTable.create(place, schema)
    else:
        found = load_catalog("default", **catalog(str(place)))
        found.create_namespace("ns")
        found.create_table("ns.counts", schema)
    sunk(tmp_path / "a", [Priced(1, Decimal("9.99"))], Priced, make_sink(kind, str(place)))
    assert read(kind, place) == [{"id": 1, "price": Decimal("9.99")}]
    with pytest.raises(ConfigError, match=r"column 'price' is decimal128\(10, 2\), and the elements' string does not fit"):
        sunk(tmp_path / "b", [Priced(1, Decimal("0.125"))], Priced, make_sink(kind, str(place)))


def test_an_iceberg_table_of_other_files_is_refused(tmp_path: Path, place: Path) -> None:
    sunk(tmp_path / "a", [Old(1, "ann")], Old, make_sink("iceberg", str(place)))
    with iceberg(place).transaction() as change:
        change.set_properties({"write.format.default": "orc"})
    with pytest.raises(ConfigError, match=r"requires files in the format orc .* writes Parquet; set the property"):
        sunk(tmp_path / "b", [Old(1, "ann")], Old, make_sink("iceberg", str(place)))


def test_a_delta_table_with_generated_columns_is_refused(tmp_path: Path, place: Path) -> None:
    id = Field("id", "long", metadata={"delta.generationExpression": "1"})
    DeltaTable.create(place, Schema([id, Field("name", "string")]))
    with pytest.raises(ConfigError, match=r"requires .*generat.* of its writers, which DeltaSink does not support"):
        sunk(tmp_path / "b", [Old(1, "ann")], Old, make_sink("delta", str(place)))


def test_a_delta_table_that_demands_more_is_refused(tmp_path: Path, place: Path) -> None:
    sunk(tmp_path / "a", [Old(1, "ann")], Old, make_sink("delta", str(place)))
    DeltaTable(place).alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(ConfigError, match=r"requires .*delta.constraints.positive of its writers, which DeltaSink does not"):
        sunk(tmp_path / "b", [Old(-1, "ann")], Old, make_sink("delta", str(place)))


def test_delta_statistics_let_readers_skip_files(tmp_path: Path, place: Path) -> None:
    sunk(tmp_path / "a", [everything(n) for n in range(4)], Everything, make_sink("delta", str(place)), 4)
    found = pa.table(DeltaTable(place).get_add_actions(flatten=True)).to_pylist()
    found.sort(key=lambda row: row["min.n"])
    assert [(row["num_records"], row["min.n"], row["max.n"], row["null_count.text"]) for row in found] == [
        (2, 0, 1, 1),
        (2, 2, 3, 1),
    ]  # one of each subtask


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "merge"}, "mode='merge' is unknown"),
        ({"mode": "upsert"}, "needs the columns that identify a row"),
        ({"key": ("id",)}, 'has no meaning with mode="append"'),
        ({"partition_by": (1,)}, r"partition_by=\(1,\) are not columns"),
        ({"mode": "upsert", "key": 1}, "key=1 are not columns; give their names"),
    ],
)
def test_options_that_make_no_sense(kind: str, place: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_sink(kind, str(place), **options)


def test_a_table_of_a_catalog_needs_a_namespace() -> None:
    with pytest.raises(ConfigError, match="has no namespace"):
        fp.IcebergSink({}, "counts")
