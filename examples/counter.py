"""A source with its own position, and a count for each key: how many numbers end in which digit.

    python examples/counter.py

This is the smallest complete source; for real use there is fp.CounterSource.
"""

from collections.abc import Iterator
from typing import NamedTuple

import forkpoint as fp


class Counter(fp.Source):
    """0, 1, 2 … below ``stop``. This object is a description: it is shipped to the tasks and holds no resources."""

    def __init__(self, stop: int) -> None:
        self.stop = stop

    @property
    def bounded(self) -> bool:
        return True

    def output_type(self) -> fp.TypeInformation:
        return fp.Types.LONG()

    def create_enumerator(self, position: dict[str, int] | None) -> "CounterEnumerator":
        return CounterEnumerator(0 if position is None else position["next"], self.stop)

    def create_reader(self) -> "CounterReader":
        return CounterReader()


class CounterEnumerator(fp.SplitEnumerator):
    """Runs on the driver. Its position is saved with every epoch, and the next start resumes there."""

    def __init__(self, offset: int, stop: int) -> None:
        self.offset = offset
        self.stop = stop

    def plan(self, max_rows: int, parallelism_hint: int = 2) -> list[fp.SplitRange]:
        start, self.offset = self.offset, min(self.offset + max_rows, self.stop)
        return [fp.SplitRange("counter", 0, start, self.offset, self.offset - start)] if self.offset > start else []

    @property
    def position(self) -> dict[str, int]:
        return {"next": self.offset}

    @property
    def finished(self) -> bool:
        return self.offset >= self.stop


class CounterReader(fp.SourceReader):
    """Runs in a task. Reading a range again gives the same numbers."""

    def read(self, stretch: fp.SplitRange) -> Iterator[list[int]]:
        yield list(range(stretch.start, stretch.end))


class DigitCount(NamedTuple):
    digit: int
    numbers: int


def count_digits(number: int, count: int | None) -> tuple[DigitCount, int]:
    """Takes the key's previous count, and returns the output and the new count."""
    count = (count or 0) + 1
    return DigitCount(number % 10, count), count


def counts(env: fp.StreamExecutionEnvironment, stop: int = 1_000) -> fp.DataStream:
    env.set_max_epoch_rows(100)
    return (
        env.from_source(Counter(stop), fp.WatermarkStrategy.no_watermarks(), "counter")
        .uid("counter")
        .key_by(lambda number: number % 10, int)
        .map_with_state(count_digits, int)
        .uid("counts")
    )


if __name__ == "__main__":
    environment = fp.StreamExecutionEnvironment.get_execution_environment()
    counts(environment).filter(lambda each: each.numbers % 50 == 0).print().uid("out")
    environment.execute("counter")
