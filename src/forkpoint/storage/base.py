"""Durable storage for checkpoints and savepoints: the protocol, the local file system, and `open_storage`."""

from __future__ import annotations

import builtins
import errno
import mmap
import os
import re
import socket
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import time
from typing import Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

from forkpoint.errors import AccessDenied, AlreadyExists, ConfigError, NotFound, StorageError, StorageUnavailable
from forkpoint.storage import private

TEMPORARY_PREFIX = ".fp-tmp-"
_URL = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_OBJECT_SCHEMES = ("s3", "gs", "az", "memory")
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# A disk or a file server has failed and may recover.
_TRANSIENT = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENETDOWN)
_MKDIR_ATTEMPTS = 20
_PIECE = 4 << 20


@runtime_checkable
class Storage(Protocol):
    """Files below one root, named by relative paths with "/" between segments.

    The commit protocol relies on these guarantees of every implementation:

    * `create` is atomic and exclusive: of any number of callers, in any process on any machine, at most one returns;
      the others raise `AlreadyExists`. Partial content is never visible. If it raises `StorageUnavailable`, the file may
      nevertheless exist, now or later.
    * `put` replaces atomically: a reader sees either the old content or the new one.
    * A `create` or `put` that returned is durable, and visible to every later `read`, `exists`, `size` and `list`.
    * `delete`, `delete_all` and `delete_prefix` do nothing if a path is absent; the last two are not atomic.

    A path is either a file or a directory of files, never both. There are no empty directories: `list` and `exists`
    consider files only. Paths that are absolute, empty, or contain an empty, "." or ".." segment raise `StorageError`. So
    no path leaves the root, and a root can be moved or copied. Reading a missing file raises `NotFound`; any
    other failure raises `StorageError` with the full path and the remedy.
    """

    @property
    def url(self) -> str:
        """The root's URL, for `open_storage`."""

    def read(self, path: str) -> bytes:
        """The whole content. Raises NotFound."""

    def list(self, prefix: str = "", after: str = "") -> builtins.list[str]:
        """All files below the directory `prefix` ("" is the root), at any depth, sorted, relative to the root. Only paths that
        sort after `after`; skipped ones cost nothing."""

    def put(self, path: str, data: bytes) -> None:
        """Write the file, replacing an existing one."""

    def create(self, path: str, data: bytes) -> None:
        """Write a new file. Raises AlreadyExists."""

    def delete(self, path: str) -> None:
        """Remove the file if it exists."""

    def delete_all(self, paths: builtins.list[str]) -> None:
        """Remove the files that exist, in any order. Object stores delete many in one request."""

    def delete_prefix(self, prefix: str) -> None:
        """Remove all files below the directory `prefix`, which cannot be the root."""

    def exists(self, path: str) -> bool:
        """Whether the file exists."""

    def size(self, path: str) -> int:
        """The file's length in bytes. Raises NotFound."""

    def modified_ms(self, path: str) -> int:
        """When the file was last written, by the store's clock. Raises NotFound."""


def check_path(path: str) -> str:
    """Return a valid relative path unchanged. Raises StorageError, with the reason, for any other."""
    if path.startswith("/"):
        raise StorageError(f"storage path {path!r} is absolute; give it relative to the storage's root")
    for segment in path.split("/"):
        if segment in ("", ".", ".."):
            raise StorageError(f"storage path {path!r} has the segment {segment!r}; give the plain path below the root")
        if segment.startswith(TEMPORARY_PREFIX):
            raise StorageError(f"storage path {path!r}: names that start with {TEMPORARY_PREFIX!r} are reserved")
    # Lone surrogates cannot be encoded, and "\" and control characters mean different things to different stores.
    if "\\" in path or not path.isprintable():
        raise StorageError(f"storage path {path!r} holds a backslash or a character that cannot be printed")
    return path


def may_follow(directory: str, after: str) -> bool:
    """Whether a directory can contain files that sort after a path."""
    return after < f"{directory}/" or after.startswith(f"{directory}/")


def open_storage(url: str | os.PathLike[str], config: Mapping[str, str] | None = None) -> Storage:
    """Open the storage at `url`: a plain path, file://, s3://, gs://, az://, hdfs:// or memory://.

    `config` has the store's own settings (`endpoint`, `region`, `access_key_id`, …), and `retry_timeout`, the number of seconds
    during which a request to an object store is retried, by default 60. The environment (AWS_*, GOOGLE_*, AZURE_*,
    HADOOP_CONF_DIR) supplies missing settings. memory://NAME is one store per NAME within this process. Raises ConfigError for
    an invalid URL. Opening accesses neither disk nor network.
    """
    location = os.fspath(url)
    if location.startswith("file:"):
        parts = urlsplit(location)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
            raise ConfigError(f"storage URL {location!r} is not a local file URL; write file:///absolute/path")
        return LocalStorage(unquote(parts.path))
    if (match := _URL.match(location)) is None:
        if not location:
            raise ConfigError("the storage URL is empty; give a directory or a URL such as s3://bucket/path")
        return LocalStorage(os.path.abspath(Path(location).expanduser()))
    if match[1] == "hdfs":
        from forkpoint.storage.hdfs import HdfsStorage

        return HdfsStorage(location, config)
    if match[1] not in _OBJECT_SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in ("file", *_OBJECT_SCHEMES, "hdfs"))
        raise ConfigError(f"storage URL {location!r} has the unknown scheme {match[1]!r}; use a plain path or one of {known}")
    from forkpoint.storage.object_storage import ObjectStorage  # local jobs do not load the object store client

    return ObjectStorage(location, config)


@dataclass(frozen=True)
class LocalStorage:
    """`Storage` in a directory of a POSIX file system, local or shared (NFS v3+), which the first write creates.

    A write goes to a temporary file in the target's directory, syncs it, gives it its name by a hard link (`create`) or a
    rename (`put`), and syncs the directory. A writer killed in between leaves its temporary file, which only `temporary_files`
    lists. Files are private to their owner (`private`).
    """

    root: str

    def __post_init__(self) -> None:
        if not os.path.isabs(self.root):
            raise ConfigError(f"local storage needs an absolute directory, not {self.root!r}")
        object.__setattr__(self, "root", os.path.normpath(self.root))

    @property
    def url(self) -> str:
        return Path(self.root).as_uri()

    def read(self, path: str) -> bytes:
        with self._errors("read", self._location(path)) as location, open(location, "rb") as file:
            return file.read()

    def mapped(self, path: str) -> mmap.mmap | bytes:
        """``read`` of a file that never changes, without what the caller does not look at."""
        with self._errors("read", self._location(path)) as location, open(location, "rb") as file:
            empty = not os.fstat(file.fileno()).st_size  # which cannot be mapped
            return b"" if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def list(self, prefix: str = "", after: str = "") -> builtins.list[str]:
        with self._errors("list", self._location(prefix) if prefix else self.root) as top:
            return sorted(self._walk(top, prefix, after))

    def put(self, path: str, data: bytes, *, own: bool = False) -> None:
        """``own``: no other user can access the file, even in a directory shared with a group."""
        with self._errors("write", self._location(path)) as location, self._written(location, data, own) as temporary:
            os.replace(temporary, location)

    def create(self, path: str, data: bytes) -> None:
        with self._errors("write", self._location(path)) as location, self._written(location, data) as temporary:
            os.link(temporary, location)

    def delete(self, path: str) -> None:
        with self._errors("delete", self._location(path)) as location:
            try:
                os.unlink(location)
            except (FileNotFoundError, NotADirectoryError):
                return
            except OSError:
                if os.path.isdir(location):
                    return
                raise
            self._prune(os.path.dirname(location))

    def delete_all(self, paths: builtins.list[str]) -> None:
        for path in paths:
            self.delete(path)

    def delete_prefix(self, prefix: str) -> None:
        with self._errors("delete", self._location(prefix)) as top:
            for directory, _, names in os.walk(top, topdown=False, onerror=_unless_absent):
                for name in names:
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(directory, name))
                with suppress(OSError):  # not empty: a writer has added a file
                    os.rmdir(directory)
            self._prune(os.path.dirname(top))

    def exists(self, path: str) -> bool:
        return os.path.isfile(self._location(path))

    def size(self, path: str) -> int:
        return self._stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return self._stat(path).st_mtime_ns // 1_000_000

    def _stat(self, path: str) -> os.stat_result:
        with self._errors("stat", self._location(path)) as location:
            if os.path.isdir(location):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            return os.stat(location)

    def close_to_others(self, names: Iterable[str]) -> None:
        """Make the directories of these names below the root private to their owner."""
        for name in names:
            with self._errors("change the mode of", self._location(name)) as location:
                private.close_to_others(location)

    def temporary_files(self, older_than: timedelta) -> builtins.list[tuple[str, int]]:
        """The temporary files whose last write is older than that, with their sizes.

        Dead writers left them if `older_than` exceeds the duration of any single write.
        """
        limit = time() - older_than.total_seconds()
        found = []
        for directory, _, names in os.walk(self.root):
            for name in names:
                location = os.path.join(directory, name)
                with suppress(FileNotFoundError):
                    if name.startswith(TEMPORARY_PREFIX) and (stat := os.stat(location)).st_mtime < limit:
                        found.append((os.path.relpath(location, self.root), stat.st_size))
        return sorted(found)

    def remove_temporary(self, path: str) -> None:
        """Delete one of the ``temporary_files``."""
        location = os.path.join(self.root, path)
        if not os.path.basename(path).startswith(TEMPORARY_PREFIX):
            raise StorageError(f"{location} is not a temporary file")
        with suppress(FileNotFoundError):
            os.unlink(location)
        self._prune(os.path.dirname(location))

    def links_out(self, directory: str = "") -> Iterator[str]:
        """The symbolic links below a directory that point outside it, or to a directory, which could be a cycle.

        In a directory of foreign origin, nothing may be read or deleted through them.
        """
        top = os.path.realpath(self._location(directory) if directory else self.root)
        pending = [top]
        while pending:
            for entry in _entries(pending.pop()):
                if entry.is_symlink():
                    target = os.path.realpath(entry.path)
                    if not target.startswith(f"{top}{os.sep}") or not os.path.isfile(target):
                        yield os.path.relpath(entry.path, top)
                elif entry.is_dir():
                    pending.append(entry.path)

    def _location(self, path: str) -> str:
        return os.path.join(self.root, check_path(path))

    def _walk(self, directory: str, prefix: str, after: str) -> Iterator[str]:
        for entry in _entries(directory):
            path = f"{prefix}/{entry.name}" if prefix else entry.name
            if path <= after and not may_follow(path, after):
                continue  # whether it is a file or a directory
            if entry.is_dir():
                if may_follow(path, after):
                    yield from self._walk(entry.path, path, after)
            elif path > after and not entry.name.startswith(TEMPORARY_PREFIX):
                yield path

    @contextmanager
    def _written(self, location: str, data: bytes, own: bool = False) -> Iterator[str]:
        """Yield a synced temporary file in the directory of `location`. The body renames it; then the directory is synced."""
        directory = os.path.dirname(location)
        temporary = os.path.join(directory, f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}")
        handle = self._open_new(temporary, directory, own)
        try:
            with open(handle, "wb", buffering=0) as file:
                for at in range(0, len(data), _PIECE):
                    if at:  # in pieces, because another process's sync of a small file waits for what is being written
                        os.fsync(file.fileno())
                    view = memoryview(data)[at : at + _PIECE]
                    while view:  # an unbuffered write may be short
                        view = view[file.write(view) :]
                os.fsync(file.fileno())
            yield temporary
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        sync_directory(directory)

    def _open_new(self, temporary: str, directory: str, own: bool) -> int:
        for _ in range(_MKDIR_ATTEMPTS):
            try:
                return private.open_new(temporary, own=own)
            except FileNotFoundError:
                # The directory is new, or a concurrent delete pruned it while it was empty.
                self._make_directory(directory)
        raise StorageError(
            f"cannot write {directory}: the directory cannot be created, or something keeps removing it; choose a directory "
            "on a file system that allows new directories"
        )

    def _make_directory(self, directory: str) -> None:
        """Like os.makedirs, but syncs each parent: otherwise a crash could lose a new directory with its files."""
        parent = os.path.dirname(directory)
        if not os.path.isdir(parent):
            self._make_directory(parent)
        with suppress(FileNotFoundError):  # the parent was pruned meanwhile; the caller retries
            with suppress(FileExistsError):
                private.make_directory(directory)
            sync_directory(parent)

    def _prune(self, directory: str) -> None:
        """Remove directories that became empty, up to the root: each epoch creates some."""
        while directory != self.root and len(directory) > len(self.root):
            try:
                os.rmdir(directory)
            except OSError:
                return
            directory = os.path.dirname(directory)

    @contextmanager
    def _errors(self, verb: str, location: str) -> Iterator[str]:
        """Yield the location; convert OSErrors to StorageErrors."""
        try:
            yield location
        except FileExistsError as error:
            raise AlreadyExists(f"{location} exists already; it is written once and never replaced") from error
        except OSError as error:
            reason, code = error.strerror or str(error), error.errno
            if code in (errno.ENOENT, errno.EISDIR, errno.ENOTDIR) and verb in ("read", "stat"):
                raise NotFound(f"there is no file {location}") from error
            if code in (errno.EISDIR, errno.ENOTDIR):
                raise StorageError(f"cannot {verb} {location}: a path is a file or a directory, never both") from error
            if code in (errno.EACCES, errno.EPERM):
                raise AccessDenied(f"cannot {verb} {location}: {reason}. Give this user access to {self.root}") from error
            failure = f"cannot {verb} {location} on host {socket.gethostname()}: {reason}"
            then = "a paused job then resumes by itself; start a stopped one again, and it resumes from the last checkpoint"
            if code in _NO_SPACE:
                raise StorageUnavailable(
                    f"{failure}. Free space on the file system or raise its quota (fewer retained checkpoints need less): {then}"
                ) from error
            if code == errno.EROFS:  # the kernel remounts a faulty disk read-only
                raise StorageUnavailable(f"{failure}. Remount the file system of {self.root} writable: {then}") from error
            kind = StorageUnavailable if code in _TRANSIENT else StorageError
            raise kind(f"{failure}. Check that {self.root} is a reachable directory") from error


def _entries(directory: str) -> list[os.DirEntry[str]]:
    """The entries of a directory; none if it is absent."""
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _unless_absent(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def sync_directory(directory: str | os.PathLike[str]) -> None:
    """Make the names in a directory durable."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
