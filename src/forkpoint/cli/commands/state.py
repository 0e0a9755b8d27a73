"""Commands that read saved state: state ls, get, query; and diff."""

from __future__ import annotations

import click
from rich.text import Text

from forkpoint import operations
from forkpoint.cli import text
from forkpoint.cli.names import JOB_OR_SAVEPOINT, SAVEPOINT_OR_LATEST, STATE, UID
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import Command, current, options
from forkpoint.cli.text import shown
from forkpoint.operations.saved_state.inspection import LIMIT, SAMPLES
from forkpoint.operations.shapes import diff_json, entries_json, query_json, rows_of, states_json
from forkpoint.state_processor import SavepointDiff, StateDiff

_STYLES = {"added": "green", "removed": "red", "changed": "yellow", "other": "bold red", "same": "dim"}


@click.group("state", params=options(), context_settings={"help_option_names": ["-h", "--help"]})
def state() -> None:
    """Read the state of a SAVEPOINT (path, URL, id, label, or `latest`), or of a JOB at its last committed epoch."""


@state.command(cls=Command)
@click.argument("savepoint", metavar="SAVEPOINT|JOB", type=JOB_OR_SAVEPOINT)
def ls(savepoint: str) -> None:
    """List the states and timers of SAVEPOINT or JOB, with their types; of a savepoint also rows and sizes."""
    settings = current()
    found = operations.states(savepoint, state_root=settings.given_root)
    data = states_json(found)
    rows = data["states"]

    def show(out: TextOutput) -> None:
        if not rows:
            out.line(f"{found.path} has no state")
            return
        out.table(
            ["OPERATOR", "STATE", "KIND", "KEY", "TYPE", "ROWS", "SIZE"],
            [
                [
                    r["uid"],
                    r["state"],
                    r["kind"],
                    r["key_type"] or "-",
                    r["type"] or "-",
                    "-" if r["rows"] is None else text.number(r["rows"]),
                    "-" if r["bytes"] is None else text.size(r["bytes"]),
                ]
                for r in rows
            ],
            right=("ROWS", "SIZE"),
        )

    settings.output.result(data, show)


@state.command(cls=Command)
@click.argument("savepoint", metavar="SAVEPOINT|JOB", type=JOB_OR_SAVEPOINT)
@click.argument("uid", type=UID)
@click.argument("state", type=STATE)
@click.argument("key", required=False)
@click.option("--key", "named", metavar="KEY", help="The same as the argument KEY; also for one that begins with a dash.")
@click.option(
    "--limit", metavar="N", type=click.IntRange(min=0), default=LIMIT, show_default=True, help="Show at most N rows; 0: all."
)
def get(savepoint: str, uid: str, state: str, key: str | None, named: str | None, limit: int) -> None:
    """Show the rows of STATE of operator UID, or those of one KEY. STATE may be `timers`.

    Write a KEY that is not text as JSON: 5, '["a", 1]'. Only files that can hold it are read.
    """
    if key is not None and named is not None:
        raise click.UsageError("the key is given twice: as an argument, and with --key")
    key = named if key is None else key
    settings = current()
    found = operations.entries(savepoint, uid, state, key, limit=limit or None, state_root=settings.given_root)
    rows, total = found.rows, found.total

    def show(out: TextOutput) -> None:
        if not rows:
            out.line(f"{uid}.{found.state} is empty" if key is None else f"{uid}.{found.state} has no key {key}")
            return
        out.table([role.replace("_", " ").upper() for role in rows[0]], [list(map(shown, row.values())) for row in rows])
        if total is not None and total > len(rows):
            out.line(f"{text.number(len(rows))} of {text.number(total)} rows; --limit shows more")
        elif key is None and total is None and len(rows) == limit:
            out.line(f"the first {text.number(limit)} rows; --limit shows more")

    settings.output.result(entries_json(found), show)


@state.command(cls=Command)
@click.argument("savepoint", metavar="SAVEPOINT|JOB", type=JOB_OR_SAVEPOINT)
@click.argument("sql")
def query(savepoint: str, sql: str) -> None:
    """Run a SELECT over SAVEPOINT or JOB, in DuckDB's dialect: each state is a view "uid"."state", timers are "uid"."timers"."""
    settings = current()
    found = operations.query(savepoint, sql, state_root=settings.given_root)
    table, rows = found.table, rows_of(found.table)
    right = [f.name for f in table.schema if str(f.type).startswith(("int", "uint", "float", "double", "decimal"))]
    settings.output.result(
        query_json(found), lambda out: out.table(table.column_names, [list(map(shown, row)) for row in rows], right=right)
    )


@click.command("diff", cls=Command)
@click.argument("before", type=SAVEPOINT_OR_LATEST)
@click.argument("after", type=SAVEPOINT_OR_LATEST)
@click.option(
    "--samples",
    metavar="N",
    type=click.IntRange(min=0),
    default=SAMPLES,
    show_default=True,
    help="Show N differing entries of each state.",
)
@click.option("--exit-code", is_flag=True, help="Exit with 1 if they differ, as `git diff` does.")
def diff_(before: str, after: str, samples: int, exit_code: bool) -> None:
    """Compare the savepoints BEFORE and AFTER: entries by operator and state, timers, positions, watermarks."""
    settings = current()
    found = operations.diff(before, after, samples=samples, state_root=settings.given_root, observer=settings.output)
    settings.output.result(diff_json(found), lambda out: _show_diff(out, found))
    if exit_code and not found.same:
        click.get_current_context().exit(1)


def _show_diff(out: TextOutput, found: SavepointDiff) -> None:
    differing = [each for each in found.states if each.outcome != "same"]
    if differing:
        titles = ["", "OPERATOR", "STATE", "BEFORE", "AFTER", "+", "-", "~", "WHY"]
        rows = [_diff_row(each) for each in differing]
        out.table(titles, rows, right=("BEFORE", "AFTER", "+", "-", "~"))
    for each in differing:
        for sample in each.samples:
            place = "  ".join(f"{role}={shown(value)}" for role, value in sample.place.items())
            change = {"added": "+", "removed": "-", "changed": "~"}[sample.change]
            values = " → ".join(shown(v) for v in (sample.before, sample.after) if v is not None)
            out.line(Text(f"  {change} {each.uid}.{each.name}  {place}  {values}".rstrip(), _STYLES[sample.change]))
    for what, differs in (("position", found.positions), ("watermark", found.watermarks)):
        for one in differs:
            out.line(f"{what} of {one.uid}: {shown(one.before) or 'none'} → {shown(one.after) or 'none'}")
    same = len(found.states) - len(differing)
    if found.max_parallelism[0] != found.max_parallelism[1]:
        out.line(f"max parallelism: {found.max_parallelism[0]} → {found.max_parallelism[1]}")
    out.line("no difference" if found.same else f"{same} of {len(found.states)} states are the same")


def _diff_row(each: StateDiff) -> list[str | Text]:
    numbers = map(text.number, (each.rows_before, each.rows_after, each.added, each.removed, each.changed))
    return [Text(each.outcome, _STYLES[each.outcome]), each.uid, each.name, *numbers, each.why]
