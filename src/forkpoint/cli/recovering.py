"""The `recover` command."""

from __future__ import annotations

import click

from forkpoint import operations
from forkpoint.cli import failures, text
from forkpoint.cli.names import JOB
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import Command, current
from forkpoint.driver.start.recovery import RecoveryPlan
from forkpoint.operations.shapes import recovery_json


@click.command(cls=Command)
@click.option("--dry-run", is_flag=True, help="Only show what the job would resume from, and what that loses.")
@click.argument("job", type=JOB)
def recover(dry_run: bool, job: str) -> None:
    """Recover JOB from its newest whole checkpoint or savepoint, if its newest checkpoint is damaged.

    Checkpoints and savepoints are verified, newest first, down to each file that they need; the next `forkpoint run` resumes
    from the first whole one. Later epochs are discarded: their input is read again, and their output published again.
    """
    settings = current()
    found = operations.recover(job, dry_run=dry_run, state_root=settings.given_root, observer=settings.output)
    settings.output.result(recovery_json(found), lambda out: _show(out, job, found.plan, dry_run))
    if found.plan.origin is None:
        click.get_current_context().exit(failures.FAILED)


def _show(out: TextOutput, job: str, plan: RecoveryPlan, dry_run: bool) -> None:
    for each in plan.looked:
        if each.problem is not None:
            out.line(f"{each.kind} {each.name} cannot be used: {each.problem}")
    chosen, lost = plan.chosen, plan.lost
    if chosen is None:
        out.line(
            f"job {job} has neither a checkpoint nor a savepoint that is whole; to start afresh, run it under another name"
        )
        return
    if plan.whole:
        out.line(f"the newest checkpoint of job {job}, {chosen.name}, is whole")
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
            out.line(
                f"the input and output of {_epochs(lost.unknown)} are unknown; they are read and published again, too"
            )
    for uid, count in lost.output.items():
        out.line(f"sink {uid}: {text.number(count)} files or batches of these epochs are published again")
    if not dry_run:
        out.line("start it with `forkpoint run`")


def _epochs(epochs: tuple[int, ...]) -> str:
    first, last = epochs[0], epochs[-1]
    which = f"epoch {first}" if first == last else f"epochs {first} to {last}"
    return which if last - first + 1 == len(epochs) else f"{text.number(len(epochs))} of {which}"
