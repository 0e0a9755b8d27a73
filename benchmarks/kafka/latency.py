"""Latency from Kafka through a count by key to Kafka, exactly once, of a steady stream.

    python benchmarks/kafka/latency.py [--rate N] [--seconds N] [--only NAME …] [--interval-ms MS]

Records carry the time at which they are produced; a consumer of committed records compares it with the time at which it has
them. Output becomes visible when a checkpoint is complete, so an interval of MS adds MS / 2 on average.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from broker import KEYS, PARTITIONS, Broker, broker, producer, record
from confluent_kafka import Consumer, TopicPartition
from sides import NAMES, available, command, running

_TICK_S = 0.005
WARM_UP_S = 40.0


def produce(brokers: str, topic: str, rate: int, seconds: float) -> None:
    """Produce ``rate`` records a second, in a process of its own."""
    to = producer({"bootstrap.servers": brokers}, **{"linger.ms": 2})
    users, began, done = random.Random(7), time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        for number in range(done, due := int(passed * rate)):
            to.produce(topic, record(number, users.randrange(KEYS), time.time_ns() // 1000), partition=number % PARTITIONS)
        done = due
        to.poll(0)
        time.sleep(_TICK_S)
    to.flush()


def latencies(kafka: Broker, topic: str, since_us: float, until_us: float) -> np.ndarray:
    """The latencies, in ms, of what was produced between two times."""
    settings = {**kafka._client, "group.id": "latency", "isolation.level": "read_committed", "fetch.wait.max.ms": 5}
    consumer = Consumer({**settings, "enable.auto.commit": False, "fetch.queue.backoff.ms": 5})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: list[float] = []
    ended = until_us + 10e6
    while (now := time.time_ns() / 1000) < ended:
        for message in consumer.consume(10_000, timeout=0.01):
            if message.error() is None:
                sent_us = json.loads(message.value())["sent_us"]
                now = time.time_ns() / 1000
                if since_us <= sent_us < until_us:
                    found.append((now - sent_us) / 1000)
                elif sent_us >= until_us:
                    ended = min(ended, now + 1e6)
    consumer.close()
    return np.array(found)


def measure(kafka: Broker, name: str, directory: Path, options: argparse.Namespace) -> None:
    source, to = kafka.create_topic(partitions=PARTITIONS), kafka.create_topic(partitions=PARTITIONS)
    state = directory / name
    state.mkdir()
    arguments = command(name, kafka.bootstrap_servers, source, to, state, options.parallelism, options.interval_ms, 500_000)
    seconds = WARM_UP_S + options.seconds
    with running(name, arguments, directory / f"{name}.log"):
        own = [sys.executable, __file__, "--produce", kafka.bootstrap_servers, source, "--rate", str(options.rate)]
        with subprocess.Popen([*own, "--seconds", str(seconds + 2)]):
            began_us = time.time_ns() / 1000
            found = latencies(kafka, to, began_us + WARM_UP_S * 1e6, began_us + seconds * 1e6)
    if not len(found):
        raise SystemExit(f"{name}: no output: {(directory / f'{name}.log').read_text(errors='replace')[-3000:]}")
    complete = len(found) / (options.rate * options.seconds)
    p50, p99, most = np.percentile(found, [50, 99, 100])
    print(f"{name:12}{p50:10.0f}{p99:10.0f}{most:10.0f}{complete:12.1%}", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rate", type=int, default=10_000, help="records a second")
    arguments.add_argument("--seconds", type=float, default=45, help=f"after {WARM_UP_S:.0f} s of warm-up")
    arguments.add_argument("--only", nargs="*", choices=NAMES, default=available())
    arguments.add_argument("--parallelism", type=int, default=1, help="10,000 records a second are little work")
    arguments.add_argument("--interval-ms", type=int, default=1000)
    arguments.add_argument("--produce", nargs=2, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.produce:
        brokers, topic = options.produce
        return produce(brokers, topic, options.rate, options.seconds)
    with tempfile.TemporaryDirectory() as directory, broker(Path(directory)) as kafka:
        print(f"{'ms':12}{'p50':>10}{'p99':>10}{'max':>10}{'of records':>12}", flush=True)
        for name in options.only:
            measure(kafka, name, Path(directory), options)


if __name__ == "__main__":
    main()
