"""A local copy of a job's state that follows its epochs, for many reads.

It holds the files that the newest manifest needs: a snapshot for each key group and the later changes. An epoch adds a small
file for each subtask, and where the job takes a snapshot, older ones are dropped: so the job itself bounds what is copied, to
about twice its state. Files have no names on this machine's disk: when the process ends, however it ends, they are gone.

A store that applies all changes would be faster to read, but would cost as much as the job's own, on the same machine.
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
from forkpoint.savepoint.export.chain_reader import EntryFile, Wanted, files_of
from forkpoint.savepoint.export.committed_epochs import READERS, CommittedEpochs, epoch_gone
from forkpoint.savepoint.inspect.copies import copied
from forkpoint.savepoint.inspect.live import LiveState, live_state, while_gone
from forkpoint.state import Columns
from forkpoint.state.arrow_file import ArrowFile, Block
from forkpoint.storage.base import open_storage

CACHE_BYTES = 64 << 20


class _Cache:
    """The batches that were read last, decoded; for several threads."""

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
    """A file of ours, of which batches are decoded when they are needed."""

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
            with self._lock:  # Arrow's readers are for one thread
                found = self.file.read_columns(number)
            self.cache.put((self.checksum, number), found)
        return found


@dataclass(frozen=True)
class _HeldFiles:
    """All files of one epoch's state. What the follower drops later stays as long as this does."""

    files: Mapping[str, _HeldFile]

    def __call__(self, wanted: Sequence[Wanted]) -> list[EntryFile]:
        return [self.files[ref.checksum] for ref, _ in wanted]


class StateFollower:
    """Follows a job's state, for many reads: ``newest`` returns the state at the last committed epoch, and what that returns can
    be read at that epoch for as long as it is kept. For several threads. To be closed, or used as a context manager.

    ``directory``: of the local copy, on a file system with room for twice the job's state; by default that for temporary files.
    It is written unnamed, so nothing is left there. ``cache_bytes``: how much of it is held decoded in memory.
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
        self._looked = 0.0
        self._closed = False
        self._lock = threading.Lock()

    def newest(self, max_age_seconds: float = 0) -> LiveState:
        """The state at the job's last committed epoch. Raises JobNotFound, StorageUnavailable, SavepointCorrupt.

        ``max_age_seconds``: one that was the last so long ago will do; then not every call lists the checkpoints, which takes
        some 20 ms on an object store.
        """
        asked = time.monotonic() - max_age_seconds
        with self._lock:
            if self._closed:
                raise ForkpointError(f"the state of job {self._job!r} is not followed any more: the follower was closed")
            # Of several threads that wait here, one looks for all that were waiting before it began.
            if self._newest is None or self._looked < asked:
                looked = time.monotonic()
                self._newest = while_gone(self._follow)
                self._looked = looked
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
        return live_state(self._storage, manifest, files, _HeldFiles(needed))

    def _copy(self, manifest: Manifest, files: StateFiles) -> dict[str, _HeldFile]:
        """The files of an epoch. Those that were copied stay if others turn out to be gone."""
        wanted = {ref.checksum: (ref, kind) for ref, kind in files_of(files)}
        missing = {checksum: each for checksum, each in wanted.items() if checksum not in self._files}
        failed: list[BaseException] = []
        with ThreadPoolExecutor(READERS) as pool:
            copying = {c: pool.submit(copied, self._storage, each, self._directory) for c, each in missing.items()}
        for checksum, copy in copying.items():
            if (error := copy.exception()) is None:
                self._files[checksum] = _HeldFile(checksum, copy.result(), self._cache)
            else:
                failed.append(error)
        if failed:
            raise next((each for each in failed if not isinstance(each, NotFound)), epoch_gone(self._job, manifest.epoch))
        return {checksum: self._files[checksum] for checksum in wanted}

    def close(self) -> None:
        """Give up the local copy; may be called twice. States that were returned before can still be read."""
        with self._lock:
            self._closed = True
            self._files, self._newest = {}, None
            self._cache = _Cache(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
