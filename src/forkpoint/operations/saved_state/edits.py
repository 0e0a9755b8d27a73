"""Makes a savepoint from another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from forkpoint.operations.observer import SILENT, Observer
from forkpoint.operations.roots import StateRoot
from forkpoint.operations.saved_state.inspection import open_reader
from forkpoint.state_processor import SavepointReader, SavepointWriter
from forkpoint.storage.places import plain_place


@dataclass(frozen=True)
class StateFilter:
    """Keeps the rows that satisfy ``condition``: SQL over the columns of a state, or of ``"timers"``; without ``state``, of all
    the operator's keyed states and timers."""

    uid: str
    condition: str
    state: str | None = None


@dataclass(frozen=True)
class EditRequest:
    """Changes to ``savepoint``: a path, URL, id or label, or ``latest``. All names are those in ``savepoint``; states are
    named by uid and state name, or ``"timers"``.

    ``remove_uids``: operators or sources to leave out. ``positions``: the positions from which sources resume, by uid, in the
    form of ``show``. ``remove_positions``: sources that start from the beginning. ``reset_watermarks``: needed if sources rewind.
    ``max_parallelism``: recompute all key groups. ``to``: the new savepoint's directory, a path or URL; by default below the
    state root, where it becomes the job's ``latest``.
    """

    savepoint: str
    remove_uids: Sequence[str] = ()
    remove_states: Sequence[tuple[str, str]] = ()
    filters: Sequence[StateFilter] = ()
    positions: Mapping[str, Any] = field(default_factory=dict)
    remove_positions: Sequence[str] = ()
    reset_watermarks: bool = False
    max_parallelism: int | None = None
    rename_states: Mapping[tuple[str, str], str] = field(default_factory=dict)
    rename_uids: Mapping[str, str] = field(default_factory=dict)
    label: str | None = None
    note: str | None = None
    to: str | None = None


@dataclass(frozen=True)
class Edited:
    """``savepoint``: the new savepoint's path or URL; ``parent``: the id of the original."""

    savepoint: str
    id: str
    job: str
    parent: str


def edit(request: EditRequest, *, state_root: str | None = None, observer: Observer = SILENT) -> Edited:
    """Write a changed copy of a savepoint. The original stays unchanged.

    Raises StateNotFound for unknown names, EditRefused if a change does not fit, and AlreadyExists.
    """
    root = StateRoot(state_root)
    base = open_reader(root, request.savepoint)
    writer = _edited(base, request)
    savepoint_id, directory = root.new_savepoint(base.metadata.job, request.to, request.label)
    with observer.progress("writing") as report:
        made = writer.write(directory, label=request.label, note=request.note, savepoint_id=savepoint_id, progress=report)
    return Edited(plain_place(made.path), savepoint_id, made.metadata.job, base.metadata.id)


def _edited(base: SavepointReader, request: EditRequest) -> SavepointWriter:
    writer = SavepointWriter.from_existing_savepoint(base)
    names = {(each.uid, each.name) for each in base.states if not each.is_timers}
    for uid in request.remove_uids:
        writer.remove_operator(uid)
    for uid, state in request.remove_states:
        if state == "timers" and (uid, state) not in names:
            writer.remove_timers(uid)
        else:
            writer.remove_state(uid, state)
    for each in request.filters:
        writer.filter(each.uid, each.condition, each.state)
    for uid, position in request.positions.items():
        writer.with_source_position(uid, position)
    for uid in request.remove_positions:
        writer.remove_source_position(uid)
    if request.reset_watermarks:
        writer.reset_watermarks()
    if request.max_parallelism is not None:
        writer.with_max_parallelism(request.max_parallelism)
    for (uid, state), new in request.rename_states.items():
        writer.rename_state(uid, state, new)
    for uid, new in request.rename_uids.items():  # last: the other changes use the old uids
        writer.change_operator_identifier(uid, new)
    return writer
