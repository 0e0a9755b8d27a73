"""The `label` command."""

from __future__ import annotations

import click

from forkpoint import operations
from forkpoint.cli.settings import Command, current


@click.command(cls=Command)
@click.argument("savepoint")
@click.argument("label", metavar="[LABEL]", required=False)
@click.option("--note", metavar="TEXT", help="A remark, shown with it; an empty text removes the note.")
@click.option("--force", is_flag=True, help="Take the label from the job's savepoint that has it.")
@click.option("--remove", is_flag=True, help="Remove the label, and the note unless --note gives a new one.")
def label(savepoint: str, label: str | None, note: str | None, force: bool, remove: bool) -> None:
    """Set the label or note of SAVEPOINT (path, URL, id or label), or both. What is not given stays."""
    settings = current()
    if label is None and note is None and not remove:
        raise click.UsageError("give a label, --note, or --remove")
    if label is not None and remove:
        raise click.UsageError("give a label, or --remove")
    named = operations.label(savepoint, label, note=note, remove=remove, force=force, state_root=settings.given_root)
    changed = named.savepoint
    data = {"id": changed.id, "path": named.path, "label": changed.label, "note": changed.note}
    words = [f"label {changed.label}" if changed.label is not None else "no label"]
    words += [f"note: {changed.note}"] if changed.note is not None else []
    settings.output.result(data, lambda out: out.line(f"{changed.id}: {', '.join(words)}"))
