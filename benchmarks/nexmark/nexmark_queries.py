"""Nexmark's published queries as statements: their texts, unchanged but for the connectors and the Java function of q14."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

QUERIES = [f"q{n}" for n in range(24)]


@dataclass(frozen=True)
class Program:
    """What makes a query's tables, and its INSERT statements."""

    definitions: list[str]
    inserts: list[str]

    @property
    def queries(self) -> list[str]:
        """Of the INSERT statements."""
        return [re.sub(r"INSERT INTO \w+\s*", "", each, count=1) for each in self.inserts]


def source(count: int, per_second: int, group: int = 1, per_epoch: int = 1_000_000) -> str:
    """The options of the table of events: how many, as of ``events``, and the most for an epoch of forkpoint."""
    options = {"connector": "nexmark", "events.num": count, "first-event.rate": per_second, "out-of-order.group-size": group}
    options["events.per-epoch"] = per_epoch
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())


def program(query: str, texts: Path, source: str, side: str) -> Program:
    """``source``, ``side``: the options of the table of events, and of the side input of q13."""
    events = re.sub(r"(?s)\) WITH \(.*", f") WITH ({source})", _text(texts, "ddl_gen"))
    views = _text(texts, "ddl_views").replace("${NEXMARK_TABLE}", "datagen")
    text = re.sub(r"(?s)'connector\.type' = .*?\)", f"{side})", _text(texts, query))
    text = re.sub(r"CREATE FUNCTION count_char AS '.*?';", "", text)
    statements = [statement for part in f"{events};{views};{text}".split(";") if (statement := part.strip())]
    inserts = [each for each in statements if each.startswith("INSERT")]
    return Program([each for each in statements if each not in inserts], inserts)


def write_side_input(directory: Path) -> None:
    """Of q13: as a table of SQLite for forkpoint, and as the published file for Flink."""
    rows = [(n, f"value {n}") for n in range(10_000) if n % 10 != 7]
    with sqlite3.connect(directory / "side_input.db") as connection:
        connection.execute("CREATE TABLE side_input (key INTEGER PRIMARY KEY, value TEXT)")
        connection.executemany("INSERT INTO side_input VALUES (?, ?)", rows)
    (directory / "side_input.txt").write_text("".join(f"{key},{value}\n" for key, value in rows))


def side_input(directory: Path, *, on_flink: bool) -> str:
    """Its options. Flink reads all of the file at the start, so forkpoint keeps what it has found, too."""
    if on_flink:
        return f"'connector.type' = 'filesystem', 'connector.path' = 'file://{directory}/side_input.txt', 'format.type' = 'csv'"
    place = f"'url' = 'jdbc:sqlite:{directory}/side_input.db', 'table-name' = 'side_input'"
    return f"'connector' = 'jdbc', {place}, 'lookup.cache' = 'PARTIAL'"


def _text(texts: Path, name: str) -> str:
    return re.sub(r"--.*", "", (texts / f"{name}.sql").read_text())
