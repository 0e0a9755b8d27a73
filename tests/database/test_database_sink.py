"""DatabaseSink against real databases: each epoch once, whoever dies, sleeps or is away."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from time import sleep as pause
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from databases import Database, sqlite
from sqlalchemy import MetaData, Table, create_engine, select
from writing_rows import build, expected, sink

import forkpoint as fp
from background import InBackground
from forkpoint.api.execution import prepare
from forkpoint.api.launch import Launch
from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.connectors.database import type_compatibility
from forkpoint.connectors.database.committer import DatabaseCommitter
from forkpoint.connectors.formats.changes import change_type
from forkpoint.contract.sink import CommitterContext, SinkContext
from forkpoint.errors import ConfigError, JobFailed, OutputRefused, SystemUnavailable, TypeNotSupported
from forkpoint.graph.options import RestartStrategy, RestoreOptions
from forkpoint.types import RowKind, type_of
from programs import ENVIRONMENT, Python, run_python
from servers.mariadb import MariaDB
from servers.postgres import Postgres
from servers.process import free_port

PROGRAM = Path(__file__).with_name("writing_rows.py")
ELEMENTS = 300
COUNTED = "number INT NOT NULL, {user} INT {key}, {count} INT"


def counted(database: Database, prefix: str) -> str:
    quote = {"postgresql": '"{}"', "mariadb": "`{}`", "sqlite": '"{}"'}[database.name].format
    key = "" if prefix == "every" else "PRIMARY KEY"
    return database.create_table(COUNTED.format(user=quote("user"), count=quote("count"), key=key), prefix)


def rows(database: Database, table: str) -> list[Any]:
    return sorted(tuple(row) for row in database.execute(f"SELECT * FROM {table}"))


def run(root: Path, to: Any, elements: int = ELEMENTS, *, name: str = "writing") -> Any:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root)).set_parallelism(2)
    env.options = replace(env.options, restart=RestartStrategy.none())
    build(env, elements, to)
    env.launch = Launch(options={"engine": "local"})
    return prepare(env, name).begin()()


@dataclass(frozen=True)
class At:
    """One epoch's output, staged and committed by hand."""

    sink: Any
    root: Path
    incarnation: str = ""

    def staged(self, type: Any, elements: list[Any], epoch: int = 1) -> EpochOutput:
        context = SinkContext("rows", "job", epoch, 0, f"a{epoch}", 1, str(self.root))
        writer = self.sink.create_writer(context)
        writer.write(Batch(elements, type_of(type)))
        return EpochOutput(epoch=epoch, committables=writer.prepare_commit())

    def committer(self) -> Any:
        return self.sink.create_committer(
            CommitterContext("rows", "job", "", f"{self.root.name}{self.incarnation}", str(self.root))
        )

    def commit(self, output: EpochOutput, newest: int | None = None) -> None:
        committer = self.committer()
        try:
            committer.commit(output, output.epoch if newest is None else newest)
        finally:
            committer.close()

    def write(self, type: Any, *elements: Any, epoch: int = 1) -> None:
        output = self.staged(type, list(elements), epoch)
        self.sink.check(output.committables)
        self.commit(output)


@dataclass(frozen=True)
class Batch:
    values: list[Any]
    type: Any
    table: Any = None
    timestamps: Any = None


@pytest.mark.parametrize("prefix", ["every", "last"])
def test_each_epoch_is_written_once(database: Database, tmp_path: Path, prefix: str) -> None:
    table = counted(database, prefix)
    run(tmp_path, sink(database.url, table))
    found = rows(database, table)
    assert len(found) == len(set(found))
    assert set(found) == expected(table, ELEMENTS)


@pytest.mark.parametrize(
    "step",
    [  # the slow ones leave the same state as their neighbours
        "create+",
        pytest.param("newest", marks=pytest.mark.slow),
        pytest.param("write+", marks=pytest.mark.slow),
        "note+",
        pytest.param("commit", marks=pytest.mark.slow),
        "commit+",
    ],
)
def test_a_driver_that_is_killed_at_a_step_of_writing(database: Database, tmp_path: Path, step: str) -> None:
    if database.name != "postgresql" and step not in ("write+", "commit+"):
        return  # these steps are the same code for all of them
    table = counted(database, "every")
    program = [PROGRAM, database.url, table, tmp_path, ELEMENTS]
    number = "1" if step == "create+" else "4"
    killed = run_python([*program, step, number], env=ENVIRONMENT, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr[-2000:]
    assert len(rows(database, table)) < ELEMENTS
    run(tmp_path, sink(database.url, table))
    found = rows(database, table)
    assert len(found) == ELEMENTS
    assert set(found) == expected(table, ELEMENTS)


def test_commits_that_are_repeated_late_and_side_by_side_write_nothing(database: Database, tmp_path: Path) -> None:
    table = database.create_table("n INT")
    at = At(fp.DatabaseSink(database.url, table), tmp_path)
    outputs = [at.staged(N, [N(n)], epoch=n) for n in (1, 2, 3)]
    for output in (outputs[0], outputs[1], outputs[0], outputs[2], outputs[1]):
        at.commit(output, newest=3)
    assert rows(database, table) == [(1,), (2,), (3,)]
    last = at.staged(N, [N(4)], epoch=4)
    problems: list[BaseException] = []

    def commit() -> None:
        while True:
            try:
                return at.commit(last)
            except SystemUnavailable:  # SQLite's lock, for one; tasks are tried again, too
                continue
            except BaseException as problem:
                problems.append(problem)
                return None

    threads = [threading.Thread(target=commit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert rows(database, table) == [(1,), (2,), (3,), (4,)]


def test_another_incarnation_of_the_job_writes_again(database: Database, tmp_path: Path) -> None:
    table = database.create_table("n INT")
    to = fp.DatabaseSink(database.url, table)
    At(to, tmp_path).write(N, N(1))
    At(to, tmp_path, "second").write(N, N(1))
    assert rows(database, table) == [(1,), (1,)]


def test_a_state_root_that_was_put_back_is_noticed(database: Database, tmp_path: Path) -> None:
    table = database.create_table("n INT")
    at = At(fp.DatabaseSink(database.url, table), tmp_path)
    at.commit(at.staged(N, [N(1)], epoch=7))
    with pytest.raises(JobFailed, match=r"forkpoint_epochs.*says that epoch 7 was committed, but the job's newest is 3"):
        at.commit(at.staged(N, [N(1)], epoch=3))


class N(NamedTuple):
    n: int


class Colour(Enum):
    RED = "red"


class Inner(NamedTuple):
    a: int


class All(NamedTuple):
    id: int
    x: float
    text_: str | None
    flag: bool
    money: Decimal
    day: date
    at: fp.Instant
    local: datetime
    data: bytes
    colour: Colour
    inner_: Inner | None
    tags: list[str]


LATE, EARLY = datetime(2026, 2, 3, 4, 5, 6, 789000, UTC), datetime(1969, 12, 31, 23, tzinfo=UTC)
ALL = [
    All(
        1,
        1.5,
        "ä'\"\\\t\n",
        True,
        Decimal("1.25"),
        date(2026, 2, 3),
        LATE,
        LATE.replace(tzinfo=None),
        b"\0\xff",
        Colour.RED,
        Inner(1),
        ["x", "ü"],
    ),
    All(
        2,
        -2.5,
        None,
        False,
        Decimal("-0.01"),
        date(1969, 1, 1),
        EARLY,
        EARLY.replace(tzinfo=None),
        b"",
        Colour.RED,
        None,
        [],
    ),
]
COLUMNS = {
    "postgresql": "text_ TEXT, at TIMESTAMPTZ, data BYTEA, inner_ JSONB, tags JSONB",
    "mariadb": "text_ TEXT CHARACTER SET utf8mb4, at DATETIME(6), data BLOB, inner_ JSON, tags JSON",
    "sqlite": "text_ TEXT, at DATETIME, data BLOB, inner_ JSON, tags JSON",
}
MORE = "id INT PRIMARY KEY, x FLOAT, flag BOOLEAN, money DECIMAL(10, 2), day DATE, colour VARCHAR(9), local {}"


@pytest.mark.parametrize("key", [(), ("id",)])
def test_types(database: Database, tmp_path: Path, key: tuple[str, ...]) -> None:
    local = {"postgresql": "TIMESTAMP", "mariadb": "DATETIME(6)", "sqlite": "DATETIME"}[database.name]
    table = database.create_table(f"{MORE.format(local)}, {COLUMNS[database.name]}")
    At(fp.DatabaseSink(database.url, table, key=key), tmp_path).write(All, *ALL)
    engine = create_engine(fp.DatabaseSink(database.url, table)._url)
    read = Table(table, MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        found = [row._mapping for row in connection.execute(select(read).order_by(read.c.id))]
    for row, each in zip(found, ALL, strict=True):
        for name in ("id", "x", "text_", "flag", "money", "day", "local", "data"):
            assert row[name] == getattr(each, name), name
        assert row["at"].replace(tzinfo=UTC) == each.at
        assert row["colour"] == "red"
        inner, tags = (json.loads(row[n]) if isinstance(row[n], str) else row[n] for n in ("inner_", "tags"))
        assert inner == (None if each.inner_ is None else {"a": 1})
        assert tags == each.tags


class Document(NamedTuple):
    id: int
    text: str | None
    sums: list[Decimal]
    times: list[fp.Instant]


def test_json_text_stays_as_it_is_and_collections_are_as_in_files(database: Database, tmp_path: Path) -> None:
    json_type = "JSONB" if database.name == "postgresql" else "JSON"
    table = database.create_table(f"id INT PRIMARY KEY, text {json_type}, sums {json_type}, times {json_type}")
    rows = [Document(1, '{"a": [1, "ü"]}', [Decimal("1.50")], [LATE]), Document(2, None, [], [])]
    At(fp.DatabaseSink(database.url, table, key="id"), tmp_path).write(Document, *rows)
    engine = create_engine(fp.DatabaseSink(database.url, table)._url)
    read = Table(table, MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        found = [tuple(row) for row in connection.execute(select(read).order_by(read.c.id))]
    decoded = [[json.loads(each) if isinstance(each, str) else each for each in row] for row in found]
    assert decoded == [[1, {"a": [1, "ü"]}, ["1.50"], ["2026-02-03T04:05:06.789000Z"]], [2, None, [], []]]


class Key(NamedTuple):
    id: str


def test_collations_that_merge_keys_are_warned_of(database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if database.name != "mariadb":
        pytest.skip("other databases compare text as Python does")
    for collation, warned in (("utf8mb4_general_ci", True), ("utf8mb4_bin", True), ("utf8mb4_nopad_bin", False)):
        caplog.clear()
        table = database.create_table(f"id VARCHAR(20) COLLATE {collation} PRIMARY KEY")
        at = At(fp.DatabaseSink(database.url, table, key="id"), tmp_path)
        at.sink.check(at.staged(Key, [Key("a")]).committables)
        assert ("may be equal" in caplog.text) is warned, collation


class Person(NamedTuple):
    id: int
    name: str | None


CHANGE = change_type(Person)


def change(kind: RowKind, before: Person | None, after: Person | None) -> Any:
    return CHANGE.from_columns(CHANGE.to_columns([(kind, before, after, None, None, None)]))[0]


def test_changes_are_applied(database: Database, tmp_path: Path) -> None:
    table = database.create_table("id INT PRIMARY KEY, name VARCHAR(20)")
    at = At(fp.DatabaseSink(database.url, table, key="id"), tmp_path)
    insert, update, delete = RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE
    at.write(CHANGE, *[change(insert, None, Person(n, "old")) for n in range(6)])
    at.write(
        CHANGE,
        change(update, Person(0, "old"), Person(0, "new")),
        change(delete, Person(1, "old"), None),
        change(update, Person(2, "old"), Person(12, "moved")),
        change(delete, Person(3, "old"), None),
        change(insert, None, Person(3, "again")),
        change(insert, None, Person(7, "short")),
        change(delete, Person(7, "short"), None),
        change(update, None, Person(4, None)),
        epoch=2,
    )
    assert rows_by_id(database, table) == {0: "new", 3: "again", 4: None, 5: "old", 12: "moved"}


def rows_by_id(database: Database, table: str) -> dict[int, str | None]:
    return dict(database.execute(f"SELECT id, name FROM {table}"))


def test_rows_replace_those_of_their_key(database: Database, tmp_path: Path) -> None:
    table = database.create_table("id INT PRIMARY KEY, name VARCHAR(20), more INT DEFAULT 5")
    at = At(fp.DatabaseSink(database.url, table, key="id"), tmp_path)
    at.write(Person, Person(1, "a"), Person(2, "b"), Person(1, "c"))
    database.execute(f"UPDATE {table} SET more = 6 WHERE id = 1")
    at.write(Person, Person(1, "d"), epoch=2)
    assert sorted(database.execute(f"SELECT id, name, more FROM {table}")) == [(1, "d", 6), (2, "b", 5)]


@contextmanager
def refused(kind: type[Exception], message: str) -> Iterator[None]:
    with pytest.raises(kind, match=message):
        yield


def test_tables_that_cannot_take_the_rows(database: Database, tmp_path: Path) -> None:
    def check(table: str, type: Any = Person, **options: Any) -> None:
        at = At(fp.DatabaseSink(database.url, table, **options), tmp_path)
        value = Person(1, "a") if type is Person else change(RowKind.INSERT, None, Person(1, "a"))
        at.sink.check(at.staged(type, [value]).committables)

    with refused(ConfigError, "there is no table 'absent'; create it, with the columns id, name"):
        check("absent")
    with refused(ConfigError, "has no column 'name'"):
        check(database.create_table("id INT"))
    with refused(ConfigError, "needs a value"):
        check(database.create_table("id INT, name VARCHAR(5), more INT NOT NULL"))
    with refused(ConfigError, "no primary key or unique index of exactly id"):
        check(database.create_table("id INT, name VARCHAR(5)"), key="id")
    with refused(ConfigError, "'other' is no field"):
        check(database.create_table("id INT PRIMARY KEY, name VARCHAR(5), other INT"), key="other")
    with refused(ConfigError, "need a key"):
        check(database.create_table("id INT PRIMARY KEY, name VARCHAR(5)"), CHANGE)
    with refused(TypeNotSupported, "writes records with named fields"):
        At(fp.DatabaseSink(database.url, "t"), tmp_path).staged(int, [1])


def test_a_table_of_another_schema_has_to_be_named_so(tmp_path: Path, postgres: Postgres) -> None:
    at = At(fp.DatabaseSink(postgres.url, "shop.orders"), tmp_path)
    with refused(ConfigError, r"there is no table 'shop.orders'.* give table='orders', schema='shop'"):
        at.sink.check(at.staged(N, [N(1)]).committables)


def test_tables_that_cannot_take_the_rows_are_found_at_the_start(database: Database, tmp_path: Path) -> None:
    def start(table: str, type: Any, **options: Any) -> None:
        start_without_rows(tmp_path, fp.DatabaseSink(database.url, table, **options), type)

    table = database.create_table("id INT, name VARCHAR(20)")
    start(table, Person)
    start("absent", Person)  # it may be created before there are rows
    with refused(ConfigError, "sink 'rows': table .* has no column 'n'"):
        start(table, N)
    with refused(ConfigError, "sink 'rows': key 'nr' is no field of the rows for table .*; correct key="):
        start(table, Person, key="nr")
    with refused(TypeNotSupported, "sink 'rows': DatabaseSink writes records with named fields"):
        start(table, int)


def test_a_database_that_is_away_at_the_start_is_no_mistake(tmp_path: Path) -> None:
    away = fp.DatabaseSink(f"postgresql://tests:secret@127.0.0.1:{free_port()}/tests", "t")
    with pytest.raises(SystemUnavailable):
        away.check_type(type_of(N))
    assert start_without_rows(tmp_path, away, N).outcome == "finished"


def start_without_rows(root: Path, to: Any, type: Any) -> Any:
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(root))
    env.from_collection([], type).uid("none").sink_to(to).uid("rows")
    env.launch = Launch(options={"engine": "local"})
    return prepare(env, "start").begin()()


SAMPLES: dict[str, tuple[Any, list[Any]]] = {
    "boolean": (bool, [True, False]),
    "integer": (int, [0, 1, 20260101, 120000]),
    "float": (float, [0.0, 1.0, 1.5, 20260101.0]),
    "big_dec": (Decimal, [Decimal(0), Decimal(20260101), Decimal("1.5")]),
    "text": (str, ["", "1", "2026-01-01", "2026-01-01 00:00:00", "12:00:00", "true"]),
    "bytes": (bytes, [b"", b"1", b"2026-01-01", b"\0" * 16]),
    "date": (date, [date(2026, 1, 1), date(1999, 12, 31)]),
    "datetime": (datetime, [LATE.replace(tzinfo=None), datetime(2026, 1, 1)]),  # noqa: DTZ001
    "time": (time, [time(0), time(12, 30), time(1, 2, 3, 4)]),
    "duration": (timedelta, [timedelta(0), timedelta(hours=1), timedelta(days=3)]),
    "uuid": (UUID, [UUID(int=0), UUID(int=20260101), UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")]),
    "record": (Inner, [Inner(0), Inner(1)]),
    "map": (dict[str, int], [{}, {"a": 1}]),
    "list": (list[int], [[], [1], [1, 2]]),
}
KINDS_OF_COLUMNS = {
    "boolean": "BOOLEAN",
    "integer": "BIGINT",
    "number": "DECIMAL(20, 2)",
    "date": "DATE",
    "datetime": "DATETIME",
    "time": "TIME",
    "uuid": "UUID",
}


@pytest.mark.slow
def test_only_columns_that_take_no_value_of_a_type_are_refused(database: Database, tmp_path: Path) -> None:
    """By writing values of each type to each kind of column that is said to refuse it."""
    kinds = {**KINDS_OF_COLUMNS, **({"datetime": "TIMESTAMP"} if database.name == "postgresql" else {})}
    tried = 0
    for family, columns in type_compatibility._REFUSED[database.name].items():
        type, values = SAMPLES[family]
        of = fp.Types.ROW_NAMED(["v"], [type_of(type | None)])
        for column in columns:
            table = database.create_table(f"v {kinds[column]}")
            at = At(fp.DatabaseSink(database.url, table), tmp_path / table)
            with refused(ConfigError, f"table '{table}': column 'v' is .*, which takes no value of the field's type"):
                at.sink.check(at.staged(of, [fp.Row(v=None)]).committables)
            for value in values:
                with pytest.raises(JobFailed, match="writing to table"), monkeypatched_fitting():
                    at.commit(at.staged(of, [fp.Row(v=value)]))
                tried += 1
            assert rows(database, table) == []
    assert tried > 50


@contextmanager
def monkeypatched_fitting() -> Iterator[None]:
    """Nothing is known about types that do not fit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type_compatibility, "_REFUSED", {})
        yield


def test_texts_for_numbers_are_warned_of(database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Written(NamedTuple):
        n: str

    table = database.create_table("n INT")
    at = At(fp.DatabaseSink(database.url, table), tmp_path)
    at.write(Written, Written("12"))
    assert rows(database, table) == [(12,)]
    assert ("a text that is not a number fails the job" in caplog.text) is (database.name != "sqlite")


class Large(NamedTuple):
    id: int
    text: str


def test_rows_that_are_more_than_mysql_takes_at_once(mariadb: MariaDB, tmp_path: Path) -> None:
    ((limit,),) = mariadb.execute("SELECT @@max_allowed_packet")
    mariadb.execute("CREATE OR REPLACE TABLE large (id INT PRIMARY KEY, text LONGTEXT)")
    at = At(fp.DatabaseSink(mariadb.url, "large", key="id"), tmp_path)
    at.write(Large, *[Large(n, "ü" * 1_000_000) for n in range(limit // 1_000_000)])  # more than that together
    assert mariadb.execute("SELECT COUNT(*), MIN(CHAR_LENGTH(text)) FROM large") == [(limit // 1_000_000, 1_000_000)]
    output = at.staged(Large, [Large(1, "a"), Large(2, "ü" * (limit // 2 + 1))], epoch=2)
    message = rf"a row has {limit + 2} bytes, and the server takes {limit} at once \(max_allowed_packet\). Raise that"
    with refused(ConfigError, message):
        at.sink.check(output.committables)
    with refused(JobFailed, r"INSERT INTO large .* has \d+ bytes, and the server takes \d+ at once \(max_allowed_packet\)"):
        at.commit(output)  # it would close the connection
    escaped = at.staged(Large, [Large(3, "'" * (limit - 100))], epoch=3)
    at.sink.check(escaped.committables)  # what the driver makes of it is known when it is written
    with refused(JobFailed, "max_allowed_packet"):
        at.commit(escaped)
    assert mariadb.execute("SELECT COUNT(*) FROM large") == [(limit // 1_000_000,)]


def test_rows_that_the_table_refuses_fail_the_job_and_write_nothing(database: Database, tmp_path: Path) -> None:
    table = database.create_table("id INT PRIMARY KEY, name VARCHAR(20)")
    at = At(fp.DatabaseSink(database.url, table), tmp_path)
    with refused(JobFailed, "need an upsert"):
        at.write(Person, Person(1, "a"), Person(2, "b"), Person(1, "c"))
    assert rows(database, table) == []


@pytest.mark.parametrize("key", [(), ("id",)])
def test_refused_rows_are_set_aside_and_the_others_are_written_once(
    database: Database, tmp_path: Path, key: tuple[str, ...]
) -> None:
    table = database.create_table("id INT PRIMARY KEY, name VARCHAR(20) UNIQUE CHECK (name <> 'bad')")
    database.execute(f"INSERT INTO {table} VALUES (1000, 'n7')")
    at = At(fp.DatabaseSink(database.url, table, key=key), tmp_path)
    people = [Person(n, "bad" if n == 13 else f"n{n}") for n in range(40)]
    output, letters = at.staged(Person, people), list[Any]()
    with refused(OutputRefused, "(?i)constraint|duplicate"):
        at.commit(output)
    assert len(rows(database, table)) == 1
    for _ in range(2):
        committer = at.committer()
        committer.commit_accepted(output, 1, lambda found: letters.extend(found.to_pylist()))
        committer.close()
    at.commit(output)
    # With a key, MySQL updates the row whose name exists already, instead of refusing the new one.
    replaces = bool(key) and len(letters) == 1
    gone = {13} if replaces else {7, 13}
    assert {json.loads(letter["row"])["id"] for letter in letters} == gone
    assert all("writing to table" in letter["error"] for letter in letters)
    found = [row[0] for row in rows(database, table)]
    assert len(found) == len(set(found))
    assert set(range(40)) - set(found) <= {7, 13}
    assert set(range(40)) - {7, 13} <= set(found)


@pytest.mark.parametrize("remedy", [*(pytest.param(each, marks=pytest.mark.slow) for each in ("target", "uid")), "savepoint"])
def test_what_to_do_when_the_table_refuses_committed_rows(tmp_path: Path, remedy: str) -> None:
    """As docs/sources-sinks.md says."""
    database = sqlite(tmp_path)
    database.execute("CREATE TABLE numbers (n INT)")

    def job(uid: str, number_of: Any, restore: RestoreOptions | None = None, stop: int | None = 100) -> Any:
        env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(tmp_path / "root"))
        env.options = replace(env.options, restart=RestartStrategy.none())
        env.enable_checkpointing(10)
        source = fp.CounterSource(stop, per_epoch=5)
        numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
        rows = numbers.map(lambda n: N(number_of(n)), N).uid("rows")
        rows.sink_to(fp.DatabaseSink(database.url, "numbers")).uid(uid)
        env.launch = Launch(options={"engine": "local"})
        return prepare(env, "refused", restore)

    started = InBackground(job("table", int, stop=None))
    started.wait_for(lambda status: status.epoch >= 4)
    savepoint = started.driver.savepoint(stop=True).done.result()
    started.end()
    before = len(rows(database, "numbers"))
    trigger = f"CREATE TRIGGER low BEFORE INSERT ON numbers WHEN NEW.n = {before + 12} BEGIN SELECT RAISE(ABORT, 'no'); END"
    database.execute(trigger)
    for restore in (None, None, RestoreOptions(savepoint)):  # none of these helps
        with refused(JobFailed, "sink 'table': writing to table 'numbers' .*no"):
            job("table", int, restore if remedy == "savepoint" else None, before + 100).begin()()
    if remedy == "target":
        database.execute("DROP TRIGGER low")
        job("table", int, stop=before + 100).begin()()
        assert rows(database, "numbers") == [(n,) for n in range(before + 100)]
        return
    restored = RestoreOptions(savepoint) if remedy == "savepoint" else None
    if remedy == "savepoint":
        database.execute(f"DELETE FROM numbers WHERE n >= {before}")
    job("other", lambda n: n if n != before + 12 else -1, restored, before + 100).begin()()
    found = [n for (n,) in rows(database, "numbers")]
    assert len(found) == len(set(found))
    missing = set(range(before + 100)) - set(found)
    if remedy == "savepoint":
        assert missing == {before + 12}
        assert -1 in found
    else:
        assert before + 12 in missing
        assert max(found) == before + 99
        assert len(missing) % 5 == 0  # of whole epochs


def test_addresses_that_are_not_supported() -> None:
    with refused(ConfigError, "is no URL of a database"):
        fp.DatabaseSink("nonsense", "t")
    with refused(ConfigError, "oracle is not supported"):
        fp.DatabaseSink("oracle://h/d", "t")
    with refused(ConfigError, "a database in memory"):
        fp.DatabaseSink("sqlite://", "t")
    with refused(ConfigError, "the driver for postgresql is psycopg, not asyncpg"):
        fp.DatabaseSink("postgresql+asyncpg://h/d", "t")


def test_wrong_credentials(database: Database, tmp_path: Path) -> None:
    if database.name == "sqlite":
        return
    for wrong, right in (("secret", "wrong"), ("/tests", "/absent")):
        at = At(fp.DatabaseSink(database.url.replace(wrong, right), "t"), tmp_path)
        with refused(ConfigError, "Correct user, password and database of the URL"):
            at.write(Person, Person(1, "a"))


def test_a_password_is_not_shown(postgres: Postgres, tmp_path: Path) -> None:
    at = At(fp.DatabaseSink(postgres.url, "absent"), tmp_path)
    with pytest.raises(ConfigError) as problem:
        at.commit(at.staged(N, [N(1)]))
    assert "secret" not in str(problem.value)


def test_a_server_that_is_killed_and_comes_back(postgres: Postgres, tmp_path: Path) -> None:
    database = Database("postgresql", postgres.url, postgres.execute)
    table = counted(database, "every")
    program = [PROGRAM, postgres.url, table, tmp_path / "root", 1200]
    job = Python(program, env=ENVIRONMENT, stderr=subprocess.PIPE)
    for seen in (1, 600):
        while len(postgres.execute(f"SELECT number FROM {table}")) < seen:
            assert job.poll() is None, job.communicate()[1].decode()[-3000:]
            pause(0.02)
        postgres.kill()
        postgres.start()
    assert job.wait() == 0, job.communicate()[1].decode()[-3000:]
    found = rows(database, table)
    assert len(found) == 1200
    assert set(found) == expected(table, 1200)


def test_a_server_that_is_away_is_waited_for(postgres: Postgres, tmp_path: Path) -> None:
    table = Database("postgresql", postgres.url, postgres.execute).create_table("n INT")
    at = At(fp.DatabaseSink(postgres.url, table), tmp_path)
    output = at.staged(N, [N(1)])
    committer = at.committer()
    postgres.kill()
    try:
        with pytest.raises(SystemUnavailable, match=rf"writing to table '{table}' of postgresql\+psycopg://tests:\*\*\*@"):
            committer.commit(output, 1)
        committer.close()
    finally:
        postgres.start()
    committer.commit(output, 1)
    committer.close()
    assert postgres.execute(f"SELECT n FROM {table}") == [(1,)]


@pytest.mark.parametrize("limit", ["IDLE_SECONDS", "LOCK_SECONDS"])
def test_a_suspended_driver_gives_its_locks_back(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """It sleeps in the middle of a transaction; the server, or the next driver, ends that, and the next driver goes on."""
    monkeypatch.setattr(f"forkpoint.connectors.database.engine.{limit}", 1)
    postgres.execute("DROP TABLE IF EXISTS suspended; CREATE TABLE suspended (n int)")
    at = At(fp.DatabaseSink(postgres.url, "suspended"), tmp_path)
    output = at.staged(N, [N(1)])
    asleep, wake = threading.Event(), threading.Event()
    problems: list[BaseException] = []
    real = DatabaseCommitter._write

    def sleeping(*args: Any) -> None:
        real(*args)
        if threading.current_thread() is first:
            asleep.set()
            wake.wait()

    def commit() -> None:
        """As drivers do it: again, where a busy machine has reached the limit."""
        while True:
            try:
                return at.commit(output)
            except SystemUnavailable as problem:
                if asleep.is_set() and threading.current_thread() is first:
                    return problems.append(problem)

    first = threading.Thread(target=commit)
    monkeypatch.setattr(DatabaseCommitter, "_write", sleeping)
    first.start()
    asleep.wait()
    commit()
    wake.set()
    first.join()
    assert len(problems) == 1
    assert postgres.execute("SELECT n FROM suspended") == [(1,)]
