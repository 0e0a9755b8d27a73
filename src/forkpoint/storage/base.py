"""Durable storage for checkpoints and savepoints: the protocol, local disk, and `open_storage`."""

from __future__ import annotations

import builtins
import errno
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import time
from typing import NoReturn, Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

from forkpoint.errors import AccessDenied, AlreadyExists, ConfigError, NotFound, StorageError
from forkpoint.storage import private

TEMPORARY_PREFIX = ".fp-tmp-"
_URL = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*)://")
_OBJECT_SCHEMES = ("s3", "gs", "az", "memory")
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_MKDIR_ATTEMPTS = 20


@runtime_checkable
class Storage(Protocol):
    """Files below one root, named by relative paths with "/" between segments.

    Guarantees that every implementation gives, and that the commit protocol rests on:

    * `create` is atomic and exclusive: of any number of callers, in any process on any machine, at most one returns;
      the others raise `AlreadyExists`. Nobody ever sees part of the content. An object store that repeats a request
      whose answer was lost can raise `AlreadyExists` to the very caller that created the file: a caller that must know
      who won reads the file and looks for its own run in it.
    * `put` replaces atomically: a reader sees the old content or the new one, whole.
    * A `create` or `put` that returned is durable, and visible to every later `read`, `exists`, `size` and `list`.
    * `delete` and `delete_prefix` of something absent do nothing; neither is atomic over many files.

    A path is either a file or a directory of files, never both. There are no empty directories: `list` and `exists`
    know files only. Paths that are absolute, empty, or hold an empty, "." or ".." segment raise `StorageError`, so
    nothing outside the root can be named and a root can be moved or copied as a whole. Reading what is not there raises
    `NotFound`; any other failure raises `StorageError` with the full place and the remedy.
    """

    @property
    def url(self) -> str:
        """The root, in a form that `open_storage` takes."""
        ...

    def read(self, path: str) -> bytes:
        """The whole content. Raises NotFound."""
        ...

    def list(self, prefix: str = "") -> builtins.list[str]:
        """Every file below the directory `prefix` ("" is the root), at any depth, sorted, relative to the root."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write the file, replacing one of that name."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Write the file if the name is free. Raises AlreadyExists."""
        ...

    def delete(self, path: str) -> None:
        """Remove the file if it is there."""
        ...

    def delete_prefix(self, prefix: str) -> None:
        """Remove every file below the directory `prefix`; the root itself cannot be named."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file of that name."""
        ...

    def size(self, path: str) -> int:
        """The file's length in bytes. Raises NotFound."""
        ...

    def modified_ms(self, path: str) -> int:
        """When the file was written, by the store's clock. Raises NotFound."""
        ...


def check_path(path: str) -> str:
    """Return `path` if it is a usable relative path; raise StorageError, naming what is wrong with it, if not."""
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


def open_storage(url: str | os.PathLike[str], config: Mapping[str, str] | None = None) -> Storage:
    """Open the storage at `url`: a plain path, file://, s3://, gs://, az:// or memory://.

    `config` holds the object store's own settings (`endpoint`, `region`, `access_key_id`, …); what it leaves out comes
    from the environment (AWS_*, GOOGLE_*, AZURE_*). memory://NAME is one store for each NAME within this process.
    Raises ConfigError when the URL cannot be used; opening touches neither disk nor network.
    """
    place = os.fspath(url)
    if place.startswith("file:"):
        parts = urlsplit(place)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
            raise ConfigError(f"storage URL {place!r} is not a local file URL; write file:///absolute/path")
        return LocalStorage(unquote(parts.path))
    if (match := _URL.match(place)) is None:
        if not place:
            raise ConfigError("the storage URL is empty; give a directory or a URL such as s3://bucket/path")
        return LocalStorage(os.path.abspath(Path(place).expanduser()))
    if match[1] not in _OBJECT_SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in ("file", *_OBJECT_SCHEMES))
        raise ConfigError(
            f"storage URL {place!r} has the unknown scheme {match[1]!r}; use a plain path or one of {known}"
        )
    from forkpoint.storage.object_storage import ObjectStorage  # local jobs need not load the object store client

    return ObjectStorage(place, config)


@dataclass(frozen=True)
class LocalStorage:
    """`Storage` in a directory of a POSIX file system, local or shared (NFS v3+), that is created when first written.

    Each write goes to a temporary file beside its target, is synced, and then takes its name by a hard link (`create`)
    or a rename (`put`), after which the directory is synced. A writer killed in between leaves its temporary file,
    which no method shows; `remove_leftovers` deletes those. What is written is for its owner alone (`private`).
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
        place = self._place(path)
        try:
            with open(place, "rb") as file:
                return file.read()
        except OSError as error:
            self._fail("read", place, error)

    def list(self, prefix: str = "") -> builtins.list[str]:
        top = self._place(prefix) if prefix else self.root
        try:
            return sorted(self._walk(top, prefix))
        except OSError as error:
            self._fail("list", top, error)

    def put(self, path: str, data: bytes) -> None:
        place = self._place(path)
        with self._written(place, data) as temporary:
            os.replace(temporary, place)

    def create(self, path: str, data: bytes) -> None:
        place = self._place(path)
        with self._written(place, data) as temporary:
            os.link(temporary, place)

    def delete(self, path: str) -> None:
        place = self._place(path)
        try:
            os.unlink(place)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            if os.path.isdir(place):  # not a file, so there is no file of that name
                return
            self._fail("delete", place, error)
        self._prune(os.path.dirname(place))

    def delete_prefix(self, prefix: str) -> None:
        top = self._place(prefix)
        try:
            for directory, _, names in os.walk(top, topdown=False, onerror=_unless_absent):
                for name in names:
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(directory, name))
                with suppress(OSError):  # a writer may have put a file in again; it stays
                    os.rmdir(directory)
        except OSError as error:
            self._fail("delete", top, error)
        self._prune(os.path.dirname(top))

    def exists(self, path: str) -> bool:
        return os.path.isfile(self._place(path))

    def size(self, path: str) -> int:
        return self._stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return self._stat(path).st_mtime_ns // 1_000_000

    def _stat(self, path: str) -> os.stat_result:
        place = self._place(path)
        try:
            if os.path.isdir(place):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            return os.stat(place)
        except OSError as error:
            self._fail("look at", place, error)

    def close_to_others(self, names: Iterable[str]) -> None:
        """Directories of these names below the root are for their owner alone from now on, with all that is in them."""
        try:
            for name in names:
                private.close_to_others(self._place(name))
        except OSError as error:
            self._fail("change the mode of what is in", self.root, error)

    def remove_leftovers(self, older_than: timedelta) -> builtins.list[str]:
        """Delete the temporary files of writers that died, and return their paths.

        `older_than` must be longer than any single write can take: a temporary file of a live writer must not go.
        """
        gone = [path for path, _ in self.temporary_files(older_than)]
        for path in gone:
            self.remove_temporary(path)
        return gone

    def temporary_files(self, older_than: timedelta) -> builtins.list[tuple[str, int]]:
        """The temporary files that were last written longer ago, with their sizes."""
        limit = time() - older_than.total_seconds()
        found = []
        for directory, _, names in os.walk(self.root):
            for name in names:
                place = os.path.join(directory, name)
                with suppress(FileNotFoundError):
                    if name.startswith(TEMPORARY_PREFIX) and (stat := os.stat(place)).st_mtime < limit:
                        found.append((os.path.relpath(place, self.root), stat.st_size))
        return sorted(found)

    def remove_temporary(self, path: str) -> None:
        """Delete one of the ``temporary_files``."""
        place = os.path.join(self.root, path)
        if not os.path.basename(path).startswith(TEMPORARY_PREFIX):
            raise StorageError(f"{place} is no temporary file")
        with suppress(FileNotFoundError):
            os.unlink(place)
        self._prune(os.path.dirname(place))

    def links_out(self, directory: str = "") -> Iterator[str]:
        """The symbolic links below a directory that lead out of it, or to a directory, where they could go in circles.

        Whose files come from elsewhere is not to read, or delete, anything through them.
        """
        top = os.path.realpath(self._place(directory) if directory else self.root)
        waiting = [top]
        while waiting:
            try:
                with os.scandir(waiting.pop()) as entries:
                    found = list(entries)
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in found:
                if entry.is_symlink():
                    target = os.path.realpath(entry.path)
                    if not target.startswith(f"{top}{os.sep}") or not os.path.isfile(target):
                        yield os.path.relpath(entry.path, top)
                elif entry.is_dir():
                    waiting.append(entry.path)

    def _place(self, path: str) -> str:
        return os.path.join(self.root, check_path(path))

    def _walk(self, directory: str, prefix: str) -> Iterator[str]:
        try:
            with os.scandir(directory) as entries:
                found = list(entries)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in found:
            path = f"{prefix}/{entry.name}" if prefix else entry.name
            if entry.is_dir():
                yield from self._walk(entry.path, path)
            elif not entry.name.startswith(TEMPORARY_PREFIX):
                yield path

    @contextmanager
    def _written(self, place: str, data: bytes) -> Iterator[str]:
        """A synced temporary file beside `place`; the body gives it its name, then the directory is synced."""
        directory = os.path.dirname(place)
        temporary = os.path.join(directory, f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}")
        try:
            handle = self._open_new(temporary, directory)
            try:
                with open(handle, "wb", buffering=0) as file:
                    view = memoryview(data)
                    while view:  # an unbuffered write may be short
                        view = view[file.write(view) :]
                    os.fsync(file.fileno())
                yield temporary
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)
            _sync_directory(directory)
        except OSError as error:
            self._fail("write", place, error)

    def _open_new(self, temporary: str, directory: str) -> int:
        for _ in range(_MKDIR_ATTEMPTS):
            try:
                return private.open_new(temporary)
            except FileNotFoundError:
                # Either the directory was never there, or a concurrent delete pruned it while it was empty.
                self._make_directory(directory)
        raise StorageError(
            f"cannot write {directory}: the directory cannot be created, or something keeps removing it; choose a place "
            "on a file system that allows new directories"
        )

    def _make_directory(self, directory: str) -> None:
        """Like os.makedirs, but each new entry is synced in its parent, or a crash could lose a whole new directory."""
        parent = os.path.dirname(directory)
        if not os.path.isdir(parent):
            self._make_directory(parent)
        with suppress(FileNotFoundError):  # the parent was pruned meanwhile; the caller tries again
            with suppress(FileExistsError):
                private.make_directory(directory)
            _sync_directory(parent)

    def _prune(self, directory: str) -> None:
        """Remove directories that became empty, up to the root: each epoch has some, and they would pile up."""
        while directory != self.root and len(directory) > len(self.root):
            try:
                os.rmdir(directory)
            except OSError:
                return
            directory = os.path.dirname(directory)

    def _fail(self, verb: str, place: str, error: OSError) -> NoReturn:
        reason = error.strerror or str(error)
        if isinstance(error, FileExistsError):
            raise AlreadyExists(f"{place} exists already; it is written once and never replaced") from error
        if error.errno in (errno.ENOENT, errno.EISDIR, errno.ENOTDIR) and verb in ("read", "look at"):
            raise NotFound(f"there is no file {place}") from error
        if error.errno in (errno.EISDIR, errno.ENOTDIR):
            raise StorageError(f"cannot {verb} {place}: a path is a file or a directory, never both") from error
        if error.errno in _NO_SPACE:
            raise StorageError(
                f"cannot {verb} {place}: {reason}. Free space on the file system or raise its quota (fewer retained "
                f"checkpoints need less), then start the job again: it goes on from the last checkpoint"
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise AccessDenied(f"cannot {verb} {place}: {reason}. Give this user access to {self.root}") from error
        raise StorageError(
            f"cannot {verb} {place}: {reason}. Check that {self.root} is a reachable directory"
        ) from error


def _unless_absent(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _sync_directory(directory: str) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
