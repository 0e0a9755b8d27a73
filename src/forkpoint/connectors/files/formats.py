"""The formats of a file source, as the driver sees them: where a file's records start, and how to divide it."""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from forkpoint.connectors.files.index import FileIndex, LineIndex, QuotedLineIndex, RowIndex, WholeIndex
from forkpoint.connectors.files.places import HEAD, HEAD_WITH_CR, MUST_BE_COMPLETE, SourceFile
from forkpoint.connectors.formats.csv import what_csv_says
from forkpoint.connectors.formats.csv_layout import CsvLayout
from forkpoint.errors import RecordParseError

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


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

    With ``newlines_in_values`` a file is read as a whole, as line ends no longer delimit records. A ``layout`` says the same as
    a schema of Flink's does.
    """

    delimiter: str = ","
    header: bool = True
    newlines_in_values: bool = False
    layout: CsvLayout | None = None

    @staticmethod
    def of(layout: CsvLayout) -> CsvFormat:
        """The format of a schema of Flink's."""
        quote = layout.dialect.quote_character
        return CsvFormat(
            layout.dialect.field_delimiter, layout.header or layout.skip_first_row, quote is not None, layout
        )

    @property
    def quote(self) -> str | None:
        """What may enclose line ends, in files that can be divided though."""
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
        """Where the records of a file start that begins with this. Blank lines before its header are skipped.

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
