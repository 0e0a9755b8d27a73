"""Programs of the Table API: from rows, frames and streams to tables, streams, frames and notebooks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import forkpoint as fp
from forkpoint import DataTypes, Over, Schema, TableDescriptor, Tumble, Types, col, lit, udaf, udf, udtaf, udtf
from forkpoint.table.api import expressions as e
from forkpoint.table.api.views import ListView, MapView
from forkpoint.testing import run_upgrade

PAYMENTS = [("ann", 3), ("bob", 4), ("ann", 5)]


@pytest.fixture
def t_env() -> fp.StreamTableEnvironment:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    return fp.StreamTableEnvironment.create(env)


def rows(table: fp.Table) -> list[tuple[Any, ...]]:
    with table.execute().collect() as found:
        return sorted(map(tuple, found))


def test_rows_of_any_form(t_env: fp.StreamTableEnvironment) -> None:
    schema = DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT()), DataTypes.FIELD("b", DataTypes.STRING(nullable=False))])
    assert t_env.from_elements(PAYMENTS).get_resolved_schema().get_column_names() == ["_1", "_2"]
    for elements, of in (
        ([(1, "x")], schema),
        ([{"b": "x", "a": 1}], ["a", "b"]),
        ([fp.Row(a=1, b="x")], None),
        ([e.row(1, "x")], ["a", "b"]),
    ):
        table = t_env.from_elements(elements, of)
        assert (table.get_resolved_schema().get_column_names(), rows(table)) == (["a", "b"], [(1, "x")])
    values = [1.5, True, b"x", Decimal("1.5"), [1, 2], {"k": 1}, datetime(2026, 1, 2, tzinfo=UTC)]
    assert rows(t_env.from_elements([tuple(values)])) == [tuple(values)]
    assert rows(t_env.from_elements([7], DataTypes.BIGINT())) == [(7,)]
    assert rows(t_env.from_elements([(bytearray(b"x"), Decimal("0.125"))], [DataTypes.BYTES(), DataTypes.DECIMAL(3, 2)])) == [
        (b"x", Decimal("0.13"))
    ]


def test_frames(t_env: fp.StreamTableEnvironment) -> None:
    frame = pd.DataFrame({"k": ["a", "b", "a"], "v": [1, 2, 3], "x": [0.5, 1.5, 2.5], "l": [[1], [2, 3], []]})
    table = t_env.from_pandas(frame)
    pd.testing.assert_frame_equal(table.to_pandas(), frame)
    totals = table.group_by(table.k).select(table.k, table.v.sum.alias("v")).order_by(col("v").desc).limit(5).to_pandas()
    assert totals.sort_values("k").to_dict("list") == {"k": ["a", "b"], "v": [4, 2]}
    typed = t_env.from_pandas(frame[["v"]], [DataTypes.DECIMAL(25, 2)])
    assert rows(typed) == [(Decimal("1.00"),), (Decimal("2.00"),), (Decimal("3.00"),)]


def test_streams_become_tables_and_tables_streams(t_env: fp.StreamTableEnvironment) -> None:
    stream = t_env._session.env.from_collection(PAYMENTS, Types.ROW([Types.STRING(), Types.INT()]))
    by_name = t_env.from_data_stream(stream, col("f1"), col("f0").alias("name"))
    by_place = t_env.from_data_stream(stream, col("name"), col("cents"))
    declared = (
        Schema.new_builder().column_by_expression("twice", "f1 * 2").column("f0", DataTypes.STRING()).column("f1", "BIGINT")
    )
    with_schema = t_env.from_data_stream(stream, declared.build())
    assert rows(by_name) == [(3, "ann"), (4, "bob"), (5, "ann")]
    assert rows(by_place) == sorted(PAYMENTS)
    assert rows(with_schema) == [(6, "ann", 3), (8, "bob", 4), (10, "ann", 5)]
    assert with_schema.get_resolved_schema().get_column_data_types()[2] == DataTypes.BIGINT()
    t_env.create_temporary_view("payments", stream, "name, cents")
    t_env.create_temporary_view("large", t_env.from_path("payments").where(col("cents") > 3))
    assert t_env.list_views() == ["large", "payments"]
    doubled = t_env.to_data_stream(t_env.from_path("large")).map(lambda row: row.cents * 2, output_type=Types.INT())
    assert rows(t_env.from_data_stream(doubled)) == [(8,), (10,)]
    totals = by_place.group_by(col("name")).select(col("name"), col("cents").sum)
    with t_env.to_changelog_stream(totals).execute_and_collect() as changes:
        assert sorted((row.get_row_kind().name, *row) for row in changes) == [("INSERT", "ann", 8), ("INSERT", "bob", 4)]
    with pytest.raises(fp.GraphError, match="use to_changelog_stream"):
        t_env.to_data_stream(totals)


def test_windows_and_functions_in_one_job(t_env: fp.StreamTableEnvironment, tmp_path: Path) -> None:
    start = datetime(1970, 1, 1)  # noqa: DTZ001
    clicks = [("a", start + timedelta(seconds=s), s) for s in (1, 4, 11)]
    schema = Schema.new_builder().watermark("f1", "f1 - INTERVAL '3' SECOND").build()
    stream = t_env._session.env.from_collection(clicks, Types.ROW([Types.STRING(), Types.SQL_TIMESTAMP(), Types.INT()]))
    table = t_env.from_data_stream(stream, schema).alias("k", "ts", "n")

    @udf(result_type=DataTypes.BIGINT())
    def squared(n: int) -> int:
        return n * n

    cubed = udf(lambda n: n**3, result_type="BIGINT")
    halved = udf(lambda n: n // 2, result_type="BIGINT")
    assert rows(table.select(cubed(col("n")), halved(col("n")), fp.call(halved, cubed(col("n"))))) == [
        (1, 0, 0),
        (64, 2, 32),
        (1331, 5, 665),
    ]
    windows = table.window(Tumble.over(lit(10).seconds).on(col("ts")).alias("w")).group_by(col("w"), col("k"))
    sums = windows.select(col("k"), squared(col("n").sum), col("w").start)
    over = table.over_window(Over.partition_by(col("k")).order_by(col("ts")).preceding(e.row_interval(1)).alias("o"))
    pairs = over.select(col("k"), col("n").sum.over(col("o")).cast(DataTypes.BIGINT()), col("ts"))
    out = Schema.new_builder().column("k", "STRING").column("n", DataTypes.BIGINT()).column("ts", "TIMESTAMP(3)").build()
    files = TableDescriptor.for_connector("filesystem").schema(out).format("json").option("path", str(tmp_path / "sums")).build()
    t_env.create_temporary_table("sums", files)
    t_env.create_temporary_table("pairs", TableDescriptor.for_connector("blackhole").schema(out).build())
    statements = t_env.create_statement_set().add_insert("sums", sums).add(pairs.insert_into("pairs"))
    statements.execute().wait()
    written = [json.loads(line) for file in (tmp_path / "sums").glob("part-*") for line in file.read_text().splitlines()]
    assert sorted((row["n"], row["ts"]) for row in written) == [(25, "1970-01-01 00:00:00"), (121, "1970-01-01 00:00:10")]
    assert [row[1] for row in rows(pairs)] == [1, 5, 15]


class Spread(fp.SqlAggregateFunction):
    def create_accumulator(self) -> Any:
        return fp.Row(0, 0)

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        row = args[0]
        accumulator[0] = max(accumulator[0], row.cents)
        accumulator[1] += 1

    def get_value(self, accumulator: Any) -> Any:
        return fp.Row(accumulator[0], accumulator[1])


class Largest(fp.TableAggregateFunction):
    def create_accumulator(self) -> Any:
        return []

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        accumulator.append(args[0])
        accumulator.sort(reverse=True)
        del accumulator[2:]

    def emit_value(self, accumulator: Any) -> Any:
        yield from accumulator


class Words(fp.SqlAggregateFunction):
    """Of views, as PyFlink's programs have them."""

    def create_accumulator(self) -> Any:
        return fp.Row(ListView(), MapView())

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        word = args[0]
        accumulator[0].add(word)
        accumulator[1].put(word, (accumulator[1].get(word) or 0) + 1)

    def get_value(self, accumulator: Any) -> Any:
        return "".join(sorted(accumulator[0].get())) + str(dict(sorted(accumulator[1].items())))

    def get_result_type(self) -> Any:
        return DataTypes.STRING()

    def get_accumulator_type(self) -> Any:
        text = DataTypes.STRING()
        views = [DataTypes.FIELD("l", DataTypes.LIST_VIEW(text)), DataTypes.FIELD("m", DataTypes.MAP_VIEW(text, DataTypes.INT()))]
        return DataTypes.ROW(views)


def test_views_in_accumulators(t_env: fp.StreamTableEnvironment) -> None:
    t_env._session.env.set_max_epoch_rows(1)
    table = t_env.from_elements(PAYMENTS, ["name", "cents"])
    words = table.select(udaf(Words())(col("name")))
    with words.execute().collect() as changes:
        assert tuple(list(changes)[-1]) == ("annannbob{'ann': 2, 'bob': 1}",)


def test_functions_of_whole_rows(t_env: fp.StreamTableEnvironment) -> None:
    table = t_env.from_elements(PAYMENTS, ["name", "cents"])
    letters = udtf(lambda name, n: [(letter, n) for letter in name[:2]], result_types=["STRING", "BIGINT"])
    doubled = udf(lambda row: fp.Row(row.name, row.cents * 2), result_type="ROW<name STRING, twice BIGINT>")
    many = udtf(lambda row: [(row.name,)] * (row.cents - 3), result_types=["STRING"])
    spread = udaf(Spread(), result_type="ROW<most BIGINT, n BIGINT>", accumulator_type="ROW<most BIGINT, n BIGINT>")
    thirds = udf(lambda frame: frame.cents // 3, result_type="BIGINT", func_type="pandas")
    pairs = table.join_lateral(letters(col("name"), col("cents")).alias("letter", "n"), col("n") > 3)
    assert rows(pairs.select(col("letter"), col("n"))) == [("a", 5), ("b", 4), ("n", 5), ("o", 4)]
    assert Counter(map(tuple, table.left_outer_join_lateral(many.alias("again")).execute().collect())) == {
        ("ann", 3, None): 1,
        ("ann", 5, "ann"): 2,
        ("bob", 4, "bob"): 1,
    }
    assert rows(table.flat_map(many).alias("again")) == [("ann",), ("ann",), ("bob",)]
    assert rows(table.map(doubled)) == [("ann", 6), ("ann", 10), ("bob", 8)]
    assert rows(table.map(thirds)) == [(1,), (1,), (1,)]
    groups = table.group_by(col("name")).aggregate(spread.alias("most", "n")).select(col("name"), col("most"), col("n"))
    assert rows(groups) == [("ann", 5, 2), ("bob", 4, 1)]
    largest = udtaf(Largest(), result_type="BIGINT", accumulator_type="ARRAY<BIGINT>")
    two = table.flat_aggregate(largest(col("cents")).alias("cents")).select(col("cents"))
    by_name = table.group_by(col("name")).flat_aggregate(largest(col("cents"))).select(col("name"), col("f0"))
    assert (rows(two), rows(by_name)) == ([(4,), (5,)], [("ann", 3), ("ann", 5), ("bob", 4)])
    assert rows(table.aggregate(spread).select(col("most"))) == [(5,)]


def test_a_notebook_shows_the_first_rows_of_what_ends(t_env: fp.StreamTableEnvironment) -> None:
    table = t_env.from_elements([(n, "<b>") for n in range(30)], ["n", "text"])
    shown = table._repr_html_() or ""
    assert "the first 20 of 30 rows" in shown
    assert "&lt;b&gt;" in shown
    endless = TableDescriptor.for_connector("datagen").schema(Schema.new_builder().column("n", "INT").build()).build()
    assert t_env.from_descriptor(endless)._repr_html_() is None


MISTAKES: list[tuple[str, Callable[[fp.Table, fp.StreamTableEnvironment], Any]]] = [
    ("there is no column 'c'; did you mean 'a'\\?|there is no column 'c'", lambda t, env: t.select(col("c"))),
    ("combine conditions with &", lambda t, env: t.where(col("a") > 1 and col("b") == "x")),
    ("distinct is of an aggregate", lambda t, env: col("a").distinct),
    ("there is no window 'w'", lambda t, env: t.group_by(t.a).select(col("w").start)),
    ("no such over window", lambda t, env: t.select(t.a.sum.over(col("w")))),
    ("both tables of the join have a column 'a'", lambda t, env: t.join(t)),
    ("need fetch", lambda t, env: t.order_by(t.a).select(t.a)),
    ("column 'a' exists already", lambda t, env: t.add_columns(t.b.alias("a"))),
    ("there is no column 'z'", lambda t, env: t.rename_columns(col("z").alias("y"))),
    ("needs the window as a key", lambda t, env: t.window(Tumble.over(lit(1).days).on(t.a).alias("w")).group_by(t.a)),
    ("whole number of units", lambda t, env: t.a.minutes),
    ("an empty list has no types", lambda t, env: env.from_elements([])),
    ("values of different types", lambda t, env: env.from_elements([(1,), ("x",)])),
    ("has 1 values, but there are 2 columns", lambda t, env: env.from_elements([(1,)], ["a", "b"])),
    ("there is no table 'nothing'", lambda t, env: env.from_path("nothing")),
    ("there is no table 'x'", lambda t, env: t.execute_insert("x", overwrite=True)),
    ("times are read and printed in UTC", lambda t, env: env.get_config().set_local_timezone("Asia/Shanghai")),
    ("times are read and printed in UTC", lambda t, env: env.get_config().set("table.local-time-zone", "Asia/Shanghai")),
    ("did you mean 'table.exec.state.ttl'", lambda t, env: env.get_config().set("table.exec.stat.ttl", "1 d")),
    ("is not a duration", lambda t, env: env.get_config().set("table.exec.state.ttl", "an hour")),
    ("there already is a table or view 't'", lambda t, env: [env.create_temporary_view("t", t) for _ in range(2)]),
]


@pytest.mark.parametrize(("message", "mistake"), MISTAKES, ids=[message for message, _ in MISTAKES])
def test_mistakes(t_env: fp.StreamTableEnvironment, message: str, mistake: Callable[..., Any]) -> None:
    with pytest.raises(fp.ConfigError, match=message):
        mistake(t_env.from_elements([(1, "x")], ["a", "b"]), t_env)


def test_settings_and_the_catalogue(t_env: fp.StreamTableEnvironment) -> None:
    batch = fp.EnvironmentSettings.new_instance().in_batch_mode().build()
    tables = fp.TableEnvironment.create(batch)
    tables.get_config().set("execution.engine", "local").set("pipeline.name", "mine")
    assert (batch.is_streaming_mode(), tables.get_config().get("pipeline.name", None)) == (False, "mine")
    assert rows(tables.from_elements([(1,), (1,)]).distinct()) == [(1,)]
    tables.create_view("v", tables.from_elements([(1,)], ["a"]))
    tables.execute_sql("CREATE DATABASE other")
    tables.use_database("other")
    assert (tables.get_current_catalog(), tables.get_current_database()) == ("default_catalog", "other")
    assert rows(tables.sql_query("SELECT CURRENT_DATABASE(), k FROM (VALUES (1)) AS t (k)")) == [("other", 1)]
    assert tables.list_databases() == ["default_database", "other"]
    assert [tables.drop_view("default_database.v"), tables.drop_view("default_database.v")] == [True, False]
    assert "ABS" in tables.list_functions()
    assert "Scan elements" in tables.explain_sql(f"SELECT * FROM {tables.from_elements([(1,)])}")


def test_a_query_may_become_a_program() -> None:
    """The state of SQL's GROUP BY is that of the program's, by uid and by definition."""

    def tables(env: Any, source: Any) -> fp.StreamTableEnvironment:
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").uid("in")
        t_env = fp.StreamTableEnvironment.create(env)
        t_env.create_temporary_view("payments", stream.map(tuple, output_type=Types.ROW([Types.STRING(), Types.LONG()])))
        return t_env

    def query(env: Any, source: Any) -> Any:
        t_env = tables(env, source)
        found = t_env.sql_query("SELECT f0, SUM(f1) AS total FROM payments WHERE f1 > 1 GROUP BY f0")
        return t_env.to_changelog_stream(found).map(str)

    def program(env: Any, source: Any) -> Any:
        t_env = tables(env, source)
        payments = t_env.from_path("payments")
        found = payments.where(payments.f1 > 1).group_by(payments.f0).select(payments.f1.sum.alias("total"), payments.f0)
        return t_env.to_changelog_stream(found.select(col("f0"), col("total"))).map(str)

    done = run_upgrade(query, program, ([("ann", 300), ("bob", 1)], [("ann", 30), ("ann", 1)]))
    assert done.before.output == ["Row(f0='ann', total=300)"]
    assert sorted(done.after.output) == ["Row(f0='ann', total=300)", "Row(f0='ann', total=330)"]
