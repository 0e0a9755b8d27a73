"""Commands that look into savepoints: state ls, get, query; and diff."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click
from rich.text import Text

from forkpoint.cli import text
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import Command, current, options
from forkpoint.cli.values import key_of, plain, shown
from forkpoint.errors import ConfigError
from forkpoint.savepoint.naming import named_savepoint
from forkpoint.state_processor import SavepointDiff, SavepointReader, StateDiff, StateReader, diff
from forkpoint.state_processor.steps import entries_of
from forkpoint.storage.places import plain_place

_LIMIT = 20
_STYLES = {"added": "green", "removed": "red", "changed": "yellow", "other": "bold red", "same": "dim"}


def reader(name: str) -> SavepointReader:
    """The savepoint of this path, URL, id or label, or the latest."""
    return SavepointReader(named_savepoint(current().state_root.storage, name))


@click.group("state", params=options(), context_settings={"help_option_names": ["-h", "--help"]})
def state() -> None:
    """Look into the state of a SAVEPOINT (path, URL, id, label, or `latest`)."""


@state.command(cls=Command)
@click.argument("savepoint")
def ls(savepoint: str) -> None:
    """All states and timers of SAVEPOINT: as SQL calls them, with types, rows and size."""
    found = reader(savepoint)
    views = found.views()
    rows = [_described(*name, each) for name, each in views.items()]

    def show(out: TextOutput) -> None:
        if not rows:
            out.line(f"{plain_place(found.path)} has no state")
            return
        out.table(
            ["OPERATOR", "STATE", "KIND", "KEY", "TYPE", "ROWS", "SIZE"],
            [[r["uid"], r["state"], r["kind"], r["key_type"] or "-", r["type"] or "-", text.number(r["rows"]),
              text.size(r["bytes"])] for r in rows],
            right=("ROWS", "SIZE"),
        )  # fmt: skip

    current().output.result({"path": plain_place(found.path), "states": rows}, show)


def _described(schema: str, view: str, each: StateReader) -> dict[str, Any]:
    inner = [each.layout.part(role).type for role in ("map_key", "namespace") if each.layout.has(role)]
    value = each.value_type
    types = [text.type_name(of.describe()) for of in (*inner, value) if of is not None and not each.is_timers]
    return {
        "uid": each.uid, "state": each.name, "kind": each.kind,
        "key_type": None if each.key_type is None else text.type_name(each.key_type.describe()),
        "type": ", ".join(types) or None, "rows": each.count, "bytes": each.size, "schema": schema, "view": view,
        "columns": each.schema.names,
    }  # fmt: skip


@state.command(cls=Command)
@click.argument("savepoint")
@click.argument("uid")
@click.argument("state")
@click.argument("key", required=False)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=0),
    default=_LIMIT,
    show_default=True,
    help="At most N rows; 0: all.",
)
def get(savepoint: str, uid: str, state: str, key: str | None, limit: int) -> None:
    """The rows of STATE of operator UID, or what KEY has in it. STATE may be `timers`.

    A KEY that is no text is JSON: 5, '["a", 1]'. It is looked up in the one file that can have it.
    """
    found = reader(savepoint)
    chosen = _chosen(found, uid, state)
    entries = _entries(chosen, key)
    rows = list(entries if not limit else islice(entries, limit))
    roles = [role for role in (rows[0]._fields if rows else ()) if role != "key_group"]
    cells = [[getattr(row, role) for role in roles] for row in rows]
    total = None if key is not None else chosen.count
    data = {
        "path": plain_place(found.path), "uid": uid, "state": chosen.name, "total": total,
        "rows": [dict(zip(roles, map(plain, row), strict=True)) for row in cells],
    }  # fmt: skip

    def show(out: TextOutput) -> None:
        if not rows:
            out.line(f"{uid}.{chosen.name} has nothing{'' if key is None else f' for the key {key}'}")
            return
        out.table([role.replace("_", " ").upper() for role in roles], [list(map(shown, row)) for row in cells])
        if total is not None and total > len(rows):
            out.line(f"{text.number(len(rows))} of {text.number(total)} rows; --limit shows more")

    current().output.result(data, show)


def _chosen(found: SavepointReader, uid: str, name: str) -> StateReader:
    own = [each.name for each in found.states if each.uid == uid and not each.is_timers]
    return found.timers(uid) if name == "timers" and name not in own else found.state(uid, name)


def _entries(chosen: StateReader, key: str | None) -> Any:
    if key is None:
        return chosen.rows()
    if chosen.key_type is None:
        raise ConfigError(f"{chosen.uid}.{chosen.name} is operator state, which has no keys; leave KEY out")
    return (each for table in chosen.of_key(key_of(key, chosen.key_type)) for each in entries_of(chosen.layout, table))


@state.command(cls=Command)
@click.argument("savepoint")
@click.argument("sql")
def query(savepoint: str, sql: str) -> None:
    """The result of a SELECT over SAVEPOINT, in DuckDB's dialect: each state is a view "uid"."state", timers are
    "uid"."timers"."""
    found = reader(savepoint)
    table = found.query(sql)
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))  # two columns may have one name
    data = {
        "path": plain_place(found.path),
        "columns": table.column_names,
        "rows": [list(map(plain, row)) for row in rows],
    }
    right = [f.name for f in table.schema if str(f.type).startswith(("int", "uint", "float", "double", "decimal"))]
    current().output.result(
        data, lambda out: out.table(table.column_names, [list(map(shown, row)) for row in rows], right=right)
    )


@click.command("diff", cls=Command)
@click.argument("before")
@click.argument("after")
@click.option(
    "--samples", metavar="N", type=click.IntRange(min=0), default=3, show_default=True,
    help="Show N differing entries of each state.",
)  # fmt: skip
@click.option("--exit-code", is_flag=True, help="End with 1 if they differ, as `git diff` does.")
def diff_(before: str, after: str, samples: int, exit_code: bool) -> None:
    """What differs from the savepoint BEFORE to AFTER: entries by operator and state, timers, positions, watermarks."""
    settings = current()
    a, b = reader(before), reader(after)
    with settings.output.progress("comparing") as progress:
        found = diff(a, b, samples=samples, progress=progress)
    settings.output.result(_diff_json(found), lambda out: _show_diff(out, found))
    if exit_code and not found.same:
        click.get_current_context().exit(1)


def _diff_json(found: SavepointDiff) -> dict[str, Any]:
    return {
        "before": plain_place(found.before), "after": plain_place(found.after), "same": found.same,
        "max_parallelism": {"before": found.max_parallelism[0], "after": found.max_parallelism[1]},
        "states": [
            {
                "uid": s.uid, "state": s.name, "outcome": s.outcome, "rows_before": s.rows_before, "rows_after": s.rows_after,
                "added": s.added, "removed": s.removed, "changed": s.changed, "why": s.why,
                "samples": [
                    {"change": e.change, **{k: plain(v) for k, v in e.place.items()}, "before": plain(e.before),
                     "after": plain(e.after)} for e in s.samples
                ],
            } for s in found.states
        ],
        "positions": [{"uid": v.uid, "before": v.before, "after": v.after} for v in found.positions],
        "watermarks": [{"uid": v.uid, "before": v.before, "after": v.after} for v in found.watermarks],
    }  # fmt: skip


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
