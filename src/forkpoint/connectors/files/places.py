"""Where the files of a source or sink are: the interface to a file system, and which implementation a path belongs to.

A source asks ``SourceFiles`` for new files, and reads parts of a ``SourceFile``. A sink's tasks write a
``StagedFile`` each, whose committables a ``SinkFiles`` publishes on the driver.
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

Place = Path | str
"""A directory or file of the local file system, or a URL."""

HEAD_BYTES = 1 << 16  # how much of a file is read at first to find its first line
HEAD = re.compile(rb"(?:\xef\xbb\xbf)?(?P<blank>(?:[ \t\r]*\n)*)(?P<line>[^\n]*\n?)")
HEAD_WITH_CR = re.compile(rb"(?:\xef\xbb\xbf)?(?P<blank>(?:[ \t]*(?:\r\n|\r|\n))*)(?P<line>[^\r\n]*(?:\r\n|\r|\n)?)")
"""A byte order mark, blank lines, and the first line that is not blank."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_REMOTE = ("s3", "gs", "az", "hdfs", "memory")


def has_head(data: bytes) -> bool:
    """Whether a line that is not blank ends in these first bytes of a file."""
    head = HEAD.match(data)
    return head is not None and head["line"].endswith(b"\n")


def place_of(path: str | Path, what: str) -> str | None:
    """The URL that a path is; None for a path of the local file system. Raises ConfigError for a system that isn't known."""
    match = _URL.match(str(path))
    if match is None and "://" not in str(path):
        return None
    if match is None or match[1] not in _REMOTE:
        known = ", ".join(f"{scheme}://" for scheme in _REMOTE[:-1])
        raise ConfigError(f"{what}: {path} is a URL that it does not know; give a path of the file system, or {known}")
    return str(path).rstrip("/")


# -- sources


@dataclass(frozen=True, order=True)
class FileEntry:
    """A file as it was found. Entries sort in reading order.

    ``path`` is relative to the source's base directory, with ``/``, so that positions survive a move of the directory. ``tag``
    identifies the content where the system tells.
    """

    mtime_ns: int
    path: str
    size: int
    tag: str | None = field(default=None, compare=False)


class SourceFile(ABC):
    """A file to read; ``str`` is where it is."""

    name: str

    @property
    def is_small(self) -> bool:
        """Whether one task reads it as a whole: to read it in the driver, too, would cost more."""
        return False

    @abstractmethod
    def look(self) -> tuple[int, str | None]:
        """Its size, and a tag of its content. Raises FileNotFoundError."""

    @abstractmethod
    def check(self, size: int, *, exact: bool) -> None:
        """Raise StorageError if it has vanished or shrunk, or (``exact``) grown, unless reading tells."""

    @abstractmethod
    def opened(self) -> AbstractContextManager[Callable[[int, int], bytes]]:
        """What reads so many bytes from a place on. Raises StorageError if it is not the file that was found."""

    @abstractmethod
    def head(self, size: int) -> bytes:
        """Its first bytes, up to the end of the first line that is not blank, or more. Raises FileNotFoundError."""

    @abstractmethod
    def for_parquet(self, size: int) -> AbstractContextManager[Any]:
        """What pyarrow reads Parquet from."""

    @abstractmethod
    def for_stream(self, size: int) -> AbstractContextManager[Any]:
        """What pyarrow reads a stream from."""


class SourceFiles(ABC):
    """The files of a source."""

    place: str
    """Where they are, for messages."""

    @abstractmethod
    def file(self, path: str, size: int, tag: str | None) -> SourceFile:
        """A file by its path in an entry. ``tag``: its content must be that; None for what is there now."""

    def expect(self, entries: Sequence[FileEntry]) -> None:  # noqa: B027
        """These are going to be looked at next."""

    def contents(self, segments: Sequence[dict[str, Any]]) -> Iterator[bytes]:
        """The bytes of each segment, in order."""
        for segment in segments:
            with self.file(segment["path"], segment["size"], segment.get("tag")).opened() as read:
                yield read(segment["at"], segment["end"] - segment["at"])


class FileListing(ABC):
    """The visible files of a source that match its pattern, as they appear. ``pattern``: None for all."""

    pattern: str | None

    @abstractmethod
    def appeared(self) -> list[FileEntry]:
        """The files that appeared since the last call, unordered."""

    @abstractmethod
    def forget(self, path: str) -> None:
        """Forget a file that has vanished; if it comes back, it is new."""


# -- sinks


@dataclass(frozen=True)
class FileName:
    """The names of a sink's file, staged and published. ``attempt`` is unique among the attempts at it."""

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
    """A file that is being written, of which nothing is visible."""

    stream: BinaryIO
    final: str
    """Where it will be, for messages."""

    @abstractmethod
    def finish(self) -> JSON:
        """Make it durable. Returns its committable."""

    @abstractmethod
    def discard(self) -> None:
        """Remove it as far as possible; it may be half-written."""


class SinkFiles(ABC):
    """The directory of a sink."""

    at_once: int = 1
    """How many files are published at once; a file only after all that precede those."""

    def each(self, call: Callable[[T], R], of: Sequence[T]) -> list[R]:
        """The results for each, in order; several at once where that takes requests."""
        if self.at_once == 1 or len(of) < 2:
            return [call(each) for each in of]
        with ThreadPoolExecutor(self.at_once) as pool:
            return list(pool.map(call, of))

    @abstractmethod
    def stage(self, bucket: str, name: FileName) -> StagedFile:
        """A new file in a subdirectory. Raises ConfigError if the file exists already, though it isn't committed."""

    @abstractmethod
    def errors(self) -> AbstractContextManager[None]:
        """Converts errors of the file system to StorageError with the directory and a remedy."""

    def staged_all(self, committables: Sequence[JSON]) -> None:  # noqa: B027
        """All of a subtask's files are finished: make their names durable."""

    @abstractmethod
    def check(self, committable: JSON) -> None:
        """Raise ConfigError unless the driver sees a staged file."""

    @abstractmethod
    def is_staged(self, committable: JSON) -> bool: ...

    @abstractmethod
    def is_visible(self, committable: JSON) -> bool: ...

    @abstractmethod
    def name(self, committable: JSON) -> str:
        """Where it is once it is published, for messages."""

    def begun(self, committables: Sequence[JSON], epoch: int) -> bool:
        """Whether publishing this epoch may have begun, so that what is missing may have been published, and then removed."""
        return True

    def begin(self, committables: Sequence[JSON], epoch: int) -> None:  # noqa: B027
        """Publishing this epoch begins."""

    @abstractmethod
    def publish(self, committable: JSON, epoch: int) -> Literal["published", "done", "missing"]:
        """Give a file its name, unless that was done before. Raises StorageError if another file has it."""

    def published_all(self, committables: Sequence[JSON]) -> None:  # noqa: B027
        """These have been published: make their names durable."""

    @abstractmethod
    def cleanup(self, owner: str, generation: int) -> None:
        """Remove the owner's staged files of runs up to a generation."""


def sink_files(place: Place) -> SinkFiles:
    """The directory that a sink writes to."""
    if isinstance(place, Path):
        from forkpoint.connectors.files.local import LocalSinkFiles

        return LocalSinkFiles(place)
    if place.startswith("s3:"):
        from forkpoint.connectors.files.s3 import S3Files

        return S3Files(place)
    from forkpoint.connectors.files.staged import MovedFiles

    return MovedFiles(place)


def source_files(place: Place) -> SourceFiles:
    """The files that a source reads."""
    if isinstance(place, Path):
        from forkpoint.connectors.files.local import LocalFiles

        return LocalFiles(place)
    from forkpoint.connectors.files.remote import RemoteFiles

    return RemoteFiles(place)


def exists_already(final: object) -> ConfigError:
    """The error for a new file whose name is taken."""
    return ConfigError(
        f"FileSink: {final} already exists, though its epoch has not been committed. Another job or another "
        "history of this job wrote it: move its files away, or give this job its own directory or prefix="
    )


def unseen(staged: object, place: object) -> ConfigError:
    """The error for a staged file that isn't there for the driver."""
    return ConfigError(
        f"FileSink: a task has written {staged}, but the driver, which publishes it, does not see it. {place} must be the same "
        "place for the driver and all executors: give them the same endpoint. The epoch was not committed: nothing is lost"
    )
