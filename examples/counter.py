"""A source that keeps its own position, and a count for each key: how many numbers ended in which digit.

    python examples/counter.py

The source is the smallest that is complete; fp.CounterSource is one to use.
"""

from collections.abc import Iterator
from typing import NamedTuple

import forkpoint as fp


class Counter(fp.Source):
    """0, 1, 2 … up to (without) ``stop``. This object is a description: it travels to the tasks and holds nothing."""

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
    """Lives on the driver. Its position is saved with every epoch, and is where the next start goes on."""

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
    """Lives in a task. Reading a range again gives the same numbers again."""

    def read(self, stretch: fp.SplitRange) -> Iterator[list[int]]:
        yield list(range(stretch.start, stretch.end))


class DigitCount(NamedTuple):
    digit: int
    numbers: int


def count_digits(number: int, count: int | None) -> tuple[DigitCount, int]:
    """The keyed count: what was counted before comes in, what is counted now goes out."""
    count = (count or 0) + 1
    return DigitCount(number % 10, count), count


def counts(env: fp.StreamExecutionEnvironment, stop: int = 1_000) -> fp.DataStream:
    env.set_max_epoch_rows(100)
    return (
        env.from_source(Counter(stop), fp.WatermarkStrategy.no_watermarks(), "counter").uid("counter")
        .key_by(lambda number: number % 10, int)
        .map_with_state(count_digits, int).uid("counts")
    )  # fmt: skip


if __name__ == "__main__":
    environment = fp.StreamExecutionEnvironment.get_execution_environment()
    counts(environment).filter(lambda each: each.numbers % 50 == 0).print().uid("out")
    environment.execute("counter")
