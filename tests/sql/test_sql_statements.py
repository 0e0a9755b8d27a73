"""Statements about the catalogue: what they change, and what they answer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp

ORDERS = """CREATE TABLE orders (k STRING, v BIGINT NOT NULL, PRIMARY KEY (k) NOT ENFORCED) WITH (
'connector' = 'kafka', 'topic' = 't', 'format' = 'json',
'properties.bootstrap.servers' = 'b:1', 'properties.sasl.jaas.config' = 'hunter2')"""


@pytest.fixture
def t_env() -> fp.StreamTableEnvironment:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    found = fp.StreamTableEnvironment.create(env)
    found.execute_sql(ORDERS)
    found.execute_sql("CREATE VIEW large AS SELECT k, v + 1 AS w FROM orders WHERE v > 100")
    return found


def rows(t_env: fp.StreamTableEnvironment, statement: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in t_env.execute_sql(statement).collect()]


def columns(t_env: fp.StreamTableEnvironment, table: str) -> list[tuple[Any, ...]]:
    return [row[:4] for row in rows(t_env, f"DESCRIBE {table}")]


def ddl(t_env: fp.StreamTableEnvironment, table: str) -> str:
    return str(rows(t_env, f"SHOW CREATE TABLE {table}")[0][0])


def test_what_there_is_can_be_shown(t_env: fp.StreamTableEnvironment) -> None:
    assert rows(t_env, "SHOW TABLES") == [("large",), ("orders",)]
    assert rows(t_env, "SHOW TABLES NOT LIKE 'o%'") == rows(t_env, "SHOW VIEWS") == [("large",)]
    assert rows(t_env, "SHOW FUNCTIONS ILIKE 'json_e%'") == [("JSON_EXISTS",)]
    assert rows(t_env, "SHOW USER FUNCTIONS") == []
    assert columns(t_env, "orders") == [("k", "STRING", False, "PRI(k)"), ("v", "BIGINT", False, None)]
    assert rows(t_env, "SHOW COLUMNS FROM large LIKE 'w'") == [("w", "BIGINT", False, None, None, None)]
    assert rows(t_env, "SHOW CREATE VIEW large") == [("CREATE VIEW `large` AS\nSELECT k, v + 1 AS w FROM orders WHERE v > 100",)]


def test_a_shown_table_creates_the_same_table_but_has_no_secrets(t_env: fp.StreamTableEnvironment) -> None:
    shown = ddl(t_env, "orders")
    assert "hunter2" not in shown
    t_env.execute_sql("DROP TEMPORARY TABLE orders")
    t_env.execute_sql(shown)
    assert ddl(t_env, "orders") == shown


def test_results_print_as_in_flink(t_env: fp.StreamTableEnvironment, capsys: pytest.CaptureFixture[str]) -> None:
    t_env.execute_sql("SHOW TABLES").print()
    t_env.execute_sql("USE default_database").print()
    t_env.execute_sql("EXPLAIN PLAN FOR INSERT INTO orders SELECT * FROM orders").print()
    assert capsys.readouterr().out.splitlines() == [
        *("+------------+", "| table name |", "+------------+", "|      large |", "|     orders |", "+------------+"),
        *("2 rows in set", "OK"),
        "Insert into orders (kafka)",
        "   Select k, v  [adds rows]",
        "      Select k, v  [adds rows]",
        "         Scan orders(k, v)  [adds rows]",
    ]


def test_explain_advises_and_has_the_operators(t_env: fp.StreamTableEnvironment) -> None:
    """Of a query, and of an INSERT of the same."""
    t_env.execute_sql("CREATE TABLE out (k STRING, n BIGINT) WITH ('connector' = 'print')")
    t_env.execute_sql("CREATE TABLE events (k STRING) WITH ('connector' = 'datagen')")
    query = "SELECT k, COUNT(*) FROM events GROUP BY k"
    for statement, sinks in ((query, []), (f"INSERT INTO out {query}", ["insert into out"])):
        ((shown,),) = rows(t_env, f"EXPLAIN CHANGELOG_MODE, PLAN_ADVICE, JSON_EXECUTION_PLAN {statement}")
        plan, advice, operators = shown.split("\n\n")
        assert "[adds and removes rows]" in plan
        assert re.fullmatch(r"advice\[1\]: \[WARNING\] Aggregate .* without limit; bound it by windows .*", advice)
        nodes = {node["type"]: node for node in json.loads(operators)["nodes"]}
        assert nodes["table events"]["pact"] == "Data Source"
        (read,) = nodes["group by k"]["predecessors"]
        assert read == {"id": nodes["parts of groups"]["id"], "ship_strategy": "HASH"}
        assert [name for name, node in nodes.items() if node["pact"] == "Data Sink"] == sinks
    ((shown,),) = rows(t_env, "EXPLAIN PLAN_ADVICE SELECT k FROM events")
    assert shown.endswith("\n\nNo available advice...")


def test_tables_are_altered(t_env: fp.StreamTableEnvironment) -> None:
    for change in (
        "ADD (note DECIMAL(7, 2) COMMENT 'x' AFTER k, n INT FIRST, t TIMESTAMP(3))",
        "MODIFY n BIGINT NOT NULL AFTER v",
        "RENAME k TO customer",
        "DROP (t)",
        "SET ('topic' = 'u', 'format' = 'csv')",
        "RENAME TO purchases",
    ):
        t_env.execute_sql(f"ALTER TABLE orders {change}")
    assert columns(t_env, "purchases") == [
        ("customer", "STRING", False, "PRI(customer)"),
        ("note", "DECIMAL(7, 2)", True, None),
        ("v", "BIGINT", False, None),
        ("n", "BIGINT", False, None),
    ]
    t_env.execute_sql("ALTER TABLE purchases DROP PRIMARY KEY")
    t_env.execute_sql("ALTER TABLE purchases RESET ('properties.sasl.jaas.config')")
    assert "PRIMARY" not in ddl(t_env, "purchases")
    assert "'topic' = 'u'" in ddl(t_env, "purchases")
    assert "jaas" not in ddl(t_env, "purchases")
    # The view is bound again, to what is there now.
    with pytest.raises(fp.SqlError, match="there is no table 'orders'"):
        t_env.sql_query("SELECT * FROM large")
    t_env.execute_sql("ALTER VIEW large AS SELECT customer FROM purchases")
    t_env.execute_sql("ALTER VIEW large RENAME TO all_of_them")
    assert columns(t_env, "all_of_them") == [("customer", "STRING", False, None)]


def test_a_table_is_like_another(t_env: fp.StreamTableEnvironment) -> None:
    t_env.execute_sql("CREATE TABLE a (n INT) WITH ('topic' = 'a') LIKE orders")
    assert [each[0] for each in columns(t_env, "a")] == ["k", "v", "n"]
    assert columns(t_env, "a")[0][3] == "PRI(k)"
    assert "'topic' = 'a'" in ddl(t_env, "a")
    assert "'format' = 'json'" in ddl(t_env, "a")
    t_env.execute_sql("CREATE TABLE b WITH ('connector' = 'print') LIKE orders (EXCLUDING ALL)")
    assert (
        ddl(t_env, "b")
        == "CREATE TABLE `b` (\n  `k` STRING NOT NULL,\n  `v` BIGINT NOT NULL\n)\nWITH (\n  'connector' = 'print'\n)"
    )
    with pytest.raises(fp.SqlError, match="option 'topic' is given by both tables"):
        t_env.execute_sql("CREATE TABLE c WITH ('topic' = 'c') LIKE orders (INCLUDING OPTIONS)")
    with pytest.raises(fp.SqlError, match="has a primary key, too"):
        t_env.execute_sql("CREATE TABLE c (n INT PRIMARY KEY NOT ENFORCED) LIKE orders")


def test_computed_columns_and_watermarks_are_altered_and_copied(t_env: fp.StreamTableEnvironment) -> None:
    t_env.execute_sql(
        "CREATE TABLE clicks (ms BIGINT, ts AS TO_TIMESTAMP_LTZ(ms, 3), u STRING, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) "
        "WITH ('connector' = 'filesystem', 'path' = 'x', 'format' = 'json')"
    )
    described = [
        ("ms", "BIGINT", True, None, None, None),
        ("ts", "TIMESTAMP_LTZ(3)", True, None, "AS TO_TIMESTAMP_LTZ(ms, 3)", "ts - INTERVAL '5' SECOND"),
        ("u", "STRING", True, None, None, None),
    ]
    assert rows(t_env, "DESC clicks") == described
    t_env.execute_sql("CREATE TABLE like_clicks (n INT, m AS n + 1) LIKE clicks")
    assert rows(t_env, "DESC like_clicks")[:3] == described
    shown = ddl(t_env, "like_clicks")
    t_env.execute_sql("DROP TABLE like_clicks")
    t_env.execute_sql(shown)
    assert ddl(t_env, "like_clicks") == shown
    t_env.execute_sql("CREATE TABLE plain LIKE clicks (EXCLUDING GENERATED EXCLUDING WATERMARKS)")
    assert [row[0] for row in rows(t_env, "DESC plain")] == ["ms", "u"]
    with pytest.raises(fp.SqlError, match="there is no column 'ts'"):
        t_env.execute_sql("ALTER TABLE clicks DROP ts")  # it is event time
    t_env.execute_sql("ALTER TABLE clicks DROP WATERMARK")
    t_env.execute_sql("ALTER TABLE clicks MODIFY (ts AS TO_TIMESTAMP_LTZ(ms, 0) FIRST, u BYTES)")
    t_env.execute_sql("ALTER TABLE clicks ADD (up AS ms + 1 AFTER ms, WATERMARK FOR ts AS ts)")
    assert [row[0] for row in rows(t_env, "DESC clicks")] == ["ts", "ms", "up", "u"]
    assert rows(t_env, "DESC clicks")[0][4:] == ("AS TO_TIMESTAMP_LTZ(ms, 0)", "ts")


def test_a_table_is_created_from_a_query(t_env: fp.StreamTableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"k": "a", "v": 1}\n{"k": "b", "v": 200}\n')
    options = f"'connector' = 'filesystem', 'format' = 'json', 'path' = '{tmp_path}/in'"
    t_env.execute_sql(f"CREATE TABLE input WITH ({options}) LIKE orders (EXCLUDING OPTIONS)")
    t_env.execute_sql(f"CREATE TABLE made WITH ({options.replace('/in', '/out')}) AS SELECT k, v * 2 AS w FROM input").wait()
    assert [each[:2] for each in columns(t_env, "made")] == [("k", "STRING"), ("w", "BIGINT")]
    lines = [line for file in (tmp_path / "out").glob("part-*") for line in file.read_text().splitlines()]
    assert sorted(json.loads(line)["w"] for line in lines) == [2, 400]


def test_tables_of_other_databases(t_env: fp.StreamTableEnvironment) -> None:
    t_env.execute_sql("CREATE DATABASE IF NOT EXISTS sales COMMENT 'x'")
    t_env.execute_sql("CREATE CATALOG other WITH ('type' = 'generic_in_memory')")
    assert rows(t_env, "SHOW DATABASES") == [("default_database",), ("sales",)]
    assert rows(t_env, "SHOW CATALOGS") == [("default_catalog",), ("other",), ("state",)]
    t_env.execute_sql("USE sales")
    assert rows(t_env, "SHOW CURRENT DATABASE") == [("sales",)]
    t_env.execute_sql("CREATE TABLE orders (n INT) WITH ('connector' = 'print')")
    t_env.execute_sql("CREATE VIEW v AS SELECT w FROM default_database.large")
    assert columns(t_env, "orders") == [("n", "INT", True, None)]
    t_env.execute_sql("USE CATALOG other")
    assert rows(t_env, "SHOW TABLES") == []
    assert rows(t_env, "SHOW TABLES FROM default_catalog.sales") == [("orders",), ("v",)]
    t_env.execute_sql("CREATE VIEW v AS SELECT k FROM default_catalog.default_database.orders")
    assert t_env.list_tables() == ["large", "orders", "other.default.v", "sales.orders", "sales.v"]
    t_env.execute_sql("USE CATALOG default_catalog")
    assert columns(t_env, "sales.v") == [("w", "BIGINT", False, None)]  # its names are of where it was created
    with pytest.raises(fp.SqlError, match=r"database 'sales' has tables \(orders, v\)"):
        t_env.execute_sql("DROP DATABASE sales")
    t_env.execute_sql("DROP DATABASE sales CASCADE")
    t_env.execute_sql("DROP CATALOG other")
    assert t_env.list_tables() == ["large", "orders"]


def test_settings_are_shown_and_undone(t_env: fp.StreamTableEnvironment) -> None:
    t_env.execute_sql("SET 'execution.checkpointing.interval' = '3 s'")
    t_env.execute_sql("SET 'pipeline.name' = 'sums'")
    assert rows(t_env, "SET") == [("execution.checkpointing.interval", "3 s"), ("pipeline.name", "sums")]
    session = t_env._session
    t_env.execute_sql("RESET 'pipeline.name'")
    assert (session.name, session.env.options.checkpoint.interval_ms) == (None, 3000)
    t_env.execute_sql("RESET")
    assert (rows(t_env, "SET"), session.env.options.checkpoint.interval_ms) == ([], None)
