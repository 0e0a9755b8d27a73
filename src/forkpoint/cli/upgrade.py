"""The `check` and `upgrade` commands, which compare a program with saved state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.text import Text

from forkpoint import operations
from forkpoint.cli import failures, text
from forkpoint.cli.options import allow_non_restored_option, map_option, pyflink_option, schedule_options
from forkpoint.cli.output import TextOutput
from forkpoint.cli.run import RunCommand, request_of, start_options
from forkpoint.cli.settings import current
from forkpoint.operations import Refused, Upgraded
from forkpoint.operations.upgrading import TIMEOUT_SECONDS, WATCH_EPOCHS
from forkpoint.savepoint.catalog import LATEST
from forkpoint.savepoint.restore_plan import RestorePlan, Row

_STYLES = {"restored": "green", "migrated": "cyan", "dropped": "yellow", "refused": "bold red"}


@click.command(cls=RunCommand)
@click.option(
    "-s", "--savepoint", metavar="SAVEPOINT|latest", default=LATEST, show_default=True,
    help="The savepoint: a path, URL, id or label, or the job's latest.",
)  # fmt: skip
@allow_non_restored_option
@click.option("--name", metavar="JOB", help="Override the program's job name.")
@map_option
@pyflink_option
@click.argument("app", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def check(
    savepoint: str, allow_non_restored_state: bool, name: str | None, renames: dict[str, str], app: str, args: Sequence[str],
    pyflink: bool,
) -> None:  # fmt: skip
    """Check what `run -s` would do with a savepoint's state in the program APP.

    The program runs up to its first execute(); no job is started, and nothing is written. Exit code 0: it fits; 4: a restore
    would be refused.
    """
    settings = current()
    found = operations.check(
        app, args, savepoint, name=name, allow_non_restored=allow_non_restored_state, renames=renames, pyflink=pyflink,
        state_root=settings.given_root,
    )  # fmt: skip
    saved = found.savepoint
    shown = {"savepoint": {"id": saved.id, "path": found.path, "job": saved.job, "epoch": saved.epoch}}
    fits = f"job {found.job} can be restored from savepoint {saved.id}"
    settings.output.result(*_plan_shown(found.job, found.plan, shown, fits))
    click.get_current_context().exit(failures.OK if found.fits else failures.REFUSED)


def _plan_shown(
    job: str, plan: RestorePlan, more: dict[str, Any], fits: str
) -> tuple[dict[str, Any], Callable[[TextOutput], None]]:
    """A plan as JSON, with ``more`` fields, and as a table, followed by ``fits`` if it does."""
    count = len(plan.refused)
    data = {"job": job, **more, "fits": not count, "rows": [asdict(row) for row in plan.rows]}

    def show(out: TextOutput) -> None:
        out.table(("", "what", "uid", "state", "why"), map(_cells, plan.rows))
        out.line()
        if count:
            out.line(Text(f"refused: {count} problem{'s' if count > 1 else ''}; a run would not start", "bold red"))
        else:
            out.line(fits)

    return data, show


def _cells(row: Row) -> tuple[Text | str, ...]:
    return Text(row.outcome, _STYLES.get(row.outcome, "")), row.subject, row.uid, row.name, row.why


@click.command(cls=RunCommand)
@click.option(
    "--watch-epochs", type=click.IntRange(0), default=WATCH_EPOCHS, show_default=True,
    help="How many epochs the new version must commit before its output is published; 0: it only has to start.",
)  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=TIMEOUT_SECONDS, show_default=True, metavar="SECONDS",
    help="How long it may take to do so.",
)  # fmt: skip
@start_options
@schedule_options
@click.argument("job")
@click.argument("app", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def upgrade(watch_epochs: int, timeout: float, job: str, app: str, args: Sequence[str], **options: Any) -> None:
    """Replace the program of JOB with APP; roll back if APP fails.

    APP is first checked against the job's state; if it does not fit, nothing is stopped (exit code 4). Then the job is stopped
    with a savepoint, and APP started from it. APP's output is withheld until it has committed its first epochs. If APP fails
    before that, the old program resumes from the savepoint, as if APP had never run (exit code 3). The job keeps the savepoint
    schedule that it was started with, unless a new one is given.
    """
    settings = current()
    done = operations.upgrade(
        job, request_of(app, args, options), watch_epochs=watch_epochs, timeout_seconds=timeout,
        state_root=settings.given_root, verbose=settings.verbose, observer=settings.output,
    )  # fmt: skip
    if isinstance(done, Refused):
        settings.output.result(*_plan_shown(job, done.plan, {"outcome": "refused", "run": done.run}, ""))
        settings.output.remark(f"{app} does not fit the state of job {job}; nothing was stopped")
        click.get_current_context().exit(failures.REFUSED)
    settings.output.result(asdict(done), lambda out: _show(out, done))
    click.get_current_context().exit(failures.OK if done.outcome == "upgraded" else failures.JOB_FAILED)


def _show(out: TextOutput, done: Upgraded) -> None:
    what = "the new version runs" if done.outcome == "upgraded" else "the old version runs again"
    out.line(f"job {done.job}, run {done.run}: {what} as process {done.pid}")
    took = "no epoch yet" if done.downtime_ms is None else f"{text.duration(done.downtime_ms)} from commit to commit"
    out.line(f"downtime: {took}")
    out.line(f"log: {done.log}")
