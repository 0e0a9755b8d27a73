"""The command that compares a program with a savepoint and starts nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.text import Text

from forkpoint.api.launch import Inspected, Launch, ProgramStopped, launching
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.cli import failures
from forkpoint.cli.failures import Failure
from forkpoint.cli.finding import named_savepoint
from forkpoint.cli.output import TextOutput
from forkpoint.cli.program import Source, as_main, run_program
from forkpoint.cli.run import RunCommand, program_failure, pyflink_option, split_renames
from forkpoint.cli.settings import Settings, current
from forkpoint.cli.text import place
from forkpoint.driver.check import check_program
from forkpoint.pyflink import installed
from forkpoint.savepoint.catalog import LATEST, find_savepoint
from forkpoint.savepoint.reading import OpenedSavepoint
from forkpoint.savepoint.restore_plan import RestorePlan, Row
from forkpoint.storage.base import open_storage

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
    program = inspected(app, args, settings, name)
    if isinstance(program, Failure):
        settings.output.failure(program.with_traceback() if settings.verbose else program)
        click.get_current_context().exit(program.exit_code)
    opened = _opened(savepoint, program, settings)
    plan = check_program(program.graph, opened.savepoint, allow_non_restored=allow_non_restored_state, renames=renames)
    shown = {"savepoint": {"id": opened.savepoint.id, "path": place(opened.url), **_taken(opened.savepoint)}}
    fits = f"job {program.name} can be restored from savepoint {opened.savepoint.id}"
    settings.output.result(*plan_shown(program.name, plan, shown, fits))
    click.get_current_context().exit(failures.REFUSED if plan.refused else failures.OK)


def inspected(app: str, args: Sequence[str], settings: Settings, name: str | None) -> Inspected | Failure:
    """The program's job, caught where it would have been run."""
    options: dict[str, Any] = {} if settings.given_root is None else {"state_root": settings.root}
    found: list[Inspected] = []
    launch = Launch(
        options=options, state_root=settings.root, job_name=name, inspect=found.append, generated_uids=installed()
    )
    source = Source.read(app)
    with launching(launch), as_main(source, args):
        try:
            run_program(source)
        except (ProgramStopped, SystemExit):
            pass
        except Exception as error:
            if not found:
                return program_failure(app, error)
    if not found:
        return Failure(
            "NoJob", f"{app} came to its end without running a job; it has to call execute() on its environment",
            failures.FAILED,
        )  # fmt: skip
    return found[0]


def _opened(savepoint: str, program: Inspected, settings: Settings) -> OpenedSavepoint:
    storage = open_storage(program.options.state_root or settings.root)
    return find_savepoint(storage, program.name) if savepoint == LATEST else named_savepoint(storage, savepoint)


def _taken(savepoint: Savepoint) -> dict[str, Any]:
    return {"job": savepoint.job, "epoch": savepoint.epoch}


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
