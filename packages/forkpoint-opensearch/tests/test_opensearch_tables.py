"""Indices of OpenSearch as tables of SQL."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest

import forkpoint as fp
from changing_orders import ChangingOrders, Total
from servers.opensearch_server import OpenSearch


def test_documents_are_the_current_rows_though_the_job_is_killed(search: OpenSearch, tmp_path: Path) -> None:
    mapping = {"mappings": {"properties": {"newest": {"type": "date"}}}}
    search.request("PUT", "sql_totals", mapping)

    def found() -> dict[tuple[str, int], Total]:
        documents = search.documents("sql_totals")
        assert documents.keys() <= {rf"{k}${n}" for k in ("a", "a_1", "a:1", "1") for n in (0, 1)}
        return {
            (row["k"], row["n"]): Total(
                row["orders"], Decimal(str(row["euros"])), row["note"], datetime.fromisoformat(row["newest"])
            )
            for row in documents.values()
        }

    options = {"document-id.key-delimiter": "$", "json.timestamp-format.standard": "ISO-8601"}
    with ChangingOrders(tmp_path, connector="opensearch", hosts=search.url, index="sql_totals", **options) as job:
        job.check(found)


def test_rows_without_a_key_are_added(search: OpenSearch) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    tables = fp.StreamTableEnvironment.create(env)
    options = f"'connector' = 'opensearch', 'hosts' = '{search.url}', 'index' = 'added', 'format' = 'json'"
    tables.execute_sql(f"CREATE TABLE t (k STRING, m DECIMAL(5, 2)) WITH ({options})")
    tables.execute_sql("INSERT INTO t VALUES ('a', 1.5), ('a', 1.5), (NULL, 2)").wait()
    found = sorted(search.documents("added").values(), key=str)
    assert found == [{"k": "a", "m": 1.5}, {"k": "a", "m": 1.5}, {"k": None, "m": 2}]


def test_options_are_checked() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    tables = fp.StreamTableEnvironment.create(env)
    given, insert = "'hosts' = 'http://h:9200', 'index' = 'i'", "INSERT INTO t VALUES ('a')"
    for options, statement, message in [
        ("'index' = 'i'", insert, "connector 'opensearch' needs the option 'hosts'"),
        ("'hosts' = 'http://h:9200'", insert, "connector 'opensearch' needs the option 'index'"),
        (f"{given}, 'user' = 'u'", insert, "has no option 'user'; did you mean 'username'?"),
        (f"{given}, 'failure-handler' = 'ignore'", insert, "lost documents would not be noticed"),
        (f"{given}, 'connection.path-prefix' = '/v1'", insert, "a path at the end of the URLs of 'hosts' is the prefix"),
        ("'hosts' = 'http://h:9200', 'index' = 'i-{k}'", insert, "a table is written into one index"),
        (given, "INSERT INTO t SELECT k FROM t", "connector 'opensearch' writes tables; it cannot read table 't'"),
        (given, "INSERT INTO t SELECT CAST(COUNT(*) AS STRING) FROM (VALUES (1))", "takes added rows only"),
    ]:
        tables.execute_sql(f"CREATE TABLE t (k STRING) WITH ('connector' = 'opensearch', {options})")
        with pytest.raises(fp.SqlError) as raised:
            tables.execute_sql(statement)
        assert message in str(raised.value)
        tables.execute_sql("DROP TABLE t")
