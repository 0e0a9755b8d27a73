"""A savepoint's directory: which files belong to the savepoint, its seal, and removing an unfinished one.

The seal is the checksum of savepoint.json, in a file beside it that ``sha256sum -c`` can check. Savepoint.json has the
checksums of all other files. The seal is written just before it, so a savepoint without a seal is damaged.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress

from forkpoint.checkpoint.format import checksum
from forkpoint.checkpoint.manifest import SourcePosition
from forkpoint.checkpoint.paths import SAVEPOINT_FILE, source_file, within
from forkpoint.errors import AlreadyExists, NotFound, SavepointCorrupt, StorageError
from forkpoint.savepoint.label import LABEL_FILE
from forkpoint.storage.base import LocalStorage, Storage

SEAL_FILE = f"{SAVEPOINT_FILE}.sha256"
_SEAL = re.compile(rb"([0-9a-f]{64})  (\S+)\n?")
_OWN_FILE = re.compile(r"operators/[^/]+/[^/]+/part-\d+\.parquet|sources/[^/]+/[^/]+", re.ASCII)


def is_own_file(path: str) -> bool:
    """Whether a path, relative to a savepoint's directory, is that of a savepoint file other than savepoint.json."""
    return path in (SEAL_FILE, LABEL_FILE) or _OWN_FILE.fullmatch(path) is not None


def source_files(uid: str, position: SourcePosition) -> dict[str, bytes]:
    """The files below ``sources/``, which are for people and tools: a restore reads savepoint.json."""
    files = {source_file(uid, f"log-{name}"): text.encode() for name, text in position.spark_log.items()}
    content = position.model_dump(mode="json", exclude={"spark_log", "spark_log_files"})
    return {source_file(uid, "position.json"): json.dumps(content, indent=2).encode(), **files}


def clear_place(target: Storage) -> None:
    """Prepare a directory for a new savepoint. Raises AlreadyExists if it holds one."""
    if target.exists(SAVEPOINT_FILE):
        raise AlreadyExists(f"{target.url} holds a savepoint already; choose another directory, or dispose of it first")
    remove_partial(target)


def remove_partial(target: Storage, directory: str = "") -> list[str]:
    """Remove the files of an unfinished savepoint, and return their paths; other files stay.

    Raises StorageError if the directory holds a complete savepoint.
    """
    directory = directory.rstrip("/")
    if target.exists(within(directory, SAVEPOINT_FILE)):
        raise StorageError(f"{target.url}/{directory} is a savepoint, not an unfinished one; dispose of it instead")
    check_links(target, directory)
    found = [path for path in target.list(directory) if is_own_file(path.removeprefix(f"{directory}/"))]
    for path in found:
        target.delete(path)
    return found


def remove_empty(storage: Storage, directory: str = "") -> None:
    """Remove the directory of a savepoint whose files are gone, if it is one of a file system and has nothing else in it."""
    if isinstance(storage, LocalStorage):
        with suppress(OSError):
            os.rmdir(os.path.join(storage.root, directory))


def check_links(storage: Storage, directory: str = "") -> None:
    """Raises SavepointCorrupt if following a link would lead out of the savepoint's directory."""
    if isinstance(storage, LocalStorage) and (link := next(storage.links_out(directory.rstrip("/")), None)) is not None:
        place = within(within(storage.url, directory), link)
        raise SavepointCorrupt(
            f"{place}: is a symbolic link out of the savepoint or to a directory; put the files themselves there"
        )


def write_seal(target: Storage, content: bytes) -> None:
    """Seal the savepoint.json that is about to be written. Raises AlreadyExists."""
    target.create(SEAL_FILE, f"{checksum(content)}  {SAVEPOINT_FILE}\n".encode())


def read_seal(storage: Storage, directory: str) -> str | None:
    """The checksum in a savepoint's seal; None without a seal. Raises SavepointCorrupt if it is damaged."""
    path = within(directory, SEAL_FILE)
    try:
        data = storage.read(path)
    except NotFound:
        return None
    match = _SEAL.fullmatch(data)
    if match is None or match[2] != SAVEPOINT_FILE.encode():
        raise SavepointCorrupt(
            f"{storage.url}/{path}: holds {data[:80]!r}, expected a SHA-256 checksum and {SAVEPOINT_FILE!r}; restore "
            "the savepoint from a copy"
        )
    return match[1].decode()
