"""The command that starts another job from a savepoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from forkpoint import operations
from forkpoint.cli.run import AppType, RunCommand, request_of, start, start_options, until_option
from forkpoint.cli.settings import current


@click.command(cls=RunCommand)
@click.option("--name", metavar="NEW", required=True, help="The new job's name.")
@click.option("-d", "--detached", is_flag=True, help="Run in the background; returns once the job runs.")
@start_options
@until_option
@click.argument("origin", metavar="SAVEPOINT|JOB")
@click.argument("app", type=AppType())
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def fork(origin: str, detached: bool, app: str, args: Sequence[str], **options: Any) -> None:
    """Start the program APP as a new job from a savepoint, or from where a running JOB is now.

    The new job has state of its own from there on, and so must its output: a FileSink in the old job's place is refused;
    one with {job} in its path has a directory for each job.
    """
    settings = current()
    request = operations.forked(
        origin, request_of(app, args, options), state_root=settings.given_root, observer=settings.output
    )
    start(request, detached)
