"""Version 1: odd numbers count twice from here on; the sums of version 0 are kept.

forkpoint fork v0t1 examples/versions/numbers_v1.py --name v1 -d -- OUTPUT
"""

import sys
from datetime import timedelta
from typing import NamedTuple

import forkpoint as fp


class Sum(NamedTuple):
    digit: int
    sum: int


def add(number: int, total: int | None) -> tuple[Sum, int]:
    total = (total or 0) + number * (1 + number % 2)
    return Sum(number % 10, total), total


def build(env: fp.StreamExecutionEnvironment, output: str) -> None:
    env.enable_checkpointing(timedelta(milliseconds=100))
    # One number per second of event time.
    times = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda number, _: number * 1000)
    numbers = env.from_source(fp.CounterSource(per_epoch=10), times, "numbers").uid("numbers")
    sums = numbers.key_by(lambda number: number % 10, int).map_with_state(add, int).uid("sums")
    sums.sink_to(fp.FileSink.json(f"{output}/{{job}}")).uid("out")


if __name__ == "__main__":
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    build(env, sys.argv[1])
    env.execute("v1")
