"""Commands about running jobs: list, savepoint, rescale, stop, cancel."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.text import Text

from forkpoint import operations
from forkpoint.cli import text
from forkpoint.cli.names import JOB, PlaceType
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import Command, current
from forkpoint.control.registry import RunView
from forkpoint.operations.shapes import view_json

SKIP_UNREADABLE = click.option(
    "--skip-unreadable",
    is_flag=True,
    help="Leave out entries that do not fit their types, and list them in savepoint.json.",
)
_STYLES = {"running": "green", "restarting": "yellow", "lost": "red", "failed": "red", "silent": "yellow"}


@click.command("list", cls=Command)
@click.option("-a", "--all", "everything", is_flag=True, help="Also list runs that have ended.")
def list_(everything: bool) -> None:
    """List running jobs, and lost ones, whose driver was killed."""
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
        view.job, view.run, Text(view.state, _STYLES.get(view.state, "")), text.number(view.epoch),
        text.duration(view.uptime_ms), text.number(view.records_read), text.number(late), text.number(view.restarts),
        text.moment(view.started_ms),
    ]  # fmt: skip


@click.command(cls=Command)
@click.argument("job", type=JOB)
@click.argument("directory", type=PlaceType(), required=False)
@click.option("--label", help="A name for it, for `run -s` and `show`; no schedule removes a labelled savepoint.")
@click.option("--note", help="A remark, shown with it.")
@SKIP_UNREADABLE
def savepoint(job: str, directory: str | None, label: str | None, note: str | None, skip_unreadable: bool) -> None:
    """Take a savepoint of JOB while it runs, and print its path.

    The savepoint is a new directory below DIRECTORY, a path or URL; by default below the state root.
    """
    settings = current()
    taken = operations.savepoint(
        job, directory, label=label, note=note, skip_unreadable=skip_unreadable, state_root=settings.given_root,
        observer=settings.output,
    )  # fmt: skip
    settings.output.result(asdict(taken), lambda out: out.line(taken.savepoint))


@click.command(cls=Command)
@click.argument("job", type=JOB)
@click.option("-p", "--parallelism", type=int, required=True, help="The new number of subtasks.")
def rescale(job: str, parallelism: int) -> None:
    """Change the parallelism of JOB while it runs, without a restart."""
    settings = current()
    done = operations.rescale(job, parallelism, state_root=settings.given_root, observer=settings.output)
    said = f"job {done.job}, run {done.run}: parallelism {done.parallelism} from epoch {done.epoch} on"
    settings.output.result(asdict(done), lambda out: out.line(said))


@click.command(cls=Command)
@click.argument("job", type=JOB)
@click.option("--drain", is_flag=True, help="First fire all timers and windows; use it if the job will not resume.")
@click.option(
    "-p", "--savepoint-path", metavar="DIR", type=PlaceType(), help="The directory for the savepoint: a path or URL."
)
@SKIP_UNREADABLE
def stop(job: str, drain: bool, savepoint_path: str | None, skip_unreadable: bool) -> None:
    """Stop JOB with a savepoint, and print the savepoint's path. Nothing is committed after it."""
    settings = current()
    stopped = operations.stop(
        job, savepoint_path, drain=drain, skip_unreadable=skip_unreadable, state_root=settings.given_root,
        observer=settings.output,
    )  # fmt: skip
    settings.output.result(asdict(stopped), lambda out: out.line(stopped.savepoint))


@click.command(cls=Command)
@click.argument("job", type=JOB)
def cancel(job: str) -> None:
    """Cancel JOB, without a savepoint. Its checkpoints stay: the next run resumes from the last one."""
    settings = current()
    ended = operations.cancel(job, state_root=settings.given_root)
    settings.output.result(asdict(ended), lambda out: out.line(f"job {ended.job}, run {ended.run}: cancelled"))
