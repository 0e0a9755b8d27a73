"""The command that runs two versions of a program from one savepoint over the same inputs, and compares what they give."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from forkpoint.checkpoint.paths import JobPaths, unescape
from forkpoint.cli import text
from forkpoint.cli.comparing import Comparison, compare_rows
from forkpoint.cli.detached import tail
from forkpoint.cli.failures import Failure
from forkpoint.cli.finding import named_savepoint
from forkpoint.cli.output import TextOutput
from forkpoint.cli.program import AppType
from forkpoint.cli.replaying import write_positions
from forkpoint.cli.run import RunCommand, start_arguments, start_options, until_option
from forkpoint.cli.settings import Settings, current
from forkpoint.driver.history import History
from forkpoint.errors import ConfigError, JobFailed
from forkpoint.savepoint.catalog import list_savepoints
from forkpoint.savepoint.reading import OpenedSavepoint
from forkpoint.state_processor import SavepointDiff, StateDiff, diff
from forkpoint.storage.base import open_storage

VERSIONS = ("a", "b")


def split_keys(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[str | None, list[str]]:
    """What --key gives: columns by sink uid, None for all other sinks."""
    keys: dict[str | None, list[str]] = {}
    for each in given:
        uid, separator, columns = each.rpartition("=")
        names = columns.split(",")
        if not all(names) or (separator and not uid):
            raise click.BadParameter(f"{each!r} is not of the form COLUMN,… or UID=COLUMN,…", ctx, param)
        keys[uid if separator else None] = names
    return keys


@click.command(cls=RunCommand)
@click.option(
    "--key", "keys", metavar="[UID=]COLUMN,…", multiple=True, callback=split_keys,
    help="The columns that make the key of a sink's rows (of all sinks', without a uid); by default the first one. "
    "Repeatable.",
)  # fmt: skip
@click.option(
    "--samples", type=click.IntRange(0), default=5, show_default=True, help="Differing keys to show, for each sink."
)
@click.option("--keep", metavar="DIR", help="Keep the rows of both versions, their state and their logs here.")
@start_options
@until_option
@click.argument("savepoint")
@click.argument("app_a", type=AppType())
@click.argument("app_b", type=AppType())
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def ab(
    keys: dict[str | None, list[str]], samples: int, keep: str | None, until: str | None, savepoint: str, app_a: str,
    app_b: str, args: Sequence[str], **options: Any,
) -> None:  # fmt: skip
    """Run APP_A and APP_B from SAVEPOINT over the same inputs, one after the other, and compare their output.

    Both read up to --until; by default up to where the savepoint's job stands now. Neither writes to its own sinks: what
    they would have got is collected and compared, sink by sink. Nothing else is left behind.
    """
    settings = current()
    opened = named_savepoint(settings.storage, savepoint)
    place = Path(keep).absolute() if keep is not None else Path(tempfile.mkdtemp(prefix="forkpoint-ab-"))
    try:
        place.mkdir(parents=True, exist_ok=True)
        if any(place.iterdir()):
            raise ConfigError(f"--keep {place}: there are files already; name a directory that is empty or new")
        end = until or _newest(settings, opened, place)
        trial = Trials(settings, place, opened, start_arguments(options), tuple(args))
        with settings.output.progress("running both versions") as report:
            for done, (version, app) in enumerate(zip(VERSIONS, (app_a, app_b), strict=True)):
                report(done, len(VERSIONS))
                end = trial.run(version, app, end)
        found = trial.compared(keys, samples)
        kept = None if keep is None else str(place)
        _show(settings, opened, (app_a, app_b), found, trial.states(samples), kept)
    finally:
        if keep is None:
            shutil.rmtree(place, ignore_errors=True)


def _newest(settings: Settings, opened: OpenedSavepoint, place: Path) -> str:
    """Where the savepoint's job stands now, as ``--until`` takes it."""
    saved = opened.savepoint
    newest = History(settings.storage, JobPaths(saved.job)).newest()
    if newest is None or newest.epoch <= saved.epoch:
        raise ConfigError(
            f"job {saved.job!r} has read nothing since savepoint {saved.id}, so there is nothing to compare; give --until"
        )
    return write_positions(place / "until.json", newest.sources, f"epoch {newest.epoch} of {saved.job}")


@dataclass(frozen=True)
class Trials:
    """Both versions' runs: each a job of its own under a state root of its own, with its rows in files beside it."""

    settings: Settings
    place: Path
    opened: OpenedSavepoint
    options: list[str]
    arguments: tuple[str, ...]

    def run(self, version: str, app: str, until: str) -> str:
        """Run a version to the end; the answer is where it stopped, for the other one."""
        root, log = self.place / "state", self.place / f"{version}.log"
        command = [
            sys.executable, "-P", "-m", "forkpoint.cli", "--state-root", str(root), "run", "--name", version,
            "-s", text.place(self.opened.url), "--until", until, "--capture", str(self.place / version), *self.options,
            "--", app, *self.arguments,
        ]  # fmt: skip
        with open(log, "ab") as output:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        if done.returncode:
            failure = Failure(
                "JobFailed", f"version {version} ({app}) ended with exit code {done.returncode}", done.returncode
            )
            self.settings.output.failure(replace(failure, details=tail(log)))
            click.get_current_context().exit(done.returncode)
        return self._savepoint(version) or until

    def _savepoint(self, version: str) -> str | None:
        """The one with which the version's run has ended; None if its inputs came to their end first."""
        root = self.place / "state"
        taken = list_savepoints(open_storage(str(root)), version)
        return f"{root}/{taken[-1].directory}" if taken else None

    def states(self, samples: int) -> SavepointDiff | None:
        """What the versions' states differ in; None where there is no savepoint of both. They ran one after the other, so that
        times to live began at other times."""
        a, b = (self._savepoint(version) for version in VERSIONS)
        return None if a is None or b is None else diff(a, b, samples=samples, stamps=False)

    def compared(self, keys: dict[str | None, list[str]], samples: int) -> list[Comparison]:
        found = {v: {unescape(sink.name): sink for sink in (self.place / v).glob("*")} for v in VERSIONS}
        uids = sorted({uid for sinks in found.values() for uid in sinks})
        if unknown := sorted(uid for uid in keys if uid is not None and uid not in uids):
            raise ConfigError(
                f"--key: no sink {', '.join(map(repr, unknown))} got rows; there are {', '.join(map(repr, uids))}"
            )
        return [
            compare_rows(
                uid, *(_rows(found[v].get(uid)) for v in VERSIONS), key=keys.get(uid, keys.get(None)), samples=samples
            )
            for uid in uids
        ]  # fmt: skip


def _rows(sink: Path | None) -> Iterator[Any]:
    for file in sorted(sink.glob("*.jsonl")) if sink is not None else ():
        with open(file, "rb") as lines:
            for line in lines:
                try:
                    yield json.loads(line)
                except ValueError:
                    raise JobFailed(f"{file}: a row is no JSON: {line[:100]!r}") from None


def _show(
    settings: Settings, opened: OpenedSavepoint, apps: tuple[str, str], found: list[Comparison],
    states: SavepointDiff | None, kept: str | None,
) -> None:  # fmt: skip
    data = {
        "savepoint": text.place(opened.url),
        "a": apps[0],
        "b": apps[1],
        "same": all(each.same for each in found),
        "sinks": [asdict(each) for each in found],
        "states": None if states is None else [_state_json(each) for each in states.states],
        "kept": kept,
    }

    def show(out: TextOutput) -> None:
        if not found:
            out.line("neither version gave any output")
            return
        titles = ["SINK", "ROWS A", "ROWS B", "ONLY A", "ONLY B", "KEY", "SAME", "DIFFER", "KEYS ONLY A", "KEYS ONLY B"]
        out.table(titles, [_row(each) for each in found], right=[t for t in titles if t not in ("SINK", "KEY")])
        for each in found:
            for sample in each.samples:
                out.line()
                out.line(Text(f"{each.uid}  {json.dumps(sample.key, ensure_ascii=False)}", "bold"))
                for version, rows in zip("AB", (sample.only_a, sample.only_b), strict=True):
                    for row in rows:
                        out.line(f"  {version}  {json.dumps(row, ensure_ascii=False)}")
        differing = [each for each in states.states if each.outcome != "same"] if states is not None else []
        if differing:
            out.line()
            titles = ["OPERATOR", "STATE", "ENTRIES A", "ENTRIES B", "ONLY A", "ONLY B", "DIFFER"]
            out.table(titles, [_state_row(each) for each in differing], right=titles[2:])
        out.line()
        out.line("both versions gave the same output" if data["same"] else "the versions differ")
        if kept is not None:
            out.line(f"kept: {kept}")

    settings.output.result(data, show)


def _state_json(each: StateDiff) -> dict[str, Any]:
    return {
        "uid": each.uid, "state": each.name, "outcome": each.outcome, "entries_a": each.rows_before,
        "entries_b": each.rows_after, "only_a": each.removed, "only_b": each.added, "different": each.changed,
    }  # fmt: skip


def _state_row(each: StateDiff) -> list[str]:
    counts = (each.rows_before, each.rows_after, each.removed, each.added, each.changed)
    return [each.uid, each.name, *map(text.number, counts)]


def _row(each: Comparison) -> list[str]:
    counts = (each.rows_a, each.rows_b, each.only_a, each.only_b)
    keys = (each.keys_same, each.keys_different, each.keys_only_a, each.keys_only_b)
    key = "the row" if each.key is None else ", ".join(each.key)
    return [each.uid, *map(text.number, counts), key, *map(text.number, keys)]
