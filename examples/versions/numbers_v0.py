"""Version 0: the sum of all numbers so far, by their last digit.

forkpoint run -d examples/versions/numbers_v0.py -- OUTPUT
"""

import sys
from datetime import timedelta
from typing import NamedTuple

import forkpoint as fp


class Sum(NamedTuple):
    digit: int
    sum: int


def add(number: int, total: int | None) -> tuple[Sum, int]:
    total = (total or 0) + number
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
    env.execute("v0")
