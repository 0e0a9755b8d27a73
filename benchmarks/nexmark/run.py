"""Runs Nexmark's queries, in the text of https://github.com/nexmark/nexmark, and compares their results with DuckDB's or Flink's.

    python benchmarks/nexmark/run.py …/nexmark-flink/src/main/resources/queries [--events 100000] [--flink] [q0 q5 …]

The texts are unchanged but for connectors: the source makes the events, the side input of q13 is a table of SQLite, on Flink the
published file. The Java function of q14 is one in Python. Each INSERT is bound with its table, and its query is run. ``--flink``
compares with Flink 2.3 in Java, which runs the same texts over the same events, row by row; but for those that it cannot answer.

``--datastream`` runs the programs of ``stream_programs.py`` in place of the texts, and compares them with the same; ``--pyflink``
with PyFlink's programs, of which q11 loses bids where a late one makes two sessions one.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from answers import ANSWERS, answered
from forkpoint_side import table_environment
from nexmark_events import tables
from nexmark_queries import QUERIES, Program, program, side_input, source, write_side_input
from sides import FLINK, ON_PYFLINK, Side, running
from stream_programs import PROGRAMS, streamed

import forkpoint as fp

PER_SECOND, GROUP = 25, 50
"""Each event has a time of its own, and is out of order by up to two seconds."""
Rows = Counter[tuple[str, ...]]
TIMES = {"dateTime", "stime", "starttime", "endtime"}
"""Fields of the programs' results, in milliseconds."""
NOT_ON_FLINK = {
    "q9": "Flink 2.3 plans the ranking as one that only adds rows: all winners so far remain",
    "q12": "its windows are those of the clock",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="of the published texts")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--datastream", action="store_true")
    reference = parser.add_mutually_exclusive_group()
    reference.add_argument("--flink", dest="side", action="store_const", const="flink-heap")
    reference.add_argument("--pyflink", dest="side", action="store_const", const="pyflink")
    parser.add_argument("queries", nargs="*")
    given = parser.parse_intermixed_args()
    warnings.filterwarnings("ignore", message="no state root is set")
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        home = Path(directory)
        flink = stack.enter_context(running([given.side], 1, home))[0] if given.side else None
        of_events = tables(given.events, PER_SECOND, GROUP)
        write_side_input(home)
        for query in given.queries or (PROGRAMS if given.datastream else QUERIES):
            of_query, on_flink = (
                program(query, given.directory, source(given.events, PER_SECOND, GROUP), side_input(home, on_flink=on_flink))
                for on_flink in (False, True)
            )
            runs = partial(_streamed, query, given.events) if given.datastream else partial(_run, of_query)
            outcome, detail = _outcome(query, runs, on_flink, of_events, flink)
            outcomes[outcome] += 1
            print(f"{query:4} {outcome:8} {detail}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()))


def _outcome(
    query: str, runs: Callable[[], Rows], on_flink: Program, tables: dict[str, pa.Table], flink: Side | None
) -> tuple[str, str]:
    started = time.monotonic()
    try:
        result = runs()
    except fp.ConfigError as error:
        return "refused", str(error).splitlines()[0]
    seconds = f"{result.total():,} rows, {time.monotonic() - started:.1f} s"
    if query == "q12":
        result = _summed(result)
    if flink is not None and query not in NOT_ON_FLINK and (flink.name != "pyflink" or query in ON_PYFLINK):
        wanted = _on_flink(query, on_flink, flink)
    elif query in ANSWERS:
        wanted = Counter(tuple(map(_text, row)) for row in answered(query, tables))
    else:
        return "runs", seconds
    if result == wanted:
        return "equal", seconds
    more, fewer = result - wanted, wanted - result
    return "differs", f"{seconds}; {len(more)} rows too many, {len(fewer)} missing: {[*more][:1]} {[*fewer][:1]}"


def _run(of_query: Program) -> Rows:
    """The rows of a query's result when its input has ended."""
    t_env = table_environment(_environment())
    for statement in of_query.definitions:
        t_env.execute_sql(statement)
    rows: Rows = Counter()
    for select in of_query.queries:
        for row in t_env.execute_sql(select).collect():
            rows[tuple(map(_text, row))] += 1 if row.get_row_kind() in (fp.RowKind.INSERT, fp.RowKind.UPDATE_AFTER) else -1
    assert min(rows.values(), default=0) >= 0
    return +rows


def _streamed(query: str, events: int) -> Rows:
    """The rows of a program's result; of q4, the last of each category."""
    rows = list(streamed(query, _environment(), events, PER_SECOND, GROUP).execute_and_collect())
    if query == "q4":
        rows = list({row.category: row for row in rows}.values())
    named = (row._asdict().items() for row in rows)
    return Counter(tuple(_text(_time(value) if name in TIMES else value) for name, value in row) for row in named)


def _environment() -> fp.StreamExecutionEnvironment:
    return fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"}).set_parallelism(2)


def _on_flink(query: str, of_query: Program, flink: Side) -> Rows:
    rows: Rows = Counter()
    for select in of_query.queries:
        # For Flink 2.3 it is a keyword: q23.
        quoted = re.sub(r"\.dateTime\b", ".`dateTime`", select)
        for line in flink.ask([*of_query.definitions, quoted if flink.name in FLINK else f"COLLECT {query}"]):
            count, *row = line.split("\x1f")
            rows[tuple(row)] += int(count)
    return +rows


def _summed(windows: Rows) -> Rows:
    """The bids of each bidder in all windows."""
    bids: Counter[str] = Counter()
    for bidder, count, *_ in windows.elements():
        bids[bidder] += int(count)
    return Counter((bidder, str(count)) for bidder, count in bids.items())


def _time(ms: int) -> datetime:
    return datetime(1970, 1, 1) + timedelta(milliseconds=ms)  # noqa: DTZ001 (TIMESTAMP has no time zone)


def _text(value: Any) -> str:
    """A value as the Java program writes it, whatever type of number it is."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    return "null" if value is None else str(value)


if __name__ == "__main__":
    main()
