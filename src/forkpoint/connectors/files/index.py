"""Where records start in a file, found in the driver without parsing them.

An index covers a file from some place on. A place is a byte offset in files of lines, and a row number in Parquet.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import numpy as np
import numpy.typing as npt

from forkpoint.connectors.files.places import SourceFile

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

    def __init__(self, file: SourceFile, start: int, size: int) -> None:
        self.end = size
        self._file = file
        self._start = start
        self._ends: list[int] = []  # line ends up to the end of each block
        self._rows = 0
        self._taken = start

    def take(self, max_rows: int) -> tuple[int, int]:
        counts: list[int] = []
        total, at, ended = 0, self._start, True
        with self._file.opened() as read:
            while at < self.end and total < max_rows:
                data = np.frombuffer(read(at, min(_READ, self.end - at)), dtype=np.uint8)
                for i in range(0, len(data), _BLOCK):
                    hits = self._hits(data[i : i + _BLOCK], len(counts))
                    counts.append(int(np.count_nonzero(hits)))
                    ended = bool(hits[-1])
                total = sum(counts)
                at += len(data)
        self._ends = list(accumulate(counts))
        everything = at >= self.end
        total += everything and not ended  # the last line may lack a line end
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
        with self._file.opened() as read:
            data = np.frombuffer(read(at, min(_BLOCK, self.end - at)), dtype=np.uint8)
        return at + int(np.flatnonzero(self._hits(data, block))[line - before - 1]) + 1

    def _hits(self, data: npt.NDArray[np.uint8], block: int) -> npt.NDArray[np.bool_]:
        """Where in a block lines end that are records."""
        hits: npt.NDArray[np.bool_] = data == _NEWLINE
        return hits


class QuotedLineIndex(LineIndex):
    """Lines whose ends may be in quotes: an odd number of quotes precedes these.

    A quote that stands for itself in a value without quotes makes it wrong: then records are cut, and reading fails.
    """

    def __init__(self, file: SourceFile, start: int, size: int, quote: str) -> None:
        super().__init__(file, start, size)
        self._quote = ord(quote)
        self._inside = [0]  # quotes: 1 where a block starts inside of some

    def _hits(self, data: npt.NDArray[np.uint8], block: int) -> npt.NDArray[np.bool_]:
        quotes = data == self._quote
        inside = (np.cumsum(quotes, dtype=np.uint8) + self._inside[block]) & 1
        if block + 1 == len(self._inside):
            self._inside.append(int(inside[-1]))
        hits: npt.NDArray[np.bool_] = super()._hits(data, block) & (inside == 0)
        return hits


def estimated_rows(size: int) -> int:
    """About how many records a file of this size has."""
    return max(1, size // 64)


@dataclass(frozen=True)
class WholeIndex:
    """A file that cannot be divided: compressed, or with line ends in values. Its number of records is an estimate."""

    start: int
    end: int

    def take(self, max_rows: int) -> tuple[int, int]:
        return self.end, estimated_rows(self.end) if self.end > self.start else 0

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
