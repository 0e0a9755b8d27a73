"""Jobs that read Kafka: exactly once, through all that can happen to job and broker."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kafka_jobs import builder, patient

import forkpoint as fp
from forkpoint.connectors.kafka import feed
from forkpoint.testing import PAUSE, Abort, Eof, LocalRun, run_local
from servers.kafka import Kafka

LATEST = fp.KafkaOffsetsInitializer.latest()


def lines(source: fp.Source[str], script: bool = True) -> Callable[..., fp.DataStream]:
    """A job with the source's elements numbered by their first letter, and a script that says what happens to it."""

    def build(env: fp.StreamExecutionEnvironment, *scripts: fp.Source[Any]) -> fp.DataStream:
        for events in scripts:
            stream = env.from_source(events, fp.WatermarkStrategy.no_watermarks(), "script").uid("script")
            stream.sink_to(fp.DiscardSink()).uid("nowhere")
        read = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "lines").uid("lines")
        return read.key_by(lambda line: line[0], str).process(_Numbered(), fp.Types.STRING()).uid("numbered")

    return build


class _Numbered(fp.KeyedProcessFunction):
    def open(self, context: fp.RuntimeContext) -> None:
        self.count = context.get_state(fp.ValueStateDescriptor("count", int))

    def process_element(self, value: str, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield f"{value}#{count}"


def expected(*letters: str, count: int) -> dict[str, list[str]]:
    return {letter: [f"{letter}{n}#{n}" for n in range(1, count + 1)] for letter in letters}


def by_letter(run: LocalRun) -> dict[str, list[str]]:
    return run.by_key(lambda line: line[0])


def test_each_record_counts_once_whenever_the_process_dies(kafka: Kafka) -> None:
    topic = kafka.create_topic(partitions=3)
    for n in range(1, 11):
        for partition, letter in enumerate("abc"):
            kafka.transaction(topic, [f"{letter}{n}"], partition)
            if n % 3 == 0:
                kafka.transaction(topic, [f"{letter}x"], partition, commit=False)
    script = [item for step in ("planned", "computed", "written", "committed", "published") for item in (PAUSE, Abort(step))]
    source = patient(builder(kafka, topic).set_bounded(LATEST).build())
    run = run_local(lines(source), script, epochs=5, parallelism=2)
    assert run.deaths == 5
    assert by_letter(run) == expected("a", "b", "c", count=10)


def test_a_savepoint_is_restored_at_another_parallelism(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic(partitions=3)
    for partition, letter in enumerate("abc"):
        kafka.produce(topic, [f"{letter}{n}" for n in range(1, 8)], partition)
    script = [PAUSE, Abort("computed"), PAUSE, Eof(savepoint=True)]
    first = run_local(lines(patient(builder(kafka, topic).build())), script, epochs=6, state_root=tmp_path)
    assert (first.deaths, len(first.output)) == (1, 18)
    for partition, letter in enumerate("abc"):
        kafka.produce(topic, [f"{letter}{n}" for n in range(8, 11)], partition)
    bounded = builder(kafka, topic).set_bounded(LATEST).build()
    options: dict[str, Any] = {"state_root": tmp_path, "job_name": "restored", "restore": first.savepoint}
    second = run_local(lines(bounded), script[:0], parallelism=3, **options)
    together = {letter: by_letter(first)[letter] + by_letter(second)[letter] for letter in "abc"}
    assert together == expected("a", "b", "c", count=10)


@pytest.mark.slow  # test_kafka_faults.py does it to a source and a sink
def test_the_broker_is_killed_under_a_job(kafka: Kafka) -> None:
    topic, group = kafka.create_topic(), f"group-{uuid.uuid4().hex[:8]}"
    stop = fp.KafkaOffsetsInitializer.offsets({fp.KafkaTopicPartition(topic, 0): 20})
    source = builder(kafka, topic).set_group_id(group).set_bounded(stop).build()
    kafka.produce(topic, [f"a{n}" for n in range(1, 11)])
    runs: list[LocalRun] = []
    thread = threading.Thread(target=lambda: runs.append(run_local(lines(source))))
    thread.start()
    while kafka.committed(group, topic) != 10:
        time.sleep(0.01)
    kafka.kill()
    kafka.start()
    kafka.produce(topic, [f"a{n}" for n in range(11, 21)])
    thread.join()
    assert by_letter(runs[0]) == expected("a", count=20)


@pytest.mark.slow
def test_the_broker_is_killed_while_a_range_is_read(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [f"a{n}" for n in range(1, 2001)])
    read = feed.Feed.messages

    def with_a_fault(self: feed.Feed, *range: Any) -> Any:
        kafka.kill()
        restart = threading.Timer(0.3, kafka.start)
        restart.start()
        yield from read(self, *range)
        restart.join()

    monkeypatch.setattr(feed.Feed, "messages", with_a_fault)
    run = run_local(lines(builder(kafka, topic).set_bounded(LATEST).build()), epochs=1500)
    assert by_letter(run) == expected("a", count=2000)


def test_a_partition_without_records_holds_the_watermark(kafka: Kafka) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, [f"a{n}" for n in range(1, 6)], 0)
    stop = fp.KafkaOffsetsInitializer.offsets({fp.KafkaTopicPartition(topic, p): 5 for p in range(2)})
    source = patient(builder(kafka, topic).set_unbounded(stop).build())
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda line, _: int(line[1:]))

    def build(env: fp.StreamExecutionEnvironment, script: fp.Source[Any]) -> fp.DataStream:
        env.from_source(script, fp.WatermarkStrategy.no_watermarks(), "script").sink_to(fp.DiscardSink())
        windows = env.from_source(source, strategy, "lines").key_by(lambda _: 0, int)
        return windows.window(fp.TumblingEventTimeWindows.of(timedelta(milliseconds=3))).agg(lines=fp.Count())

    assert run_local(build, [Eof()]).output == []
    kafka.produce(topic, ["b3"], 1)
    assert run_local(build, [Eof()]).output == [(0, 2)]


def test_a_range_that_fails_leaves_no_client_behind(kafka: Kafka) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a1", "bad"])
    before = threading.active_count()
    with pytest.raises(fp.RecordParseError, match="offset 1"):
        run_local(lines(builder(kafka, topic).set_bounded(LATEST).build()))
    assert threading.active_count() <= before
    assert not any(feed._idle.values())
