"""SqlLookup against real databases: SQLite and PostgreSQL."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from lookup_jobs import joining

import forkpoint as fp
from forkpoint.errors import ConfigError, ForkpointError, JobFailed, SystemUnavailable
from forkpoint.graph.options import RestartStrategy
from forkpoint.testing import PAUSE, OperatorHarness, run_local

if TYPE_CHECKING:
    from servers.mariadb import MariaDB
    from servers.postgres import Postgres

CREATE = """
CREATE TABLE customers (id INTEGER NOT NULL, shop VARCHAR(10) NOT NULL, name VARCHAR(20), active BOOLEAN, PRIMARY KEY (id, shop));
INSERT INTO customers VALUES (1, 'a', 'Ann', true), (2, 'a', 'Bob', false), (2, 'b', 'Bea', NULL), (3, 'a', NULL, true);
"""
BY_ID = "SELECT id, name FROM customers WHERE shop = 'a' AND id IN :keys"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server of this module's own, which its tests may stop."""
    from servers.postgres import Postgres

    started = Postgres(tmp_path_factory.mktemp("lookup") / "server")
    started.execute(CREATE)
    started.execute("CREATE TABLE many (id BIGINT PRIMARY KEY, doubled NUMERIC)")
    started.execute("INSERT INTO many SELECT n, n * 2 FROM generate_series(0, 2499) n")
    yield started
    started.resume()
    started.stop()


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("sqlite") / "customers.db"
    with sqlite3.connect(file) as connection:
        connection.executescript(CREATE)
        connection.execute("CREATE TABLE many (id BIGINT PRIMARY KEY, doubled NUMERIC)")
        connection.executemany("INSERT INTO many VALUES (?, ?)", [(n, n * 2) for n in range(2500)])
    connection.close()
    return f"sqlite:///{file}"


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    from servers.mariadb import MariaDB

    started = MariaDB(tmp_path_factory.mktemp("mariadb") / "server")
    yield started
    started.stop()


@pytest.fixture(scope="module")
def mysql(mariadb: MariaDB) -> str:
    for statement in filter(str.strip, CREATE.split(";")):
        mariadb.execute(statement)
    mariadb.execute("CREATE TABLE many (id BIGINT PRIMARY KEY, doubled NUMERIC)")
    mariadb.execute(f"INSERT INTO many VALUES {', '.join(f'({n}, {n * 2})' for n in range(2500))}")
    return mariadb.url.replace("mysql+pymysql", "mariadb")


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest) -> str:
    match request.param:
        case "sqlite":
            found: str = request.getfixturevalue("sqlite")
        case "mariadb":
            found = request.getfixturevalue("mysql")
        case _:
            found = request.getfixturevalue("server").url.replace("+psycopg", "")
    return found


def found_for(lookup: Any, keys: list[Any], **options: Any) -> list[Any]:
    """What the lookup join makes of the keys, in their order."""
    with OperatorHarness(lambda s: s.lookup_join(lookup, key=lambda k: k, **options)) as harness:
        harness.process_elements([(key, None) for key in keys])
        assert [key for key, _ in harness.output] == keys
        return [found for _, found in harness.output]


@dataclass(frozen=True)
class Customer:
    name: str | None
    active: bool | None = None


class Named(NamedTuple):
    id: int
    name: str | None


def test_rows_of_a_query(url: str) -> None:
    rows = found_for(fp.SqlLookup(url, BY_ID, key="id"), [2, 9, 1, 2])
    assert rows == [{"id": 2, "name": "Bob"}, None, {"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}]
    assert found_for(fp.SqlLookup(url, BY_ID, key="id", result_type=Named), [3, 9]) == [Named(3, None), None]
    assert found_for(fp.SqlLookup(url, BY_ID, key="id", result_type=str | None), [1, 9]) == ["Ann", None]


def test_rows_of_a_table(url: str) -> None:
    whole = fp.SqlLookup(url, table="customers", key=("id", "shop"))
    assert found_for(whole, [(2, "b"), (2, "c")])[0] | {"active": None} == {
        "id": 2,
        "shop": "b",
        "name": "Bea",
        "active": None,
    }
    typed = fp.SqlLookup(url, table="customers", columns=["name", "active"], key=["id", "shop"], result_type=Customer)
    keys = [(2, "b"), (1, "a"), (2, "a"), (7, "a")]
    assert found_for(typed, keys) == [Customer("Bea"), Customer("Ann", True), Customer("Bob", False), None]
    flag = fp.SqlLookup(url, table="customers", columns=["active"], key=("id", "shop"), result_type=bool | None)
    assert found_for(flag, [(1, "a"), (2, "a")]) == [True, False]
    pairs = "SELECT * FROM customers WHERE (id, shop) IN :keys"
    assert [r["name"] for r in found_for(fp.SqlLookup(url, pairs, key=("id", "shop")), keys[:3])] == [
        "Bea",
        "Ann",
        "Bob",
    ]


def test_all_rows_of_a_key(url: str) -> None:
    lookup = fp.SqlLookup(url, table="customers", columns=["name"], key="id", many=True, result_type=str | None)
    assert [names and sorted(names) for names in found_for(lookup, [2, 9, 1])] == [["Bea", "Bob"], None, ["Ann"]]
    with pytest.raises(JobFailed, match=r"the lookup of the keys \[2\] failed: .* several rows for key 2; .*many=True"):
        found_for(fp.SqlLookup(url, table="customers", key="id"), [2])


def test_many_keys_are_a_few_queries(url: str) -> None:
    lookup = fp.SqlLookup(url, table="many", key="id", result_type=Decimal, max_batch_size=1000)
    keys = [n * 7 % 3000 for n in range(3000)]
    assert found_for(lookup, keys) == [Decimal(2 * n) if n < 2500 else None for n in keys]


def test_a_job_with_a_cache(url: str, tmp_path: Path) -> None:
    orders = [("o1", 1), ("o2", 2), PAUSE, ("o3", 1), ("o4", 9)]

    def build(env: Any, source: Any) -> Any:
        stream = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "orders", type_info=tuple[str, int]).uid("orders")
        lookup = fp.SqlLookup(url, BY_ID, key="id", result_type=Customer)
        return stream.lookup_join(lookup, lambda o, c: (o[0], c.name), key=1, on_missing="drop", cache_ttl=timedelta(hours=1))

    run = run_local(build, orders, parallelism=1)
    assert run.output == [("o1", "Ann"), ("o2", "Bob"), ("o3", "Ann")]


# -- what is wrong


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"query": "SELECT * FROM nowhere WHERE id IN :keys", "key": "id"}, ForkpointError, "nowhere"),
        ({"query": "SELECT * FROM", "key": "id"}, ConfigError, r"parameters \[\]; it takes one"),
        ({"query": "SELECT * FROM c WHERE id IN :ids", "key": "id"}, ConfigError, r"parameters \['ids'\]"),
        (
            {"query": "SELECT name FROM customers WHERE id IN :keys", "key": "id"},
            JobFailed,
            "without the key's column 'id'",
        ),
        ({"query": BY_ID, "key": ("id", "shop")}, JobFailed, "key 1 is not a tuple of 2 values"),
        ({"query": BY_ID, "key": "id", "result_type": int}, JobFailed, "cannot be used: .*expected int, got 'Ann'"),
        ({"table": "customers", "key": "id", "result_type": str}, JobFailed, "which is no record, select one besides"),
        (
            {"query": BY_ID.replace("id,", "id + 1 AS id,"), "key": "id"},
            JobFailed,
            r"row for key 2 \(int\), which was not requested",
        ),
        ({"table": "customers", "key": "no"}, ForkpointError, "no"),
        ({"query": BY_ID, "table": "customers", "key": "id"}, ConfigError, "either a query or a table"),
        ({"key": "id"}, ConfigError, "either a query or a table"),
        ({"query": BY_ID, "columns": ["name"], "key": "id"}, ConfigError, "is for a table"),
        ({"query": BY_ID, "key": ()}, ConfigError, "at least one column"),
        ({"query": BY_ID, "key": "id", "engine_options": {"colour": 1}}, ConfigError, "engine_options"),
    ],
)
def test_what_is_wrong_is_said(url: str, options: Any, error: type[ForkpointError], text: str) -> None:
    with pytest.raises(error, match=text):
        found_for(fp.SqlLookup(url, **options), [1])


@pytest.mark.parametrize("url", ["", "customers", "oracle9://x/y", "postgresql://u:secret@h:port/d", "sqlite://"])
def test_a_wrong_url_is_refused_at_once_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="SqlLookup: ") as raised:
        fp.SqlLookup(url, BY_ID, key="id")
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("secret", "wrong"), "password authentication failed"),
        (("tests:secret", "nobody:secret"), "authentication failed"),
        (("/tests", "/nowhere"), 'database "nowhere" does not exist'),
    ],
)
def test_wrong_credentials(server: Postgres, change: tuple[str, str], said: str) -> None:
    lookup = fp.SqlLookup(changed(server.url, *change), BY_ID, key="id")
    with pytest.raises(ConfigError, match=rf"operator .*: .*{said}.*Correct user, password") as raised:
        found_for(lookup, [1])
    assert not re.search(":(secret|wrong)@", str(raised.value))


@pytest.mark.parametrize(("change", "said"), [(("secret", "wrong"), "Access denied"), (("/tests", "/nowhere"), "nowhere")])
def test_wrong_credentials_of_mariadb(mariadb: MariaDB, change: tuple[str, str], said: str) -> None:
    lookup = fp.SqlLookup(changed(mariadb.url, *change), BY_ID, key="id")
    with pytest.raises(ConfigError, match=rf"operator .*: .*{said}.*Correct user, password"):
        found_for(lookup, [1])


def test_a_table_that_may_not_be_read(server: Postgres) -> None:
    server.execute("CREATE USER guest PASSWORD 'secret'")
    lookup = fp.SqlLookup(server.url.replace("tests:", "guest:"), BY_ID, key="id")
    with pytest.raises(ConfigError, match=r"permission denied for table customers.*grant the rights"):
        found_for(lookup, [1])


def test_nobody_listens() -> None:
    lookup = fp.SqlLookup("postgresql://tests:secret@127.0.0.1:1/tests", BY_ID, key="id")
    with pytest.raises(SystemUnavailable, match=r"operator .*127\.0\.0\.1:1/tests: .*onnection refused"):
        found_for(lookup, [1], retry_strategy=fp.NoRetryStrategy())


def test_a_locked_database_is_asked_again(tmp_path: Path) -> None:
    file = tmp_path / "locked.db"
    with sqlite3.connect(file, isolation_level=None, check_same_thread=False) as connection:
        connection.executescript(CREATE)
        connection.execute("BEGIN EXCLUSIVE")
        threading.Timer(0.3, lambda: connection.execute("COMMIT")).start()
        lookup = fp.SqlLookup(f"sqlite:///{file}", BY_ID, key="id", engine_options={"connect_args": {"timeout": 0.05}})
        assert found_for(lookup, [1], retry_strategy=fp.FixedDelayRetryStrategy(100, 20)) == [{"id": 1, "name": "Ann"}]
    connection.close()
    other = fp.SqlLookup(f"sqlite:///{file}", "SELECT * FROM nowhere WHERE id IN :keys", key="id")
    with pytest.raises(JobFailed, match="no such table: nowhere"):
        found_for(other, [1])


def test_settings_of_the_database_change_no_value(server: Postgres) -> None:
    server.execute("CREATE TABLE values_of (id INT, x FLOAT8, at TIMESTAMPTZ, data BYTEA)")
    server.execute("INSERT INTO values_of VALUES (1, 0.30000000000000004, '2026-02-03 04:05:06+00', '\\x00ff')")
    settings = {
        "DateStyle": "German",
        "extra_float_digits": "0",
        "TimeZone": "America/New_York",
        "bytea_output": "escape",
    }
    try:
        for name, value in settings.items():
            server.execute(f"ALTER ROLE CURRENT_USER SET {name} = '{value}'")
        (row,) = found_for(fp.SqlLookup(server.url, table="values_of", key="id"), [1])
    finally:
        for name in settings:
            server.execute(f"ALTER ROLE CURRENT_USER RESET {name}")
    assert (row["x"], bytes(row["data"])) == (0.30000000000000004, b"\0\xff")
    assert row["at"] == datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)


def test_a_server_that_is_killed_pauses_the_job(server: Postgres) -> None:
    """Connections of the pool are dead then; those to come are refused for a while."""
    lookup = fp.SqlLookup(server.url, BY_ID, key="id", result_type=str | None)
    starting = threading.Timer(0.5, server.start)
    STEPS[2] = lambda: (server.kill(), starting.start())
    build = joining(lookup, ahead=lambda s: s.map(acting, tuple[int, int]), key=0, retry_strategy=fp.NoRetryStrategy())
    run = run_local(
        build,
        [("a", 1), PAUSE, ("b", 2), PAUSE, ("c", 3)],
        parallelism=1,
        options={"restart": RestartStrategy.fixed_delay(1, 50)},
    )
    assert run.output == [((1, 1), "Ann"), ((2, 2), "Bob"), ((3, 3), None)]
    assert run.restarts == 1
    starting.join()  # it asks the server whether it answers, which the next test stops


def test_a_server_that_stands_still_is_left_after_the_timeout(server: Postgres) -> None:
    before = threading.active_count()
    lookup = fp.SqlLookup(server.url, BY_ID, key="id")
    try:
        with OperatorHarness(lambda s: s.lookup_join(lookup, key=lambda k: k, timeout=500)) as harness:
            harness.process_element(1)
            _pause(server)
            with pytest.raises(SystemUnavailable, match="no answer within 500 ms; increase the timeout"):
                harness.process_element(2)
        while threading.active_count() > before:  # the query's thread ends, though the server has not answered
            time.sleep(0.01)
    finally:
        _resume(server)


def changed(url: str, old: str, new: str) -> str:
    before, _, after = url.rpartition(old)
    return f"{before}{new}{after}"


STEPS: dict[int, Any] = {}


def acting(order: Any) -> tuple[int, int]:
    if (step := STEPS.pop(order[1], None)) is not None:
        step()
    return order[1], order[1]


def _pause(server: Postgres) -> None:
    """All its processes, each of which has a session of its own."""
    _to_all(server, "STOP")


def _resume(server: Postgres) -> None:
    _to_all(server, "CONT")


def _to_all(server: Postgres, signal: str) -> None:
    import os
    from signal import Signals

    import psutil

    assert server._process is not None
    parent = psutil.Process(server._process.pid)
    for process in [parent, *parent.children(recursive=True)]:
        os.kill(process.pid, Signals[f"SIG{signal}"])
