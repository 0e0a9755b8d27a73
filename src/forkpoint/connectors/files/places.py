"""The interface to file systems and object stores, for sources and sinks, and the choice of its implementation by path.

A source lists files with a ``FileListing`` and reads ranges of a ``SourceFile``. A sink's task writes a ``StagedFile``; the
driver publishes it with ``SinkFiles``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

from forkpoint.contract.source import JSON
from forkpoint.errors import ConfigError
from forkpoint.types.variables import R, T

MUST_BE_COMPLETE = "a file must be complete when it appears (write under a hidden name, then rename)"

Location = Path | str
"""A directory or file of the local file system, or a URL."""

HEAD_BYTES = 1 << 16  # the size of the first read that looks for a file's first line
HEAD = re.compile(rb"(?:\xef\xbb\xbf)?(?P<blank>(?:[ \t\r]*\n)*)(?P<line>[^\n]*\n?)")
HEAD_WITH_CR = re.compile(rb"(?:\xef\xbb\xbf)?(?P<blank>(?:[ \t]*(?:\r\n|\r|\n))*)(?P<line>[^\r\n]*(?:\r\n|\r|\n)?)")
"""A byte order mark, blank lines, and the first line that is not blank."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_REMOTE = ("s3", "gs", "az", "hdfs", "memory")


def has_head(data: bytes) -> bool:
    """Whether a file's first bytes contain the end of a line that is not blank."""
    head = HEAD.match(data)
    return head is not None and head["line"].endswith(b"\n")


def remote_url(path: str | Path, what: str) -> str | None:
    """The path if it is a URL; None for a path of the local file system. Raises ConfigError for an unknown scheme."""
    match = _URL.match(str(path))
    if match is None and "://" not in str(path):
        return None
    if match is None or match[1] not in _REMOTE:
        known = ", ".join(f"{scheme}://" for scheme in _REMOTE[:-1])
        raise ConfigError(f"{what}: {path} is a URL with an unknown scheme; give a path of the file system, or {known}")
    return str(path).rstrip("/")


# -- sources


@dataclass(frozen=True, order=True)
class FileEntry:
    """A listed file. Entries sort in reading order.

    ``path`` is relative to the source's base directory, with ``/``, so that positions survive a move of the directory. ``tag``
    identifies the content if the system provides one.
    """

    mtime_ns: int
    path: str
    size: int
    tag: str | None = field(default=None, compare=False)


class SourceFile(ABC):
    """A file to read; ``str`` is its path or URL."""

    name: str

    @property
    def is_small(self) -> bool:
        """Whether one task reads the whole file, because indexing it on the driver would cost more."""
        return False

    @abstractmethod
    def stat(self) -> tuple[int, str | None]:
        """The file's size, and a tag of its content. Raises FileNotFoundError."""

    @abstractmethod
    def check(self, size: int, *, exact: bool) -> None:
        """Raise StorageError if the file has vanished or shrunk, or (``exact``) grown. Does nothing if reading detects that."""

    @abstractmethod
    def opened(self) -> AbstractContextManager[Callable[[int, int], bytes]]:
        """A function that reads a number of bytes at an offset. Raises StorageError if the file has changed."""

    @abstractmethod
    def head(self, size: int) -> bytes:
        """At least the first bytes up to the end of the first line that is not blank. Raises FileNotFoundError."""

    @abstractmethod
    def for_parquet(self, size: int) -> AbstractContextManager[Any]:
        """The file in a form from which pyarrow reads Parquet."""

    @abstractmethod
    def for_stream(self, size: int) -> AbstractContextManager[Any]:
        """The file in a form from which pyarrow reads a stream."""


class SourceFiles(ABC):
    """The files of a source. ``location`` is for messages."""

    location: str

    @abstractmethod
    def file(self, path: str, size: int, tag: str | None) -> SourceFile:
        """A file by its entry's path. Its content must have this ``tag``; with None, any content is read."""

    def expect(self, entries: Sequence[FileEntry]) -> None:  # noqa: B027
        """Prefetch the metadata of the entries that are read next."""

    def contents(self, segments: Sequence[dict[str, Any]]) -> Iterator[bytes]:
        """The bytes of each segment, in order."""
        for segment in segments:
            with self.file(segment["path"], segment["size"], segment.get("tag")).opened() as read:
                yield read(segment["at"], segment["end"] - segment["at"])


class FileListing(ABC):
    """Lists a source's visible files as they appear, if they match ``pattern``; None matches all."""

    pattern: str | None

    @abstractmethod
    def appeared(self) -> list[FileEntry]:
        """The files that appeared since the last call, unordered."""

    @abstractmethod
    def forget(self, path: str) -> None:
        """Forget a file that has vanished, so that it is new if it reappears."""


# -- sinks


@dataclass(frozen=True)
class FileName:
    """The names of a sink's file, staged and published. ``attempt`` is unique among the attempts to write it."""

    stem: str
    attempt: str
    generation: int
    owner: str
    ending: str

    @property
    def staged(self) -> str:
        return f".{self.stem}-{self.attempt}.g{self.generation}.{self.owner}.inprogress"

    @property
    def final(self) -> str:
        return f"{self.stem}-{self.attempt[:8]}{self.ending}"


class StagedFile(ABC):
    """An invisible file in progress. ``final`` is its later path, for messages."""

    stream: BinaryIO
    final: str

    @abstractmethod
    def finish(self) -> JSON:
        """Make the file durable. Returns its committable."""

    @abstractmethod
    def discard(self) -> None:
        """Remove the file, which may be incomplete, if possible."""


class SinkFiles(ABC):
    """The directory of a sink. It publishes ``at_once`` files concurrently, and only then the next ones."""

    at_once: int = 1

    def each(self, call: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """The results of ``call`` in order. Calls run concurrently if they send requests."""
        if self.at_once == 1 or len(items) < 2:
            return [call(item) for item in items]
        with ThreadPoolExecutor(self.at_once) as pool:
            return list(pool.map(call, items))

    @abstractmethod
    def stage(self, bucket: str, name: FileName) -> StagedFile:
        """A new file in a subdirectory. Raises ConfigError if an uncommitted file of this name exists."""

    @abstractmethod
    def errors(self) -> AbstractContextManager[None]:
        """Converts errors of the file system to StorageError with the directory and a remedy."""

    def staged_all(self, committables: Sequence[JSON]) -> None:  # noqa: B027
        """Make the names of a subtask's finished files durable."""

    @abstractmethod
    def check(self, committable: JSON) -> None:
        """Raise ConfigError unless the driver sees a staged file."""

    @abstractmethod
    def is_staged(self, committable: JSON) -> bool: ...

    @abstractmethod
    def is_visible(self, committable: JSON) -> bool: ...

    @abstractmethod
    def name(self, committable: JSON) -> str:
        """The published file's path or URL, for messages."""

    def begun(self, committables: Sequence[JSON], epoch: int) -> bool:
        """Whether publishing this epoch may have begun, so that missing files may have been published and then removed."""
        return True

    def begin(self, committables: Sequence[JSON], epoch: int) -> None:  # noqa: B027
        """Record that publishing this epoch begins."""

    @abstractmethod
    def publish(self, committable: JSON, epoch: int) -> Literal["published", "done", "missing"]:
        """Give a file its final name, unless it has it already. Raises StorageError if another file has that name."""

    def published_all(self, committables: Sequence[JSON]) -> None:  # noqa: B027
        """Make the names of published files durable."""

    @abstractmethod
    def cleanup(self, owner: str, generation: int) -> None:
        """Remove the owner's staged files of runs up to a generation."""


def sink_files(location: Location) -> SinkFiles:
    """The directory that a sink writes to."""
    if isinstance(location, Path):
        from forkpoint.connectors.files.local import LocalSinkFiles

        return LocalSinkFiles(location)
    if location.startswith("s3:"):
        from forkpoint.connectors.files.s3 import S3Files

        return S3Files(location)
    from forkpoint.connectors.files.staged import MovedFiles

    return MovedFiles(location)


def source_files(location: Location) -> SourceFiles:
    """The files that a source reads."""
    if isinstance(location, Path):
        from forkpoint.connectors.files.local import LocalFiles

        return LocalFiles(location)
    from forkpoint.connectors.files.remote import RemoteFiles

    return RemoteFiles(location)


def exists_already(final: object) -> ConfigError:
    """The error for a new file whose name another file has."""
    return ConfigError(
        f"FileSink: {final} already exists, though its epoch has not been committed. Another job or another "
        "history of this job wrote it: move its files away, or give this job its own directory or prefix="
    )


def unseen(staged: object, location: object) -> ConfigError:
    """The error for a staged file that the driver cannot see."""
    return ConfigError(
        f"FileSink: a task has written {staged}, but the driver, which publishes it, does not see it. {location} must be the "
        "same directory for the driver and all executors: give them the same endpoint. The epoch was not committed: nothing "
        "is lost"
    )
