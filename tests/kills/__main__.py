"""The campaign: python -m kills SYSTEM."""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import track
from rich.table import Table

from forkpoint.errors import EngineLost
from kills.job import PER_EPOCH, STEPS, STEPS_OF_TASKS
from kills.processes import jvm_of, workers_of
from kills.system import System, Verdict
from kills.systems import SYSTEMS

HUGE = 1_000_000_000
console = Console()


@dataclass
class Campaign:
    """Kills a job. ``waits_s``: after each kill, how long until more was visible."""

    system: System
    name: str
    root: Path
    engine: str
    rng: random.Random
    kinds: Counter[str] = field(default_factory=Counter)
    waits_s: list[float] = field(default_factory=list)

    def start(self, stop: int = HUGE, *death: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "FORKPOINT_ENGINE": self.engine,
            "SPARK_MASTER": "local[2,4]",  # tasks are tried again, as on a cluster
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [
            sys.executable,
            "-m",
            "kills.job",
            self.name,
            self.system.address,
            str(self.root / "state"),
            str(stop),
            *death,
        ]
        with open(self.root / "log", "ab") as log:
            return subprocess.Popen(command, env=environment, start_new_session=True, stdout=log, stderr=log)

    def until_visible(self, driver: subprocess.Popen[bytes], above: int) -> None:
        started = time.monotonic()
        while self.system.newest() <= above:
            if driver.poll() is not None:
                raise SystemExit(f"the job ended with {driver.returncode}: {(self.root / 'log').read_text()[-3000:]}")
            time.sleep(0.05)
        self.waits_s.append(time.monotonic() - started)

    def kill_jvm(self, driver: subprocess.Popen[bytes]) -> None:
        """The driver has to end by itself, with EngineLost."""
        before = (self.root / "log").stat().st_size
        jvm = jvm_of(driver.pid)
        assert jvm is not None
        os.kill(jvm, signal.SIGKILL)
        code = driver.wait()
        said = (self.root / "log").read_bytes()[before:].decode(errors="replace")
        if code <= 0 or EngineLost.__name__ not in said:
            raise SystemExit(f"without its JVM the job ended with {code}, not with EngineLost: {said[-3000:]}")

    def kill(self, kind: str) -> None:
        """One fault. The job has made progress before, and does so after it."""
        if kind == "changed":
            self.kinds[f"changed, {self.kill_changed()} its commit"] += 1
            return
        self.kinds["suspended and changed" if kind == "suspended" and self.system.changes else kind] += 1
        if kind == "step":
            self.die_at_step(self.rng.randint(2, 8))
            return
        seen = self.system.newest()
        driver = self.start()
        self.until_visible(driver, seen)
        time.sleep(self.rng.uniform(0, 1.0))
        if kind == "server":
            assert self.system.server is not None
            self.system.server.kill()
            time.sleep(self.rng.uniform(0, 2.0))
            self.system.server.start()
            self.until_visible(driver, self.system.newest() + PER_EPOCH)
        elif kind == "jvm":
            self.kill_jvm(driver)
        elif kind == "worker":
            while not (workers := workers_of(driver.pid)):
                time.sleep(0.05)
            os.kill(self.rng.choice(workers), signal.SIGKILL)
            self.until_visible(driver, self.system.newest() + PER_EPOCH)
        elif kind == "suspended":
            self.suspend(driver)
            self.system.lose_sight(self.root / "state")
            if self.system.changes:  # then the two drivers have different queries
                self.system.change()
            other = self.start()
            self.until_visible(other, self.system.newest() + PER_EPOCH)
            os.killpg(driver.pid, signal.SIGCONT)
            time.sleep(self.rng.uniform(0, 1.0))
            _end(other)
        _end(driver)

    def kill_changed(self) -> str:
        """Change the job and kill its first run, around its first commit: whether that was "before" or "after" it."""
        self.system.change()
        before = self.system.definitions(self.root / "state")
        self.die_at_step(1)
        return "before" if self.system.definitions(self.root / "state") == before else "after"

    def die_at_step(self, number: int) -> None:
        tasks_here = self.engine == "local" and self.system.committed_by_tasks
        steps = [*STEPS, *(STEPS_OF_TASKS if tasks_here else ())]
        step = self.rng.choice([*steps, *(f"{name}+" for name in steps)])
        driver = self.start(HUGE, step, str(number))
        if driver.wait() != -signal.SIGKILL:
            raise SystemExit(f"the job ended with {driver.returncode}: {(self.root / 'log').read_text()[-3000:]}")
        _end(driver)  # on Spark, its JVM

    def suspend(self, driver: subprocess.Popen[bytes]) -> None:
        os.killpg(driver.pid, signal.SIGSTOP)
        while self.system.locked():
            os.killpg(driver.pid, signal.SIGCONT)
            time.sleep(0.01)
            os.killpg(driver.pid, signal.SIGSTOP)

    def finish(self) -> Verdict:
        """Let the job end by itself, after some more records; what is right and wrong in what it has written."""
        stop = self.system.end()
        driver = self.start(stop)
        if driver.wait() != 0:
            raise SystemExit(f"the last run ended with {driver.returncode}: {(self.root / 'log').read_text()[-3000:]}")
        return self.system.verdict(stop)

    def proves(self) -> bool:
        """Whether kills came before the commit of a change and after it, if any were to come there."""
        return sum(kind.startswith("changed") for kind in self.kinds) in (0, 2)


def _end(driver: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="kills")
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no more kills after that")
    parser.add_argument("--engine", choices=["local", "spark"], default="local")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", metavar="KIND", help="driver, suspended, step, jvm, worker, server, changed")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="forkpoint-kills-"))
    system = SYSTEMS[options.system](root)
    campaign = Campaign(system, options.system, root, options.engine, random.Random(options.seed))
    kinds = [
        "driver",
        "suspended",
        *(["step"] if options.engine == "local" else ["jvm", "worker"]),
        *(["server"] if system.server else []),
        *(["changed"] if system.changes else []),
    ]
    if options.only is not None:
        if unknown := set(options.only) - set(kinds):
            parser.error(f"--only: {options.system} on {options.engine} has no {', '.join(sorted(unknown))}")
        kinds = options.only
    until = time.monotonic() + 60 * options.minutes
    try:
        for number in track(range(options.kills), f"{options.system}, {options.engine}", console=console):
            if time.monotonic() < until:
                campaign.kill(kinds[number % len(kinds)])
        verdict = campaign.finish()
    finally:
        system.close()
    table = Table("records", "kills", *verdict.faults, "until it went on, median", "longest")
    waits = campaign.waits_s or [0.0]
    table.add_row(
        f"{verdict.records:,}",
        ", ".join(f"{count} {kind}" for kind, count in campaign.kinds.items()),
        *map(str, verdict.faults.values()),
        f"{median(waits):.1f} s",
        f"{max(waits):.1f} s",
    )
    console.print(table)
    if not campaign.proves():
        console.print("this proves little: changes must be killed both before and after their first commit; use more --kills")
    if verdict.wrong or not campaign.proves():
        console.print(f"kept: {root}")
        return 1
    shutil.rmtree(root, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
