"""Tables whose sources have changes: queries equal DuckDB's answer over the rows that remain, whatever comes twice."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import forkpoint as fp
from forkpoint.relational.changes import WEIGHT, left_by_key, row_type
from forkpoint.relational.types import Field, SqlType
from forkpoint.sql.errors import SqlError, Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import CreateTable, Query
from forkpoint.table.catalog import StreamTable
from forkpoint.table.connectors import registry
from forkpoint.table.connectors.batches import Columns
from forkpoint.table.connectors.changelogs import ChangelogSerializationSchema
from forkpoint.table.connectors.formats import deserialization
from forkpoint.table.connectors.options import TableOptions
from forkpoint.table.connectors.registry import Connector
from forkpoint.table.session import Session
from forkpoint.table.statements import execute
from forkpoint.testing import ABORT, EOF, PAUSE, Eof, TestSource, run_local

SCHEMA = (Field("id", SqlType("BIGINT", nullable=False)), Field("k", SqlType("STRING")), Field("v", SqlType("BIGINT")))
QUERIES = [
    "SELECT id, v + 1 AS w FROM t WHERE v > 0",
    "SELECT k, COUNT(*), COUNT(v), SUM(v), MIN(v), MAX(v), COUNT(DISTINCT v) FROM t GROUP BY k",
    "SELECT a.id, b.v FROM t AS a LEFT JOIN t AS b ON a.v = b.id",
    "SELECT k, id, r FROM (SELECT k, id, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v NULLS FIRST, id) AS r FROM t) WHERE r < 3",
    "SELECT k FROM t WHERE v > 0 UNION ALL SELECT k FROM t WHERE v NOT IN (SELECT id FROM t)",
    "SELECT SUM(n), COUNT(*) FROM (SELECT k, COUNT(*) AS n FROM t GROUP BY k) HAVING COUNT(*) > 0",
]
Change = tuple[Any, ...]
DDL = """
CREATE TABLE t (id BIGINT NOT NULL, k STRING, v BIGINT, ts AS TO_TIMESTAMP_LTZ(v, 3), WATERMARK FOR ts AS ts)
WITH ('connector' = 'kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'b:1', 'format' = '{format}');
"""
OTHERS = """
CREATE TABLE files (id BIGINT) WITH ('connector' = 'filesystem', 'path' = 'out', 'format' = 'json');
CREATE TABLE upserts (id BIGINT, v BIGINT, PRIMARY KEY (id) NOT ENFORCED)
WITH ('connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'b:1', 'key.format' = 'json',
      'value.format' = 'debezium-json');
"""


def run(
    query: str, makes: str, script: list[Any], state: Path, parallelism: int, restore: fp.RestoreOptions | None = None
) -> list[tuple[Any, ...]]:
    """The changes of the query's result in one run, each with its weight."""

    def job(env: fp.StreamExecutionEnvironment, source: TestSource) -> Any:
        session = Session(env)
        of = row_type(SCHEMA, updating=True)
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "t", of).uid("t")
        session.catalog.streams["t"] = StreamTable(SCHEMA, stream.edges, None, makes, ("id",))
        (statement,) = parse(Text(query))
        assert isinstance(statement, Query)
        return session.stream(session.plan(statement), "result")

    rows = [fp.Row(*each) if isinstance(each, tuple) else each for each in script]
    options = {"max_parallelism": 8}
    done = run_local(job, rows, state_root=str(state), parallelism=parallelism, restore=restore, options=options)
    return [tuple(row) for row in done.output]


def next_changes(rng: random.Random, rows: dict[int, Change], makes: str) -> list[Change]:
    """One more change of the rows of a table, as its source has it."""
    key = rng.randrange(6)
    old = rows.pop(key, None)
    if rng.random() < 0.7:
        rows[key] = (key, rng.choice(["a", "b", None]), rng.choice([None, 0, 1, 2, 3]))
    if makes == "upserts":
        upsert = (*rows[key], 1) if key in rows else (key, None, None, -1)
        return [upsert] * rng.choice([1, 1, 2])
    return [*([(*old, -1)] if old else []), *([(*rows[key], 1)] if key in rows else [])]


@pytest.mark.parametrize("query", QUERIES)
@settings(max_examples=3, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(["upserts", "all"]))
def test_the_result_is_that_of_the_rows_that_remain(
    tmp_path_factory: pytest.TempPathFactory, query: str, seed: int, makes: str
) -> None:
    rng, state = random.Random(seed), tmp_path_factory.mktemp("state")
    rows: dict[int, Change] = {}
    script: list[Any] = []
    found: Counter[Any] = Counter()
    for _ in range(2):
        for _ in range(rng.randrange(4)):
            script += [each for _ in range(rng.randrange(8)) for each in next_changes(rng, rows, makes)]
            script.append(rng.choice([PAUSE, PAUSE, ABORT]))
        script += [PAUSE, EOF]
        for *values, weight in run(query, makes, script, state, rng.choice([1, 3])):
            found[tuple(values)] += weight
            assert found[tuple(values)] >= 0, (values, makes)
        columns = zip(*rows.values(), strict=True) if rows else ([], [], [])
        t = pa.table({f.name: pa.array(c, f.type.arrow_type) for f, c in zip(SCHEMA, columns, strict=True)})  # noqa: F841
        assert +found == Counter(map(tuple, duckdb.sql(query).fetchall())), makes


def test_a_table_that_gets_changes_is_another_one(tmp_path: Path) -> None:
    query = "SELECT k, COUNT(*) FROM t GROUP BY k"
    run(query, "all", [(1, "a", 2, 1), EOF], tmp_path, 1)
    with pytest.raises(fp.RestoreRefused, match="its rows came from t with changes and would come from t;"):
        run(query, "added", [(1, "a", 2, 1), EOF], tmp_path, 1)


def test_a_query_of_changes_does_not_start_empty(tmp_path: Path) -> None:
    """It would be told to remove rows that it never had."""
    run("SELECT k FROM t", "all", [(1, "a", 2, 1), PAUSE, EOF], tmp_path, 1)
    accepted, script = fp.RestoreOptions(accept_empty=("result-group-by-k",)), [(1, "a", 2, 1), PAUSE, EOF]
    with pytest.raises(fp.RestoreRefused, match="it cannot start empty: 't' would remove rows from before"):
        run("SELECT k, COUNT(*) FROM t GROUP BY k", "all", script, tmp_path, 1, accepted)


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("SELECT k, COUNT(*) FROM t GROUP BY k", "operator 'result-group-by-k': a row of group 'a' of t with changes is removed"),
        ("SELECT a.id FROM t AS a JOIN t AS b USING (k)", "operator 'result-join-t': left {'id': 1} is removed"),
    ],
)
def test_the_removal_of_a_row_that_was_never_added_is_an_error(query: str, where: str, tmp_path: Path) -> None:
    with pytest.raises(fp.JobFailed, match=re.escape(where)):
        run(query, "all", [(1, "a", 2, -1), EOF], tmp_path, 1)


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        (
            "debezium-json",
            [
                b'{"before":null,"after":{"id":1,"k":"a","v":2},"op":"c"}',
                b'{"before":{"id":1,"k":null,"v":2},"after":null,"op":"d"}',
            ],
        ),
        (
            "canal-json",
            [b'{"data":[{"id":1,"k":"a","v":2}],"type":"INSERT"}', b'{"data":[{"id":1,"k":null,"v":2}],"type":"DELETE"}'],
        ),
        (
            "maxwell-json",
            [b'{"data":{"id":1,"k":"a","v":2},"type":"insert"}', b'{"data":{"id":1,"k":null,"v":2},"type":"delete"}'],
        ),
    ],
)
def test_changes_are_written_as_flink_does_and_read_again(name: str, messages: list[bytes]) -> None:
    of = row_type(SCHEMA, updating=True)
    batch = Columns(
        pa.RecordBatch.from_arrays(of.to_columns([fp.Row(1, "a", 2, 1), fp.Row(1, None, 2, -1)]), schema=of.arrow_schema), of
    )
    written = ChangelogSerializationSchema(name, row_type(SCHEMA)).serialize_batch(batch)
    assert written.to_pylist() == messages
    (table,) = (each for each in parse(Text(DDL.format(format=name))) if isinstance(each, CreateTable))
    read = deserialization(TableOptions(table), SCHEMA).deserialize_batch(written.cast(pa.binary()))
    assert read.elements.equals(batch.table)


def test_an_update_has_the_row_before_it() -> None:
    (table,) = (each for each in parse(Text(DDL.format(format="debezium-json"))) if isinstance(each, CreateTable))
    row = '{"id": 1, "k": "a", "v": 2}'
    update = [f'{{"before": {before}, "after": {row}, "op": "u"}}'.encode() for before in (row, "null")]
    found = deserialization(TableOptions(table), SCHEMA).deserialize_batch(pa.array(update))
    assert [(list(each.values()), at) for each, at in zip(found.elements.to_pylist(), found.indices, strict=True)] == [
        ([1, "a", 2, -1], 0),
        ([1, "a", 2, 1], 0),
    ]
    assert [(each.index, each.problem.split(";")[0]) for each in found.bad] == [(1, "an update without the row before it")]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' DAY)) GROUP BY window_start, window_end",
            "windows take rows that are only added",
        ),
        ("INSERT INTO files SELECT id FROM t", "takes added rows only"),
        ("SET 'table.exec.source.cdc-events-duplicate' = 'true'; SELECT id FROM t", "needs PRIMARY KEY (…) NOT ENFORCED"),
        ("SELECT v FROM upserts", "format 'debezium-json' is not supported here; use 'json' or 'csv'"),
    ],
)
def test_what_changes_do_not_allow(statement: str, message: str) -> None:
    session = Session(fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"}))
    source = Text(DDL.format(format="debezium-json") + OTHERS + statement)
    *before, last = parse(source)
    for each in before:
        execute(session, each, source)
    with pytest.raises(SqlError, match=re.escape(message)):
        session.stream(session.plan(last)) if isinstance(last, Query) else execute(session, last, source)


def test_the_key_of_a_source_is_a_key_of_results() -> None:
    session = Session(fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"}))
    ddl = "CREATE TABLE {} (id BIGINT, v BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', {});"
    options = "'topic' = 't', 'properties.bootstrap.servers' = 'b:1', 'key.format' = 'json', 'value.format' = 'json'"
    source = Text(
        ddl.format("a", options) + ddl.format("b", options) + "INSERT INTO b SELECT id, v + 1 FROM a; EXPLAIN SELECT id FROM a"
    )
    *_, answer = (execute(session, each, source) for each in parse(source))
    assert answer is not None
    assert "Scan a(id, v)  [adds and removes rows]" in answer.rows[0][0]
    insert = Text("INSERT INTO b SELECT v, id FROM a")
    with pytest.raises(SqlError, match="the query has one row for each v;"):
        execute(session, *parse(insert), insert)


class User(NamedTuple):
    id: int
    k: str
    ms: int


def test_streams_of_changes_are_tables() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_max_epoch_rows(2)
    tables = fp.StreamTableEnvironment.create(env)
    rows = [
        fp.Row.of_kind(fp.RowKind.INSERT, 1, "a"),
        fp.Row.of_kind(fp.RowKind.UPDATE_AFTER, 1, "b"),
        fp.Row.of_kind(fp.RowKind.INSERT, 2, "b"),
        fp.Row.of_kind(fp.RowKind.DELETE, 2, None),
    ]
    schema = fp.Schema.new_builder().column("id", "INT").column("k", "STRING").primary_key("id").build()
    upserts = env.from_collection(rows, fp.Types.ANY())
    tables.create_temporary_view("upserts", tables.from_changelog_stream(upserts, schema, fp.ChangelogMode.upsert()))

    canal, ts = fp.CanalJsonDeserializationSchema(User), "1970-01-01 00:00:01.000"
    lines = [
        {"type": "INSERT", "data": [{"id": "1", "k": "x", "ms": "1000"}, {"id": "2", "k": "y", "ms": "2000"}]},
        {"type": "UPDATE", "data": [{"id": "1", "k": "z", "ms": "1000"}], "old": [{"k": "x"}]},
        {"type": "DELETE", "data": [{"id": "2", "k": "y", "ms": "2000"}]},
    ]
    read = canal.deserialize_batch(pa.array([json.dumps(line).encode() for line in lines])).elements
    stream = env.from_collection(canal.get_produced_type().from_columns(read.columns), canal.get_produced_type())
    timed = fp.Schema.new_builder().column_by_expression("ts", "TO_TIMESTAMP_LTZ(ms, 3)").watermark("ts", "ts").build()
    tables.create_temporary_view("changes", tables.from_changelog_stream(stream, timed))

    query = "SELECT k, CAST(id AS BIGINT) AS id, ts FROM upserts, (SELECT CAST(MAX(ts) AS STRING) AS ts FROM changes) AS c"
    found = tables.sql_query(f"{query} UNION ALL SELECT k, id, CAST(ts AS STRING) FROM changes")
    remaining: Counter[Any] = Counter()
    for row in tables.to_changelog_stream(found).execute_and_collect():
        remaining[tuple(row)] += 1 if row.get_row_kind() is fp.RowKind.INSERT else -1
    assert set(+remaining) == {("b", 1, ts), ("z", 1, ts)}
    with pytest.raises(fp.ConfigError, match="upserts are by a key"):
        tables.from_changelog_stream(upserts, None, fp.ChangelogMode.upsert())
    with pytest.raises(fp.ConfigError, match="a Schema with the types of their columns"):
        tables.from_changelog_stream(upserts)


PLAIN = "SELECT '{} plain' AS a, k, v FROM t"  # by the number, the inputs of a union are in this order
HINTED = "SELECT '{} hinted' AS a, k, v FROM t /*+ OPTIONS('print-identifier' = 'b') */"


OTHER = HINTED.replace("'b')", "'b', 'sink.parallelism' = '1')")


@pytest.mark.parametrize(
    ("makes", "versions"),
    [
        ("upserts", [[PLAIN], [PLAIN, HINTED], [HINTED, PLAIN], [OTHER, PLAIN], [PLAIN, HINTED]]),
        ("added", [[PLAIN], [HINTED, PLAIN], [HINTED], [PLAIN, HINTED], [PLAIN], [OTHER, PLAIN], [PLAIN, HINTED]]),
    ],
)
def test_uses_of_a_table_go_on_where_they_were_when_they_change_places(
    makes: str, versions: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The positions, and the latest rows of keys, are those of the use with the same options, also of one that comes back."""

    def elements(first: int, step: int) -> list[Any]:
        weights = () if makes == "added" else (1,)
        return [item for v in range(first, first + 9 * step, step) for item in (fp.Row("a", v, *weights), Eof(savepoint=True))]

    def job(env: fp.StreamExecutionEnvironment, plain: TestSource, hinted: TestSource) -> Any:
        def source(options: TableOptions) -> TestSource:
            options.ignore("sink.parallelism")
            return plain if options.get("print-identifier") is None else hinted

        monkeypatch.setitem(registry.CONNECTORS, "scripted", Connector(source, makes=makes))
        session = Session(env)
        text = Text("CREATE TABLE t (k STRING, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'scripted')")
        for table in parse(text):
            execute(session, table, text)
        (query,) = parse(Text(" UNION ALL ".join(query.format(at) for at, query in enumerate(queries))))
        assert isinstance(query, Query)
        return session.stream(session.plan(query), "result")

    options: dict[str, Any] = {"state_root": str(tmp_path), "parallelism": 2, "options": {"max_parallelism": 8}}
    savepoint, last = None, {"plain": -1, "hinted": 90}
    for queries in versions:
        done = run_local(job, TestSource(elements(0, 1)), TestSource(elements(100, 10)), restore=savepoint, **options)
        wanted = list[Any]()
        for a, step in (("plain", 1), ("hinted", 10)):
            if any(a in query for query in queries):
                wanted += [(a, last[a], -1)] if makes == "upserts" and last[a] not in (-1, 90) else []
                last[a] += step
                wanted.append((a, last[a], *((1,) if makes == "upserts" else ())))
        assert sorted((a[2:], *rest) for a, _, *rest in done.output) == sorted(wanted), queries
        savepoint = done.savepoint


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ("+a1 -a2", "-a2 +a1"),
        ("+a1 +b1 -b2 -a2", "-a2 +a1 -b2 +b1"),
        ("+a1 -a1", ""),
        ("+a1 -a1 +a1", "+a1"),
        ("-a1 +a1", "-a1 +a1"),  # what is not among its columns may be new
        ("+a1 +a1 -a2 -a1 -a2", "-a2 -a2 +a1"),
        ("", ""),
    ],
)
def test_of_each_key_removals_come_first_without_what_came_and_went(changes: str, left: str) -> None:
    signs, keys, values = (list(same) for same in zip(*changes.split(), strict=True)) if changes else ([], [], [])
    weights = pa.array([1 if sign == "+" else -1 for sign in signs], pa.int64())
    table = pa.record_batch({"k": pa.array(keys, pa.string()), "v": pa.array(values, pa.string()), WEIGHT: weights})
    assert " ".join(signs[at] + keys[at] + values[at] for at in left_by_key(table, ["k"])) == left
