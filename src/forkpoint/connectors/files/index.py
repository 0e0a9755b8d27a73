"""Where records start in a file, found in the driver without parsing them.

An index covers a file from some place on. A place is a byte offset in files of lines, and a row number in Parquet.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import numpy as np

from forkpoint.errors import StorageError

MUST_BE_COMPLETE = "a file must be complete when it appears (write under a hidden name, then rename)"
_BLOCK = 1 << 16
_READ = 64 * _BLOCK
_NEWLINE = 10


class FileIndex(Protocol):
    @property
    def end(self) -> int:
        """The place after the last record."""

    def take(self, max_rows: int) -> tuple[int, int]:
        """The place after at most ``max_rows`` records, and how many those are (0 at the end of the file)."""

    def place(self, row: int) -> int:
        """Where record ``row`` starts, counted from the index's start; at most what ``take`` returned."""


class LineIndex:
    """Counts line ends in blocks of 64 KiB; finding a place reads one block again.

    Covers bytes up to ``size``, the file's size when it was found: what is appended later is not part of it.
    """

    def __init__(self, path: Path, start: int, size: int) -> None:
        self.end = size
        self._path = path
        self._start = start
        self._ends: list[int] = []  # line ends up to the end of each block
        self._rows = 0
        self._taken = start

    def take(self, max_rows: int) -> tuple[int, int]:
        counts: list[int] = []
        total, at, last = 0, self._start, _NEWLINE
        with open_file(self._path) as fd:
            while at < self.end and total < max_rows:
                data = np.frombuffer(read_exactly(fd, self._path, at, min(_READ, self.end - at)), dtype=np.uint8)
                hits = data == _NEWLINE
                counts += (int(np.count_nonzero(hits[i : i + _BLOCK])) for i in range(0, len(hits), _BLOCK))
                total = sum(counts)
                at += len(data)
                last = int(data[-1])
        self._ends = list(accumulate(counts))
        everything = at >= self.end
        total += everything and last != _NEWLINE  # the last line may lack a line end
        if everything and total <= max_rows:
            self._rows, self._taken = total, self.end
        else:
            self._rows, self._taken = max_rows, self._after_line(max_rows)
        return self._taken, self._rows

    def place(self, row: int) -> int:
        if row >= self._rows:
            return self._taken
        return self._after_line(row) if row else self._start

    def _after_line(self, line: int) -> int:
        block = bisect_left(self._ends, line)
        before = self._ends[block - 1] if block else 0
        at = self._start + block * _BLOCK
        with open_file(self._path) as fd:
            data = np.frombuffer(read_exactly(fd, self._path, at, min(_BLOCK, self.end - at)), dtype=np.uint8)
        return at + int(np.flatnonzero(data == _NEWLINE)[line - before - 1]) + 1


@dataclass(frozen=True)
class WholeIndex:
    """A file that cannot be divided: compressed, or with line ends in values. Its number of records is an estimate."""

    start: int
    end: int

    def take(self, max_rows: int) -> tuple[int, int]:
        return self.end, max(1, self.end // 64) if self.end > self.start else 0

    def place(self, row: int) -> int:
        return self.end if row else self.start


@dataclass(frozen=True)
class RowIndex:
    """Rows by number, from Parquet's footer."""

    start: int
    end: int

    def take(self, max_rows: int) -> tuple[int, int]:
        count = min(max_rows, self.end - self.start)
        return self.start + count, count

    def place(self, row: int) -> int:
        return self.start + row


@contextmanager
def still_there(path: Path) -> Iterator[None]:
    """Raises StorageError if a file that was found is no longer there."""
    try:
        yield
    except FileNotFoundError:
        raise StorageError(
            f"{path}: the file has vanished since it was found. Restore it and start the job again; "
            "files must stay until the epoch that reads them is committed"
        ) from None


def check_size(path: Path, expected: int, *, exact: bool) -> None:
    """Raises StorageError if a file has vanished or shrunk, or (``exact``) grown."""
    with still_there(path):
        actual = path.stat().st_size
    if actual < expected or (exact and actual != expected):
        raise _changed(path, expected, actual)


@contextmanager
def open_file(path: Path) -> Iterator[int]:
    """A file descriptor for positioned reads."""
    with still_there(path):
        fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def read_exactly(fd: int, path: Path, at: int, count: int) -> bytes:
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
