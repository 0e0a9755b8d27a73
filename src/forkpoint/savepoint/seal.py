"""The seal of a savepoint: the checksum of savepoint.json, in a file beside it that ``sha256sum -c`` can check.

Savepoint.json has the checksums of all other files. The seal is written just before it, so a savepoint without a seal is
damaged.
"""

from __future__ import annotations

import re

from forkpoint.checkpoint.format import checksum
from forkpoint.checkpoint.paths import SAVEPOINT_FILE
from forkpoint.errors import NotFound, SavepointCorrupt
from forkpoint.storage.base import Storage

SEAL_FILE = f"{SAVEPOINT_FILE}.sha256"
_LINE = re.compile(rb"([0-9a-f]{64})  (\S+)\n?")


def write_seal(target: Storage, content: bytes) -> None:
    """Seal the savepoint.json that is about to be written. Raises AlreadyExists."""
    target.create(SEAL_FILE, f"{checksum(content)}  {SAVEPOINT_FILE}\n".encode())


def read_seal(storage: Storage, path: str) -> str | None:
    """The checksum in a seal; None without a seal. Raises SavepointCorrupt if it is damaged."""
    try:
        data = storage.read(path)
    except NotFound:
        return None
    match = _LINE.fullmatch(data)
    if match is None or match[2] != SAVEPOINT_FILE.encode():
        raise SavepointCorrupt(
            f"{storage.url}/{path}: holds {data[:80]!r}, expected a SHA-256 checksum and {SAVEPOINT_FILE!r}; restore "
            "the savepoint from a copy"
        )
    return match[1].decode()


def check_seal(found: str, sealed: str | None, file: str) -> None:
    """Raises SavepointCorrupt naming both values."""
    if sealed is None:
        raise SavepointCorrupt(f"{file}: {SEAL_FILE} beside it, which holds its checksum, is missing; restore a copy")
    if found != sealed:
        raise SavepointCorrupt(f"{file}: has SHA-256 {found}, {sealed} was recorded in {SEAL_FILE}; restore a copy")
