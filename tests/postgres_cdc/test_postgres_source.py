"""PostgresSource against a real server: what is planned and read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cdc_jobs import Loop, contents, create_table, dropped, replay, source

import forkpoint as fp
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
