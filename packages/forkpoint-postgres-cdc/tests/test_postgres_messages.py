"""What is wrong is said with the source's uid and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

import forkpoint as fp
from cdc_jobs import Loop, create_table, dropped, source
from forkpoint_postgres_cdc import feed
from servers.postgres import Postgres


@pytest.fixture(autouse=True)
def slots(postgres: Postgres) -> Iterator[None]:
    with dropped(postgres):
        yield


class Id(NamedTuple):
    id: int


class Odd(NamedTuple):
    id: dict[str, int]


@pytest.mark.parametrize(
    ("tables", "example"),
    [
        ("shop.orders", "['shop.orders']"),
        (["a", "b", "a"], "['a', 'b']"),
        ([], "['public.orders']"),
        (None, "['public.orders']"),
    ],
)
def test_tables_that_are_no_list_of_names(tables: Any, example: str) -> None:
    with pytest.raises(fp.ConfigError) as caught:
        fp.PostgresSource("", tables, "p")
    assert str(caught.value) == f"PostgresSource: tables is {tables!r}; give a list of names, each once, say {example}"


@pytest.mark.parametrize("name", ["a.b.c.d", "a..b", "x y", "other.public.t"])
def test_a_name_that_is_none(postgres: Postgres, name: str) -> None:
    with pytest.raises(fp.ConfigError, match=r"PostgresSource: .*schema\.table, quoted as in SQL"):
        source(postgres, name).output_type()


@pytest.mark.parametrize("conninfo", ["secret", "host='secret", "postgresql://u:secret word@h/d", "hostt=x password=secret"])
def test_a_string_that_is_no_connection_string(conninfo: str) -> None:
    with pytest.raises(fp.ConfigError, match=r"^PostgresSource: conninfo is not a connection string.*Write it as") as caught:
        fp.PostgresSource(conninfo, ["t"], "p").output_type()
    assert "secret" not in str(caught.value)
    with (
        Loop(fp.PostgresSource(conninfo, ["t"], "p", Id)) as loop,
        pytest.raises(fp.ConfigError, match=r"^PostgresSource 'uid': con"),
    ):
        loop.until_it_fails()


def test_errors_of_a_job_have_the_sources_uid(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create_table(postgres)
    postgres.execute(f"INSERT INTO {table} VALUES (1)")
    monkeypatch.setattr(feed, "START_S", 0.1)
    away = fp.PostgresSource("host=127.0.0.1 port=1", [table], table, Id)
    for wrong, error in (
        (source(postgres, "nothing", type_info=Id), fp.ConfigError),
        (source(postgres, table, publication="nothing"), fp.ConfigError),
        (source(postgres, table, type_info=Odd), fp.ConfigError),
        (away, fp.SystemUnavailable),
    ):
        with Loop(wrong) as loop, pytest.raises(error, match=r"^PostgresSource 'uid': "):
            loop.until_it_fails()
    saved = {"version": 2}
    with pytest.raises(fp.RestoreRefused, match=r"^PostgresSource 'uid': "):
        Loop(source(postgres, table), saved)


def test_no_slot_is_free(postgres: Postgres) -> None:
    table = create_table(postgres)
    ((most,),) = postgres.execute("SELECT current_setting('max_replication_slots')::int")
    for n in range(most):
        postgres.execute("SELECT pg_create_physical_replication_slot(%s)", f"taken_{n}")
    with (
        Loop(source(postgres, table)) as loop,
        pytest.raises(fp.ConfigError, match=r"'uid': .*pg_drop_replication_slot.*max_repl"),
    ):
        loop.until_it_fails()


def test_a_slot_that_is_dropped_under_the_job(postgres: Postgres) -> None:
    table = create_table(postgres)
    with Loop(source(postgres, table)) as loop:
        loop.until_read()
        loop.until(lambda: loop.enumerator._feed.doing.startswith("following"))
        while True:
            try:
                postgres.execute("SELECT pg_drop_replication_slot(%s)", loop.source.slot)
                break
            except Exception:  # it is being read
                continue
        postgres.execute(f"INSERT INTO {table} VALUES (1)")
        with pytest.raises(fp.InputLost, match=r"'uid': .*slot.*new uid"):
            loop.until_it_fails()


def test_what_a_job_waits_for_is_in_its_status(tmp_path_factory: pytest.TempPathFactory) -> None:
    server = Postgres(tmp_path_factory.mktemp("away") / "server")
    try:
        table = create_table(server)
        with Loop(source(server, table)) as loop:
            loop.until_read()
            assert loop.enumerator.problem is None
            server.kill()
            loop.until(lambda: "127.0.0.1" in (loop.enumerator.problem or ""))
            server.start()
            loop.until(lambda: loop.enumerator.problem is None)
    finally:
        server.stop()
