"""The `edit` command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from forkpoint import operations
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.cli.names import ANY_UID, SAVEPOINT_OR_LATEST, SOURCE_UID, UID_STATE, PlaceType
from forkpoint.cli.options import Pairs, pairs_option
from forkpoint.cli.settings import Command, current
from forkpoint.graph.options import UPPER_BOUND_MAX_PARALLELISM
from forkpoint.operations import EditRequest, StateFilter


@click.command(cls=Command)
@click.argument("savepoint", type=SAVEPOINT_OR_LATEST)
@click.option(
    "--remove-uid", metavar="UID", type=ANY_UID, multiple=True, help="Remove an operator or source; repeatable."
)
@click.option(
    "--remove-state",
    metavar="UID.STATE",
    type=UID_STATE,
    multiple=True,
    help="Remove a state, or UID.timers; repeatable.",
)
@pairs_option("--rename-uid", "rename_uid", "OLD=NEW", "Change a uid; repeatable.", ANY_UID)
@pairs_option("--rename-state", "rename_state", "UID.STATE=NEW", "Rename a state; repeatable.", UID_STATE)
@click.option(
    "--filter", "filters", metavar="'UID.STATE: SQL'", multiple=True,
    help="Keep the rows of a state, or of UID.timers, that match a SQL condition over its columns; with UID alone, filter all "
    "its states by key. Repeatable.",
)  # fmt: skip
@click.option(
    "--max-parallelism", metavar="N", type=click.IntRange(1, UPPER_BOUND_MAX_PARALLELISM),
    help="Recompute all key groups for N.",
)  # fmt: skip
@pairs_option("--set-position", "set_position", "UID=JSON", "Set where a source resumes; repeatable.", SOURCE_UID)
@click.option(
    "--remove-position",
    metavar="UID",
    type=SOURCE_UID,
    multiple=True,
    help="Start a source from its beginning; repeatable.",
)
@click.option("--reset-watermarks", is_flag=True, help="Forget all watermarks; needed where sources go back.")
@click.option("--label", metavar="L", help="A label for the new savepoint.")
@click.option("--note", metavar="N", help="A note.")
@click.option(
    "--to",
    metavar="PATH|URL",
    type=PlaceType(),
    help="The new savepoint's directory. [default: a new one below the state root]",
)
def edit(
    savepoint: str, remove_uid: Sequence[str], remove_state: Sequence[str], rename_uid: Pairs, rename_state: Pairs,
    filters: Sequence[str], max_parallelism: int | None, set_position: Pairs, remove_position: Sequence[str],
    reset_watermarks: bool, label: str | None, note: str | None, to: str | None,
) -> None:  # fmt: skip
    """Write a changed copy of SAVEPOINT (path, URL, id, label, or `latest`), and print its path.

    SAVEPOINT stays as it is. All options use the names in SAVEPOINT: renames are applied last.
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
    """Finds uid and state in UID.STATE by the names in a savepoint, as both may contain dots and colons."""

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
