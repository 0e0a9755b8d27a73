"""Catalogues that are kept under the state root."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import forkpoint as fp
from forkpoint.errors import ConfigError
from forkpoint.operations import RunRequest
from forkpoint.operations.roots import StateRoot
from forkpoint.operations.versions.trials import Trials
from forkpoint.sql.errors import SqlError, Text
from forkpoint.storage.base import open_storage
from forkpoint.table.api.query_results import QueryResult
from forkpoint.table.interactive import Interactive
from forkpoint.table.session import Session
from forkpoint.table.stored_catalogs import newest_versions
from programs import ENVIRONMENT, run_python

CATALOG = "CREATE CATALOG prod WITH ('type' = 'state-root')"
COLUMNS = "k STRING, `when` TIMESTAMP(3), late AS `when` + INTERVAL '1' DAY"
TABLE = f"CREATE TABLE prod.`default`.{{}} ({COLUMNS}) WITH ('connector' = 'datagen')"


class Shell:
    """A session of its own."""

    def __init__(self, root: Path) -> None:
        env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
        env.launch = replace(env.launch, state_root=str(root))
        self.interactive = Interactive(Session(env))

    def __call__(self, statements: str) -> list[Any]:
        outcomes = [each for each in self.interactive.run(Text(statements)) if each is not None]
        return [row for each in outcomes for row in (each.rows() if isinstance(each, QueryResult) else each.rows)]


def test_what_a_session_creates_others_have(tmp_path: Path) -> None:
    one, other = Shell(tmp_path), Shell(tmp_path)
    assert other("SHOW CATALOGS") == [("default_catalog",), ("state",)]
    one(f"{CATALOG}; USE CATALOG prod; CREATE DATABASE sales; {TABLE.format('events')}; USE sales")
    one("CREATE TABLE likes WITH ('number-of-rows' = '3') LIKE prod.`default`.events")
    one("CREATE VIEW days AS SELECT EXTRACT(DAY FROM late) - EXTRACT(DAY FROM `when`) AS days FROM likes WHERE k IS NOT NULL")
    one("CREATE FUNCTION plus AS 'test_sql_stored_catalogs.plus' LANGUAGE PYTHON; CREATE TEMPORARY VIEW mine AS SELECT 1 AS one")
    assert other("SHOW DATABASES FROM prod; DESCRIBE CATALOG prod") == [
        *[("default",), ("sales",), ("name", "prod"), ("type", "state-root"), ("comment", "")]
    ]
    tables = fp.StreamTableEnvironment.create(
        fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(tmp_path))
    )
    descriptor = fp.TableDescriptor.for_connector("print").schema(fp.Schema.new_builder().column("a", "INT").build()).build()
    tables.create_table("prod.sales.api", descriptor)
    tables.create_temporary_table("prod.sales.passing", descriptor)
    other("DROP TABLE prod.sales.api")
    assert other("SHOW TABLES FROM prod.sales") == [("days",), ("likes",)]
    other("USE prod.sales")
    assert len(other("SELECT plus(days) FROM days")) == 3
    ((ddl,),) = other("SHOW CREATE TABLE likes")
    assert "`late` AS `when` + INTERVAL '1' DAY" in ddl
    other("ALTER TABLE likes RENAME TO liked; DROP VIEW days; DROP FUNCTION plus")
    assert one("SHOW TABLES") == [("liked",), ("mine",)]
    other("USE default_catalog.default_database; DROP CATALOG prod")
    assert one("SHOW CATALOGS") == [("default_catalog",), ("state",)]
    other(CATALOG)
    assert one("SHOW TABLES FROM prod.`default`") == []
    with pytest.raises(SqlError, match=re.escape("no table 'here'; there are default_catalog.default_database.here")):
        other("CREATE TABLE here WITH ('connector' = 'print') AS SELECT 1 AS a; USE CATALOG prod; SELECT * FROM here")


def test_programs_on_trial_have_them(tmp_path: Path) -> None:
    """Those of `ab` and `recompute`, whose state root is another one."""
    Shell(tmp_path / "root")(f"{CATALOG}; {TABLE.format('events')}; {TABLE.format('more')}")
    trial = tmp_path / "trial"
    Trials.beside(open_storage(str(tmp_path / "root")), StateRoot(str(trial)), tmp_path, RunRequest("app.sql"))
    assert Shell(trial)(f"{TABLE.format('late')}; SHOW TABLES FROM prod.`default`") == [("events",), ("late",), ("more",)]
    assert Shell(tmp_path / "root")("SHOW TABLES FROM prod.`default`") == [("events",), ("more",)]


def plus(value: int) -> int:
    return value + 1


def test_two_writers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Shell(tmp_path), Shell(tmp_path)
    one(CATALOG)
    other("SHOW CATALOGS")
    monkeypatch.setattr("forkpoint.table.interactive.refresh", lambda session: None)  # both have read the same version
    one(TABLE.format("a"))
    other(TABLE.format("b"))
    assert other("SHOW TABLES FROM prod.`default`") == [("a",), ("b",)]
    with pytest.raises(
        ConfigError, match=r"somebody else has changed TABLE prod\.default\.b of catalogue 'prod' at the same time"
    ):
        one("CREATE TABLE prod.`default`.b (x INT) WITH ('connector' = 'print')")
    assert one("SHOW TABLES FROM prod.`default`") == [("a",), ("b",)]
    other("DROP CATALOG prod")
    with pytest.raises(ConfigError, match="somebody else has changed catalogue 'prod'"):
        one(TABLE.format("c"))
    assert one("SHOW CATALOGS") == [("default_catalog",), ("state",)]
    assert newest_versions(open_storage(tmp_path)) == {"prod": 4}


def test_secrets_and_what_cannot_be_loaded(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell(f"{CATALOG}; USE CATALOG prod")
    table = "CREATE {}TABLE t (a INT) WITH ('connector' = 'jdbc', 'url' = 'x', 'table-name' = 't', 'password' = '{}')"
    with pytest.raises(SqlError, match="option 'password' may be a secret, which catalogue 'prod' would store"):
        shell(table.format("", "hunter2"))
    assert shell("SHOW TABLES") == []
    shell(table.format("TEMPORARY ", "hunter2"))
    shell(f"DROP TABLE t; {table.format('', '${env:PASSWORD}')}")
    assert not any(b"hunter2" in file.read_bytes() for file in tmp_path.rglob("*.json"))
    shell("CREATE FUNCTION plus AS 'test_sql_stored_catalogs.plus' LANGUAGE PYTHON")
    for file in tmp_path.rglob("*.json"):
        file.write_text(file.read_text().replace("catalogs.plus", "catalogs.minus"))
    later = Shell(tmp_path)  # without the function, which stays stored
    later("CREATE VIEW prod.`default`.v AS SELECT a FROM prod.`default`.t")
    assert later("SHOW TABLES FROM prod.`default`; SHOW USER FUNCTIONS") == [("t",), ("v",)]
    newest = max(tmp_path.rglob("catalogs/**/*.json"))
    assert "FUNCTION prod.default.plus" in json.loads(newest.read_text())["definitions"]


def test_a_job_of_a_shell_and_checks(tmp_path: Path) -> None:
    """A job reads the catalogue itself, and a check writes nothing."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"k": "ann"}\n')
    (tmp_path / "app.sql").write_text(
        f"{CATALOG}; CREATE TABLE prod.`default`.t (k STRING) WITH ('connector' = 'print');"
        "INSERT INTO prod.`default`.t SELECT 'x'"
    )

    def forkpoint(*arguments: str) -> Any:
        command = ["-m", "forkpoint.cli", *arguments]
        return run_python(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)

    forkpoint("check", "app.sql")
    assert not (tmp_path / ".forkpoint").exists()
    table = "CREATE TABLE k (k STRING) WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = 'in')"
    assert forkpoint("sql", "-e", f"{CATALOG}; USE CATALOG prod; {table}").returncode == 0
    copy = "CREATE TABLE copy WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = 'out') AS SELECT k FROM k"
    done = forkpoint("sql", "--engine", "local", "-e", f"USE CATALOG prod; {copy}")
    assert done.returncode == 0, done.stderr
    assert forkpoint("--output", "json", "sql", "-e", "SELECT * FROM prod.`default`.copy").stdout == '{"k": "ann"}\n'
