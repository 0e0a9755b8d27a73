"""Keeps a local copy of a job's state up to date, for many reads.

The copy has the files that the newest manifest needs: a snapshot per key group, and the later changes. An epoch adds a small
file per subtask, and each snapshot of the job makes older files obsolete, so the copy is at most about twice the size of the
state. The files have no names on disk, so the system deletes them when the process ends, even if it is killed.

A store that applies all changes would be faster to read, but would cost as much as the job's own store, on this machine.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from forkpoint.checkpoint.manifest import Manifest
from forkpoint.errors import ForkpointError, NotFound
from forkpoint.savepoint.export.chain import StateFiles
from forkpoint.savepoint.export.chain_reader import ChainReader, EntryFile, Wanted, files_of
from forkpoint.savepoint.export.committed_epochs import READERS, CommittedEpochs, epoch_gone
from forkpoint.savepoint.inspect.copies import copied
from forkpoint.savepoint.inspect.live import LiveState, while_gone
from forkpoint.state import Columns
from forkpoint.state.arrow_file import ArrowFile, Block
from forkpoint.storage.base import open_storage

CACHE_BYTES = 64 << 20


class _Cache:
    """The most recently read batches, decoded; thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._held: OrderedDict[tuple[str, int], Columns] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[str, int]) -> Columns | None:
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: tuple[str, int], columns: Columns) -> None:
        with self._lock:
            if key in self._held:
                return
            self._held[key] = columns
            self._bytes += _size(columns)
            while self._bytes > self._max_bytes and self._held:
                self._bytes -= _size(self._held.popitem(last=False)[1])

    def drop(self, checksum: str, number_of_blocks: int) -> None:
        with self._lock:
            for number in range(number_of_blocks):
                columns = self._held.pop((checksum, number), None)
                if columns is not None:
                    self._bytes -= _size(columns)


def _size(columns: Columns) -> int:
    return sum(int(column.nbytes) for column in columns)


@dataclass(frozen=True)
class _HeldFile:
    """A copied file, whose batches are decoded on demand."""

    checksum: str
    file: ArrowFile
    cache: _Cache
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def blocks(self) -> list[Block]:
        return self.file.blocks

    def read_columns(self, number: int) -> Columns:
        found = self.cache.get((self.checksum, number))
        if found is None:
            with self._lock:  # Arrow's readers are not thread-safe
                found = self.file.read_columns(number)
            self.cache.put((self.checksum, number), found)
        return found


@dataclass(frozen=True)
class _HeldFiles:
    """All files of an epoch's state; keeps them readable after the follower drops them."""

    files: Mapping[str, _HeldFile]

    def __call__(self, wanted: Sequence[Wanted]) -> list[EntryFile]:
        return [self.files[ref.checksum] for ref, _ in wanted]


class StateFollower:
    """Follows a job's state, for many reads: ``newest`` returns the state at the last committed epoch, which stays readable for
    as long as the caller keeps it. Thread-safe. Close it, or use it as a context manager.

    ``directory``: where to keep the local copy, on a file system with room for twice the size of the job's state; by default
    the directory for temporary files. The copy is unnamed, so it leaves no files. ``cache_bytes``: memory for decoded batches.
    """

    def __init__(
        self,
        state_root: str | os.PathLike[str],
        job: str,
        *,
        directory: str | os.PathLike[str] | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._storage = open_storage(state_root)
        self._job = job
        self._directory = None if directory is None else os.fspath(directory)
        self._epochs = CommittedEpochs(self._storage, job)
        self._cache = _Cache(cache_bytes)
        self._files: dict[str, _HeldFile] = {}
        self._newest: LiveState | None = None
        self._checked = 0.0
        self._closed = False
        self._lock = threading.Lock()

    def newest(self, max_age_seconds: float = 0) -> LiveState:
        """The state at the job's last committed epoch. Raises JobNotFound, StorageUnavailable, SavepointCorrupt.

        ``max_age_seconds``: how old the answer may be; then not every call lists the checkpoints, which takes some 20 ms on an
        object store.
        """
        oldest = time.monotonic() - max_age_seconds
        with self._lock:
            if self._closed:
                raise ForkpointError(f"the follower of job {self._job!r} was closed; create a new StateFollower")
            # If several threads wait here, one checks for all that were waiting when it began.
            if self._newest is None or self._checked < oldest:
                checked = time.monotonic()
                self._newest = while_gone(self._follow)
                self._checked = checked
            return self._newest

    def _follow(self) -> LiveState:
        epoch = self._epochs.newest_epoch()
        if self._newest is not None and self._newest.epoch == epoch:
            return self._newest
        manifest = self._epochs.load(epoch)
        files = self._epochs.files(manifest)
        needed = self._copy(manifest, files)
        for checksum in self._files.keys() - needed.keys():
            self._cache.drop(checksum, len(self._files[checksum].blocks))
        self._files = needed
        return LiveState(manifest, self._storage.url, ChainReader(files, _HeldFiles(needed)))

    def _copy(self, manifest: Manifest, files: StateFiles) -> dict[str, _HeldFile]:
        """Copy the missing files of an epoch; keeps the successful copies if others fail."""
        wanted = {ref.checksum: (ref, kind) for ref, kind in files_of(files)}
        missing = {checksum: each for checksum, each in wanted.items() if checksum not in self._files}
        failed: list[BaseException] = []
        with ThreadPoolExecutor(READERS) as pool:
            copies = {c: pool.submit(copied, self._storage, each, self._directory) for c, each in missing.items()}
        for checksum, copy in copies.items():
            if (error := copy.exception()) is None:
                self._files[checksum] = _HeldFile(checksum, copy.result(), self._cache)
            else:
                failed.append(error)
        if failed:
            raise next((each for each in failed if not isinstance(each, NotFound)), epoch_gone(self._job, manifest.epoch))
        return {checksum: self._files[checksum] for checksum in wanted}

    def close(self) -> None:
        """Give up the local copy; idempotent. States returned before stay readable."""
        with self._lock:
            self._closed = True
            self._files, self._newest = {}, None
            self._cache = _Cache(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
