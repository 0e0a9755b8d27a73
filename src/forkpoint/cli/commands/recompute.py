"""The `recompute` command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from forkpoint import operations
from forkpoint.cli import text
from forkpoint.cli.commands.run import AppType, RunCommand, request_of, start_options
from forkpoint.cli.names import SAVEPOINT
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import current


@click.command(cls=RunCommand)
@click.option(
    "-s",
    "--savepoint",
    "at",
    metavar="SAVEPOINT",
    type=SAVEPOINT,
    help="The savepoint: a path, URL, id or label. [default: the job's latest]",
)
@click.option("--label", metavar="LABEL", help="A label for the new savepoint.")
@click.option("--name", metavar="JOB", help="Override the program's job name.")
@start_options
@click.argument("app", type=AppType())
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def recompute(at: str | None, label: str | None, app: str, args: Sequence[str], **options: Any) -> None:
    """Compute the state of changed queries in APP again from their input, up to a savepoint.

    For INSERTs whose queries have changed so much that the savepoint's state does not fit. The program reads its sources from
    their start to the savepoint's positions, without writing to its sinks. The result is a new savepoint; the first epoch of a
    run from it (`run -s`) emits the difference between the new results and the old ones.
    """
    settings = current()
    found = operations.recompute(
        request_of(app, args, options), at, label=label, state_root=settings.given_root, observer=settings.output
    )

    def show(out: TextOutput) -> None:
        out.line(f"computed again: {', '.join(found.tables)}; {text.number(found.rows)} rows read")
        out.line(f"savepoint {found.id} of job {found.job}: {found.savepoint}")
        out.line(f"go on from it: forkpoint run -s {label or found.id} {app}")

    settings.output.result(asdict(found), show)
