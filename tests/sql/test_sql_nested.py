"""ARRAY, MAP and ROW: constructors, parts, equality, and columns of files, streams and groups."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from test_sql_functions import evaluated

import forkpoint as fp
from forkpoint.errors import JobFailed
from forkpoint.relational.types import Field, SqlType, array_type, map_type, row_of

LOCAL = {"execution.engine": "local"}
INT, STRING = SqlType("INT"), SqlType("STRING")
SCHEMA = (
    Field("a", array_type(INT)),
    Field("m", map_type(STRING, INT)),
    Field("r", row_of(["x", "y"], [INT, array_type(STRING)])),
    Field("i", INT),
    Field("aa", array_type(row_of(["x"], [INT]))),
)
VALUES: list[list[Any]] = [
    [[1, 2, None], [], None, [7]],
    [[("a", 1), ("b", None)], [], None, [("c", 3)]],
    [{"x": 1, "y": ["p", None]}, {"x": None, "y": None}, None, {"x": 4, "y": []}],
    [2, 1, None, 1],
    [[{"x": 1}], [None], None, []],
]
BATCH = pa.record_batch(
    [pa.array(values, field.type.arrow_type) for values, field in zip(VALUES, SCHEMA, strict=True)],
    [field.name for field in SCHEMA],
)
FUNCTIONS: dict[str, list[Any]] = {
    "a[i]": [2, None, None, 7],
    "a[0]": [None] * 4,
    "m['a']": [1, None, None, None],
    "m[CASE WHEN i = 1 THEN 'c' END]": [None, None, None, 3],
    "r.x + t.r.x": [2, None, None, 8],
    "t.r.y[1]": ["p", None, None, None],
    "aa[1].x": [1, None, None, None],
    "ARRAY[i, 5, NULL]": [[2, 5, None], [1, 5, None], [None, 5, None], [1, 5, None]],
    "ARRAY[1, 2.5]": [[Decimal("1.0"), Decimal("2.5")]] * 4,
    "MAP['a', i, 'a', 3]": [[("a", 3)]] * 4,
    "ROW(i, ROW('x', a))": [
        {"EXPR$0": i, "EXPR$1": {"EXPR$0": "x", "EXPR$1": a}} for i, a in zip(VALUES[3], VALUES[0], strict=True)
    ],
    "CARDINALITY(a)": [3, 0, None, 1],
    "CARDINALITY(m)": [2, 0, None, 1],
    "ELEMENT(ARRAY[i])": VALUES[3],
    "ARRAY_CONTAINS(a, i)": [True, False, None, False],
    "ARRAY_CONTAINS(a, NULL)": [True, False, None, False],
    "a = ARRAY[1, 2, NULL]": [True, False, None, False],
    "m <> MAP['b', CAST(NULL AS INT), 'a', 1]": [False, True, None, True],
    "r IS DISTINCT FROM ROW(4, ARRAY['x'])": [True] * 4,
    "a IN (ARRAY[7], ARRAY[1])": [False, False, None, True],
    "COALESCE(a, ARRAY[9])": [[1, 2, None], [], [9], [7]],
    "CASE WHEN i > 1 THEN m END": [VALUES[1][0], None, None, None],
    "JSON_STRING(r)": ['{"x":1,"y":["p",null]}', '{"x":null,"y":null}', None, '{"x":4,"y":[]}'],
    "JSON_STRING(MAP_UNION(MAP['x', 7], m))": ['{"a":1,"b":null,"x":7}', '{"x":7}', None, '{"c":3,"x":7}'],
    "JSON_STRING(aa)": ['[{"x":1}]', "[null]", None, "[]"],
    "JSON_OBJECT('b' VALUE i ABSENT ON NULL)": ['{"b":2}', '{"b":1}', "{}", '{"b":1}'],
    "JSON_OBJECT('b' VALUE a, KEY 'a' VALUE JSON_ARRAY(i, m['a'], NULL))": [
        '{"a":[2,1],"b":[1,2,null]}',
        '{"a":[1],"b":[]}',
        '{"a":[],"b":null}',
        '{"a":[1],"b":[7]}',
    ],
    "JSON_ARRAY(i, JSON_OBJECT() NULL ON NULL)": ["[2,{}]", "[1,{}]", "[null,{}]", "[1,{}]"],
    "CONCAT_WS('-', r.y[1], CAST(i AS STRING))": ["p-2", "1", "", "1"],
    "CAST(a AS ARRAY<STRING>)": [["1", "2", None], [], None, ["7"]],
    "CAST(m AS MAP<STRING, DECIMAL(5, 2)>)": [[("a", Decimal("1.00")), ("b", None)], [], None, [("c", Decimal("3.00"))]],
}


@pytest.mark.parametrize("expression", FUNCTIONS)
def test_functions(expression: str) -> None:
    assert evaluated(expression, BATCH, SCHEMA) == FUNCTIONS[expression]
    assert evaluated(expression, BATCH.slice(1), SCHEMA) == FUNCTIONS[expression][1:]


@pytest.mark.parametrize("expression", ["ELEMENT(a)", "MAP[CAST(i AS STRING), 1]"])
def test_what_has_no_value_is_an_error(expression: str) -> None:
    with pytest.raises(JobFailed):
        evaluated(expression, BATCH, SCHEMA)


def environment() -> fp.StreamTableEnvironment:
    return fp.StreamTableEnvironment.create(fp.StreamExecutionEnvironment.get_execution_environment(LOCAL))


LINES = [
    {"k": "p", "a": [1, None], "m": {"u": 1.25, "v": None}, "r": {"x": 5, "y z": ["s"], "d": {"on": "2020-01-02"}}},
    {"k": "q", "a": [], "m": {}, "r": None},
    {"k": None, "a": None, "m": None, "r": None},
]


def test_nested_columns_of_files(tmp_path: Path) -> None:
    tables = fp.StreamTableEnvironment.create(fp.StreamExecutionEnvironment.get_execution_environment(LOCAL))

    def table(name: str, form: str, columns: str) -> None:
        options = f"'connector' = 'filesystem', 'path' = '{tmp_path / name}', 'format' = '{form}'"
        tables.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({options})")

    def written(name: str) -> list[Any]:
        lines = [line for file in (tmp_path / name).glob("part-*") for line in file.read_text().splitlines()]
        return sorted(map(json.loads, lines), key=repr)

    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "1.json").write_text("".join(f"{json.dumps(line)}\n" for line in LINES))
    columns = "k STRING, a ARRAY<INT>, m MAP<STRING, DECIMAL(5, 2)>, r ROW<x BIGINT, `y z` ARRAY<STRING>, d ROW(`on` DATE)>"
    for name, form in (("given", "json"), ("parquets", "parquet"), ("orcs", "orc"), ("again", "json")):
        table(name, form, columns)
    table("parts", "json", "e BIGINT, u DECIMAL(6, 2), d DATE, n ROW<q BIGINT, w STRING>")
    tables.execute_sql("INSERT INTO parquets SELECT * FROM given").wait()
    tables.execute_sql("INSERT INTO orcs SELECT * FROM parquets").wait()
    tables.execute_sql(
        "INSERT INTO again SELECT p.* FROM orcs AS p JOIN given AS g ON COALESCE(p.k, '') = COALESCE(g.k, '')"
    ).wait()
    assert written("again") == sorted(LINES, key=repr)
    tables.execute_sql("INSERT INTO parts SELECT a[1], m['u'], r.d.`on`, ROW(1, k) FROM parquets WHERE r.`y z`[1] = 's'").wait()
    assert written("parts") == [{"e": 1, "u": 1.25, "d": "2020-01-02", "n": {"q": 1, "w": "p"}}]


class Point(NamedTuple):
    x: int
    y: float | None


class Shape(NamedTuple):
    name: str
    points: list[Point]
    tags: dict[str, int]


SHAPES = [Shape("a", [Point(1, None), Point(2, 0.5)], {"t": 1}), Shape("a", [], {}), Shape("b", [Point(3, 1.0)], {"t": 2})]


def test_nested_fields_of_a_stream_in_groups() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment(LOCAL)
    tables = fp.StreamTableEnvironment.create(env)
    tables.create_temporary_view("shapes", env.from_collection(SHAPES, Shape))
    query = "SELECT name, FIRST_VALUE(points), LAST_VALUE(tags), SUM(points[1].x), MAX(tags['t']) FROM shapes GROUP BY name"
    found = {row[0]: tuple(row)[1:] for row in tables.execute_sql(query).collect()}
    assert found == {
        "a": ([fp.Row(x=1, y=None), fp.Row(x=2, y=0.5)], {}, 1, 1),
        "b": ([fp.Row(x=3, y=1.0)], {"t": 2}, 3, 2),
    }


UNNESTED: dict[str, list[Any]] = {
    "SELECT name, x, y FROM shapes, UNNEST(points) AS p": [("a", 1, None), ("a", 2, 0.5), ("b", 3, 1.0)],
    "SELECT name, n, v FROM shapes LEFT JOIN UNNEST(tags) AS t (n, v) ON TRUE": [("a", "t", 1), ("a", None, None), ("b", "t", 2)],
    "SELECT e, COUNT(*) FROM shapes CROSS JOIN UNNEST(ARRAY[1, CARDINALITY(points)]) AS t (e) GROUP BY e": [
        (0, 1),
        (1, 4),
        (2, 1),
    ],
    "SELECT p.x, q.x FROM shapes CROSS JOIN UNNEST(points) AS p CROSS JOIN UNNEST(points) AS q WHERE p.x < q.x": [(1, 2)],
    "SELECT n, e FROM (SELECT name, LAST_VALUE(points) AS last, COUNT(*) AS n FROM shapes GROUP BY name) AS s "
    "LEFT JOIN UNNEST(ARRAY[CARDINALITY(last), 9]) AS t (e) ON TRUE WHERE e < 5": [(1, 1), (2, 0)],
    "SELECT SUM(x) FROM shapes JOIN (SELECT name AS k, x FROM shapes CROSS JOIN UNNEST(points) AS p) AS q ON name = k": [(9,)],
}


@pytest.mark.parametrize("query", UNNESTED)
@pytest.mark.parametrize("epoch_rows", [1, 100])
def test_the_elements_of_arrays_as_a_table(query: str, epoch_rows: int) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment(LOCAL)
    env.set_max_epoch_rows(epoch_rows)
    tables = fp.StreamTableEnvironment.create(env)
    tables.create_temporary_view("shapes", env.from_collection(SHAPES, Shape))
    found: Counter[Any] = Counter()
    for row in tables.execute_sql(query).collect():
        found[tuple(row)] += -1 if row.get_row_kind() is fp.RowKind.DELETE else 1
    assert +found == Counter(UNNESTED[query])
