"""A topic that is deleted and created anew under its name: nothing of the new one is taken for the rest of the old one."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from kafka_jobs import Loop, builder

import forkpoint as fp
from background import InBackground
from connectors.connector_reading import elements
from example_counts import examples
from forkpoint.api.execution import Job, prepare
from forkpoint.api.launch import Launch
from forkpoint.connectors.kafka import cluster, watcher
from forkpoint.connectors.kafka.feed import close_feeds
from forkpoint.errors import InputLost, StorageError
from servers.kafka import Kafka

GONE = "was deleted|re-created"  # the former, if the new topic appears only when the grace is over


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "GRACE_S", 0.1)
    monkeypatch.setattr("forkpoint.connectors.kafka.enumerator.GRACE_S", 0.1)


def anew(kafka: Kafka, topic: str, records: int, partitions: int = 1) -> None:
    kafka.delete_topic(topic)
    kafka.create_topic(topic, partitions)
    kafka.produce(topic, [f"new{n}" for n in range(records)], 0)


def old(kafka: Kafka, records: int) -> str:
    topic = kafka.create_topic()
    kafka.produce(topic, [f"old{n}" for n in range(records)])
    return topic


@pytest.mark.parametrize(
    ("records", "partitions"),
    [(19, 1), (50, 3), *(pytest.param(records, 1, marks=pytest.mark.slow) for records in (0, 20, 50))],
)
def test_a_position_reads_nothing_of_a_topic_that_was_created_anew(kafka: Kafka, records: int, partitions: int) -> None:
    topic = old(kafka, 20)
    source = builder(kafka, topic).build()
    with Loop(source) as loop:
        loop.until({f"{topic}-0": 20})
    anew(kafka, topic, records, partitions)
    with (
        Loop(source, loop.position) as again,
        pytest.raises(InputLost, match=rf"topic '{topic}' .* was deleted and re-created .* give the source a new uid"),
    ):
        again.until_it_fails()
    assert not any(again.values.values())
    with Loop(source) as fresh:
        fresh.until({f"{topic}-{p}": records if p == 0 else 0 for p in range(partitions)})
        assert fresh.values[f"{topic}-0"] == [f"new{n}" for n in range(records)]


@pytest.mark.parametrize("records", [5, pytest.param(20, marks=pytest.mark.slow), 50])
def test_an_epoch_that_read_the_new_topic_is_not_confirmed(kafka: Kafka, records: int) -> None:
    """It was planned with the old one's offsets, before that was deleted."""
    topic = old(kafka, 20)
    with Loop(builder(kafka, topic).build()) as loop:
        loop.until({f"{topic}-0": 10}, max_rows=10)
        while not (planned := loop.enumerator.plan(10)):
            pass
        close_feeds(loop.source.watch.client)  # which may have fetched more of the old one
        anew(kafka, topic, records)
        if records < 10:
            with pytest.raises(StorageError, match="re-created, or lost data"):
                elements(loop.source, planned[0])
        else:
            assert set(elements(loop.source, planned[0])) <= {f"new{n}" for n in range(10, 20)}
        with pytest.raises(InputLost, match=GONE):
            loop.enumerator.confirm()


def test_a_position_of_an_earlier_release_takes_the_topic_that_there_is(kafka: Kafka) -> None:
    topic = old(kafka, 20)
    source = builder(kafka, topic).build()
    with Loop(source, {"version": 1, "next": {f"{topic}-0": 15}, "stop": {}}) as loop:
        loop.until({f"{topic}-0": 20})
        assert loop.values == {f"{topic}-0": [f"old{n}" for n in range(15, 20)]}
    anew(kafka, topic, 50)
    with Loop(source, loop.position) as again, pytest.raises(InputLost, match="re-created"):
        again.until_it_fails()


def test_brokers_without_ids_are_read_all_the_same(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = old(kafka, 20)
    with monkeypatch.context() as without:
        without.setattr(cluster.Cluster, "topic_ids", lambda _, topics: dict.fromkeys(topics, ""))
        with Loop(builder(kafka, topic).build()) as loop:
            loop.until({f"{topic}-0": 10}, max_rows=10)
            assert loop.position["topics"] == {}
    with Loop(builder(kafka, topic).build(), loop.position) as learns:
        learns.until({f"{topic}-0": 20})
        assert learns.position["topics"].keys() == {topic}
    monkeypatch.setattr(cluster.Cluster, "topic_ids", lambda _, topics: dict.fromkeys(topics, ""))
    kafka.produce(topic, ["old20"])
    with Loop(builder(kafka, topic).build(), learns.position) as forgets:
        forgets.until({f"{topic}-0": 21})


@examples(5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.integers(1, 30), st.sampled_from(["step", "step", "restart", "anew"])), max_size=8))
def test_what_is_confirmed_is_the_beginning_of_the_first_topic(kafka: Kafka, events: list[Any]) -> None:
    """Whatever is produced, read, restarted and replaced, in any order."""
    topic = kafka.create_topic()
    source = builder(kafka, topic).build()
    names, name, counts, confirmed = iter("bcdefghi"), "a", dict.fromkeys("abcdefghi", 0), list[str]()
    loop = Loop(source)
    loop.until({f"{topic}-0": 0})
    try:
        for event in [*events, 5, "step", "step"]:
            if event == "anew":
                kafka.delete_topic(topic)
                kafka.create_topic(topic)
                name = next(names)
            elif event == "restart":
                loop.enumerator.close()
                loop = Loop(source, loop.position)
            elif event == "step":
                time.sleep(0.05)  # for the watcher
                planned = loop.enumerator.plan(7)
                read = [value for range_ in planned for value in elements(source, range_)]
                if planned:
                    loop.enumerator.confirm()
                confirmed += read
            else:
                kafka.produce(topic, [f"{name}{n}" for n in range(counts[name], counts[name] + event)])
                counts[name] += event
    except (InputLost, StorageError):
        assert name != "a"
    finally:
        loop.enumerator.close()
    assert confirmed == [f"a{n}" for n in range(counts["a"])][: len(confirmed)]


def job(root: Path, source: Any, uid: str = "lines", **options: Any) -> Job:
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root)).set_parallelism(1)
    lines = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "lines").uid(uid)
    lines.sink_to(fp.FileSink.json(str(root / "out"))).uid("out")
    env.launch = Launch(options={"engine": "local"}, **options)
    return prepare(env, "reading")


def written(root: Path) -> list[str]:
    files = sorted((root / "out").rglob("*.json*"))
    return [line.strip().strip('"') for file in files for line in file.read_text().splitlines()]


def test_a_running_job_ends_and_what_it_wrote_is_of_the_old_topic_only(kafka: Kafka, tmp_path: Path) -> None:
    topic = old(kafka, 20)
    source = builder(kafka, topic).build()
    running = InBackground(job(tmp_path, source))
    while len(written(tmp_path)) < 20:
        running.wait_for(lambda s: s.state == "running")
    anew(kafka, topic, 50)
    error = running.end()
    assert isinstance(error, InputLost), error
    assert re.search(GONE, str(error)), error
    for _ in range(2):
        with pytest.raises(InputLost, match="re-created"):
            job(tmp_path, source).begin()()
    assert written(tmp_path) == [f"old{n}" for n in range(20)]
