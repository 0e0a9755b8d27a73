"""Savepoints: list, show, label, dispose."""

from __future__ import annotations

from dataclasses import dataclass

from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.errors import ConfigError
from forkpoint.operations.roots import StateRoot
from forkpoint.protocol.registry import list_runs, load_runs
from forkpoint.savepoint.catalog.display import savepoint_html
from forkpoint.savepoint.catalog.dispose import dispose_savepoint
from forkpoint.savepoint.catalog.labels import check_label, set_label
from forkpoint.savepoint.catalog.listing import free_label, list_savepoints, readable
from forkpoint.savepoint.catalog.names import Found, all_savepoints, known_savepoints, named_savepoint
from forkpoint.storage.places import plain_place


@dataclass(frozen=True)
class SavepointShown:
    """A savepoint's metadata, and its path or URL."""

    path: str
    savepoint: Savepoint

    def _repr_html_(self) -> str:
        return savepoint_html(self.savepoint, self.path)


@dataclass(frozen=True)
class Disposed:
    """``files``: the deleted files, relative to ``path``."""

    id: str
    path: str
    files: tuple[str, ...]


def savepoints(job: str | None = None, *, state_root: str | None = None) -> list[Found]:
    """The savepoints of a job, or of all jobs, below the state root, oldest first; damaged and unfinished ones too."""
    return all_savepoints(StateRoot(state_root).existing, job)


def show(savepoint: str, *, state_root: str | None = None) -> SavepointShown:
    """A savepoint (path, URL, id or label): its operators, states with their types, positions, watermarks."""
    opened = named_savepoint(StateRoot(state_root).storage, savepoint)
    return SavepointShown(plain_place(opened.url), opened.savepoint)


def label(
    savepoint: str,
    label: str | None = None,
    *,
    note: str | None = None,
    remove: bool = False,
    force: bool = False,
    state_root: str | None = None,
) -> SavepointShown:
    """Set a savepoint's label, note, or both; the other stays. Returns the changed savepoint.

    An empty note removes the note; ``remove`` removes the label, and the note unless another is given. ``force``: take the
    label from the job's savepoint that has it; otherwise that is a ConfigError.
    """
    if (label is not None and remove) or (label is None and note is None and not remove):
        raise ConfigError("give a label, a note, or remove=True; a label does not go with remove=True")
    storage = StateRoot(state_root).storage
    opened = named_savepoint(storage, savepoint)
    before = opened.savepoint
    if label is not None and check_label(label) != before.label:
        if not force:
            free_label(storage, before.job, label)
        for other, directory in readable(list_savepoints(storage, before.job)):
            if other.label == label:
                set_label(other, storage, directory, None, other.note)
    new_label = None if remove else label if label is not None else before.label
    new_note = note or None if note is not None else None if remove else before.note
    changed = set_label(before, opened.storage, opened.directory, new_label, new_note)
    return SavepointShown(plain_place(opened.url), changed)


def dispose(savepoint: str, *, force: bool = False, state_root: str | None = None) -> Disposed:
    """Delete a savepoint (path, URL, id or label). Without ``force``, raises StorageError while a run or another savepoint
    depends on it."""
    storage = StateRoot(state_root).storage
    opened = named_savepoint(storage, savepoint)
    # A killed run has no recorded end, but does not depend on its parent: its state is in its checkpoints.
    holding = {(view.job, view.run) for view in list_runs(storage) if view.may_be_live}
    runs = load_runs(storage)
    gone = dispose_savepoint(
        opened,
        runs=[run for run in runs if (run.job, run.run) in holding],
        savepoints=[each for each, _ in known_savepoints(storage, runs).values()],
        force=force,
    )
    return Disposed(opened.savepoint.id, plain_place(opened.url), tuple(gone))
