"""The formats of a file source, as the driver sees them: where a file's records start, and how to divide it."""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from forkpoint.connectors.files.index import FileIndex, LineIndex, RowIndex, WholeIndex
from forkpoint.connectors.files.places import HEAD, HEAD_WITH_CR, MUST_BE_COMPLETE, SourceFile
from forkpoint.connectors.formats.csv import what_csv_says
from forkpoint.errors import RecordParseError

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class FileStart:
    """Where a file's first record is: its place, its line or row number, and the column names if the file has them."""

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
    """Records are lines of UTF-8. A compressed file (.gz, .bz2, .zst, .lz4) is read as a whole."""

    def start(self, file: SourceFile, size: int) -> FileStart:
        return FileStart(0)

    def index(self, file: SourceFile, at: int, size: int) -> FileIndex:
        return WholeIndex(at, size) if self.whole(file) else LineIndex(file, at, size)

    def whole(self, file: SourceFile) -> bool:
        """Whether a file is read as a whole."""
        return file.is_small or compression(file.name) is not None


@dataclass(frozen=True)
class TextFormat(LineFormat):
    """Each line, without its line end, is an element."""


@dataclass(frozen=True)
class JsonFormat(LineFormat):
    """JSON lines: one value on each line; skips blank lines."""


@dataclass(frozen=True)
class CsvFormat(LineFormat):
    """CSV with column names in the first line, or (``header=False``) with columns in the type's order.

    With ``newlines_in_values`` a file is read as a whole, as line ends no longer delimit records.
    """

    delimiter: str = ","
    header: bool = True
    newlines_in_values: bool = False

    def whole(self, file: SourceFile) -> bool:
        return self.newlines_in_values or super().whole(file)

    def start(self, file: SourceFile, size: int) -> FileStart:
        if not self.header or self.whole(file):
            return FileStart(0)
        return self.after_header(file, file.head(size))

    def after_header(self, file: SourceFile, data: bytes) -> FileStart:
        """Where the records of a file start that begins with this. Blank lines before its header are skipped."""
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
    """Rows of Parquet files. A file can be divided at any row."""

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
