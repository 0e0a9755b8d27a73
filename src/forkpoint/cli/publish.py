"""The `publish` command."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict

import click

from forkpoint import operations
from forkpoint.cli import text
from forkpoint.cli.names import JOB
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import Command, current


@click.command(cls=Command)
@click.option(
    "--skip-refused", is_flag=True,
    help="Write records that a sink's system refuses for what they are to files, with the reasons, and publish the others.",
)  # fmt: skip
@click.argument("job", type=JOB)
def publish(skip_refused: bool, job: str) -> None:
    """Publish what JOB has committed and its dead driver left unpublished, without starting the job.

    A driver that is killed between the commit of an epoch and its publishing leaves output that no reader sees; `list` and `gc`
    show that. The next run of the job publishes it, too, even one that is refused as the job was stopped with a drain. This
    command runs the recorded program only to get its sinks. It can be repeated.
    """
    settings = current()
    with contextlib.redirect_stdout(sys.stderr):  # the program's
        done = operations.publish(
            job, skip_refused=skip_refused, state_root=settings.given_root, observer=settings.output
        )
    settings.output.result(asdict(done), lambda out: _show(out, done))


def _show(out: TextOutput, done: operations.Published) -> None:
    for each in done.skipped:
        out.line(f"sink {each.uid}: refused of epoch {each.epoch}: {text.number(each.records)} records, in {each.file}")
    but = "but for these records " if done.skipped else ""
    out.line(f"job {done.job}: {but}all output up to epoch {done.epoch} is published")
