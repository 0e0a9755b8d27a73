"""The `tree` command."""

from __future__ import annotations

import os

import click
from rich.text import Text

from forkpoint import operations
from forkpoint.checkpoint.lineage import Node
from forkpoint.checkpoint.manifest import Run
from forkpoint.cli import text
from forkpoint.cli.names import JOB
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import Command, current
from forkpoint.operations import Tree
from forkpoint.operations.shapes import tree_json

_COLORS = {"run": "cyan", "savepoint": "yellow"}


@click.command(cls=Command)
@click.argument("job", type=JOB, required=False)
def tree(job: str | None) -> None:
    """Draw the history of JOB, or of all jobs: runs and savepoints with their parents, newest first."""
    settings = current()
    found = operations.tree(job, state_root=settings.given_root)

    def show(out: TextOutput) -> None:
        if not found.lineage.nodes:
            out.line(f"no history under {settings.state_root.place}")
            return
        rows = list(found.lineage.rows())
        width = max(len(row.graph) for row in rows)
        for row in rows:
            graph = Text(f"{row.graph:<{width}}" if row.node is not None else row.graph)
            out.line(graph if row.node is None else graph + Text("  ") + _described(row.node, found))

    settings.output.result(tree_json(found), show)


def _described(node: Node, tree: Tree) -> Text:
    shown = Text(node.key.id, _COLORS[node.key.kind])
    record = node.record
    if record is None:
        return shown + Text("  run without a record" if node.key.kind == "run" else "  savepoint gone or elsewhere")
    shown += Text(f"  {record.job}")
    if isinstance(record, Run):
        view = tree.runs.get((record.job, record.run))
        words: list[str] = [view.state if view is not None else record.outcome or "unknown"]
        if (record.job, record.run) in tree.programs:
            words.append(os.path.basename(tree.programs[record.job, record.run]))
        if record.parent.kind == "checkpoint":
            words.append(f"from checkpoint {record.parent.epoch} of {record.parent.run}")
        label, note, created_ms = record.label, None, record.started_ms
    else:
        marks = {"drained": record.drained, "edited": record.edited, "scheduled": record.schedule_ms is not None}
        words = [f"epoch {record.epoch}", *(mark for mark, on in marks.items() if on)]
        label, note, created_ms = record.label, record.note, record.created_ms
    shown += Text(f"  {', '.join(words)}")
    if label is not None:
        shown += Text(f"  [{label}]", "bold")
    if note is not None:
        shown += Text(f"  {note}", "italic")
    return shown + Text(f"  {text.moment(created_ms)}", "dim")
