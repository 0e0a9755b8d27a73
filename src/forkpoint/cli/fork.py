"""The command that starts another job from a savepoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from forkpoint.checkpoint.paths import JobPaths
from forkpoint.cli import text
from forkpoint.cli.finding import named_savepoint
from forkpoint.cli.jobs import wait_for_savepoint
from forkpoint.cli.program import AppType
from forkpoint.cli.run import RunCommand, run, start_options, until_option
from forkpoint.cli.settings import Settings, current
from forkpoint.control.client import ControlClient
from forkpoint.control.registry import live_endpoint
from forkpoint.errors import ConfigError


@click.command(cls=RunCommand)
@click.option("--name", metavar="NEW", required=True, help="The new job's name.")
@click.option("-d", "--detached", is_flag=True, help="Run in the background; returns once the job runs.")
@start_options
@until_option
@click.argument("origin", metavar="SAVEPOINT|JOB")
@click.argument("app", type=AppType())
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def fork(origin: str, name: str, app: str, args: Sequence[str], **options: Any) -> None:
    """Start the program APP as a new job from a savepoint, or from where a running JOB is now.

    The new job has state of its own from there on, and so must its output: a FileSink in the old job's place is refused;
    one with {job} in its path has a directory for each job.
    """
    settings = current()
    if settings.storage.list(JobPaths(name).directory):
        raise ConfigError(
            f"there is a job {name!r} already under {settings.storage.url}; give the fork another name, or use "
            f"`forkpoint run -s SAVEPOINT` to take that job back to a savepoint"
        )
    click.get_current_context().invoke(
        run, savepoint=_savepoint(settings, origin, name), name=name, app=app, args=tuple(args), **options
    )


def _savepoint(settings: Settings, origin: str, name: str) -> str:
    """Where the savepoint is: one that is made now if a running job was named."""
    endpoint = live_endpoint(settings.storage, origin)
    if endpoint is None:
        return text.place(named_savepoint(settings.storage, origin).url)
    with ControlClient(endpoint) as client:
        asked = client.savepoint(note=f"where {name} was forked")
        path = wait_for_savepoint(client, asked, f"savepoint of {origin}")
    settings.output.remark(f"forking {name} from savepoint {path}")
    return path
