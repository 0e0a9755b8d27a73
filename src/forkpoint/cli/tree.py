"""The `tree` command."""

from __future__ import annotations

import os
from typing import Any

import click
from rich.text import Text

from forkpoint import operations
from forkpoint.checkpoint.lineage import Node, NodeKey
from forkpoint.checkpoint.manifest import Run
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.cli import text
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import Command, current
from forkpoint.operations import Tree
from forkpoint.operations.lineage import job_of

_COLORS = {"run": "cyan", "savepoint": "yellow"}


@click.command(cls=Command)
@click.argument("job", required=False)
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

    settings.output.result({"nodes": [_node_json(node, found) for node in found.nodes]}, show)


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
        words = (
            [f"epoch {record.epoch}"]
            + (["drained"] if record.drained else [])
            + (["edited"] if record.edited else [])
            + (["scheduled"] if record.schedule_ms is not None else [])
        )
        label, note, created_ms = record.label, record.note, record.created_ms
    shown += Text(f"  {', '.join(words)}")
    if label is not None:
        shown += Text(f"  [{label}]", "bold")
    if note is not None:
        shown += Text(f"  {note}", "italic")
    return shown + Text(f"  {text.moment(created_ms)}", "dim")


def _node_json(node: Node, tree: Tree) -> dict[str, Any]:
    record = node.record
    view = tree.runs.get((node.key.job, node.key.id)) if node.key.kind == "run" else None
    return {
        "kind": node.key.kind,
        "id": node.key.id,
        "job": job_of(node),
        "run": record.run if isinstance(record, Savepoint) else None,
        "parent": None if node.parent is None else _key_json(node.parent),
        "epoch": node.epoch,
        "created_ms": node.created_ms,
        "state": None if view is None else view.state,
        "label": None if record is None else record.label,
        "note": record.note if isinstance(record, Savepoint) else None,
        "drained": record.drained if isinstance(record, Savepoint) else None,
        "schedule_ms": record.schedule_ms if isinstance(record, Savepoint) else None,
        "path": tree.paths.get(node.key.id) if node.key.kind == "savepoint" else None,
        "missing": record is None,
        "program": tree.programs.get((node.key.job, node.key.id)) if node.key.kind == "run" else None,
    }


def _key_json(key: NodeKey) -> dict[str, Any]:
    return {"kind": key.kind, "job": key.job or None, "id": key.id}
