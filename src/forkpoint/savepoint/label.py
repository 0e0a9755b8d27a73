"""Labels and notes of savepoints as people change them afterwards.

What a savepoint got when it was made is in savepoint.json, which is sealed and never written again. ``label.json`` beside
it, replaced as a whole, takes its place; it moves with the directory. It is words only: one that is damaged hinders no
restore.
"""

from __future__ import annotations

import logging
from typing import Literal

from forkpoint.checkpoint.format import Format, Record
from forkpoint.checkpoint.manifest import Name
from forkpoint.checkpoint.paths import SAVEPOINT_FILE
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.errors import ConfigError, NotFound, SavepointCorrupt, SavepointNotFound
from forkpoint.storage.base import Storage

LABEL_FILE = "label.json"
_RESERVED = ("latest", "none")
log = logging.getLogger("forkpoint")


class Label(Record):
    """label.json: of which savepoint, and what it is called now."""

    format_version: Literal[1] = 1
    savepoint: Name
    label: str | None = None
    note: str | None = None


LABEL = Format(LABEL_FILE, Label, 1)


def labelled(savepoint: Savepoint, storage: Storage, directory: str = "") -> Savepoint:
    """The savepoint in a directory with the label and note that it has now."""
    try:
        given = LABEL.load(storage, _path(directory))
    except NotFound:
        return savepoint
    except SavepointCorrupt as error:
        log.warning("%s; the label that the savepoint was made with counts", error)
        return savepoint
    if given.savepoint != savepoint.id:  # left behind by one that was in this directory before
        return savepoint
    return savepoint.model_copy(update={"label": given.label, "note": given.note})


def is_labelled(savepoint: Savepoint, storage: Storage, directory: str = "") -> bool:
    """Whether people have, or may have, a use for it: it has a label or note, or one that cannot be read."""
    if savepoint.label is not None or savepoint.note is not None:
        return True
    try:
        given = LABEL.load(storage, _path(directory))
    except NotFound:
        return False
    except SavepointCorrupt:
        return True
    return given.savepoint == savepoint.id and (given.label is not None or given.note is not None)


def check_label(label: str) -> str:
    """The label, or ConfigError if a savepoint could not be named by it."""
    if not label or label in _RESERVED or "/" in label or "\\" in label or not label.isprintable():
        raise ConfigError(
            f"{label!r} cannot be a label: give some word without slashes, other than {', '.join(_RESERVED)}"
        )
    return label


def set_label(savepoint: Savepoint, storage: Storage, directory: str, label: str | None, note: str | None) -> Savepoint:
    """Give a savepoint this label and note, or take them away (None). Raises SavepointNotFound if it has been disposed of."""
    changed = Label(savepoint=savepoint.id, label=None if label is None else check_label(label), note=note)
    storage.put(_path(directory), LABEL.dump(changed))
    head = f"{directory}/" if directory else ""
    if not storage.exists(f"{head}{SAVEPOINT_FILE}"):
        storage.delete(_path(directory))
        raise SavepointNotFound(f"savepoint {savepoint.id!r} was disposed of meanwhile")
    return savepoint.model_copy(update={"label": label, "note": note})


def _path(directory: str) -> str:
    return f"{directory}/{LABEL_FILE}" if directory else LABEL_FILE
