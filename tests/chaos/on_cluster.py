"""``python -m chaos.on_cluster``: a job on three hosts, its state on an object store, and faults of hosts, processes, disks,
network and store for some minutes. Its output and state are compared with a model that reads only the input."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from chaos.hosts import Host, hosts, unavailable
from cluster.standalone import Cluster
from unreliable import BUCKET, Fault, UnreliableProxy, s3_environment, s3_server

HOSTS = 3
KEYS = 100
ROWS = 200  # of each file of input
PATIENCE_S = 600.0
STANDBY_S = 60.0
JOB = "counting"
SETTINGS = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.heartbeatInterval": "2s",
    "spark.cores.max": "3",
    "spark.network.timeout": "15s",
    "spark.network.timeoutInterval": "5s",
    "spark.task.maxFailures": "8",
}

APP = """
import sys
import forkpoint as fp

def count(number, state):
    state = (state or 0) + 1
    return (number, state), state

env = fp.StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(100)
env.set_parallelism(4)
env.set_restart_strategy(fp.RestartStrategy.exponential_delay(500, 5000))
lines = env.from_source(fp.FileSource.text(sys.argv[1]), fp.WatermarkStrategy.no_watermarks(), "lines").uid("lines")
numbers = lines.map(int, output_type=int).uid("numbers")
counted = numbers.key_by(lambda n: n % 100, int).map_with_state(count, int, tuple[int, int]).uid("counts")
counted.sink_to(fp.FileSink.csv(sys.argv[2])).uid("out")
env.execute("counting")
"""


class Violation(Exception):
    """Output or state differs from the model, or the job does not go on."""


@dataclass
class Output:
    """What the job has published, read once."""

    directory: Path
    rows: Counter[tuple[int, int]] = field(default_factory=Counter)
    _read: set[Path] = field(default_factory=set)

    def look(self) -> int:
        for file in self.directory.rglob("part-*"):
            if file not in self._read:
                self._read.add(file)
                rows = (line.split(",") for line in file.read_text().splitlines()[1:])
                self.rows.update((int(number), int(count)) for number, count in rows)
        return self.rows.total()


@dataclass
class Trial:
    directory: Path
    rng: random.Random
    address: str
    hosts: list[Host]
    cluster: Cluster
    proxy: UnreliableProxy
    faults: Counter[str] = field(default_factory=Counter)
    recoveries_s: list[float] = field(default_factory=list)
    files: int = 0
    ended: threading.Event = field(default_factory=threading.Event)
    driver: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        for name in ("app", "in", "out"):
            (self.directory / name).mkdir(parents=True)
        (self.directory / "app" / "app.py").write_text(APP)
        self.output = Output(self.directory / "out")
        self.lost, self.twice = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        self.heal()
        self.environment = {**os.environ, **s3_environment(self.proxy.endpoint)}

    @property
    def root(self) -> str:
        return f"s3://{BUCKET}/chaos"

    # -- the job

    def add_input(self) -> None:
        rows = range(self.files * ROWS, (self.files + 1) * ROWS)
        hidden = self.directory / "in" / f".{self.files}"
        hidden.write_text("".join(f"{n}\n" for n in rows))
        hidden.rename(self.directory / "in" / f"{self.files:06d}.txt")
        self.files += 1

    def feed(self) -> None:
        """Give input all the time."""
        while not self.ended.wait(1.0):
            self.add_input()

    def start_driver(self, *options: str) -> None:
        self.driver = self.new_driver(*options)

    def new_driver(self, *options: str) -> subprocess.Popen[bytes]:
        settings = [part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}")]
        command = [
            sys.executable,
            "-m",
            "forkpoint.cli",
            "--state-root",
            self.root,
            "run",
            "--master",
            self.cluster.url,
            "--conf",
            f"spark.driver.host={self.address}",
            *settings,
            *options,
            str(self.directory / "app" / "app.py"),
            "--",
            str(self.directory / "in"),
            str(self.directory / "out"),
        ]
        with open(self.directory / "driver.log", "ab") as log:
            return subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                start_new_session=True,
            )

    def keep_driver(self) -> None:
        """What a supervisor does."""
        if self.driver is None or self.driver.poll() is not None:
            self.start_driver()

    def kill_driver(self) -> None:
        if self.driver is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.driver.pid, signal.SIGKILL)
            self.driver.wait()

    def waiting_driver(self) -> subprocess.Popen[bytes] | None:
        """A standby of the job; None if it could not come that far, with the faults that there are."""
        driver = self.new_driver("--standby")
        until = time.monotonic() + STANDBY_S
        while driver.poll() is None and time.monotonic() < until:
            with suppress(subprocess.CalledProcessError):
                if '"standby"' in self.command("list", "--output", "json"):
                    return driver
            time.sleep(1)
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        return None

    def command(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "forkpoint.cli", "--state-root", self.root, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=self.environment).stdout

    def recovered(self) -> None:
        """Wait for the output of all input so far and, while there is more, of the next file."""
        began, files = time.monotonic(), self.files + (not self.ended.is_set())
        while self.output.look() < files * ROWS:
            self.keep_driver()
            if time.monotonic() > began + PATIENCE_S:
                raise Violation(f"not all output for {PATIENCE_S:.0f} s")
            time.sleep(0.1)
        self.recoveries_s.append(time.monotonic() - began)
        self.check_output(files)

    # -- checks

    def expected(self) -> list[int]:
        """The numbers of the input, in order."""
        files = sorted((self.directory / "in").glob("*.txt"))
        return [int(line) for file in files for line in file.read_text().splitlines()]

    def check_output(self, files: int) -> None:
        """The results of so many files must be there, and nothing that is not of the input, or twice."""
        counts, rows, due = Counter[int](), Counter[tuple[int, int]](), Counter[tuple[int, int]]()
        for place, number in enumerate(self.expected()):
            counts[number % KEYS] += 1
            rows[number, counts[number % KEYS]] += 1
            if place == files * ROWS - 1:
                due = rows.copy()
        self.lost, self.twice = due - self.output.rows, self.output.rows - rows
        if self.lost or self.twice:
            raise Violation(
                f"{self.lost.total()} lost: {list(self.lost)[:5]}; {self.twice.total()} too many: {list(self.twice)[:5]}"
            )

    def check_state(self) -> None:
        """Stop with a savepoint, and compare what it holds."""
        place = self.directory / "savepoints"
        self.command("stop", "-p", str(place), JOB)
        (savepoint,) = place.iterdir()
        table = pq.read_table(next((savepoint / "operators" / "counts").iterdir()))
        found = dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
        wanted = Counter(number % KEYS for number in self.expected())
        if found != dict(wanted):
            raise Violation(f"state differs from the model: {found} is not {dict(wanted)}")

    # -- faults

    def heal(self) -> None:
        """The store works, as well as stores do."""
        self.proxy.heal()
        for kind in ("lost answer", "late error", "error", "cut", "truncated"):
            self.proxy.inject(Fault(kind, share=0.01))  # type: ignore[arg-type]
        self.proxy.inject(Fault("delay", share=0.02, seconds=0.5, jitter=0.5))

    def fault(self, kind: str) -> None:
        self.faults[kind] += 1
        print(f"{time.strftime('%H:%M:%S')} {kind}", flush=True)

    def start_worker(self, host: Host) -> None:
        self.cluster.start_worker(
            host.address,
            cores=2,
            within=host.within,
            environment={**s3_environment(self.proxy.endpoint), "SPARK_LOCAL_DIRS": str(host.disk)},
        )

    def executor_killed(self) -> None:
        if self.cluster.kill_executors(self.rng.choice(self.hosts).address):
            self.fault("executor killed")

    def executors_killed_one_after_the_other(self) -> None:
        for host in self.rng.sample(self.hosts, len(self.hosts)):
            if self.cluster.kill_executors(host.address):
                self.fault("executor killed")
            time.sleep(self.rng.uniform(0.5, 3))

    def all_executors_killed(self) -> None:
        if sum(self.cluster.kill_executors(host.address) for host in self.hosts):
            self.fault("all executors killed")

    def worker_lost(self) -> None:
        """With its disk; it comes back after a while."""
        host = self.rng.choice(self.hosts)
        self.cluster.kill_worker(host.address)
        self.fault("worker lost with its disk")
        self.cluster.kill_executors(host.address)
        time.sleep(self.rng.uniform(0, 10))
        for entry in host.disk.iterdir():
            shutil.rmtree(entry, ignore_errors=True)
        self.start_worker(host)

    def worker_frozen(self) -> None:
        host = self.rng.choice(self.hosts)
        frozen = [self.cluster.workers[host.address].pid, *self.cluster.executors(host.address)]
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        self.fault("worker frozen")
        time.sleep(self.rng.uniform(1, 25))
        for pid in frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def master_killed(self) -> None:
        self.cluster.kill_master()
        self.fault("master killed")
        time.sleep(self.rng.uniform(0, 10))
        self.cluster.start_master()

    def driver_killed(self) -> None:
        self.kill_driver()
        self.fault("driver killed")
        self.start_driver()

    def leader_killed_beside_a_standby(self) -> None:
        standby = self.waiting_driver()
        if standby is not None:
            self.kill_driver()
            self.fault("leader killed beside a standby")
            self.driver = standby

    def rescaled(self) -> None:
        """No fault, but the next one may hit its preparation or its commit."""
        with suppress(subprocess.CalledProcessError):
            self.command("rescale", JOB, "-p", str(self.rng.randint(2, 6)))
            self.fault("rescaled")

    def driver_killed_during_an_outage(self) -> None:
        self.proxy.refuse()
        self.kill_driver()
        self.fault("driver killed while the store refuses")
        self.start_driver()
        time.sleep(self.rng.uniform(5, 20))
        self.heal()

    def host_unplugged(self) -> None:
        host = self.rng.choice(self.hosts)
        host.unplug()
        self.fault("host unplugged")
        time.sleep(self.rng.uniform(1, 25))
        host.plug_in()

    def disk_full(self) -> None:
        host = self.rng.choice(self.hosts)
        host.fill_disk()
        self.fault("local disk full")
        time.sleep(self.rng.uniform(2, 10))
        host.free_disk()

    def store_refuses(self) -> None:
        self.proxy.refuse()
        self.fault("store refuses")
        time.sleep(self.rng.choice((1, 1, 5, 5, 20, 75)))
        self.heal()

    def store_slows_down(self) -> None:
        self.proxy.inject(Fault("error"))
        self.fault("store answers 503")
        time.sleep(self.rng.choice((1, 1, 5, 5, 20, 75)))
        self.heal()

    def store_hangs(self) -> None:
        self.proxy.inject(Fault("hang"))
        self.fault("store hangs")
        time.sleep(self.rng.choice((1, 5, 35)))
        self.heal()

    def store_is_slow(self) -> None:
        self.proxy.inject(Fault("delay", seconds=0.5, jitter=0.5), Fault("throttled"))
        self.fault("store is slow")
        time.sleep(10)
        self.heal()

    def kinds(self) -> list[Callable[[], None]]:
        return [
            self.executor_killed,
            self.executors_killed_one_after_the_other,
            self.all_executors_killed,
            self.worker_lost,
            self.worker_frozen,
            self.master_killed,
            self.driver_killed,
            self.driver_killed_during_an_outage,
            self.leader_killed_beside_a_standby,
            self.rescaled,
            self.host_unplugged,
            self.disk_full,
            self.store_refuses,
            self.store_slows_down,
            self.store_hangs,
            self.store_is_slow,
        ]


def campaign(trial: Trial, seconds: float) -> None:
    """All kinds of faults, in random order, again and again; now and then a second one before the job has recovered."""
    deadline = time.monotonic() + seconds
    for host in trial.hosts:
        trial.start_worker(host)
    trial.start_driver()
    threading.Thread(target=trial.feed, daemon=True).start()
    trial.recovered()
    trial.recoveries_s.clear()  # that was the start
    waiting: list[Callable[[], None]] = []
    while time.monotonic() < deadline:
        waiting = waiting or trial.rng.sample(trial.kinds(), len(trial.kinds()))
        waiting.pop()()
        if trial.rng.random() < 0.6:
            trial.recovered()
            print(f"{time.strftime('%H:%M:%S')} recovered in {trial.recoveries_s[-1]:.1f} s", flush=True)
        else:
            trial.keep_driver()
    trial.ended.set()
    time.sleep(2)
    trial.recovered()
    trial.check_state()


def report(trial: Trial, seed: int, failure: str | None) -> dict[str, object]:
    times = sorted(trial.recoveries_s)
    quantiles = statistics.quantiles(times, n=100, method="inclusive") if len(times) > 1 else [0.0] * 99
    requests = trial.proxy.met - Counter({"refused": trial.proxy.met["refused"]})
    return {
        "seed": seed,
        "faults": trial.faults.total() + requests.total(),
        "of_hosts_and_store": dict(sorted(trial.faults.items())),
        "of_requests": dict(sorted(requests.items())),
        "rows": trial.output.rows.total(),
        "lost": trial.lost.total(),
        "twice": trial.twice.total(),
        "failure": failure,
        "recoveries": len(times),
        "recovery_s_p50": round(quantiles[49], 1),
        "recovery_s_p99": round(quantiles[98], 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos.on_cluster", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int)
    parser.add_argument(
        "--directory", type=Path, default=Path(".chaos"), help="where logs and files are, and stay after a failure"
    )
    given = parser.parse_args()
    if (why := unavailable()) is not None:
        print(f"skipped: {why}")
        return 0
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**6)
    directory = given.directory.resolve() / f"cluster-{seed}"
    directory.mkdir(parents=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that nothing goes on without us
    failure: str | None = None
    with hosts(directory, HOSTS) as (address, made), s3_server(address) as upstream:
        proxy = UnreliableProxy(upstream, address)
        cluster = Cluster(directory, address, worker_timeout_s=15)
        trial = Trial(directory / "job", random.Random(seed), address, made, cluster, proxy)
        try:
            campaign(trial, given.minutes * 60)
        except (Violation, subprocess.CalledProcessError) as violation:
            failure = str(violation)
        finally:
            trial.ended.set()
            trial.kill_driver()
            cluster.stop()
            for host in made:
                cluster.kill_executors(host.address)
            proxy.close()
    print(json.dumps(report(trial, seed, failure), indent=1))
    if failure is None:
        shutil.rmtree(directory, ignore_errors=True)
    return 0 if failure is None else 1


if __name__ == "__main__":
    sys.exit(main())
