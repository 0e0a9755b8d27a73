"""What a topic will never take is refused before it is committed, and says why; what is refused afterwards has a way out."""

from __future__ import annotations

import json
import re
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forkpoint as fp
from forkpoint.api.execution import Job, prepare
from forkpoint.api.launch import Launch
from forkpoint.connectors.kafka import limits, transactions
from forkpoint.connectors.kafka.producing import ProducerRecord, produce, to_columns
from forkpoint.connectors.kafka.serialization import KafkaRecordSerializationSchema
from forkpoint.connectors.kafka.sink import KafkaSink
from forkpoint.driver.commit.skipped_records import Skipped
from forkpoint.errors import ConfigError, OutputRefused
from forkpoint.graph.options import RestartStrategy
from programs import ENVIRONMENT, run_python
from servers.kafka import Kafka

PROGRAM = Path(__file__).with_name("refused.py")
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def ask_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stalls the client: each refused record does."""
    monkeypatch.setattr(transactions, "_STALL_SECONDS", 0.1)


AGAIN = RestartStrategy.fixed_delay(20, 100)
LARGE = {"message.max.bytes": "5000000"}


@dataclass
class Shape(KafkaRecordSerializationSchema[int]):
    """How record number 13 differs from the others."""

    topic: str
    partition: int | None = None
    bytes: int = 3
    header_bytes: int = 0
    ahead_ms: int = 0
    key: bool = True

    def serialize(self, element: int, timestamp_ms: int | None) -> ProducerRecord:
        differs, now_ms = element == 13, time.time_ns() // 10**6
        return ProducerRecord(
            self.topic,
            b"x" * (self.bytes if differs else 3),
            b"%d" % element if self.key or not differs else None,
            [("h", b"x" * self.header_bytes)] if differs and self.header_bytes else (),
            self.partition if differs else None,
            now_ms + (self.ahead_ms if differs else 0),
        )


def job(
    root: Path,
    kafka: Kafka,
    shape: Any,
    elements: int = 30,
    properties: Any = LARGE,
    restart: RestartStrategy = AGAIN,
) -> Job:
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(str(root)).set_parallelism(2)
    env.options = replace(env.options, restart=restart)
    numbers = env.from_source(fp.CounterSource(elements, per_epoch=10), fp.WatermarkStrategy.no_watermarks(), "numbers").uid(
        "numbers"
    )
    builder = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap_servers).set_record_serializer(shape)
    for name, value in properties.items():
        builder.set_property(name, value)
    numbers.sink_to(builder.build()).uid("kafka")
    env.launch = Launch(options={"engine": "local"})
    return prepare(env, "limited")


def keys(kafka: Kafka, topic: str) -> list[int]:
    return sorted(int(message.key or b"-1") for message in kafka.read(topic))


@pytest.mark.parametrize(
    ("shape", "config", "error", "said"),
    [
        (
            {"partition": 7},
            {},
            OutputRefused,
            "partition 7, but the topic has 2 partitions, 0 to 1; correct set_partitioner",
        ),
        pytest.param({"partition": 2}, {}, OutputRefused, "partition 2, but the topic has 2", marks=pytest.mark.slow),
        ({"partition": -2}, {}, ConfigError, "a record with key b'13' is to go to partition -2"),
        pytest.param(
            {"partition": -1}, {}, ConfigError, "a record with key b'13' is to go to partition -1", marks=pytest.mark.slow
        ),
        pytest.param(
            {"bytes": 2_000_000},
            {},
            OutputRefused,
            r"2000002 bytes is larger than max.message.bytes \(1048588\) of topic",
            marks=pytest.mark.slow,
        ),
        ({"bytes": 20_000}, {"max_message_bytes": "10000"}, OutputRefused, r"larger than max.message.bytes \(10000\)"),
        pytest.param({"header_bytes": 2_000_000}, {}, OutputRefused, r"larger than max.message.bytes", marks=pytest.mark.slow),
        pytest.param(
            {"header_bytes": 6_000_000}, {}, ConfigError, r"key b'13', is larger than message.max.bytes", marks=pytest.mark.slow
        ),
        (
            {"ahead_ms": 2 * HOUR_MS},
            {},
            OutputRefused,
            r"further from now .* than the topic's message.timestamp.after.max",
        ),
        pytest.param(
            {"ahead_ms": -HOUR_MS},
            {"message_timestamp_before_max_ms": "600000"},
            OutputRefused,
            "message.timestamp.before.max.ms",
            marks=pytest.mark.slow,
        ),
        ({"key": False}, {"cleanup_policy": "compact"}, OutputRefused, "no key, which a compacted topic needs"),
    ],
)
def test_what_a_topic_refuses_is_not_committed_and_a_corrected_program_goes_on(
    kafka: Kafka, tmp_path: Path, shape: Any, config: Any, error: Any, said: str
) -> None:
    topic = kafka.create_topic(partitions=2, **config)
    with pytest.raises(error, match=said):
        job(tmp_path, kafka, Shape(topic, **shape), restart=RestartStrategy.none()).begin()()
    job(tmp_path, kafka, Shape(topic)).begin()()
    while len(found := keys(kafka, topic)) < 30:
        time.sleep(0.01)
    assert found == list(range(30))


@pytest.mark.parametrize(
    ("shape", "config"),
    [
        pytest.param({"partition": 1}, {}, marks=pytest.mark.slow),
        ({"bytes": 1_000_000}, {}),
        pytest.param({"ahead_ms": HOUR_MS - 60_000}, {}, marks=pytest.mark.slow),
        ({"ahead_ms": 9 * HOUR_MS}, {"message_timestamp_type": "LogAppendTime"}),
        pytest.param({"ahead_ms": 9 * HOUR_MS}, {"message_timestamp_after_max_ms": str(10 * HOUR_MS)}, marks=pytest.mark.slow),
        pytest.param({"bytes": 3_000_000}, {"max_message_bytes": "4000000"}, marks=pytest.mark.slow),
        pytest.param({"key": False}, {}, marks=pytest.mark.slow),
    ],
)
def test_what_a_topic_takes_is_written(kafka: Kafka, tmp_path: Path, shape: Any, config: Any) -> None:
    topic = kafka.create_topic(partitions=2, **config)
    job(tmp_path, kafka, Shape(topic, **shape)).begin()()
    while len(kafka.read(topic)) < 30:
        time.sleep(0.01)


@pytest.mark.parametrize("compression", ["none", pytest.param("lz4", marks=pytest.mark.slow)])
def test_many_records_go_to_a_topic_that_takes_small_batches_only(kafka: Kafka, tmp_path: Path, compression: str) -> None:
    """Brokers refuse a batch that is larger than max.message.bytes, however small its records are."""
    topic = kafka.create_topic(partitions=1, max_message_bytes="2000")
    job(tmp_path, kafka, Shape(topic, bytes=1000), 150, {"compression.type": compression, "linger.ms": "50"}).begin()()
    while len(found := keys(kafka, topic)) < 150:
        time.sleep(0.01)
    assert found == list(range(150))


def test_limits_that_are_raised_meanwhile_are_noticed(kafka: Kafka) -> None:
    """The sink knows what it was told at first, and asks again before it refuses anything."""
    topic = kafka.create_topic(partitions=1)
    builder = KafkaSink.builder().set_bootstrap_servers(kafka.bootstrap_servers)
    made = builder.set_record_serializer(Shape(topic)).build()
    needs = {"partition": 1, "bytes": 10, "earliest_ms": None, "latest_ms": None, "keyless": False}
    staged = [{"group": "0", "topics": [topic], "extremes": {topic: needs}}]
    with pytest.raises(OutputRefused, match="partition 1, but the topic has 1 partitions"):
        made.check(staged)
    kafka.add_partitions(topic, 2)
    made.check(staged)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the topic had taken the records when their epoch was committed."""
    monkeypatch.setattr(KafkaSink, "check", lambda *_: None)


@pytest.mark.parametrize(
    "shape",
    [
        {"bytes": 2_000_000},
        *(pytest.param(shape, marks=pytest.mark.slow) for shape in ({"partition": 7}, {"ahead_ms": 2 * HOUR_MS})),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_what_is_refused_after_the_commit_is_said_at_once(kafka: Kafka, tmp_path: Path, shape: Any) -> None:
    """Though other records wait behind it in the client."""
    topic = kafka.create_topic(partitions=2)
    with pytest.raises(OutputRefused, match=r"^sink 'kafka': Kafka at .*(Unknown partition|too large|Invalid timestamp).*; "):
        job(tmp_path, kafka, Shape(topic, **shape), 30, {**LARGE, "batch.num.messages": "1"}, RestartStrategy.none()).begin()()


def publish_without_refused(root: Path, made: Job) -> list[Skipped]:
    """What `forkpoint publish JOB --skip-refused` does with the program's sinks."""
    publisher, history = made.driver.parts.publisher, made.driver.history
    publisher.skipped = []
    newest = history.newest()
    assert newest is not None
    made.driver.starter._republisher.repeat(newest)
    return publisher.skipped


def produce_slowly(producer: Any, records: pa.RecordBatch) -> None:
    """The broker refuses a record before the others are sent."""
    for row in range(len(records)):
        produce(producer, records.slice(row, 1))
        time.sleep(0.2)  # nor has the client been asked for reports


LATER = [
    ({"partition": 7}, "partition 7, but the topic has 2"),
    ({"bytes": 2_000_000}, "larger than max.message.bytes"),
    ({"ahead_ms": 2 * HOUR_MS}, "message.timestamp.after.max.ms"),
    ({"partition": -2}, "[Uu]nknown partition"),
]


@pytest.mark.parametrize(
    ("knows", "shapes", "reason"),
    [
        pytest.param(
            knows,
            *later,
            id=f"{'known limits' if knows else 'refused by the broker'}-{number}",
            # With known limits, the command does it below.
            marks=[] if (knows, number) == (False, 1) else pytest.mark.slow,
        )
        for knows in (True, False)
        for number, later in enumerate(LATER)
    ],
)
def test_refused_records_are_skipped_on_request_and_the_job_goes_on(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knows: bool, shapes: Any, reason: str
) -> None:
    """They are in a file, the others in the topic, once; the corrected program starts, and what is repeated changes nothing."""
    topic = kafka.create_topic(partitions=2)
    with monkeypatch.context() as unchecked:
        unchecked.setattr(KafkaSink, "check", lambda *_: None)
        unchecked.setattr(limits, "_must_fit", lambda *_: None)
        for sends in (transactions.produce, produce_slowly):  # a start publishes first
            unchecked.setattr(transactions, "produce", sends)
            with pytest.raises(OutputRefused, match="--skip-refused"):
                job(tmp_path, kafka, Shape(topic, **shapes), restart=RestartStrategy.none()).begin()()
    if not knows:
        monkeypatch.setattr(transactions, "refused_rows", lambda *_: {})
        reason = ""
    for number in range(2):
        skipped = publish_without_refused(tmp_path, job(tmp_path, kafka, Shape(topic, **shapes)))
        assert [(each.uid, each.epoch, each.records) for each in skipped] == ([] if number else [("kafka", 3, 1)])
    (file,) = (tmp_path / "jobs/limited/refused/kafka").iterdir()
    (letter,) = pq.read_table(file).to_pylist()
    assert letter["topic"] == topic
    assert letter["key"] == b"13"
    assert re.search(reason, letter["error"])
    job(tmp_path, kafka, Shape(topic)).begin()()
    while len(found := keys(kafka, topic)) < 29:
        time.sleep(0.01)
    assert found == [n for n in range(30) if n != 13]


def test_refused_records_are_found_among_many() -> None:
    records = to_columns([ProducerRecord("t", b"v", b"k", partition=n % 5 if n % 100 else 7) for n in range(1000)])
    found = limits.refused_rows(records, {"t": limits.TopicLimits(5)})
    assert sorted(found) == list(range(0, 1000, 100))
    assert limits.refused_rows(records, {"t": limits.TopicLimits(8)}) == {}
    assert limits.refused_rows(records.slice(0, 0), {}) == {}


def test_the_command_publishes_all_but_what_is_refused_and_a_corrected_program_starts(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic(partitions=2)

    def forkpoint(*args: str) -> subprocess.CompletedProcess[str]:
        command = ["-m", "forkpoint.cli", "--state-root", str(tmp_path), *args]
        return run_python(command, env=ENVIRONMENT, capture_output=True, text=True)

    run = ("run", "--engine", "local", str(PROGRAM), kafka.bootstrap_servers, topic)
    for command in ((*run, "FAULTY"), run, ("publish", "refused")):  # not even the corrected program gets past it
        failed = forkpoint(*command)
        assert failed.returncode, failed.stdout
        assert "publish refused --skip-refused" in failed.stderr, failed.stderr
    done = forkpoint("publish", "refused", "--skip-refused")
    assert done.returncode == 0, done.stderr
    assert "sink kafka: refused of epoch" in done.stdout
    assert ": 1 records, in file://" in done.stdout
    again = forkpoint("publish", "refused", "--skip-refused")
    assert (again.returncode, again.stdout.count("\n")) == (0, 1), again.stderr
    corrected = forkpoint(*run)
    assert corrected.returncode == 0, corrected.stderr
    while len(found := keys(kafka, topic)) < 29:
        time.sleep(0.01)
    assert found == [n for n in range(30) if n != 13]
    (letter,) = pq.read_table(next((tmp_path / "jobs/refused/refused/kafka").iterdir())).to_pylist()
    assert (letter["key"], letter["partition"]) == (b"13", 7)
    records = [json.loads(file.read_text()) for file in tmp_path.glob("jobs/refused/runs/*/run.json")]
    assert [len(record["skipped"]) for record in records if record["skipped"]] == [1]
