"""The demo: a job on flight data is stopped with a savepoint, changed, and resumed.

    make demo

A year of flights arrives as a live stream of files. Version 1 of a job counts departures and raises alarms; while it
runs a savepoint is taken, then it is stopped with another one. Version 2 resumes from the second, at another
parallelism; version 1 is forked from the first under another name. Finally their results are compared with those
of a batch query in Spark SQL over all flights: the exit code is 0 if every row is there, once.

Everything is done with the commands shown; all output is below .demo/flights. SPARK_MASTER (local[2]
if unset) and FORKPOINT_ENGINE choose where the jobs run.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.protocol.registry import RunView, list_runs
from forkpoint.storage.base import open_storage

REPOSITORY = Path(__file__).resolve().parent.parent
PROGRAMS = "examples/flights"
HOME = ".demo/flights"
PREPARED, STREAM, STATE = f"{HOME}/prepared", f"{HOME}/stream", f"{HOME}/state"
FLIGHTS, FILES, EVERY_S = 336_776, 100, 0.3
SAVEPOINT_AT, STOP_AT = 0.35, 0.6
PATIENCE_S = 180.0

console = Console(highlight=False)
numbers = itertools.count(1)
ENVIRONMENT = {"SPARK_MASTER": "local[2]", **os.environ, "FORKPOINT_STATE_ROOT": STATE, "COLUMNS": "160"}


class DemoError(Exception):
    """A step failed; the message is the command's output."""


# ---------------------------------------------------------------- steps


def heading(text: str) -> None:
    console.print()
    console.rule(Text(f"{next(numbers)}. {text}", "bold"), align="left")


def command(line: str) -> str:
    """Show and run a command, and return the last line of its output."""
    console.print(Text(f"$ {line}", "bold cyan"), soft_wrap=True)
    name, *arguments = line.split()
    program = [sys.executable, "-m", "forkpoint.cli"] if name == "forkpoint" else [sys.executable]
    with console.status(""):
        done = subprocess.run(
            [*program, *arguments],
            cwd=REPOSITORY,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE_S,
        )
    shown = done.stdout.rstrip()
    if shown:
        console.print(Text(shown.replace(f"file://{REPOSITORY}/", "").replace(f"{REPOSITORY}/", "")), soft_wrap=True)
    if done.returncode:
        raise DemoError(f"{line}: exit code {done.returncode}\n{done.stderr.rstrip()}")
    return done.stdout.rstrip().rpartition("\n")[2]


def read_so_far(job: str) -> int:
    """How many flights the job's newest checkpoint covers, including those before the savepoint it started from."""
    newest = History(open_storage(str(REPOSITORY / STATE)), JobPaths(job)).newest()
    if newest is None or "flights" not in newest.sources:
        return 0
    return sum(split.count for split in newest.sources["flights"].splits.values())


def watch(jobs: Sequence[str], until: int) -> None:
    """Show progress until each job has read ``until`` flights."""
    columns = [TextColumn("{task.description:<14}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    with Progress(*columns, console=console) as progress:
        tasks = {job: progress.add_task(job, total=FLIGHTS) for job in jobs}
        end = time.monotonic() + PATIENCE_S
        while True:
            done = {job: read_so_far(job) for job in jobs}
            for job, task in tasks.items():
                progress.update(task, completed=done[job])
            if min(done.values()) >= until:
                return
            running = {view.job: view for view in live_runs()}
            if lost := set(jobs) - set(running):
                raise DemoError(f"job {', '.join(lost)} ended early; its log is below {STATE}/logs")
            if any((view.restarts or 0) > 2 for view in running.values()):
                raise DemoError(f"a job keeps failing; the logs are below {STATE}/logs")
            if time.monotonic() > end:
                raise DemoError(f"the jobs have read {done} flights after {PATIENCE_S:.0f} s")
            time.sleep(0.4)


def live_runs() -> list[RunView]:
    return [view for view in list_runs(open_storage(str(REPOSITORY / STATE))) if view.is_live]


class LiveStream(threading.Thread):
    """Makes the prepared files appear one after the other, at most ``limit`` of them.

    The limit reserves a part of the stream for version 2, however slow version 1 is.
    """

    def __init__(self) -> None:
        super().__init__(name="live-stream", daemon=True)
        self.limit = int(FILES * (STOP_AT + 1) / 2)
        self._ended = threading.Event()

    def run(self) -> None:
        waiting = sorted((REPOSITORY / PREPARED).iterdir())
        appeared = 0
        while waiting and not self._ended.wait(EVERY_S):
            if appeared < self.limit:
                file = waiting.pop(0)
                os.utime(file)
                file.rename(REPOSITORY / STREAM / file.name)
                appeared += 1

    def __enter__(self) -> LiveStream:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()


def cancel_jobs() -> None:
    for view in live_runs():
        subprocess.run(
            [sys.executable, "-m", "forkpoint.cli", "cancel", view.job],
            cwd=REPOSITORY,
            env=ENVIRONMENT,
            check=False,
            capture_output=True,
        )


def fresh_directories() -> None:
    if (REPOSITORY / STATE).exists():
        cancel_jobs()  # of a demo that was killed
    shutil.rmtree(REPOSITORY / HOME, ignore_errors=True)
    for directory in (STREAM, STATE):
        (REPOSITORY / directory).mkdir(parents=True)


# ---------------------------------------------------------------- results


def directory_of(savepoint: str) -> Path:
    return Path(unquote(urlparse(savepoint).path))


def show_state(savepoint: str) -> None:
    """A savepoint's state is Parquet with plain columns, which any tool reads."""
    state = pq.read_table(directory_of(savepoint) / "operators" / "counts" / "departures")
    console.print(f"\n{state.num_rows} rows in operators/counts/departures of the savepoint, the largest:")
    show(state.sort_by([("value", "descending")]).slice(0, 4))


def show(rows: pa.Table, render: Callable[[str, object], str] = lambda _, value: str(value)) -> None:
    table = Table(*rows.column_names, box=None, header_style="dim", padding=(0, 3, 0, 0))
    for row in rows.to_pylist():
        table.add_row(*(render(name, value) for name, value in row.items()))
    console.print(table)


def output(version: str, what: str) -> pa.Table:
    files = sorted((REPOSITORY / HOME / version / what).glob("part-*.parquet"))
    return pa.concat_tables(pq.read_table(file) for file in files)


def show_alarms() -> None:
    def text(name: str, value: object) -> str:
        return f"{datetime.fromtimestamp(value / 1000, UTC):%Y-%m-%d %H:%M}" if name == "time" else str(value)  # type: ignore[operator]

    for version, who in (("v1", "version 1"), ("v2", "version 2"), ("fork", "the fork of version 1")):
        alarms = output(version, "alarms").sort_by("time")
        kinds = Counter(alarms["kind"].to_pylist())
        console.print(f"{who}: {kinds['alarm']} alarms, {kinds['escalation']} escalations; the last of them")
        show(alarms.slice(max(0, alarms.num_rows - 3)), text)


def check_airports() -> None:
    """Compare version 2's new operator with the alarms that it counted."""
    counted = output("v2", "airports").group_by("origin").aggregate([("alarms", "max"), ("escalations", "max")])
    counted = counted.rename_columns(["origin", "alarm", "escalation"]).sort_by("origin")
    alarms = output("v2", "alarms").group_by(["origin", "kind"]).aggregate([([], "count_all")]).to_pylist()
    wanted = {(row["origin"], row["kind"]): row["count_all"] for row in alarms}
    console.print("version 2's new operator counted them by airport:")
    show(counted)
    for row in counted.to_pylist():
        for kind in ("alarm", "escalation"):
            if row[kind] != wanted.get((row["origin"], kind), 0):
                raise DemoError(f"{row} counts the {kind}s; the operator's input was {wanted}")


# ---------------------------------------------------------------- the story


def demonstrate() -> None:
    heading("A year of flights from New York, to arrive as a stream")
    command(f"python {PROGRAMS}/prepare.py {PREPARED} --files {FILES}")

    heading("Version 1 runs")
    command(f"forkpoint run -d -p 2 {PROGRAMS}/flights_v1.py -- {STREAM} {HOME}/v1")
    with LiveStream() as stream:
        watch(["flights"], int(FLIGHTS * SAVEPOINT_AT))

        heading("A savepoint, while it runs")
        first = command("forkpoint savepoint flights --label spring")
        show_state(first)
        watch(["flights"], int(FLIGHTS * STOP_AT))

        heading("Version 1 is stopped with a savepoint; the stream goes on")
        last = command("forkpoint stop flights")
        switch = position(last)
        stream.limit = FILES

        heading("Version 2 resumes from there, with three subtasks instead of two")
        command(f"forkpoint run -d -p 3 -s latest {PROGRAMS}/flights_v2.py -- {STREAM} {HOME}/v2")

        heading("A fork of version 1, from the savepoint `spring`")
        command(f"forkpoint run -d -p 2 -s spring --name flights-fork {PROGRAMS}/flights_v1.py -- {STREAM} {HOME}/fork")
        command("forkpoint list")
        watch(["flights", "flights-fork"], FLIGHTS)

    heading("The end of the stream: all timers fire, and both jobs end")
    command("forkpoint stop flights --drain")
    command("forkpoint stop flights-fork --drain")

    heading("The tree of versions")
    command("forkpoint tree")

    heading("The alarms")
    show_alarms()
    check_airports()

    heading(f"Compared with one batch query over all {FLIGHTS:,} flights")
    forked_at = json.loads((directory_of(first) / "savepoint.json").read_text())["epoch"]
    command(
        f"python {PROGRAMS}/check.py {STREAM} --switch {switch}"
        f" --counts {HOME}/v1/counts {HOME}/v2/counts --alarms {HOME}/v1/alarms {HOME}/v2/alarms"
        f" --fork-counts {HOME}/v1/counts@{forked_at} {HOME}/fork/counts"
        f" --fork-alarms {HOME}/v1/alarms@{forked_at} {HOME}/fork/alarms"
    )


def position(savepoint: str) -> int:
    """How many flights were read before the savepoint."""
    saved = json.loads((directory_of(savepoint) / "savepoint.json").read_text())
    return sum(split["count"] for split in saved["sources"]["flights"]["splits"].values())


def main() -> int:
    began = time.monotonic()
    fresh_directories()
    try:
        demonstrate()
    except DemoError as error:
        console.print(Text(f"\n{error}", "bold red"))
        return 1
    finally:
        cancel_jobs()
    took = time.monotonic() - began
    console.print(f"\n[bold green]Every row is there, once.[/] {took:.0f} s; all of it is in {HOME}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
