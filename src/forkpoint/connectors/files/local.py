"""Files of the local file system, or of one that every machine has mounted."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from forkpoint.connectors.files.places import (
    HEAD_BYTES,
    MUST_BE_COMPLETE,
    FileName,
    SinkFiles,
    SourceFile,
    SourceFiles,
    StagedFile,
    exists_already,
    has_head,
)
from forkpoint.contract.source import JSON
from forkpoint.errors import ConfigError, StorageError, StorageUnavailable
from forkpoint.storage.base import sync_directory

_STAGED = re.compile(r"\..*-\d{12}-\d+-[^/]*?(?:\.g(\d+))?\.([0-9a-f]{8})\.inprogress")  # old releases wrote no generation


# -- sources


class LocalFiles(SourceFiles):
    """Files below a directory, or one file."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.location = str(base)

    def file(self, path: str, size: int, tag: str | None) -> SourceFile:
        return LocalFile(resolve(self.base, path))


class LocalFile(SourceFile):
    """A file that is read with positioned reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

    def __str__(self) -> str:
        return str(self.path)

    def stat(self) -> tuple[int, str | None]:
        return self.path.stat().st_size, None

    def check(self, size: int, *, exact: bool) -> None:
        with still_there(self.path):
            actual = self.path.stat().st_size
        if actual < size or (exact and actual != size):
            raise _changed(self.path, size, actual)

    @contextmanager
    def opened(self) -> Iterator[Callable[[int, int], bytes]]:
        path = self.path
        with still_there(path):
            fd = os.open(path, os.O_RDONLY)
        try:
            yield lambda at, count: _read_exactly(fd, path, at, count)
        finally:
            os.close(fd)

    def head(self, size: int) -> bytes:
        data = b""
        with self.path.open("rb") as file:
            while len(data) < size and not has_head(data):
                data += file.read(min(size - len(data), len(data) + HEAD_BYTES))
        return data

    @contextmanager
    def for_parquet(self, size: int) -> Iterator[Any]:
        with still_there(self.path):
            yield self.path

    @contextmanager
    def for_stream(self, size: int) -> Iterator[Any]:
        with still_there(self.path):
            yield str(self.path)


def resolve(base: Path, path: str) -> Path:
    return base if path == "." else base / PurePosixPath(path)


@contextmanager
def still_there(path: Path) -> Iterator[None]:
    """Raises StorageError if a listed file has vanished."""
    try:
        yield
    except FileNotFoundError:
        raise StorageError(
            f"{path}: the file has vanished since it was found. Restore it and start the job again; "
            "files must stay until the epoch that reads them is committed"
        ) from None


def _read_exactly(fd: int, path: Path, at: int, count: int) -> bytes:
    data = os.pread(fd, count, at)
    while len(data) < count:  # one call reads up to 2 GiB
        more = os.pread(fd, count - len(data), at + len(data))
        if not more:
            raise _changed(path, at + count, os.fstat(fd).st_size)
        data += more
    return data


def _changed(path: Path, expected: int, actual: int) -> StorageError:
    return StorageError(
        f"{path}: the file had {expected} bytes when it was found and has {actual} now. Restore the original and "
        f"start the job again; {MUST_BE_COMPLETE} and not change"
    )


# -- sinks


class LocalSinkFiles(SinkFiles):
    """Stages files under hidden names in their final directories, and renames them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def stage(self, bucket: str, name: FileName) -> StagedFile:
        directory = self.root / bucket
        final = directory / name.final
        if final.exists():
            raise exists_already(final)
        make_directory(directory)
        return _Staged(directory / name.staged, final)

    @contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            failed = f"FileSink: cannot write below {self.root} on host {socket.gethostname()}: {error.strerror or error}."
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS):
                raise StorageUnavailable(
                    f"{failed} Free space on the file system, raise its quota, or remount it writable: a paused job then resumes "
                    "by itself; start a stopped one again, and it resumes from the last checkpoint"
                ) from error
            raise StorageError(
                f"{failed} Check that it is a reachable directory that this user may write to, then start the job again: it "
                "resumes from the last checkpoint"
            ) from error

    def staged_all(self, committables: Sequence[JSON]) -> None:
        for directory in {os.path.dirname(committable["staged"]) for committable in committables}:
            sync_directory(directory)

    def check(self, committable: JSON) -> None:
        staged = Path(committable["staged"])
        if not staged.exists():
            raise ConfigError(
                f"FileSink: a task has written {staged}, but the driver, which publishes it, does not see it. "
                f"{self.root} must be the same directory for the driver and all executors: give one that is mounted "
                "on every machine, or on an object store or HDFS. The epoch was not committed: nothing is lost"
            )

    def is_staged(self, committable: JSON) -> bool:
        return Path(committable["staged"]).exists()

    def is_visible(self, committable: JSON) -> bool:
        return Path(committable["final"]).exists()

    def name(self, committable: JSON) -> str:
        return str(committable["final"])

    def publish(self, committable: JSON, epoch: int) -> Literal["published", "done", "missing"]:
        staged, final = Path(committable["staged"]), Path(committable["final"])
        if final.exists():
            if not staged.exists():
                return "done"
            raise StorageError(
                f"{final} already exists, so {staged.name} of epoch {epoch} cannot be renamed to it. Another job or another "
                "history of this job writes here: move its files away and start again, and give each job its own directory "
                "or prefix="
            )
        try:
            staged.rename(final)
        except FileNotFoundError:  # also if another driver has just published it
            return "done" if final.exists() else "missing"
        return "published"

    def published_all(self, committables: Sequence[JSON]) -> None:
        for directory in {os.path.dirname(committable["final"]) for committable in committables}:
            sync_directory(directory)

    def cleanup(self, owner: str, generation: int) -> None:
        for directory, _, names in os.walk(self.root):
            for name in names:
                match = _STAGED.fullmatch(name)
                if match and match[2] == owner and int(match[1] or 0) <= generation:
                    Path(directory, name).unlink(missing_ok=True)


class _Staged(StagedFile):
    def __init__(self, staged: Path, final: Path) -> None:
        self._staged = staged
        self.final = str(final)
        # Unlink an old file of the same name rather than truncate it: another process may still write to it.
        staged.unlink(missing_ok=True)
        self.stream = staged.open("xb")

    def finish(self) -> JSON:
        self.stream.flush()
        os.fsync(self.stream.fileno())
        self.stream.close()
        return {"staged": str(self._staged), "final": self.final}

    def discard(self) -> None:
        with contextlib.suppress(OSError):  # closing flushes the buffer, and the disk may be full
            self.stream.close()
        self._staged.unlink(missing_ok=True)


def make_directory(directory: Path) -> None:
    """Create a directory and its parents, durably."""
    if not directory.is_dir():
        make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        sync_directory(directory.parent)
