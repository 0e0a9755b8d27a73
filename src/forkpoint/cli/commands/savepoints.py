"""Commands about savepoints: savepoints, show, label, dispose, edit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.text import Text

from forkpoint import operations
from forkpoint.checkpoint.manifest import Parent
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.cli import text
from forkpoint.cli.names import ANY_UID, JOB, SAVEPOINT, SAVEPOINT_OR_LATEST, SOURCE_UID, UID_STATE, PlaceType
from forkpoint.cli.options import Pairs, pairs_option
from forkpoint.cli.output import TextOutput
from forkpoint.cli.settings import Command, current
from forkpoint.graph.options import UPPER_BOUND_MAX_PARALLELISM
from forkpoint.operations import EditRequest, StateFilter
from forkpoint.operations.shapes import savepoint_json, savepoints_json
from forkpoint.savepoint.catalog.display import OPERATOR_TITLES, operator_rows, totals

_SHOWN_POSITION = 100


@click.command(cls=Command)
@click.argument("job", type=JOB, required=False)
def savepoints(job: str | None) -> None:
    """List the savepoints of JOB, or of all jobs, below the state root, oldest first."""
    settings = current()
    found = operations.savepoints(job, state_root=settings.given_root)
    complete = [(each, each.listed.savepoint) for each in found if each.listed.savepoint is not None]
    broken = [each for each in found if each.listed.savepoint is None]

    def show(out: TextOutput) -> None:
        if not found:
            out.line(f"no savepoints{'' if job is None else f' of job {job!r}'} below {settings.state_root.place}")
            return
        if complete:
            titles = ["JOB", "SAVEPOINT", "EPOCH", "CREATED (UTC)", "ENTRIES", "SIZE", "OWN", "LABEL", "NOTE"]
            out.table(titles, [_listed_row(each.job, s) for each, s in complete], right=("EPOCH", "ENTRIES", "SIZE", "OWN"))
        for each in broken:
            word = "unfinished" if each.listed.unfinished else "damaged"
            out.line(Text(f"{word}: ", "yellow") + Text(each.listed.problem or ""))

    settings.output.result(savepoints_json(found), show)


def _listed_row(job: str, savepoint: Savepoint) -> list[str | Text]:
    entries, size = totals(savepoint)
    label = savepoint.label if savepoint.label is not None or savepoint.schedule_ms is None else "(scheduled)"
    return [
        job,
        savepoint.id,
        text.number(savepoint.epoch),
        text.moment(savepoint.created_ms),
        text.number(entries),
        text.size(size),
        text.size(savepoint.own_bytes),
        label or "",
        (savepoint.note or "") + (" (drained)" if savepoint.drained else ""),
    ]


@click.command(cls=Command)
@click.argument("savepoint", type=SAVEPOINT)
def show(savepoint: str) -> None:
    """Show SAVEPOINT (path, URL, id or label): operators, states with their types, positions, watermarks."""
    settings = current()
    shown = operations.show(savepoint, state_root=settings.given_root)
    settings.output.result(savepoint_json(shown), lambda out: _show(out, shown.path, shown.savepoint))


def _show(out: TextOutput, path: str, savepoint: Savepoint) -> None:
    entries, size = totals(savepoint)
    versions = savepoint.versions
    spark = f", Spark {versions.spark}" if versions.spark is not None else ""
    facts = {
        "savepoint": savepoint.id,
        "path": path,
        "label": savepoint.label,
        "note": savepoint.note,
        "job": f"{savepoint.job}, run {savepoint.run}, epoch {savepoint.epoch}",
        "created": f"{text.moment(savepoint.created_ms)} UTC",
        "parent": parent_text(savepoint.parent),
        "scheduled": None if savepoint.schedule_ms is None else f"one every {text.duration(savepoint.schedule_ms)}",
        "drained": "yes: all timers and windows fired early" if savepoint.drained else None,
        "state": f"{text.number(entries)} entries, {text.size(size)}",
        "refers to": _references(savepoint),
        "pickles": f"possible in {pickled}" if (pickled := _pickled(savepoint)) else None,
        "left out": ", ".join(f"{text.number(s.entries)} of {s.uid}/{s.state}" for s in savepoint.left_out) or None,
        "parallelism": f"{savepoint.parallelism}, max parallelism {savepoint.max_parallelism}",
        "written by": f"forkpoint {versions.forkpoint}, Python {versions.python}{spark}",
        "code version": savepoint.code_version,
    }
    for name, value in facts.items():
        if value is not None:
            out.line(Text(f"{name:<13}", "bold") + Text(value))
    out.line()
    if rows := operator_rows(savepoint):
        out.table([title.upper() for title in OPERATOR_TITLES], rows, right=("ENTRIES", "SIZE"))
    _show_sources(out, savepoint)


def _references(savepoint: Savepoint) -> str | None:
    """The earlier savepoints whose files it needs, and the size of its own."""
    if not savepoint.referred:
        return None
    others = ", ".join(sorted(savepoint.referred))
    return f"files of {others}, which stay as long as it does; {text.size(savepoint.own_bytes)} are its own"


def _pickled(savepoint: Savepoint) -> str:
    """The states that may hold pickles."""
    return ", ".join(f"{o.uid}/{state.info.name}" for o in savepoint.operators for state in o.states if state.info.pickles)


def _show_sources(out: TextOutput, savepoint: Savepoint) -> None:
    rows: list[list[str | Text]] = []
    for uid, source in savepoint.sources.items():
        position = source.spark_offset if source.spark_offset is not None else json.dumps(source.position)
        shown = position if len(position) <= _SHOWN_POSITION else f"{position[:_SHOWN_POSITION]}…"
        first: list[str | Text] = [uid, shown if source.kind != "watermarks" else ""]
        for split, state in sorted(source.splits.items()):
            rows.append([*first, split, text.number(state.count), text.watermark(state.watermark_ms)])
            first = ["", ""]
        if not source.splits:
            rows.append([*first, "", "", ""])
    if rows:
        out.line()
        out.table(["SOURCE", "POSITION", "SPLIT", "RECORDS", "WATERMARK"], rows, right=("RECORDS",))


def parent_text(parent: Parent) -> str:
    """The initial state of a run, in words."""
    match parent.kind:
        case "savepoint":
            where = f" at {parent.savepoint_path}" if parent.savepoint_path is not None else ""
            return f"savepoint {parent.savepoint_id}{where}"
        case "checkpoint":
            return f"checkpoint {parent.epoch} of run {parent.run}, job {parent.job}"
        case _:
            return "none: it started with empty state"


@click.command(cls=Command)
@click.argument("savepoint", type=SAVEPOINT)
@click.option("--force", is_flag=True, help="Delete it even if runs or other savepoints depend on it.")
def dispose(savepoint: str, force: bool) -> None:
    """Delete SAVEPOINT (path, URL, id or label). Refused while a run or another savepoint depends on it."""
    settings = current()
    gone = operations.dispose(savepoint, force=force, state_root=settings.given_root)
    data = {"id": gone.id, "path": gone.path, "files": len(gone.files)}
    settings.output.result(data, lambda out: out.line(f"deleted {gone.path} ({len(gone.files)} files)"))


@click.command(cls=Command)
@click.argument("savepoint", type=SAVEPOINT)
@click.argument("label", metavar="[LABEL]", required=False)
@click.option("--note", metavar="TEXT", help="A remark, shown with it; an empty text removes the note.")
@click.option("--force", is_flag=True, help="Take the label from the job's savepoint that has it.")
@click.option("--remove", is_flag=True, help="Remove the label, and the note unless --note gives a new one.")
def label(savepoint: str, label: str | None, note: str | None, force: bool, remove: bool) -> None:
    """Set the label or note of SAVEPOINT (path, URL, id or label), or both. The other stays."""
    settings = current()
    if label is None and note is None and not remove:
        raise click.UsageError("give a label, --note, or --remove")
    if label is not None and remove:
        raise click.UsageError("give a label, or --remove")
    named = operations.label(savepoint, label, note=note, remove=remove, force=force, state_root=settings.given_root)
    changed = named.savepoint
    data = {"id": changed.id, "path": named.path, "label": changed.label, "note": changed.note}
    words = [f"label {changed.label}" if changed.label is not None else "no label"]
    words += [f"note: {changed.note}"] if changed.note is not None else []
    settings.output.result(data, lambda out: out.line(f"{changed.id}: {', '.join(words)}"))


@click.command(cls=Command)
@click.argument("savepoint", type=SAVEPOINT_OR_LATEST)
@click.option("--remove-uid", metavar="UID", type=ANY_UID, multiple=True, help="Remove an operator or source; repeatable.")
@click.option(
    "--remove-state", metavar="UID.STATE", type=UID_STATE, multiple=True, help="Remove a state, or UID.timers; repeatable."
)
@pairs_option("--rename-uid", "rename_uid", "OLD=NEW", "Change a uid; repeatable.", ANY_UID)
@pairs_option("--rename-state", "rename_state", "UID.STATE=NEW", "Rename a state; repeatable.", UID_STATE)
@click.option(
    "--filter",
    "filters",
    metavar="'UID.STATE: SQL'",
    multiple=True,
    help="Keep the rows of a state, or of UID.timers, that match a SQL condition over its columns; with UID alone, filter all "
    "its states by key. Repeatable.",
)
@click.option(
    "--max-parallelism", metavar="N", type=click.IntRange(1, UPPER_BOUND_MAX_PARALLELISM), help="Recompute all key groups for N."
)
@pairs_option("--set-position", "set_position", "UID=JSON", "Set where a source resumes; repeatable.", SOURCE_UID)
@click.option(
    "--remove-position", metavar="UID", type=SOURCE_UID, multiple=True, help="Start a source from its beginning; repeatable."
)
@click.option("--reset-watermarks", is_flag=True, help="Forget all watermarks; needed where sources go back.")
@click.option("--label", metavar="L", help="A label for the new savepoint.")
@click.option("--note", metavar="N", help="A note.")
@click.option(
    "--to", metavar="PATH|URL", type=PlaceType(), help="The new savepoint's directory. [default: a new one below the state root]"
)
def edit(
    savepoint: str,
    remove_uid: Sequence[str],
    remove_state: Sequence[str],
    rename_uid: Pairs,
    rename_state: Pairs,
    filters: Sequence[str],
    max_parallelism: int | None,
    set_position: Pairs,
    remove_position: Sequence[str],
    reset_watermarks: bool,
    label: str | None,
    note: str | None,
    to: str | None,
) -> None:
    """Write a changed copy of SAVEPOINT (path, URL, id, label, or `latest`), and print its path.

    SAVEPOINT stays unchanged. All options use the names in SAVEPOINT: renames are applied last.
    """
    settings = current()
    base = operations.show(savepoint, state_root=settings.given_root)
    names = _Names(base.savepoint)
    request = EditRequest(
        base.path,
        remove_uids=remove_uid,
        remove_states=[names.state(each, "--remove-state", "; --remove-uid removes all") for each in remove_state],
        filters=[names.filter(each) for each in filters],
        positions={uid: _parsed(position) for uid, position in set_position.items()},
        remove_positions=remove_position,
        reset_watermarks=reset_watermarks,
        max_parallelism=max_parallelism,
        rename_states={names.state(name, "--rename-state"): new for name, new in rename_state.items()},
        rename_uids=rename_uid,
        label=label,
        note=note,
        to=to,
    )
    made = operations.edit(request, state_root=settings.given_root, observer=settings.output)
    settings.output.result(asdict(made), lambda out: out.line(made.savepoint))


def _parsed(position: str) -> Any:
    try:
        return json.loads(position)
    except ValueError as error:
        raise click.UsageError(f"--set-position: {position!r} is not JSON: {error}") from None


class _Names:
    """Splits UID.STATE by the names in a savepoint, because both parts may contain dots and colons."""

    def __init__(self, savepoint: Savepoint) -> None:
        operators = [operator.uid for operator in savepoint.operators]
        self._uids = [*operators, *savepoint.sources]
        infos = [state.info for operator in savepoint.operators for state in operator.states]
        named = [(info.uid, info.name) for info in infos if not info.is_timers] + [(uid, "timers") for uid in operators]
        self._states = {f"{uid}.{state}": (uid, state) for uid, state in reversed(named)}

    def state(self, name: str, option: str, hint: str = "") -> tuple[str, str]:
        uid, state = self._split(name)
        if state is None:
            raise click.UsageError(f"{option} {name!r}: name a state as UID.STATE{hint}")
        return uid, state

    def filter(self, given: str) -> StateFilter:
        """``UID.STATE: SQL`` or ``UID: SQL``."""
        known = [name for name in (*self._states, *self._uids) if given == name or given.startswith(f"{name}:")]
        name = max(known, key=len) if known else given.partition(":")[0]
        condition = given[len(name) + 1 :].strip()
        if not condition:
            raise click.UsageError(f"--filter {given!r}: write 'UID.STATE: CONDITION'")
        uid, state = self._split(name.strip())
        return StateFilter(uid, condition, state)

    def _split(self, name: str) -> tuple[str, str | None]:
        if name in self._states:
            return self._states[name]
        if name in self._uids:
            return name, None
        known = (uid for uid in self._uids if name.startswith(f"{uid}."))
        uid = max(known, key=len, default=name.partition(".")[0])
        return uid, name[len(uid) + 1 :] or None
