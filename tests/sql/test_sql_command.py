"""`forkpoint sql`: statements from the command line, and in the shell."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from programs import ENVIRONMENT, Python, run_python

FILE = """
CREATE TABLE orders (k STRING, v BIGINT) WITH ('connector' = 'filesystem', 'path' = 'orders', 'format' = 'json');
CREATE TABLE out WITH ('path' = 'out') LIKE orders;
CREATE TABLE more PARTITIONED BY (k) WITH ('path' = 'more') LIKE orders;
CREATE TABLE arriving WITH ('source.monitor-interval' = '1 s') LIKE orders;
INSERT INTO out SELECT k, v FROM arriving;
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "1.json").write_text('{"k": "ann", "v": 300}\n{"k": "bob", "v": 5}\n{"k": "ann", "v": null}\n')
    (tmp_path / "app.sql").write_text(FILE)
    return tmp_path


def sql(directory: Path, *arguments: str, **options: Any) -> Any:
    command = ["-m", "forkpoint.cli", *arguments]
    return run_python(command, cwd=directory, env=ENVIRONMENT, capture_output=True, text=True, **options)


def test_a_query_prints_its_final_result(directory: Path) -> None:
    query = "SELECT k, COUNT(*) AS n, SUM(v) AS v FROM orders GROUP BY k"
    done = sql(directory, "sql", "-f", "app.sql", "-e", "SHOW TABLES LIKE 'o%'", "-e", query)
    assert (done.returncode, done.stderr) == (0, "")
    shown = [re.split("  +", line.strip()) for line in done.stdout.splitlines()]
    assert shown[:4] == [["table name"], ["orders"], ["out"], ["2 rows"]]
    assert shown[4] == ["k", "n", "v"]
    assert sorted(shown[5:7]) == [["ann", "2", "300"], ["bob", "1", "5"]]
    assert not (directory / "out").exists()  # the file's INSERT has not run

    done = sql(directory, "--output", "json", "sql", "-f", "app.sql", "-e", f"{query}; SELECT v / 0 FROM orders")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(rows, key=lambda row: row["k"]) == [{"k": "ann", "n": 2, "v": 300}, {"k": "bob", "n": 1, "v": 5}]
    assert (done.returncode, "division by zero" in done.stderr.lower() or "divide by zero" in done.stderr.lower()) == (3, True)
    assert not (directory / ".forkpoint").exists()  # queries are no jobs of the state root


def test_inserts_are_one_job(directory: Path) -> None:
    text = "INSERT INTO out SELECT k, v + 1 FROM orders; INSERT INTO more SELECT 'x', 0 FROM orders WHERE v = 5; "
    text += "INSERT INTO out SELECT 'y', v FROM orders WHERE v = 5"
    done = sql(directory, "sql", "--engine", "local", "-f", "app.sql", "-e", text)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "job insert-into-out" in done.stderr
    lines = [json.loads(line) for file in directory.glob("out/part-*") for line in file.read_text().splitlines()]
    assert sorted((row["k"], row["v"] or 0) for row in lines) == [("ann", 0), ("ann", 301), ("bob", 6), ("y", 5)]
    assert sql(directory, "--output", "json", "sql", "-f", "app.sql", "-e", "SELECT * FROM more").stdout == '{"k": "x", "v": 0}\n'
    assert len(list(directory.glob("more/k=x/part-*"))) == 1
    for number in (2, 3):  # the job before has finished
        again = sql(directory, "sql", "--engine", "local", "-f", "app.sql", "-e", "INSERT INTO out VALUES ('z', 9)")
        assert f"job insert-into-out-{number}" in again.stderr
    found = sql(directory, "--output", "json", "sql", "-f", "app.sql", "-e", "SELECT COUNT(*) AS n FROM out WHERE v = 9")
    assert json.loads(found.stdout) == {"n": 2}


def test_changes_come_until_ctrl_c(directory: Path) -> None:
    command = ["-m", "forkpoint.cli", "--output", "json", "sql", "-f", "app.sql", "-e", "SELECT COUNT(*) AS n FROM arriving"]
    process = Python(command, cwd=directory, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert json.loads(process.stdout.readline()) == {"op": "+I", "row": {"n": 3}}
    (directory / "orders" / "2.json").write_text('{"k": "eve", "v": 1}\n')
    changes = [json.loads(process.stdout.readline()) for _ in range(2)]
    assert sorted(changes, key=lambda change: change["op"]) == [{"op": "+I", "row": {"n": 4}}, {"op": "-D", "row": {"n": 3}}]
    os.kill(process.pid, signal.SIGINT)
    out, errors = process.communicate()
    assert (process.returncode, out, errors) == (130, b"", b"interrupted\n")


class Shell:
    """`forkpoint sql` in a terminal, as somebody uses it."""

    def __init__(self, directory: Path) -> None:
        self._terminal, inner = pty.openpty()
        environment = {**ENVIRONMENT, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "XDG_STATE_HOME": str(directory / "state")}
        command = [sys.executable, "-m", "forkpoint.cli", "sql", "--engine", "local"]
        options = {"stdin": inner, "stdout": inner, "stderr": inner, "cwd": directory, "env": environment}
        self.process = subprocess.Popen(command, start_new_session=True, **options)  # type: ignore[call-overload]
        os.close(inner)
        self._seen = ""

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def wait_for(self, text: str) -> None:
        """Wait until the shell shows a text, after what was waited for before."""
        while text not in self._seen:
            self._seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", os.read(self._terminal, 4096).decode(errors="replace"))
        self._seen = self._seen.partition(text)[2]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._terminal)


@pytest.fixture
def shell(directory: Path) -> Iterator[Shell]:
    found = Shell(directory)
    found.wait_for("sql>")
    yield found
    found.close()


def test_the_shell(shell: Shell, directory: Path) -> None:
    options = "'connector' = 'filesystem', 'path' = 'orders', 'format' = 'json'"
    shell.type(f"CREATE TABLE orders (k STRING, v BIGINT)\rWITH ({options});\r")
    shell.wait_for("OK")
    shell.type("SELECT k, COUNT(*) AS n FROM ord\t")
    shell.wait_for("FROM ord")
    shell.wait_for("ers")  # completed
    shell.type(" GROUP BY k;\r")
    shell.wait_for("2 rows")
    shell.type("SELECT kk FROM orders;\r")
    shell.wait_for("there is no column 'kk'; did you mean 'k'?")
    shell.type("CREATE TABLE secret WITH ('connector' = 'kafka', 'properties.sasl.password' = 'hunter2') LIKE orders;\r")
    shell.wait_for("OK")
    shell.type("CREATE TABLE out WITH ('path' = 'out') LIKE orders;\rINSERT INTO out SELECT k, v FROM orders;\r")
    shell.wait_for("job insert-into-out, run ")
    shell.type("CREATE TABLE arriving WITH ('source.monitor-interval' = '1 s') LIKE orders;\rSELECT * FROM arriving;\r")
    shell.wait_for("+I | bob | 5")
    shell.process.send_signal(signal.SIGINT)
    shell.wait_for("interrupted")
    shell.type("quit\r")
    assert shell.process.wait() == 0
    history = directory / "state" / "forkpoint" / "sql-history"
    assert "SELECT kk FROM orders" in history.read_text()
    assert "hunter2" not in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_plan_compares_two_files_before_either_has_run(directory: Path) -> None:
    tables = FILE[: FILE.index("INSERT")]
    tables += "CREATE TABLE pairs (v BIGINT, w BIGINT) WITH ('connector' = 'print');\n"
    tables += "CREATE TABLE totals (k STRING, v BIGINT) WITH ('connector' = 'print');\n"
    for name, kind, call in (("old", "JOIN", "SUM(v)"), ("new", "LEFT JOIN", "AVG(v)"), ("other", "JOIN", "MAX(v)")):
        pairs = f"INSERT INTO pairs SELECT a.v, b.v FROM orders AS a {kind} orders AS b ON a.k = b.k;\n"
        (directory / f"{name}.sql").write_text(
            tables + pairs + f"INSERT INTO totals SELECT k, {call} FROM arriving GROUP BY k;\n"
        )
    with (directory / "other.sql").open("a") as file:
        file.write("CREATE TABLE counts (v BIGINT, n BIGINT) WITH ('connector' = 'print');\n")
        file.write("INSERT INTO counts SELECT v, COUNT(*) FROM orders GROUP BY v;")
    derived = sql(directory, "--output", "json", "plan", "old.sql", "new.sql")
    found = json.loads(derived.stdout)
    difference = "the query has changed: the first epoch emits the difference between its new and its old result"
    assert {(row["uid"], row["name"]): row["why"] for row in found["rows"] if row["subject"] == "state"} == {
        ("pairs-join-orders", "left"): difference,
        ("pairs-join-orders", "right"): difference,
        ("totals-group-by-k", "groups"): difference,
    }
    assert (derived.returncode, found["fits"], derived.stderr.count("keeps state that grows")) == (0, True, 1)
    refused = sql(directory, "plan", "old.sql", "other.sql")
    assert (refused.returncode, "MAX(v) cannot be computed from the saved SUM(v)" in refused.stdout) == (4, True)
    assert "it is new, and the job has read rows of 'orders' before; compute its state" in refused.stdout
    assert list(directory.glob(".forkpoint")) == []
