"""What is tried, in which order, and by whom: units of work with a seed each, dealt out to worker processes."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import random
import selectors
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos import chains, child, each_operation, on_spark, small_disk
from chaos.case import Case, clear, forked
from chaos.each_operation import SCENARIOS, Share
from chaos.record import Record

SLICES = 4  # of a scenario's operations, so that they are spread over workers and over time


@dataclass(frozen=True)
class Unit:
    """A piece of work that always does the same for the same seed, but for the moments of what comes at random ones."""

    name: str
    work: Callable[[Path, random.Random, Record], None]


@dataclass(frozen=True)
class Settings:
    seed: int
    directory: Path
    seconds: float | None  # None: the short form, which has an end of its own
    workers: int
    only: str | None = None
    spark: bool = True  # in the long form


def units(settings: Settings) -> Iterator[Unit]:
    """The short form is a sample; the long one begins with all operations, and never ends."""
    rng = random.Random(f"units {settings.seed}")
    if settings.seconds is None:
        yield from _sample()
        return
    number = 0
    while True:
        found = [*_all_operations(f" {number}"), *_chains(f" {number}", length=10, number=40)]
        rng.shuffle(found)
        for n, unit in enumerate(found):
            if settings.spark and n % 40 == 0:
                yield Unit(f"spark {n // 40} {number}", on_spark.spark)
            yield unit
        number += 1


def _sample() -> Iterator[Unit]:
    for scenario in SCENARIOS:
        yield _each(scenario, "kill", Share(at_most=6 if scenario.taken else 2))
        if scenario.goal != "drain" and not scenario.taken:
            yield _each(scenario, "sleep", Share(at_most=2 if scenario.name in ("restart", "epoch") else 1))
        if scenario.name in ("first start", "epoch", "savepoint", "stop with savepoint"):
            yield _each(scenario, "full", Share(at_most=1))
    yield from _chains("", length=5, number=3)


def _all_operations(suffix: str) -> Iterator[Unit]:
    """A kill at each operation of each scenario; sleeps and full disks at a share of them."""
    for scenario in SCENARIOS:
        for number in range(SLICES):
            yield _each(scenario, "kill", Share(number, SLICES), suffix)
        if scenario.goal != "drain" and not scenario.taken:
            yield _each(scenario, "sleep", Share(0, SLICES, at_most=20), suffix)
            yield _each(scenario, "sleep", Share(2, SLICES, at_most=20), suffix)
            yield _each(scenario, "full", Share(1, SLICES, at_most=20), suffix)


def _chains(suffix: str, length: int, number: int) -> Iterator[Unit]:
    for n in range(number):
        yield Unit(
            f"chain {n}{suffix}",
            lambda place, rng, record: chains.chain(chains.random_steps(rng, length), Case(place, rng), record),
        )
    for n in range(max(1, number // 10)):
        yield Unit(f"small disk {n}{suffix}", small_disk.small_disk)


def _each(scenario: each_operation.Scenario, action: Any, share: Share, suffix: str = "") -> Unit:
    return Unit(
        f"{action}: {scenario.name} {share.number + 1}/{share.of_all}{suffix}",
        lambda place, rng, record: each_operation.each(scenario, action, place, rng, record, share),
    )


@dataclass
class _Worker:
    pid: int
    tasks: int  # where the numbers of units are written to
    results: int
    rest: bytes = b""


@dataclass
class Campaign:
    """Deals units out to workers, and passes on what they tell."""

    settings: Settings
    on_message: Callable[[dict[str, Any]], None]
    _workers: dict[int, _Worker] = field(default_factory=dict)

    def run(self) -> None:
        preload(self.settings.directory / "warm-up")
        began = time.monotonic()
        seconds = self.settings.seconds
        deadline = began + seconds if seconds is not None else began + 3600
        numbered = iter(enumerate(self._units()))
        selector = selectors.DefaultSelector()
        try:
            for number in range(self.settings.workers):
                worker = self._start(number, deadline)
                self._workers[worker.results] = worker
                selector.register(worker.results, selectors.EVENT_READ)
                self._give(worker, numbered, deadline)
            while self._workers:
                for key, _ in selector.select(timeout=0.2):
                    worker = self._workers[key.fd]
                    data = os.read(key.fd, 1 << 20)
                    if not data:
                        selector.unregister(key.fd)
                        del self._workers[key.fd]
                        os.close(key.fd)
                        os.waitpid(worker.pid, 0)
                        continue
                    *lines, worker.rest = (worker.rest + data).split(b"\n")
                    for line in lines:
                        message = json.loads(line)
                        self.on_message(message)
                        if "done" in message:
                            self._give(worker, numbered, deadline)
                self.on_message({})
        finally:
            for worker in self._workers.values():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(worker.pid, signal.SIGKILL)

    def _units(self) -> Iterator[Unit]:
        return units(self.settings)

    def _give(self, worker: _Worker, numbered: Iterator[tuple[int, Unit]], deadline: float) -> None:
        for number, unit in numbered:
            if time.monotonic() >= deadline:
                break
            if self.settings.only is None or self.settings.only in unit.name:
                os.write(worker.tasks, b"%d\n" % number)
                return
            if number > 10_000:
                break
        os.close(worker.tasks)

    def _start(self, number: int, deadline: float) -> _Worker:
        tasks_out, tasks_in = os.pipe()
        results_out, results_in = os.pipe()
        pid = os.fork()
        if pid:
            os.close(tasks_out)
            os.close(results_in)
            return _Worker(pid, tasks_in, results_out)
        code = 1
        try:
            os.setpgid(0, 0)  # so that nothing of it outlives an interrupted campaign
            for other in self._workers.values():
                os.close(other.tasks)
                os.close(other.results)
            os.close(tasks_in)
            os.close(results_out)
            _work(self.settings, number, os.fdopen(tasks_out), results_in, deadline)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)


def preload(place: Path) -> None:
    """Import all that a run of the job imports, so that the processes which are forked from here need not."""
    clear(place)
    case = Case(place, random.Random(0))
    case.add_input(60)
    known = set(sys.modules)

    def run() -> int:
        code = child.main(case.plan("drain", case.program(rows=10, parallelism=2), savepoints=(20,)))
        (place / "modules").write_text("\n".join(name for name in sys.modules if name not in known))
        return code

    if (code := forked(run, place / "log").wait()) != child.DONE:
        raise SystemExit(f"chaos: an undisturbed run of the job ended with code {code}: {case.last_error()}")
    for name in (place / "modules").read_text().split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    shutil.rmtree(place)


def _work(settings: Settings, worker: int, tasks: Any, results: int, deadline: float) -> None:
    """A worker: it forks all processes of its units, so it never has a thread of its own."""
    known = units(settings)
    seen: list[Unit] = []

    def tell(message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(results, data) :]

    for line in tasks:
        number = int(line)
        while len(seen) <= number:
            seen.append(next(known))
        unit = seen[number]
        place = settings.directory / f"worker-{worker}" / "case"
        clear(place)
        record = Record(tell, unit.name, settings.directory / "failed", deadline)
        try:
            unit.work(place, random.Random(f"{settings.seed} {unit.name}"), record)
        except Exception:
            tell({"failure": traceback.format_exc(), "unit": unit.name, "told": [], "directory": None, "harness": True})
        tell({"done": unit.name})
    shutil.rmtree(settings.directory / f"worker-{worker}", ignore_errors=True)
