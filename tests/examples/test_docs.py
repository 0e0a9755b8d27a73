"""Every runnable Python example of the documentation runs, and prints what is said there; links lead somewhere.

A block whose fence says ``python run`` is a program of its own, run in an empty directory on the local engine; a ``text``
block right behind it is its output. Jobs without an end are cancelled after a few epochs.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import duckdb
import pytest
from cli_commands import cancel, forkpoint
from doc_blocks import DOCUMENTS, ROOT, Block, apply_diff, blocks

import programs
from forkpoint.api.launch import Launch, launching
from forkpoint.driver.run.job_driver import JobDriver

EPOCHS, OF_THOSE_THAT_PRINT = 3, 12
RUNNABLE = [block for file in DOCUMENTS for block in blocks(file) if block.info == "python run"]


@pytest.mark.parametrize("block", RUNNABLE, ids=lambda block: block.name)
def test_example(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORKPOINT_STATE_ROOT", raising=False)
    monkeypatch.setattr(subprocess, "Popen", programs.popen)
    module = ModuleType(f"example_{re.sub(r'[^a-z0-9]', '_', block.name)}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    end = EndOfPatience(EPOCHS if block.output is None else OF_THOSE_THAT_PRINT)
    with launching(Launch(options={"engine": "local"}, on_driver=end.on_driver, steps=end)):
        exec(compile(block.text, block.name, "exec", dont_inherit=True), module.__dict__)
    if block.output is not None:
        assert capsys.readouterr().out == block.output


def test_there_are_examples() -> None:
    assert {"README.md", "concepts.md", "state.md", "sources-sinks.md", "testing.md"} <= {b.file.name for b in RUNNABLE}


class EndOfPatience:
    """Cancels a job that goes on and on, after so many epochs."""

    def __init__(self, epochs: int) -> None:
        self.most = epochs

    def on_driver(self, driver: JobDriver) -> Callable[[Any], None]:
        self.driver, self.epochs = driver, 0
        return lambda _: None

    def on_step(self, step: str, epoch: int) -> None:
        self.epochs += step == "published"
        if self.epochs == self.most:
            self.driver.cancel()


def test_links_lead_somewhere() -> None:
    for file in [*DOCUMENTS, *ROOT.glob("examples/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", file.read_text(encoding="utf-8")):
            assert (file.parent / target).exists(), f"{file.name} links to {target}"


def test_the_readme_s_commands(tmp_path: Path) -> None:
    """Save, change, restore, fork: as written there, with the change that is shown there."""
    every = blocks(ROOT / "README.md")
    program = next(block.text for block in every if block.info == "python run")
    change = next(block.text for block in every if block.info == "diff")
    commands = [line[2:] for block in every if block.info == "console" for line in block.text.splitlines()]
    assert len(commands) == 7
    app = tmp_path / "app.py"
    app.write_text(program)
    try:
        for number, line in enumerate(commands):
            if number == 4:
                app.write_text(apply_diff(program, change))
            said = forkpoint(line, tmp_path)
            if number in (0, 4, 5):
                log = tmp_path / re.findall(r"log: (.*)", said)[0]
                totals = printed(log)
                if number == 0:
                    before = totals
                if number == 4:
                    after = totals
        assert after["A"] > before["A"]
        for found in (after, totals):
            assert found["A"] % 3 == 0  # sums of 0, 3, 6 …; the state of version 1 is in them
            assert min(found.values()) > sum(range(0, 40, 3))
        assert said.count("◆") == 2
        assert "spending-2" in said
    finally:
        for job in ("spending", "spending-2"):
            cancel(job, tmp_path)


def test_the_five_minutes_of_sql(tmp_path: Path) -> None:
    """As written there, with the change that is shown there."""
    every = blocks(ROOT / "docs" / "sql.md")
    query = next(block.text for block in every if block.info == "sql")
    change = next(block.text for block in every if block.info == "diff")
    first, second, *_ = (block.text.splitlines() for block in every if block.info == "console")
    state = next(block.text for block in every if block.info == "text")
    app = tmp_path / "totals.sql"
    app.write_text(query)
    logs, said = [], []
    try:
        for line in [*first, None, *second]:
            if line is None:
                app.write_text(apply_diff(query, change))
            elif line.startswith("$ forkpoint "):
                said.append(forkpoint(line[2:], tmp_path))
                if " -d" in line:
                    logs.append(tmp_path / re.findall(r"log: (.*)", said[-1])[0])
                    wait_for(logs[-1], r"\+I\[bob")
            else:
                subprocess.run(line[2:], shell=True, cwd=tmp_path, check=True)
    finally:
        cancel("totals", tmp_path)
    changes = [sorted(re.findall(r"[+-][ID]\[.*\]", log.read_text())) for log in logs]
    assert changes == [["+I[ann, 1, 300]", "+I[bob, 1, 500]"], ["+I[bob, 1, 500]", "-D[ann, 1, null]", "-D[bob, 1, null]"]]
    assert [line.rstrip() for line in said[1].splitlines()] == state.splitlines()
    assert "the first epoch emits the difference" in said[3]


@pytest.mark.slow
def test_the_eight_changes(tmp_path: Path) -> None:
    """Each version's changes, added to those before it, lead to its own result over all rows."""
    every = blocks(ROOT / "docs" / "changing-queries.md")
    app = tmp_path / "shop.sql"
    rows: Rows = {}
    app.write_text(next(block.text for block in every if block.info == "sql"))
    consoles = [block.text.splitlines() for block in every if block.info == "console"]
    changes = ["", *(block.text for block in every if block.info == "diff")]
    assert len(consoles) == len(changes) == 9
    try:
        for change, console in zip(changes, consoles, strict=True):
            if change:
                app.write_text(apply_diff(app.read_text(), change))
            for line in console:
                if not line.startswith("$ forkpoint "):
                    subprocess.run(line[2:], shell=True, cwd=tmp_path, check=True)
                    continue
                said = forkpoint(line[2:], tmp_path)
                if " check " in line:
                    assert "the first epoch emits the difference" in said
                if " recompute " in line:
                    assert re.search(r"computed again: (names; [89]|totals; 6) rows read", said), said
            log, wanted = tmp_path / re.findall(r"log: (.*)", said)[0], results(app.read_text(), tmp_path)
            while (found := folded(rows, log.read_text())) != wanted:
                time.sleep(0.1)
            rows = found
    finally:
        cancel("shop", tmp_path)


Rows = dict[str, Counter[tuple[str, ...]]]
"""Printed rows, by the table that they are inserted into."""


def results(script: str, directory: Path) -> Rows:
    """DuckDB's answers of the INSERTs over all files."""
    connection = duckdb.connect()
    for table in ("orders", "customers"):
        connection.execute(f"CREATE TABLE {table} AS SELECT * FROM '{directory}/{table}/*.json'")
    found = {}
    for table, query in re.findall(r"INSERT INTO (\w+)\n(.*?);", script, re.DOTALL):
        rows = connection.execute(re.sub(r"AVG\((\w+)\)", r"(SUM(\1) // COUNT(\1))", query)).fetchall()
        found[table] = Counter(tuple("null" if value is None else str(value).lower() for value in row) for row in rows)
    return found


def folded(before: Rows, log: str) -> Rows:
    """The rows after a run's printed changes. Of rows of another shape that it takes back, only the first column is compared."""
    found = {table: Counter(rows) for table, rows in before.items()}
    for table, change, text in re.findall(r"(\w+)> ([+-][ID])\[(.*)\]", log):
        row, rows = tuple(part.lower() for part in text.split(", ")), found.setdefault(table, Counter())
        if change == "-D" and not rows[row]:
            row = next(old for old in before[table] if old[0] == row[0] and rows[old])
        rows[row] += 1 if change == "+I" else -1
    return {table: +rows for table, rows in found.items()}


def wait_for(log: Path, pattern: str) -> None:
    while not re.search(pattern, log.read_text()):
        time.sleep(0.05)


def printed(log: Path) -> dict[str, int]:
    """The first totals that a run prints."""
    while True:
        found = re.findall(r"Spent\(customer='(\w)', total=(\d+)\)", log.read_text())
        if len({customer for customer, _ in found}) == 3:
            return {customer: int(total) for customer, total in reversed(found)}
        time.sleep(0.05)
