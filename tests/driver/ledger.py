"""A sink whose output tasks commit, to a real transactional system: an SQLite file."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

import forkpoint as fp
from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.contract.sink import Committer, CommitterContext, CommittingSink, SinkContext, SinkWriter
from forkpoint.errors import SystemUnavailable


class LedgerSink(CommittingSink[Any]):
    """Appends elements to a table, in a group for each subtask. Files beside the database make it fail or slow: ``away``,
    ``broken``, ``slow``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def create_writer(self, context: SinkContext) -> SinkWriter[Any]:
        return _Writer(context)

    def create_committer(self, context: CommitterContext) -> Committer:
        return _Committer(self.directory, context)

    def group(self, committable: Any) -> str:
        return str(committable["subtask"])


class _Writer(SinkWriter[Any]):
    def __init__(self, context: SinkContext) -> None:
        self._context = context
        self._values: list[Any] = []

    def write(self, batch: Any) -> None:
        self._values += batch.values

    def prepare_commit(self) -> list[Any]:
        padding = " " * 5000  # too large for the manifest
        stored = self._context.stage((json.dumps(self._values) + padding).encode())
        return [{"subtask": self._context.subtask, "stored": stored}]


class _Committer(Committer):
    def __init__(self, directory: Path, context: CommitterContext) -> None:
        self._directory = directory
        self._context = context

    def commit(self, output: EpochOutput, newest: int) -> None:
        if (self._directory / "away").exists():
            raise SystemUnavailable("the ledger is away")
        if (self._directory / "broken").exists():
            raise fp.ForkpointError("the ledger is broken")
        while (self._directory / "slow").exists():
            time.sleep(0.01)
        group = f"{self._context.incarnation}-{self._context.group}"
        with connect(self._directory) as ledger:
            ledger.execute("begin immediate")
            before = ledger.execute("select epoch from done where name = ?", [group]).fetchone() or (0,)
            assert before[0] <= newest
            if output.epoch > before[0]:
                for each in output.committables:
                    for value in json.loads(self._context.staged(each["stored"])):
                        ledger.execute("insert into rows values (?, ?)", [output.epoch, json.dumps(value)])
                ledger.execute("insert or replace into done values (?, ?)", [group, output.epoch])
            ledger.execute("commit")


def connect(directory: Path) -> sqlite3.Connection:
    ledger = sqlite3.connect(directory / "ledger.db", timeout=60, isolation_level=None)
    ledger.execute("create table if not exists rows (epoch, value)")
    ledger.execute("create table if not exists done (name primary key, epoch)")
    return ledger


def ledger_rows(directory: Path) -> list[Any]:
    """All elements, in the order in which they were committed."""
    with connect(directory) as ledger:
        return [json.loads(value) for (value,) in ledger.execute("select value from rows order by rowid")]
