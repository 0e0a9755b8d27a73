"""Labels and notes of savepoints.

The initial label and note are in savepoint.json, which is sealed and never rewritten. Later changes go to ``label.json``
in the same directory, which overrides them. A damaged label.json does not prevent a restore.
"""

from __future__ import annotations

import logging
from typing import Literal

from forkpoint.checkpoint.format import Format, Record
from forkpoint.checkpoint.manifest import Name
from forkpoint.checkpoint.paths import SAVEPOINT_FILE, within
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.errors import ConfigError, NotFound, SavepointCorrupt, SavepointNotFound
from forkpoint.storage.base import Storage

LABEL_FILE = "label.json"
_RESERVED = ("latest", "none")
log = logging.getLogger("forkpoint")


class Label(Record, frozen=True, kw_only=True):
    """label.json: a savepoint's id, and its current label and note."""

    format_version: Literal[1] = 1
    savepoint: Name
    label: str | None = None
    note: str | None = None


LABEL = Format(LABEL_FILE, Label, 1)


def labelled(savepoint: Savepoint, storage: Storage, directory: str = "") -> Savepoint:
    """The savepoint in a directory, with its current label and note."""
    try:
        given = _given(savepoint, storage, directory)
    except SavepointCorrupt as error:
        log.warning("%s; using the savepoint's original label", error)
        return savepoint
    return savepoint if given is None else savepoint.replace(label=given.label, note=given.note)


def is_labelled(savepoint: Savepoint, storage: Storage, directory: str = "") -> bool:
    """Whether a savepoint has a label or note, or an unreadable label.json."""
    if savepoint.label is not None or savepoint.note is not None:
        return True
    try:
        given = _given(savepoint, storage, directory)
    except SavepointCorrupt:
        return True
    return given is not None and (given.label is not None or given.note is not None)


def _given(savepoint: Savepoint, storage: Storage, directory: str) -> Label | None:
    """The label.json in a directory, unless an earlier savepoint left it there. Raises SavepointCorrupt."""
    try:
        given = LABEL.load(storage, within(directory, LABEL_FILE))
    except NotFound:
        return None
    return given if given.savepoint == savepoint.id else None


def check_label(label: str) -> str:
    """Returns the label. Raises ConfigError if it is not valid."""
    if not label or label in _RESERVED or "/" in label or "\\" in label or not label.isprintable():
        raise ConfigError(f"{label!r} cannot be a label: use a word without slashes, other than {', '.join(_RESERVED)}")
    return label


def set_label(savepoint: Savepoint, storage: Storage, directory: str, label: str | None, note: str | None) -> Savepoint:
    """Set a savepoint's label and note; None removes them. Raises SavepointNotFound if it was deleted meanwhile."""
    given = Label(savepoint=savepoint.id, label=None if label is None else check_label(label), note=note)
    path = within(directory, LABEL_FILE)
    storage.put(path, LABEL.dump(given))
    if not storage.exists(within(directory, SAVEPOINT_FILE)):
        storage.delete(path)
        raise SavepointNotFound(f"savepoint {savepoint.id!r} was deleted meanwhile")
    return savepoint.replace(label=given.label, note=given.note)
