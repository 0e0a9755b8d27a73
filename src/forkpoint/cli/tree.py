"""The command that draws the history of jobs."""

from __future__ import annotations

import os
from typing import Any

import click
from rich.text import Text

from forkpoint.checkpoint.lineage import Lineage, Node, NodeKey, build_lineage
from forkpoint.checkpoint.manifest import Run
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.cli import text
from forkpoint.cli.finding import known_savepoints
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import Command, current
from forkpoint.control.programs import load_program
from forkpoint.control.registry import RunView, list_runs, load_runs
from forkpoint.errors import JobNotFound

_COLORS = {"run": "cyan", "savepoint": "yellow"}


@click.command(cls=Command)
@click.argument("job", required=False)
def tree(job: str | None) -> None:
    """The history of JOB, or of all jobs: runs and savepoints, and what grew from what, newest first."""
    settings = current()
    storage = settings.storage_there
    runs = load_runs(storage)
    known = known_savepoints(storage, runs)
    lineage = build_lineage(runs, [savepoint for savepoint, _ in known.values()])
    if job is not None:
        lineage = _family(lineage, job)
        if not lineage.nodes:
            raise JobNotFound(f"there is no history of a job {job!r} under {storage.url}")
    views = {(view.job, view.run): view for view in list_runs(storage)}
    paths = {savepoint_id: path for savepoint_id, (_, path) in known.items()}
    apps = {key: program.app for key in views if (program := load_program(storage, *key)) is not None}

    def show(out: TextOutput) -> None:
        if not lineage.nodes:
            out.line(f"no history under {settings.root}")
            return
        rows = list(lineage.rows())
        width = max(len(row.graph) for row in rows)
        for row in rows:
            graph = Text(f"{row.graph:<{width}}" if row.node is not None else row.graph)
            out.line(graph if row.node is None else graph + Text("  ") + _described(row.node, views, apps))

    nodes = [_node_json(row.node, views, paths, apps) for row in lineage.rows() if row.node is not None]
    settings.output.result({"nodes": nodes}, show)


def _family(lineage: Lineage, job: str) -> Lineage:
    """The trees in which the job has a part, whole: forks from and to other jobs belong to them."""
    root = {key: (lineage.ancestors(key) or [lineage.nodes[key]])[-1].key for key in lineage.nodes}
    roots = {root[key] for key in lineage.nodes if _job(lineage.nodes[key]) == job}
    return Lineage({key: node for key, node in lineage.nodes.items() if root[key] in roots})


def _job(node: Node) -> str | None:
    return node.record.job if node.record is not None else node.key.job or None


def _described(node: Node, views: dict[tuple[str, str], RunView], apps: dict[tuple[str, str], str]) -> Text:
    shown = Text(node.key.id, _COLORS[node.key.kind])
    record = node.record
    if record is None:
        kind = node.key.kind
        return shown + Text(
            f"  {kind} whose record is gone" if kind == "run" else "  savepoint that is gone or elsewhere"
        )
    shown += Text(f"  {record.job}")
    if isinstance(record, Run):
        view = views.get((record.job, record.run))
        words: list[str] = [view.state if view is not None else record.outcome or "unknown"]
        if (record.job, record.run) in apps:
            words.append(os.path.basename(apps[record.job, record.run]))
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


def _node_json(
    node: Node, views: dict[tuple[str, str], RunView], paths: dict[str, str], apps: dict[tuple[str, str], str]
) -> dict[str, Any]:
    record = node.record
    view = views.get((node.key.job, node.key.id)) if node.key.kind == "run" else None
    return {
        "kind": node.key.kind,
        "id": node.key.id,
        "job": _job(node),
        "run": record.run if isinstance(record, Savepoint) else None,
        "parent": None if node.parent is None else _key_json(node.parent),
        "epoch": node.epoch,
        "created_ms": node.created_ms,
        "state": None if view is None else view.state,
        "label": None if record is None else record.label,
        "note": record.note if isinstance(record, Savepoint) else None,
        "drained": record.drained if isinstance(record, Savepoint) else None,
        "schedule_ms": record.schedule_ms if isinstance(record, Savepoint) else None,
        "path": paths.get(node.key.id) if node.key.kind == "savepoint" else None,
        "missing": record is None,
        "program": apps.get((node.key.job, node.key.id)) if node.key.kind == "run" else None,
    }


def _key_json(key: NodeKey) -> dict[str, Any]:
    return {"kind": key.kind, "job": key.job or None, "id": key.id}
