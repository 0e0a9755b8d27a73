"""Faults at each storage operation of what a job does: its starts, epochs, snapshots, savepoints, stops and its cleaning up.

A scenario brings a job to the point in question, once; every operation of the phase then gets its own fault from there.
"""

from __future__ import annotations

import random
import shutil
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


SCENARIOS = (
    Scenario("first start", "start", base="none"),
    Scenario("restart", "start"),
    Scenario("restart at another parallelism", "start", parallelism="other"),
    Scenario("restart after a stop", "start", base="stopped"),
    Scenario("restore", "start", base="stopped", restore=True, parallelism="other"),
    Scenario("fork", "start", base="stopped", restore=True, fork=True),
    Scenario("epoch", "epoch"),
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
    changes: int

    def again(self, rng: random.Random) -> Case:
        """The case as it was; its directory keeps its name, as manifests name staged files by their whole path."""
        case = self.case
        shutil.rmtree(case.directory)
        shutil.copytree(self.kept, case.directory)
        return case.copy(rng)


def prepare(scenario: Scenario, case: Case) -> Prepared:
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
    return Prepared(case, plan, kept, report_of(plan)["changes"].get(scenario.phase, 0))


def each(
    scenario: Scenario, action: Action, directory: Path, rng: random.Random, record: Record, at_most: int | None = None
) -> None:
    """A case for each operation of the scenario, or for a sample of them."""
    with record.trial(Case(directory, rng)) as case:
        prepared = prepare(scenario, case)
    if prepared.changes == 0:
        raise Violation(f"{scenario.name}: no storage operation was seen in it")
    places = list(range(1, prepared.changes + 1))
    if at_most is not None and len(places) > at_most:
        places = sorted(rng.sample(places, at_most))
    for at in places:
        if record.over():
            return
        with record.trial(prepared.again(random.Random(rng.random()))) as case:
            _one(scenario, action, at, prepared, case)


def _one(scenario: Scenario, action: Action, at: int, prepared: Prepared, case: Case) -> None:
    lasting = 1 if action == "kill" else case.rng.choice((1, 1, 3, 10**6))
    plan = replace(prepared.plan, fault=Fault(action, scenario.phase, at, lasting))
    if action == "full":
        plan = replace(plan, program=replace(plan.program, restarts=case.rng.choice((0, 0, 3))))
    before = case.newest_epoch()
    case.fault(f"{'killed' if action == 'kill' else 'disk full'}: {scenario.name}", f"at operation {at}")
    code = case.run(plan)
    if action == "kill" and code not in (KILLED, child.DONE):
        raise Violation(f"it ended with code {code}: {case.last_error()}")
    if scenario.goal == "drain":
        after_drain(case, plan, code)
        return
    case.check_so_far("after the fault")
    if case.rng.random() < 0.5:
        case.told.append(f"a consumer takes {case.take(case.rng.choice((0.5, 1.0)))} files")
    if code != child.DONE:
        case.add_input(15)
    # A savepoint is named again only by who has to: once a run has begun from it, its own checkpoints are newer.
    case.finish(restore=plan.restore if case.newest_epoch() == before else None)


def after_drain(case: Case, plan: Plan, code: int) -> None:
    """A drained job is complete; one that was killed on the way there goes on as if nobody had asked, or refuses to."""
    drained = len(case.events)
    if code == child.DONE:
        case.check("drained", drained=True, savepoint=report_of(plan)["savepoint"])
        return
    case.check_so_far("after the fault", drained=drained)
    case.add_input(30)
    again = case.plan("stop")
    code = case.run(again)
    if code == child.DONE:
        case.check("gone on after a drain that was cut short", savepoint=report_of(again)["savepoint"])
    elif "drain" in (why := case.last_error()):
        case.told.append(f"refused: {why}")
        case.check_so_far("after a start that was refused", drained=drained)
    else:
        raise Violation(f"a start after a drain that was cut short ended with code {code}: {why}")
