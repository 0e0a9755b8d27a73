"""A job on Spark is rescaled while it runs: from columns, and from a streaming DataFrame, with stores that were prepared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from test_rescale import EVENTS, Everything, by_key

import forkpoint as fp
from forkpoint.api.execution import Job, prepare
from forkpoint.api.launch import Launch
from forkpoint.driver.observe.events import EpochCommitted, EpochReached, Event, RescaleEnded
from forkpoint.types import type_of

pytestmark = pytest.mark.spark


class Switches:
    """Rescales after some epochs, and lets epochs wait for the stores."""

    def __init__(self, plan: dict[int, int]) -> None:
        self.plan = dict(plan)
        self.job: Job
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)
        current = self.job.driver.parts.rescaling._current
        if isinstance(event, EpochReached) and event.phase == "planned" and current is not None:
            current.ready.wait()
        if isinstance(event, EpochReached) and event.phase == "published" and event.epoch in self.plan:
            self.job.driver.rescale(self.plan.pop(event.epoch))

    def catch_ups(self, epoch: int) -> list[Any]:
        return [c for e in self.events if isinstance(e, EpochCommitted) and e.epoch == epoch for c in e.catch_ups]

    @property
    def switched(self) -> list[tuple[int, int | None]]:
        return [(e.parallelism, e.epoch) for e in self.events if isinstance(e, RescaleEnded)]


class Held(fp.FlatMapFunction, fp.CheckpointedFunction):
    """Passes elements on, one epoch late or more; what it holds is operator state."""

    def initialize_state(self, context: Any) -> None:
        self.list = context.get_operator_state_store().get_list_state(fp.ListStateDescriptor("held", int))
        self.held = list(self.list.get())

    def flat_map(self, value: int) -> Iterator[int]:
        self.held.append(value)
        while len(self.held) > 5:
            yield self.held.pop(0)

    def snapshot_state(self, context: Any) -> None:
        self.list.update(self.held)


def run(env: Any, switches: Switches, engine: str = "spark") -> None:
    env.launch = Launch(options={"engine": engine}, listeners=[switches])
    switches.job = prepare(env, "rescaled")
    switches.job.begin()()


def everything(root: Path, engine: str, plan: dict[int, int]) -> tuple[dict[str, list[Any]], Switches]:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root)).set_parallelism(2).set_max_epoch_rows(40)
    strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(20).with_timestamp_assigner(lambda e, _: e.time)
    events = env.from_source(fp.CollectionSource(EVENTS, type_of(type(EVENTS[0]))), strategy, "events").uid("events")
    first = events.key_by(lambda e: e.key).process(Everything()).uid("everything")
    second = first.key_by(lambda e: e[0][-1], str).map_with_state(lambda e, n: ((e, n or 0), (n or 0) + 1), int).uid("n")
    sink = fp.CollectSink()
    second.sink_to(sink).uid("out")
    switches = Switches(plan)
    run(env, switches, engine)
    return by_key(sink.take()), switches


def test_state_and_timers_go_on(session: SparkSession, tmp_path: Path) -> None:
    straight, _ = everything(tmp_path / "straight", "local", {})
    found, switches = everything(tmp_path / "rescaled", "spark", {2: 5, 6: 1})
    assert found == straight
    assert [parallelism for parallelism, _ in switches.switched] == [5, 1]
    for parallelism, epoch in switches.switched:
        assert epoch is not None
        assert {c.by for c in switches.catch_ups(epoch + 1)} == {"changes"}
        assert len({c.subtask for c in switches.catch_ups(epoch + 1)}) == parallelism


def test_a_streaming_dataframe_goes_on_at_its_position(session: SparkSession, tmp_path: Path) -> None:
    """With operator state, which is dealt out to the new subtasks."""
    source = tmp_path / "in"
    source.mkdir()
    for number in range(6):
        (source / f"{number}.json").write_text("".join(f'{{"n": {number * 20 + i}}}\n' for i in range(20)))
    frame = session.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(str(source))
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(tmp_path / "state")).set_parallelism(2).enable_checkpointing(50)
    numbers = env.from_dataframe(frame, "in").map(lambda row: row[0], int)
    held = numbers.rebalance().flat_map(Held(), int).uid("held")
    sink = fp.CollectSink()
    held.key_by(lambda n: n % 7, int).map_with_state(lambda n, c: ((n, (c or 0) + 1), (c or 0) + 1), int).uid("c").sink_to(
        sink
    ).uid("out")
    switches = Switches({3: 3})
    seen: list[Any] = []

    class Enough:
        def on_event(self, event: Event) -> None:
            seen.extend(sink.take())
            if len(seen) >= 120 - 5 * 3 and switches.switched:
                switches.job.driver.cancel()

    env.launch = Launch(options={"engine": "spark"}, listeners=[switches, Enough()])
    switches.job = prepare(env, "streamed")
    switches.job.begin()()
    seen.extend(sink.take())
    numbers_seen = [n for n, _ in seen]
    assert len(numbers_seen) == len(set(numbers_seen))
    assert len(numbers_seen) >= 120 - 5 * 3
    for rest in range(7):
        counts = [count for n, count in seen if n % 7 == rest]
        assert sorted(counts) == list(range(1, len(counts) + 1))
    assert [parallelism for parallelism, _ in switches.switched] == [3]
