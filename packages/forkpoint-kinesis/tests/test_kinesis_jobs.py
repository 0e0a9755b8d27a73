"""Jobs that read Kinesis: exactly once, with each shard's own watermark."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import forkpoint as fp
from forkpoint.testing import PAUSE, Abort, ManualClock, run_local
from kinesis_jobs import bounded, builder
from servers.kinesis_server import Kinesis

S0, S1 = "shardId-000000000000", "shardId-000000000001"


class Numbered(fp.KeyedProcessFunction):
    seen = fp.ValueStateDescriptor("seen", int)

    def process_element(self, value: str, ctx: Any) -> Any:
        count = (self.seen.value() or 0) + 1
        self.seen.update(count)
        yield f"{value}#{count}"


def test_each_record_counts_once_whenever_the_process_dies(kinesis: Kinesis) -> None:
    """In a stream whose first shard is split."""
    stream = kinesis.create_stream(shards=2)
    kinesis.put_to(stream, S0, [f"a{n}" for n in range(1, 9)])
    kinesis.put_to(stream, S1, [f"b{n}" for n in range(1, 17)])
    left, right = kinesis.split(stream, S0)
    kinesis.put_to(stream, left, [f"a{n}" for n in range(9, 17)])
    kinesis.put_to(stream, right, [f"c{n}" for n in range(1, 17)])
    source = bounded(builder(kinesis, stream).build(), 48)

    def build(env: fp.StreamExecutionEnvironment, script: fp.Source[Any]) -> fp.DataStream:
        events = env.from_source(script, fp.WatermarkStrategy.no_watermarks(), "script").uid("script")
        events.sink_to(fp.DiscardSink()).uid("nowhere")
        read = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "lines").uid("lines")
        return read.key_by(lambda line: line[0], str).process(Numbered(), fp.Types.STRING()).uid("numbered")

    steps = ("planned", "computed", "written", "committed", "published")
    run = run_local(build, [item for step in steps for item in (PAUSE, Abort(step))], epochs=6, parallelism=2)
    assert run.deaths == 5
    assert run.by_key(lambda line: line[0]) == {x: [f"{x}{n}#{n}" for n in range(1, 17)] for x in "abc"}


class Late(fp.KeyedProcessFunction):
    def process_element(self, value: str, ctx: Any) -> Any:
        yield value, ctx.timestamp() <= ctx.timer_service().current_watermark()


class Ticking(ManualClock):
    def __call__(self) -> int:
        self._now_ms += 1
        return super().__call__()


def lateness(source: fp.Source[str], strategy: fp.WatermarkStrategy[str]) -> dict[str, bool]:
    timed = strategy.with_timestamp_assigner(lambda line, _: int(line[1:]))

    def build(env: fp.StreamExecutionEnvironment) -> fp.DataStream:
        return env.from_source(source, timed, "lines").uid("lines").key_by(lambda _: 0).process(Late()).uid("late")

    return dict(run_local(build, epochs=6, clock=Ticking()).output)


def test_the_watermark_waits_for_the_children_of_a_shard(kinesis: Kinesis) -> None:
    stream = kinesis.create_stream(shards=2)
    kinesis.put_to(stream, S0, ["a100", "a200"])
    kinesis.put_to(stream, S1, [f"b{n}" for n in range(10_000, 10_020)])
    left, right = kinesis.split(stream, S0)
    kinesis.put_to(stream, left, ["a300", "a400"])
    kinesis.put_to(stream, right, ["c250", "c500"])
    source = bounded(builder(kinesis, stream).build(), 26)
    found = lateness(source, fp.WatermarkStrategy.for_monotonous_timestamps())
    assert len(found) == 26
    assert not any(found.values())


def test_an_idle_shard_holds_nobody_back(kinesis: Kinesis) -> None:
    stream = kinesis.create_stream(shards=2)
    kinesis.put_to(stream, S1, [f"b{n}" for n in range(10_000, 10_030)])
    kinesis.put_to(stream, S1, ["b5", *(f"b{n}" for n in range(20_000, 20_012))])
    source = bounded(builder(kinesis, stream).set_property("flink.shard.getrecords.maxrecordcount", "6").build(), 43)
    monotonous = fp.WatermarkStrategy.for_monotonous_timestamps()
    assert not lateness(source, monotonous)["b5"]  # the other shard might still bring what is as old
    assert lateness(source, monotonous.with_idleness(timedelta(milliseconds=2)))["b5"]
