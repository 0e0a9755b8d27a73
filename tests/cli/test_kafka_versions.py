"""From Kafka to Kafka with the command line: savepoints, forks, rescaling, upgrades, and partitions that are added meanwhile."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import pytest
from cli_process import Cli

from servers.kafka import Kafka, Message

USERS = 20
APP = """
import sys
from typing import NamedTuple

import forkpoint as fp


class Event(NamedTuple):
    user: int
    number: int


class Counted(NamedTuple):
    user: int
    number: int
    count: int
    version: str


class User(fp.SerializationSchema[Counted]):
    def serialize(self, element):
        return b"%d" % element.user


def counted(event, state):
    state = (state or 0) + 1
    return Counted(event.user, event.number, state, "v1"), state


def main(brokers, topic, to):
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(50)
    source = (
        fp.KafkaSource.builder().set_bootstrap_servers(brokers).set_topics(topic)
        .set_starting_offsets(fp.KafkaOffsetsInitializer.earliest())
        .set_property("partition.discovery.interval.ms", "100")
        .set_value_only_deserializer(fp.JsonRowDeserializationSchema(Event)).build()
    )
    records = (
        fp.KafkaRecordSerializationSchema.builder().set_topic(to).set_key_serialization_schema(User())
        .set_value_serialization_schema(fp.JsonRowSerializationSchema(Counted)).build()
    )
    sink = fp.KafkaSink.builder().set_bootstrap_servers(brokers).set_record_serializer(records).build()
    events = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "events").uid("events")
    counts = events.key_by(lambda event: event.user, int).map_with_state(counted, int, Counted).uid("counts")
    counts.sink_to(sink).uid("out")
    env.execute("counts")


main(*sys.argv[1:])
"""


class Feed:
    """Records numbers until it is stopped. ``sent``: how many."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._kafka, self._topic = kafka, topic
        self._stopped = threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        for start in count(0, 40):
            if self._stopped.is_set():
                return
            events = [(n % USERS, n) for n in range(start, start + 40)]
            messages = [Message(json.dumps({"user": u, "number": n}).encode(), b"%d" % u) for u, n in events]
            self._kafka.produce(self._topic, messages)
            self.sent = start + 40
            time.sleep(0.05)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> int:
        self._stopped.set()
        self._thread.join()
        return self.sent


def received(kafka: Kafka, topic: str) -> list[dict]:
    return [json.loads(value) for value in kafka.values(topic)]


def check_each_once(kafka: Kafka, topic: str, sent: int, *, ordered: bool = True) -> set[str]:
    """Each record has arrived once, with the counts of an undisturbed run, those of a user in order. Returns their versions."""
    while len(found := received(kafka, topic)) < sent:
        time.sleep(0.05)
    assert Counter(each["number"] for each in found) == Counter(range(sent))
    for counts in counts_by_user(kafka, topic).values():
        assert (counts if ordered else sorted(counts)) == list(range(1, len(counts) + 1))
    return {each["version"] for each in found}


def wait_received(kafka: Kafka, topic: str, more: int) -> None:
    goal = len(received(kafka, topic)) + more
    while len(received(kafka, topic)) < goal:
        time.sleep(0.2)


@pytest.fixture
def job(cli: Cli, kafka: Kafka) -> Iterator[tuple[Cli, Feed, str, str]]:
    """The job ``counts``, running, with records that keep coming; the topics it reads and writes."""
    cli.write("app.py", APP)
    topic, to = kafka.create_topic(partitions=4), kafka.create_topic(partitions=4)
    feed = Feed(kafka, topic)
    with feed.running():
        cli.json("run", "-d", "-p", "1", "app.py", "--", kafka.bootstrap_servers, topic, to)
        wait_received(kafka, to, 40)
        yield cli, feed, topic, to


@pytest.mark.slow
def test_a_fork_goes_on_into_a_topic_of_its_own(job: tuple[Cli, Feed, str, str], kafka: Kafka) -> None:
    cli, feed, topic, to = job
    other = kafka.create_topic(partitions=2)
    savepoint = cli.json("savepoint", "counts")["savepoint"]
    cli.json("fork", savepoint, "app.py", "-d", "--name", "other", "--", kafka.bootstrap_servers, topic, other)
    wait_received(kafka, other, 100)
    sent = feed.stop()
    check_each_once(kafka, to, sent)
    totals = Counter(n % USERS for n in range(sent))
    while {user: max(c) for user, c in counts_by_user(kafka, other).items()} != totals:
        time.sleep(0.05)
    for user, counts in counts_by_user(kafka, other).items():
        assert counts[0] > 1, "the fork has the state of the savepoint"
        assert counts == list(range(counts[0], totals[user] + 1))


def counts_by_user(kafka: Kafka, topic: str) -> dict[int, list[int]]:
    """In the order of their records."""
    found: dict[int, list[int]] = {}
    for each in received(kafka, topic):
        found.setdefault(each["user"], []).append(each["count"])
    return found


def test_rescaling_while_it_runs(job: tuple[Cli, Feed, str, str], kafka: Kafka) -> None:
    cli, feed, _, to = job
    for parallelism in ("4", "2"):
        cli.json("rescale", "counts", "-p", parallelism)
        wait_received(kafka, to, 100)
    check_each_once(kafka, to, feed.stop())


@pytest.mark.slow
def test_rescaling_by_a_savepoint(job: tuple[Cli, Feed, str, str], kafka: Kafka) -> None:
    cli, feed, topic, to = job
    for parallelism in ("4", "2"):
        savepoint = cli.json("stop", "counts")["savepoint"]
        run = ("run", "-d", "-s", savepoint, "-p", parallelism, "app.py", "--", kafka.bootstrap_servers, topic, to)
        cli.json(*run)
        wait_received(kafka, to, 100)
    check_each_once(kafka, to, feed.stop())


def test_an_upgrade_with_a_trial(job: tuple[Cli, Feed, str, str], kafka: Kafka) -> None:
    cli, feed, topic, to = job
    cli.write("app2.py", APP.replace('"v1"', '"v2"'))
    done = cli.json("upgrade", "counts", "app2.py", "--", kafka.bootstrap_servers, topic, to)
    assert done["outcome"] == "upgraded"
    wait_received(kafka, to, 100)
    assert check_each_once(kafka, to, feed.stop()) == {"v1", "v2"}


def test_partitions_that_are_added(job: tuple[Cli, Feed, str, str], kafka: Kafka) -> None:
    cli, feed, topic, to = job
    kafka.add_partitions(topic, 8)
    wait_received(kafka, to, 200)
    sent = feed.stop()
    # A user's records go to another partition from then on, so their order is that of two partitions.
    check_each_once(kafka, to, sent, ordered=False)
    assert cli.jobs()[0]["state"] == "running"
