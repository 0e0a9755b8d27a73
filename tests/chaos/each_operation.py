"""Faults at each storage operation of what a job does: its starts, epochs, snapshots, savepoints, stops and its cleaning up.

A scenario brings a job to the point in question, once; every operation of the phase then gets its own fault from there.
"""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from chaos import child
from chaos.case import KILLED, Case, Violation, report_of
from chaos.child import Plan
from chaos.operations import Action, Fault
from chaos.record import Record


@dataclass(frozen=True)
class Scenario:
    name: str
    phase: str
    base: str = "killed"  # how the run before ended: "none", "killed", "stopped"
    parallelism: str = "same"  # as of the run before, or "other"
    goal: child.Goal = "stop"
    savepoint: bool = False  # one by the way
    fork: bool = False
    restore: bool = False  # from the savepoint that the run before was stopped with
    taken: bool = False  # a consumer takes all that is published, always


SCENARIOS = (
    Scenario("first start", "start", base="none"),
    Scenario("restart", "start"),
    Scenario("restart at another parallelism", "start", parallelism="other"),
    Scenario("restart after a stop", "start", base="stopped"),
    Scenario("restore", "start", base="stopped", restore=True, parallelism="other"),
    Scenario("fork", "start", base="stopped", restore=True, fork=True),
    Scenario("epoch", "epoch"),
    Scenario("publishing", "publish", taken=True),
    Scenario("snapshot", "snapshot"),
    Scenario("garbage collection", "collect"),
    Scenario("savepoint", "savepoint", savepoint=True),
    Scenario("stop with savepoint", "stop"),
    Scenario("stop --drain", "drain", goal="drain"),
)


@dataclass
class Prepared:
    """A case that has come to where the faults begin, and can be put back there."""

    case: Case
    plan: Plan
    kept: Path
    operations: int

    def again(self, rng: random.Random) -> Case:
        """The case as it was; its directory keeps its name, as manifests name staged files by their whole path."""
        case = self.case
        shutil.rmtree(case.directory)
        shutil.copytree(self.kept, case.directory)
        return case.copy(rng)


@dataclass(frozen=True)
class Share:
    """Of the operations: those that leave a remainder, and of these at most some."""

    number: int = 0
    of_all: int = 1
    at_most: int | None = None

    def of(self, operations: int, rng: random.Random) -> list[int]:
        places = list(range(1 + self.number, operations + 1, self.of_all))
        if self.at_most is None or len(places) <= self.at_most:
            return places
        return sorted(rng.sample(places, self.at_most))


def prepare(scenario: Scenario, case: Case, action: Action) -> Prepared:
    rng = case.rng
    for _ in range(3):
        case.add_input(25)
    before = case.program(rows=5)
    savepoint = None
    if scenario.base == "killed":
        case.run(case.plan("none", before, fault=Fault("kill", "any", rng.randint(100, 180))))
    elif scenario.base == "stopped":
        savepoint = case.must_run(replace(case.plan("stop", before), read=rng.randint(20, 40)))["savepoint"]
    parallelism = before.parallelism
    if scenario.parallelism == "other":
        parallelism = rng.choice([n for n in (1, 2, 3) if n != parallelism])
    if scenario.fork:
        case.begin_fork()
    plan = case.plan(scenario.goal, case.program(parallelism=parallelism, rows=5), restore=savepoint)
    if not scenario.restore:
        plan = replace(plan, restore=None)
    if scenario.savepoint:
        plan = replace(plan, savepoints=(rng.randint(20, 40),))
    kept = case.directory.with_name(f"{case.directory.name}-kept")
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(case.directory, kept)
    told = [*case.told]
    case.must_run(plan)
    case.told = told
    report = report_of(plan)
    operations = report["changes"].get(scenario.phase, 0)
    if operations == 0:
        raise Violation(f"{scenario.name}: no storage operation was seen in it")
    if action == "sleep":
        phase = _phase_of_sleep(scenario)
        operations = report["changes"].get(phase, 0) + report["reads"].get(phase, 0)
    return Prepared(case, plan, kept, operations)


def each(scenario: Scenario, action: Action, directory: Path, rng: random.Random, record: Record, share: Share) -> None:
    """A case for each operation of the scenario, or for a share of them."""
    with record.trial(Case(directory, rng)) as case:
        prepared = prepare(scenario, case, action)
    if record.failures:
        return
    places = share.of(prepared.operations, rng)
    record.tell({"operations": prepared.operations, "tried": len(places), "phase": f"{action} {scenario.name}"})
    for at in places:
        if record.over():
            return
        with record.trial(prepared.again(random.Random(f"{rng.random()} {at}"))) as case:
            ONE[action](scenario, at, prepared, case)


def _killed(scenario: Scenario, at: int, prepared: Prepared, case: Case) -> None:
    before = case.newest_epoch()
    plan = replace(prepared.plan, fault=Fault("kill", scenario.phase, at))
    code = case.run(plan)
    case.fault(f"killed: {scenario.name}", f"at operation {at}")
    if code not in (KILLED, child.DONE):
        raise Violation(f"it ended with code {code}: {case.last_error()}")
    _recovered(scenario, case, plan, code, before)


def _starved(scenario: Scenario, at: int, prepared: Prepared, case: Case) -> None:
    before = case.newest_epoch()
    lasting, restarts = case.rng.choice((1, 1, 3, 10**6)), case.rng.choice((0, 0, 3))
    fault = Fault("full", scenario.phase, at, lasting)
    plan = replace(prepared.plan, fault=fault, program=replace(prepared.plan.program, restarts=restarts))
    process = case.start(plan)
    case.fault(f"disk full: {scenario.name}", f"at operation {at}, {lasting} times")
    code = process.wait(10)
    if code is None:  # it waits for input, as a stop that failed has been given up
        code = process.kill()
    _recovered(scenario, case, plan, KILLED if code is None else code, before)


def _recovered(scenario: Scenario, case: Case, plan: Plan, code: int, before: int) -> None:
    if scenario.goal == "drain":
        after_drain(case, plan, code)
        return
    case.check_so_far("after the fault")
    if scenario.taken or case.rng.random() < 0.5:
        share = 1.0 if scenario.taken else case.rng.choice((0.5, 1.0))
        case.told.append(f"a consumer takes {case.take(share)} files")
    if code != child.DONE:
        case.add_input(15)
    case.finish(restore=_again(case, plan, before))


def _slept(scenario: Scenario, at: int, prepared: Prepared, case: Case) -> None:
    """Asleep at an operation, while a newer run takes over: it comes to its end, is killed, or sleeps itself with an epoch in
    the making."""
    before = case.newest_epoch()
    plan = replace(prepared.plan, fault=Fault("sleep", _phase_of_sleep(scenario), at))
    sleeper = case.start(plan)
    if not sleeper.falls_asleep():
        sleeper.wait()
        case.finish(restore=_again(case, plan, before))
        return
    course = case.rng.choice(("ended", "killed", "asleep", "asleep"))
    case.fault(f"asleep: {scenario.name}", f"at operation {at}; the newer run was {course} when it woke up")
    restore = _again(case, plan, before)
    newer_plan = case.plan("stop" if course == "ended" else "none", case.program(rows=5), restore=restore)
    if course == "asleep":
        newer_plan = replace(newer_plan, fault=Fault("sleep", "epoch", case.rng.randint(8, 26)))
    newer = case.start(newer_plan)
    if course == "ended":
        newer.wait()
    elif course == "killed":
        newer.wait(case.rng.uniform(0.2, 0.6))
        newer.kill()
    else:
        newer.falls_asleep()
    case.add_input(15)
    for process in (sleeper, newer):
        process.signal(signal.SIGCONT)
        process.wait(case.rng.uniform(0.3, 0.6))
    for process in (sleeper, newer):
        case.told.append(f"process {process.pid}: exit {process.kill()}")
    case.check_so_far("after the sleeper woke up")
    case.add_input(15)
    case.finish(restore=_again(case, plan, before))


def _phase_of_sleep(scenario: Scenario) -> str:
    """Who names a savepoint and has not looked around yet is not replaced by others: it begins after them, from there."""
    return "takeover" if scenario.restore else scenario.phase


def _again(case: Case, plan: Plan, before: int) -> str | None:
    """The savepoint to name at the next start. Once a run has begun from it, its own checkpoints are newer."""
    return plan.restore if case.newest_epoch() == before else None


ONE: dict[Action, Callable[[Scenario, int, Prepared, Case], None]] = {
    "kill": _killed,
    "full": _starved,
    "sleep": _slept,
}


def after_drain(case: Case, plan: Plan, code: int) -> None:
    """A drained job is complete. One that was killed on the way there goes on as if nobody had asked, or says that it was
    drained, and goes on from the savepoint of that."""
    drained_after = len(case.events)
    if code == child.DONE:
        case.check("drained", drained_after=drained_after, savepoint=report_of(plan)["savepoint"])
        return
    case.check_so_far("after the fault", drained_after=drained_after)
    case.add_input(30)
    again = case.plan("stop")
    code = case.run(again)
    if code == child.DONE:
        case.check("gone on after a drain that was cut short", savepoint=report_of(again)["savepoint"])
        return
    if "drain" not in (why := case.last_error()):
        raise Violation(f"a start after a drain that was cut short ended with code {code}: {why}")
    case.told.append(f"refused: {why}")
    case.check_so_far("after a start that was refused", drained_after=drained_after)
    told = case.must_run(case.plan("stop", restore=case.drained_savepoint()))
    case.check("gone on from a drained savepoint", drained_after=drained_after, savepoint=told["savepoint"])
