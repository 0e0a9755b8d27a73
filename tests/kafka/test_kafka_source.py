"""KafkaSource against a real broker: what is planned and read, and where."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from kafka_jobs import Loop, Text, builder, read_until

from forkpoint import (
    ConfigError,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecord,
    KafkaRecordDeserializationSchema,
    KafkaSource,
    KafkaTopicPartition,
    RecordParseError,
    StorageError,
    SystemUnavailable,
)
from forkpoint.connectors.kafka import watcher
from forkpoint.errors import InputLost
from servers.kafka import Kafka, Message

A, B = KafkaTopicPartition("a", 0), KafkaTopicPartition("a", 1)


def test_reads_in_order_and_goes_on_where_it_was(kafka: Kafka) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, [f"a{i}" for i in range(10)], 0)
    kafka.produce(topic, [f"b{i}" for i in range(5)], 1)
    source = builder(kafka, topic).build()
    with Loop(source) as loop:
        loop.until({f"{topic}-0": 10, f"{topic}-1": 5}, max_rows=4)
        assert loop.values == {f"{topic}-0": [f"a{i}" for i in range(10)], f"{topic}-1": [f"b{i}" for i in range(5)]}
    kafka.produce(topic, ["a10"], 0)
    assert read_until(source, {f"{topic}-0": 11, f"{topic}-1": 5}, loop.position) == {f"{topic}-0": ["a10"]}


def test_aborted_and_open_transactions_are_not_read_and_do_not_block(kafka: Kafka) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a"])
    kafka.transaction(topic, ["lost", "lost"], commit=False)
    kafka.transaction(topic, ["b"])
    kafka.transaction(topic, ["lost"], commit=False)
    with Loop(builder(kafka, topic).build()) as loop:
        loop.until({f"{topic}-0": 8}, max_rows=2)
        assert loop.values == {f"{topic}-0": ["a", "b"]}
        producer = kafka.transactional_producer()
        producer.begin_transaction()
        producer.produce(topic, "late")
        producer.flush()
        kafka.produce(topic, ["c"])  # behind the open transaction
        loop.step()
        assert loop.position["next"] == {f"{topic}-0": 8}
        producer.commit_transaction()
        loop.until({f"{topic}-0": 11})
        assert loop.values == {f"{topic}-0": ["a", "b", "late", "c"]}


def test_rows_are_shared_among_partitions_with_a_backlog(kafka: Kafka) -> None:
    topic = kafka.create_topic(partitions=3)
    kafka.produce(topic, map(str, range(100)), 0)
    kafka.produce(topic, map(str, range(100)), 1)
    with Loop(builder(kafka, topic).build()) as loop:
        while not (planned := loop.step(20)):
            time.sleep(0.002)
        assert [(r.split, r.start, r.end) for r in planned] == [
            (f"{topic}-0", 0, 10),
            (f"{topic}-1", 0, 10),
            (f"{topic}-2", 0, 0),
        ]
        assert loop.enumerator.pause_splits({f"{topic}-0"})
        assert [(r.split, r.start, r.end) for r in loop.step(20)] == [(f"{topic}-1", 10, 30)]
        loop.enumerator.pause_splits(())
        assert {r.split for r in loop.step(20)} == {f"{topic}-0", f"{topic}-1"}


def test_new_partitions_and_topics_are_read_from_their_start(kafka: Kafka) -> None:
    name = f"new-{uuid.uuid4().hex[:8]}"
    first = kafka.create_topic(f"{name}-1")
    kafka.produce(first, ["before"])
    built = builder(kafka).set_topic_pattern(f"{name}-.*").set_property("partition.discovery.interval.ms", "20")
    with Loop(built.set_starting_offsets(KafkaOffsetsInitializer.latest()).build()) as loop:
        loop.until({f"{first}-0": 1})
        kafka.add_partitions(first, 2)
        kafka.produce(first, ["partition"], 1)
        second = kafka.create_topic(f"{name}-2")
        kafka.produce(second, ["topic"])
        kafka.create_topic(f"other-{name}-2")
        loop.until({f"{first}-0": 1, f"{first}-1": 1, f"{second}-0": 1})
        assert loop.values == {f"{first}-0": [], f"{first}-1": ["partition"], f"{second}-0": ["topic"]}


def test_a_partition_that_appears_while_the_job_is_down_is_read_from_its_start(kafka: Kafka) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["before"])
    source = builder(kafka, topic).set_starting_offsets(KafkaOffsetsInitializer.latest()).build()
    with Loop(source) as loop:
        assert loop.position["next"] is None  # nothing is known yet, which is not the same as no partitions
        loop.until({f"{topic}-0": 1})
    kafka.add_partitions(topic, 2)
    kafka.produce(topic, ["new"], 1)
    assert read_until(source, {f"{topic}-0": 1, f"{topic}-1": 1}, loop.position) == {f"{topic}-1": ["new"]}


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (KafkaOffsetsInitializer.earliest(), ["1", "2", "3", "4"]),
        (KafkaOffsetsInitializer.latest(), []),
        (KafkaOffsetsInitializer.timestamp(3000), ["3", "4"]),
        (KafkaOffsetsInitializer.timestamp(9000), []),
        (KafkaOffsetsInitializer.offsets({A: 2}), ["2", "3", "4"]),
        (KafkaOffsetsInitializer.offsets({A: 0}), ["1", "2", "3", "4"]),
        (KafkaOffsetsInitializer.offsets({A: 9}, KafkaOffsetResetStrategy.LATEST), []),
        (KafkaOffsetsInitializer.offsets({B: 9}), ["1", "2", "3", "4"]),
        (KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST), ["1", "2", "3", "4"]),
    ],
)
def test_starting_offsets(kafka: Kafka, numbered: str, start: KafkaOffsetsInitializer, expected: list[str]) -> None:
    given = {KafkaTopicPartition(numbered, p.partition): offset for p, offset in start.given.items()}
    start = KafkaOffsetsInitializer(start.kind, start.timestamp_ms, given, start.reset)
    source = builder(kafka, numbered).set_starting_offsets(start).set_group_id("nobody").build()
    assert read_until(source, {f"{numbered}-0": 5}) == ({f"{numbered}-0": expected} if expected else {})


@pytest.fixture(scope="module")
def numbered(kafka: Kafka) -> str:
    """A topic of the values 1 to 4 at these offsets, and at these seconds; 0 has expired."""
    topic = kafka.create_topic()
    kafka.produce(topic, [Message(str(i).encode(), timestamp_ms=i * 1000) for i in range(5)], 0)
    kafka.delete_records(topic, 1)
    return topic


@pytest.mark.parametrize(
    ("start", "problem"),
    [
        (KafkaOffsetsInitializer.committed_offsets(), r"committed_offsets\(\) has no offset for \S+-0; give it Kafka"),
        (
            KafkaOffsetsInitializer.offsets({}, KafkaOffsetResetStrategy.NONE),
            r"offsets\(\) has no offset for \S+-0; give it Kafka",
        ),
    ],
)
def test_no_offset_to_start_at(kafka: Kafka, numbered: str, start: KafkaOffsetsInitializer, problem: str) -> None:
    source = builder(kafka, numbered).set_starting_offsets(start).set_group_id("nobody").build()
    with Loop(source) as loop, pytest.raises(ConfigError, match=problem):
        loop.until_it_fails()


def test_a_bounded_source_ends_at_the_offsets_of_its_first_start(kafka: Kafka) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, ["a", "b", "c"], 0)
    source = builder(kafka, topic).set_bounded(KafkaOffsetsInitializer.latest()).build()
    assert source.bounded
    with Loop(source) as loop:
        while not loop.step(2):
            time.sleep(0.002)
        assert not loop.enumerator.finished
        assert set(loop.enumerator.finished_splits) == {f"{topic}-1"}
    kafka.produce(topic, ["late"], 0)
    with Loop(source, loop.position) as rest:
        while not rest.enumerator.finished:
            rest.step()
        assert rest.values == {f"{topic}-0": ["c"]}


def test_bounds_may_be_ahead_of_the_end(kafka: Kafka) -> None:
    topic = kafka.create_topic()
    stop = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 3})
    source = builder(kafka, topic).set_unbounded(stop).build()
    assert not source.bounded
    with Loop(source) as loop:
        loop.until({f"{topic}-0": 0})
        assert not loop.enumerator.finished
        kafka.produce(topic, "abcd")
        while not loop.enumerator.finished:
            loop.step()
        assert loop.values == {f"{topic}-0": ["a", "b", "c"]}


def test_stops_at_a_saved_position(kafka: Kafka) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, "abcd", 0)
    source = builder(kafka, topic).build()
    until = {"version": 1, "next": {f"{topic}-0": 3}, "stop": {}}
    with Loop(source) as loop:
        loop.enumerator.stop_at(until)
        while not loop.enumerator.at_stop:
            loop.step(2)
        assert loop.values == {f"{topic}-0": ["a", "b", "c"]}
        assert loop.step() == []
        assert not loop.enumerator.finished
        position = {"version": 1, "next": {f"{topic}-0": 4}, "stop": {}}
    with Loop(source, position) as beyond, pytest.raises(ConfigError, match=rf"{topic}-0 is at offset 4, beyond .* 3"):
        beyond.enumerator.stop_at(until)


def test_expired_records(kafka: Kafka) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, "abcd")
    kafka.delete_records(topic, 3)
    position = {"version": 1, "next": {f"{topic}-0": 1}, "stop": {}}
    with (
        Loop(builder(kafka, topic).build(), position) as loop,
        pytest.raises(StorageError, match=rf"partition 0 of topic '{topic}' has the offsets 3 to 4, not 1: .* auto.offset.reset"),
    ):
        loop.until_it_fails()
    lenient = builder(kafka, topic).set_property("auto.offset.reset", "earliest").build()
    assert read_until(lenient, {f"{topic}-0": 4}, position) == {f"{topic}-0": ["d"]}
    skipping = builder(kafka, topic).set_property("auto.offset.reset", "latest").build()
    assert read_until(skipping, {f"{topic}-0": 4}, position) == {}


def test_a_deleted_topic(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "GRACE_S", 0.1)
    topic = kafka.create_topic()
    kafka.produce(topic, "a")
    with Loop(builder(kafka, topic).build()) as loop:
        loop.until({f"{topic}-0": 1})
        kafka.delete_topic(topic)
        with pytest.raises(InputLost, match=rf"partition 0 of topic '{topic}' no longer exists .* was deleted"):
            loop.until_it_fails()


def test_a_topic_that_was_created_anew(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forkpoint.connectors.kafka.enumerator.GRACE_S", 0.1)
    topic = kafka.create_topic()
    kafka.produce(topic, "a")
    position = {"version": 1, "next": {f"{topic}-0": 7}, "stop": {}}
    with (
        Loop(builder(kafka, topic).build(), position) as loop,
        pytest.raises(InputLost, match=r"ends at offset 1, but the job has read it up to 7: .* give the source a new uid"),
    ):
        loop.until_it_fails()


def test_planning_does_not_wait_for_the_broker(kafka: Kafka) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, "a")
    kafka.pause()
    try:
        with Loop(builder(kafka, topic).build()) as loop:
            assert loop.step() == []
            kafka.resume()
            loop.until({f"{topic}-0": 1})
    finally:
        kafka.resume()


class _Whole(KafkaRecordDeserializationSchema[KafkaRecord]):
    def deserialize(self, record: KafkaRecord) -> KafkaRecord:
        return record


def test_records_with_all_that_kafka_knows_of_them(kafka: Kafka) -> None:
    topic = kafka.create_topic()
    kafka.produce(
        topic,
        [Message(b"v", b"k", timestamp_ms=1500, headers=(("h", b"1"), ("h", None))), Message(None, timestamp_ms=1)],
    )
    source = builder(kafka, topic).set_deserializer(_Whole()).build()
    assert read_until(source, {f"{topic}-0": 2}) == {
        f"{topic}-0": [
            KafkaRecord(topic, 0, 0, 1500, b"k", b"v", [("h", b"1"), ("h", None)]),
            KafkaRecord(topic, 0, 1, 1, None, None, ()),
        ]
    }
    pairs = builder(kafka, topic).set_deserializer(KafkaRecordDeserializationSchema.key_and_value(Text(), Text())).build()
    assert read_until(pairs, {f"{topic}-0": 2}) == {f"{topic}-0": [("k", "v"), (None, None)]}
    values = builder(kafka, topic).build()
    assert read_until(values, {f"{topic}-0": 2}) == {f"{topic}-0": ["v"]}


def test_bad_records(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, ["a", "bad", "b"])
    with (
        Loop(builder(kafka, topic).build()) as loop,
        pytest.raises(RecordParseError, match=f"topic '{topic}', partition 0, offset 1: .*bad text.*set_on_parse_error"),
    ):
        loop.until_it_fails()
    lenient = builder(kafka, topic).set_on_parse_error("skip").build()
    assert read_until(lenient, {f"{topic}-0": 3}) == {f"{topic}-0": ["a", "b"]}
    assert f"topic '{topic}', partition 0, offset 1: cannot read the record: ValueError: bad text; skipped" in caplog.text


def test_the_groups_offsets_are_committed_for_others_to_see(kafka: Kafka) -> None:
    topic, group = kafka.create_topic(), f"group-{uuid.uuid4().hex[:8]}"
    kafka.produce(topic, "abc")
    built = builder(kafka, topic).set_group_id(group)
    with Loop(built.build()) as loop:
        loop.until({f"{topic}-0": 3}, max_rows=2)
        loop.enumerator.committed(loop.position)
    assert kafka.committed(group, topic) == 3
    kafka.produce(topic, "d")
    start = KafkaOffsetsInitializer.committed_offsets()
    assert read_until(built.set_starting_offsets(start).build(), {f"{topic}-0": 4}) == {f"{topic}-0": ["d"]}
    silent = builder(kafka, topic).set_group_id(f"{group}-2").set_property("commit.offsets.on.checkpoint", "false")
    with Loop(silent.build()) as loop:
        loop.until({f"{topic}-0": 4})
        loop.enumerator.committed(loop.position)
    assert kafka.committed(f"{group}-2", topic) is None


def test_partitions_that_are_named(kafka: Kafka) -> None:
    topic = kafka.create_topic(partitions=3)
    kafka.produce(topic, "a", 0)
    kafka.produce(topic, "b", 2)
    source = builder(kafka).set_partitions({KafkaTopicPartition(topic, 2)}).build()
    assert read_until(source, {f"{topic}-2": 1}) == {f"{topic}-2": ["b"]}
    absent = builder(kafka).set_partitions({KafkaTopicPartition(topic, 3)}).build()
    with Loop(absent) as loop, pytest.raises(ConfigError, match=f"{topic}-3 do not exist .* set_partitions"):
        loop.until_it_fails()


def test_topics_that_are_left_out_after_a_restore_hold_nothing_up(kafka: Kafka) -> None:
    kept, dropped = kafka.create_topic(), kafka.create_topic()
    kafka.produce(kept, "a")
    position = {"version": 1, "next": {f"{kept}-0": 0, f"{dropped}-0": 0}, "stop": {}}
    kafka.delete_topic(dropped)
    with Loop(builder(kafka, kept).build(), position) as loop:
        loop.until({f"{kept}-0": 1, f"{dropped}-0": 0})
        assert set(loop.enumerator.finished_splits) == {f"{dropped}-0"}


@pytest.mark.parametrize(
    ("properties", "error", "problem"),
    [
        ({"no.such.property": "1"}, ConfigError, 'No such configuration property: "no.such.property"'),
        ({"fetch.min.bytes": "many"}, ConfigError, "fetch.min.bytes"),
        (
            {"security.protocol": "SSL", "default.api.timeout.ms": "300"},
            SystemUnavailable,
            "does not answer .*SSL",
        ),
        (
            {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "300"},
            SystemUnavailable,
            r"127.0.0.1:1 does not answer .* set_bootstrap_servers\(\)",
        ),
    ],
)
def test_wrong_properties(kafka: Kafka, properties: dict[str, str], error: type[Exception], problem: str) -> None:
    source = builder(kafka, kafka.create_topic()).set_properties(properties).build()
    with Loop(source) as loop, pytest.raises(error, match=problem):
        loop.until_it_fails()


def test_a_topic_that_is_not_there(kafka: Kafka) -> None:
    with (
        Loop(builder(kafka, "nothing").build()) as loop,
        pytest.raises(ConfigError, match=r"no topic 'nothing' at .*set_topics\(\)"),
    ):
        loop.until_it_fails()


def test_properties_of_javas_client(kafka: Kafka) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, "a")
    properties = {
        "key.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
        "enable.auto.commit": "true",
        "max.poll.records": "500",
        "fetch.max.wait.ms": "10",
        "request.timeout.ms": "20000",
        "partition.discovery.interval.ms": "-1",
        "ssl.endpoint.identification.algorithm": "",
        "client.id.prefix": "mine",
        "max.request.size": "1048576",
        "buffer.memory": "33554432",
        "max.block.ms": "60000",
    }
    source = builder(kafka, topic).set_properties(properties).build()
    assert read_until(source, {f"{topic}-0": 1}) == {f"{topic}-0": ["a"]}


def unbuilt(**properties: str) -> Any:
    built = KafkaSource.builder().set_topics("t").set_value_only_deserializer(Text()).set_bootstrap_servers("b:1")
    return built.set_properties({name.replace("_", "."): value for name, value in properties.items()})


@pytest.mark.parametrize(
    ("build", "problem"),
    [
        (lambda: KafkaSource.builder().build(), "no brokers"),
        (lambda: KafkaSource.builder().set_bootstrap_servers("b:1").build(), "no topics"),
        (lambda: KafkaSource.builder().set_bootstrap_servers("b:1").set_topics("t").build(), "no deserializer"),
        (lambda: KafkaSource.builder().set_topics(), "no topics given"),
        (lambda: KafkaSource.builder().set_topics("t").set_topic_pattern("u"), "one of set_topics"),
        (lambda: KafkaSource.builder().set_topic_pattern("("), "no regular expression"),
        (lambda: KafkaSource.builder().set_on_parse_error("ignore"), "'fail' or 'skip'"),
        (lambda: KafkaSource.builder().set_deserializer(Text()), "set_value_only_deserializer"),
        (lambda: KafkaSource.builder().set_value_only_deserializer(_Whole()), "call set_deserializer"),
        (lambda: KafkaOffsetsInitializer.offsets({A: -1}), "negative offsets"),
        (lambda: unbuilt().set_starting_offsets(KafkaOffsetsInitializer.committed_offsets()).build(), "set_group_id"),
        (lambda: unbuilt(partition_discovery_interval_ms="soon").build(), "'soon'; give milliseconds"),
        (lambda: unbuilt(ssl_truststore_location="trust.jks").build(), "ssl.ca.location"),
        (
            lambda: unbuilt(sasl_jaas_config="com.sun.security.auth.module.Krb5LoginModule required;").build(),
            "kerberos",
        ),
        (
            lambda: unbuilt(sasl_jaas_config="PlainLoginModule required username=me;").build(),
            "lacks username or password",
        ),
    ],
)
def test_settings_that_cannot_be(build: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        build()


def test_credentials_are_passed_on_but_never_shown() -> None:
    source = unbuilt(
        sasl_jaas_config='org.apache.kafka.ScramLoginModule required username="me" password="hush \\"1\\"";',
        ssl_key_password="hush",
        ssl_key_pem="hush",
    ).build()
    settings = source.watch.client.settings()
    assert (settings["sasl.username"], settings["sasl.password"]) == ("me", 'hush "1"')
    assert settings["ssl.key.password"] == "hush"
    assert "hush" not in repr(source)
    assert "b:1" in repr(source)
