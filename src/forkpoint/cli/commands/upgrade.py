"""The commands from one version of a program to the next: `upgrade` and `fork`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from forkpoint import operations
from forkpoint.cli import failures, text
from forkpoint.cli.commands.check import plan_shown
from forkpoint.cli.commands.run import AppType, RunCommand, detached_option, request_of, start, start_options, until_option
from forkpoint.cli.names import JOB, JOB_OR_SAVEPOINT
from forkpoint.cli.options import autoscale_option, schedule_options
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import current
from forkpoint.operations import Refused, Upgraded
from forkpoint.operations.versions.upgrade import TIMEOUT_SECONDS, WATCH_EPOCHS


@click.command(cls=RunCommand)
@click.option(
    "--watch-epochs",
    type=click.IntRange(0),
    default=WATCH_EPOCHS,
    show_default=True,
    help="How many epochs the new version must commit before its output is published; 0: it only has to start.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=TIMEOUT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="The time limit for these epochs.",
)
@click.option(
    "--stop-first", is_flag=True, help="Stop the old version before the new one starts, for clusters without room for both."
)
@start_options
@autoscale_option
@schedule_options
@click.argument("job", type=JOB)
@click.argument("app", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def upgrade(watch_epochs: int, timeout: float, stop_first: bool, job: str, app: str, args: Sequence[str], **options: Any) -> None:
    """Replace the program of JOB with APP; roll back if APP fails.

    APP is first checked against the job's state; if it does not fit, the job is not stopped (exit code 4). Then APP starts while
    the old program runs, catches up with the job, and takes over between two epochs. If state has to be converted, the job stops
    with a savepoint first, and APP starts from it. APP's output is withheld until it has committed its first epochs. If APP fails
    before, the old program continues as if APP had never run (exit code 3). Unless options override them, the job keeps its
    savepoint schedule, its autoscaling, and the parallelism to which it was rescaled.
    """
    settings = current()
    done = operations.upgrade(
        job,
        request_of(app, args, options),
        watch_epochs=watch_epochs,
        timeout_seconds=timeout,
        stop_first=stop_first,
        state_root=settings.given_root,
        verbose=settings.verbose,
        observer=settings.output,
    )
    if isinstance(done, Refused):
        settings.output.result(*plan_shown(job, done.plan, {"outcome": "refused", "run": done.run}, ""))
        settings.output.remark(f"{app} does not fit the state of job {job}; nothing was stopped")
        click.get_current_context().exit(failures.REFUSED)
    settings.output.result(asdict(done), lambda out: _show(out, done))
    click.get_current_context().exit(failures.OK if done.outcome == "upgraded" else failures.JOB_FAILED)


def _show(out: TextOutput, done: Upgraded) -> None:
    went_on = done.run == done.previous_run
    what = "the new version runs" if done.outcome == "upgraded" else f"the old version runs {'on' if went_on else 'again'}"
    out.line(f"job {done.job}, run {done.run}: {what} as process {done.pid}")
    if went_on:
        return
    took = "no epoch yet" if done.downtime_ms is None else f"{text.duration(done.downtime_ms)} from commit to commit"
    out.line(f"downtime: {took}")
    out.line(f"log: {done.log}")
    if done.savepoint is not None:
        out.line(f"savepoint before: {done.savepoint}")


@click.command(cls=RunCommand)
@click.option("--name", metavar="NEW", required=True, help="The new job's name.")
@detached_option
@start_options
@until_option
@click.argument("origin", metavar="SAVEPOINT|JOB", type=JOB_OR_SAVEPOINT)
@click.argument("app", type=AppType())
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def fork(origin: str, detached: bool, app: str, args: Sequence[str], **options: Any) -> None:
    """Start the program APP as a new job from a savepoint, or from the current state of a running JOB.

    The new job has its own state and needs its own output: a FileSink with the old job's directory is refused; one with {job} in
    its path has a directory for each job.
    """
    settings = current()
    request = operations.forked(origin, request_of(app, args, options), state_root=settings.given_root, observer=settings.output)
    start(request, detached)
