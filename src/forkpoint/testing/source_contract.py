"""The contract of sources, as tests against a real system; for forkpoint's and third-party connectors."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import pyarrow as pa

from forkpoint.api.environment import StreamExecutionEnvironment
from forkpoint.api.launch import Launch
from forkpoint.connectors.files.sink import FileSink
from forkpoint.contract.source import (
    JSON,
    ReaderContext,
    Source,
    SourceBatch,
    SourceContext,
    SourceReader,
    SplitEnumerator,
    SplitRange,
)
from forkpoint.functions import WatermarkStrategy
from forkpoint.graph.options import JobOptions, RestoreOptions

PAUSE_S = 0.01
NUMBERS = 30  # produced by a test
ROWS = 7  # maximum per epoch


class SourceContract(ABC):
    """Subclass it as ``Test…``, and implement how to create a place in the system, fill it, and read it. Each test gets a new
    place. ``exactly_once``: False if elements that a dead driver read without a commit may come twice.

    The tests wait for the system without a timeout of their own.
    """

    exactly_once: ClassVar[bool] = True

    @abstractmethod
    def create(self) -> Any:
        """A new, empty topic, queue, stream, table, …"""

    @abstractmethod
    def produce(self, place: Any, numbers: Sequence[int]) -> None:
        """Durably put numbers into the place."""

    @abstractmethod
    def source(self, place: Any) -> Source[Any]:
        """An unbounded source that reads the place from its beginning."""

    @staticmethod
    @abstractmethod
    def number(element: Any) -> int:
        """The produced number of an element. Also runs in tasks."""

    def test_reads_everything_once_and_no_more_than_an_epoch_takes(self, tmp_path: Path) -> None:
        place = self.create()
        self.produce(place, range(NUMBERS))
        with _Driver(self, place, tmp_path) as driver:
            driver.read_until(NUMBERS)
            assert driver.epochs > 2
            driver.pause()
            self.produce(place, range(NUMBERS, NUMBERS + 5))
            driver.read_until(NUMBERS + 5)
            assert driver.numbers == Counter(range(NUMBERS + 5))

    def test_a_range_is_read_again_as_it_was(self, tmp_path: Path) -> None:
        """A retried task on another host must read the same elements, in any order of the ranges."""
        place = self.create()
        self.produce(place, range(NUMBERS))
        with _Driver(self, place, tmp_path) as driver:
            planned: list[SplitRange] = []
            first: list[list[int]] = []
            while not any(first):
                driver.pause()
                planned = driver.enumerator.plan(NUMBERS)
                first = [driver.read(each) for each in planned]
            assert [driver.read(each) for each in reversed(planned)][::-1] == first
            assert driver.read_together(planned) == first

    def test_every_driver_dies_at_another_step(self, tmp_path: Path) -> None:
        """Drivers die after they plan, read, commit and acknowledge an epoch."""
        place = self.create()
        self.produce(place, range(NUMBERS))
        numbers: Counter[int] = Counter()
        position, deaths = None, 0
        while not numbers.keys() >= set(range(NUMBERS)):
            with _Driver(self, place, tmp_path, position) as driver:
                while not driver.step(until=1 + deaths % 4):
                    driver.pause()
                position, deaths = driver.position, deaths + 1
                numbers += driver.numbers
        assert deaths > 4
        self._assert_all(numbers, NUMBERS)

    def test_an_older_driver_that_wakes_up_takes_nothing_from_a_newer_one(self, tmp_path: Path) -> None:
        place = self.create()
        self.produce(place, range(NUMBERS))
        with _Driver(self, place, tmp_path) as older:
            while not older.step():
                older.pause()
            position, numbers = older.position, older.numbers.copy()
            older.enumerator.plan(ROWS)  # may read elements, but never commits them
            with _Driver(self, place, tmp_path, position) as newer:
                for _ in range(5):  # a queue may wait until the older driver is gone
                    newer.step()
                    newer.pause()
                older.enumerator.plan(ROWS)
                older.enumerator.committed(position)
                older.enumerator.close()
                self.produce(place, range(NUMBERS, NUMBERS + 5))
                newer.read_until(NUMBERS + 5 - sum(numbers.values()))
                self._assert_all(numbers + newer.numbers, NUMBERS + 5)

    def test_a_job_is_stopped_with_a_savepoint_and_goes_on_at_another_parallelism(self, tmp_path: Path) -> None:
        place = self.create()
        self.produce(place, range(NUMBERS))
        savepoint = self._run(place, tmp_path, NUMBERS, 1, None)
        self.produce(place, range(NUMBERS, 2 * NUMBERS))
        self._run(place, tmp_path, 2 * NUMBERS, 3, savepoint)
        self._assert_all(_written(tmp_path), 2 * NUMBERS)

    def _run(self, place: Any, root: Path, count: int, parallelism: int, savepoint: str | None) -> str:
        env = StreamExecutionEnvironment(JobOptions(engine="local", state_root=str(root / "state"), max_epoch_rows=ROWS))
        env.set_parallelism(parallelism).enable_checkpointing(5)
        env.launch = Launch(restore=RestoreOptions(savepoint=savepoint))
        elements = env.from_source(self.source(place), WatermarkStrategy.no_watermarks(), "source").uid("source")
        numbers = elements.map(self.number, int).uid("numbers")
        numbers.sink_to(FileSink.text(str(root / "out"))).uid("out")
        job = env.execute_async("contract")
        done = job.get_job_execution_result()
        while len(_written(root)) < count and not done.done():
            time.sleep(PAUSE_S)
        return job.stop_with_savepoint().result()

    def _assert_all(self, numbers: Counter[int], count: int) -> None:
        assert numbers.keys() == set(range(count))
        assert not self.exactly_once or numbers == Counter(range(count))


class _Driver:
    """Uses a source like a job's driver and tasks. ``numbers`` and ``position``: as of the last committed epoch."""

    def __init__(self, contract: SourceContract, place: Any, root: Path, position: JSON = None) -> None:
        self._contract = contract
        self._source = contract.source(place).for_job(SourceContext("source", "contract", str(root)))
        self.enumerator: SplitEnumerator = self._source.create_enumerator(json_round_trip(position))
        self.position = position
        self.numbers: Counter[int] = Counter()
        self.epochs = 0

    def __enter__(self) -> _Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.enumerator.close()

    def read_until(self, count: int) -> None:
        while sum(self.numbers.values()) < count:
            if not self.step():
                self.pause()

    def pause(self) -> None:
        time.sleep(PAUSE_S)

    def step(self, until: int = 4) -> bool:
        """Run an epoch, or its first steps: 1 plan, 2 read, 3 commit, 4 acknowledge. Returns False without input."""
        planned = self.enumerator.plan(ROWS)
        if all(each.rows == 0 for each in planned):  # empty ranges announce splits
            return False
        position = json_round_trip(self.enumerator.position)
        if until < 2:
            return True
        read = [number for each in planned for number in self.read(each)]
        if until < 3:
            return True
        self.enumerator.confirm()
        self.numbers.update(read)
        self.position = position
        self.epochs += bool(read)
        if until == 4:
            self.enumerator.committed(position)
        return True

    def read(self, planned: SplitRange) -> list[int]:
        return [self._contract.number(element) for element in elements(self._source, planned)]

    def read_together(self, planned: Sequence[SplitRange]) -> list[list[int]]:
        return [list(map(self._contract.number, each)) for each in elements_together(self._source, planned)]


@contextmanager
def opened(source: Source[Any]) -> Iterator[SourceReader[Any]]:
    """A reader in a task that receives the source."""
    shipped: Source[Any] = cloudpickle.loads(cloudpickle.dumps(source))
    reader = shipped.create_reader()
    reader.open(ReaderContext("uid", 0))
    try:
        yield reader
    finally:
        reader.close()


def received(planned: SplitRange) -> SplitRange:
    """A range as a task receives it."""
    start, end, info = (json_round_trip(each) for each in (planned.start, planned.end, planned.info))
    return SplitRange(planned.split, planned.piece, start, end, planned.rows, info)


def batches(source: Source[Any], planned: SplitRange) -> list[SourceBatch[Any]]:
    """The batches of a range, as a task reads them."""
    with opened(source) as reader:
        return [run if isinstance(run, SourceBatch) else SourceBatch(run) for run in reader.read(received(planned))]


def elements(source: Source[Any], planned: SplitRange) -> list[Any]:
    """The elements of a range."""
    return [element for run in batches(source, planned) for element in _elements_of(source, run)]


def elements_together(source: Source[Any], planned: Sequence[SplitRange]) -> list[list[Any]]:
    """The elements of each range, read at once."""
    ranges = list(map(received, planned))
    found: list[list[Any]] = [[] for _ in ranges]
    with opened(source) as reader:
        for parts, run in reader.read_together(ranges):
            left = iter(_elements_of(source, run if isinstance(run, SourceBatch) else SourceBatch(run)))
            for each, size in parts:
                found[ranges.index(each)] += islice(left, size)
            assert next(left, None) is None, "the run has more elements than its ranges"
    return found


def _elements_of(source: Source[Any], run: SourceBatch[Any]) -> list[Any]:
    if not isinstance(run.elements, pa.RecordBatch):
        return run.elements
    type = source.output_type()
    assert type is not None, "columns need an output_type()"
    assert run.elements.schema.names == type.column_names
    return type.from_columns(run.elements.columns)


def json_round_trip(value: JSON) -> JSON:
    """Encodes and decodes a value, as for storage or for a task."""
    return json.loads(json.dumps(value))


def _written(root: Path) -> Counter[int]:
    return Counter(int(line) for file in (root / "out").rglob("part-*") for line in file.read_text().split())
