"""Latency from Kafka through a count by key to Kafka, exactly once, of a steady stream.

    python benchmarks/kafka/latency.py [--rate N] [--seconds N] [--only NAME …] [--interval-ms MS]
        [--keys N [--savepoint]] [--cluster]

Records carry the time at which they are produced; a consumer of committed records compares it with the time at which it has
them. Output becomes visible when a checkpoint is complete, so an interval of MS adds MS / 2 on average.

With ``--keys``, the job's state has so many keys before the measurement begins; ``--savepoint`` takes a savepoint in its middle,
and adds a line for the records of that time (forkpoint only). With ``--cluster``, Spark is a standalone cluster of two hosts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from broker import KEYS, PARTITIONS, Broker, broker, fill, producer, record
from confluent_kafka import Consumer, TopicPartition
from sides import HOME, NAMES, available, command, running

from forkpoint.protocol.registry import asked, list_runs
from forkpoint.storage.base import open_storage

sys.path.append(str(HOME / "tests" / "cluster"))
from standalone import Cluster

_TICK_S = 0.005
WARM_UP_S = 40.0


def produce(brokers: str, topic: str, rate: int, seconds: float, keys: int) -> None:
    """Produce ``rate`` records a second, in a process of its own."""
    to = producer({"bootstrap.servers": brokers}, **{"linger.ms": 2})
    users, began, done = random.Random(7), time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        for number in range(done, due := int(passed * rate)):
            to.produce(topic, record(number, users.randrange(keys), time.time_ns() // 1000), partition=number % PARTITIONS)
        done = due
        to.poll(0)
        time.sleep(_TICK_S)
    to.flush()


def latencies(kafka: Broker, topic: str, since_us: float, until_us: float) -> tuple[np.ndarray, np.ndarray]:
    """When records were produced between two times, in µs, and their latencies, in ms."""
    settings = {**kafka._client, "group.id": "latency", "isolation.level": "read_committed", "fetch.wait.max.ms": 5}
    consumer = Consumer({**settings, "enable.auto.commit": False, "fetch.queue.backoff.ms": 5})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    sent, found = list[float](), list[float]()
    ended = until_us + 10e6
    while (now := time.time_ns() / 1000) < ended:
        first = consumer.poll(0.01)  # ``consume`` would wait, too, for as many messages as it may take
        for message in [] if first is None else [first, *consumer.consume(10_000, 0)]:
            if message.error() is None:
                sent_us = json.loads(message.value())["sent_us"]
                now = time.time_ns() / 1000
                if since_us <= sent_us < until_us:
                    sent.append(sent_us)
                    found.append((now - sent_us) / 1000)
                elif sent_us >= until_us:
                    ended = min(ended, now + 1e6)
    consumer.close()
    return np.array(sent), np.array(found)


def savepoint(state: Path, seconds: float, log: Path, taken_us: list[float]) -> None:
    """Take a savepoint in so many seconds, and note when it began and ended."""
    time.sleep(seconds)
    taken_us.append(time.time_ns() / 1000)
    with log.open("wb") as output:
        command = [sys.executable, "-m", "forkpoint.cli", "savepoint", "counting", "--state-root", str(state)]
        subprocess.run(command, check=True, stdout=output, stderr=output)
    taken_us.append(time.time_ns() / 1000)


def measure(kafka: Broker, name: str, directory: Path, options: argparse.Namespace) -> None:
    source, to = kafka.create_topic(partitions=PARTITIONS), kafka.create_topic(partitions=PARTITIONS)
    state = directory / name
    state.mkdir()
    arguments = command(name, kafka.bootstrap_servers, source, to, state, options.parallelism, options.interval_ms, 500_000)
    seconds, keys = WARM_UP_S + options.seconds, options.keys or KEYS
    if options.keys:
        fill(kafka, source, keys, each=True)
    with running(name, arguments, directory / f"{name}.log"):
        while options.keys and (kafka.committed_records(to) or 0) < keys:
            time.sleep(0.5)
        own = [sys.executable, __file__, "--produce", kafka.bootstrap_servers, source, "--rate", str(options.rate)]
        with subprocess.Popen([*own, "--seconds", str(seconds + 2), "--keys", str(keys)]):
            began_us, taken_us = time.time_ns() / 1000, list[float]()
            if options.savepoint:
                middle = (state, WARM_UP_S + options.seconds / 3, directory / "savepoint.log", taken_us)
                threading.Thread(target=savepoint, args=middle, daemon=True).start()
            sent, found = latencies(kafka, to, began_us + WARM_UP_S * 1e6, began_us + seconds * 1e6)
        parts = phases(state) if options.phases else ""
    if not len(found):
        raise SystemExit(f"{name}: no output: {(directory / f'{name}.log').read_text(errors='replace')[-3000:]}")
    show(name, found, len(found) / (options.rate * options.seconds))
    if parts:
        print(f"  {parts}", flush=True)
    if options.savepoint:
        began, ended = taken_us
        during = found[(sent >= began) & (sent < ended)]
        show("  savepoint", during, len(during) / (options.rate * (ended - began) / 1e6))


def phases(state: Path) -> str:
    """How long the parts of the job's epochs have taken on average, since its start."""
    (run,) = (view for view in list_runs(open_storage(str(state))) if view.is_live and view.endpoint is not None)
    assert run.endpoint is not None
    durations = asked(open_storage(str(state)), run.endpoint, lambda client: client.metrics()).durations
    return ", ".join(f"{part} {of.sum_ms / of.count:.1f} ms" for part, of in durations.items() if of.count)


def show(name: str, found: np.ndarray, complete: float) -> None:
    p50, p99, most = np.percentile(found, [50, 99, 100])
    print(f"{name:12}{p50:10.0f}{p99:10.0f}{most:10.0f}{complete:12.1%}", flush=True)


@contextmanager
def spark(directory: Path, cluster: bool) -> Iterator[None]:
    """A standalone cluster of two hosts with two cores each, if that is wanted."""
    if not cluster:
        yield
        return
    own = Cluster(directory)
    try:
        for host in ("127.0.0.2", "127.0.0.3"):
            own.start_worker(host, cores=2)
        os.environ["SPARK_MASTER"] = own.url
        yield
    finally:
        own.stop()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rate", type=int, default=10_000, help="records a second")
    arguments.add_argument("--seconds", type=float, default=45, help=f"after {WARM_UP_S:.0f} s of warm-up")
    arguments.add_argument("--only", nargs="*", choices=NAMES, default=available())
    arguments.add_argument("--parallelism", type=int, default=1, help="10,000 records a second are little work")
    arguments.add_argument("--interval-ms", type=int, default=1000)
    arguments.add_argument("--keys", type=int, help="in the state before the measurement begins")
    arguments.add_argument("--savepoint", action="store_true", help="take one in the middle")
    arguments.add_argument("--phases", action="store_true", help="say how long the parts of epochs take (forkpoint only)")
    arguments.add_argument("--cluster", action="store_true", help="of two hosts, for Spark")
    arguments.add_argument("--produce", nargs=2, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.produce:
        brokers, topic = options.produce
        return produce(brokers, topic, options.rate, options.seconds, options.keys)
    with (
        tempfile.TemporaryDirectory() as directory,
        spark(Path(directory), options.cluster),
        broker(Path(directory)) as kafka,
    ):
        print(f"{'ms':12}{'p50':>10}{'p99':>10}{'max':>10}{'of records':>12}", flush=True)
        for name in options.only:
            measure(kafka, name, Path(directory), options)


if __name__ == "__main__":
    main()
