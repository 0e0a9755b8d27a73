"""The command that makes a savepoint out of another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from forkpoint.cli.settings import Command, current
from forkpoint.cli.state import reader
from forkpoint.savepoint.catalog import free_label
from forkpoint.savepoint.naming import new_savepoint_id
from forkpoint.state_processor import SavepointReader, SavepointWriter
from forkpoint.storage.places import plain_place


def pairs(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for value in values:
        left, equals, right = value.partition("=")
        if not (left and equals and right):
            raise click.BadParameter(f"{value!r} is not of the form {param.metavar}")
        if left in found:
            raise click.BadParameter(f"{left!r} is given twice")
        found[left] = right
    return list(found.items())


@click.command(cls=Command)
@click.argument("savepoint")
@click.option("--remove-uid", metavar="UID", multiple=True, help="Leave out all of an operator or source; repeatable.")
@click.option(
    "--remove-state", metavar="UID.STATE", multiple=True, help="Leave out a state, or UID.timers; repeatable."
)
@click.option("--rename-uid", metavar="OLD=NEW", multiple=True, callback=pairs, help="Give it another uid; repeatable.")
@click.option(
    "--rename-state", metavar="UID.STATE=NEW", multiple=True, callback=pairs, help="Give it another name; repeatable."
)
@click.option(
    "--filter", "filters", metavar="'UID.STATE: SQL'", multiple=True,
    help="Keep the rows of a state for which a SQL condition over its columns holds; of UID.timers, its timers; of UID "
    "alone, of all its states, by key. Repeatable.",
)  # fmt: skip
@click.option("--max-parallelism", metavar="N", type=click.IntRange(1, 32768), help="Compute all key groups anew.")
@click.option(
    "--set-position", metavar="UID=JSON", multiple=True, callback=pairs, help="Where a source goes on; repeatable."
)
@click.option(
    "--remove-position", metavar="UID", multiple=True, help="Let a source begin at its own start; repeatable."
)
@click.option("--reset-watermarks", is_flag=True, help="Forget all watermarks, for sources that are set back.")
@click.option("--label", metavar="L", help="A label for the new savepoint.")
@click.option("--note", metavar="N", help="A note.")
@click.option(
    "--to", metavar="PATH|URL", help="The new savepoint's directory. [default: a new one below the state root]"
)
def edit(
    savepoint: str,
    remove_uid: Sequence[str],
    remove_state: Sequence[str],
    rename_uid: Sequence[tuple[str, str]],
    rename_state: Sequence[tuple[str, str]],
    filters: Sequence[str],
    max_parallelism: int | None,
    set_position: Sequence[tuple[str, str]],
    remove_position: Sequence[str],
    reset_watermarks: bool,
    label: str | None,
    note: str | None,
    to: str | None,
) -> None:
    """Write a new savepoint, which is SAVEPOINT (path, URL, id, label, or `latest`) with changes, and print its path.

    SAVEPOINT stays as it is. Names are those of SAVEPOINT: renames come last.
    """
    settings = current()
    found = reader(savepoint)
    writer = SavepointWriter.from_existing_savepoint(found)
    for uid in remove_uid:
        writer.remove_operator(uid)
    for name in remove_state:
        uid, state = _split(found, name, "--remove-state")
        _remove(writer, found, uid, state, name)
    for condition in filters:
        _filter(writer, found, condition)
    for uid, position in set_position:
        writer.with_source_position(uid, _parsed(position))
    for uid in remove_position:
        writer.remove_source_position(uid)
    if reset_watermarks:
        writer.reset_watermarks()
    if max_parallelism is not None:
        writer.with_max_parallelism(max_parallelism)
    for name, new in rename_state:
        uid, state = _split(found, name, "--rename-state")
        if state is None:
            raise click.UsageError(f"--rename-state {name!r}: name a state as UID.STATE")
        writer.rename_state(uid, state, new)
    for uid, new in rename_uid:
        writer.change_operator_identifier(uid, new)
    if label is not None:
        free_label(settings.state_root.storage, found.metadata.job, label)
    savepoint_id = new_savepoint_id()
    place = settings.state_root.new_savepoint(found.metadata.job, savepoint_id, to)
    with settings.output.progress("writing") as progress:
        made = writer.write(place, label=label, note=note, savepoint_id=savepoint_id, progress=progress)
    data = {
        "savepoint": plain_place(made.path),
        "id": savepoint_id,
        "job": made.metadata.job,
        "parent": found.metadata.id,
    }
    settings.output.result(data, lambda out: out.line(plain_place(made.path)))


def _parsed(position: str) -> Any:
    try:
        return json.loads(position)
    except ValueError as error:
        raise click.UsageError(f"--set-position: {position!r} is no JSON: {error}") from None


def _split(found: SavepointReader, name: str, option: str) -> tuple[str, str | None]:
    """The uid and state in "uid.state"; both may have dots themselves. No state if it is a uid alone."""
    uids = {*found.operators, *found.positions}
    known = [(state.uid, state.name) for state in found.states]
    known += [(uid, "timers") for uid in found.operators]
    for uid, state in known:
        if name == f"{uid}.{state}":
            return uid, state
    if name in uids:
        return name, None
    fitting = [uid for uid in uids if name.startswith(f"{uid}.")]
    if fitting:
        uid = max(fitting, key=len)
        return uid, name.removeprefix(f"{uid}.")
    uid, _, state_name = name.partition(".")
    return uid, state_name or None


def _remove(writer: SavepointWriter, found: SavepointReader, uid: str, state: str | None, name: str) -> None:
    if state is None:
        raise click.UsageError(
            f"--remove-state {name!r}: name a state as UID.STATE; --remove-uid leaves out all of them"
        )
    own = {each.name for each in found.states if each.uid == uid and not each.is_timers}
    if state == "timers" and state not in own:
        writer.remove_timers(uid)
    else:
        writer.remove_state(uid, state)


def _filter(writer: SavepointWriter, found: SavepointReader, given: str) -> None:
    """``UID.STATE: SQL``; names may have colons, so known ones are tried first."""
    names = [f"{each.uid}.{each.name}" for each in found.states] + found.operators
    if given in names:
        raise click.UsageError(f"--filter {given!r}: write 'UID.STATE: CONDITION'")
    known = [name for name in names if given.startswith(f"{name}:")]
    name = max(known, key=len) if known else given.partition(":")[0]
    condition = given[len(name) + 1 :].strip()
    if not condition:
        raise click.UsageError(f"--filter {given!r}: write 'UID.STATE: CONDITION'")
    uid, state = _split(found, name.strip(), "--filter")
    writer.filter(uid, condition, state)
