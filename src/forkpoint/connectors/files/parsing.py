"""Parsing lines of text, JSON and CSV: by Arrow as a whole, or one by one."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson

from forkpoint.connectors.files.formats import BOM, CsvFormat
from forkpoint.types import TypeInformation


@dataclass(frozen=True)
class Stretch:
    """Whole lines of one file. ``line``: the first line's number."""

    path: Path
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
    """One record: parsed as ``raw``, unless there is a ``problem``."""

    line: int
    text: str
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
                yield Record(number, "", line.decode("utf-8"))
            except UnicodeDecodeError as e:
                yield Record(number, repr(line), problem=f"not UTF-8 ({e.reason} at byte {e.start})")


# Kinds that Arrow's parsers read from text exactly as RecordConverter does.
_PLAIN = {"boolean", "byte", "short", "int", "long", "float", "double", "string", "char"}
_TEMPORAL = {"date", "timestamp", "instant"}


class JsonParser(LineParser):
    def __init__(self, type: TypeInformation | None) -> None:
        self._type = type
        schema = _plain_schema(type)
        if schema is not None:
            # Times are read as text and cast, as Arrow's JSON parser does not support time zones.
            schema = pa.schema([(f.name, pa.string() if pa.types.is_temporal(f.type) else f.type) for f in schema])
            self._options = pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        self._fast = schema is not None
        exact = type is not None and "big_dec" in _kinds(type)
        self._decode = msgspec.json.Decoder(float_hook=Decimal if exact else None).decode

    def parse(self, group: list[Stretch]) -> pa.RecordBatch | None:
        if not self._fast or self._type is None:
            return None

        def read(data: pa.BufferReader, block_size: int) -> pa.Table:
            options = pajson.ReadOptions(use_threads=False, block_size=block_size)
            return pajson.read_json(data, read_options=options, parse_options=self._options)

        return _columns(group, self._type, read)

    def records(self, stretch: Stretch) -> Iterator[Record]:
        for number, line in _lines(stretch):
            if line.strip():
                try:
                    yield Record(number, _text(line), self._decode(line))
                except (msgspec.DecodeError, UnicodeDecodeError) as e:
                    yield Record(number, _text(line), problem=f"not JSON on one line ({e})")
                except RecursionError:
                    yield Record(number, _text(line), problem="JSON nested too deeply to be read")


class CsvParser(LineParser):
    """Without a type, records are dicts of str."""

    def __init__(self, options: CsvFormat, type: TypeInformation | None) -> None:
        self._options = options
        self._type = type
        self._schema = _plain_schema(type)
        whole = options.newlines_in_values
        self._hint = "" if whole else "; if values have line ends in quotes, give the source newlines_in_values=True"

    def parse(self, group: list[Stretch]) -> pa.RecordBatch | None:
        if self._schema is None or self._type is None:
            return None
        names = group[0].header or self._type.column_names
        if len(set(names)) < len(names) or not set(self._schema.names) <= set(names):
            return None
        parsing = pacsv.ParseOptions(
            delimiter=self._options.delimiter, newlines_in_values=self._options.newlines_in_values
        )
        conversion = pacsv.ConvertOptions(
            column_types=self._schema, include_columns=self._schema.names, null_values=[""], strings_can_be_null=False
        )

        def read(data: pa.BufferReader, block_size: int) -> pa.Table:
            options = pacsv.ReadOptions(use_threads=False, block_size=block_size, column_names=names)
            return pacsv.read_csv(data, options, parsing, conversion)

        return _columns(group, self._type, read, one_per_line=not self._options.newlines_in_values)

    def records(self, stretch: Stretch) -> Iterator[Record]:
        names = stretch.header or (self._type.column_names if self._type is not None else [])
        for number, text, row, problem in self._rows(stretch):
            if problem is None and len(row) != len(names):
                problem = f"{len(row)} values for the {len(names)} columns {', '.join(names)}{self._hint}"
            if problem is not None:
                yield Record(number, text, problem=problem)
            else:
                yield Record(number, text, dict(zip(names, row, strict=True)))

    def _rows(self, stretch: Stretch) -> Iterator[tuple[int, str, list[str], str | None]]:
        if self._options.newlines_in_values:
            yield from self._rows_over_lines(stretch)
            return
        for number, line in _lines(stretch):
            if not line.strip():
                continue
            try:
                text = line.decode("utf-8")
                row = next(csv.reader([text], delimiter=self._options.delimiter, strict=True))
                yield number, text, row, None
            except UnicodeDecodeError as e:
                yield number, _text(line), [], f"not UTF-8 ({e.reason} at byte {e.start})"
            except (csv.Error, StopIteration) as e:
                yield number, text, [], f"not CSV ({e}){self._hint}"

    def _rows_over_lines(self, stretch: Stretch) -> Iterator[tuple[int, str, list[str], str | None]]:
        try:
            text = stretch.terminated.decode("utf-8")
        except UnicodeDecodeError as e:
            yield stretch.line, "", [], f"not UTF-8 ({e.reason} at byte {e.start})"
            return
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=self._options.delimiter, strict=True)
        while True:
            number = stretch.line + reader.line_num
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error as e:  # where the next record starts is unknown
                yield number, "", [], f"not CSV from here to the file's end ({e})"
                return
            if row:
                yield number, self._options.delimiter.join(row), row, None


def _lines(stretch: Stretch) -> Iterator[tuple[int, bytes]]:
    for i, line in enumerate(stretch.terminated.split(b"\n")[:-1]):
        yield stretch.line + i, line.removesuffix(b"\r")


def _text(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace")


def _null_is_none(type: TypeInformation) -> list[bool]:
    """For each column, whether Arrow's null means None; if not, RecordConverter inserts a default or objects."""
    return [f.type.nullable and (not f.has_default or f.make_default() is None) for f in type.fields or ()]


def _kinds(type: TypeInformation) -> set[str]:
    """The kinds of a type and of all nested types."""
    fields = [f.type for f in type.fields or ()]
    return {type.kind}.union(*map(_kinds, [*type.children, *fields]))


def _plain_schema(type: TypeInformation | None) -> pa.Schema | None:
    """The columns of a record type, None if Arrow's parsers cannot read all of them."""
    if type is None or not type.fields or not all(_is_plain(f.type) for f in type.fields):
        return None
    return type.arrow_schema


def _is_plain(type: TypeInformation) -> bool:
    if type.kind == "optional":
        type = type.children[0]
    return type.kind in _PLAIN or type.kind in _TEMPORAL


def _columns(
    group: list[Stretch], type: TypeInformation, read: Callable[[Any, int], pa.Table], *, one_per_line: bool = True
) -> pa.RecordBatch | None:
    """What ``read`` returns for the lines, given a block size, as one batch of the type; None if it does not fit."""
    data, schema = b"".join([s.terminated for s in group]), type.arrow_schema
    try:
        table = read(pa.BufferReader(data), max(len(data) + 1, 1 << 16))
        columns = [table.column(f.name).combine_chunks().cast(f.type) for f in schema]
    except (pa.ArrowException, KeyError):
        return None
    if one_per_line and len(table) != data.count(b"\n"):  # blank lines, or records that span lines
        return None
    if any(c.null_count and not nullable for c, nullable in zip(columns, _null_is_none(type), strict=True)):
        return None
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    if not data.isascii():
        try:
            batch.validate(full=True)
        except pa.ArrowException:  # not UTF-8
            return None
    return batch
