"""Patterns on forkpoint and on Flink 2.3's CEP in Java, in turn on the same machine.

    python benchmarks/patterns/against_flink.py [--only NAME …] [--rounds N] [--sides NAME …] [--parallelism N]

Both make the events from a sequence of numbers: 100,000 keys, each with an event a second of event time. ``stages``: three
stages, which 1 % of the events begin, within 10 s. ``loop``: one or more, then another, within 5 s. A side's throughput is the
difference in events over that in time between a long and a short run, so that starts don't count. The ratios are to Flink's heap
state; the median of the rounds.

With RocksDB (``--sides flink-rocksdb``) Flink takes the longer for an event the more there are, as it seeks past what it has
removed: 18,000 events/s of the first 75,000. So that side is only measured on request, with few events.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
import flink_in_turn  # noqa: E402
from flink_in_turn import FLINK  # noqa: E402

FORKPOINT = {"spark": ("spark", "functions"), "spark-columns": ("spark", "columns"), "local": ("local", "functions")}
EVENTS = {"stages": 6_000_000, "loop": 2_000_000}


def seconds(side: str, pattern: str, events: int, parallelism: int) -> float:
    with tempfile.TemporaryDirectory(prefix="pattern-bench-") as name:
        directory = Path(name)
        if side in FLINK:
            of_job = (pattern, str(events), FLINK[side], str(parallelism), directory.as_uri())
            command = flink_in_turn.java_command("flink-patterns", HERE / "FlinkPatterns.java", *of_job)
        else:
            engine, conditions = FORKPOINT[side]
            program = (str(HERE / "program.py"), "--", pattern, str(events), conditions)
            command = flink_in_turn.forkpoint_command(directory, parallelism, "--engine", engine, *program)
        return flink_in_turn.seconds(side, command, directory, parallelism)


def events_per_second(side: str, pattern: str, parallelism: int) -> float:
    events = EVENTS[pattern] // 80 if side == "flink-rocksdb" else EVENTS[pattern]
    short, long = (seconds(side, pattern, count, parallelism) for count in (events // 4, events))
    return events * 3 / 4 / (long - short)


if __name__ == "__main__":
    sides = [*FORKPOINT, *FLINK]
    flink_in_turn.compare(__doc__, "pattern", "events/s", EVENTS, sides, [*FORKPOINT, "flink-heap"], events_per_second)
