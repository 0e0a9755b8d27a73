"""Parses lines of text, JSON and CSV, in bulk by Arrow or one by one."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from forkpoint.connectors.files.formats import CsvFormat
from forkpoint.connectors.files.places import SourceFile
from forkpoint.connectors.formats.columns import text_schema
from forkpoint.connectors.formats.csv import BOM, named_values, read_csv, split_record
from forkpoint.connectors.formats.csv_layout import RecordLines
from forkpoint.connectors.formats.json import JsonText
from forkpoint.connectors.formats.records import Unreadable
from forkpoint.types import TypeInformation


@dataclass(frozen=True)
class Stretch:
    """Whole lines of one file. ``line``: the first line's number."""

    path: Path | SourceFile
    data: bytes
    line: int
    header: list[str] | None = None

    @property
    def terminated(self) -> bytes:
        """The bytes without a byte order mark, ending with a line end."""
        data = self.data.removeprefix(BOM) if self.line == 1 else self.data
        return data if data.endswith(b"\n") or not data else data + b"\n"


@dataclass(frozen=True)
class Record:
    """One record, parsed as ``raw`` unless there is a ``problem``."""

    line: int
    data: bytes
    raw: Any = None
    problem: str | None = None


class LineParser(ABC):
    @abstractmethod
    def parse(self, group: list[Stretch]) -> pa.RecordBatch | None:
        """Parse the whole group at once; None if the result could differ from that of ``records``."""

    @abstractmethod
    def records(self, stretch: Stretch) -> Iterator[Record]: ...


class TextParser(LineParser):
    def parse(self, group: list[Stretch]) -> pa.RecordBatch | None:
        try:
            text = b"".join([s.terminated for s in group]).decode("utf-8")
        except UnicodeDecodeError:
            return None
        lines = text.split("\n")[:-1]
        if "\r" in text:
            lines = [line.removesuffix("\r") for line in lines]
        return pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], names=["value"])

    def records(self, stretch: Stretch) -> Iterator[Record]:
        for number, line in _lines(stretch):
            try:
                yield Record(number, line, line.decode("utf-8"))
            except UnicodeDecodeError as e:
                yield Record(number, line, problem=f"not UTF-8 ({e.reason} at byte {e.start})")


class JsonParser(LineParser):
    def __init__(self, type: TypeInformation | None) -> None:
        self._json = JsonText(type, only_fields=True)

    def parse(self, group: list[Stretch]) -> pa.RecordBatch | None:
        data = b"".join([s.terminated for s in group])
        lines = data.count(b"\n")
        # Each line must be one object: not blank, not part of a multi-line object.
        boundary = b"}\r\n{" if b"\r\n" in data else b"}\n{"
        if data[:1] != b"{" or data[-5:].rstrip()[-1:] != b"}" or data.count(boundary) != lines - 1:
            return None
        return self._json.columns(data, lines)

    def records(self, stretch: Stretch) -> Iterator[Record]:
        for number, line in _lines(stretch):
            if line.strip():
                try:
                    yield Record(number, line, self._json.decode(line))
                except Unreadable as e:
                    yield Record(number, line, problem=f"not JSON on one line ({e})")


class CsvParser(LineParser):
    """Without a type, records are dicts of str."""

    def __init__(self, options: CsvFormat, type: TypeInformation | None) -> None:
        layout = options.layout
        self._options = options
        self._layout = layout
        self._type = type
        self._schema = text_schema(type) if layout is None or layout.is_plain else None
        self._dialect = {"delimiter": options.delimiter} if layout is None else layout.dialect.options
        self._blank = bytes(set(b" \t\r\v\f") - set(options.delimiter.encode()))
        may_span = not options.newlines_in_values and layout is None
        self._hint = "; if values have line ends in quotes, give the source newlines_in_values=True" if may_span else ""

    def parse(self, group: list[Stretch]) -> pa.RecordBatch | None:
        if self._schema is None or self._type is None:
            return None
        names = group[0].header or self._type.column_names
        if len(set(names)) < len(names) or not set(self._schema.names) <= set(names):
            return None
        data = b"".join([s.terminated for s in group])
        rows = None if self._options.newlines_in_values else data.count(b"\n")
        found = read_csv(data, rows, names, self._options.delimiter, self._type, self._schema)
        if self._layout is not None and found is not None and any(column.null_count for column in found.columns):
            return None  # in a layout, an empty value is not None
        return found

    def records(self, stretch: Stretch) -> Iterator[Record]:
        names = stretch.header or (self._type.column_names if self._type is not None else [])
        # Only fields must be unique: other columns may have any names.
        fields = names if self._type is None else [name for name in names if name in self._type.column_names]
        duplicates = sorted({name for name in fields if fields.count(name) > 1})
        bad_header = f"the header names {', '.join(map(repr, duplicates))} more than once" if duplicates else None
        for number, data, row, problem in self._rows(stretch):
            problem = problem or bad_header
            if problem is not None:
                yield Record(number, data, problem=problem)
                continue
            try:
                values = named_values(row, names) if self._layout is None else self._layout.values(row)
                yield Record(number, data, values)
            except Unreadable as e:
                yield Record(number, data, problem=f"{e}{self._hint}")

    def _rows(self, stretch: Stretch) -> Iterator[tuple[int, bytes, list[str], str | None]]:
        if self._options.newlines_in_values:
            yield from self._rows_over_lines(stretch)
            return
        comment = b"#" if self._layout is not None and self._layout.comments else None
        for number, line in _lines(stretch):
            if not line.strip(self._blank) or (comment and line.startswith(comment)):
                continue
            try:
                yield number, line, split_record(line, **self._dialect), None
            except Unreadable as e:
                yield number, line, [], f"{e}{self._hint if str(e).startswith('not CSV') else ''}"

    def _rows_over_lines(self, stretch: Stretch) -> Iterator[tuple[int, bytes, list[str], str | None]]:
        data = stretch.terminated
        try:
            lines = io.StringIO(data.decode("utf-8"), newline="")
        except UnicodeDecodeError as e:
            yield stretch.line, data, [], f"not UTF-8 ({e.reason} at byte {e.start})"
            return
        records = RecordLines(lines, self._layout is not None and self._layout.comments)
        reader = csv.reader(records, strict=True, **self._dialect)
        while True:
            records.of_record.clear()
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as e:  # the start of the next record is unknown
                number = stretch.line + records.taken - len(records.of_record)
                rest = "".join([*records.of_record, *lines]).encode()
                yield number, rest, [], f"not CSV from here to the file's end ({e})"
                return
            if row:
                number = stretch.line + records.taken - len(records.of_record)
                data = "".join(records.of_record).removesuffix("\n").removesuffix("\r").encode()
                yield number, data, row, None


def _lines(stretch: Stretch) -> Iterator[tuple[int, bytes]]:
    for i, line in enumerate(stretch.terminated.split(b"\n")[:-1]):
        yield stretch.line + i, line.removesuffix(b"\r")
