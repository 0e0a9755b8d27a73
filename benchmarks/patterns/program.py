"""The job of FlinkPatterns.java: program.py PATTERN EVENTS CONDITIONS, which are functions or over columns."""

import sys
from datetime import timedelta
from typing import Any, NamedTuple

import forkpoint as fp
from forkpoint import col


class Event(NamedTuple):
    key: int
    value: int
    at: int


def event(number: int) -> Event:
    return Event(number * 7919 % 100_000, (number * 2654435761 >> 7) % 1000, number // 100)


def between(low: int, high: int) -> Any:
    if COLUMNS:
        return (col("value") >= low) & (col("value") < high)
    return lambda event: low <= event.value < high


COLUMNS = sys.argv[3:] == ["columns"]
PATTERNS = {
    "stages": fp.Pattern.begin("a")
    .where(between(0, 10))
    .followed_by("b")
    .where(between(100, 300))
    .followed_by("c")
    .where(between(900, 1000))
    .within(timedelta(seconds=10)),
    "loop": fp.Pattern.begin("a")
    .where(between(0, 300))
    .one_or_more()
    .followed_by("c")
    .where(between(900, 1000))
    .within(timedelta(seconds=5)),
}


def matches(numbers: fp.DataStream[int], pattern: str) -> fp.DataStream[int]:
    """The matches in the events of these numbers."""
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda event, _: event.at)
    events = numbers.map(event).assign_timestamps_and_watermarks(strategy).uid("times")
    found = fp.CEP.pattern(events.key_by("key"), PATTERNS[pattern])
    return found.select(lambda match: match["c"][0].at - match["a"][0].at, output_type=int).uid("matches")


if __name__ == "__main__":
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    source = fp.NumberSequenceSource(0, int(sys.argv[2]) - 1)
    numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    matches(numbers, sys.argv[1]).sink_to(fp.DiscardSink()).uid("results")
    env.execute("patterns")
