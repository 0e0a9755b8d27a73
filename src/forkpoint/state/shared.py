"""Native handles that all stores of one process share.

A process must not open an LMDB or RocksDB database twice, and neither survives a fork: LMDB's reader slots belong to the
parent, and RocksDB's threads are gone in the child. So each path has one handle per process, and no native object is open
during a fork: it is closed just before the fork, and parent and child reopen it at the next use.
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

_PART_BYTES = 16 << 20  # with less free space than this, an I/O error may mean a full disk
_FIRST_PAGE, _PAGE = 8, 2048  # entries that a scan reads while it holds the lock: most scans find few or none


class Handle:
    """One open store of this process. Users hold `lock`. The base class has no native object."""

    def __init__(self, path: str, marker: str = "") -> None:
        self.path = path
        self.marker = os.path.join(path, marker)  # the file that distinguishes a store from its successor at the path
        self.identity: tuple[int, int] | None = None  # of the marker, while the native object is open
        self.lock = threading.RLock()
        self.users = 0
        self.gone = False

    def open(self) -> None:
        """Open the native object if necessary, and check it."""

    def suspend(self) -> None:
        """Close the native object, if open, until the next use."""

    def is_current(self) -> bool:
        """Whether the native object is closed, or its files are still at the path."""
        try:
            return self.identity is None or self.identity == self.identify()
        except FileNotFoundError:
            return False

    def identify(self) -> tuple[int, int]:
        """The device and inode of the marker at the path."""
        stat = os.stat(self.marker)
        return stat.st_dev, stat.st_ino

    def check_usable(self) -> None:
        """Raise StorageError if the store was removed while open."""
        if self.gone:
            raise StorageError(f"local store {self.path} is closed: it was removed")

    def damaged(self, cause: object) -> StorageError:
        directory = existing = os.path.dirname(self.path)
        while not os.path.exists(existing):
            existing = os.path.dirname(existing)
        disk = os.statvfs(existing)
        free, total = (blocks * disk.f_frsize for blocks in (disk.f_bavail, disk.f_blocks))
        if _is_full(cause, free):
            return StorageUnavailable(
                f"local store {self.path} on host {socket.gethostname()} cannot be written: {cause}. The file system of "
                f"{directory} is full ({free >> 20} of {total >> 20} MiB are free). Free space there: a paused job then goes on, "
                "an ended job resumes from its last checkpoint when it is started again; or start it again with TMPDIR (on a "
                "cluster, Spark's local directories) on a larger file system"
            )
        return StorageError(f"local store {self.path} cannot be used: {cause}; if it is damaged, remove it: it is only a cache")


def _is_full(cause: object, free_bytes: int) -> bool:
    """LMDB and RocksDB report the system's message without its errno; after a partial write, LMDB reports an I/O error."""
    number, message = cause.errno if isinstance(cause, OSError) else None, str(cause).lower()
    full = [errno.ENOSPC, errno.EDQUOT] + [errno.EIO] * (free_bytes < _PART_BYTES)
    return number in full or any(os.strerror(code).lower() in message for code in full)


_lock = threading.RLock()
_handles: dict[str, Handle] = {}  # by real path; no open handle crosses a fork, so a child has its own
_all: weakref.WeakSet[Handle] = weakref.WeakSet()  # including handles whose files another process has removed
_suspended: list[Handle] = []


def acquire(path: str | os.PathLike[str], kind: type[H], make: Callable[[str], H]) -> H:
    """The handle of the store at `path`, created if necessary. The caller returns it with `release`."""
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
    """Return a handle; the last user closes it."""
    with _lock, handle.lock:
        handle.users -= 1
        if handle.users == 0:
            handle.suspend()
            if _handles.get(handle.path) is handle:
                del _handles[handle.path]


class SharedStore(Generic[H]):
    """A store with a shared handle."""

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

    def suspend(self) -> None:
        """Close the native object until the next use, so that another process can open a store that only one may have open."""
        with self._handle.lock:
            self._handle.suspend()

    def close(self) -> None:
        shared, self._shared = self._shared, None
        if shared is not None:
            release(shared)


def pages(read: Callable[[bytes, int], Page], start: bytes, stop: bytes) -> Iterator[Page]:
    """The entries with start <= key < stop. ``read(key, count)`` returns ``count`` entries from a key on, fewer at the end."""
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
