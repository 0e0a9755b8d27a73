"""Commands that keep a state root and a machine in order: gc, recover, doctor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import click
from rich.text import Text

from forkpoint import operations
from forkpoint.cli import failures, text
from forkpoint.cli.names import JOB, PlaceType
from forkpoint.cli.options import DurationType
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import Command, current
from forkpoint.cli.spark_options import spark_options, spark_settings
from forkpoint.driver.start.recovery import RecoveryPlan
from forkpoint.operations.shapes import gc_json, recovery_json


@click.command(cls=Command)
@click.argument("job", type=JOB, required=False)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option(
    "--older-than",
    "age_ms",
    metavar="TIME",
    type=DurationType(0),
    default="1h",
    show_default=True,
    help="Keep files written within this time.",
)
def gc(job: str | None, dry_run: bool, age_ms: int) -> None:
    """Remove leftovers of dead runs of JOB, or of all jobs, below the state root.

    These are unfinished savepoints, files of epochs that no checkpoint needs, uncommitted staged output, records of killed
    drivers, claims of deleted jobs, and temporary files. Jobs that run, or may be running elsewhere, are skipped.
    """
    settings = current()
    leftovers = operations.gc(job, older_than=timedelta(milliseconds=age_ms), dry_run=dry_run, state_root=settings.given_root)
    found = leftovers.found

    def show(out: TextOutput) -> None:
        if found:
            rows = [[each.kind, each.job or "", each.path, text.number(each.files), text.size(each.bytes)] for each in found]
            out.table(["KIND", "JOB", "PATH", "FILES", "SIZE"], rows, right=("FILES", "SIZE"))
        for name, why in leftovers.skipped.items():
            out.line(f"skipped: job {name}, {why}")
        for name, what in leftovers.unpublished.items():
            out.line(f"kept: job {name}: {what}")
        word = "would be removed" if dry_run else "removed"
        out.line(f"{word}: {text.number(sum(each.files for each in found))} files, {text.size(leftovers.bytes)}")

    settings.output.result(gc_json(leftovers, dry_run), show)


@click.command(cls=Command)
@click.option("--dry-run", is_flag=True, help="Only show the checkpoint or savepoint to resume from, and the loss.")
@click.argument("job", type=JOB)
def recover(dry_run: bool, job: str) -> None:
    """Recover JOB from its newest undamaged checkpoint or savepoint, if its newest checkpoint is damaged.

    The command verifies all files of checkpoints and savepoints, newest first; the next `forkpoint run` resumes from the first
    undamaged one. Later epochs are discarded: the job reads their input again and publishes their output again.
    """
    settings = current()
    found = operations.recover(job, dry_run=dry_run, state_root=settings.given_root, observer=settings.output)
    settings.output.result(recovery_json(found), lambda out: _show(out, job, found.plan, dry_run))
    if found.plan.origin is None:
        click.get_current_context().exit(failures.FAILED)


def _show(out: TextOutput, job: str, plan: RecoveryPlan, dry_run: bool) -> None:
    for each in plan.checked:
        if each.problem is not None:
            out.line(f"{each.kind} {each.name} cannot be used: {each.problem}")
    chosen, lost = plan.chosen, plan.lost
    if chosen is None:
        out.line(f"job {job} has no undamaged checkpoint or savepoint; to start from scratch, run it under another name")
        return
    if plan.undamaged:
        out.line(f"the newest checkpoint of job {job}, {chosen.name}, is undamaged")
        if plan.fenced:
            word = "would be set aside" if dry_run else "set aside"
            out.line(f"{word}: {_epochs(plan.fenced)}, damaged and not needed")
        return
    word = "would resume from" if dry_run else "resumes from"
    made = f", made {text.moment(chosen.created_ms)} UTC" if chosen.created_ms is not None else ""
    out.line(f"job {job} {word} {chosen.kind} {chosen.name}{made}")
    if lost.epochs:
        out.line(f"discarded: {_epochs(lost.epochs)}; at least {text.number(lost.elements)} elements are read again")
        if lost.unknown:
            out.line(f"the input and output of {_epochs(lost.unknown)} are unknown; they are read and published again, too")
    for uid, count in lost.output.items():
        out.line(f"sink {uid}: {text.number(count)} files or batches of these epochs are published again")
    if not dry_run:
        out.line("start it with `forkpoint run`")


def _epochs(epochs: tuple[int, ...]) -> str:
    first, last = epochs[0], epochs[-1]
    which = f"epoch {first}" if first == last else f"epochs {first} to {last}"
    return which if last - first + 1 == len(epochs) else f"{text.number(len(epochs))} of {which}"


@click.command(cls=Command)
@click.option(
    "--directory",
    "directories",
    metavar="DIR",
    type=PlaceType(),
    multiple=True,
    help="An output directory of sinks; repeatable.",
)
@spark_options
def doctor(directories: tuple[str, ...], **options: Any) -> None:
    """Check that this machine, and the hosts of a Spark cluster, can run jobs.

    On this machine, it checks Python, Java, memory, limits, ports, and the guarantees of the state root's storage; on each host,
    Python and package versions, the state root, directories that all hosts must share, disk space, and clocks. A job checks its
    hosts before its first commit. Exit code 0: all can run jobs; 1: some cannot.
    """
    settings = current()
    machine = operations.check_machine(settings.given_root)
    if any(check.problem for check in machine if check.name == "Java"):
        return _show_checks(machine, {})
    reports = operations.doctor(
        spark=spark_settings(options),
        directories=directories,
        ship_env=options["ship_env"],
        pass_env=options["pass_env"],
        state_root=settings.given_root,
        observer=settings.output,
    )
    problems: dict[str, list[str]] = {}
    for report in reports:
        found = problems.setdefault(report.host, [])
        found += [problem for problem in report.problems if problem not in found]
    _show_checks(machine, problems)


def _show_checks(machine: Sequence[operations.Check], problems: Mapping[str, list[str]]) -> None:
    def show(out: TextOutput) -> None:
        for check in machine:
            out.line(Text.assemble((check.name, "bold"), ": ", check.found))
            if check.problem is not None:
                out.line(Text.assemble("  ", (check.problem, "red")))
        for host, found in sorted(problems.items()):
            out.line(Text.assemble((host, "bold"), ": ", ("cannot run jobs", "red") if found else ("can run jobs", "green")))
            for problem in found:
                out.line(f"  it {problem}")

    hosts = [{"host": host, "problems": found} for host, found in sorted(problems.items())]
    checks = [{"name": each.name, "found": each.found, "problem": each.problem} for each in machine]
    current().output.result({"machine": checks, "hosts": hosts}, show)
    failed = any(problems.values()) or any(each.problem for each in machine)
    click.get_current_context().exit(failures.FAILED if failed else failures.OK)
