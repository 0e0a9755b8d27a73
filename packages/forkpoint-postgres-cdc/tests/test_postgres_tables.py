"""Tables of PostgreSQL as tables of SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import forkpoint as fp
from cdc_jobs import create_table, dropped
from servers.postgres import Postgres


@pytest.fixture(autouse=True)
def slots(postgres: Postgres) -> Iterator[None]:
    with dropped(postgres):
        yield


@pytest.mark.parametrize("mode", ["all", "upsert"])
def test_a_query_reads_rows_and_changes(postgres: Postgres, mode: str) -> None:
    table = create_table(postgres, full=mode == "all")
    postgres.execute(f"INSERT INTO {table} SELECT i, 'n' || i % 3, i FROM generate_series(1, 10) i")
    place = psycopg.conninfo.conninfo_to_dict(postgres.dsn)
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    tables = fp.StreamTableEnvironment.create(env)
    tables.execute_sql(
        f"""CREATE TABLE t (id INT, name STRING, amount INT, PRIMARY KEY (id) NOT ENFORCED) WITH (
            'connector' = 'postgres-cdc', 'hostname' = '{place["host"]}', 'port' = '{place["port"]}',
            'username' = '{place["user"]}', 'password' = '{place.get("password", "")}', 'database-name' = '{place["dbname"]}',
            'table-name' = '{table}', 'debezium.publication.name' = '{table}', 'changelog-mode' = '{mode}')"""
    )
    found: Counter[Any] = Counter()
    wanted = {("n0", 3, 18): 1, ("n1", 3, 12): 1, ("n2", 3, 15): 1}
    steps = [
        (f"UPDATE {table} SET amount = amount + 100 WHERE id = 3", {**wanted, ("n0", 3, 118): 1}, ("n0", 3, 18)),
        (f"DELETE FROM {table} WHERE id = 2", {}, ("n2", 3, 15)),
    ]
    postgres.execute(f"DELETE FROM {table} WHERE id = 10")
    with tables.execute_sql("SELECT name, COUNT(*), SUM(amount) FROM t GROUP BY name").collect() as rows:
        for row in rows:
            found[tuple(row)] += 1 if row.get_row_kind() is fp.RowKind.INSERT else -1
            if +found == Counter(wanted):
                if not steps:
                    break
                statement, more, gone = steps.pop(0)
                wanted = {row: 1 for row in {**wanted, **more} if row != gone} | ({("n2", 2, 13): 1} if not steps else {})
                postgres.execute(statement)
