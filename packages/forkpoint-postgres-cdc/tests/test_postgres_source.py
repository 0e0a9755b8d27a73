"""PostgresSource against a real server: what is planned and read."""

from __future__ import annotations

import threading
import time as monotonic
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

import forkpoint as fp
from cdc_jobs import Loop, contents, create_table, dropped, named, replay, source
from forkpoint.testing import run_local
from servers.postgres import Postgres


@pytest.fixture(autouse=True)
def slots(postgres: Postgres) -> Iterator[None]:
    with dropped(postgres):
        yield


def test_rows_then_changes(postgres: Postgres) -> None:
    table = create_table(postgres)
    postgres.execute(f"INSERT INTO {table} SELECT i, 'n' || i, i * 10 FROM generate_series(1, 25) i")
    with Loop(source(postgres, table, split_size=10)) as loop:
        rows = loop.until_changes(25)
        assert [(c.kind, c.before, tuple(c.after)) for c in rows] == [
            (fp.RowKind.INSERT, None, (i, f"n{i}", i * 10)) for i in range(1, 26)
        ]
        assert rows[0].table == table
        assert rows[0].database == "tests"
        with postgres.connect() as connection, connection.transaction():
            connection.execute(f"INSERT INTO {table} VALUES (26, 'new', NULL)")
            connection.execute(f"UPDATE {table} SET amount = -1 WHERE id = 3")
            connection.execute(f"UPDATE {table} SET id = 100 WHERE id = 4")
            connection.execute(f"DELETE FROM {table} WHERE id = 5")
        changes = loop.until_changes(29)[25:]
        assert [(c.kind.name, c.before and tuple(c.before), c.after and tuple(c.after)) for c in changes] == [
            ("INSERT", None, (26, "new", None)),
            ("UPDATE_AFTER", None, (3, "n3", -1)),
            ("UPDATE_AFTER", (4, None, None), (100, "n4", 40)),
            ("DELETE", (5, None, None), None),
        ]
        assert replay(loop.changes) == contents(postgres, table)
    with Loop(source(postgres, table), loop.position) as loop:
        postgres.execute(f"INSERT INTO {table} VALUES (27, 'later', 0)")
        assert [tuple(c.after) for c in loop.until_changes(1)] == [(27, "later", 0)]


def kinds(changes: list[Any]) -> list[tuple[Any, ...]]:
    return [(c.kind.name, c.before and tuple(c.before), c.after and tuple(c.after)) for c in changes]


def test_types(postgres: Postgres) -> None:
    with postgres.connect() as connection:
        name = named()
        connection.execute(f"CREATE TYPE mood_{name} AS ENUM ('sad', 'happy')")
        connection.execute(f"CREATE DOMAIN cents_{name} AS int CHECK (VALUE >= 0)")
        connection.execute("SET timezone = 'America/New_York'")
        table = create_table(
            postgres,
            "id bigint PRIMARY KEY, a smallint, b real, c double precision, d numeric, e varchar(9), f boolean, g timestamptz, "
            f"h timestamp, i date, j time, k bytea, l jsonb, m uuid, n int[], o text[], p mood_{name}, q cents_{name}, "
            'r interval, s char(4), t int GENERATED ALWAYS AS (id * 2) STORED, "Quoted" int',
            name=name,
        )
        row = (
            "7, 2.5, 0.1, 12345678901234567890.123, 'é', true, '2024-03-01 12:00:00.5-05', '2024-03-01 12:00:00', '2024-03-01', "
            "'12:30', '\\x00ff', '{\"a\": 1}', '2b7e1516-28ae-d2a6-abf7-158809cf4f3c', '{1,NULL,3}', '{\"a,b\",\"c\\\"d\"}', "
            "'happy', 5, '1 day', 'ab'"
        )
        connection.execute(f"INSERT INTO {table} VALUES (1, {row}, DEFAULT, 9)")
        with Loop(source(postgres, table)) as loop:
            loop.until_changes(1)
            connection.execute(f"INSERT INTO {table} VALUES (2, {row}, DEFAULT, 9)")
            connection.execute(f"INSERT INTO {table} VALUES (3)")
            first, second, third = (change.after for change in loop.until_changes(3))
    assert (
        tuple(first)[1:]
        == tuple(second)[1:]
        == (
            7,
            2.5,
            0.1,
            Decimal("12345678901234567890.123"),
            "é",
            True,
            datetime(2024, 3, 1, 17, 0, 0, 500_000, UTC),
            datetime.fromisoformat("2024-03-01T12:00:00"),
            date(2024, 3, 1),
            time(12, 30),
            b"\x00\xff",
            '{"a": 1}',
            "2b7e1516-28ae-d2a6-abf7-158809cf4f3c",
            [1, None, 3],
            ["a,b", 'c"d'],
            "happy",
            5,
            "1 day",
            "ab  ",
            9,
        )
    )
    assert set(tuple(third)[1:]) == {None}


def test_columns_of_all_types_pass_through_a_job(postgres: Postgres) -> None:
    table = create_table(postgres, "id int PRIMARY KEY, at timestamptz, many int[], price numeric")
    postgres.execute(f"INSERT INTO {table} VALUES (1, '2024-03-01 12:00:00+00', '{{1,2}}', 1.50)")

    def build(env: fp.StreamExecutionEnvironment) -> fp.DataStream:
        table_source = source(postgres, table, is_bounded=True)
        changes = env.from_source(table_source, fp.WatermarkStrategy.no_watermarks(), "t").uid("t")
        by_id = changes.key_by(lambda change: change.after.id, int)
        return by_id.process(Same(), table_source.output_type()).uid("same")

    (change,) = run_local(build).output
    assert tuple(change.after) == (1, datetime(2024, 3, 1, 12, tzinfo=UTC), [1, 2], Decimal("1.50"))
    assert change.table == table


class Same(fp.KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


class Wanted(NamedTuple):
    id: int
    name: str | None
    more: str = "none"


def test_a_type_of_ones_own_has_the_columns_that_are_needed(postgres: Postgres) -> None:
    table = create_table(postgres)
    postgres.execute(f"INSERT INTO {table} VALUES (1, 'a', 5)")
    with Loop(source(postgres, table, type_info=Wanted)) as loop:
        loop.until_read()
        postgres.execute(f"ALTER TABLE {table} ADD COLUMN more text, ADD COLUMN other int")
        postgres.execute(f"INSERT INTO {table} VALUES (2, 'b', 6, 'given', 7)")
        assert [change.after for change in loop.until_changes(2)] == [Wanted(1, "a"), Wanted(2, "b", "given")]


def test_what_a_type_needs_must_be_there(postgres: Postgres) -> None:
    class Strict(NamedTuple):
        id: int
        name: str

    table = create_table(postgres)
    with (
        Loop(source(postgres, table, type_info=Strict)) as loop,
        pytest.raises(fp.ConfigError, match="REPLICA IDENTITY FULL"),
    ):
        loop.until_it_fails()
    postgres.execute(f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    postgres.execute(f"INSERT INTO {table} VALUES (1, NULL)")
    with (
        Loop(source(postgres, table, type_info=Strict)) as loop,
        pytest.raises(fp.RecordParseError, match=r"column 'name'.*NULL"),
    ):
        loop.until_it_fails()


def test_a_column_that_is_added_needs_a_new_start_of_the_program(postgres: Postgres) -> None:
    table = create_table(postgres)
    with Loop(source(postgres, table)) as loop:
        loop.until_read()
        postgres.execute(f"INSERT INTO {table} VALUES (1, 'a', 5)")
        loop.until_changes(1)
        postgres.execute(f"ALTER TABLE {table} ADD COLUMN added int DEFAULT 3, DROP COLUMN name")
        postgres.execute(f"INSERT INTO {table} VALUES (2, 6, 7)")
        with pytest.raises(fp.ConfigError, match=f"{table}.*added. Start it again"):
            loop.until_it_fails()
    with Loop(source(postgres, table), loop.position) as again:
        assert [change.after._asdict() for change in again.until_changes(1)] == [{"id": 2, "amount": 6, "added": 7}]


def test_a_change_of_a_table_that_waits_for_the_snapshot_does_not_block_it(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forkpoint_postgres_cdc.chunks.LOCK_S", 1)
    table = create_table(postgres)
    postgres.execute(f"INSERT INTO {table} VALUES (1), (2)")
    with Loop(source(postgres, table, split_size=1)) as loop:
        loop.until_changes(1, max_rows=1)
        alter = threading.Thread(target=postgres.execute, args=[f"ALTER TABLE {table} ADD COLUMN added int"])
        alter.start()
        while not postgres.execute("SELECT 1 FROM pg_stat_activity WHERE query ~ '^ALTER TABLE' AND wait_event_type = 'Lock'"):
            monotonic.sleep(0.01)
        with pytest.raises(fp.SystemUnavailable, match="lock timeout"):
            loop.until_changes(2, max_rows=1)
    alter.join()
    with Loop(source(postgres, table), loop.position) as loop:
        assert [change.after.id for change in loop.until_changes(1)] == [2]


def test_old_rows_with_replica_identity_full(postgres: Postgres) -> None:
    table = create_table(postgres, full=True)
    large = "x" * 20
    postgres.execute(f"ALTER TABLE {table} ALTER name SET STORAGE EXTERNAL")
    large = "".join(chr(97 + i % 26) for i in range(5000))
    postgres.execute(f"INSERT INTO {table} VALUES (1, %s, 5)", large)
    with Loop(source(postgres, table)) as loop:
        loop.until_changes(1)
        postgres.execute(f"UPDATE {table} SET amount = 6")
        postgres.execute(f"UPDATE {table} SET id = 2")
        postgres.execute(f"DELETE FROM {table}")
        assert kinds(loop.until_changes(4)[1:]) == [
            ("UPDATE_AFTER", (1, large, 5), (1, large, 6)),
            ("UPDATE_AFTER", (1, large, 6), (2, large, 6)),
            ("DELETE", (2, large, 6), None),
        ]


def test_large_values_that_an_update_leaves_are_not_guessed(postgres: Postgres) -> None:
    table = create_table(postgres)
    postgres.execute(f"ALTER TABLE {table} ALTER name SET STORAGE EXTERNAL")
    postgres.execute(f"INSERT INTO {table} VALUES (1, %s, 5)", "x" * 5000)
    with Loop(source(postgres, table)) as loop:
        loop.until_changes(1)
        postgres.execute(f"UPDATE {table} SET amount = 6")
        with pytest.raises(fp.JobFailed, match=r"column 'name'.*REPLICA IDENTITY FULL"):
            loop.until_it_fails()
    with Loop(source(postgres, table, on_missing_value="none"), loop.position) as loop:
        assert kinds(loop.until_changes(1)) == [("UPDATE_AFTER", None, (1, None, 6))]


def test_truncate(postgres: Postgres) -> None:
    table = create_table(postgres)
    with Loop(source(postgres, table)) as loop:
        postgres.execute(f"INSERT INTO {table} VALUES (1)")
        loop.until_changes(1)
        loop.until_read()
        postgres.execute(f"TRUNCATE {table}")
        postgres.execute(f"INSERT INTO {table} VALUES (2)")
        with pytest.raises(fp.JobFailed, match=f"{table}' was truncated.*on_truncate"):
            loop.until_it_fails()
    with Loop(source(postgres, table, on_truncate="ignore"), loop.position) as loop:
        assert [change.after.id for change in loop.until_changes(1)] == [2]


def test_a_table_without_a_primary_key(postgres: Postgres) -> None:
    table = create_table(postgres, "a int, b text", full=True)
    postgres.execute(f"INSERT INTO {table} SELECT i, 'x' FROM generate_series(1, 100) i; ANALYZE {table}")
    with Loop(source(postgres, table, split_size=10)) as loop:
        loop.step()
        assert sorted(change.after.a for change in loop.until_changes(100)) == list(range(1, 101))
        postgres.execute(f"UPDATE {table} SET b = 'y' WHERE a = 5")
        assert kinds(loop.until_changes(101)[100:]) == [("UPDATE_AFTER", (5, "x"), (5, "y"))]


def test_several_tables_in_the_order_of_commits(postgres: Postgres) -> None:
    one, two = create_table(postgres), create_table(postgres, "id int PRIMARY KEY, other bool", full=True)
    three = create_table(postgres)
    postgres.execute(f"ALTER PUBLICATION {one} ADD TABLE {two}, {three}")
    postgres.execute(f"INSERT INTO {one} VALUES (1, 'a', 5)")
    postgres.execute(f"INSERT INTO {two} VALUES (1, true)")
    with Loop(source(postgres, one, f'public."{two}"')) as loop:
        loop.until_changes(2)
        with postgres.connect() as connection, connection.transaction():
            connection.execute(f"INSERT INTO {two} VALUES (2, false)")
            connection.execute(f"INSERT INTO {three} VALUES (2)")
            connection.execute(f"INSERT INTO {one} VALUES (2)")
        postgres.execute(f"DELETE FROM {two} WHERE id = 1")
        changes = loop.until_changes(5)
    assert [(c.table, c.kind.name) for c in changes[2:]] == [
        (f'public."{two}"', "INSERT"),
        (one, "INSERT"),
        (f'public."{two}"', "DELETE"),
    ]
    assert changes[0].after._asdict() == {"id": 1, "name": "a", "amount": 5, "other": None}
    assert changes[4].before._asdict() == {"id": 1, "name": None, "amount": None, "other": True}


def test_tables_that_do_not_fit_together_are_refused(postgres: Postgres) -> None:
    one, two = create_table(postgres), create_table(postgres, "id int PRIMARY KEY, name int")
    with pytest.raises(fp.ConfigError, match=r"column 'name' of table"):
        source(postgres, one, two).output_type()


def test_partitioned_tables_are_read_as_one(postgres: Postgres) -> None:
    table = create_table(postgres, "id int PRIMARY KEY, name text) PARTITION BY RANGE (id")
    postgres.execute(f"CREATE TABLE {table}_1 PARTITION OF {table} FOR VALUES FROM (0) TO (10)")
    postgres.execute(f"CREATE TABLE {table}_2 PARTITION OF {table} FOR VALUES FROM (10) TO (20)")
    with (
        Loop(source(postgres, table)) as loop,
        pytest.raises(fp.ConfigError, match="publish_via_partition_root = true"),
    ):
        loop.until_it_fails()
    postgres.execute(f"ALTER PUBLICATION {table} SET (publish_via_partition_root = true)")
    postgres.execute(f"INSERT INTO {table} SELECT i FROM generate_series(0, 15) i")
    with Loop(source(postgres, table, split_size=5)) as loop:
        assert [change.after.id for change in loop.until_changes(16)] == list(range(16))
        postgres.execute(f"INSERT INTO {table} VALUES (16)")
        assert loop.until_changes(17)[16].after.id == 16


def test_keys_in_the_order_of_their_collation(postgres: Postgres) -> None:
    """Of several columns, in an order that Python does not know; the snapshot is taken up again after each epoch."""
    table = create_table(postgres, 'a text COLLATE "und-x-icu", b int, version int, PRIMARY KEY (a, b)', full=True)
    keys = ["a", "B", "ä", "b", "A", "Z", "z", "é", "E", "'", "\\", ""]
    for key in keys:
        postgres.execute(f"INSERT INTO {table} VALUES (%s, 1, 0), (%s, 2, 0)", key, key)
    changes: list[Any] = []
    position = None
    for _ in range(8):  # each time, another range is read in another snapshot
        with Loop(source(postgres, table, split_size=3), position) as loop:
            loop.until(lambda: bool(loop.changes), max_rows=3)
            changes, position = changes + loop.changes, loop.position
        postgres.execute(f"UPDATE {table} SET version = version + 1")
    with Loop(source(postgres, table, split_size=3, is_bounded=True), position) as loop:
        loop.until(lambda: loop.enumerator.finished)
        changes += loop.changes
    last: dict[Any, int] = {}
    for change in changes:
        key = change.after.a, change.after.b
        assert (change.kind is fp.RowKind.INSERT) == (key not in last)
        assert key not in last or change.after.version == last[key] + 1, (key, change)
        last[key] = change.after.version
    assert len(last) == 24
    assert set(last.values()) == {8}
