"""The command that names a savepoint, or says something else about it."""

from __future__ import annotations

import click

from forkpoint.cli import text
from forkpoint.cli.finding import named_savepoint
from forkpoint.cli.settings import Command, current
from forkpoint.savepoint.catalog import free_label, list_savepoints
from forkpoint.savepoint.label import check_label, set_label


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
    opened = named_savepoint(settings.storage, savepoint)
    before = opened.savepoint
    if label is not None and check_label(label) != before.label:
        if not force:
            free_label(settings.storage, before.job, label)
        for each in list_savepoints(settings.storage, before.job):
            if (other := each.savepoint) is not None and other.label == label:
                set_label(other, settings.storage, each.directory, None, other.note)
    new_label = None if remove else label if label is not None else before.label
    new_note = note or None if note is not None else None if remove else before.note
    changed = set_label(before, opened.storage, opened.directory, new_label, new_note)
    data = {"id": changed.id, "path": text.place(opened.url), "label": changed.label, "note": changed.note}
    said = [f"label {changed.label}" if changed.label is not None else "no label"]
    said += [f"note: {changed.note}"] if changed.note is not None else []
    settings.output.result(data, lambda out: out.line(f"{changed.id}: {', '.join(said)}"))
