"""The commands `check` and `plan`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.text import Text

from forkpoint import operations
from forkpoint.cli import failures
from forkpoint.cli.commands.run import RunCommand
from forkpoint.cli.names import SAVEPOINT_OR_LATEST
from forkpoint.cli.options import accept_option, allow_non_restored_option, map_option, pyflink_option
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import current
from forkpoint.savepoint.catalog.listing import LATEST
from forkpoint.savepoint.restore.restore_plan import RestorePlan, Row

_STYLES = {"restored": "green", "migrated": "cyan", "dropped": "yellow", "refused": "bold red"}


@click.command(cls=RunCommand)
@click.option(
    "-s",
    "--savepoint",
    metavar="SAVEPOINT|latest",
    type=SAVEPOINT_OR_LATEST,
    default=LATEST,
    show_default=True,
    help="The savepoint: a path, URL, id or label, or the job's latest.",
)
@allow_non_restored_option
@click.option("--name", metavar="JOB", help="Override the program's job name.")
@map_option
@accept_option
@pyflink_option
@click.argument("app", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def check(
    savepoint: str,
    allow_non_restored_state: bool,
    name: str | None,
    renames: dict[str, str],
    accept_empty: tuple[str, ...],
    app: str,
    args: Sequence[str],
    pyflink: bool,
) -> None:
    """Check how `run -s` would restore a savepoint's state in the program APP.

    The program runs up to its first execute(), which starts no job and writes nothing. Exit code 0: the state fits; 4: a restore
    would be refused.
    """
    settings = current()
    found = operations.check(
        app,
        args,
        savepoint,
        name=name,
        allow_non_restored=allow_non_restored_state,
        renames=renames,
        accept_empty=accept_empty,
        pyflink=pyflink,
        state_root=settings.given_root,
    )
    shown: dict[str, Any]
    at = {"path": found.path, "job": found.saved_job, "epoch": found.epoch}
    if found.savepoint is not None:
        shown = {"savepoint": {"id": found.savepoint.id, **at}}
        fits = f"job {found.job} can be restored from savepoint {found.savepoint.id}"
    else:
        shown = {"savepoint": None, "checkpoint": at}
        fits = f"job {found.job} can be restored from the checkpoint of epoch {found.epoch} (there is no savepoint)"
    settings.output.result(*plan_shown(found.job, found.plan, shown, fits))
    click.get_current_context().exit(failures.OK if found.fits else failures.REFUSED)


@click.command()
@allow_non_restored_option
@map_option
@accept_option
@pyflink_option
@click.argument("old", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.argument("new", type=click.Path(exists=True, dir_okay=False, readable=True))
def plan(
    old: str,
    new: str,
    allow_non_restored_state: bool,
    renames: dict[str, str],
    accept_empty: tuple[str, ...],
    pyflink: bool,
) -> None:
    """Show what the program NEW would make of the state of the program OLD.

    Both programs run up to their first execute(), which starts no job and writes nothing. Exit code 0: the state fits; 4: a
    restore would be refused.
    """
    job, found = operations.plan(
        old, new, allow_non_restored=allow_non_restored_state, renames=renames, accept_empty=accept_empty, pyflink=pyflink
    )
    current().output.result(*plan_shown(job, found, {}, f"{new} can go on from the state of {old}"))
    click.get_current_context().exit(failures.REFUSED if found.refused else failures.OK)


def plan_shown(
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
