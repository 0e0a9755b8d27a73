"""Tables of Cassandra as tables of SQL."""

from __future__ import annotations

from pathlib import Path

import pytest

import forkpoint as fp
from changing_orders import ChangingOrders, Total
from servers.cassandra_server import PASSWORD, USER, Cassandra


def test_rows_are_current_though_the_job_is_killed(cassandra: Cassandra, tmp_path: Path) -> None:
    cassandra.execute(
        "CREATE TABLE tests.sql_totals "
        "(k text, n int, orders bigint, euros decimal, note text, newest timestamp, PRIMARY KEY (k, n))"
    )

    def found() -> dict[tuple[str, int], Total]:
        rows = cassandra.execute("SELECT k, n, orders, euros, note, newest FROM tests.sql_totals")
        return {(row.k, row.n): Total(*row[2:]) for row in rows}

    options = {"keyspace": "tests", "table_name": "sql_totals", "username": USER, "password": PASSWORD, "consistency": "ONE"}
    with ChangingOrders(tmp_path, connector="cassandra", hosts=cassandra.address, **options) as job:
        job.check(found)


def test_options_are_checked(cassandra: Cassandra) -> None:
    cassandra.execute("CREATE TABLE tests.keyed (k text, n int, v int, PRIMARY KEY (k, n))")
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    tables = fp.StreamTableEnvironment.create(env)
    given, key = f"'hosts' = '{cassandra.address}', 'keyspace' = 'tests', 'table-name' = 'keyed'", "PRIMARY KEY (k) NOT ENFORCED"
    login = f"{given}, 'username' = '{USER}', 'password' = '{PASSWORD}'"
    for columns, options, message in [
        (key, given.replace("hosts", "host"), "connector 'cassandra' needs the option 'hosts'"),
        (key, given.replace("keyspace", "space"), "connector 'cassandra' needs the option 'keyspace'"),
        (key, given.replace("table-name", "table"), "connector 'cassandra' needs the option 'table-name'"),
        (key, f"{given}, 'user' = 'u'", "has no option 'user'; did you mean 'username'?"),
        ("v INT", given, "table 't' needs PRIMARY KEY (…) NOT ENFORCED for connector 'cassandra'"),
        (key, login, "the primary key of tests.keyed is (k, n), but the one in SQL is (k); make them the same"),
        (f"w INT, {key}", login, "tests.keyed has no column 'w'; it has k, n, v"),
    ]:
        tables.execute_sql(f"CREATE TABLE t (k STRING, {columns}) WITH ('connector' = 'cassandra', {options})")
        with pytest.raises(fp.ConfigError) as raised:
            tables.execute_sql("INSERT INTO t (k) VALUES ('a')").wait()
        assert message in str(raised.value)
        tables.execute_sql("DROP TABLE t")
