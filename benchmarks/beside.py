"""What operations cost a job that runs at full speed: REST requests, reads of its state, and its metrics.

    python benchmarks/beside.py [--requests N] [--clients N] [--pairs N] [--seconds S] [--only requests|reads|scans|metrics …]

A detached job counts numbers by a million keys on the local engine; a server serves it. Its throughput is measured in turn
without and with a load, as the machine's speed changes; a load's figure is the median of the pairs' ratios. Requests go round
the calls that the page and monitors make. Reads are 100 keys a second through the Python client, scans one SQL aggregate every
10 s. For the metrics, the job runs in processes of its own, in turn as it is and with nothing measured.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.driver.observe.metrics import MetricsListener
from forkpoint.runtime.tasks.measurements import Stopwatch
from forkpoint.runtime.tasks.task import Task
from forkpoint.state import GrowthMeter
from forkpoint.state_processor import LiveState, StateFollower

KEYS = 1_000_000
EPOCH_ROWS = 200_000
JOB = "beside"
TOKEN = "a token of this benchmark"
CALLS = [
    "/v1/jobs",
    "/v1/jobs/overview",
    "/v1/health",
    f"/v1/jobs/{JOB}",
    f"/v1/jobs/{JOB}/plan",
    f"/v1/jobs/{JOB}/checkpoints",
    f"/v1/jobs/{JOB}/metrics",
    f"/v1/jobs/{JOB}/exceptions",
    f"/v1/jobs/{JOB}/config",
    "/metrics",
    "/ready",
    f"/v1/jobs/{JOB}/state/counts/seen?key={{key}}",
]


class Count(fp.KeyedProcessFunction):
    seen = fp.ValueStateDescriptor("seen", int)

    def process_element(self, number: int, ctx: fp.KeyedProcessFunction.Context) -> Iterator[int]:
        seen = (self.seen.value() or 0) + 1
        self.seen.update(seen)
        yield seen


def counting(env: fp.StreamExecutionEnvironment, epochs: int | None) -> None:
    env.enable_checkpointing(1).set_parallelism(2)
    source = fp.CounterSource(None if epochs is None else epochs * EPOCH_ROWS, per_epoch=EPOCH_ROWS)
    numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers")
    counts = numbers.uid("numbers").key_by(lambda n: n * 7919 % KEYS, int).process(Count(), int).uid("counts")
    counts.sink_to(fp.DiscardSink()).uid("out")
    env.execute(JOB)


class Times:
    """When epochs were published."""

    def __init__(self) -> None:
        self.published: list[float] = []

    def on_step(self, step: str, epoch: int) -> None:
        if step == "published":
            self.published.append(time.perf_counter())


def timed(epochs: int, root: str) -> float:
    """Run the job in this process; an epoch's median duration in seconds, once all keys have state."""
    times = Times()
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.launch = Launch(options={"engine": "local"}, steps=times)
    env.set_state_root(root)
    counting(env, epochs)
    durations: list[float] = np.diff(times.published).tolist()
    return statistics.median(durations[KEYS // EPOCH_ROWS :])


def measure_nothing() -> None:
    """Take away the one seam at which tasks and the driver measure, and the count of what they write."""
    Task.measured = lambda self, user: {}  # type: ignore[method-assign]
    GrowthMeter.growth = lambda self, *changes: {}  # type: ignore[method-assign]
    Stopwatch.switch = lambda self, uid: None  # type: ignore[method-assign]
    MetricsListener.on_event = lambda self, event: None  # type: ignore[method-assign]


def metrics(pairs: int, epochs: int, directory: Path) -> None:
    """Compare the job as it is with one in which nothing is measured."""

    def run(*options: str) -> float:
        root = directory / f"timed-{time.monotonic_ns()}"
        command = [sys.executable, __file__, "--timed", str(epochs), "--root", str(root), *options]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])

    ratios = []
    for _ in range(pairs):
        without, measured = run("--unmeasured"), run()
        ratios.append(without / measured)
        print(f"metrics   {without * 1000:10.1f} ms/epoch without{measured * 1000:10.1f} with", flush=True)
    print(f"metrics   {statistics.median(ratios):12.3f} of the throughput", flush=True)


@dataclass(frozen=True)
class Load:
    """``run`` loads the job until it is through, or the event is set, and says what it has seen."""

    name: str
    run: Callable[[threading.Event], str]


def requests(url: str, count: int, clients: int, per_second: float) -> str:
    """How many requests had which status, and their times."""
    left, lock, statuses = iter(range(count)), threading.Lock(), Counter[str]()
    seconds: dict[str, list[float]] = {call: [] for call in CALLS}
    chosen, start = random.Random(3), time.monotonic()

    def client() -> None:
        connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=30)  # kept, as browsers do
        while True:
            with lock:
                number = next(left, None)
                key = chosen.randrange(KEYS)
            if number is None:
                return
            time.sleep(max(0.0, start + number / per_second - time.monotonic()))
            call = CALLS[number % len(CALLS)]
            began = time.monotonic()
            connection.request("GET", call.format(key=key), headers={"Authorization": f"Bearer {TOKEN}"})
            answer = connection.getresponse()
            answer.read()
            status = str(answer.status) if answer.status < 400 else f"{answer.status} {call}"
            with lock:
                seconds[call].append(time.monotonic() - began)
                statuses[status] += 1

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rate = count / (time.monotonic() - start)
    slowest = max(CALLS, key=lambda call: np.quantile(seconds[call], 0.99))
    every = [each for times in seconds.values() for each in times]
    return f"{dict(statuses)}, {rate:.0f}/s, {_times(every)}; slowest: {slowest}, {_times(seconds[slowest])}"


def reads(root: str, per_second: float, stop: threading.Event) -> str:
    follower, seconds = StateFollower(root, JOB), list[float]()
    while not stop.wait(1 / per_second):
        began = time.monotonic()
        follower.newest().get("counts", "seen", random.randrange(KEYS))
        seconds.append(time.monotonic() - began)
    return f"{len(seconds)} reads, {_times(seconds)}"


def scans(root: str, every_s: float, stop: threading.Event) -> str:
    seconds: list[float] = []
    while not stop.is_set():
        began = time.monotonic()
        query = "SELECT count(*), sum(value) FROM counts.seen"
        subprocess.run(_forkpoint(root, "state", "query", JOB, query), check=True, capture_output=True)
        seconds.append(time.monotonic() - began)
        stop.wait(max(0.0, every_s - seconds[-1]))
    return f"{len(seconds)} scans, {statistics.median(seconds):.1f} s each"


def _times(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    p50, p99, most = (1000 * ordered[min(int(len(ordered) * q), len(ordered) - 1)] for q in (0.5, 0.99, 1))
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms, most {most:.0f} ms"


@dataclass(frozen=True)
class Progress:
    numbers: int
    committed_ms: int

    @staticmethod
    def of(root: str) -> Progress:
        live = LiveState.find(root, JOB)
        return Progress(live.manifest.epoch * EPOCH_ROWS, live.committed_ms)

    def rate_since(self, before: Progress) -> float:
        return (self.numbers - before.numbers) / (self.committed_ms - before.committed_ms) * 1000


def pair(root: str, load: Load, seconds: float) -> tuple[float, float, str]:
    """The job's throughput without and with a load, and what the load says. Without it, half is measured before, half after, as
    the machine's speed drifts."""
    began = Progress.of(root)
    time.sleep(seconds)
    alone = Progress.of(root)
    stop, said = threading.Event(), list[str]()
    loading = threading.Thread(target=lambda: said.append(load.run(stop)))
    loading.start()
    loading.join(seconds)
    while loading.is_alive() and load.name == "requests":
        loading.join(1)
    beside = Progress.of(root)
    stop.set()
    loading.join()
    after = Progress.of(root)
    time.sleep(seconds)
    without = statistics.mean((alone.rate_since(began), Progress.of(root).rate_since(after)))
    return without, beside.rate_since(alone), said[0]


def _forkpoint(root: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "forkpoint.cli", "--state-root", root, *arguments]


@contextmanager
def serving(root: str, directory: Path) -> Iterator[str]:
    """A job and a server; the server's URL."""
    environment = os.environ | {"FORKPOINT_ENGINE": "local", "FORKPOINT_SERVER_TOKEN": TOKEN}
    subprocess.run(_forkpoint(root, "run", "-d", __file__, "--", "--job"), check=True, env=environment, capture_output=True)
    log = directory / "server.log"
    with log.open("wb") as output:
        arguments = _forkpoint(root, "--output", "json", "server", "--port", "0")
        server = subprocess.Popen(arguments, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        while not (lines := log.read_text().splitlines()):
            time.sleep(0.1)
        yield json.loads(lines[0])["url"].rstrip("/")
    finally:
        server.terminate()
        server.wait()
        subprocess.run(_forkpoint(root, "cancel", JOB), check=False, capture_output=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for each in ("--job", "--unmeasured"):
        arguments.add_argument(each, action="store_true", help=argparse.SUPPRESS)
    arguments.add_argument("--timed", type=int, help=argparse.SUPPRESS)
    arguments.add_argument("--root", help=argparse.SUPPRESS)
    arguments.add_argument("--requests", type=int, default=10_000)
    arguments.add_argument("--clients", type=int, default=4)
    arguments.add_argument("--rate", type=float, default=100, help="requests a second, at most")
    arguments.add_argument("--pairs", type=int, default=3)
    arguments.add_argument("--epochs", type=int, default=60, help="of the runs that are compared for the metrics")
    arguments.add_argument("--seconds", type=float, default=20)
    arguments.add_argument("--only", nargs="*", default=["requests", "reads", "scans", "metrics"])
    options = arguments.parse_args()
    if options.job:
        return counting(fp.StreamExecutionEnvironment.get_execution_environment(), None)
    if options.timed:
        if options.unmeasured:
            measure_nothing()
        print(timed(options.timed, options.root))
        return None
    with tempfile.TemporaryDirectory() as directory:
        root = str(Path(directory) / "root")
        if "metrics" in options.only:
            metrics(options.pairs, options.epochs, Path(directory))
        with serving(root, Path(directory)) as url:
            time.sleep(options.seconds)  # until all keys have state, and the epochs' files their usual number
            loads = [
                Load("requests", lambda _: requests(url, options.requests, options.clients, options.rate)),
                Load("reads", lambda stop: reads(root, 100, stop)),
                Load("scans", lambda stop: scans(root, 10, stop)),
            ]
            for load in loads:
                if load.name not in options.only:
                    continue
                ratios = []
                for _ in range(options.pairs):
                    alone, beside, said = pair(root, load, options.seconds)
                    ratios.append(beside / alone)
                    print(f"{load.name:10}{alone:12,.0f} rows/s alone{beside:12,.0f} beside  {said}", flush=True)
                print(f"{load.name:10}{statistics.median(ratios):12.3f} of the throughput", flush=True)


if __name__ == "__main__":
    main()
