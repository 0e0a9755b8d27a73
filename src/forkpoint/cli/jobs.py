"""Commands about running jobs: list, savepoint, stop, cancel."""

from __future__ import annotations

import time
from typing import Any

import click
from rich.text import Text

from forkpoint.cli import text
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import Command, absolute, current
from forkpoint.control.client import ControlClient
from forkpoint.control.registry import RunView, find_live, list_runs
from forkpoint.errors import ForkpointError

ENDING_SECONDS = 60.0
TELL_SECONDS = 20.0
_WITHOUT_END = ("lost", "unknown", "elsewhere")
SKIP_UNREADABLE = click.option(
    "--skip-unreadable",
    is_flag=True,
    help="Leave out saved entries that do not fit their types, and list them in savepoint.json.",
)
_STYLES = {"running": "green", "restarting": "yellow", "lost": "red", "failed": "red", "silent": "yellow"}


@click.command("list", cls=Command)
@click.option("-a", "--all", "everything", is_flag=True, help="Runs that have ended, too.")
def list_(everything: bool) -> None:
    """Running jobs, and those that were lost because their driver was killed."""
    settings = current()
    views = [
        v
        for v in list_runs(settings.storage_there)
        if everything or v.is_live or (v.newest and v.state in _WITHOUT_END)
    ]

    def show(out: TextOutput) -> None:
        if not views:
            out.line(f"no {'runs' if everything else 'running jobs'} under {settings.root}")
            return
        titles = ["JOB", "RUN", "STATE", "EPOCH", "UPTIME", "RECORDS", "LATE", "RESTARTS", "STARTED (UTC)"]
        out.table(titles, [_row(view) for view in views], right=titles[3:8])
        for view in views:
            if view.state == "lost" and view.newest and view.endpoint is not None and view.endpoint.log:
                out.line(f"the log of lost job {view.job!r}: {view.endpoint.log}")

    settings.output.result({"jobs": [view_json(view) for view in views]}, show)


def _row(view: RunView) -> list[str | Text]:
    late = None if view.late_records_dropped is None else sum(view.late_records_dropped.values())
    return [
        view.job, view.run, Text(view.state, _STYLES.get(view.state, "")), text.number(view.epoch),
        text.duration(view.uptime_ms), text.number(view.records_read), text.number(late), text.number(view.restarts),
        text.moment(view.started_ms),
    ]  # fmt: skip


def view_json(view: RunView) -> dict[str, Any]:
    endpoint = view.endpoint
    return {
        "job": view.job,
        "run": view.run,
        "state": view.state,
        "newest": view.newest,
        "epoch": view.epoch,
        "started_ms": view.started_ms,
        "ended_ms": view.ended_ms,
        "uptime_ms": view.uptime_ms,
        "records_read": view.records_read,
        "late_records_dropped": None if view.late_records_dropped is None else dict(view.late_records_dropped),
        "restarts": view.restarts,
        "reason": view.reason,
        "parent": view.parent.model_dump(mode="json"),
        "pid": None if endpoint is None else endpoint.pid,
        "machine": None if endpoint is None else endpoint.machine,
        "port": None if endpoint is None else endpoint.port,
        "log": None if endpoint is None else endpoint.log,
    }


@click.command(cls=Command)
@click.argument("job")
@click.argument("directory", required=False)
@click.option("--label", help="A name for it, which `run -s` and `show` take and retention spares.")
@click.option("--note", help="A remark to be shown with it.")
@SKIP_UNREADABLE
def savepoint(job: str, directory: str | None, label: str | None, note: str | None, skip_unreadable: bool) -> None:
    """Make a savepoint of JOB, which goes on, and print its path.

    The savepoint is a new directory below DIRECTORY, a path or URL; by default below the state root.
    """
    settings = current()
    with find_live(settings.storage, job) as client:
        place = None if directory is None else absolute(directory)
        asked = client.savepoint(place, label, note, skip_unreadable=skip_unreadable)
        path = wait_for_savepoint(client, asked, f"savepoint of {job}")
    data = {"job": job, "run": client.endpoint.run, "savepoint": path}
    settings.output.result(data, lambda out: out.line(path))


@click.command(cls=Command)
@click.argument("job")
@click.option(
    "--drain", is_flag=True, help="First let all timers and windows fire; the job is not meant to go on then."
)
@click.option("-p", "--savepoint-path", metavar="DIR", help="Where the savepoint goes: a path or URL.")
@SKIP_UNREADABLE
def stop(job: str, drain: bool, savepoint_path: str | None, skip_unreadable: bool) -> None:
    """End JOB with a savepoint and print the savepoint's path. Nothing is committed after it."""
    settings = current()
    with find_live(settings.storage, job) as client:
        place = None if savepoint_path is None else absolute(savepoint_path)
        asked = client.stop(place, drain=drain, skip_unreadable=skip_unreadable)
        path = wait_for_savepoint(client, asked, f"stopping {job}")
        wait_gone(client)
    data = {"job": job, "run": client.endpoint.run, "savepoint": path, "drained": drain}
    settings.output.result(data, lambda out: out.line(path))


@click.command(cls=Command)
@click.argument("job")
def cancel(job: str) -> None:
    """End JOB without a savepoint. Its checkpoints stay: run it again and it goes on from the last one."""
    settings = current()
    with find_live(settings.storage, job) as client:
        client.cancel()
        wait_gone(client)
    data = {"job": job, "run": client.endpoint.run}
    settings.output.result(data, lambda out: out.line(f"job {job}, run {client.endpoint.run}: cancelled"))


def wait_for_savepoint(client: ControlClient, request_id: str, what: str) -> str:
    """Wait for what was asked for, with a bar that shows how far it is; the savepoint's path."""
    output = current().output
    told: list[float] = []

    def waits(doing: str) -> None:
        now = time.monotonic()
        if not told or now - told[-1] >= TELL_SECONDS:
            told.append(now)
            output.remark(
                f"{what}: waits for the end of {doing}. If that never ends: `forkpoint cancel {client.endpoint.job}` gives the "
                "epoch up; the checkpoints stay"
            )

    with output.progress(what) as report:
        return text.place(client.wait(request_id, lambda progress: report(progress.done, progress.total), waits))


def wait_gone(client: ControlClient) -> None:
    """Wait until the driver has ended."""
    if not client.wait_gone(ENDING_SECONDS):
        endpoint = client.endpoint
        doing = client.status().doing
        raise ForkpointError(
            f"job {endpoint.job!r} has not ended after {ENDING_SECONDS:.0f} s"
            + (f": it is at {doing}" if doing is not None else "")
            + f"; look at process {endpoint.pid}"
            + (f" and its log {endpoint.log}" if endpoint.log else "")
        )
