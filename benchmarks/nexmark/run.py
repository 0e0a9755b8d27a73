"""Runs Nexmark's queries, in the text of https://github.com/nexmark/nexmark, and compares their results with DuckDB's.

    python benchmarks/nexmark/run.py …/nexmark-flink/src/main/resources/queries [--events 100000] [q0 q5 …]

The texts are unchanged but for connectors: the source is files of generated events, the side input of q13 a table of SQLite. The
Java function of q14 is one in Python. Each INSERT is bound with its table, and its query is run.
"""

from __future__ import annotations

import argparse
import re
import sqlite3
import tempfile
import time
import warnings
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

from answers import ANSWERS, answered
from events import write

import forkpoint as fp

QUERIES = [f"q{n}" for n in range(24)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="of the published texts")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("queries", nargs="*", default=QUERIES)
    given = parser.parse_intermixed_args()
    warnings.filterwarnings("ignore", message="no state root is set")
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        tables = write(home / "events", given.events)
        _write_side_input(home / "side.db")
        for query in given.queries or QUERIES:
            outcome, detail = _outcome(query, given.directory, home, tables)
            outcomes[outcome] += 1
            print(f"{query:4} {outcome:8} {detail}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()))


def _outcome(query: str, texts: Path, home: Path, tables: dict[str, list[dict[str, Any]]]) -> tuple[str, str]:
    started = time.monotonic()
    try:
        result = _run(query, texts, home)
    except fp.ConfigError as error:
        return "refused", str(error).splitlines()[0]
    seconds = f"{len(list(result.elements())):,} rows, {time.monotonic() - started:.1f} s"
    if query == "q12":  # which windows its rows are in depends on when it runs
        result = _summed(result)
    if query not in ANSWERS:
        return "runs", seconds
    wanted = Counter(tuple(map(_plain, row)) for row in answered(query, tables))
    if result == wanted:
        return "equal", seconds
    more, fewer = result - wanted, wanted - result
    return "differs", f"{seconds}; {len(more)} rows too many, {len(fewer)} missing: {[*more][:1]} {[*fewer][:1]}"


def _run(query: str, texts: Path, home: Path) -> Counter[Any]:
    """The rows of a query's result when its input has ended."""
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_parallelism(2)
    t_env = fp.StreamTableEnvironment.create(env)
    t_env.create_temporary_function("count_char", fp.udf(lambda text, of: text.count(of), result_type="BIGINT"))
    source = re.sub(
        r"\) WITH \(.*",
        f") WITH ('connector' = 'filesystem', 'format' = 'json', 'path' = '{home}/events')",
        _text(texts, "ddl_gen"),
        flags=re.DOTALL,
    )
    views = _text(texts, "ddl_views").replace("${NEXMARK_TABLE}", "datagen")
    text = re.sub(
        r"(?s)'connector\.type' = .*?\)",
        f"'connector' = 'jdbc', 'url' = 'jdbc:sqlite:{home}/side.db', 'table-name' = 'side')",
        _text(texts, query),
    )
    text = re.sub(r"CREATE FUNCTION count_char AS '.*?';", "", text)
    rows: Counter[Any] = Counter()
    for statement in _statements(f"{source};{views};{text}"):
        if not statement.startswith("INSERT"):
            t_env.execute_sql(statement)
            continue
        t_env.execute_sql(f"EXPLAIN {statement}")
        for row in t_env.execute_sql(re.sub(r"INSERT INTO \w+", "", statement, count=1)).collect():
            rows[tuple(map(_plain, row))] += 1 if row.get_row_kind() in (fp.RowKind.INSERT, fp.RowKind.UPDATE_AFTER) else -1
    assert min(rows.values(), default=0) >= 0
    return +rows


def _summed(windows: Counter[Any]) -> Counter[Any]:
    """The bids of each bidder in all windows."""
    bids: Counter[Any] = Counter()
    for bidder, count, *_ in windows.elements():
        bids[bidder] += count
    return Counter(bids.items())


def _text(texts: Path, name: str) -> str:
    return re.sub(r"--.*", "", (texts / f"{name}.sql").read_text())


def _statements(text: str) -> list[str]:
    return [statement for part in text.split(";") if (statement := part.strip())]


def _plain(value: Any) -> Any:
    """A value as DuckDB has it: numbers do not depend on their type."""
    return value.normalize() if isinstance(value, Decimal) else value


def _write_side_input(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE side (key INTEGER, value TEXT)")
        connection.executemany("INSERT INTO side VALUES (?, ?)", [(n, f"value {n}") for n in range(1200)])


if __name__ == "__main__":
    main()
