"""The formats of a file source on the driver: they find the start of a file's records, and divide it, without parsing records.

An index covers a file from some offset on: a byte offset in files of lines, a row number in Parquet.
"""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from forkpoint.connectors.files.places import HEAD, HEAD_WITH_CR, MUST_BE_COMPLETE, SourceFile
from forkpoint.connectors.formats.csv import what_csv_says
from forkpoint.connectors.formats.csv_layout import CsvLayout
from forkpoint.errors import RecordParseError

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_BLOCK = 1 << 16
_READ = 64 * _BLOCK
_NEWLINE = 10


@dataclass(frozen=True)
class FileStart:
    """A file's first record: its offset, its line or row number, and the column names if the file has them."""

    at: int
    line: int = 1
    header: list[str] | None = None


class FileFormat(ABC):
    unit: Literal["line", "row"] = "line"

    @abstractmethod
    def start(self, file: SourceFile, size: int) -> FileStart: ...

    @abstractmethod
    def index(self, file: SourceFile, at: int, size: int) -> FileIndex: ...


class LineFormat(FileFormat):
    """Records are lines of UTF-8. One task reads a whole compressed file (.gz, .bz2, .zst, .lz4)."""

    def start(self, file: SourceFile, size: int) -> FileStart:
        return FileStart(0)

    def index(self, file: SourceFile, at: int, size: int) -> FileIndex:
        return WholeIndex(at, size) if self.whole(file) else LineIndex(file, at, size)

    def whole(self, file: SourceFile) -> bool:
        """Whether one task reads the whole file."""
        return file.is_small or compression(file.name) is not None


@dataclass(frozen=True)
class TextFormat(LineFormat):
    """Each line, without its line end, is an element."""


@dataclass(frozen=True)
class JsonFormat(LineFormat):
    """JSON lines: one value per line; skips blank lines."""


@dataclass(frozen=True)
class CsvFormat(LineFormat):
    """CSV with column names in the first line, or (``header=False``) with columns in the type's order.

    With ``newlines_in_values``, one task reads a whole file, because line ends no longer delimit records. ``layout`` represents
    a Flink schema.
    """

    delimiter: str = ","
    header: bool = True
    newlines_in_values: bool = False
    layout: CsvLayout | None = None

    @staticmethod
    def of(layout: CsvLayout) -> CsvFormat:
        """The format of a Flink schema."""
        quote = layout.dialect.quote_character
        return CsvFormat(layout.dialect.field_delimiter, layout.header or layout.skip_first_row, quote is not None, layout)

    @property
    def quote(self) -> str | None:
        """The character that may enclose line ends, even in files that can be divided."""
        return None if self.layout is None else self.layout.dialect.quote_character

    def whole(self, file: SourceFile) -> bool:
        divisible = not self.newlines_in_values if self.layout is None else self.layout.is_divisible
        return not divisible or super().whole(file)

    def index(self, file: SourceFile, at: int, size: int) -> FileIndex:
        if self.quote is None or self.whole(file):
            return super().index(file, at, size)
        return QuotedLineIndex(file, at, size, self.quote)

    def start(self, file: SourceFile, size: int) -> FileStart:
        if not self.header or self.whole(file):
            return FileStart(0)
        data = file.head(size)
        while True:
            try:
                return self.after_header(file, data, complete=len(data) >= size)
            except EOFError:
                with file.opened() as read:
                    data = read(0, min(size, 2 * len(data)))

    def after_header(self, file: SourceFile, data: bytes, *, complete: bool) -> FileStart:
        """The start of the records in a file that begins with ``data``. Skips blank lines before the header.

        Raises RecordParseError for a bad header, EOFError if ``data`` ends before the header of a layout does.
        """
        if self.layout is not None:
            at, lines = self.layout.after_head(data, file, complete=complete)
            return FileStart(at, lines + 1, self.layout.names)
        head = (HEAD_WITH_CR if self.newlines_in_values else HEAD).match(data)
        assert head is not None  # both match anything
        text = head["line"].decode("utf-8", "replace").rstrip("\r\n")
        try:
            header = next(csv.reader([text], delimiter=self.delimiter), [])
        except csv.Error as e:
            raise RecordParseError(
                f"{file}: its column names are not a line of CSV ({what_csv_says(e)}). Lines end with LF or CRLF; give the "
                "source newlines_in_values=True if they end with CR"
            ) from None
        lines = head["blank"].count(b"\n") or head["blank"].count(b"\r")
        return FileStart(head.end(), lines + 2, header)


@dataclass(frozen=True)
class ParquetFormat(FileFormat):
    """Rows of Parquet files. A file can be divided at any row. ``case_sensitive``: whether its columns must be named exactly."""

    case_sensitive: bool = True

    unit = "row"

    def start(self, file: SourceFile, size: int) -> FileStart:
        return FileStart(0, 0)

    def index(self, file: SourceFile, at: int, size: int) -> FileIndex:
        if size == 0:
            return RowIndex(0, 0)
        try:
            with file.for_parquet(size) as opened:
                return RowIndex(at, pq.read_metadata(opened).num_rows)
        except pa.ArrowInvalid as e:
            raise RecordParseError(
                f"{file}: not a readable Parquet file ({e}). Remove it or write it again; {MUST_BE_COMPLETE}"
            ) from None


def compression(path: str) -> str | None:
    return next((codec for suffix, codec in COMPRESSIONS.items() if path.endswith(suffix)), None)


class FileIndex(Protocol):
    @property
    def end(self) -> int:
        """The offset after the last record."""

    def take(self, max_rows: int) -> tuple[int, int]:
        """The offset after at most ``max_rows`` records, and their number (0 at the end of the file)."""

    def offset(self, row: int) -> int:
        """The offset of record ``row``, counted from the index's start; at most the offset that ``take`` returned."""


class LineIndex:
    """Counts line ends in blocks of 64 KiB; finding an offset reads one block again.

    Covers bytes up to ``size``, the file's size when it was listed, without later additions.
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

    def offset(self, row: int) -> int:
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
        """A mask of the bytes in a block that end a record."""
        hits: npt.NDArray[np.bool_] = data == _NEWLINE
        return hits


class QuotedLineIndex(LineIndex):
    """Lines whose ends may be in quotes: an odd number of quotes precedes such ends.

    A literal quote in an unquoted value breaks the index: then it cuts records, and reading fails.
    """

    def __init__(self, file: SourceFile, start: int, size: int, quote: str) -> None:
        super().__init__(file, start, size)
        self._quote = ord(quote)
        self._inside = [0]  # 1 for each block that starts inside quotes

    def _hits(self, data: npt.NDArray[np.uint8], block: int) -> npt.NDArray[np.bool_]:
        quotes = data == self._quote
        inside = (np.cumsum(quotes, dtype=np.uint8) + self._inside[block]) & 1
        if block + 1 == len(self._inside):
            self._inside.append(int(inside[-1]))
        hits: npt.NDArray[np.bool_] = super()._hits(data, block) & (inside == 0)
        return hits


def estimated_rows(size: int) -> int:
    """An estimate of the number of records in a file of this size."""
    return max(1, size // 64)


@dataclass(frozen=True)
class WholeIndex:
    """A file that cannot be divided: compressed, or with line ends in values. Its number of records is an estimate."""

    start: int
    end: int

    def take(self, max_rows: int) -> tuple[int, int]:
        return self.end, estimated_rows(self.end) if self.end > self.start else 0

    def offset(self, row: int) -> int:
        return self.end if row else self.start


@dataclass(frozen=True)
class RowIndex:
    """Rows by number, from Parquet's footer."""

    start: int
    end: int

    def take(self, max_rows: int) -> tuple[int, int]:
        count = min(max_rows, self.end - self.start)
        return self.start + count, count

    def offset(self, row: int) -> int:
        return self.start + row
