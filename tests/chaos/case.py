"""One job directory that goes through faults: its starts, its consumers, and the check of what is left."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chaos import child
from chaos.child import Plan
from chaos.job import JOB, Program
from chaos.model import expected, random_events, write_events
from chaos.reading import SINKS, Difference, Lines, difference, published, read_in, state_difference

KILLED = -signal.SIGKILL
PATIENCE = 120.0


class Violation(Exception):
    """Something was lost or doubled, or a start failed that had no reason to."""


@dataclass
class Process:
    pid: int
    code: int | None = None

    def poll(self) -> int | None:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def wait(self, seconds: float = PATIENCE) -> int | None:
        """The exit code; None if it has none by then."""
        deadline = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        return self.code

    def _sleeps(self) -> bool:
        """Whether it has been stopped."""
        return Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"

    def falls_asleep(self, seconds: float = 3.0) -> bool:
        """Wait until it has stopped itself; False if it ends before, or does not do it."""
        deadline = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < deadline:
            if self._sleeps():
                return True
            time.sleep(0.002)
        return False

    def signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> int | None:
        self.signal(signal.SIGKILL)
        return self.wait()


def forked(work: Callable[[], int], log: Path) -> Process:
    """A process of its own that has all imported already."""
    pid = os.fork()
    if pid:
        return Process(pid)
    code = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


@dataclass
class Case:
    """A job, its input and its output. ``told``: what was done to it, for whoever has to repeat it."""

    directory: Path
    rng: random.Random
    events: list[dict[str, Any]] = field(default_factory=list)
    job: str = JOB
    outputs: list[str] = field(default_factory=lambda: ["output"])  # the last one is where the job writes now
    told: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    files: int = 0
    _live: list[Process] = field(default_factory=list)
    _consumers: list[Process] = field(default_factory=list)
    _looked_at: set[Path] = field(default_factory=set)  # savepoints
    _reports: int = 0

    def copy(self, rng: random.Random) -> Case:
        """The same case for another fault. Its directory is to be put back as it was."""
        copied = replace(self, rng=rng, events=[*self.events], outputs=[*self.outputs], told=[*self.told])
        copied.faults, copied._live, copied._consumers, copied._looked_at = Counter(), [], [], set()
        return copied

    def begin_fork(self) -> None:
        """From now on the job goes by another name, and writes elsewhere."""
        self.job = "fork"
        self.outputs.append("fork-output")

    # -- input

    def add_input(self, number: int) -> None:
        new = random_events(self.rng, number, first=len(self.events))
        write_events(self.directory / "input", self.files, new)
        self.events += new
        self.files += 1

    # -- starts

    def program(self, **given: Any) -> Program:
        chosen = {
            "parallelism": self.rng.choice((1, 2, 2, 3)),
            "rows": self.rng.choice((5, 10, 20)),
            "output": self.outputs[-1],
        }
        return Program(str(self.directory), **{**chosen, **given})

    def plan(self, goal: child.Goal = "stop", program: Program | None = None, **given: Any) -> Plan:
        """A plan for all of the input that is there."""
        self._reports += 1
        (self.directory / "tmp").mkdir(parents=True, exist_ok=True)
        report = str(self.directory / "tmp" / f"report-{self._reports}")
        program = program or self.program(bounded=goal == "end")
        return Plan(program, goal, len(self.events), job=self.job, report=report, **given)

    def start(self, plan: Plan) -> Process:
        self.told.append(f"start: {_told(plan)}")
        process = forked(lambda: child.main(plan), self.directory / "log")
        self._live.append(process)
        return process

    def run(self, plan: Plan, seconds: float = PATIENCE) -> int:
        process = self.start(plan)
        code = process.wait(seconds)
        if code is None:
            process.kill()
            raise Violation(f"the job did not end within {seconds:.0f} s")
        self.told.append(f"exit {code}")
        return code

    def must_run(self, plan: Plan) -> dict[str, Any]:
        """A start without a fault, which has no reason to fail; what it reports."""
        code = self.run(plan)
        if code != child.DONE:
            raise Violation(f"a start without a fault ended with code {code}: {self.last_error()}")
        return report_of(plan)

    def last_error(self) -> str:
        errors = sorted((self.directory / "errors").glob("*"), key=lambda path: path.stat().st_mtime_ns)
        return errors[-1].read_text().rstrip().splitlines()[-1] if errors else "no error was left"

    def fault(self, kind: str, told: str = "") -> None:
        self.faults[kind] += 1
        self.told.append(f"fault: {kind} {told}".rstrip())

    def quiet(self) -> None:
        """End whatever still runs."""
        for process in [*self._live, *self._consumers]:
            process.kill()
        self._live.clear()
        self._consumers.clear()

    # -- what consumers do

    def take(self, share: float = 1.0) -> int:
        """Take published files away, as a consumer does that has processed them."""
        return sum(take(self.directory, output, self.rng, share) for output in self.outputs)

    def consumer(self) -> None:
        """One that takes files all the time, until it is killed."""
        seed = self.rng.random()

        def work() -> int:
            rng = random.Random(seed)
            while True:
                for output in self.outputs:
                    take(self.directory, output, rng, rng.random())
                time.sleep(rng.choice((0.0, 0.001, 0.005, 0.02)))

        self._consumers.append(forked(work, self.directory / "log"))

    # -- checks

    def published(self) -> Lines:
        """All that was ever published; consumers pause, so that no file is seen in two places."""
        for consumer in self._consumers:
            consumer.signal(signal.SIGSTOP)
            consumer.falls_asleep()
        try:
            return self._published()
        finally:
            for consumer in self._consumers:
                consumer.signal(signal.SIGCONT)

    def _published(self) -> Lines:
        return published([self.directory / output for output in self.outputs] + [self.directory / "taken"])

    def check_so_far(self, told: str, *, drained_after: int | None = None) -> None:
        """Nothing is there that should not be, or twice. ``drained_after``: elements after which the job was perhaps drained."""
        wanted = expected(self.events).lines
        if drained_after is not None:
            for sink, lines in expected(self.events[:drained_after], drained_after=drained_after).lines.items():
                wanted[sink] |= lines
        self._refuse(difference(wanted, self.published(), complete=False), told)
        self._check_savepoints(told, drained_after)

    def check(self, told: str, *, drained_after: int | None = None, savepoint: str | None = None) -> None:
        """All is there, once."""
        wanted = expected(self.events, drained_after=drained_after)
        found = difference(wanted.lines, self.published())
        if savepoint is not None:
            found.state = state_difference(wanted, Path(savepoint.removeprefix("file://")))
        self._refuse(found, told)
        self._check_savepoints(told, drained_after)

    def _check_savepoints(self, told: str, drained_after: int | None) -> None:
        """Each that is complete has the state as it was after the elements that it says were read."""
        for file in sorted((self.directory / "state" / "savepoints").glob("*/*/savepoint.json")):
            if file in self._looked_at:
                continue
            self._looked_at.add(file)
            saved = json.loads(file.read_text())
            if saved["drained"]:
                continue
            read = read_in(saved["sources"])
            since_drain = drained_after is not None and read > drained_after
            wanted = expected(self.events[:read], drained_after=drained_after if since_drain else None)
            self._refuse(Difference(state=state_difference(wanted, file.parent)), f"{told}, savepoint {saved['id']}")

    def _refuse(self, found: Difference, told: str) -> None:
        if found:
            raise Violation(f"{told}: {found}")

    def read(self) -> int:
        """How many elements the newest checkpoint has behind it."""
        return child.read_so_far(str(self.directory), self.job)

    def newest_epoch(self) -> int:
        """Of the job's manifests; 0 if there is none."""
        return max((int(path.stem) for path in self._checkpoints().glob("*.json")), default=0)

    def oldest_epoch(self) -> int:
        """Of those that garbage collection has left."""
        gone = {path.stem for path in self._checkpoints().glob("*.fence")}
        return min((int(path.stem) for path in self._checkpoints().glob("*.json") if path.stem not in gone), default=0)

    def _checkpoints(self) -> Path:
        return self.directory / "state" / "jobs" / self.job / "checkpoints"

    def drained_savepoint(self) -> str:
        """The newest one that is whole."""
        found = sorted((self.directory / "state" / "savepoints" / self.job).glob("*/savepoint.json"))
        drained = [path.parent for path in found if json.loads(path.read_text())["drained"]]
        if not drained:
            raise Violation("a start was refused because of a drain whose savepoint was never finished")
        return str(drained[-1])

    def finish(self, goal: child.Goal | None = None, restore: str | None = None) -> None:
        """Bring the job to an end, undisturbed, and check all it has given."""
        goal = goal or self.rng.choice(("stop", "stop", "drain", "end"))
        program = self.program(bounded=goal == "end", rows=max(self.rng.choice((20, 50)), len(self.events) // 10))
        report = self.must_run(self.plan(goal, program, restore=restore))
        savepoint = report.get("savepoint")
        if goal != "end" and savepoint is None:
            raise Violation(f"the job ended without the savepoint it was to stop with: {self.last_error()}")
        drained_after = None if goal == "stop" else len(self.events)
        self.check(f"after the end ({goal})", drained_after=drained_after, savepoint=savepoint)


def report_of(plan: Plan) -> dict[str, Any]:
    assert plan.report is not None
    found: dict[str, Any] = json.loads(Path(plan.report).read_text())
    return found


def take(directory: Path, output: str, rng: random.Random, share: float) -> int:
    """Move a share of the visible files away; how many."""
    taken = 0
    for sink in SINKS:
        place = directory / "taken" / sink
        for found, _, names in os.walk(directory / output / sink):
            for name in names:
                if name.startswith(".") or rng.random() > share:
                    continue
                place.mkdir(parents=True, exist_ok=True)
                new = place / f"{output}-{Path(found).name}-{rng.getrandbits(64):016x}-{name}"
                try:
                    os.rename(os.path.join(found, name), new)
                except FileNotFoundError:
                    continue
                taken += 1
    return taken


def _told(plan: Plan) -> str:
    program = plan.program
    parts = [f"goal {plan.goal}", f"at {plan.read}", f"parallelism {program.parallelism}", f"rows {program.rows}"]
    if plan.savepoints:
        parts.append(f"savepoints {plan.savepoints}")
    if plan.restore:
        parts.append(f"from {plan.restore}")
    if plan.job != JOB:
        parts.append(f"as {plan.job}")
    if plan.fault:
        parts.append(str(plan.fault))
    return ", ".join(parts)


def clear(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
