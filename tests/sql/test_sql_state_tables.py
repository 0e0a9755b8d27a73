"""The catalogue `state`: saved state of jobs as tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import forkpoint as fp
from forkpoint.errors import ConfigError
from forkpoint.sql.errors import SqlError, Text
from forkpoint.table.api.query_results import QueryResult
from forkpoint.table.interactive import Interactive
from forkpoint.table.session import Session


class Visit(NamedTuple):
    who: str
    page: int
    ms: int


class Key(NamedTuple):
    who: str
    odd: int


class Pages(fp.KeyedProcessFunction[Any, Any, Any]):
    seen = fp.MapStateDescriptor("seen", int, Visit)
    halves = fp.ListStateDescriptor("halves", float)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.seen.put(value.page, value)
        self.halves.add(value.ms / 2)
        ctx.timer_service().register_processing_time_timer(10**15)
        yield from ()


def shell(root: Path) -> Interactive:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.launch = replace(env.launch, state_root=str(root))
    return Interactive(Session(env))


def rows(sql: Interactive, statement: str) -> list[Any]:
    (found,) = sql.run(Text(statement))
    assert found is not None
    return sorted(found.rows() if isinstance(found, QueryResult) else found.rows, key=repr)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that has ended."""
    root = tmp_path_factory.mktemp("root")
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_state_root(str(root))
    visits = env.from_collection([Visit("ann", 1, 3), Visit("bob", 2, 4), Visit("ann", 1, 5)], Visit).uid("visits")
    pages = visits.key_by(lambda visit: Key(visit.who, visit.page % 2), Key).process(Pages()).uid("pages")
    pages.print().uid("out")
    env.execute("site-visits")
    return root


def test_states_are_tables(root: Path) -> None:
    sql = shell(root)
    assert rows(sql, "SHOW CATALOGS") == [("default_catalog",), ("state",)]
    assert rows(sql, "SHOW DATABASES FROM state") == [("site-visits",)]
    list(sql.run(Text("CREATE TABLE names (who STRING, name STRING) WITH ('connector' = 'print'); USE state.`site-visits`")))
    assert rows(sql, "SHOW TABLES") == [("pages_halves",), ("pages_seen",), ("pages_timers",)]
    columns = [("key_who", "STRING"), ("key_odd", "BIGINT"), ("map_key", "BIGINT"), ("who", "STRING"), ("page", "BIGINT")]
    (described,) = sql.run(Text("DESCRIBE pages_seen"))
    assert [row[:2] for row in described.rows] == [*columns, ("ms", "BIGINT")]  # type: ignore[union-attr, index]
    assert rows(sql, "SELECT * FROM pages_seen") == [("ann", 1, 1, "ann", 1, 5), ("bob", 0, 2, "bob", 2, 4)]
    joined = "SELECT l.key_who, COUNT(*), MAX(l.`value`), MIN(t.`domain`) FROM pages_halves l JOIN pages_timers t"
    expected = [("ann", 2, 2.5, "processing"), ("bob", 1, 2.0, "processing")]
    assert rows(sql, f"{joined} ON l.key_who = t.key_who GROUP BY l.key_who") == expected
    (ddl,) = rows(sql, "SHOW CREATE TABLE pages_halves")
    list(sql.run(Text(ddl[0].replace("`state`.`site-visits`.`pages_halves`", "default_catalog.default_database.mine"))))
    assert rows(sql, "SELECT `index`, `value` FROM default_catalog.default_database.mine") == [(0, 1.5), (0, 2.0), (1, 2.5)]


def test_the_state_of_a_running_job_and_of_its_savepoints(tmp_path: Path) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_state_root(str(tmp_path)).set_max_epoch_rows(500)
    tables = fp.StreamTableEnvironment.create(env)
    tables.execute_sql(
        "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '20000', "
        "'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '100000000')"
    )
    tables.execute_sql("CREATE TABLE sums (k BIGINT, s BIGINT) WITH ('connector' = 'blackhole')")
    tables.execute_sql("SET 'pipeline.name' = 'sums'")
    client = tables.execute_sql("INSERT INTO sums SELECT n % 7, SUM(n) FROM numbers GROUP BY n % 7").get_job_client()
    assert client is not None
    sql = shell(tmp_path)
    while not rows(sql, "SHOW DATABASES FROM state"):
        time.sleep(0.05)
    while not (found := rows(sql, "SHOW TABLES FROM state.sums")):
        time.sleep(0.05)
    ((name,),) = found
    counts = []
    for _ in range(3):  # each is one epoch of all groups, whatever the job has removed meanwhile
        ((count, total),) = rows(sql, f"SELECT SUM(`count`), SUM(sum_n) FROM state.sums.{name}")
        assert total == count * (count - 1) // 2
        counts.append(count)
    assert sorted(set(counts)) == counts
    client.trigger_savepoint(label="before").result(60)
    client.stop_with_savepoint().result(60)
    ((last,),) = rows(sql, f"SELECT SUM(`count`) FROM state.sums.{name}")
    ((earlier, total),) = rows(
        sql, f"SELECT SUM(`count`), SUM(sum_n) FROM state.sums.{name} /*+ OPTIONS('savepoint' = 'before') */"
    )
    assert counts[-1] < earlier < last
    assert total == earlier * (earlier - 1) // 2


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("SELECT * FROM state.`site-visit`.pages_seen", "there is no job 'site-visit' with state .* did you mean 'site-visits'?"),
        ("SELECT * FROM state.`site-visits`.page_seen", "column 35: job 'site-visits' has no state 'page_seen'; did you mean"),
        ("DESCRIBE state.`site-visits`.nothing", "there are pages_seen, pages_halves, pages_timers"),
        ("SHOW TABLES FROM state.other", "there is no database 'other'"),
        ("CREATE DATABASE state.mine", "the databases of catalogue 'state' are jobs"),
        ("DROP CATALOG state", "catalogue 'state' is in use"),
        ("CREATE VIEW state.mine.v AS SELECT 1 AS one", "catalogue 'state' has the state of jobs"),
        ("ALTER TABLE state.`site-visits`.pages_seen RENAME TO x", "is saved state: its columns are the job's"),
        ("INSERT INTO state.`site-visits`.pages_halves SELECT * FROM state.`site-visits`.pages_halves", "it cannot write table"),
    ],
)
def test_what_is_wrong_with_a_state_table(root: Path, statement: str, problem: str) -> None:
    with pytest.raises(SqlError, match=problem):
        list(shell(root).run(Text(statement)))


def test_a_column_that_the_state_does_not_have(root: Path) -> None:
    options = f"'connector' = 'state', 'state-root' = '{root}', 'job' = 'site-visits', 'operator' = 'pages', 'state' = 'seen'"
    sql = shell(root)
    list(sql.run(Text(f"CREATE TABLE seen (whose STRING) WITH ({options})")))
    with pytest.raises(ConfigError, match="has no column 'whose'; did you mean 'who'"):
        rows(sql, "SELECT * FROM seen")
