"""The command that brings a job back whose newest checkpoint is damaged."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from forkpoint import operations
from forkpoint.cli import failures, text
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import Command, current
from forkpoint.driver.recovery import RecoveryPlan
from forkpoint.operations import Recovery


@click.command(cls=Command)
@click.option("--dry-run", is_flag=True, help="Only tell what would be gone back to, and what that loses.")
@click.argument("job")
def recover(dry_run: bool, job: str) -> None:
    """Bring JOB back from its newest whole checkpoint or savepoint, if its newest checkpoint is damaged.

    Every file that a checkpoint or savepoint needs is read and checked. The next `forkpoint run` goes on from the newest that is
    whole. Epochs after it are given up: their input is read again, and what they have written already is written once more.
    """
    settings = current()
    found = operations.recover(job, dry_run=dry_run, state_root=settings.given_root, observer=settings.output)
    settings.output.result(_data(found), lambda out: _show(out, job, found.plan, dry_run))
    if found.plan.origin is None:
        click.get_current_context().exit(failures.FAILED)


def _data(found: Recovery) -> dict[str, Any]:
    plan = found.plan
    return {
        "job": found.job,
        "outcome": found.outcome,
        "from": None if plan.chosen is None else asdict(plan.chosen),
        "epoch": None if found.start is None else found.start.epoch,
        "lost": {
            "epochs": list(plan.lost.epochs),
            "elements": plan.lost.elements,
            "output": plan.lost.output,
            "unknown": list(plan.lost.unknown),
        },
        "looked": [asdict(each) for each in plan.looked],
        "set_aside": list(plan.fenced),
    }


def _show(out: TextOutput, job: str, plan: RecoveryPlan, dry_run: bool) -> None:
    for each in plan.looked:
        if each.problem is not None:
            out.line(f"{each.kind} {each.name} can't be used: {each.problem}")
    chosen, lost = plan.chosen, plan.lost
    if chosen is None:
        out.line(
            f"job {job} has neither a checkpoint nor a savepoint that is whole; to begin anew, run it under another name"
        )
        return
    if plan.whole:
        out.line(f"the newest checkpoint of job {job}, {chosen.name}, is whole")
        if plan.fenced:
            word = "would be set aside" if dry_run else "set aside"
            out.line(f"{word}: {_epochs(plan.fenced)}, damaged and needed by nothing")
        return
    word = "would go on from" if dry_run else "goes on from"
    made = f", made {text.moment(chosen.created_ms)} UTC" if chosen.created_ms is not None else ""
    out.line(f"job {job} {word} {chosen.kind} {chosen.name}{made}")
    if lost.epochs:
        out.line(f"given up: {_epochs(lost.epochs)}; at least {text.number(lost.elements)} elements are read again")
        if lost.unknown:
            out.line(f"what was read and published in {_epochs(lost.unknown)} can't be told, and comes once more")
    for uid, count in lost.output.items():
        out.line(
            f"sink {uid}: {text.number(count)} files or batches of these epochs were published, and come once more"
        )
    if not dry_run:
        out.line("start it with `forkpoint run`")


def _epochs(epochs: tuple[int, ...]) -> str:
    first, last = epochs[0], epochs[-1]
    which = f"epoch {first}" if first == last else f"epochs {first} to {last}"
    return which if last - first + 1 == len(epochs) else f"{text.number(len(epochs))} of {which}"
