"""SQL queries on forkpoint and on Flink 2.3 in Java, in turn on the same machine.

    python benchmarks/sql/against_flink.py [--only NAME …] [--rounds N] [--sides NAME …] [--parallelism N]

Both generate the rows themselves (datagen) and drop the result (blackhole), from the same file. A side's throughput is the
difference in rows over that in time between a long and a short run, so that starts don't count. Flink has mini-batches on. The
ratios are to Flink's heap state; the median of the rounds.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
import flink_in_turn  # noqa: E402
from flink_in_turn import FLINK  # noqa: E402

FORKPOINT = {"spark": "spark", "local": "local"}
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
    with tempfile.TemporaryDirectory(prefix="sql-bench-") as name:
        directory = Path(name)
        file = directory / "job.sql"
        if side in FLINK:
            file.write_text(script)
            of_job = (str(file), FLINK[side], str(parallelism))
            command = flink_in_turn.java_command("flink-sql", HERE / "FlinkSql.java", *of_job)
        else:
            file.write_text(
                f"SET 'execution.checkpointing.interval' = '100 ms';\nSET 'execution.engine' = '{FORKPOINT[side]}';\n{script}"
            )
            command = flink_in_turn.forkpoint_command(directory, parallelism, str(file))
        return flink_in_turn.seconds(side, command, directory, parallelism)


def rows_per_second(side: str, query: str, parallelism: int) -> float:
    script, rows = QUERIES[query]
    rows = rows // 4 if side == "flink-rocksdb" else rows * LONGER.get(query, 1) if side in FORKPOINT else rows
    short, long = (seconds(side, script(count), parallelism) for count in (rows // 4, rows))
    return rows * 3 / 4 / (long - short)


if __name__ == "__main__":
    sides = [*FORKPOINT, *FLINK]
    flink_in_turn.compare(__doc__, "query", "rows/s", QUERIES, sides, sides, rows_per_second)
