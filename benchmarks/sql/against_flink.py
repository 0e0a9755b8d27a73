"""SQL queries on forkpoint and on Flink 2.3 in Java, in turn on the same machine.

    python benchmarks/sql/against_flink.py [--only NAME …] [--rounds N] [--sides NAME …] [--parallelism N]

Both generate the rows themselves (datagen) and drop the result (blackhole), from the same file. A side's throughput is the
difference in rows over that in time between a long and a short run, so that starts don't count. Flink has mini-batches on. The
ratios are to Flink's heap state; the median of the rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOME = HERE.parents[1]
sys.path.append(str(HOME / "tests"))
from servers.jars import jars, java  # noqa: E402

_OPENS = [f"--add-opens=java.base/java.{each}=ALL-UNNAMED" for each in ("util", "lang", "time")]
FORKPOINT = {"spark": "spark", "local": "local"}
FLINK = {"flink-heap": "hashmap", "flink-rocksdb": "rocksdb"}
TABLE = """CREATE TABLE {name} ({columns})
WITH ('connector' = 'datagen', 'number-of-rows' = '{rows}', 'rows-per-second' = '100000000', {fields});
"""


def table(name: str, rows: int, keys: int, *, timed: bool = False) -> str:
    columns = ["k INT", "v BIGINT"]
    fields = [
        "'fields.k.kind' = 'random', 'fields.k.min' = '0'",
        f"'fields.k.max' = '{keys - 1}'",
        "'fields.v.kind' = 'random', 'fields.v.min' = '0', 'fields.v.max' = '1000'",
    ]
    if timed:
        columns += ["n BIGINT", "ts AS TO_TIMESTAMP_LTZ(n / 100, 3)", "WATERMARK FOR ts AS ts - INTERVAL '1' SECOND"]
        fields += ["'fields.n.kind' = 'sequence', 'fields.n.start' = '0'", f"'fields.n.end' = '{rows - 1}'"]
    return TABLE.format(name=name, columns=", ".join(columns), rows=rows, fields=", ".join(fields))


def aggregate(rows: int) -> str:
    sink = "CREATE TABLE results (k INT, n BIGINT, s BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'blackhole');\n"
    return table("a", rows, 100_000) + sink + "INSERT INTO results SELECT k, COUNT(*), SUM(v) FROM a GROUP BY k;\n"


def join(rows: int) -> str:
    sink = "CREATE TABLE results (k INT, v BIGINT, w BIGINT) WITH ('connector' = 'blackhole');\n"
    both = table("a", rows // 2, 1_000_000) + table("b", rows // 2, 1_000_000)
    return both + sink + "INSERT INTO results SELECT a.k, a.v, b.v FROM a JOIN b ON a.k = b.k;\n"


def windows(rows: int) -> str:
    sink = "CREATE TABLE results (s TIMESTAMP(3), k INT, n BIGINT, v BIGINT) WITH ('connector' = 'blackhole');\n"
    query = (
        "SELECT window_start, k, COUNT(*), SUM(v) FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
        "GROUP BY window_start, window_end, k"
    )
    return table("a", rows, 10_000, timed=True) + sink + f"INSERT INTO results {query};\n"


QUERIES = {"aggregate": (aggregate, 8_000_000), "join": (join, 4_000_000), "windows": (windows, 8_000_000)}
LONGER = {"aggregate": 4, "windows": 2}  # for forkpoint: a run must take longer than starts differ


def seconds(side: str, script: str, parallelism: int) -> float:
    with tempfile.TemporaryDirectory(prefix="sql-bench-") as directory:
        file = Path(directory) / "job.sql"
        environment = {**os.environ, "SPARK_MASTER": f"local[{parallelism}]"}
        if side in FLINK:
            file.write_text(script)
            libraries = jars("flink-sql", HERE / "flink.xml")
            command = [java(), *_OPENS, "-Xmx2g", "-cp", f"{_compiled(libraries)}:{libraries}/*", "FlinkSql"]
            command += [str(file), FLINK[side], str(parallelism)]
        else:
            file.write_text(
                f"SET 'execution.checkpointing.interval' = '100 ms';\nSET 'execution.engine' = '{FORKPOINT[side]}';\n{script}"
            )
            command = [sys.executable, "-m", "forkpoint.cli", "--state-root", f"{directory}/state", "run"]
            command += ["-p", str(parallelism), str(file)]
        began = time.monotonic()
        done = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{side}: {done.stdout[-2000:]}\n{done.stderr[-4000:]}")
        return time.monotonic() - began


def _compiled(libraries: Path) -> Path:
    classes = HOME / "build" / "flink-sql" / "classes"
    if not (classes / "FlinkSql.class").exists():
        command = [java("javac"), "-nowarn", "-cp", f"{libraries}/*", "-d", str(classes), str(HERE / "FlinkSql.java")]
        subprocess.run(command, check=True)
    return classes


def rows_per_second(side: str, query: str, parallelism: int) -> float:
    script, rows = QUERIES[query]
    rows = rows // 4 if side == "flink-rocksdb" else rows * LONGER.get(query, 1) if side in FORKPOINT else rows
    short, long = (seconds(side, script(count), parallelism) for count in (rows // 4, rows))
    return rows * 3 / 4 / (long - short)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", nargs="+", choices=QUERIES, default=list(QUERIES))
    arguments.add_argument("--sides", nargs="+", choices=[*FORKPOINT, *FLINK], default=[*FORKPOINT, *FLINK])
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--parallelism", type=int, default=2)
    given = arguments.parse_args()
    print(f"{'':12}{'':16}{'rows/s':>12}{'× flink-heap':>14}")
    for query in given.only:
        found: dict[str, list[float]] = {side: [] for side in given.sides}
        for _ in range(given.rounds):
            for side, values in found.items():
                values.append(rows_per_second(side, query, given.parallelism))
        heap = found.get("flink-heap")
        for side, values in found.items():
            ratio = "" if heap is None else f"{statistics.median(a / b for a, b in zip(values, heap, strict=True)):14.2f}"
            print(f"{query:12}{side:16}{statistics.median(values):12,.0f}{ratio}", flush=True)


if __name__ == "__main__":
    main()
