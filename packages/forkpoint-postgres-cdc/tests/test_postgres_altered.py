"""What happens when a table is altered, renamed, dropped or created again under a source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import forkpoint as fp
from cdc_jobs import Loop, create_table, dropped, source
from connectors.connector_reading import json_round_trip
from forkpoint_postgres_cdc import feed
from forkpoint_postgres_cdc.position import Position
from servers.postgres import Postgres


@pytest.fixture(autouse=True)
def slots(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FORKPOINT_ENGINE", "local")
    with dropped(postgres):
        yield


class Named(NamedTuple):
    id: int
    name: str | None


class Renamed(NamedTuple):
    id: int
    title: str | None


class Defaulted(NamedTuple):
    id: int
    name: str = "none"
    more: int = 7


def created_again(postgres: Postgres, table: str) -> None:
    postgres.execute(f"DROP TABLE {table}; CREATE TABLE {table} (id int PRIMARY KEY, name text, amount int)")
    postgres.execute(f"INSERT INTO {table} VALUES (7)")
    postgres.execute(f"ALTER PUBLICATION {table} ADD TABLE {table}; INSERT INTO {table} VALUES (1)")


# -- tables


def test_changes_of_a_table_that_was_created_again_are_not_taken_for_those_of_the_first_one(postgres: Postgres) -> None:
    table = create_table(postgres)
    postgres.execute(f"INSERT INTO {table} VALUES (1)")
    with Loop(source(postgres, table)) as loop:
        loop.until_read()
        postgres.execute(f"INSERT INTO {table} VALUES (2)")
        created_again(postgres, table)
        with pytest.raises(
            fp.InputLost, match=rf"PostgresSource 'uid': table '{table}' .*created again.* new uid.*publication has to contain"
        ):
            loop.until_it_fails()
        assert [change.after.id for change in loop.changes] == [1, 2]
    with Loop(source(postgres, table), loop.position) as again, pytest.raises(fp.InputLost, match="created again"):
        again.until_it_fails()


@pytest.mark.parametrize("rename", [False, True])
def test_a_table_without_changes_that_was_created_again_is_noticed(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, rename: bool
) -> None:
    monkeypatch.setattr(feed, "CHECK_S", 0.0)
    table = create_table(postgres)
    with Loop(source(postgres, table)) as loop:
        loop.until_read()
        loop.until(lambda: loop.enumerator._feed.doing.startswith("following"))
        columns = "id int PRIMARY KEY, name text, amount int"
        away = f"ALTER TABLE {table} RENAME TO old_{table}" if rename else f"DROP TABLE {table}"
        with postgres.connect() as connection, connection.transaction():
            connection.execute(f"{away}; CREATE TABLE {table} ({columns}); INSERT INTO {table} VALUES (7)")
            connection.execute(f"ALTER PUBLICATION {table} ADD TABLE {table}")
        with pytest.raises(fp.InputLost, match=rf"PostgresSource 'uid': table '{table}' .*created again.* new uid"):
            loop.until_it_fails()


def test_a_table_that_was_dropped_while_the_job_was_down(postgres: Postgres) -> None:
    table, other = create_table(postgres), create_table(postgres)
    postgres.execute(f"ALTER PUBLICATION {table} ADD TABLE {other}")
    with Loop(source(postgres, table, other, type_info=Named)) as loop:
        loop.until_read()
        postgres.execute(f"INSERT INTO {table} VALUES (1)")
        loop.until_changes(1)
    postgres.execute(f"DROP TABLE {other}")
    with (
        Loop(source(postgres, table, other, type_info=Named), loop.position) as again,
        pytest.raises(fp.InputLost, match=rf"'uid': table '{other}' does not exist any more.*new uid"),
    ):
        again.until_it_fails()
    postgres.execute(f"INSERT INTO {table} VALUES (2)")
    with Loop(source(postgres, table, type_info=Named), loop.position) as again:
        assert [change.after.id for change in again.until_changes(1)] == [2]


def test_a_table_that_was_created_again_ends_the_job_whatever_its_restart_strategy(postgres: Postgres) -> None:
    table = create_table(postgres)
    postgres.execute(f"INSERT INTO {table} VALUES (1)")
    env = fp.StreamExecutionEnvironment.get_execution_environment().enable_checkpointing(50)
    env.set_restart_strategy(fp.RestartStrategy.fixed_delay(1000, 1))
    changes = env.from_source(source(postgres, table), fp.WatermarkStrategy.no_watermarks(), "t").uid("orders")
    with changes.map(lambda change: change.after.id, int).uid("ids").execute_and_collect() as ids:
        assert next(ids) == 1
        # In one transaction: the job does not see a publication without the table.
        postgres.execute(
            f"DROP TABLE {table}; CREATE TABLE {table} (id int PRIMARY KEY, name text, amount int); "
            f"ALTER PUBLICATION {table} ADD TABLE {table}; INSERT INTO {table} VALUES (1)"
        )
        with pytest.raises(fp.InputLost, match=r"PostgresSource 'orders': table .*created again"):
            next(ids)


# -- columns


@pytest.mark.parametrize("statement", ["RENAME name TO title", "DROP COLUMN name, ADD COLUMN title text"])
@pytest.mark.parametrize("row", [Named, Defaulted, None])
def test_a_column_that_is_gone_is_no_null(postgres: Postgres, row: Any, statement: str) -> None:
    table = create_table(postgres, full=True)
    with Loop(source(postgres, table, type_info=row)) as loop:
        loop.until_read()
        postgres.execute(f"INSERT INTO {table} VALUES (1, 'a')")
        postgres.execute(f"ALTER TABLE {table} {statement}")
        postgres.execute(f"INSERT INTO {table} (id, title) VALUES (2, 'b')")
        problem = (
            rf"table '{table}' has columns .*: title. Start it again"
            if row is None
            else rf"table '{table}' has no column 'name' any more.*renamed or dropped.*type_info.*new uid"
        )
        with pytest.raises(fp.ConfigError, match=rf"^PostgresSource 'uid': {problem}"):
            loop.until_it_fails()
        assert [change.after.name for change in loop.changes] == ["a"]  # those before are not lost
    with Loop(source(postgres, table, type_info=row and Renamed), loop.position) as again:
        assert [(change.after.id, change.after.title) for change in again.until_changes(1)] == [(2, "b")]
        assert not hasattr(again.changes[0].after, "name")


def test_a_column_that_is_dropped_without_a_type(postgres: Postgres) -> None:
    table = create_table(postgres)
    with Loop(source(postgres, table)) as loop:
        loop.until_read()
        postgres.execute(f"ALTER TABLE {table} DROP COLUMN name; INSERT INTO {table} VALUES (1, 5)")
        with pytest.raises(fp.ConfigError, match=rf"'uid': table '{table}' has no column 'name'.*Start the program again"):
            loop.until_it_fails()
    with Loop(source(postgres, table), loop.position) as again:
        assert [change.after._asdict() for change in again.until_changes(1)] == [{"id": 1, "amount": 5}]


def test_the_same_transaction_before_and_after_a_column_is_renamed(postgres: Postgres) -> None:
    table = create_table(postgres)
    with Loop(source(postgres, table, type_info=Named)) as loop:
        loop.until_read()
        with postgres.connect() as connection, connection.transaction():
            connection.execute(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
            connection.execute(f"ALTER TABLE {table} RENAME name TO title")
            connection.execute(f"INSERT INTO {table} VALUES (3, 'c')")
        with pytest.raises(fp.ConfigError, match="no column 'name' any more"):
            loop.until_it_fails()
        assert [change.after.id for change in loop.changes] == [1, 2]
    with Loop(source(postgres, table, type_info=Renamed), loop.position) as again:
        assert [change.after for change in again.until_changes(1)] == [Renamed(3, "c")]


def test_a_column_that_is_renamed_before_its_table_has_been_read(postgres: Postgres) -> None:
    table = create_table(postgres)
    postgres.execute(f"INSERT INTO {table} SELECT i, 'n' FROM generate_series(1, 10) i")
    with Loop(source(postgres, table, type_info=Named, split_size=2)) as loop:
        loop.until_changes(2, max_rows=2)
    postgres.execute(f"ALTER TABLE {table} RENAME name TO title")
    with (
        Loop(source(postgres, table, type_info=Named, split_size=2), loop.position) as again,
        pytest.raises(fp.ConfigError, match="no column 'name' any more"),
    ):
        again.until_it_fails()


def test_a_column_that_is_read_since_it_was_added_may_not_go_again(postgres: Postgres) -> None:
    table = create_table(postgres)
    with Loop(source(postgres, table, type_info=Defaulted, on_missing_value="none")) as loop:
        loop.until_read()
        postgres.execute(f"INSERT INTO {table} VALUES (1, 'a')")
        postgres.execute(f"ALTER TABLE {table} ADD COLUMN more int; INSERT INTO {table} VALUES (2, 'b', 5, 8)")
        postgres.execute(f"ALTER TABLE {table} DROP COLUMN more; INSERT INTO {table} VALUES (3, 'c')")
        with pytest.raises(fp.ConfigError, match="no column 'more' any more"):
            loop.until_it_fails()
        assert [change.after for change in loop.changes] == [Defaulted(1, "a", 7), Defaulted(2, "b", 8)]


@pytest.mark.parametrize("shapes", [True, False])
def test_changes_from_before_a_column_was_added_can_be_read_after_it(postgres: Postgres, shapes: bool) -> None:
    table = create_table(postgres)
    with Loop(source(postgres, table, type_info=Named)) as loop:
        loop.until_read()
        postgres.execute(f"INSERT INTO {table} VALUES (1, 'a')")
        loop.until_changes(1)
    postgres.execute(f"INSERT INTO {table} VALUES (2, 'b')")
    postgres.execute(f"ALTER TABLE {table} ADD COLUMN title text; INSERT INTO {table} VALUES (3, 'c', 5, 'x')")
    position = loop.position if shapes else {**loop.position, "shapes": {}}  # an older release has noted no columns
    with Loop(source(postgres, table, type_info=Renamed), position) as again:
        assert [change.after for change in again.until_changes(2)] == [Renamed(2, None), Renamed(3, "x")]


def test_a_field_that_no_table_has_a_column_for(postgres: Postgres) -> None:
    table, other = create_table(postgres), create_table(postgres, "id int PRIMARY KEY, title text")
    with (
        Loop(source(postgres, table, type_info=Renamed)) as loop,
        pytest.raises(fp.ConfigError, match=rf"^PostgresSource 'uid': table '{table}' has no column 'title'; correct"),
    ):
        loop.until_it_fails()
    postgres.execute(f"ALTER PUBLICATION {table} ADD TABLE {other}; INSERT INTO {table} VALUES (1, 'a')")
    with Loop(source(postgres, table, other, type_info=Renamed)) as loop:
        assert [change.after for change in loop.until_changes(1)] == [Renamed(1, None)]


def test_a_column_whose_type_is_changed_is_read_while_it_fits_the_field(postgres: Postgres) -> None:
    table = create_table(postgres, full=True)
    with Loop(source(postgres, table)) as loop:
        loop.until_read()
        postgres.execute(f"ALTER TABLE {table} ALTER amount TYPE bigint; INSERT INTO {table} VALUES (1, 'a', {2**40})")
        assert [change.after.amount for change in loop.until_changes(1)] == [2**40]
        postgres.execute(f"ALTER TABLE {table} ALTER amount TYPE numeric; INSERT INTO {table} VALUES (2, 'a', 1.5)")
        with pytest.raises(
            fp.RecordParseError,
            match=rf"'uid': table '{table}', column 'amount': cannot read '1.5'.*start the program again",
        ):
            loop.until_it_fails()


def test_positions_keep_what_tables_were() -> None:
    saved: Any = {"version": 1, "slot": "s", "lsn": 5, "skip": 0, "stop": None, "tables": {}}
    position = Position.from_json(saved)
    assert position is not None
    assert position.shapes == {}
    saved["shapes"] = {"t": {"oid": 7, "columns": ["a", "b"]}}
    again = Position.from_json(saved)
    assert again is not None
    assert json_round_trip(again.to_json()) == saved
