"""CSV files with a schema's columns in order, read and written like Flink's CsvReaderFormat and CsvBulkWriters."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import cached_property
from typing import Any

import pyarrow as pa

from forkpoint.connectors.formats.batches import Declared
from forkpoint.connectors.formats.csv import BOM, CsvDialect, java_float, named_values, what_csv_says
from forkpoint.connectors.formats.records import Unreadable, shorten
from forkpoint.errors import RecordParseError, TypeNotSupported
from forkpoint.types import TypeInformation
from forkpoint.types.kinds.containers import SequenceType, optional
from forkpoint.types.kinds.records import row_type


class RecordLines:
    """Feeds lines to a csv.reader and keeps those of the current record. Leaves out comments between records."""

    def __init__(self, lines: Iterable[str], comments: bool) -> None:
        self._lines = iter(lines)
        self._comments = comments
        self.taken = 0
        self.characters = 0
        self.of_record: list[str] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while True:
            line = next(self._lines)
            self.taken += 1
            self.characters += len(line)
            if self.of_record or not (self._comments and line.startswith("#")):
                self.of_record.append(line)
                return line


@dataclass(frozen=True)
class CsvColumn:
    """A column, whose values may be None. ``separator``: between an array's elements; None for the layout's. ``digits``: a
    decimal's precision and scale."""

    name: str
    type: TypeInformation
    separator: str | None = None
    digits: tuple[int, int] | None = None

    @property
    def element(self) -> TypeInformation | None:
        """The type of an array's elements."""
        return self.type.element if isinstance(self.type, SequenceType) else None


@dataclass(frozen=True)
class CsvLayout(Declared):
    """The columns of CSV files by position, and the notation of values.

    A header has to match the columns' names only with ``strict_header``.
    """

    columns: tuple[CsvColumn, ...]
    dialect: CsvDialect = field(default_factory=CsvDialect)
    header: bool = False
    strict_header: bool = False
    skip_first_row: bool = False
    comments: bool = False
    line_end: str = "\n"

    @cached_property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @cached_property
    def type(self) -> TypeInformation:
        """The records' type: a row of the columns."""
        return row_type(self.names, [optional(column.type) for column in self.columns])

    @property
    def is_divisible(self) -> bool:
        """Whether counting quotes is enough to find the line ends between records."""
        quote = self.dialect.quote_character
        return self.dialect.escape_character is None and (quote is None or (quote.isascii() and not self.comments))

    @property
    def is_plain(self) -> bool:
        """Whether Arrow reads values in the same way as `values`."""
        dialect = self.dialect
        special = dialect.escape_character or dialect.null_literal is not None or self.comments
        nested = any(column.element is not None or column.digits or column.type.kind == "boolean" for column in self.columns)
        return dialect.quote_character == '"' and dialect.field_delimiter.isascii() and not (special or nested)

    # -- reading

    def after_head(self, data: bytes, file: object, *, complete: bool) -> tuple[int, int]:
        """The offset of the first record in a file that begins with ``data``, and the number of lines before it.

        ``complete``: ``data`` is the whole file. Raises RecordParseError if the header does not match the columns, EOFError if
        ``data`` ends within the header.
        """
        mark = len(BOM) if data.startswith(BOM) else 0
        text = data[mark:].decode("utf-8", "surrogateescape")
        lines = RecordLines(io.StringIO(text, newline=""), self.comments)
        reader = csv.reader(lines, strict=True, **self.dialect.options)
        for what in ("header",) * self.header + ("first row",) * self.skip_first_row:
            found: list[str] | None = []
            try:
                while found == []:  # blank lines
                    lines.of_record.clear()
                    found = next(reader, None)
            except csv.Error as error:
                if not complete:
                    raise EOFError from None
                raise RecordParseError(f"{file}: its {what} is not a line of CSV ({what_csv_says(error)})") from None
            if not complete and not (found and lines.of_record[-1].endswith("\n")):
                raise EOFError
            if found is not None and what == "header" and self.strict_header and found != self.names:
                raise RecordParseError(
                    f"{file}: the header has {', '.join(found)} where the schema has {', '.join(self.names)}; correct either, or "
                    "drop set_strict_headers()"
                )
        before = text[: lines.characters].encode("utf-8", "surrogateescape")
        return mark + len(before), lines.taken

    def values(self, texts: list[str]) -> dict[str, Any]:
        """A record's values by name, as input for a `RecordConverter` of text. Raises Unreadable."""
        named = named_values(texts, self.names)
        return {column.name: self._value(column, named[column.name]) for column in self.columns}

    def _value(self, column: CsvColumn, text: str) -> Any:
        if text == self.dialect.null_literal:
            return None
        if column.element is None:
            return _parse(column, column.type, text)
        separator = column.separator or self.dialect.array_element_delimiter
        parts = (text.split(separator) if separator else [text]) if text else []
        null = self.dialect.null_literal
        return [None if part == null else _parse(column, column.element, part) for part in parts]

    # -- writing

    @property
    def head(self) -> bytes:
        """The header line with the columns' names; empty without a header."""
        return self._line(list(map(self.dialect.quoted, self.names))).encode() if self.header else b""

    def lines(self, table: pa.RecordBatch) -> bytes:
        """The lines of a table's records. Raises TypeNotSupported for a value that would not read back unchanged."""
        types = [of.type for of in self.type.fields or ()]
        try:
            columns = [
                [self._text(column, value) for value in type.from_arrow(values)]
                for column, type, values in zip(self.columns, types, table.columns, strict=True)
            ]
        except Unreadable as error:
            raise TypeNotSupported(f"a record cannot be written as CSV: {error}") from None
        return "".join(map(self._line, map(list, zip(*columns, strict=True)))).encode("utf-8", "surrogatepass")

    def _line(self, texts: list[str]) -> str:
        return self.dialect.record(texts) + self.line_end

    def _text(self, column: CsvColumn, value: Any) -> str:
        if value is None:
            return self.dialect.null_literal or ""
        if column.element is None:
            text = self._scalar(column, column.type, value)
            return self.dialect.quoted(text) if isinstance(value, str) else text
        separator = column.separator or self.dialect.array_element_delimiter
        null = self.dialect.null_literal or ""
        return self.dialect.quoted(
            separator.join(null if each is None else self._scalar(column, column.element, each) for each in value)
        )

    def _scalar(self, column: CsvColumn, type: TypeInformation, value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            return java_float(value, single=type.kind == "float")
        if isinstance(value, Decimal) and column.digits is not None:
            return str(rounded(column.name, column.digits, value))
        return str(value)


def _parse(column: CsvColumn, type: TypeInformation, text: str) -> Any:
    """The text of a non-null value, as input for a `RecordConverter`."""
    if type.kind in ("string", "char"):
        return text
    text = text.strip()
    if not text:
        raise Unreadable(f"{column.name}: empty, which is not {type!r}; set_null_value('') makes it None")
    if type.kind == "boolean" and text.lower() not in ("true", "false"):
        raise Unreadable(f"{column.name}: expected true or false, got {shorten(text, 80)!r}")
    if column.digits is None:
        return text
    try:
        return rounded(column.name, column.digits, Decimal(text))
    except (InvalidOperation, TypeNotSupported):
        raise Unreadable(f"{column.name}: expected DECIMAL{column.digits}, got {shorten(text, 80)!r}") from None


def rounded(name: str, digits: tuple[int, int], value: Decimal) -> Decimal:
    """A decimal rounded to a precision and scale, like Flink. Raises TypeNotSupported if its integer part does not fit."""
    precision, scale = digits
    try:
        return value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, Context(prec=precision))
    except InvalidOperation:
        raise TypeNotSupported(f"{name}: {value} does not fit DECIMAL{digits}") from None
