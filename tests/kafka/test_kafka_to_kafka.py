"""From Kafka through state to Kafka: each record once and in order, though the driver is killed again and again."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from programs import Python
from servers.kafka import Kafka, Message

PROGRAM = Path(__file__).with_name("counting.py")
USERS = 20


def produce(kafka: Kafka, topic: str, start: int, stop: int) -> None:
    kafka.produce(
        topic,
        [Message(json.dumps({"user": n % USERS, "number": n}).encode(), b"%d" % (n % USERS)) for n in range(start, stop)],
    )


def received(kafka: Kafka, topic: str) -> dict[int, list[tuple[int, int]]]:
    """Each user's records, in order: their numbers and counts."""
    found: dict[int, list[tuple[int, int]]] = {}
    for message in kafka.read(topic):
        assert message.value is not None
        record = json.loads(message.value)
        assert message.key == b"%d" % record["user"]
        found.setdefault(record["user"], []).append((record["number"], record["count"]))
    return found


def expected(records: int) -> dict[int, list[tuple[int, int]]]:
    return {user: [(n, n // USERS + 1) for n in range(user, records, USERS)] for user in range(USERS)}


def start(kafka: Kafka, topic: str, to: str, root: Path, engine: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "FORKPOINT_ENGINE": engine,
        "SPARK_MASTER": "local[2]",
        "PYSPARK_PYTHON": sys.executable,
    }
    command = [PROGRAM, kafka.bootstrap_servers, topic, to, root]
    return Python(command, env=environment, start_new_session=True, stderr=subprocess.PIPE)


def killed_until_done(kafka: Kafka, root: Path, engine: str, records: int, kills: int, longest_s: float) -> None:
    rng = random.Random(4)
    topic, to = kafka.create_topic(partitions=4), kafka.create_topic(partitions=4)
    for kill in range(kills):
        produce(kafka, topic, records * kill // kills, records * (kill + 1) // kills)
        before = len(kafka.read(to))
        driver = start(kafka, topic, to, root, engine)
        while len(kafka.read(to)) == before and driver.poll() is None:
            time.sleep(0.05)  # it has sent something
        time.sleep(rng.uniform(0, longest_s))
        assert driver.poll() is None, driver.communicate()[1].decode()[-3000:]
        os.killpg(driver.pid, signal.SIGKILL)
        driver.communicate()
    driver = start(kafka, topic, to, root, engine)
    while sum(map(len, received(kafka, to).values())) < records:
        assert driver.poll() is None, driver.communicate()[1].decode()[-3000:]
        time.sleep(0.2)
    time.sleep(0.5)  # for what would come twice
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()
    assert received(kafka, to) == expected(records)


def test_kills_at_random(kafka: Kafka, tmp_path: Path) -> None:
    killed_until_done(kafka, tmp_path, "local", records=1_500, kills=3, longest_s=0.5)


@pytest.mark.slow
@pytest.mark.spark
def test_kills_at_random_on_spark(kafka: Kafka, tmp_path: Path) -> None:
    """Of the driver with its JVM and Python workers."""
    killed_until_done(kafka, tmp_path, "spark", records=20_000, kills=2, longest_s=1.0)
