"""Runs Nexmark's queries, in the text of https://github.com/nexmark/nexmark, and compares their results with DuckDB's or Flink's.

    python benchmarks/nexmark/run.py …/nexmark-flink/src/main/resources/queries [--events 100000] [--flink] [q0 q5 …]

The texts are unchanged but for connectors: the source is files of generated events, the side input of q13 a table of SQLite. The
Java function of q14 is one in Python. Each INSERT is bound with its table, and its query is run. ``--flink`` compares with Flink
2.3 in Java, which runs the same texts over the same events, row by row; but for two that it cannot answer.
"""

from __future__ import annotations

import argparse
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from answers import ANSWERS, answered
from events import write

import forkpoint as fp
from queries import QUERIES, program

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "tests"))
from servers.jars import compiled, jars, java  # noqa: E402

Rows = Counter[tuple[str, ...]]
NOT_ON_FLINK = {
    "q9": "Flink 2.3 plans the ranking as one that only adds rows: all winners so far remain, 2,880 rows for 1,952 auctions",
    "q12": "its windows are those of the clock",
    "q13": "there is no connector for SQLite",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="of the published texts")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--flink", action="store_true")
    parser.add_argument("queries", nargs="*", default=QUERIES)
    given = parser.parse_intermixed_args()
    warnings.filterwarnings("ignore", message="no state root is set")
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        tables = write(home / "events", given.events)
        _write_side_input(home / "side.db")
        for query in given.queries or QUERIES:
            outcome, detail = _outcome(query, given.directory, home, tables, flink=given.flink)
            outcomes[outcome] += 1
            print(f"{query:4} {outcome:8} {detail}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()))


def _outcome(query: str, texts: Path, home: Path, tables: dict[str, list[dict[str, Any]]], *, flink: bool) -> tuple[str, str]:
    started = time.monotonic()
    try:
        result = _run(query, texts, home)
    except fp.ConfigError as error:
        return "refused", str(error).splitlines()[0]
    seconds = f"{result.total():,} rows, {time.monotonic() - started:.1f} s"
    if query == "q12":
        result = _summed(result)
    if query not in ANSWERS:
        return "runs", seconds
    if flink and query not in NOT_ON_FLINK:
        wanted = _on_flink(query, texts, home)
    else:
        wanted = Counter(tuple(map(_text, row)) for row in answered(query, tables))
    if result == wanted:
        return "equal", seconds
    more, fewer = result - wanted, wanted - result
    return "differs", f"{seconds}; {len(more)} rows too many, {len(fewer)} missing: {[*more][:1]} {[*fewer][:1]}"


def _run(query: str, texts: Path, home: Path) -> Rows:
    """The rows of a query's result when its input has ended."""
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_parallelism(2)
    t_env = fp.StreamTableEnvironment.create(env)
    t_env.create_temporary_function("count_char", fp.udf(lambda text, of: text.count(of), result_type="BIGINT"))
    source = f"'connector' = 'filesystem', 'format' = 'json', 'path' = '{home}/events'"
    found = program(query, texts, source, f"'connector' = 'jdbc', 'url' = 'jdbc:sqlite:{home}/side.db', 'table-name' = 'side'")
    for statement in found.definitions:
        t_env.execute_sql(statement)
    rows: Rows = Counter()
    for select in found.queries:
        for row in t_env.execute_sql(select).collect():
            rows[tuple(map(_text, row))] += 1 if row.get_row_kind() in (fp.RowKind.INSERT, fp.RowKind.UPDATE_AFTER) else -1
    assert min(rows.values(), default=0) >= 0
    return +rows


def _on_flink(query: str, texts: Path, home: Path) -> Rows:
    libraries = jars("flink-sql", HERE.parent / "sql" / "flink.xml")
    classes = compiled(HERE / "FlinkResult.java", f"{libraries}/*")
    whole = home / "events.json"  # in one file: Flink reads files in any order
    whole.write_text("".join(file.read_text() for file in sorted((home / "events").iterdir())))
    source = f"'connector' = 'filesystem', 'format' = 'json', 'json.timestamp-format.standard' = 'ISO-8601', 'path' = '{whole}'"
    found = program(query, texts, source, "'connector' = 'blackhole'")
    function = "CREATE FUNCTION count_char AS 'FlinkResult$CountChar'"
    script = home / f"{query}.sql"
    quoted = [re.sub(r"\.dateTime\b", ".`dateTime`", each) for each in found.queries]  # for Flink 2.3 it is a keyword: q23
    script.write_text("\0".join([function, *found.definitions, *quoted]))
    opens = [f"--add-opens=java.base/java.{each}=ALL-UNNAMED" for each in ("util", "lang", "time")]
    command = [java(), *opens, "-Xmx3g", "-Dfile.encoding=UTF-8", "-cp", f"{classes}:{libraries}/*", "FlinkResult", str(script)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{query} on Flink: {done.stderr[-3000:]}")
    rows: Rows = Counter()
    for line in done.stdout.splitlines():
        count, *row = line.split("\x1f")
        rows[tuple(row)] += int(count)
    return +rows


def _summed(windows: Rows) -> Rows:
    """The bids of each bidder in all windows."""
    bids: Counter[str] = Counter()
    for bidder, count, *_ in windows.elements():
        bids[bidder] += int(count)
    return Counter((bidder, str(count)) for bidder, count in bids.items())


def _text(value: Any) -> str:
    """A value as the Java program writes it, whatever type of number it is."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    return "null" if value is None else str(value)


def _write_side_input(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE side (key INTEGER, value TEXT)")
        connection.executemany("INSERT INTO side VALUES (?, ?)", [(n, f"value {n}") for n in range(1200)])


if __name__ == "__main__":
    main()
