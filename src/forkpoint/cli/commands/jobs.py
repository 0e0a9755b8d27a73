"""Commands about jobs: list, explain, savepoint, rescale, stop, cancel, publish, tree."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich.text import Text

from forkpoint import operations
from forkpoint.checkpoint.manifest import Run
from forkpoint.checkpoint.plan import CHANGES, KEEPS, KEY, RUNS
from forkpoint.cli import text
from forkpoint.cli.names import JOB, PlaceType
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import Command, current
from forkpoint.operations.shapes import explained_json, tree_json, view_json
from forkpoint.protocol.registry import RunView

if TYPE_CHECKING:
    from forkpoint.checkpoint.lineage import Node
    from forkpoint.operations import OperatorExplained, Tree

SKIP_UNREADABLE = click.option(
    "--skip-unreadable", is_flag=True, help="Leave out entries that do not fit their types, and list them in savepoint.json."
)
SELF_CONTAINED = click.option(
    "--self-contained", is_flag=True, help="Do not refer to files of earlier savepoints, so that it can be copied alone."
)
_STYLES = {"running": "green", "restarting": "yellow", "lost": "red", "failed": "red", "silent": "yellow"}


@click.command("list", cls=Command)
@click.option("-a", "--all", "everything", is_flag=True, help="Also list runs that have ended.")
def list_(everything: bool) -> None:
    """List running jobs, and lost jobs, whose driver was killed."""
    settings = current()
    views = operations.list_jobs(ended=everything, state_root=settings.given_root)

    def show(out: TextOutput) -> None:
        if not views:
            out.line(f"no {'runs' if everything else 'running jobs'} under {settings.state_root.place}")
            return
        titles = ["JOB", "RUN", "STATE", "EPOCH", "UPTIME", "RECORDS", "LATE", "RESTARTS", "STARTED (UTC)"]
        out.table(titles, [_row(view) for view in views], right=titles[3:8])
        for view in views:
            if view.state == "lost" and view.newest and view.endpoint is not None and view.endpoint.log:
                out.line(f"the log of lost job {view.job!r}: {view.endpoint.log}")
            for problem in view.problems:
                out.line(f"job {view.job!r}: {problem.text}")
            if view.doing is not None and not any(each.text.startswith(view.doing) for each in view.problems):
                out.line(f"job {view.job!r}: {view.doing}")

    settings.output.result({"jobs": [view_json(view) for view in views]}, show)


def _row(view: RunView) -> list[str | Text]:
    late = None if view.late_records_dropped is None else sum(view.late_records_dropped.values())
    return [
        view.job,
        view.run,
        Text(view.state, _STYLES.get(view.state, "")),
        text.number(view.epoch),
        text.duration(view.uptime_ms),
        text.number(view.records_read),
        text.number(late),
        text.number(view.restarts),
        text.moment(view.started_ms),
    ]


@click.command(cls=Command)
@click.argument("job", type=JOB)
@click.argument("directory", type=PlaceType(), required=False)
@click.option("--label", help="A name for it, for `run -s` and `show`; no schedule removes a labelled savepoint.")
@click.option("--note", help="A remark, shown with the savepoint.")
@SKIP_UNREADABLE
@SELF_CONTAINED
def savepoint(
    job: str, directory: str | None, label: str | None, note: str | None, skip_unreadable: bool, self_contained: bool
) -> None:
    """Take a savepoint of JOB while it runs, and print its path.

    The savepoint is a new directory below DIRECTORY, a path or URL; by default below the state root.
    """
    settings = current()
    taken = operations.savepoint(
        job,
        directory,
        label=label,
        note=note,
        skip_unreadable=skip_unreadable,
        self_contained=self_contained,
        state_root=settings.given_root,
        observer=settings.output,
    )
    settings.output.result(asdict(taken), lambda out: out.line(taken.savepoint))


@click.command(cls=Command)
@click.argument("job", type=JOB)
@click.option("-p", "--parallelism", type=int, required=True, help="The new number of subtasks.")
def rescale(job: str, parallelism: int) -> None:
    """Change the parallelism of JOB while it runs, without a restart."""
    settings = current()
    done = operations.rescale(job, parallelism, state_root=settings.given_root, observer=settings.output)
    line = f"job {done.job}, run {done.run}: parallelism {done.parallelism} from epoch {done.epoch} on"
    settings.output.result(asdict(done), lambda out: out.line(line))


@click.command(cls=Command)
@click.argument("job", type=JOB)
@click.option("--drain", is_flag=True, help="First fire all timers and windows; use it if the job will not resume.")
@click.option("-p", "--savepoint-path", metavar="DIR", type=PlaceType(), help="The directory for the savepoint: a path or URL.")
@SKIP_UNREADABLE
@SELF_CONTAINED
def stop(job: str, drain: bool, savepoint_path: str | None, skip_unreadable: bool, self_contained: bool) -> None:
    """Stop JOB with a savepoint, and print the savepoint's path. No epoch is committed after it."""
    settings = current()
    stopped = operations.stop(
        job,
        savepoint_path,
        drain=drain,
        skip_unreadable=skip_unreadable,
        self_contained=self_contained,
        state_root=settings.given_root,
        observer=settings.output,
    )
    settings.output.result(asdict(stopped), lambda out: out.line(stopped.savepoint))


@click.command(cls=Command)
@click.argument("job", type=JOB)
def cancel(job: str) -> None:
    """Cancel JOB, without a savepoint. Its checkpoints stay: the next run resumes from the last one."""
    settings = current()
    ended = operations.cancel(job, state_root=settings.given_root)
    settings.output.result(asdict(ended), lambda out: out.line(f"job {ended.job}, run {ended.run}: cancelled"))


@click.command(cls=Command)
@click.option(
    "--skip-refused",
    is_flag=True,
    help="Write records that a sink's system refuses to files, with the reasons, and publish the others.",
)
@click.argument("job", type=JOB)
def publish(skip_refused: bool, job: str) -> None:
    """Publish committed output that JOB's dead driver left unpublished, without starting the job.

    A driver that is killed between an epoch's commit and its publishing leaves output that no reader sees; `list` and `gc` show
    it. The next run of the job also publishes it, even if the run is refused because the job was stopped with a drain. This
    command runs the recorded program only to get its sinks. It can be repeated.
    """
    settings = current()
    with contextlib.redirect_stdout(sys.stderr):  # of the program
        done = operations.publish(job, skip_refused=skip_refused, state_root=settings.given_root, observer=settings.output)
    settings.output.result(asdict(done), lambda out: _show(out, done))


def _show(out: TextOutput, done: operations.Published) -> None:
    for each in done.skipped:
        out.line(f"sink {each.uid}: refused of epoch {each.epoch}: {text.number(each.records)} records, in {each.file}")
    but = "except these records, " if done.skipped else ""
    out.line(f"job {done.job}: {but}all output up to epoch {done.epoch} is published")


@click.command(cls=Command)
@click.argument("job", type=JOB)
def explain(job: str) -> None:
    """Show the operators of JOB: of queries also what they keep and for how long, and of all how much."""
    settings = current()
    found = operations.explain(job, state_root=settings.given_root)

    def show(out: TextOutput) -> None:
        out.line(f"job {found.job}, run {found.run}: {found.state}")
        titles = ["UID", "OPERATOR", "CHANGES", "KEY", "KEEPS", "ROWS IN", "ROWS OUT", "ENTRIES", "SIZE"]
        out.table(titles, [_explained(each) for each in found.operators], right=titles[5:])
        for each in found.operators:
            if RUNS in each.properties:
                out.line(f"{each.uid}: {each.properties[RUNS]}")

    settings.output.result(explained_json(found), show)


def _explained(operator: OperatorExplained) -> list[str]:
    told = [operator.properties.get(name, "-") for name in (CHANGES, KEY, KEEPS)]
    counts = ["-" if each is None else f"{each:,}" for each in (operator.rows_in, operator.rows_out, operator.entries)]
    return [operator.uid, operator.name, *told, *counts, "-" if operator.bytes is None else text.size(operator.bytes)]


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
        if record.emptied:
            words.append(f"with empty state of {', '.join(record.emptied)}")
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
