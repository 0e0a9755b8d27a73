"""The Kafka sink against a real broker: each record once and in order, whoever dies, sleeps or is fenced."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from sending import KEYS, Part, build, expected, sink

import forkpoint as fp
from background import InBackground
from forkpoint.api.execution import Job, prepare
from forkpoint.api.launch import Launch
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.manifest import EpochOutput, Manifest
from forkpoint.connectors.kafka import transactions
from forkpoint.connectors.kafka.client import KafkaClient
from forkpoint.connectors.kafka.producing import QUEUED_BYTES, SCHEMA, ProducerRecord, producer_settings, to_columns
from forkpoint.connectors.kafka.serialization import KafkaRecordSerializationSchema
from forkpoint.connectors.kafka.sink import DeliveryGuarantee, KafkaSink
from forkpoint.connectors.kafka.transactions import TransactionalCommitter
from forkpoint.connectors.rows import pack_columns
from forkpoint.contract.sink import CommitterContext, SinkContext
from forkpoint.driver.commit import publisher
from forkpoint.errors import ConfigError, JobFailed, StorageUnavailable, SystemUnavailable
from forkpoint.graph.options import RestartStrategy
from patience import PATIENCE_S
from programs import ENVIRONMENT, run_python
from servers.kafka import Kafka

PROGRAM = Path(__file__).with_name("sending.py")
ELEMENTS = 300


def job(root: Path, to: Any, elements: int = ELEMENTS, *, name: str = "sending", parallelism: int = 2, **options: Any) -> Job:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root)).set_parallelism(parallelism)
    env.options = replace(env.options, restart=options.pop("restart", RestartStrategy.fixed_delay(3, 1)))
    build(env, elements, to)
    env.launch = Launch(options={"engine": "local"}, **options)
    return prepare(env, name)


def run(root: Path, to: Any, elements: int = ELEMENTS, **options: Any) -> Any:
    return job(root, to, elements, **options).begin()()


def received(kafka: Kafka, topic: str) -> dict[bytes, list[int]]:
    """The values of each key, in order, once all has been sent. A key is in one partition."""
    kafka.settle(topic)
    found: dict[bytes, list[int]] = {}
    for message in kafka.read(topic):
        assert message.key is not None
        assert message.value is not None
        found.setdefault(message.key, []).append(int(message.value))
    return found


def program(kafka: Kafka, topic: str, root: Path, *more: str) -> list[object]:
    return [PROGRAM, kafka.bootstrap_servers, topic, root, ELEMENTS, *more]


def test_records_arrive_once_and_in_order(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic(partitions=4)
    run(tmp_path, sink(kafka.bootstrap_servers, topic))
    assert received(kafka, topic) == expected(ELEMENTS)
    assert len({message.partition for message in kafka.read(topic)}) > 1


@pytest.mark.parametrize("guarantee", [DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE])
def test_an_epoch_may_be_larger_than_the_clients_queue(kafka: Kafka, tmp_path: Path, guarantee: DeliveryGuarantee) -> None:
    topic = kafka.create_topic(partitions=4)
    run(tmp_path, sink(kafka.bootstrap_servers, topic, guarantee, queue_buffering_max_messages="10"), 100)
    assert received(kafka, topic) == expected(100)


def test_the_clients_queue_takes_the_largest_record() -> None:
    client = KafkaClient({"bootstrap.servers": "a:1"})
    assert producer_settings(client)["queue.buffering.max.kbytes"] == QUEUED_BYTES >> 10
    large = KafkaClient({"bootstrap.servers": "a:1", "message.max.bytes": "900000000"})
    assert producer_settings(large)["queue.buffering.max.kbytes"] << 10 > 900_000_000
    Producer(producer_settings(large))  # librdkafka has a limit


@pytest.mark.parametrize(
    "step",
    [  # the slow ones leave the same state as these two, an open transaction or a committed one, or none, as at the start
        pytest.param("init", marks=pytest.mark.slow),
        pytest.param("init+", marks=pytest.mark.slow),
        pytest.param("begin+", marks=pytest.mark.slow),
        "produce+",
        pytest.param("offsets", marks=pytest.mark.slow),
        pytest.param("offsets+", marks=pytest.mark.slow),
        pytest.param("commit", marks=pytest.mark.slow),
        "commit+",
    ],
)
def test_a_driver_that_is_killed_at_a_step_of_sending(kafka: Kafka, tmp_path: Path, step: str) -> None:
    topic = kafka.create_topic(partitions=4)
    for number in ("1", "2" if step.startswith("init") else "3"):  # there are two producers
        died = run_python(program(kafka, topic, tmp_path, step, number), env=ENVIRONMENT, capture_output=True)
        assert died.returncode == -9, died.stderr.decode()
    run_python(program(kafka, topic, tmp_path), env=ENVIRONMENT, check=True)
    assert received(kafka, topic) == expected(ELEMENTS)


# -- another one at the same commit


def committer(kafka: Kafka, root: Path, **properties: str) -> TransactionalCommitter:
    context = CommitterContext("sink", "job", "0", "0123", str(root))
    own = {name.replace("_", "."): value for name, value in properties.items()}
    return TransactionalCommitter(context, KafkaClient({"bootstrap.servers": kafka.bootstrap_servers, **own}), root.name)


def output(root: Path, topic: str, epoch: int, values: range) -> EpochOutput:
    context = SinkContext("sink", "job", epoch, 0, f"a{epoch}", 1, str(root))
    records = to_columns([ProducerRecord(topic, str(value).encode()) for value in values])
    return EpochOutput(
        epoch=epoch,
        committables=[{"group": "0", "topics": [topic], "records": context.stage(pack_columns([records], SCHEMA))}],
    )


@pytest.mark.parametrize("step", ["sent", "send"])
def test_a_task_that_sleeps_while_another_commits_sends_nothing(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    topic = kafka.create_topic()
    outputs = [output(tmp_path, topic, 1, range(10)), output(tmp_path, topic, 2, range(10, 20))]
    usual = getattr(transactions._Transactions, step)
    others = [lambda: committer(kafka, tmp_path).commit(outputs[0], 2)]

    def sleeps(self: Any, *arguments: Any) -> Any:
        result = usual(self, *arguments) if step == "sent" else None
        if others:
            others.pop()()
        return usual(self, *arguments) if step == "send" else result

    monkeypatch.setattr(transactions._Transactions, step, sleeps)
    slow = committer(kafka, tmp_path)
    slow.commit(outputs[0], 2)
    slow.commit(outputs[1], 2)
    assert not others
    kafka.settle(topic)
    assert [int(message.value or b"") for message in kafka.read(topic)] == list(range(20))


@pytest.mark.parametrize("then", ["commit", "twice", "other output", "close", "another committer", "old"])
def test_what_is_sent_before_the_commit(kafka: Kafka, tmp_path: Path, then: str) -> None:
    """It is visible after the commit of the same output only; and once it has been given up, it holds back no reader."""
    topic = kafka.create_topic()
    sent, other = output(tmp_path, topic, 1, range(10)), output(tmp_path, topic, 1, range(10, 20))
    one = committer(kafka, tmp_path)
    if then == "old":  # it was sent and committed by another run
        committer(kafka, tmp_path).commit(sent, 1)
        kafka.settle(topic)
    for _ in range(2 if then == "twice" else 1):
        one.pre_commit(sent)
    assert len(kafka.read(topic)) == (10 if then == "old" else 0)
    assert (kafka.ends(topic) == kafka.ends(topic, committed=False)) == (then == "old")
    if then == "close":
        one.close()
        kafka.settle(topic)
    last = {"other output": other, "close": other}.get(then, sent)
    (one if then in ("commit", "twice", "other output") else committer(kafka, tmp_path)).commit(last, 1)
    if then in ("another committer", "old"):
        one.commit(sent, 1)
    kafka.settle(topic)
    assert [int(message.value or b"") for message in kafka.read(topic)] == list(range(10) if last is sent else range(10, 20))


@pytest.mark.slow
def test_what_is_sent_before_a_commit_that_takes_too_long(kafka: Kafka, tmp_path: Path) -> None:
    """The broker has aborted the transaction meanwhile, which it looks for each ten seconds."""
    topic = kafka.create_topic()
    one, sent = committer(kafka, tmp_path, transaction_timeout_ms="1000"), output(tmp_path, topic, 1, range(10))
    one.pre_commit(sent)
    kafka.settle(topic)
    assert not kafka.read(topic)
    one.commit(sent, 1)
    kafka.settle(topic)
    assert [int(message.value or b"") for message in kafka.read(topic)] == list(range(10))


def test_an_epoch_fails_after_its_output_was_sent(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt computes and sends it again."""
    topic = kafka.create_topic(partitions=4)
    commit, failed = History.commit, list[int]()

    def fails(self: History, manifest: Manifest, **options: Any) -> None:
        if manifest.epoch == 3 and not failed:
            failed.append(manifest.epoch)
            until = time.monotonic() + PATIENCE_S
            while kafka.ends(topic) == kafka.ends(topic, committed=False):
                assert time.monotonic() < until
                time.sleep(0.01)
            raise StorageUnavailable("the storage is away")
        commit(self, manifest, **options)

    monkeypatch.setattr(History, "commit", fails)
    run(tmp_path, sink(kafka.bootstrap_servers, topic))
    assert failed
    assert received(kafka, topic) == expected(ELEMENTS)


def test_a_commit_goes_on_after_what_was_sent(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic()
    first, second = output(tmp_path, topic, 1, range(10)), output(tmp_path, topic, 2, range(10, 20))
    for one in (first, first, second, first, second):
        committer(kafka, tmp_path).commit(one, 2)
    kafka.settle(topic)
    assert [int(message.value or b"") for message in kafka.read(topic)] == list(range(20))


def test_a_state_root_that_was_put_back_is_refused(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic()
    committer(kafka, tmp_path).commit(output(tmp_path, topic, 9, range(1)), 9)
    with pytest.raises(JobFailed, match=r"epoch 9 was committed, but the job\'s newest is 2\..*earlier copy"):
        committer(kafka, tmp_path).commit(output(tmp_path, topic, 2, range(1)), 2)


# -- a broker that fails


@pytest.fixture
def own_broker(tmp_path: Path) -> Any:
    kafka = Kafka(tmp_path / "broker")
    yield kafka
    kafka.stop()


@pytest.mark.slow  # test_kafka_faults.py does it to a source and a sink
def test_a_broker_that_is_killed_and_comes_back(own_broker: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "SLOW_SECONDS", 0.5)
    monkeypatch.setattr(transactions, "ANSWER_SECONDS", 3.0)
    kafka, elements = own_broker, 6_000  # 120 epochs
    topic = kafka.create_topic(partitions=4)
    running = InBackground(job(tmp_path / "root", sink(kafka.bootstrap_servers, topic), elements))
    for epoch in (5, 25):
        running.wait_for(lambda s, epoch=epoch: s.epoch >= epoch)
        kafka.kill()
        status = running.wait_for(lambda s: s.publishing_problem is not None)
        assert status.state == "running"
        assert status.publishing_problem.startswith("sink 'kafka'")
        kafka.start()
    assert running.end().outcome == "finished"
    assert received(kafka, topic) == expected(elements)
    assert running.driver.status().restarts == 0


@pytest.mark.parametrize(
    "step",
    [
        "send_offsets_to_transaction",
        *(pytest.param(step, marks=pytest.mark.slow) for step in ("init_transactions", "commit_transaction")),
    ],
)
def test_a_client_that_does_not_return_is_replaced(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    topic = kafka.create_topic()
    first, second = output(tmp_path, topic, 1, range(10)), output(tmp_path, topic, 2, range(10, 20))
    hangs, returned, goes_on = [step], threading.Event(), threading.Event()
    kafka.transactional_producer()  # a new broker's coordinator takes longer than the second below

    class Hanging(confluent_kafka.Producer):
        """A producer one of whose calls returns only at the end, as librdkafka's do after a broker's restart."""

    def call(self: Any, *arguments: Any) -> None:
        if hangs:
            hangs.pop()
            goes_on.wait()
            with suppress(confluent_kafka.KafkaException):
                getattr(confluent_kafka.Producer, step)(self, *arguments)
            returned.set()
        else:
            getattr(confluent_kafka.Producer, step)(self, *arguments)

    call.__name__ = step
    setattr(Hanging, step, call)
    with monkeypatch.context() as patched:
        patched.setattr("confluent_kafka.Producer", Hanging)
        patched.setattr(transactions, "ANSWER_SECONDS", 1.0)
        patched.setattr(transactions, "_LATE_SECONDS", 0.1)
        mine = committer(kafka, tmp_path)
        with pytest.raises(SystemUnavailable, match=f"did not return from {step} within"):
            mine.commit(first, 2)
        mine.close()
    mine.commit(first, 2)
    goes_on.set()
    assert returned.wait(PATIENCE_S)
    mine.commit(second, 2)
    kafka.settle(topic)
    assert [int(message.value or b"") for message in kafka.read(topic)] == list(range(20))


def test_a_topic_that_is_missing_is_refused_before_anything_is_committed(kafka: Kafka, tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="topic 'nowhere', which does not exist; create it"):
        run(tmp_path, sink(kafka.bootstrap_servers, "nowhere"), restart=RestartStrategy.none())
    topic = kafka.create_topic(partitions=4)
    run(tmp_path, sink(kafka.bootstrap_servers, topic))
    assert received(kafka, topic) == expected(ELEMENTS)


def misses_the_partition(*_: Any) -> None:
    raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))


def test_a_topic_that_is_deleted_under_the_job_is_an_error_and_a_new_one_gets_the_rest(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "ANSWER_SECONDS", 2.0)
    topic = kafka.create_topic(partitions=4)
    to = sink(kafka.bootstrap_servers, topic, topic_metadata_propagation_max_ms="100")
    running = InBackground(job(tmp_path, to, 1500, restart=RestartStrategy.none()))
    running.wait_for(lambda s: s.epoch >= 3)
    kafka.delete_topic(topic)
    error = running.end()
    assert isinstance(error, JobFailed), error
    assert "create the topic" in str(error)
    with monkeypatch.context() as seen_by_client:
        seen_by_client.setattr(transactions, "produce", misses_the_partition)
        with pytest.raises(JobFailed, match=f"topic '{topic}' does not exist; create the topic"):
            run(tmp_path, to, elements=1500, restart=RestartStrategy.none())
    before = {b"%d" % key: 0 for key in range(KEYS)}
    kafka.create_topic(topic, partitions=4)
    run(tmp_path, sink(kafka.bootstrap_servers, topic), elements=1500)
    rest = received(kafka, topic)
    assert all(counts == list(range(counts[0], 151)) and counts[0] > before[key] for key, counts in rest.items())


def test_brokers_that_cannot_be_reached_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forkpoint.connectors.kafka.limits.ANSWER_SECONDS", 1.0)
    with pytest.raises(SystemUnavailable, match=r"Kafka at 127\.0\.0\.1:1 does not work: "):
        run(tmp_path, sink("127.0.0.1:1", "t"), restart=RestartStrategy.none())


# -- records


def test_a_record_that_is_too_large_fails_before_its_epoch_is_committed(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic()
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(tmp_path))
    env.options = replace(env.options, restart=RestartStrategy.none())
    values = env.from_collection([(1, "x" * 2_000_000)], tuple[int, str]).uid("values")
    values.sink_to(sink(kafka.bootstrap_servers, topic)).uid("kafka")
    env.launch = Launch(options={"engine": "local"})
    with pytest.raises(fp.ForkpointError, match=r"a record of 2000001 bytes, with key b'1', is larger than message.max.bytes"):
        prepare(env, "large").begin()()
    assert kafka.read(topic) == []


class Everything(KafkaRecordSerializationSchema[int]):
    """A schema of a user's own."""

    def __init__(self, topics: list[str]) -> None:
        self._topics = topics

    def serialize(self, element: int, timestamp_ms: int | None) -> ProducerRecord:
        headers = [("parity", b"odd" if element % 2 else b"even"), ("none", None)]
        return ProducerRecord(self._topics[element % 2], None if element == 4 else b"v%d" % element, None, headers, element % 3)


def test_a_schema_of_ones_own_decides_on_everything(kafka: Kafka, tmp_path: Path) -> None:
    topics = [kafka.create_topic(partitions=3), kafka.create_topic(partitions=3)]
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(tmp_path))
    times = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: 1000 + e)
    numbers = env.from_source(fp.CollectionSource(list(range(10)), fp.Types.LONG()), times, "numbers").uid("numbers")
    builder = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap_servers)
    numbers.sink_to(builder.set_record_serializer(Everything(topics)).build()).uid("kafka")
    env.launch = Launch(options={"engine": "local"})
    prepare(env, "everything").begin()()
    for parity, topic in enumerate(topics):
        kafka.settle(topic)
        messages = kafka.read(topic)
        assert sorted((m.partition, m.timestamp_ms, m.value) for m in messages) == sorted(
            (n % 3, 1000 + n, None if n == 4 else b"v%d" % n) for n in range(parity, 10, 2)
        )
        assert {m.headers for m in messages} == {(("parity", b"odd" if parity else b"even"), ("none", None))}


@pytest.mark.parametrize("headers", [(), pytest.param((("h", b"1"),), marks=pytest.mark.slow)])
def test_times_arrive_as_they_are_or_a_millisecond_off_where_the_client_cannot_send_them(
    kafka: Kafka, tmp_path: Path, headers: Any
) -> None:
    """Of event time and of records' own; those before 1970 too. 0 is no time for librdkafka, -1 none for Kafka."""
    times = [0, 1, -1, -2, -3, 1_000_000, -86_400_000]

    @dataclass
    class Timed(KafkaRecordSerializationSchema[int]):
        topic: str
        own: bool

        def serialize(self, element: int, timestamp_ms: int | None) -> ProducerRecord:
            time_ms = element if self.own else None
            return ProducerRecord(self.topic, b"%d" % element, headers=headers, timestamp_ms=time_ms)

    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e)
    for own in (False, True):
        topic = kafka.create_topic()
        env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(tmp_path / topic))
        stream = env.from_source(fp.CollectionSource(times, fp.Types.LONG()), strategy, "times").uid("times")
        builder = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap_servers)
        stream.sink_to(builder.set_record_serializer(Timed(topic, own)).build()).uid("kafka")
        env.launch = Launch(options={"engine": "local"})
        prepare(env, "times").begin()()
        kafka.settle(topic)
        assert {int(m.value or b""): m.timestamp_ms for m in kafka.read(topic)} == {
            **{each: each for each in times},
            0: 1,
            -1: -2,
        }


def test_a_topic_selector_and_a_partitioner(kafka: Kafka, tmp_path: Path) -> None:
    topics = [kafka.create_topic(partitions=2), kafka.create_topic(partitions=2)]
    records = KafkaRecordSerializationSchema.builder().set_topic_selector(lambda e: topics[e[0] % 2])
    records.set_value_serialization_schema(Part(1)).set_partitioner(lambda e: e[0] // 2 % 2)
    builder = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_record_serializer(records.build())
    run(tmp_path, builder.build())
    for parity, topic in enumerate(topics):
        kafka.settle(topic)
        found = {0: 0, 1: 0}
        for message in kafka.read(topic):
            found[message.partition or 0] += 1
        counts = {key: len(values) for key, values in expected(ELEMENTS).items()}
        wanted = {p: sum(counts[b"%d" % k] for k in range(parity, KEYS, 2) if k // 2 % 2 == p) for p in (0, 1)}
        assert found == wanted


def test_at_least_once_sends_before_the_commit(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic(partitions=4)
    run(tmp_path, sink(kafka.bootstrap_servers, topic, DeliveryGuarantee.AT_LEAST_ONCE), 100)
    assert received(kafka, topic) == expected(100)
    with pytest.raises(JobFailed, match="create the topic"):
        run(
            tmp_path / "x",
            sink(
                kafka.bootstrap_servers,
                "nowhere",
                DeliveryGuarantee.AT_LEAST_ONCE,
                topic_metadata_propagation_max_ms="100",
            ),
            restart=RestartStrategy.none(),
        )


# -- other layouts and jobs


def test_rescaled_runs_go_on_in_order(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic(partitions=4)
    running = InBackground(job(tmp_path, sink(kafka.bootstrap_servers, topic), 1500, parallelism=1))
    for epoch, parallelism in ((3, 4), (10, 2)):
        running.wait_for(lambda s, epoch=epoch: s.epoch >= epoch)
        running.driver.rescale(parallelism).done.result()
    assert running.end().outcome == "finished"
    assert received(kafka, topic) == expected(1500)


def test_a_fork_sends_under_ids_of_its_own(kafka: Kafka, tmp_path: Path) -> None:
    """To another topic, from a savepoint in the middle; the original goes on meanwhile."""
    topic, other = kafka.create_topic(partitions=4), kafka.create_topic(partitions=4)
    original = InBackground(job(tmp_path, sink(kafka.bootstrap_servers, topic), 1500))
    original.wait_for(lambda s: s.epoch >= 3)
    savepoint = original.driver.savepoint().done.result()
    run(
        tmp_path,
        sink(kafka.bootstrap_servers, other),
        1500,
        name="fork",
        restore=fp.graph.options.RestoreOptions(savepoint),
    )
    assert original.end().outcome == "finished"
    assert received(kafka, topic) == expected(1500)
    forked = received(kafka, other)
    assert all(counts == list(range(counts[0], 151)) for counts in forked.values())
    assert sum(map(len, forked.values())) < 1500


# -- settings


def test_what_is_missing_is_said() -> None:
    with pytest.raises(ConfigError, match="no brokers; call set_bootstrap_servers"):
        KafkaSink.builder().build()
    with pytest.raises(ConfigError, match="no serializer; call set_record_serializer"):
        KafkaSink.builder().set_bootstrap_servers("b:1").build()
    with pytest.raises(ConfigError, match="no topic"):
        KafkaRecordSerializationSchema.builder().build()
    with pytest.raises(ConfigError, match="no value schema"):
        KafkaRecordSerializationSchema.builder().set_topic("t").build()
