"""What a file sink writes, a file source, pandas and DuckDB read: equal rows, in the types that they have."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import duckdb
import pandas as pd
import pytest
from connector_reading import Elements, json_round_trip, read_planned
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import orc

from example_counts import examples
from forkpoint import FileSink, FileSource, Instant, Row, Types
from forkpoint.contract.sink import SinkContext
from forkpoint.errors import ConfigError, RecordParseError, TypeNotSupported
from forkpoint.types import TypeInformation, type_of


class Color(Enum):
    RED = "red"
    BLUE = "blue, dark"


class Level(Enum):
    LOW = 1
    HIGH = 2


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["", " ", '"', '""', "a,b", "a\nb", "a\r", "\r\n", "#", "null", "NaN", "\t", "\ufeff"]
)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(),
    str: TEXT,
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    date: st.dates(),
    time: st.times().map(lambda at: at.replace(fold=0)),
    datetime: st.datetimes().map(lambda at: at.replace(fold=0)),
    Instant: st.datetimes(timezones=st.just(UTC)).map(lambda at: at.replace(fold=0)),
    timedelta: st.timedeltas(timedelta(-(10**8)), timedelta(10**8)),
    UUID: st.uuids(),
    Color: st.sampled_from(Color),
    Level: st.sampled_from(Level),
    Literal["a", "b"]: st.sampled_from(["a", "b"]),
}
NESTED: dict[Any, st.SearchStrategy[Any]] = {
    bytes: st.binary(max_size=4),
    list[int]: st.lists(st.integers(-9, 9), max_size=3),
    dict[str, str]: st.dictionaries(TEXT, TEXT, max_size=2),
}


@dataclass
class Written:
    """Rows of some columns. ``of``: the class of each column, ``may_be_none``: whether it has None, too."""

    of: list[Any]
    may_be_none: list[bool]
    rows: list[tuple[Any, ...]]
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = [f"c{i}" for i in range(len(self.of))]

    @property
    def type(self) -> TypeInformation[Any]:
        declared = [type_of(of | None if none else of) for of, none in zip(self.of, self.may_be_none, strict=True)]
        return Types.ROW_NAMED(self.names, declared)

    def of_class(self, *classes: Any) -> list[int]:
        return [i for i, of in enumerate(self.of) if of in classes]


@st.composite
def written(draw: st.DrawFn, values: dict[Any, st.SearchStrategy[Any]]) -> Written:
    of = draw(st.lists(st.sampled_from(list(values)), min_size=1, max_size=4))
    none = draw(st.lists(st.booleans(), min_size=len(of), max_size=len(of)))
    columns = [st.none() | values[each] if may else values[each] for each, may in zip(of, none, strict=True)]
    return Written(of, none, draw(st.lists(st.tuples(*columns), min_size=1, max_size=5)))


def write(sink: FileSink, values: list[Any], type: Any) -> None:
    writer = sink.create_writer(SinkContext("out", "job", 1, 0, "0", 1))
    writer.write(Elements(values, type=type_of(type)))
    sink.commit(json_round_trip(writer.prepare_commit()), 1)


def check(kind: str, data: Written, by_others: Callable[[str, Written], None], **options: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        rows = [Row(**dict(zip(data.names, row, strict=True))) for row in data.rows]
        write(getattr(FileSink, kind)(directory), rows, data.type)
        source = getattr(FileSource, kind)(directory, data.type, bounded=True, **options)
        (file,) = map(str, Path(directory).glob("part-*"))
        # repr, as NaN is no NaN, and 0.0 is -0.0
        assert [repr(tuple(row)) for row in read_planned(source)] == list(map(repr, data.rows)), Path(file).read_bytes()
        by_others(file, data)


def same(found: Any, expected: Any) -> bool:
    """Whether another reader's value is this one; its None may be NaN."""
    if expected is None or found is None or found is pd.NaT or expected != expected:
        return (found is None or found != found) and (expected is None or expected != expected)
    return bool(found == expected)


def assert_columns(found: list[tuple[Any, ...]], data: Written, columns: list[int]) -> None:
    assert len(found) == len(data.rows)
    for values, expected in zip(found, data.rows, strict=True):
        assert all(same(values[i], expected[i]) for i in columns), (values, expected)


@given(written(PLAIN))
@example(Written([int], [True], [(None,)]))
@example(Written([str], [False], [("",), (" ",)]))
@example(Written([timedelta, float], [True, True], [(None, None), (timedelta(-1, 5), math.inf)]))
@example(Written([Literal["a", "b"], int], [True, True], [(None, None), ("a", 1)]))
@examples(25)
def test_csv(data: Written) -> None:
    texts = data.of_class(str)  # as text, None is empty
    data.rows = [tuple("" if i in texts and v is None else v for i, v in enumerate(row)) for row in data.rows]
    check("csv", data, csv_by_others, newlines_in_values=any("\n" in row[i] for row in data.rows for i in texts))


def csv_by_others(file: str, data: Written) -> None:
    frame = pd.read_csv(file, dtype=str, keep_default_na=False)
    for i in data.of_class(str):
        assert list(frame[f"c{i}"]) == [row[i] for row in data.rows]
    for i in data.of_class(int, float):
        values = [None if text == "" else data.of[i](text) for text in frame[f"c{i}"]]
        assert all(map(same, values, [row[i] for row in data.rows]))
    assert len(frame) == len(data.rows)
    sql = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", date: "DATE", datetime: "TIMESTAMP"}
    columns = {name: sql.get(of, "VARCHAR") for name, of in zip(data.names, data.of, strict=True)}
    query = f"FROM read_csv('{file}', header=true, auto_detect=false, quote='\"', escape='\"', columns={columns})"
    texts = data.of_class(str)
    rows = duckdb.execute(query).fetchall()
    found = [tuple("" if v is None and i in texts else v for i, v in enumerate(row)) for row in rows]
    assert_columns(found, data, data.of_class(str, *sql))


@given(written({**PLAIN, **NESTED, float: st.floats(allow_nan=False)}))
@examples(25)
def test_json(data: Written) -> None:
    check("json", data, json_by_others)


def json_by_others(file: str, data: Written) -> None:
    assert len(pd.read_json(file, lines=True)) == len(data.rows)
    sql = {bool: "BOOLEAN", int: "BIGINT", str: "VARCHAR", date: "DATE", datetime: "TIMESTAMP", list[int]: "BIGINT[]"}
    columns = {name: sql.get(of, "JSON") for name, of in zip(data.names, data.of, strict=True)}
    query = f"FROM read_json('{file}', format='newline_delimited', columns={columns})"
    assert_columns(duckdb.execute(query).fetchall(), data, data.of_class(*sql))


@given(written({**PLAIN, **NESTED}))
@examples(25)
def test_parquet(data: Written) -> None:
    check("parquet", data, parquet_by_others)


def parquet_by_others(file: str, data: Written) -> None:
    known = data.of_class(bool, int, float, str, date, datetime, bytes, list[int])
    names = ", ".join(name if i in known else "NULL" for i, name in enumerate(data.names))
    assert_columns(duckdb.execute(f"SELECT {names} FROM read_parquet('{file}')").fetchall(), data, known)
    frame = pd.read_parquet(file, dtype_backend="pyarrow")
    found = [tuple(None if value is pd.NA else value for value in row) for row in frame.itertuples(index=False)]
    assert_columns(found, data, data.of_class(bool, int, str, date, bytes))


FROM, TO = map(datetime.fromisoformat, ("1700-01-01", "2260-01-01"))
ORC: dict[Any, st.SearchStrategy[Any]] = {
    **{of: values for of, values in {**PLAIN, **NESTED}.items() if of not in (time, timedelta, datetime, Instant)},
    datetime: st.datetimes(FROM, TO).map(lambda at: at.replace(fold=0)),
    Instant: st.datetimes(FROM, TO, timezones=st.just(UTC)).map(lambda at: at.replace(fold=0)),
}


@given(written(ORC))
@examples(25)
def test_orc(data: Written) -> None:
    check("orc", data, orc_by_others)


def orc_by_others(file: str, data: Written) -> None:
    found = orc.read_table(file)
    assert found.num_rows == len(data.rows)
    rows = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
    assert_columns(rows, data, data.of_class(bool, int, str, date, bytes))


def test_what_orc_cannot_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ORC has no type for 'x' \\(time64"):
        write(FileSink.orc(tmp_path), [Row(x=time(1))], Types.ROW_NAMED(["x"], [Types.SQL_TIME()]))
    with pytest.raises(TypeNotSupported, match="ORC has times from 1677 to 2262 here"):
        write(
            FileSink.orc(tmp_path), [Row(x=datetime.fromisoformat("2300-01-01"))], Types.ROW_NAMED(["x"], [Types.SQL_TIMESTAMP()])
        )
    (tmp_path / "part.orc").write_bytes(b"x")
    with pytest.raises(RecordParseError, match="not a readable ORC file"):
        read_planned(FileSource.orc(tmp_path, Types.ROW_NAMED(["x"], [Types.INT()]), bounded=True))


@given(st.lists(TEXT.filter(lambda text: "\n" not in text and not text.endswith("\r") and text[:1] != "\ufeff"), min_size=1))
@examples(30)
def test_lines_of_text(lines: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        write(FileSink.text(directory), lines, str)
        assert read_planned(FileSource.text(directory, bounded=True)) == lines


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_spark_reads_what_is_written_also_from_buckets(tmp_path: Path, session: Any, kind: str) -> None:
    table = [
        (1, -0.5, 'a "b", c', True, date(2024, 2, 29), "hall"),
        (None, None, "#", None, None, ""),
        (2**63 - 1, 1e300, " x ", False, date(1, 1, 1), None),
        (-1, 5e-324, "täxt", True, date(9999, 12, 31), "a/b=ü"),
    ]
    data = Written([int, float, str, bool, date, str], [True, True, False, True, True, True], table)
    rows = [Row(**dict(zip(data.names, row, strict=True))) for row in table]
    write(getattr(FileSink, kind)(tmp_path / "all"), rows, data.type)
    write(getattr(FileSink, kind)(tmp_path / "buckets", bucket="c5"), rows, data.type)
    schema = "c0 bigint, c1 double, c2 string, c3 boolean, c4 date"
    options = {"header": True, "escape": '"'} if kind == "csv" else {}

    def found(path: Path) -> list[tuple[Any, ...]]:
        return sorted(map(tuple, session.read.load(str(path), kind, schema + ", c5 string", **options).collect()), key=repr)

    partitions = [(*row[:5], row[5] or None) for row in table]
    assert found(tmp_path / "buckets") == sorted(partitions, key=repr)
    if kind == "csv":  # as text, None is empty for some readers, and "" is None for others
        assert [row[:5] for row in found(tmp_path / "all")] == sorted([row[:5] for row in table], key=repr)
    else:
        assert found(tmp_path / "all") == sorted(table, key=repr)


@pytest.mark.spark
def test_spark_keeps_a_none_that_is_alone_in_its_csv_line(tmp_path: Path, session: Any) -> None:
    write(FileSink.csv(tmp_path), [Row(c0=1), Row(c0=None)], Written([int], [True], []).type)
    found = session.read.csv(str(tmp_path), "c0 bigint", header=True).collect()
    assert [row.c0 for row in found] == [1, None]
