"""Files of a storage that are not the job's state: what a listing tells of them, reading parts, staging and publishing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol

from forkpoint.errors import ConfigError, StorageError


@dataclass(frozen=True)
class StoredFile:
    """A file as it was found. ``tag`` changes with its content: an object's ETag; on HDFS, the time of its last change."""

    path: str
    size: int
    modified_ns: int
    tag: str


class FileChanged(StorageError):
    """A file has another content than when it was found."""


class FileWriter(Protocol):
    """Writes a new file, which appears when it is closed."""

    def write(self, data: bytes, /) -> None: ...
    def close(self) -> None: ...


def everywhere(directory: str) -> bool:
    """Enter each directory."""
    return True


class FileStorage(Protocol):
    """Files below a bucket, container or file system, named by paths with "/" between segments. Errors: those of ``Storage``."""

    in_order: ClassVar[bool]
    """Whether ``files`` come in the order of their names."""

    def files(self, prefix: str, after: str = "", enter: Callable[[str], bool] = everywhere) -> Iterator[StoredFile]:
        """The files below the directory ``prefix`` with paths after ``after``, ``enter``: whether the files below a
        directory are of interest; they may be listed nevertheless."""

    def look(self, path: str) -> StoredFile:
        """What is known of one file. Raises NotFound."""

    def is_directory(self, path: str) -> bool | None:
        """Whether it is a directory; None if the storage has no directories."""

    def read_range(self, file: StoredFile, start: int, end: int) -> bytes:
        """These bytes of it. Raises NotFound, and FileChanged if it is not the file that was found."""

    def writer(self, path: str) -> FileWriter:
        """A new file, which replaces an old one when it is closed."""

    def move(self, source: str, target: str) -> None:
        """Rename a file that ``writer`` wrote, without replacing another one. If this was begun before, complete it. Raises
        NotFound, and AlreadyExists if the target is another file."""

    def exists(self, path: str) -> bool:
        """Whether the file exists."""

    def remove(self, path: str) -> None:
        """Delete the file if it exists; its directory stays."""


def split_url(url: str) -> tuple[str, str]:
    """The URL of the bucket, container or file system, and the path in it.

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
    """The files below a root that ``split_url`` returned, with credentials and endpoints from the environment, like
    ``open_storage``."""
    if root.startswith("hdfs:"):
        from forkpoint.storage.hdfs import HdfsStorage

        return HdfsStorage(root)
    from forkpoint.storage.object_storage import ObjectStorage  # local jobs do not load the object store client

    return ObjectStorage(root)
