"""The `ab` command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.text import Text

from forkpoint import operations
from forkpoint.cli import text
from forkpoint.cli.commands.run import AppType, RunCommand, request_of, start_options, until_option
from forkpoint.cli.names import SAVEPOINT, PlaceType
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import current
from forkpoint.operations import VersionsCompared
from forkpoint.operations.versions.comparison import Comparison
from forkpoint.state_processor import StateDiff


def split_keys(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[str | None, list[str]]:
    """Parse --key: columns by sink uid, None for all other sinks."""
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
    "--key",
    "keys",
    metavar="[UID=]COLUMN,…",
    multiple=True,
    callback=split_keys,
    help="The key columns of a sink, or without a uid of all sinks; by default the first column. Repeatable.",
)
@click.option("--samples", type=click.IntRange(0), default=5, show_default=True, help="Differing keys to show for each sink.")
@click.option("--keep", metavar="DIR", type=PlaceType(), help="Keep the rows, state and logs of both versions here.")
@start_options
@until_option
@click.argument("savepoint", type=SAVEPOINT)
@click.argument("app_a", type=AppType())
@click.argument("app_b", type=AppType())
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def ab(
    keys: dict[str | None, list[str]],
    samples: int,
    keep: str | None,
    savepoint: str,
    app_a: str,
    app_b: str,
    args: Sequence[str],
    **options: Any,
) -> None:
    """Run APP_A and APP_B from SAVEPOINT over the same inputs, one after the other, and compare their output.

    Both read up to --until, by default up to the current position of the savepoint's job. Neither version writes to its sinks:
    the command collects and compares their output, sink by sink, and removes it in the end.
    """
    settings = current()
    found = operations.ab(
        savepoint,
        request_of(app_a, args, options),
        app_b,
        keys=keys,
        samples=samples,
        keep=keep,
        state_root=settings.given_root,
        observer=settings.output,
    )
    data = {
        "savepoint": found.savepoint,
        "a": found.a,
        "b": found.b,
        "same": found.same,
        "sinks": [asdict(each) for each in found.sinks],
        "states": None if found.states is None else [_state_json(each) for each in found.states.states],
        "kept": found.kept,
    }
    settings.output.result(data, lambda out: _show(out, found))


def _show(out: TextOutput, found: VersionsCompared) -> None:
    if not found.sinks:
        out.line("neither version produced output")
        return
    titles = ["SINK", "ROWS A", "ROWS B", "ONLY A", "ONLY B", "KEY", "SAME", "DIFFER", "KEYS ONLY A", "KEYS ONLY B"]
    out.table(titles, [_row(each) for each in found.sinks], right=[t for t in titles if t not in ("SINK", "KEY")])
    for each in found.sinks:
        for sample in each.samples:
            out.line()
            out.line(Text(f"{each.uid}  {json.dumps(sample.key, ensure_ascii=False)}", "bold"))
            for version, rows in zip("AB", (sample.only_a, sample.only_b), strict=True):
                for row in rows:
                    out.line(f"  {version}  {json.dumps(row, ensure_ascii=False)}")
    differing = [each for each in found.states.states if each.outcome != "same"] if found.states is not None else []
    if differing:
        out.line()
        titles = ["OPERATOR", "STATE", "ENTRIES A", "ENTRIES B", "ONLY A", "ONLY B", "DIFFER"]
        out.table(titles, [_state_row(each) for each in differing], right=titles[2:])
    out.line()
    out.line("both versions produced the same output" if found.same else "the versions differ")
    if found.kept is not None:
        out.line(f"kept: {found.kept}")


def _state_json(each: StateDiff) -> dict[str, Any]:
    return {
        "uid": each.uid,
        "state": each.name,
        "outcome": each.outcome,
        "entries_a": each.rows_before,
        "entries_b": each.rows_after,
        "only_a": each.removed,
        "only_b": each.added,
        "different": each.changed,
    }


def _state_row(each: StateDiff) -> list[str]:
    counts = (each.rows_before, each.rows_after, each.removed, each.added, each.changed)
    return [each.uid, each.name, *map(text.number, counts)]


def _row(each: Comparison) -> list[str]:
    counts = (each.rows_a, each.rows_b, each.only_a, each.only_b)
    keys = (each.keys_same, each.keys_different, each.keys_only_a, each.keys_only_b)
    key = "the row" if each.key is None else ", ".join(each.key)
    return [each.uid, *map(text.number, counts), key, *map(text.number, keys)]
