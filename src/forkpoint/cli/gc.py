"""The `gc` command."""

from __future__ import annotations

from datetime import timedelta

import click

from forkpoint import operations
from forkpoint.cli import text
from forkpoint.cli.names import JOB
from forkpoint.cli.options import DurationType
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import Command, current
from forkpoint.operations.shapes import gc_json


@click.command(cls=Command)
@click.argument("job", type=JOB, required=False)
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option(
    "--older-than", "age_ms", metavar="TIME", type=DurationType(0), default="1h", show_default=True,
    help="Keep anything written within this time.",
)  # fmt: skip
def gc(job: str | None, dry_run: bool, age_ms: int) -> None:
    """Remove what dead runs of JOB, or of all jobs, left below the state root and nothing needs.

    These are unfinished savepoints, files of epochs that no checkpoint needs, uncommitted staged output, records of killed
    drivers, claims of deleted jobs, and temporary files. Jobs that run, or may be running elsewhere, are skipped.
    """
    settings = current()
    leftovers = operations.gc(
        job, older_than=timedelta(milliseconds=age_ms), dry_run=dry_run, state_root=settings.given_root
    )
    found = leftovers.found

    def show(out: TextOutput) -> None:
        if found:
            rows = [
                [each.kind, each.job or "", each.path, text.number(each.files), text.size(each.bytes)] for each in found
            ]
            out.table(["KIND", "JOB", "PATH", "FILES", "SIZE"], rows, right=("FILES", "SIZE"))
        for name, why in leftovers.skipped.items():
            out.line(f"skipped: job {name}, {why}")
        for name, what in leftovers.unpublished.items():
            out.line(f"kept: job {name}: {what}")
        word = "would be removed" if dry_run else "removed"
        out.line(f"{word}: {text.number(sum(each.files for each in found))} files, {text.size(leftovers.bytes)}")

    settings.output.result(gc_json(leftovers, dry_run), show)
