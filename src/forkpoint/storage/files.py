"""Input and output files in a storage, as opposed to state: listing, ranged reads, staging and publishing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, Protocol

from forkpoint.errors import ConfigError, StorageError


@dataclass(frozen=True)
class StoredFile:
    """A file's metadata. ``tag`` changes with its content: an object's ETag; on HDFS, modification time and size."""

    path: str
    size: int
    modified_ns: int
    tag: str


class FileChanged(StorageError):
    """A file's content has changed since the file was found."""


class FileWriter(Protocol):
    """Writes a new file, which appears on ``close``."""

    def write(self, data: bytes, /) -> object: ...
    def close(self) -> None: ...


class ConvertingWriter:
    """A client's writer that raises the errors of its storage."""

    def __init__(self, file: FileWriter, errors: Callable[[], AbstractContextManager[object]]) -> None:
        self._file = file
        self._errors = errors

    def write(self, data: bytes) -> None:
        with self._errors():
            self._file.write(data)

    def close(self) -> None:
        with self._errors():
            self._file.close()


def everywhere(directory: str) -> bool:
    """Enter every directory."""
    return True


class FileStorage(Protocol):
    """Files below a bucket, container or file system, named by paths with "/" between segments. Raises the errors of
    ``Storage``."""

    in_order: ClassVar[bool]
    """Whether ``files`` lists in the order of names."""

    def files(self, prefix: str, after: str = "", enter: Callable[[str], bool] = everywhere) -> Iterator[StoredFile]:
        """The files below the directory ``prefix`` whose paths sort after ``after``. May skip directories for which ``enter``
        is false."""

    def stat(self, path: str) -> StoredFile:
        """The metadata of one file. Raises NotFound."""

    def is_directory(self, path: str) -> bool | None:
        """Whether the path is a directory; None if the storage has no directories."""

    def read_range(self, file: StoredFile, start: int, end: int) -> bytes:
        """A range of a file's bytes. Raises NotFound, or FileChanged if the content has changed."""

    def writer(self, path: str) -> FileWriter:
        """A new file, which replaces an existing one on ``close``."""

    def move(self, source: str, target: str) -> None:
        """Rename a file that ``writer`` wrote, without replacing another, or complete an interrupted move. Raises NotFound, or
        AlreadyExists if the target is another file."""

    def exists(self, path: str) -> bool:
        """Whether the file exists."""

    def remove(self, path: str) -> None:
        """Delete the file if it exists, but keep its directory."""


def split_url(url: str) -> tuple[str, str]:
    """The URL of the bucket, container or file system, and the path inside it.

    >>> split_url("s3://bucket/a/b/")
    ('s3://bucket', 'a/b')
    """
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    path = path.strip("/")
    if not host and scheme != "hdfs":
        raise ConfigError(f"{url!r} names no bucket; write it like {scheme}://bucket/path")
    return f"{scheme}://{host}{'/' if scheme == 'hdfs' else ''}", path


def open_files(root: str) -> FileStorage:
    """The files below a root that ``split_url`` returned. Like ``open_storage``, takes credentials and endpoints from the
    environment."""
    if root.startswith("hdfs:"):
        from forkpoint.storage.hdfs import HdfsStorage

        return HdfsStorage(root)
    from forkpoint.storage.object_storage import ObjectStorage  # local jobs do not load the object store client

    return ObjectStorage(root)
