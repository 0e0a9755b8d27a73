"""The command that names a savepoint, or says something else about it."""

from __future__ import annotations

import click

from forkpoint import operations
from forkpoint.cli.settings import Command, current


@click.command(cls=Command)
@click.argument("savepoint")
@click.argument("label", metavar="[LABEL]", required=False)
@click.option("--note", metavar="TEXT", help="What people should know about it; an empty text takes the note away.")
@click.option("--force", is_flag=True, help="Take the label from the savepoint of the job that has it.")
@click.option("--remove", is_flag=True, help="Take the label away, and the note unless --note gives another.")
def label(savepoint: str, label: str | None, note: str | None, force: bool, remove: bool) -> None:
    """Give SAVEPOINT (path, URL, id or label) the label LABEL, a note, or both. What is not said stays."""
    settings = current()
    if label is None and note is None and not remove:
        raise click.UsageError("give a label, --note, or --remove")
    if label is not None and remove:
        raise click.UsageError("give a label, or --remove")
    named = operations.label(savepoint, label, note=note, remove=remove, force=force, state_root=settings.given_root)
    changed = named.savepoint
    data = {"id": changed.id, "path": named.path, "label": changed.label, "note": changed.note}
    said = [f"label {changed.label}" if changed.label is not None else "no label"]
    said += [f"note: {changed.note}"] if changed.note is not None else []
    settings.output.result(data, lambda out: out.line(f"{changed.id}: {', '.join(said)}"))
