"""Files on object stores and HDFS as a source: found by listings, read in ranges."""

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
"""Between two listings: a store charges for them."""
WHOLE_BYTES = 4 << 20
AT_ONCE = 16  # requests
AHEAD_BYTES = 32 << 20

# The part of the time that whole listings may take.
_WHOLE_SHARE = 0.05


@contextmanager
def reaching(place: str) -> Iterator[None]:
    """Storage that does not answer is another system here, not that of the job's state."""
    try:
        yield
    except StorageUnavailable as error:
        raise SystemUnavailable(str(error)) from error


class RemoteFiles(SourceFiles):
    """Files below a URL, or one file. ``str`` of a file is its URL."""

    def __init__(self, url: str) -> None:
        self.place = url
        root, self._prefix = split_url(url)
        self._root = root.rstrip("/")
        self._storage = open_files(root)
        self._looks: dict[str, Future[StoredFile]] = {}

    def file(self, path: str, size: int, tag: str | None) -> RemoteFile:
        key = join(self._prefix, path)
        return RemoteFile(self._storage, StoredFile(key, size, 0, tag or ""), f"{self._root}/{key}", self._looks)

    def expect(self, entries: Sequence[FileEntry]) -> None:
        """Ask for all at once; the answers wait for ``look``."""
        self._looks.clear()
        with reaching(self.place), ThreadPoolExecutor(AT_ONCE) as pool:
            for entry in entries:
                key = join(self._prefix, entry.path)
                self._looks[key] = pool.submit(self._storage.stat, key)

    def contents(self, segments: Sequence[dict[str, Any]]) -> Iterator[bytes]:
        """Several at once, as each takes a request of its own, but only so many bytes ahead."""
        if len(segments) < 2:
            yield from super().contents(segments)
            return

        def read(segment: dict[str, Any]) -> bytes:
            with self.file(segment["path"], segment["size"], segment.get("tag")).opened() as reading:
                return reading(segment["at"], segment["end"] - segment["at"])

        waiting: deque[tuple[Future[bytes], int]] = deque()
        ahead, following = 0, iter(segments)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                while True:
                    while ahead < AHEAD_BYTES and len(waiting) < AT_ONCE and (segment := next(following, None)) is not None:
                        size = segment["end"] - segment["at"]
                        waiting.append((pool.submit(read, segment), size))
                        ahead += size
                    if not waiting:
                        return
                    answer, size = waiting.popleft()
                    ahead -= size
                    yield answer.result()
            finally:
                for answer, _ in waiting:
                    answer.cancel()


def join(prefix: str, path: str) -> str:
    """The path in the bucket of a path below the prefix; "." is the prefix itself."""
    return prefix if path == "." else f"{prefix}/{path}".lstrip("/")


class RemoteFile(SourceFile):
    """An object, or a file on HDFS."""

    whole_below = WHOLE_BYTES

    def __init__(self, storage: FileStorage, stored: StoredFile, place: str, looks: dict[str, Future[StoredFile]]) -> None:
        self._storage = storage
        self._stored = stored
        self._place = place
        self._looks = looks
        self.name = stored.path.rpartition("/")[2]

    def __str__(self) -> str:
        return self._place

    @property
    def is_small(self) -> bool:
        return self._stored.size < self.whole_below

    def look(self) -> tuple[int, str | None]:
        asked = self._looks.pop(self._stored.path, None)
        with reaching(self._place):
            try:
                found = self._storage.stat(self._stored.path) if asked is None else asked.result()
            except NotFound as error:
                raise FileNotFoundError(str(error)) from error
        self._stored = found
        return found.size, found.tag

    def check(self, size: int, *, exact: bool) -> None:
        """Reading it tells."""

    @contextmanager
    def opened(self) -> Iterator[Callable[[int, int], bytes]]:
        yield lambda at, count: self.read(at, at + count)

    def read(self, start: int, end: int) -> bytes:
        """These bytes. Raises StorageError if it has vanished or changed."""
        with reaching(self._place):
            try:
                return self._storage.read_range(self._stored, start, end)
            except NotFound:
                raise StorageError(
                    f"{self._place}: the file has vanished since it was found. Restore it and start the job again; "
                    "files must stay until the epoch that reads them is committed"
                ) from None
            except FileChanged:
                raise StorageError(
                    f"{self._place}: the file has changed since it was found. Restore the original and start the job again; "
                    f"{MUST_BE_COMPLETE} and not change"
                ) from None

    def head(self, size: int) -> bytes:
        data = b""
        while len(data) < size and not has_head(data):
            data += self.read(len(data), min(size, 2 * len(data) + HEAD_BYTES))
        return data

    @contextmanager
    def for_parquet(self, size: int) -> Iterator[Any]:
        yield self._whole() if self.is_small else pa.PythonFile(_Ranges(self, size), mode="r")

    @contextmanager
    def for_stream(self, size: int) -> Iterator[Any]:
        yield self._whole()

    def _whole(self) -> Any:
        return pa.BufferReader(self.read(0, self._stored.size))


class _Ranges(io.RawIOBase):
    """A file that pyarrow reads by seeking, a request each."""

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
    """The visible files at or below a URL that match ``pattern``. Empty objects, which stand for directories, are not files.

    Between two whole listings, only names after the last one are asked for, as names often have times in them; unless
    ``always_whole``, and for ``files_between`` files at most: others may then be too late.
    """

    def __init__(self, url: str, pattern: str | None, always_whole: bool, files_between: int) -> None:
        self.pattern = pattern
        self._always_whole = always_whole
        self._files_between = files_between
        self._files_since = 0
        root, self._prefix = split_url(url)
        self._url = url
        self._storage = open_files(root)
        self._matches = None if pattern is None else glob_matcher(pattern)
        self._begins = literal_prefix(pattern)
        self._known: dict[str, str] = {}  # path → tag
        self._last = ""  # the last name of all
        self._looked_at = self._whole_at = float("-inf")
        self._whole_cost = 0.0
        self._is_file = self._find()

    def _find(self) -> bool:
        """Whether the URL is a file. Raises ConfigError if it is known that nothing is there."""
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
        if started < self._looked_at + LOOK_SECONDS:
            return []
        with reaching(self._url):
            found = self._the_file() if self._is_file else self._look()
        self._looked_at = time.monotonic()
        return found

    def _look(self) -> list[FileEntry]:
        started = time.monotonic()
        if not self._whole_is_due(started):
            some = list(self._listed(max(self._last, self._first)))
            self._files_since += len(some)
            return some
        self._files_since = 0
        before, self._known = self._known, {}
        new = [entry for entry in self._listed(self._first) if before.get(entry.path) != entry.tag]
        self._whole_at = time.monotonic()
        self._whole_cost = self._whole_at - started
        return new

    def _whole_is_due(self, now: float) -> bool:
        if self._always_whole or not self._storage.in_order or self._files_since >= self._files_between:
            return True
        return now >= self._whole_at + self._whole_cost / _WHOLE_SHARE

    def forget(self, path: str) -> None:
        self._known.pop(path, None)

    def _the_file(self) -> list[FileEntry]:
        try:
            found = self._storage.stat(self._prefix)
        except NotFound:
            self._known = {}
            return []
        before, self._known = self._known, {".": found.tag}
        return [] if self._known == before else [FileEntry(found.modified_ns, ".", found.size, found.tag)]

    @property
    def _first(self) -> str:
        """Names up to this one are not of interest."""
        return join(self._prefix, self._begins) if self._begins else ""

    def _listed(self, after: str) -> Iterator[FileEntry]:
        """The files with names after this one."""
        for each in self._storage.files(self._prefix, after, self._enters):
            path = each.path[len(self._prefix) :].lstrip("/")
            if self._storage.in_order:
                if self._begins and not path.startswith(self._begins) and path > self._begins:
                    return
                self._last = max(self._last, each.path)
            if each.size and not _is_hidden(path) and (self._matches is None or self._matches(path)):
                self._known[path] = each.tag
                yield FileEntry(each.modified_ns, path, each.size, each.tag)

    def _enters(self, directory: str) -> bool:
        return not _is_hidden(directory[len(self._prefix) :].lstrip("/"))


def literal_prefix(pattern: str | None) -> str:
    """What all paths that match begin with."""
    if pattern is None or "/" not in pattern:  # a pattern of names, in any directory
        return ""
    return re.split(r"[*?\[]", pattern.removeprefix("./"), maxsplit=1)[0]


def _is_hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))
