"""Files on object stores and HDFS as a source: lists them and reads ranges."""

from __future__ import annotations

import io
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from forkpoint.connectors.files.listing import glob_matcher
from forkpoint.connectors.files.places import (
    HEAD_BYTES,
    MUST_BE_COMPLETE,
    FileEntry,
    FileListing,
    SourceFile,
    SourceFiles,
    has_head,
)
from forkpoint.errors import ConfigError, NotFound, StorageError, StorageUnavailable, SystemUnavailable
from forkpoint.storage.files import FileChanged, FileStorage, StoredFile, open_files, split_url

LOOK_SECONDS = 1.0
"""The time between two listings, for which a store charges."""
SMALL_BYTES = 4 << 20
AT_ONCE = 16  # requests
AHEAD_BYTES = 32 << 20

_FULL_SHARE = 0.05  # the share of the time that full listings may take


@contextmanager
def reaching(location: str) -> Iterator[None]:
    """Convert StorageUnavailable to SystemUnavailable: this storage is an external system, not that of the job's state."""
    try:
        yield
    except StorageUnavailable as error:
        raise SystemUnavailable(str(error)) from error


class RemoteFiles(SourceFiles):
    """Files below a URL, or one file."""

    def __init__(self, url: str) -> None:
        self.location = url
        root, self._prefix = split_url(url)
        self._root = root.rstrip("/")
        self._storage = open_files(root)
        self._stats: dict[str, Future[StoredFile]] = {}

    def file(self, path: str, size: int, tag: str | None) -> RemoteFile:
        key = join(self._prefix, path)
        return RemoteFile(self._storage, StoredFile(key, size, 0, tag or ""), f"{self._root}/{key}", self._stats)

    def expect(self, entries: Sequence[FileEntry]) -> None:
        """Request the metadata of all entries concurrently, for ``stat``."""
        self._stats.clear()
        with reaching(self.location), ThreadPoolExecutor(AT_ONCE) as pool:
            for entry in entries:
                key = join(self._prefix, entry.path)
                self._stats[key] = pool.submit(self._storage.stat, key)

    def contents(self, segments: Sequence[dict[str, Any]]) -> Iterator[bytes]:
        """Reads segments concurrently, because each takes a request, but at most ``AHEAD_BYTES`` ahead."""
        if len(segments) < 2:
            yield from super().contents(segments)
            return

        def read(segment: dict[str, Any]) -> bytes:
            with self.file(segment["path"], segment["size"], segment.get("tag")).opened() as reading:
                return reading(segment["at"], segment["end"] - segment["at"])

        pending: deque[tuple[Future[bytes], int]] = deque()
        ahead, remaining = 0, iter(segments)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                while True:
                    while ahead < AHEAD_BYTES and len(pending) < AT_ONCE and (segment := next(remaining, None)) is not None:
                        size = segment["end"] - segment["at"]
                        pending.append((pool.submit(read, segment), size))
                        ahead += size
                    if not pending:
                        return
                    answer, size = pending.popleft()
                    ahead -= size
                    yield answer.result()
            finally:
                for answer, _ in pending:
                    answer.cancel()


def join(prefix: str, path: str) -> str:
    """A path below the prefix as a path in the bucket; "." is the prefix itself."""
    return prefix if path == "." else f"{prefix}/{path}".lstrip("/")


class RemoteFile(SourceFile):
    """An object, or a file on HDFS."""

    small_below = SMALL_BYTES

    def __init__(self, storage: FileStorage, stored: StoredFile, url: str, stats: dict[str, Future[StoredFile]]) -> None:
        self._storage = storage
        self._stored = stored
        self._url = url
        self._stats = stats
        self.name = stored.path.rpartition("/")[2]

    def __str__(self) -> str:
        return self._url

    @property
    def is_small(self) -> bool:
        return self._stored.size < self.small_below

    def stat(self) -> tuple[int, str | None]:
        prefetched = self._stats.pop(self._stored.path, None)
        with reaching(self._url):
            try:
                stored = self._storage.stat(self._stored.path) if prefetched is None else prefetched.result()
            except NotFound as error:
                raise FileNotFoundError(str(error)) from error
        self._stored = stored
        return stored.size, stored.tag

    def check(self, size: int, *, exact: bool) -> None:
        """Reading detects changes."""

    @contextmanager
    def opened(self) -> Iterator[Callable[[int, int], bytes]]:
        yield lambda at, count: self.read(at, at + count)

    def read(self, start: int, end: int) -> bytes:
        """A range of bytes. Raises StorageError if the file has vanished or changed."""
        with reaching(self._url):
            try:
                return self._storage.read_range(self._stored, start, end)
            except NotFound:
                raise StorageError(
                    f"{self._url}: the file has vanished since it was found. Restore it and start the job again; "
                    "files must stay until the epoch that reads them is committed"
                ) from None
            except FileChanged:
                raise StorageError(
                    f"{self._url}: the file has changed since it was found. Restore the original and start the job again; "
                    f"{MUST_BE_COMPLETE} and not change"
                ) from None

    def head(self, size: int) -> bytes:
        data = b""
        while len(data) < size and not has_head(data):
            data += self.read(len(data), min(size, 2 * len(data) + HEAD_BYTES))
        return data

    @contextmanager
    def for_parquet(self, size: int) -> Iterator[Any]:
        if self.is_small:
            with self.for_stream(size) as stream:
                yield stream
        else:
            yield pa.PythonFile(_Ranges(self, size), mode="r")

    @contextmanager
    def for_stream(self, size: int) -> Iterator[Any]:
        yield pa.BufferReader(self.read(0, self._stored.size))


class _Ranges(io.RawIOBase):
    """A file that pyarrow reads by seeking. A read takes one request."""

    def __init__(self, file: RemoteFile, size: int) -> None:
        self._file = file
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._size, self._at + size)
        data = self._file.read(self._at, end) if self._at < end else b""
        self._at += len(data)
        return data


class RemoteListing(FileListing):
    """Lists the visible files at or below a URL that match ``pattern``. Ignores empty objects, which represent directories.

    Between two full listings, requests only names after the last one, because names often contain times; unless
    ``always_full``, and for at most ``files_between`` files, so that other files are not too late.
    """

    def __init__(self, url: str, pattern: str | None, always_full: bool, files_between: int) -> None:
        self.pattern = pattern
        self._always_full = always_full
        self._files_between = files_between
        self._files_since = 0
        root, self._prefix = split_url(url)
        self._url = url
        self._storage = open_files(root)
        self._matches = None if pattern is None else glob_matcher(pattern)
        # The literal beginning of all matching paths; empty for a pattern of names, in any directory.
        paths = "" if pattern is None or "/" not in pattern else pattern.removeprefix("./")
        self._literal = re.split(r"[*?\[]", paths, maxsplit=1)[0]
        self._known: dict[str, str] = {}  # path → tag
        self._last = ""  # the last name of all
        self._listed_at = self._full_at = float("-inf")
        self._full_seconds = 0.0
        self._is_file = self._find()

    def _find(self) -> bool:
        """Whether the URL is a file. Raises ConfigError if nothing is known to exist there."""
        with reaching(self._url):
            if not self._prefix or self._storage.is_directory(self._prefix):
                return False
            try:
                return self._storage.stat(self._prefix).size > 0
            except NotFound:
                if self._storage.in_order:  # an object store, where a directory exists once it has files
                    return False
                raise ConfigError(f"FileSource: {self._url} does not exist; create the directory, or correct the path") from None

    def appeared(self) -> list[FileEntry]:
        started = time.monotonic()
        if started < self._listed_at + LOOK_SECONDS:
            return []
        with reaching(self._url):
            found = self._stat_file() if self._is_file else self._list(started)
        self._listed_at = time.monotonic()
        return found

    def _list(self, started: float) -> list[FileEntry]:
        first = join(self._prefix, self._literal) if self._literal else ""
        full = self._always_full or not self._storage.in_order or self._files_since >= self._files_between
        if not full and started < self._full_at + self._full_seconds / _FULL_SHARE:
            new = list(self._listed(max(self._last, first)))
            self._files_since += len(new)
            return new
        self._files_since = 0
        before, self._known = self._known, {}
        new = [entry for entry in self._listed(first) if before.get(entry.path) != entry.tag]
        self._full_at = time.monotonic()
        self._full_seconds = self._full_at - started
        return new

    def forget(self, path: str) -> None:
        self._known.pop(path, None)

    def _stat_file(self) -> list[FileEntry]:
        try:
            found = self._storage.stat(self._prefix)
        except NotFound:
            self._known = {}
            return []
        before, self._known = self._known, {".": found.tag}
        return [] if self._known == before else [FileEntry(found.modified_ns, ".", found.size, found.tag)]

    def _listed(self, after: str) -> Iterator[FileEntry]:
        """The files whose names sort after ``after``."""

        def relative(path: str) -> str:
            return path[len(self._prefix) :].lstrip("/")

        for file in self._storage.files(self._prefix, after, lambda directory: not _is_hidden(relative(directory))):
            path = relative(file.path)
            if self._storage.in_order:
                if self._literal and not path.startswith(self._literal) and path > self._literal:
                    return
                self._last = max(self._last, file.path)
            if file.size and not _is_hidden(path) and (self._matches is None or self._matches(path)):
                self._known[path] = file.tag
                yield FileEntry(file.modified_ns, path, file.size, file.tag)


def _is_hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))
