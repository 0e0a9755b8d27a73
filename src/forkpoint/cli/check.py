"""The command that compares a program with a savepoint and starts nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.text import Text

from forkpoint import operations
from forkpoint.cli import failures
from forkpoint.cli.output import TextOutput
from forkpoint.cli.run import RunCommand, pyflink_option, split_renames
from forkpoint.cli.settings import current
from forkpoint.savepoint.catalog import LATEST
from forkpoint.savepoint.restore_plan import RestorePlan, Row

_STYLES = {"restored": "green", "migrated": "cyan", "dropped": "yellow", "refused": "bold red"}


@click.command(cls=RunCommand)
@click.option(
    "-s", "--savepoint", metavar="SAVEPOINT|latest", default=LATEST, show_default=True,
    help="What to compare with: a path, URL, id or label, or the job's latest savepoint.",
)  # fmt: skip
@click.option(
    "-n", "--allow-non-restored-state", is_flag=True, help="As for run: state without a place is dropped, not refused."
)
@click.option("--name", metavar="JOB", help="The job's name, in place of the program's.")
@click.option(
    "--map", "renames", metavar="OLD=NEW", multiple=True, callback=split_renames,
    help="The state of uid OLD goes to uid NEW; repeatable.",
)  # fmt: skip
@pyflink_option
@click.argument("app", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def check(
    savepoint: str,
    allow_non_restored_state: bool,
    name: str | None,
    renames: dict[str, str],
    app: str,
    args: Sequence[str],
    pyflink: bool,
) -> None:
    """Say what would become of a savepoint's state in the program APP, as `run -s` would decide it.

    The program is run up to its first execute(), where it ends; nothing is started or written. Exit code 0: it fits;
    4: a restore would be refused.
    """
    settings = current()
    found = operations.check(
        app, args, savepoint, name=name, allow_non_restored=allow_non_restored_state, renames=renames, pyflink=pyflink,
        state_root=settings.given_root,
    )  # fmt: skip
    saved = found.savepoint
    shown = {"savepoint": {"id": saved.id, "path": found.path, "job": saved.job, "epoch": saved.epoch}}
    fits = f"job {found.job} can be restored from savepoint {saved.id}"
    settings.output.result(*plan_shown(found.job, found.plan, shown, fits))
    click.get_current_context().exit(failures.OK if found.fits else failures.REFUSED)


def plan_shown(
    job: str, plan: RestorePlan, more: dict[str, Any], fits: str
) -> tuple[dict[str, Any], Callable[[TextOutput], None]]:
    """A plan as JSON, with more fields, and as a table that ends with ``fits`` if it does."""
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
