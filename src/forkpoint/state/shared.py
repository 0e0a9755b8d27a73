"""Native handles that all stores of one process share.

Neither LMDB nor RocksDB may be opened twice by one process, and neither survives a fork: LMDB's reader slots belong to
the parent, RocksDB's threads are gone in the child. So each path has one handle per process, and no native object is
ever open during a fork: it is closed just before and opened again, in the parent and in the child, at its next use.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Generic, TypeVar

from forkpoint.errors import StorageError, StorageUnavailable

H = TypeVar("H", bound="Handle")
Page = list[tuple[bytes, bytes]]

_PART_BYTES = 16 << 20  # less free space than this may have been too little for a write
_FIRST_PAGE, _PAGE = 8, 2048  # entries that a scan reads while it holds the lock: most scans find few or none


class Handle:
    """One open store of this process. Every use is made holding `lock`. By itself it has no native object."""

    def __init__(self, path: str, marker: str = "") -> None:
        self.path = path
        self.marker = os.path.join(path, marker)  # the file that tells a store from its successor at the path
        self.identity: tuple[int, int] | None = None  # the marker's, while the native object is open
        self.lock = threading.RLock()
        self.users = 0
        self.gone = False

    def open(self) -> None:
        """Open the native object if it is not open, and check it."""

    def suspend(self) -> None:
        """Close the native object, if open, until the next use."""

    def is_current(self) -> bool:
        """Whether this handle has nothing open, or the files that are (still) at the path."""
        try:
            return self.identity is None or self.identity == self.identify()
        except FileNotFoundError:
            return False

    def identify(self) -> tuple[int, int]:
        """The device and inode of the marker at the path."""
        stat = os.stat(self.marker)
        return stat.st_dev, stat.st_ino

    def check_usable(self) -> None:
        """Raises StorageError if the store was removed while open."""
        if self.gone:
            raise StorageError(f"local store {self.path} is closed: it was removed")

    def damaged(self, cause: object) -> StorageError:
        where = os.path.dirname(self.path)
        free_bytes, total_bytes = _free_and_total(where)
        if _is_full(cause, free_bytes):
            free, total = free_bytes // 2**20, total_bytes // 2**20
            return StorageUnavailable(
                f"local store {self.path} on host {socket.gethostname()} cannot be written: {cause}. The file system of {where} "
                f"is full ({free} of {total} MiB are free). Free space there: a paused job then goes on, an ended one resumes "
                "from its last checkpoint when it is started again; or start it again with TMPDIR (on a cluster, Spark's local "
                "directories) on a larger file system"
            )
        return StorageError(f"local store {self.path} cannot be used: {cause}; if it is damaged, remove it: it is only a cache")


def _is_full(cause: object, free_bytes: int) -> bool:
    """LMDB and RocksDB report the system's message without its errno; LMDB an I/O error where it could write only a part."""
    number, said = cause.errno if isinstance(cause, OSError) else None, str(cause).lower()
    full = [errno.ENOSPC, errno.EDQUOT] + [errno.EIO] * (free_bytes < _PART_BYTES)
    return number in full or any(os.strerror(code).lower() in said for code in full)


def _free_and_total(path: str) -> tuple[int, int]:
    while not os.path.exists(path):
        path = os.path.dirname(path)
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize


_lock = threading.RLock()
_handles: dict[str, Handle] = {}  # by real path; nothing open crosses a fork, so a child's are its own
_all: weakref.WeakSet[Handle] = weakref.WeakSet()  # also those whose files another process has removed
_suspended: list[Handle] = []


def acquire(path: str | os.PathLike[str], kind: type[H], make: Callable[[str], H]) -> H:
    """The handle of the store at `path`, made if there is none; to be given back with `release`."""
    key = os.path.realpath(path)
    with _lock:
        handle = _handles.get(key)
        if handle is not None and not handle.is_current():
            # Another process has removed the directory; users of the old store may keep it.
            del _handles[key]
            handle = None
        if handle is None:
            handle = _handles[key] = make(key)
            _all.add(handle)
        if not isinstance(handle, kind):
            raise StorageError(f"local store {path} is already open as another kind of store; close it first")
        handle.users += 1
        return handle


def release(handle: Handle) -> None:
    """Give back a handle; the last one closes it."""
    with _lock, handle.lock:
        handle.users -= 1
        if handle.users == 0:
            handle.suspend()
            if _handles.get(handle.path) is handle:
                del _handles[handle.path]


class SharedStore(Generic[H]):
    """The part of a store that uses a shared handle."""

    def __init__(self, path: str | os.PathLike[str], kind: type[H], make: Callable[[str], H]) -> None:
        self.path = os.fspath(path)
        self._shared: H | None = acquire(path, kind, make)
        try:
            with self._shared.lock:
                self._shared.open()
        except BaseException:
            self.close()
            raise

    @property
    def _handle(self) -> H:
        if self._shared is None:
            raise StorageError(f"local store {self.path} is closed")
        return self._shared

    def close(self) -> None:
        shared, self._shared = self._shared, None
        if shared is not None:
            release(shared)


def pages(read: Callable[[bytes, int], Page], start: bytes, stop: bytes) -> Iterator[Page]:
    """The entries with start <= key < stop. ``read`` returns a number of entries from a key on, fewer only at the end."""
    size, more = _FIRST_PAGE, True
    while more:
        page = read(start, size)
        more, size = len(page) == size, min(size * 16, _PAGE)
        if not page:
            return
        start = page[-1][0] + b"\0"
        if page[-1][0] >= stop:
            del page[bisect_left(page, stop, key=itemgetter(0)) :]
            more = False
        if page:
            yield page


def forget(path: str | os.PathLike[str]) -> None:
    """Close the handle at `path` for good; its users get a StorageError."""
    with _lock:
        handle = _handles.pop(os.path.realpath(path), None)
        if handle is not None:
            with handle.lock:
                handle.suspend()
                handle.gone = True


def _before_fork() -> None:
    _lock.acquire()
    _suspended[:] = _all
    for handle in _suspended:
        handle.lock.acquire()
        handle.suspend()


def _after_fork() -> None:
    for handle in _suspended:
        handle.lock.release()
    _suspended.clear()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
