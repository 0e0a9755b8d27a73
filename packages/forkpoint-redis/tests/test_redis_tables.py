"""Redis as tables of SQL."""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path

import pytest

import forkpoint as fp
from changing_orders import ChangingOrders, Total
from servers.redis_server import Redis


def test_hashes_are_the_current_rows_though_the_job_is_killed(server: Redis, tmp_path: Path) -> None:
    def found() -> dict[tuple[str, int], Total]:
        hashes = {name: server.client.hgetall(name) for name in server.client.scan_iter("totals:*")}
        assert {name[len("totals:") :] for name in hashes} <= {rf"{k}:{n}" for k in ("a", "a_1", r"a\:1", "1") for n in "01"}
        return {
            (row["k"], int(row["n"])): Total(
                int(row["orders"]), Decimal(row["euros"]), row.get("note"), datetime.fromisoformat(row["newest"])
            )
            for row in hashes.values()
            if row
        }

    with ChangingOrders(tmp_path, connector="redis", url=server.url) as job:
        job.check(found)


def test_a_lookup_join_finds_rows_as_they_were_written(server: Redis) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    tables = fp.StreamTableEnvironment.create(env)
    columns = {
        "b": ("BOOLEAN", "TRUE"),
        "x": ("DOUBLE", "CAST('Infinity' AS DOUBLE)"),
        "m": ("DECIMAL(5, 2)", "1.50"),
        "s": ("STRING", "'{\"1'"),
        "y": ("BYTES", "ENCODE('é', 'ISO-8859-1')"),
        "d": ("DATE", "DATE '2026-01-02'"),
        "t": ("TIME", "TIME '03:04:05'"),
        "p": ("TIMESTAMP(3)", "TIMESTAMP '2026-01-02 03:04:05.5'"),
        "l": ("ARRAY<STRING>", "ARRAY['a', 'b']"),
        "o": ("MAP<STRING, INT>", "MAP['a', 7]"),
        "u": ("INT", "CAST(NULL AS INT)"),
    }
    declared = ", ".join(f"{name} {type}" for name, (type, _) in columns.items())
    tables.execute_sql(
        f"CREATE TABLE r (d1 DATE, k STRING, {declared}, PRIMARY KEY (k, d1) NOT ENFORCED) "
        f"WITH ('connector' = 'redis', 'url' = '{server.url}', 'key-prefix' = 'types/', 'key-delimiter' = '/')"
    )
    values = ", ".join(value for _, value in columns.values())
    tables.execute_sql(f"INSERT INTO r SELECT DATE '2026-05-06', k, {values} FROM (VALUES ('a/b'), ('c')) AS v (k)").wait()
    assert set(server.client.scan_iter("types/*")) == {r"types/a\/b/2026-05-06", "types/c/2026-05-06"}
    server.client.hset("types/c/2026-05-06", "s", "other")

    schema = fp.Schema.new_builder().column_by_expression("at", "PROCTIME()").build()
    rows = env.from_collection(
        [(1, "a/b"), (2, "c"), (3, "d")], fp.Types.ROW_NAMED(["i", "k"], [fp.Types.INT(), fp.Types.STRING()])
    )
    tables.create_temporary_view("v", rows, schema)
    query = """SELECT v.i, r.* FROM v LEFT JOIN r FOR SYSTEM_TIME AS OF v.at AS r
        ON r.k = v.k AND r.d1 = DATE '2026-05-06' + INTERVAL '0' DAY * v.i AND r.s = '{"' || CAST(1 + 0 * v.i AS STRING)"""
    found = sorted(map(tuple, tables.execute_sql(query).collect()))
    server.client.hset("types/c/2026-05-06", "u", '1,"s":"x"')
    with pytest.raises(fp.JobFailed, match="the hash 'types/c/2026-05-06' is no row of the table: u: "):
        list(tables.execute_sql(query).collect())
    none = (None,) * (len(columns) + 2)
    assert found[1:] == [(2, *none), (3, *none)]
    assert found[0][:8] == (1, date(2026, 5, 6), "a/b", True, float("inf"), Decimal("1.50"), '{"1', b"\xe9")
    assert found[0][8:] == (
        date(2026, 1, 2),
        time(3, 4, 5),
        datetime.fromisoformat("2026-01-02T03:04:05.5"),
        ["a", "b"],
        {"a": 7},
        None,
    )


def test_options_are_checked() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    tables = fp.StreamTableEnvironment.create(env)
    key, url = "PRIMARY KEY NOT ENFORCED", ", 'url' = 'redis://h'"
    for columns, options, value, message in [
        (f"k STRING {key}", "", "'a'", "connector 'redis' needs the option 'url'"),
        (f"k STRING {key}", f"{url}, 'prefix' = 'p'", "'a'", "did you mean 'key-prefix'?"),
        (f"k STRING {key}", ", 'url' = 'h:6379', 'password' = 'x'", "'a'", "option 'url' is no URL of Redis"),
        ("k STRING", url, "'a'", "table 't' needs PRIMARY KEY (…) NOT ENFORCED for connector 'redis'"),
        (f"k ARRAY<STRING> {key}", url, "ARRAY['a']", "column 'k' of the primary key is ARRAY<STRING>, which has no text"),
        (f"k STRING {key}", rf"{url}, 'key-delimiter' = '\'", "'a'", "begins with a backslash"),
    ]:
        tables.execute_sql(f"CREATE TABLE t ({columns}) WITH ('connector' = 'redis'{options})")
        with pytest.raises(fp.SqlError) as raised:
            tables.execute_sql(f"INSERT INTO t VALUES ({value})")
        assert message in str(raised.value)
        tables.execute_sql("DROP TABLE t")
    tables.execute_sql("CREATE TABLE t (k STRING PRIMARY KEY NOT ENFORCED) WITH ('connector' = 'redis', 'url' = 'redis://h')")
    with pytest.raises(fp.SqlError, match="cannot read table 't', except in a lookup join"):
        tables.execute_sql("SELECT * FROM t")
