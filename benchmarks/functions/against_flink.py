"""Functions with state and windows on forkpoint and on Flink 2.3 in Java, in turn on the same machine.

    python benchmarks/functions/against_flink.py [--only NAME …] [--rounds N] [--sides NAME …] [--parallelism N]

Both make the events from a sequence of numbers, with 100,000 keys: ``process`` counts and adds up by key in a ValueState of a
KeyedProcessFunction and emits both for each event, ``map_with_state`` does so in a function of event and state (on Flink, that is
the job of ``process``), ``windows`` counts and adds up in windows of 60 s, of 60 events for each key. Flink has checkpoints each
second, forkpoint epochs of 2.5 million events. A side's throughput is the difference in events over that in time between a long
and a short run, so that starts don't count. The ratios are to Flink's heap state; the median of the rounds.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
import flink_in_turn  # noqa: E402
from flink_in_turn import FLINK  # noqa: E402

EVENTS = dict.fromkeys(("process", "map_with_state", "windows"), 40_000_000)


def seconds(side: str, job: str, events: int, parallelism: int) -> float:
    with tempfile.TemporaryDirectory(prefix="functions-bench-") as name:
        directory = Path(name)
        if side in FLINK:
            of_job = (job, str(events), FLINK[side], str(parallelism), directory.as_uri())
            command = flink_in_turn.java_command("flink-functions", HERE / "FlinkFunctions.java", *of_job)
        else:
            program = (str(HERE / "program.py"), "--", job, str(events))
            command = flink_in_turn.forkpoint_command(directory, parallelism, "--engine", side, *program)
        return flink_in_turn.seconds(side, command, directory, parallelism)


def events_per_second(side: str, job: str, parallelism: int) -> float:
    events = EVENTS[job] // 10 if side == "flink-rocksdb" else EVENTS[job]
    short, long = (seconds(side, job, count, parallelism) for count in (events // 4, events))
    return events * 3 / 4 / (long - short)


if __name__ == "__main__":
    sides = ["spark", "local", *FLINK]
    flink_in_turn.compare(__doc__, "function", "events/s", EVENTS, sides, ["spark", "local", "flink-heap"], events_per_second)
