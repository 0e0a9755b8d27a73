"""The `fork` command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from forkpoint import operations
from forkpoint.cli.names import JOB_OR_SAVEPOINT
from forkpoint.cli.run import AppType, RunCommand, detached_option, request_of, start, start_options, until_option
from forkpoint.cli.settings import current


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

    The new job has its own state, and needs its own output: a FileSink that writes where the old job does is refused; one
    with {job} in its path has a directory for each job.
    """
    settings = current()
    request = operations.forked(
        origin, request_of(app, args, options), state_root=settings.given_root, observer=settings.output
    )
    start(request, detached)
