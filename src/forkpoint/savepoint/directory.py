"""A savepoint's directory: which files in it are the savepoint's, and clearing it of an unfinished one."""

from __future__ import annotations

import json
import re

from forkpoint.checkpoint.manifest import SourcePosition
from forkpoint.checkpoint.paths import SAVEPOINT_FILE, source_file
from forkpoint.errors import AlreadyExists, SavepointCorrupt, StorageError
from forkpoint.savepoint.label import LABEL_FILE
from forkpoint.savepoint.seal import SEAL_FILE
from forkpoint.storage.base import LocalStorage, Storage

_OWN_FILE = re.compile(r"operators/[^/]+/[^/]+/part-\d+\.parquet|sources/[^/]+/[^/]+", re.ASCII)
_POSITION = "position.json"


def is_own_file(path: str) -> bool:
    """Whether a path, relative to a savepoint's directory, is one that savepoints have (savepoint.json aside)."""
    return path in (SEAL_FILE, LABEL_FILE) or _OWN_FILE.fullmatch(path) is not None


def source_files(uid: str, position: SourcePosition) -> dict[str, bytes]:
    """The files below ``sources/``: for people and tools; a restore reads the same from savepoint.json."""
    files = {source_file(uid, f"log-{name}"): text.encode() for name, text in position.spark_log.items()}
    content = position.model_dump(mode="json", exclude={"spark_log"})
    return {source_file(uid, _POSITION): json.dumps(content, indent=2).encode(), **files}


def clear_place(target: Storage) -> None:
    """Make a directory ready for a new savepoint. Raises AlreadyExists if it holds one."""
    if target.exists(SAVEPOINT_FILE):
        raise AlreadyExists(f"{target.url} holds a savepoint already; choose another directory, or dispose of it first")
    remove_partial(target)


def remove_partial(target: Storage, directory: str = "") -> list[str]:
    """Remove what was written of a savepoint that was not finished, and return its paths; other files stay.

    Raises StorageError if the directory holds a savepoint, which is to be disposed of instead.
    """
    head = f"{directory.rstrip('/')}/" if directory else ""
    if target.exists(f"{head}{SAVEPOINT_FILE}"):
        raise StorageError(f"{target.url}/{directory} is a savepoint, not an unfinished one; dispose of it instead")
    check_links(target, directory)
    found = [path for path in target.list(directory) if is_own_file(path[len(head) :])]
    for path in found:
        target.delete(path)
    return found


def check_links(storage: Storage, directory: str = "") -> None:
    """Raises SavepointCorrupt if a link would take a reader, or who deletes the savepoint, out of its directory."""
    if isinstance(storage, LocalStorage) and (link := next(storage.links_out(directory.rstrip("/")), None)) is not None:
        place = f"{storage.url.rstrip('/')}/{directory}".rstrip("/")
        raise SavepointCorrupt(
            f"{place}/{link}: is a symbolic link out of the savepoint or to a directory; put the files themselves there"
        )
