"""Lookup joins: rows with what a database has for their keys, and a cache that goes with savepoints."""

from __future__ import annotations

import sqlite3
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import forkpoint as fp
from forkpoint.sql.errors import Text
from forkpoint.sql.parser import parse
from forkpoint.sql.statements import CreateTable, Query
from forkpoint.state_processor import SavepointReader
from forkpoint.table.explanation import explained
from forkpoint.table.session import Session
from forkpoint.testing import EOF, PAUSE, Eof, TestSource, run_local


class Order(NamedTuple):
    n: int
    customer: str | None
    city: str


@pytest.fixture
def database(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "db") as connection:
        connection.execute(
            "CREATE TABLE customers (id TEXT, city TEXT, age INTEGER, seen TEXT DEFAULT '2026-01-02 03:04:05.678901')"
        )
        rows = [("ann", "Rome", 30), ("ann", "Oslo", 40), ("bob", "Rome", None), ("eve", "Bonn", 50)]
        connection.executemany("INSERT INTO customers (id, city, age) VALUES (?, ?, ?)", rows)
    return tmp_path / "db"


ORDERS = [
    Order(1, "ann", "Rome"),
    Order(2, "eve", "Rome"),
    Order(3, None, "Oslo"),
    Order(4, "bob", "Rome"),
    Order(5, "ann", "Oslo"),
]
AS_OF = "FOR SYSTEM_TIME AS OF o.now"


def run(queries: list[str], script: list[Any], database: Path, options: str = "", parallelism: int = 2) -> list[Counter[Any]]:
    def job(env: fp.StreamExecutionEnvironment, source: TestSource) -> Any:
        session = Session(env)
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "orders", Order).uid("orders")
        schema = fp.Schema.new_builder().column_by_expression("now", "PROCTIME()").build()
        session.add_stream("orders", stream, schema)
        given = f"'connector' = 'jdbc', 'url' = 'jdbc:sqlite:{database}', 'table-name' = 'customers'{options}"
        (create,) = parse(Text(f"CREATE TABLE customers (id STRING, city STRING, age INT, seen TIMESTAMP(3)) WITH ({given})"))
        assert isinstance(create, CreateTable)
        session.create_table(create)
        found = {}
        for at, query in enumerate(queries):
            (statement,) = parse(Text(query))
            assert isinstance(statement, Query)
            plan = session.plan(statement)
            assert "lookup join" in explained(plan)
            assert "removes" not in explained(plan)
            found[f"q{at}"] = session.stream(plan, f"q{at}")
        return found

    done = run_local(
        job, script, state_root=str(database.parent / "state"), parallelism=parallelism, options={"max_parallelism": 8}
    )
    return [Counter(map(tuple, done.outputs[f"q{at}"])) for at in range(len(queries))]


def test_rows_have_what_the_table_has_for_their_key(database: Path) -> None:
    queries = {
        f"SELECT o.n, c.city FROM orders AS o JOIN customers {AS_OF} AS c ON o.customer = c.id": [
            *((n, city) for n in (1, 5) for city in ("Rome", "Oslo")),
            (2, "Bonn"),
            (4, "Rome"),
        ],
        f"SELECT o.n, c.age, c.id FROM orders AS o LEFT JOIN customers {AS_OF} AS c ON c.id = o.customer AND c.city = o.city": [
            (1, 30, "ann"),
            (2, None, None),
            (3, None, None),
            (4, None, "bob"),
            (5, 40, "ann"),
        ],
        f"SELECT o.n, c.age FROM orders AS o LEFT JOIN customers {AS_OF} AS c ON o.customer = c.id AND age > 30 WHERE n < 5": [
            (1, 40),
            (2, 50),
            (3, None),
            (4, None),
        ],
        f"SELECT c.seen FROM orders AS o JOIN customers {AS_OF} AS c ON o.customer = c.id WHERE c.age = 50": [
            (datetime(2026, 1, 2, 3, 4, 5, 678000),)  # noqa: DTZ001
        ],
    }
    results = run(list(queries), [*ORDERS[:2], PAUSE, *ORDERS[2:]], database)
    for (query, wanted), result in zip(queries.items(), results, strict=True):
        assert result == Counter(wanted), query


def test_the_cache_goes_with_the_savepoint(database: Path) -> None:
    query = f"SELECT o.n, c.age FROM orders AS o LEFT JOIN customers {AS_OF} AS c ON o.customer = c.id"
    options = ", 'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.cache-missing-key' = 'false'"
    first = [Order(1, "ann", ""), Order(2, "dan", ""), PAUSE, Eof(savepoint=True)]
    assert run([query], first, database, options) == [Counter([(1, 30), (1, 40), (2, None)])]
    counts = {state.name: state.count for state in SavepointReader.find(database.parent / "state", "test").states}
    assert counts == {"cache_by_id": 1}
    with sqlite3.connect(database) as connection:
        connection.execute("DELETE FROM customers")
        connection.executemany("INSERT INTO customers (id, city, age) VALUES (?, 'Rome', 7)", [("bob",), ("dan",)])
    more = [*first, Order(3, "ann", ""), Order(4, "bob", ""), Order(5, "dan", "")]
    inner = f"SELECT o.n, c.age + 1 AS next FROM orders AS o JOIN customers {AS_OF} AS c ON o.customer = c.id AND c.age <> 40"
    assert run([inner], [*more, PAUSE, EOF], database, options, 1) == [Counter([(3, 31), (4, 8), (5, 8)])]
    with pytest.raises(fp.RestoreRefused, match="cache_by_id"):  # rows of other keys are no answers
        run([query.replace("c.id", "c.city")], [*more, PAUSE, EOF], database, options, 1)


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        (
            f"SELECT n, COUNT(*), MAX(p) FROM (SELECT o.n, NOW() AS p, COUNT(*) FROM orders AS o JOIN customers {AS_OF} AS c "
            "ON o.customer = c.id GROUP BY o.n) GROUP BY n",
            "",
            "NOW is not deterministic",
        ),
        (
            f"SELECT o.n FROM orders AS o JOIN orders {AS_OF} AS c ON o.customer = c.customer",
            "",
            "'orders' is a stream, which finds no",
        ),
        (
            f"SELECT o.n FROM orders AS o JOIN customers {AS_OF} AS c ON o.customer = c.id",
            ", 'lookup.partial-cache.expire-after-write' = '1 min'",
            "is for a cache; add 'lookup.cache' = 'PARTIAL'",
        ),
        (
            f"SELECT o.n FROM orders AS o JOIN customers {AS_OF} AS c ON o.customer = c.id",
            ", 'lookup.partial-cache.max-rows' = '100'",
            "has no effect here: the cache is state",
        ),
    ],
)
def test_mistakes_are_refused(query: str, options: str, message: str, database: Path) -> None:
    with pytest.raises(fp.ConfigError, match=message):
        run([query], [ORDERS[0]], database, options)
