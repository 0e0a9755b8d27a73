"""SQL in a program: INSERTs start jobs that a program waits for, several can be one job, and tables are known by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

import forkpoint as fp


class Payment(NamedTuple):
    customer: str
    cents: int


def tables(directory: Path) -> fp.StreamTableEnvironment:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    found = fp.StreamTableEnvironment.create(env)
    found.create_temporary_view("payments", env.from_collection([Payment("ann", 3), Payment("bob", 400)], Payment))
    for name in ("small", "large"):
        options = f"'connector' = 'filesystem', 'path' = '{directory / name}', 'format' = 'json'"
        found.execute_sql(f"CREATE TABLE {name} (customer STRING, cents INT NOT NULL, note STRING) WITH ({options})")
    return found


def rows(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for file in sorted(directory.glob("part-*")) for line in file.read_text().splitlines()]


def test_an_insert_starts_a_job(tmp_path: Path) -> None:
    result = tables(tmp_path).execute_sql("INSERT INTO small (cents, customer) SELECT CAST(cents AS INT), customer FROM payments")
    assert result.get_job_client() is not None
    result.wait()
    assert rows(tmp_path / "small") == [
        {"customer": "ann", "cents": 3, "note": None},
        {"customer": "bob", "cents": 400, "note": None},
    ]


@pytest.mark.parametrize("as_text", [True, False])
def test_a_statement_set_is_one_job(tmp_path: Path, as_text: bool) -> None:
    t_env = tables(tmp_path)
    few = "INSERT INTO small SELECT customer, CAST(cents AS INT), 'few' FROM payments WHERE cents < 10"
    many = "INSERT INTO large SELECT customer, CAST(cents AS INT), 'many' FROM payments WHERE cents >= 10"
    if as_text:
        t_env.execute_sql(f"EXECUTE STATEMENT SET BEGIN {few}; {many}; END").wait()
    else:
        t_env.create_statement_set().add_insert_sql(few).add_insert_sql(many).execute().wait()
    assert rows(tmp_path / "small") == [{"customer": "ann", "cents": 3, "note": "few"}]
    assert rows(tmp_path / "large") == [{"customer": "bob", "cents": 400, "note": "many"}]


def test_a_null_does_not_get_into_a_column_that_is_not_null(tmp_path: Path) -> None:
    t_env = tables(tmp_path)
    result = t_env.execute_sql("INSERT INTO small SELECT customer, NULLIF(CAST(cents AS INT), 3), 'x' FROM payments")
    with pytest.raises(fp.JobFailed, match=r"column 'cents' of table 'small' is NOT NULL"):
        result.wait()


def test_tables_and_views_are_known_by_name(tmp_path: Path) -> None:
    t_env = tables(tmp_path)
    t_env.execute_sql("CREATE VIEW totals (customer, total) AS SELECT customer, SUM(cents) FROM payments GROUP BY customer")
    assert t_env.list_tables() == ["large", "payments", "small", "totals"]
    found = t_env.sql_query("SELECT total FROM totals WHERE customer = 'bob'")
    assert "Aggregate SUM(cents) by customer" in found.explain()
    assert [tuple(row) for row in found.execute().collect()] == [(400,)]
    t_env.execute_sql("DROP VIEW totals")
    assert "totals" not in t_env.list_tables()


def test_a_table_that_is_defined_anew_is_read_anew(tmp_path: Path) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    t_env = fp.StreamTableEnvironment.create(env)
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.json").write_text(json.dumps({"k": name}))
    definition = "CREATE TABLE t (k STRING) WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{}')"
    found = []
    for change in (
        definition.format(tmp_path / "a"),
        f"ALTER TABLE t SET ('path' = '{tmp_path / 'b'}')",
        "DROP TABLE t",
        definition.format(tmp_path / "a"),
    ):
        t_env.execute_sql(change)
        if not change.startswith("DROP"):
            found += [row.k for row in t_env.execute_sql("SELECT * FROM t").collect()]
    assert found == ["a", "b", "a"]
