"""Jobs without a state root can never go on, so nothing of theirs stays on the server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import forkpoint as fp
from cdc_jobs import create_table, dropped, source
from forkpoint.testing import run_local
from forkpoint_postgres_cdc.connection import Database
from forkpoint_postgres_cdc.slot import drop_slot
from servers.postgres import Postgres


@pytest.fixture(autouse=True)
def slots(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FORKPOINT_ENGINE", "local")
    with dropped(postgres):
        yield


def ids(source: fp.PostgresSource, env: fp.StreamExecutionEnvironment | None = None) -> fp.DataStream:
    env = env or fp.StreamExecutionEnvironment.get_execution_environment()
    changes = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "t").uid("t")
    return changes.map(lambda change: change.after.id, int).uid("ids")


def slots_of(postgres: Postgres) -> list[Any]:
    return postgres.execute("SELECT slot_name FROM pg_replication_slots")


def test_a_job_without_a_state_root_leaves_no_slot(postgres: Postgres) -> None:
    table = create_table(postgres)
    postgres.execute(f"INSERT INTO {table} VALUES (1), (2)")
    rows = ids(source(postgres, table, is_bounded=True)).execute_and_collect()
    assert next(rows) == 1
    assert len(slots_of(postgres)) == 1
    assert list(rows) == [2]
    assert not slots_of(postgres)


def test_the_first_elements_of_a_job_that_never_ends(postgres: Postgres) -> None:
    """It waits for no more than these, and leaves no slot when it is cancelled."""
    table = create_table(postgres)
    postgres.execute(f"INSERT INTO {table} VALUES (1)")
    assert ids(source(postgres, table)).execute_and_collect(limit=1) == [1]
    assert not slots_of(postgres)


def test_a_job_that_fails_leaves_no_slot_but_has_it_while_it_restarts(postgres: Postgres, tmp_path: Path) -> None:
    table = create_table(postgres)
    env = fp.StreamExecutionEnvironment.get_execution_environment().enable_checkpointing(1)
    env.set_restart_strategy(fp.RestartStrategy.fixed_delay(2, 1))
    dsn, seen = postgres.dsn, tmp_path / "seen"

    def failing(id: int) -> int:
        with psycopg.connect(dsn) as connection, seen.open("a") as file:
            slots = connection.execute("SELECT slot_name FROM pg_replication_slots").fetchall()
            file.write(f"{id} {len(slots)}\n")
        if id == 2:
            raise ValueError("two")
        return id

    with ids(source(postgres, table), env).map(failing, int).uid("failing").execute_and_collect() as rows:
        postgres.execute(f"INSERT INTO {table} VALUES (1)")
        assert next(rows) == 1
        postgres.execute(f"INSERT INTO {table} VALUES (2)")
        with pytest.raises(fp.UserFunctionError, match="two"):
            next(rows)
    assert seen.read_text().splitlines() == ["1 1", "2 1", "2 1", "2 1"]
    assert not slots_of(postgres)


def test_a_job_that_is_cancelled_while_its_slot_waits_for_a_transaction(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forkpoint_postgres_cdc.feed.CLOSE_S", 0.5)
    table = create_table(postgres)
    with postgres.connect() as connection, connection.transaction():
        connection.execute(f"INSERT INTO {table} VALUES (1)")
        rows = ids(source(postgres, table))
        rows.print().uid("print")
        client = rows.get_execution_environment().execute_async()
        while not slots_of(postgres):
            time.sleep(0.01)
        client.cancel().result()
        client.get_job_execution_result().result()
        assert not slots_of(postgres)


def test_a_test_run_leaves_a_slot_only_with_a_state_root(postgres: Postgres, tmp_path: Path) -> None:
    table = create_table(postgres)
    postgres.execute(f"INSERT INTO {table} VALUES (1)")
    bounded = source(postgres, table, is_bounded=True)
    for root, left in ((None, 0), (tmp_path, 1)):
        assert run_local(lambda env: ids(bounded, env), state_root=root).output == [1]
        assert len(slots_of(postgres)) == left


def test_a_slot_that_cannot_be_dropped_is_named(caplog: pytest.LogCaptureFixture) -> None:
    drop_slot(Database("host=127.0.0.1 port=1 dbname=shop password=secret"), "forkpoint_a", "orders")
    assert "PostgresSource 'orders': slot forkpoint_a could not be dropped" in caplog.text
    assert "SELECT pg_drop_replication_slot('forkpoint_a')" in caplog.text
    assert "secret" not in caplog.text
