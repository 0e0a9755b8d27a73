"""A savepoint's directory: the files that belong to it, the seal, and the removal of unfinished savepoints.

The seal is the checksum of savepoint.json, in a file next to it that ``sha256sum -c`` can check; savepoint.json has the
checksums of all other files. Files of states and sources are written first, then the seal, and savepoint.json last. So a
savepoint without a seal is damaged.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from forkpoint.checkpoint.format import checksum
from forkpoint.checkpoint.manifest import SourcePosition
from forkpoint.checkpoint.paths import SAVEPOINT_FILE, source_file, state_part, timers_part, within
from forkpoint.checkpoint.savepoint_manifest import (
    SAVEPOINT,
    Savepoint,
    SavepointFile,
    SavepointOperator,
    SavepointState,
    Versions,
    sums,
)
from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import AlreadyExists, NotFound, SavepointCorrupt, StorageError
from forkpoint.savepoint.catalog.labels import LABEL_FILE
from forkpoint.savepoint.format.layout import layout_of
from forkpoint.savepoint.format.parquet import PartWriter, WrittenPart, put_part
from forkpoint.savepoint.format.references import referred, withdraw
from forkpoint.storage.base import LocalStorage, Storage

SEAL_FILE = f"{SAVEPOINT_FILE}.sha256"
_SEAL = re.compile(rb"([0-9a-f]{64})  (\S+)\n?")
_OWN_FILE = re.compile(r"operators/[^/]+/[^/]+/part-\d+\.parquet|sources/[^/]+/[^/]+", re.ASCII)


def is_own_file(path: str) -> bool:
    """Whether a path, relative to a savepoint's directory, names a savepoint file other than savepoint.json and references."""
    return path in (SEAL_FILE, LABEL_FILE) or _OWN_FILE.fullmatch(path) is not None


def source_files(uid: str, position: SourcePosition) -> dict[str, bytes]:
    """The files below ``sources/``, for people and tools; a restore reads savepoint.json instead."""
    files = {source_file(uid, f"log-{name}"): text.encode() for name, text in position.spark_log.items()}
    content = {name: value for name, value in position.content().items() if name not in ("spark_log", "spark_log_files")}
    return {source_file(uid, "position.json"): json.dumps(content, indent=2).encode(), **files}


def remove_partial(target: Storage, directory: str = "") -> list[str]:
    """Remove the files of an unfinished savepoint and return their paths. Files that other savepoints refer to stay, and
    those that are not a savepoint's, and references, of which there may be new ones.

    Raises StorageError if the directory holds a complete savepoint.
    """
    directory = directory.rstrip("/")
    if target.exists(within(directory, SAVEPOINT_FILE)):
        raise StorageError(f"{target.url}/{directory} is a complete savepoint; dispose of it instead")
    check_links(target, directory)
    kept = referred(target, directory)
    listed = ((path, path.removeprefix(f"{directory}/")) for path in target.list(directory))
    found = [path for path, inside in listed if is_own_file(inside) and inside not in kept]
    for path in found:
        target.delete(path)
    return found


def release(storage: Storage, directory: str, others: Sequence[str]) -> None:
    """Withdraw the references of the savepoint in ``directory`` to files of ``others`` beside it, and remove the files that were
    kept only for it."""
    for each in withdraw(storage, directory, others):
        remove_partial(storage, each)
        remove_empty(storage, each)


def remove_empty(storage: Storage, directory: str = "") -> None:
    """Remove a savepoint's directory on a file system if it is empty."""
    if isinstance(storage, LocalStorage):
        with suppress(OSError):
            os.rmdir(os.path.join(storage.root, directory))


def check_links(storage: Storage, directory: str = "") -> None:
    """Raises SavepointCorrupt if a link leads out of the savepoint's directory."""
    if isinstance(storage, LocalStorage) and (link := next(storage.links_out(directory.rstrip("/")), None)) is not None:
        path = within(within(storage.url, directory), link)
        raise SavepointCorrupt(
            f"{path}: is a symbolic link out of the savepoint or to a directory; replace it with the files themselves"
        )


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


class NewSavepoint:
    """Writes a new savepoint; the directory is not a savepoint until ``complete``.

    Tasks elsewhere may write files of states: ``path`` assigns a path, and ``add`` records the written file. Raises
    AlreadyExists if the directory holds a savepoint. Removes files of an earlier attempt.
    """

    def __init__(self, target: Storage) -> None:
        if target.exists(SAVEPOINT_FILE):
            raise AlreadyExists(f"{target.url} holds a savepoint already; choose another directory, or dispose of it first")
        remove_partial(target)
        if kept := referred(target):
            raise AlreadyExists(f"{target.url} holds {len(kept)} files that other savepoints need; choose another directory")
        self.target = target
        self._numbers: defaultdict[tuple[str, str | None], int] = defaultdict(int)
        self._paths: dict[tuple[str, str], str] = {}
        self._files: defaultdict[tuple[str, str], list[SavepointFile]] = defaultdict(list)

    def path(self, state: StateInfo) -> str:
        """The next free path of a state. Timers of both time domains share a directory."""
        directory = state.uid, None if state.is_timers else state.name
        number = self._numbers[directory]
        self._numbers[directory] += 1
        path = timers_part(state.uid, number) if state.is_timers else state_part(state.uid, state.name, number)
        self._paths.setdefault((state.uid, state.name), path)
        return path

    def add(self, state: StateInfo, part: WrittenPart | None, kg_start: int, kg_stop: int) -> None:
        """Record a written file and its range of key groups; None for no rows."""
        if part is not None:
            self.refer(state, part.file(kg_start, kg_stop))

    def refer(self, state: StateInfo, file: SavepointFile) -> None:
        """Record a file that exists."""
        self._files[state.uid, state.name].append(file)

    def operator(self, uid: str, name: str, kind: str, states: Sequence[StateInfo]) -> SavepointOperator:
        """An operator for ``savepoint.json``, with the files added so far.

        A state without rows gets an empty file, which has its columns.
        """
        key_type = next((state.key_type for state in states if state.key_type is not None), None)
        written = [self._state(state) for state in states]
        return SavepointOperator(uid=uid, name=name, kind=kind, key_type=key_type, states=written)

    def complete(self, savepoint: Savepoint) -> None:
        """Write all other files, and then ``savepoint.json``. Raises AlreadyExists."""
        for uid, position in savepoint.sources.items():
            for path, data in source_files(uid, position).items():
                self.target.put(path, data)
        content = SAVEPOINT.dump(savepoint)
        self.target.create(SEAL_FILE, f"{checksum(content)}  {SAVEPOINT_FILE}\n".encode())
        self.target.create(SAVEPOINT_FILE, content)

    def _state(self, state: StateInfo) -> SavepointState:
        address = state.uid, state.name
        if address not in self._files:
            path = self._paths.get(address) or self.path(state)
            self.add(state, put_part(self.target, path, PartWriter(layout_of(state))), 0, 0)
        files = self._files[address]
        entries, size = sums(files)
        return SavepointState(info=state, entries=entries, bytes=size, files=files)


def written_by(spark: str | None) -> Versions:
    """The versions of the writing software; ``spark``: None if Spark is not involved."""
    try:
        forkpoint = version("forkpoint")
    except PackageNotFoundError:  # a source tree that is not installed
        forkpoint = "unknown"
    return Versions(forkpoint=forkpoint, python=platform.python_version(), spark=spark)
