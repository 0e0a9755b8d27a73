"""How subtasks come to their state on a real standalone cluster, where each host runs several executor processes.

    python benchmarks/on_cluster.py                      state root on S3 (a moto server in a process of its own)
    python benchmarks/on_cluster.py --state-root disk    and on the local disk, to compare the epoch times

Prints one line of JSON: epoch times, the shares of the kinds of catch-up, and the state root's reads after the warm-up.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.driver.observe.events import EpochCommitted, EpochReached, Event
from forkpoint.driver.run.job_driver import JobDriver

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path += [str(TESTS), str(TESTS / "cluster")]
from standalone import Cluster, free_port  # noqa: E402

HOSTS = ("127.0.0.2", "127.0.0.3")
SPREAD = 1_000_003  # a prime: n * SPREAD % keys visits all keys in turn
READ = re.compile(r'"GET /state/\S*/(changelog|snapshots)/')


class S3Server:
    """A real HTTP server that speaks S3, with a log of its requests."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / "s3.log"
        self.endpoint = f"http://127.0.0.1:{(port := free_port())}"
        with self._log.open("wb") as log:
            command = [str(Path(sys.executable).with_name("moto_server")), "-H", "127.0.0.1", "-p", str(port)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        os.environ |= {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }
        put = ["curl", "--silent", "--retry", "50", "--retry-connrefused", "--retry-delay", "1", "-X", "PUT"]
        subprocess.run([*put, f"{self.endpoint}/state"], check=True, stdout=subprocess.DEVNULL)

    def requests(self) -> list[str]:
        return [line for line in self._log.read_text(errors="replace").splitlines() if "HTTP/1.1" in line]

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@dataclass
class Observer:
    """What a run does after its warm-up; stops it after so many epochs."""

    epochs: int
    warm_up: int
    server: S3Server | None
    driver: JobDriver | None = None
    seconds: list[float] = field(default_factory=list)
    phases: dict[str, list[float]] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    took_ms: dict[str, list[int]] = field(default_factory=dict)
    requests_before: int = 0
    _began: float = 0.0

    def attach(self, driver: JobDriver) -> Any:
        self.driver = driver
        return lambda ended: None

    def on_event(self, event: Event) -> None:
        if isinstance(event, EpochReached):
            now = time.perf_counter()
            if event.phase == "planned":
                self._began = now
            else:
                self.phases.setdefault(event.phase, []).append(now - self._began)
        if isinstance(event, EpochCommitted):
            self.seconds.append(time.perf_counter() - self._began)
            if len(self.seconds) == self.warm_up and self.server is not None:
                self.requests_before = len(self.server.requests())
            if len(self.seconds) > self.warm_up:
                self.kinds["reused"] += event.stores_reused
                for each in event.catch_ups:
                    self.kinds[each.by] += 1
                    self.took_ms.setdefault(each.by, []).append(each.duration_ms)
            if len(self.seconds) == self.warm_up + self.epochs and self.driver is not None:
                self.driver.cancel()

    def report(self) -> dict[str, Any]:
        all_kinds = sum(self.kinds.values())
        local = sum(self.kinds[kind] for kind in ("memory", "host", "reused"))
        found: dict[str, Any] = {
            "epoch_ms": round(statistics.median(self.seconds[self.warm_up :]) * 1000),
            "until_ms": {k: round(statistics.median(v[self.warm_up :]) * 1000) for k, v in self.phases.items()},
            "catch_ups": dict(self.kinds),
            "median_ms": {kind: statistics.median(took) for kind, took in self.took_ms.items()},
            "max_ms": {kind: max(took) for kind, took in self.took_ms.items()},
            "without_state_root": round(local / all_kinds, 4),
        }
        if self.server is not None:
            after = self.server.requests()[self.requests_before :]
            found["requests_per_epoch"] = round(len(after) / self.epochs, 1)
            found["state_reads"] = sum(READ.search(line) is not None for line in after)
        return found


def count(number: int, state: int | None) -> tuple[int, int]:
    return (state or 0) + 1, (state or 0) + 1


@contextmanager
def cluster_of(directory: Path, executors: int) -> Iterator[Cluster]:
    cluster = Cluster(directory)
    try:
        for host in HOSTS:
            cluster.start_worker(host, cores=executors)
        yield cluster
    finally:
        cluster.stop()


def run(arguments: argparse.Namespace, directory: Path, state_root: str, server: S3Server | None) -> dict[str, Any]:
    keys = arguments.keys
    with cluster_of(directory, arguments.executors) as cluster:
        env = fp.StreamExecutionEnvironment.get_execution_environment()
        env.set_state_root(state_root).set_parallelism(arguments.subtasks).enable_checkpointing(10)
        env.set_max_epoch_rows(arguments.rows)
        numbers = env.from_source(
            fp.CounterSource(per_epoch=arguments.rows), fp.WatermarkStrategy.no_watermarks(), "numbers"
        ).uid("numbers")
        counted = numbers.key_by(lambda n: n * SPREAD % keys, int).map_with_state(count, int, int).uid("counts")
        counted.sink_to(fp.DiscardSink()).uid("discard")
        observer = Observer(arguments.epochs, arguments.warm_up, server)
        spark = {
            "spark.master": cluster.url,
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.cores.max": str(len(HOSTS) * arguments.executors),
            "spark.forkpoint.residentTasks": "false",  # which stay in their processes, so that nothing would be measured
        }
        env.launch = Launch(options={"engine": "spark", "spark": spark}, listeners=[observer], on_driver=observer.attach)
        env.execute("bench")
        return observer.report()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state-root", choices=["s3", "disk"], default="s3")
    parser.add_argument("--keys", type=int, default=1_500_000)
    parser.add_argument("--rows", type=int, default=100_000, help="in each epoch")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--warm-up", type=int, default=20, help="epochs before it, which add the keys")
    parser.add_argument("--subtasks", type=int, default=4)
    parser.add_argument("--executors", type=int, default=2, help="on each of the two hosts")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="forkpoint-cluster-", ignore_cleanup_errors=True) as temporary:
        directory = Path(temporary)
        server = S3Server(directory) if arguments.state_root == "s3" else None
        try:
            state_root = f"{directory}/state" if server is None else "s3://state/root"
            found = run(arguments, directory, state_root, server)
        finally:
            if server is not None:
                server.stop()
    print(json.dumps({**vars(arguments), **found}))


if __name__ == "__main__":
    main()
