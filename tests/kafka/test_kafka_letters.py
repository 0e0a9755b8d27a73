"""What Kafka says beside values: bad records as dead letters, times of records as event time, records without a value."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from kafka_jobs import Text, builder, patient

import forkpoint as fp
from connectors.connector_reading import Elements
from forkpoint.testing import PAUSE, Abort, run_local
from servers.kafka import Kafka, Message

BAD = fp.OutputTag("bad", fp.DeadLetter)
LATEST = fp.KafkaOffsetsInitializer.latest()
NO_WATERMARKS: Any = fp.WatermarkStrategy.no_watermarks()


class Data(fp.SerializationSchema[fp.DeadLetter]):
    def serialize(self, element: fp.DeadLetter) -> bytes | None:
        return element.data


class Key(fp.SerializationSchema[fp.DeadLetter]):
    def serialize(self, element: fp.DeadLetter) -> bytes | None:
        return element.key


def sink(kafka: Kafka, topic: str, key: Any, value: Any, **options: Any) -> fp.KafkaSink[Any]:
    records = fp.KafkaRecordSerializationSchema.builder().set_topic(topic).set_value_serialization_schema(value)
    if key is not None:
        records = records.set_key_serialization_schema(key)
    built = fp.KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap_servers)
    return built.set_record_serializer(records.build()).build()


def test_bad_records_go_to_another_topic_once(kafka: Kafka, tmp_path: Path) -> None:
    topic, dead = kafka.create_topic(partitions=2), kafka.create_topic()
    for partition in range(2):
        kafka.produce(
            topic,
            [Message(b"bad" if n % 4 == 1 else b"good", b"k%d" % n, timestamp_ms=1000 * n) for n in range(10)],
            partition,
        )
    source = patient(builder(kafka, topic).set_on_parse_error(BAD).set_bounded(LATEST).build())

    def build(env: fp.StreamExecutionEnvironment, script: Any) -> dict[str, fp.DataStream]:
        env.from_source(script, NO_WATERMARKS, "script").uid("script").sink_to(fp.DiscardSink()).uid("nowhere")
        read = env.from_source(source, NO_WATERMARKS, "records").uid("records")
        bad = read.get_side_output(BAD)
        bad.sink_to(sink(kafka, dead, Key(), Data())).uid("dead")
        return {"good": read, "bad": bad}

    script = [item for step in ("computed", "committed") for item in (PAUSE, Abort(step))]  # type: ignore[arg-type]
    run = run_local(build, script, epochs=4, state_root=tmp_path)  # a task reads both partitions together
    assert (run.deaths, run.outputs["good"]) == (2, ["good"] * 14)
    places = sorted(
        (letter.source, letter.place["topic"], letter.place["partition"], int(letter.place["offset"]), letter.key)
        for letter in run.outputs["bad"]
    )
    bad = [1, 5, 9]
    assert places == [("records", topic, str(p), n, b"k%d" % n) for p in range(2) for n in bad]
    assert {letter.problem for letter in run.outputs["bad"]} == {"ValueError: bad text"}
    found = kafka.read(dead)
    assert sorted((m.key, m.value, m.timestamp_ms) for m in found) == sorted((b"k%d" % n, b"bad", 1000 * n) for n in bad * 2)


class Whole(fp.KafkaRecordDeserializationSchema[int]):
    def get_produced_type(self) -> Any:
        return int

    def deserialize(self, record: fp.KafkaRecord) -> int:
        assert record.value is not None
        return int(record.value)


def test_records_seen_as_a_whole_and_tombstones_keep_their_times(kafka: Kafka) -> None:
    topic = kafka.create_topic()
    values = [b"1", b"x", None, b"4", None]
    kafka.produce(topic, [Message(value, b"k", timestamp_ms=n) for n, value in enumerate(values, 1)])

    def build(schema: Any, env: fp.StreamExecutionEnvironment) -> dict[str, fp.DataStream]:
        source = builder(kafka, topic).set_deserializer(schema).set_on_parse_error(BAD).set_bounded(LATEST).build()
        read = env.from_source(source, NO_WATERMARKS, "records")
        return {"main": read, "bad": read.get_side_output(BAD)}

    found = run_local(lambda env: build(Whole(), env)).records
    assert [(r.value, r.timestamp) for r in found["main"]] == [(1, 1), (4, 4)]
    assert [(r.value.data, r.timestamp) for r in found["bad"]] == [(b"x", 2), (None, 3), (None, 5)]
    text = fp.KafkaRecordDeserializationSchema.value_only(Text())
    found = run_local(lambda env: build(text, env)).records
    assert [(r.value, r.timestamp) for r in found["main"]] == [("1", 1), ("x", 2), ("4", 4)]


def test_the_times_of_records_are_event_time(kafka: Kafka) -> None:
    topic, out = kafka.create_topic(partitions=2), kafka.create_topic()
    for partition in range(2):
        kafka.produce(topic, [Message(b"v", timestamp_ms=1000 * n + partition) for n in range(1, 8)], partition)
    source = builder(kafka, topic).set_bounded(LATEST).build()

    def build(strategy: Any, env: fp.StreamExecutionEnvironment) -> fp.DataStream:
        windows = (
            env.from_source(source, strategy, "records")
            .key_by(lambda v: v, str)
            .window(fp.TumblingEventTimeWindows.of(timedelta(seconds=3)))
        )
        return windows.agg(start=fp.WindowStart(), n=fp.Count())

    expected = [("v", 0, 4), ("v", 3000, 6), ("v", 6000, 4)]
    for strategy in (
        fp.WatermarkStrategy.for_monotonous_timestamps(),
        fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda _, time: time),
        NO_WATERMARKS,
    ):
        assert run_local(lambda env, s=strategy: build(s, env), epochs=4, parallelism=2).output == expected

    def copy(env: fp.StreamExecutionEnvironment) -> None:
        env.from_source(source, NO_WATERMARKS, "in").sink_to(sink(kafka, out, None, fp.SimpleStringSchema()))

    run_local(copy)
    assert sorted(m.timestamp_ms for m in kafka.read(out)) == sorted(1000 * n + p for p in range(2) for n in range(1, 8))


class Customer(NamedTuple):
    id: str
    city: str | None


class Id(fp.SerializationSchema[Customer]):
    def serialize(self, element: Customer) -> bytes | None:
        return element.id.encode()


class CityOrTombstone(fp.SerializationSchema[Customer]):
    def serialize(self, element: Customer) -> bytes | None:
        return None if element.city is None else element.city.encode()


@pytest.mark.parametrize("guarantee", list(fp.DeliveryGuarantee))
def test_none_is_a_record_without_a_value(kafka: Kafka, guarantee: fp.DeliveryGuarantee) -> None:
    topic = kafka.create_topic(**{"cleanup.policy": "compact"})
    records = fp.KafkaRecordSerializationSchema.builder().set_topic(topic).set_key_serialization_schema(Id())
    serializer = records.set_value_serialization_schema(CityOrTombstone()).build()
    to = fp.KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_record_serializer(serializer)

    def build(env: fp.StreamExecutionEnvironment) -> None:
        env.set_parallelism(1)  # the elements in their order
        customers = env.from_collection([Customer("a", "Wien"), Customer("a", None), Customer("b", "")], Customer)
        customers.sink_to(to.set_delivery_guarantee(guarantee).build())

    run_local(build)
    assert [(m.key, m.value) for m in kafka.read(topic)] == [(b"a", b"Wien"), (b"a", None), (b"b", b"")]


class Own(fp.KafkaRecordSerializationSchema[str]):
    def serialize(self, element: str, timestamp_ms: int | None) -> fp.ProducerRecord:
        return fp.ProducerRecord("t", b"%r" % timestamp_ms)


def test_elements_without_a_time_among_others() -> None:
    text = fp.SimpleStringSchema()
    built = fp.KafkaRecordSerializationSchema.builder().set_topic("t").set_value_serialization_schema(text).build()
    batch = Elements(["a", "b"], timestamps=np.array([5, fp.MIN_WATERMARK]))
    assert built.records(batch).column("timestamp_ms").to_pylist() == [5, None]
    own = Own().records(batch)
    assert own.column("timestamp_ms").to_pylist() == [5, None]
    assert own.column("value").to_pylist() == [b"5", b"None"]
    assert built.records(Elements(["a"])).column("timestamp_ms").to_pylist() == [None]
