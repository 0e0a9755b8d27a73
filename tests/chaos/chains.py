"""Jobs that go through one fault after the other: each start finds what the faults before have left."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace

from chaos import child
from chaos.case import KILLED, Case, Process, Violation
from chaos.child import Plan
from chaos.damage import damage
from chaos.operations import Fault
from chaos.record import Record

Step = Callable[[Case], None]


def chain(steps: list[Step], case: Case, record: Record) -> None:
    """Bring a job through the steps, with a check after each, and to its end."""
    with record.trial(case):
        case.add_input(40)
        if case.rng.random() < 0.5:
            case.consumer()
        for step in steps:
            if record.over():
                break
            case.add_input(case.rng.choice((15, 30)))
            step(case)
            case.check_so_far("so far")
        case.add_input(15)
        case.finish()


def random_steps(rng: random.Random, number: int) -> list[Step]:
    kinds: list[tuple[Step, int]] = [
        (kill_at_random, 5),
        (kill_at_an_operation, 4),
        (full_disk, 2),
        (short_sleep, 2),
        (long_sleep, 2),
        (crossing_sleeps, 2),
        (two_at_once, 1),
        (damage, 2),
    ]
    return rng.choices([kind for kind, _ in kinds], [weight for _, weight in kinds], k=number)


# -- kills


def kill_at_random(case: Case) -> None:
    process = case.start(_disturbed(case))
    time.sleep(case.rng.uniform(0.02, 0.4))
    case.fault("killed at a random moment")
    _end(case, process)


def kill_at_an_operation(case: Case) -> None:
    phase = case.rng.choice(("any", "any", "start", "stop", "savepoint", "epoch", "cancel"))
    plan = _disturbed(case, phase)
    plan = replace(plan, fault=Fault("kill", phase, case.rng.randint(1, 150 if phase == "any" else 40)))
    process = case.start(plan)
    if process.wait(2) == KILLED:
        case.fault("killed at a random operation")
    _end(case, process)


def full_disk(case: Case) -> None:
    """For some operations, or until the job gives up; then there is space again."""
    fault = Fault("full", "any", case.rng.randint(1, 150), case.rng.choice((1, 2, 10, 10**6)))
    plan = _disturbed(case, restarts=case.rng.choice((0, 3)))
    process = case.start(replace(plan, fault=fault))
    case.fault("disk full at a random operation")
    process.wait(0.6)
    _end(case, process)


# -- sleepers


def short_sleep(case: Case) -> None:
    """Another run starts while the first one sleeps, which wakes up in the middle of that."""
    sleeper = _asleep(case, case.rng.choice(("start", "epoch", "any", "stop")))
    newer = case.start(_disturbed(case))
    time.sleep(case.rng.uniform(0.0, 0.3))
    if sleeper is not None:
        case.fault("asleep while another run starts")
        _wake(case, sleeper)
    time.sleep(case.rng.uniform(0.0, 0.2))
    _end(case, newer)


def long_sleep(case: Case) -> None:
    """The newer run has removed the manifests that the sleeper knew, when that wakes up."""
    sleeper = _asleep(case, case.rng.choice(("epoch", "epoch", "any", "start", "stop")))
    known = case.newest_epoch()
    newer = case.start(_disturbed(case, rows=5))
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and newer.poll() is None and case.oldest_epoch() <= known + 2:
        if case.read() + 15 > len(case.events):
            case.add_input(15)
        time.sleep(0.02)
    gone = case.oldest_epoch() > known + 2
    case.told.append(f"the newest manifest was {known}; now there are {case.oldest_epoch()} to {case.newest_epoch()}")
    if case.rng.random() < 0.5:
        _end(case, newer)
    if sleeper is not None:
        case.fault("asleep until garbage was collected" if gone else "asleep for long")
        _wake(case, sleeper)
    _end(case, newer)


def crossing_sleeps(case: Case) -> None:
    """The older run sleeps while it starts, the newer one with an epoch in the making; the older one wakes up first."""
    sleeper = _asleep(case, "start")
    newer = _asleep(case, "epoch", goal="none")
    if sleeper is not None and newer is not None:
        case.fault("two runs asleep at the same time")
    for process in (sleeper, newer):
        if process is not None:
            _wake(case, process, patience=0.6)


def two_at_once(case: Case) -> None:
    both = [case.start(_disturbed(case)) for _ in range(2)]
    time.sleep(case.rng.uniform(0.1, 0.6))
    case.fault("two runs started at once")
    for process in both:
        _end(case, process)


def _asleep(case: Case, phase: str, goal: child.Goal | None = None) -> Process | None:
    """A run that has put itself to sleep at some operation of a phase; None if it came to none."""
    at = case.rng.randint(1, {"start": 50, "epoch": 25, "any": 200, "stop": 60}[phase])
    plan = _disturbed(case, phase, rows=5)
    process = case.start(replace(plan, goal=goal or plan.goal, fault=Fault("sleep", phase, at)))
    if process.falls_asleep():
        return process
    _end(case, process)
    return None


def _wake(case: Case, sleeper: Process, patience: float = 1.0) -> None:
    """The sleeper goes on, finds input of its own to read, and has some time to do harm, or to end."""
    case.add_input(15)
    sleeper.signal(signal.SIGCONT)
    sleeper.wait(patience)
    _end(case, sleeper)


# -- what steps have in common


def _disturbed(case: Case, phase: str = "any", **given: object) -> Plan:
    """A run that goes on for ever unless it is to be hit while it ends, with a savepoint now and then."""
    program = case.program(**{"rows": case.rng.choice((5, 10)), **given})
    goals: dict[str, child.Goal] = {"stop": "stop", "cancel": "cancel"}
    plan = case.plan(goals.get(phase, "none"), program)
    if phase == "savepoint" or case.rng.random() < 0.3:
        plan = replace(plan, savepoints=(case.rng.randint(0, len(case.events)),))
    return plan


def _end(case: Case, process: Process) -> None:
    process.signal(signal.SIGCONT)
    code = process.kill()
    case.told.append(f"process {process.pid}: exit {code}")
    if code not in (KILLED, child.DONE, child.FAILED, child.REPLACED):
        raise Violation(f"a run ended with code {code}")
