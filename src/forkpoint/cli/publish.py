"""The `publish` command."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict

import click

from forkpoint import operations
from forkpoint.cli.names import JOB
from forkpoint.cli.settings import Command, current


@click.command(cls=Command)
@click.argument("job", type=JOB)
def publish(job: str) -> None:
    """Publish what JOB has committed and its dead driver left unpublished, without starting the job.

    A driver that is killed between the commit of an epoch and its publishing leaves output that no reader sees; `list` and `gc`
    show that. The next run of the job publishes it, too, even one that is refused as the job was stopped with a drain. This
    command runs the recorded program only to get its sinks. It can be repeated.
    """
    settings = current()
    with contextlib.redirect_stdout(sys.stderr):  # the program's
        done = operations.publish(job, state_root=settings.given_root, observer=settings.output)
    said = f"job {done.job}: all output up to epoch {done.epoch} is published"
    settings.output.result(asdict(done), lambda out: out.line(said))
