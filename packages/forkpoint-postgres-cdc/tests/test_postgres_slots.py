"""What the slot keeps, who moves it, and what happens when it, the server or the rights are gone."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from cdc_jobs import Loop, contents, create_table, dropped, named, replay, source
from forkpoint.testing import PAUSE, Abort, Eof, run_local
from forkpoint_postgres_cdc import feed
from forkpoint_postgres_cdc.enumerator import PostgresEnumerator
from servers.postgres import Postgres


@pytest.fixture(autouse=True)
def slots(postgres: Postgres) -> Iterator[None]:
    with dropped(postgres):
        yield


def confirmed(postgres: Postgres, loop: Loop) -> int:
    query = "SELECT (confirmed_flush_lsn - '0/0'::pg_lsn)::int8 FROM pg_replication_slots WHERE slot_name = %s"
    return postgres.execute(query, loop.source.slot)[0][0]  # type: ignore[no-any-return]


def test_the_slot_is_moved_only_to_what_has_been_committed(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "ADVANCE_S", 0.0)
    table = create_table(postgres)
    with Loop(source(postgres, table)) as loop:
        loop.until_read()
        before = loop.position["lsn"]
        postgres.execute(f"INSERT INTO {table} VALUES (1)")
        while not loop.step(commit=False):
            time.sleep(0.002)
        time.sleep(0.1)
        assert confirmed(postgres, loop) <= before
        loop.enumerator.committed(loop.enumerator.position)
        loop.until(lambda: confirmed(postgres, loop) > before)
        assert confirmed(postgres, loop) <= loop.enumerator.position["lsn"]


def test_a_transaction_that_is_larger_than_an_epoch_goes_on_after_a_restart(postgres: Postgres) -> None:
    table = create_table(postgres)
    position = None
    with Loop(source(postgres, table)) as loop:
        loop.until_read()
        postgres.execute(f"INSERT INTO {table} SELECT i FROM generate_series(1, 2500) i")
        postgres.execute(f"INSERT INTO {table} VALUES (0)")
        loop.until(lambda: len(loop.changes) >= 1000, max_rows=400)
        found, position = loop.changes, loop.position
        assert position["skip"] == len(found)
    with Loop(source(postgres, table), position) as loop:
        found = found + loop.until_changes(2501 - len(found), max_rows=400)
    assert [change.after.id for change in found] == [*range(1, 2501), 0]


def test_small_transactions_stay_whole(postgres: Postgres) -> None:
    table = create_table(postgres)
    with Loop(source(postgres, table)) as loop:
        loop.until_read()
        for n in range(50):
            postgres.execute(f"INSERT INTO {table} SELECT {n * 3} + i FROM generate_series(0, 2) i")
        sizes = []
        while sum(sizes) < 150:
            sizes.append(loop.step(10))
        assert {size % 3 for size in sizes} == {0}
        assert max(sizes) == 9


def test_changes_of_other_tables_move_the_slot(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forkpoint_postgres_cdc.enumerator.HEARTBEAT_BYTES", 100_000)
    monkeypatch.setattr(feed, "ADVANCE_S", 0.0)
    table, other = create_table(postgres), create_table(postgres)
    with Loop(source(postgres, table)) as loop:
        loop.until_read()
        before = loop.position["lsn"]
        postgres.execute(f"INSERT INTO {other} SELECT i, repeat('x', 100) FROM generate_series(1, 3000) i")
        loop.until(lambda: confirmed(postgres, loop) > before + 300_000)
        assert not loop.changes


def test_keys_that_move_between_ranges_read_in_different_snapshots(postgres: Postgres) -> None:
    """The snapshot is begun again after every epoch, beside random changes, also of keys."""
    table = create_table(postgres, full=True)
    rng = random.Random(7)
    postgres.execute(f"INSERT INTO {table} SELECT i, 'n', 0 FROM generate_series(0, 198, 2) i")

    def change(count: int) -> None:
        for _ in range(count):
            old, new = rng.randrange(200), rng.randrange(200)
            with postgres.connect() as connection, connection.transaction():
                kind = rng.random()
                if kind < 0.6:
                    query = (
                        f"UPDATE {table} SET id = {new}, amount = amount + 1 WHERE id = {old} "
                        f"AND NOT EXISTS (SELECT 1 FROM {table} WHERE id = {new})"
                    )
                    connection.execute(query)
                elif kind < 0.8:
                    connection.execute(f"DELETE FROM {table} WHERE id = {old}")
                else:
                    connection.execute(f"INSERT INTO {table} VALUES ({new}, 'n', 0) ON CONFLICT DO NOTHING")

    changes: list[Any] = []
    position = None
    for _ in range(6):
        with Loop(source(postgres, table, split_size=7), position) as loop:
            loop.until(lambda: bool(loop.changes), max_rows=14)
            changes, position = changes + loop.changes, loop.position
        change(30)
    with Loop(source(postgres, table, split_size=7, is_bounded=True), position) as loop:
        loop.until(lambda: loop.enumerator.finished)
        changes, position = changes + loop.changes, loop.position
    assert replay(changes) == contents(postgres, table)
    assert all(len(parts) == 1 for parts in position["tables"].values())  # of old snapshots nothing is kept


def test_only_changes(postgres: Postgres) -> None:
    table = create_table(postgres)
    postgres.execute(f"INSERT INTO {table} VALUES (1)")
    with Loop(source(postgres, table, snapshot=False)) as loop:
        loop.until(lambda: loop.position is not None and loop.position["slot"] is not None)
        postgres.execute(f"INSERT INTO {table} VALUES (2)")
        assert [change.after.id for change in loop.until_changes(1)] == [2]


def test_a_table_that_is_added_to_the_source_is_read(postgres: Postgres) -> None:
    table, added = create_table(postgres), create_table(postgres)
    postgres.execute(f"INSERT INTO {table} VALUES (1)")
    postgres.execute(f"INSERT INTO {added} VALUES (1)")
    with Loop(source(postgres, table)) as loop:
        loop.until_read()
        postgres.execute(f"INSERT INTO {table} VALUES (2)")
        postgres.execute(f"INSERT INTO {added} VALUES (2)")
        loop.until_changes(2)
        postgres.execute(f"INSERT INTO {added} VALUES (3)")
    with Loop(source(postgres, table, added), loop.position) as early, pytest.raises(fp.ConfigError, match="ADD TABLE"):
        early.until_it_fails()
    postgres.execute(f"ALTER PUBLICATION {table} ADD TABLE {added}")
    with Loop(source(postgres, table, added), loop.position) as loop:
        loop.until_read()
        postgres.execute(f"INSERT INTO {added} VALUES (4)")
        assert [(change.table, change.after.id) for change in loop.until_changes(4)] == [(added, id) for id in (1, 2, 3, 4)]


# -- restored jobs


def test_a_fork_has_a_slot_of_its_own(postgres: Postgres) -> None:
    table = create_table(postgres)
    postgres.execute(f"INSERT INTO {table} VALUES (1)")
    with Loop(source(postgres, table)) as loop:
        loop.until_changes(1)
        loop.until_read()
    postgres.execute(f"INSERT INTO {table} VALUES (2)")
    with (
        Loop(source(postgres, table), loop.position, job="fork") as fork,
        Loop(source(postgres, table), loop.position) as first,
    ):
        assert fork.source.slot != first.source.slot
        for each in (fork, first):
            assert [change.after.id for change in each.until_changes(1)] == [2]


def test_what_the_slot_does_not_have_any_more_is_said(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "ADVANCE_S", 0.0)
    table = create_table(postgres)
    with Loop(source(postgres, table)) as loop:
        loop.until_read()
        old = loop.position
        postgres.execute(f"INSERT INTO {table} VALUES (1)")
        loop.until_changes(1)
        loop.until(lambda: confirmed(postgres, loop) > old["lsn"])
    for job in ("job", "fork"):
        with (
            Loop(source(postgres, table), old, job) as restored,
            pytest.raises(fp.JobFailed, match="the changes between are gone"),
        ):
            restored.until_it_fails()


def test_an_old_driver_that_confirms_what_the_newer_one_needs_is_found_out(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer run goes on from an earlier savepoint; then the old one wakes up, and confirms what it had committed."""
    monkeypatch.setattr(feed, "ADVANCE_S", 0.0)
    table = create_table(postgres)
    sleeps, real = False, feed.flushed
    monkeypatch.setattr(feed, "flushed", lambda connection: 0 if sleeps else real(connection))
    with Loop(source(postgres, table)) as newer:
        newer.until_read()
        newer.until(lambda: newer.enumerator._feed.doing.startswith("following"))
        sleeps = True
        time.sleep(0.1)
        postgres.execute(f"INSERT INTO {table} VALUES (1)")
        postgres.execute("SELECT pg_replication_slot_advance(%s, pg_current_wal_insert_lsn())", newer.source.slot)
        sleeps = False
        with pytest.raises(fp.JobFailed, match="the changes between are gone"):
            newer.until_it_fails()
    assert not newer.changes


def test_a_slot_that_was_dropped(postgres: Postgres) -> None:
    table = create_table(postgres)
    with Loop(source(postgres, table)) as loop:
        loop.until_read()
    postgres.execute("SELECT pg_drop_replication_slot(%s)", loop.source.slot)
    with (
        Loop(source(postgres, table), loop.position) as again,
        pytest.raises(fp.JobFailed, match=r"does not exist any more.*new uid"),
    ):
        again.until_it_fails()


def test_each_change_counts_once_whenever_the_process_dies_and_in_a_fork(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create_table(postgres)
    postgres.execute(f"INSERT INTO {table} SELECT i, 'n', 0 FROM generate_series(1, 40) i")
    real = PostgresEnumerator.plan

    def patient(self: PostgresEnumerator, max_rows: int, parallelism_hint: int = 2) -> list[Any]:
        """Every epoch reads something while there is something."""
        while not (planned := real(self, max_rows, parallelism_hint)) and not self.finished:
            if self._position is not None and not self._position.unread([table]):
                break
            time.sleep(0.002)
        return planned

    monkeypatch.setattr(PostgresEnumerator, "plan", patient)

    def build(bounded: bool) -> Callable[..., fp.DataStream]:
        def job(env: fp.StreamExecutionEnvironment, *scripts: Any) -> fp.DataStream:
            for each in scripts:
                env.from_source(each, fp.WatermarkStrategy.no_watermarks(), "s").uid("s").sink_to(fp.DiscardSink()).uid("n")
            rows = source(postgres, table, split_size=5, is_bounded=bounded)
            changes = env.from_source(rows, fp.WatermarkStrategy.no_watermarks(), "t").uid("t")
            return changes.map(lambda change: change.after.id, int).uid("m")

        return job

    steps = ("planned", "computed", "written", "committed", "published")
    script = [item for step in steps for item in (PAUSE, Abort(step))]
    first = run_local(build(False), [*script, *[PAUSE] * 5, Eof(savepoint=True)], epochs=5, state_root=tmp_path, parallelism=2)
    assert first.deaths == 5
    assert first.output == list(range(1, 41))
    postgres.execute(f"INSERT INTO {table} SELECT i, 'n', 0 FROM generate_series(41, 50) i")
    saved = fp.RestoreOptions(first.savepoint, allow_non_restored=True)
    for name in ("fork", "test"):
        again = run_local(build(True), job_name=name, state_root=tmp_path, restore=saved)
        assert again.output == list(range(41, 51))


# -- what is wrong


def test_what_is_missing_is_said(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    table, other = create_table(postgres), create_table(postgres)
    view = named("v")
    postgres.execute(f"CREATE VIEW {view} AS SELECT 1")
    given = source(postgres, table)
    with pytest.raises(fp.ConfigError, match="there is no table 'nothing'"):
        source(postgres, "nothing").output_type()
    with pytest.raises(fp.ConfigError, match="is not a table that logs its changes"):
        source(postgres, view).output_type()
    for options, problem in (
        ({"publication": "nothing"}, "no publication 'nothing': CREATE PUBLICATION \"nothing\" FOR TABLE"),
        ({"publication": other}, "does not have table .*: ALTER PUBLICATION"),
    ):
        with Loop(source(postgres, table, **options)) as loop, pytest.raises(fp.ConfigError, match=problem):
            loop.until_it_fails()
    row = given.output_type().children[1].children[0]
    wrong = fp.PostgresSource(postgres.dsn.replace("secret", "wrong"), [table], table, row)
    with (
        Loop(wrong) as loop,
        pytest.raises(fp.ConfigError, match=r"password authentication failed.*Correct user, password"),
    ):
        loop.until_it_fails()
    monkeypatch.setattr(feed, "START_S", 0.1)
    away = fp.PostgresSource("host=127.0.0.1 port=1 password=secret", [table], table, row)
    with Loop(away) as loop, pytest.raises(fp.SystemUnavailable, match=r"127\.0\.0\.1:1.*Start the server") as caught:
        loop.until_it_fails()
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(away)
    with pytest.raises(fp.ConfigError, match="tables is 't'; give a list"):
        fp.PostgresSource("", "t", "p")


def test_a_user_without_rights(postgres: Postgres) -> None:
    table, role = create_table(postgres), named("r")
    postgres.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
    dsn = postgres.dsn.replace("user=tests", f"user={role}")
    with pytest.raises(fp.ConfigError, match="GRANT SELECT"):
        fp.PostgresSource(dsn, [table], table).output_type()
    postgres.execute(f"GRANT SELECT ON {table} TO {role}")
    with (
        Loop(fp.PostgresSource(dsn, [table], table)) as loop,
        pytest.raises(fp.ConfigError, match="ALTER ROLE … REPLICATION"),
    ):
        loop.until_it_fails()
    postgres.execute(f"ALTER ROLE {role} REPLICATION")
    postgres.execute(f"INSERT INTO {table} VALUES (1)")
    with Loop(fp.PostgresSource(dsn, [table], table)) as loop:
        loop.until_read()
        postgres.execute(f"INSERT INTO {table} VALUES (2)")
        assert len(loop.until_changes(2)) == 2


@pytest.mark.parametrize("statement", ["DROP TABLE {0}", "ALTER PUBLICATION {0} DROP TABLE {0}", "DROP PUBLICATION {0}"])
def test_what_is_removed_under_the_job(postgres: Postgres, monkeypatch: pytest.MonkeyPatch, statement: str) -> None:
    monkeypatch.setattr(feed, "CHECK_S", 0.0)
    table = create_table(postgres)
    with Loop(source(postgres, table)) as loop:
        loop.until_read()
        postgres.execute(statement.format(table))
        with pytest.raises(fp.JobFailed, match="new uid"):
            loop.until_it_fails()


def test_a_server_without_logical_replication(tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("replica") / "server"
    server = Postgres(directory, wal_level="replica")
    try:
        table = create_table(server)
        with Loop(source(server, table)) as loop, pytest.raises(fp.ConfigError, match="set wal_level = logical"):
            loop.until_it_fails()
    finally:
        server.stop()


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server that may be killed."""
    server = Postgres(
        tmp_path_factory.mktemp("own") / "server",
        max_slot_wal_keep_size="1MB",
        min_wal_size="32MB",
        max_wal_size="32MB",
    )
    yield server
    server.stop()


def test_a_server_that_is_killed_and_started_again(own: Postgres) -> None:
    table = create_table(own)
    own.execute(f"INSERT INTO {table} SELECT i FROM generate_series(1, 100) i")
    with Loop(source(own, table, split_size=10)) as loop:
        loop.until(lambda: len(loop.changes) >= 30, max_rows=10)
        own.kill()
        own.start()
        while len(loop.changes) < 100:  # ranges of the lost snapshot fail in tasks, which restarts the attempt
            try:
                loop.step(10)
            except fp.SystemUnavailable:
                loop.enumerator.close()
                loop.enumerator = loop.source.create_enumerator(loop.position)
            time.sleep(0.002)
        loop.until_read()
        own.execute(f"INSERT INTO {table} VALUES (101)")
        loop.until_changes(101)
        own.kill()
        assert loop.step() == 0
        own.start()
        own.execute(f"INSERT INTO {table} VALUES (102)")
        assert [change.after.id for change in loop.until_changes(102)] == list(range(1, 103))


def test_a_slot_whose_log_the_server_has_removed(own: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeps, real = False, feed.flushed
    monkeypatch.setattr(feed, "flushed", lambda connection: 0 if sleeps else real(connection))
    table = create_table(own)
    with Loop(source(own, table)) as loop:
        loop.until_read()
        loop.until(lambda: loop.enumerator._feed.doing.startswith("following"))
        sleeps = True
        time.sleep(0.1)
        for _ in range(4):
            own.execute(f"INSERT INTO {table} VALUES (1); DELETE FROM {table}; SELECT pg_switch_wal()")
            own.execute("CHECKPOINT")
        sleeps = False
        with pytest.raises(fp.JobFailed, match=r"max_slot_wal_keep_size.*new uid"):
            loop.until_it_fails()
    with Loop(source(own, table), loop.position) as again, pytest.raises(fp.JobFailed, match="wal_status = lost"):
        again.until_it_fails()
