"""Where records begin in a file, found in the driver without parsing them.

An index knows a file from some place on: how far ``max_rows`` records reach, and where the n-th of them begins. A place
is a byte offset in files of lines and a row number in Parquet.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import numpy as np

from forkpoint.errors import StorageError

_BLOCK = 1 << 16
_READ = 64 * _BLOCK
_NEWLINE = 10


class FileIndex(Protocol):
    @property
    def end(self) -> int:
        """The place after the last record."""

    def take(self, max_rows: int) -> tuple[int, int]:
        """The place after at most ``max_rows`` records from here, and how many those are (0 at the end of the file)."""

    def place(self, row: int) -> int:
        """Where the record ``row`` (counted from the index's start, up to what ``take`` returned) begins."""


class LineIndex:
    """Counts line ends, 64 KiB at a time; an exact place is then looked up in one block.

    Only the bytes up to ``size`` count, the file's size when it was found: what is appended later is not part of it.
    """

    def __init__(self, path: Path, start: int, size: int) -> None:
        self._path = path
        self._start = start
        self._size = size
        self._ends: list[int] = []  # line ends up to the end of each block
        self._rows = 0
        self._taken = start

    @property
    def end(self) -> int:
        return self._size

    def take(self, max_rows: int) -> tuple[int, int]:
        counts: list[int] = []
        total, at, last = 0, self._start, _NEWLINE
        with open_file(self._path) as fd:
            while at < self._size and total < max_rows:
                data = np.frombuffer(read_exactly(fd, self._path, at, min(_READ, self._size - at)), dtype=np.uint8)
                hits = data == _NEWLINE
                counts += (int(np.count_nonzero(hits[i : i + _BLOCK])) for i in range(0, len(hits), _BLOCK))
                total = sum(counts)
                at += len(data)
                last = int(data[-1])
        self._ends = list(accumulate(counts))
        everything = at >= self._size
        total += everything and last != _NEWLINE  # the last line need not have an end
        if everything and total <= max_rows:
            self._rows, self._taken = total, self._size
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
            data = np.frombuffer(read_exactly(fd, self._path, at, min(_BLOCK, self._size - at)), dtype=np.uint8)
        return at + int(np.flatnonzero(data == _NEWLINE)[line - before - 1]) + 1


class WholeIndex:
    """A file that cannot be cut: compressed, or with line ends inside of values. Its number of records is a guess."""

    def __init__(self, start: int, size: int) -> None:
        self._start = start
        self._size = size

    @property
    def end(self) -> int:
        return self._size

    def take(self, max_rows: int) -> tuple[int, int]:
        return self._size, max(1, self._size // 64) if self._size > self._start else 0

    def place(self, row: int) -> int:
        return self._size if row else self._start


class RowIndex:
    """Rows by number, as Parquet's footer counts them."""

    def __init__(self, start: int, rows: int) -> None:
        self._start = start
        self._rows = rows

    @property
    def end(self) -> int:
        return self._rows

    def take(self, max_rows: int) -> tuple[int, int]:
        count = min(max_rows, self._rows - self._start)
        return self._start + count, count

    def place(self, row: int) -> int:
        return self._start + row


class open_file:  # noqa: N801  (a context manager, used like open)
    """A file descriptor for positioned reads; says clearly that a file has gone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> int:
        try:
            self._fd = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            raise vanished(self._path) from None
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


class FileVanished(StorageError):
    """A file that was found is no longer there."""


def vanished(path: Path) -> FileVanished:
    return FileVanished(
        f"{path}: the file has vanished since it was found. Put it back and start the job again; "
        "files must stay until the epoch that reads them is committed"
    )


def shrunk(path: Path, expected: int, actual: int) -> StorageError:
    return StorageError(
        f"{path}: the file had {expected} bytes when it was found and has {actual} now. Put the original back and "
        "start the job again; a file must be complete when it appears (write under a hidden name, then rename) and "
        "not change"
    )


def read_exactly(fd: int, path: Path, at: int, count: int) -> bytes:
    data = os.pread(fd, count, at)
    if len(data) == count:
        return data
    parts = [data]
    got = len(data)
    while data and got < count:
        data = os.pread(fd, count - got, at + got)
        parts.append(data)
        got += len(data)
    if got < count:
        raise shrunk(path, at + count, os.fstat(fd).st_size)
    return b"".join(parts)
