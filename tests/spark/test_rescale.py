"""Fixed cases on Spark of what the property tests show on the local engine: run through ≡ run, savepoint, restore at
another parallelism, run on; and the same results as the local engine, key by key and in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.driver.run.job_driver import JobDriver
from forkpoint.graph.options import RestoreOptions
from forkpoint.types import type_of

pytestmark = pytest.mark.spark


class Event(NamedTuple):
    key: str
    value: int
    time: int


class Everything(fp.KeyedProcessFunction):
    """All five kinds of state, timers that are registered, moved and late, and state that depends on arrival order."""

    last = fp.ValueStateDescriptor("last", int)
    recent = fp.ListStateDescriptor("recent", int)
    seen = fp.MapStateDescriptor("seen", int, int)
    total = fp.ReducingStateDescriptor("total", lambda a, b: a + b, int)

    def process_element(self, e: Event, ctx: fp.KeyedProcessFunction.Context) -> Iterator[tuple[Any, ...]]:
        before = self.last.value()
        self.last.update(e.value)
        self.recent.add(e.value)
        self.seen.put(e.value % 5, (self.seen.get(e.value % 5) or 0) + 1)
        self.total.add(e.value)
        timers = ctx.timer_service()
        timers.register_event_time_timer(e.time + 40 + e.value % 30)
        if e.value % 4 == 0:
            timers.delete_event_time_timer(e.time + 40 + (e.value - 1) % 30)
        late = e.time <= timers.current_watermark()
        yield e.key, "element", before, self.total.get(), sorted(self.seen.items()), late, ctx.timestamp()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[tuple[Any, ...]]:
        recent = list(self.recent.get())
        self.recent.clear()
        yield ctx.get_current_key(), "timer", recent, self.total.get(), timestamp


EVENTS = [Event(f"k{(i * 7) % 11}", i, i * 10 - (i * 37) % 60) for i in range(400)]


class StopAfter:
    """Asks for a stop with savepoint once some epochs have been published."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs
        self.driver: JobDriver | None = None
        self.savepoint: Any = None

    def attach(self, driver: JobDriver) -> Any:
        self.driver = driver
        return lambda ended: None

    def on_step(self, step: str, epoch: int) -> None:
        if step == "published" and self.driver is not None and self.savepoint is None:
            self.epochs -= 1
            if self.epochs == 0:
                self.savepoint = self.driver.savepoint(stop=True).done


def run(
    engine: str, root: Path, parallelism: int, rows: int, *, savepoint: str | None = None, stop: StopAfter | None = None
) -> list[Any]:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root)).set_parallelism(parallelism).set_max_epoch_rows(rows)
    strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(20).with_timestamp_assigner(lambda e, _: e.time)
    events = env.from_source(fp.CollectionSource(EVENTS, type_of(Event)), strategy, "events").uid("events")
    first = events.key_by(lambda e: e.key).process(Everything()).uid("everything")
    second = first.key_by(lambda e: e[0][-1], str).map_with_state(lambda e, n: ((e, n or 0), (n or 0) + 1), int).uid("n")
    sink = fp.CollectSink()
    second.sink_to(sink).uid("out")
    launch = Launch(
        options={"engine": engine},
        restore=RestoreOptions(savepoint=savepoint),
        steps=stop,
        on_driver=None if stop is None else stop.attach,
    )
    env.launch = launch
    env.execute("rescaled")
    return sink.take()


def by_key(results: list[Any]) -> dict[str, list[Any]]:
    grouped = defaultdict(list)
    for element, number in results:
        grouped[element[0]].append((element[1:], number))
    return dict(grouped)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    return by_key(run("local", tmp_path_factory.mktemp("straight"), 1, 10_000))


@pytest.mark.parametrize(
    ("before", "after", "rows"),
    [(1, 4, 60), pytest.param(3, 2, 35, marks=pytest.mark.slow), pytest.param(4, 1, 110, marks=pytest.mark.slow)],
)
def test_a_savepoint_restored_at_another_parallelism(
    session: SparkSession, tmp_path: Path, expected: dict[str, list[Any]], before: int, after: int, rows: int
) -> None:
    stop = StopAfter(2)
    early = run("spark", tmp_path, before, rows, stop=stop)
    late = run("spark", tmp_path, after, rows + 7, savepoint=stop.savepoint.result())
    assert early
    assert late
    assert by_key(early + late) == expected


def test_spark_and_the_local_engine_agree(session: SparkSession, tmp_path: Path, expected: dict[str, list[Any]]) -> None:
    assert by_key(run("spark", tmp_path, 2, 10_000)) == expected
