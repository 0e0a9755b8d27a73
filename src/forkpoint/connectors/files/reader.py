"""Reads planned ranges of files in a task.

On the fast path, Arrow parses a whole range into columns; the slow path converts records one by one. The slow path
defines the result: the fast path must produce the same. Anything that Arrow cannot parse (a broken record, an
illegal null, a missing value with a default) takes the slow path, which finds the record and its problem.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from forkpoint.connectors.files.avro import AvroFormat, header_of, records_of
from forkpoint.connectors.files.formats import CsvFormat, FileFormat, JsonFormat, ParquetFormat, compression
from forkpoint.connectors.files.orc import OrcCursor, OrcFormat
from forkpoint.connectors.files.parsers import CsvParser, JsonParser, LineParser, Stretch, TextParser
from forkpoint.connectors.files.places import MUST_BE_COMPLETE, Location, SourceFile, source_files
from forkpoint.connectors.formats.reading import FormatReader, OnParseError, Unread
from forkpoint.connectors.formats.records import RecordConverter, shorten
from forkpoint.contract.format import BadMessage, Deserialized
from forkpoint.contract.source import Elements, SourceBatch, SplitRange
from forkpoint.errors import RecordParseError, StorageError
from forkpoint.types import TypeInformation

_log = logging.getLogger(__name__)
_GROUP_BYTES = 32 << 20
_PARQUET_BATCH = 64 * 1024
_REMEDY = "Correct the record or the type, or give the source on_parse_error='skip' to skip such records"


class FileReader(FormatReader[Any]):
    """Reads ranges of a file source. A Parquet file stays open between ranges, because pieces are consecutive."""

    def __init__(
        self, base: Location, file_format: FileFormat, type: TypeInformation | None, on_parse_error: OnParseError
    ) -> None:
        super().__init__(on_parse_error, _REMEDY, _log)
        self._files = source_files(base)
        self._format = file_format
        self._type = type
        self._converter = RecordConverter(
            type,
            from_text=isinstance(file_format, CsvFormat),
            as_encoded=isinstance(file_format, JsonFormat),
            columns=isinstance(file_format, ParquetFormat | OrcFormat),
        )
        self._open: _ParquetCursor | OrcCursor | None = None

    def read(self, range: SplitRange) -> Iterator[Elements | SourceBatch]:
        segments = range.info["files"]
        if isinstance(self._format, ParquetFormat | OrcFormat):
            return self._read_columns(segments, self._format)
        if isinstance(self._format, AvroFormat):
            return self._read_avro(segments, self._format)
        return self._read_lines(segments)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _read_lines(self, segments: list[dict[str, Any]]) -> Iterator[Elements | SourceBatch]:
        parser = self._parser()
        group: list[Stretch] = []
        for stretch in self._stretches(segments):
            if isinstance(stretch, _Damaged):
                bad = Deserialized([], [], [BadMessage(0, stretch.problem)])
                if group:
                    yield from self._parse(parser, group)
                yield from self._found(bad, 1, _always(Unread(stretch.path, {"file": stretch.path}, None)))
                group = []
                continue
            # Parse small files with the same columns together.
            if group and (stretch.header != group[0].header or sum(len(s.data) for s in group) >= _GROUP_BYTES):
                yield from self._parse(parser, group)
                group = []
            group.append(stretch)
        if group:
            yield from self._parse(parser, group)

    def _parser(self) -> LineParser:
        if isinstance(self._format, JsonFormat):
            return JsonParser(self._type)
        if isinstance(self._format, CsvFormat):
            return CsvParser(self._format, self._type)
        return TextParser()

    def _stretches(self, segments: list[dict[str, Any]]) -> Iterator[Stretch | _Damaged]:
        plain = [segment for segment in segments if compression(segment["path"]) is None]
        contents = self._files.contents(plain)
        for segment in segments:
            file = self._files.file(segment["path"], segment["size"], segment.get("tag"))
            codec = compression(file.name)
            try:
                data = next(contents) if codec is None else _decompress(file, codec, segment["size"])
            except RecordParseError as error:
                if self._on_parse_error == "fail":
                    raise
                yield _Damaged(str(file), str(error).removeprefix(f"{file}: "))
                continue
            yield self._stretch(file, segment, data)

    def _stretch(self, file: SourceFile, segment: dict[str, Any], data: bytes) -> Stretch:
        header, line = segment.get("header"), segment["line"]
        if isinstance(self._format, CsvFormat) and self._format.header and header is None:  # the segment is a whole file
            start = self._format.after_header(file, data, complete=True)
            header, line, data = start.header, start.line, data[start.at :]
        return Stretch(file, data, line, header)

    def _parse(self, parser: LineParser, group: list[Stretch]) -> Iterator[Elements | SourceBatch]:
        fast = parser.parse(group)
        if fast is not None:
            return self._found(Deserialized(fast), len(fast), _none_is_bad)
        records = [(stretch.path, record) for stretch in group for record in parser.records(stretch)]
        bad = [BadMessage(i, record.problem) for i, (_, record) in enumerate(records) if record.problem is not None]
        indices = [i for i, (_, record) in enumerate(records) if record.problem is None]
        found = self._converted([records[i][1].raw for i in indices], indices, bad)

        def unread(index: int) -> Unread:
            path, record = records[index]
            return self._unread(path, "line", record.line, record.data.decode("utf-8", "backslashreplace"), record.data)

        return self._found(found, len(records), unread)

    def _converted(self, raws: list[Any], indices: list[int], bad: list[BadMessage]) -> Deserialized:
        """The elements of raw records with these indices. ``bad``: the records that could not be parsed."""
        out, problems = self._converter.convert(raws)
        unconverted = {i for i, _ in problems}
        converted = [index for i, index in enumerate(indices) if i not in unconverted]
        return Deserialized(out, converted, [*bad, *(BadMessage(indices[i], problem) for i, problem in problems)])

    def _read_avro(self, segments: list[dict[str, Any]], of: AvroFormat) -> Iterator[Elements | SourceBatch]:
        for segment, data in zip(segments, self._files.contents(segments), strict=True):
            file = self._files.file(segment["path"], segment["size"], segment.get("tag"))
            records: list[Any] = []
            try:
                with file.opened() as read:
                    header, _ = header_of(read, segment["size"], file)
                records, problem = records_of(header, data, of.schema)
            except RecordParseError as error:
                problem = str(error).removeprefix(f"{file}: ")
            bad = [] if problem is None else [BadMessage(len(records), problem)]
            found = self._converted(records, list(range(len(records))), bad)
            after = segment["line"] + len(records) - 1
            location = {"file": str(file), "record": str(after + 1)}
            rest = Unread(f"{file}: cannot read the data after record {after}", location, None)
            yield from self._found(found, len(records) + len(bad), _always(rest))

    def _read_columns(self, segments: list[dict[str, Any]], of: ParquetFormat | OrcFormat) -> Iterator[Elements | SourceBatch]:
        for segment in segments:
            file = self._files.file(segment["path"], segment["size"], segment.get("tag"))
            path, size = str(file), segment["size"]
            if self._open is None or self._open.path != path or self._open.size != size:
                self.close()
                if isinstance(of, OrcFormat):
                    self._open = OrcCursor(file, size, self._type)
                else:
                    self._open = _ParquetCursor(file, size, self._type, of.case_sensitive)
            row = segment["at"]
            for batch in self._open.read(row, segment["end"]):
                yield from self._typed(path, row, batch)
                row += batch.num_rows

    def _typed(self, path: str, first_row: int, batch: pa.RecordBatch) -> Iterator[Elements | SourceBatch]:
        fast = self._converter.cast(batch)
        if fast is not None:
            return self._found(Deserialized(fast), len(fast), _none_is_bad)
        try:
            raws = batch.to_pylist()
        except ValueError as e:  # nanoseconds, without pandas
            last = first_row + batch.num_rows - 1
            raise RecordParseError(f"{path}, rows {first_row} to {last}: {e}; write times in microseconds") from None
        if self._type is None:
            return self._found(Deserialized(raws), len(raws), _none_is_bad)
        values = raws if self._type.fields is not None else [raw.get("value") for raw in raws]

        def unread(index: int) -> Unread:
            return self._unread(path, "row", first_row + index, repr(raws[index]), repr(raws[index]).encode())

        return self._found(self._converted(values, list(range(len(values))), []), len(values), unread)

    def _unread(self, path: object, unit: str, number: int, text: str, data: bytes) -> Unread:
        what = "" if self._type is None else f" as {', '.join(self._type.column_names)}"
        return Unread(f"{path}, {unit} {number}: cannot read {shorten(text)}{what}", {"file": str(path), unit: str(number)}, data)


def _always(unread: Unread) -> Callable[[int], Unread]:
    return lambda index: unread


@dataclass(frozen=True)
class _Damaged:
    """A compressed file that cannot be read. The whole file counts as one bad record."""

    path: str
    problem: str


def _none_is_bad(index: int) -> Unread:
    raise AssertionError(f"record {index} was read")


class _ParquetCursor:
    """An open Parquet file, read forwards: consecutive ranges continue one iteration, which decodes a row group only once."""

    def __init__(self, file: SourceFile, size: int, type: TypeInformation | None, case_sensitive: bool) -> None:
        self.path = str(file)
        self.size = size
        file.check(size, exact=True)
        with file.for_parquet(size) as opened:
            self._file = pq.ParquetFile(opened)
        declared = {} if type is None else {name if case_sensitive else name.lower(): name for name in type.column_names}
        renamed = {name: declared.get(name if case_sensitive else name.lower()) for name in self._file.schema_arrow.names}
        self._names = {name: to for name, to in renamed.items() if to is not None}
        self._columns = None if type is None else list(self._names)
        metadata = self._file.metadata
        rows = (metadata.row_group(g).num_rows for g in range(metadata.num_row_groups))
        self._group_starts = list(accumulate(rows, initial=0))
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._row = 0
        self._rest: pa.RecordBatch | None = None

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        group = max(g for g, first in enumerate(self._group_starts) if first <= start)
        if self._batches is None or start < self._row or self._group_starts[group] > self._row:
            groups = list(range(group, len(self._group_starts) - 1))
            self._batches = self._file.iter_batches(_PARQUET_BATCH, row_groups=groups, columns=self._columns, use_threads=False)
            self._row, self._rest = self._group_starts[group], None
        while self._row < end:
            batch = self._rest if self._rest is not None else self._next()
            skip = min(max(start - self._row, 0), batch.num_rows)
            take = min(end - self._row, batch.num_rows) - skip
            self._rest = batch.slice(skip + take) if skip + take < batch.num_rows else None
            self._row += skip + take
            if take:
                yield batch.slice(skip, take)

    def _next(self) -> pa.RecordBatch:
        assert self._batches is not None
        try:
            batch = next(self._batches)
            return batch.rename_columns([self._names.get(name, name) for name in batch.schema.names])
        except StopIteration:
            raise StorageError(f"{self.path}: has {self._row} rows, fewer than its footer says; write the file again") from None
        except pa.ArrowException as e:
            raise RecordParseError(f"{self.path}, after row {self._row}: damaged Parquet data ({e})") from None

    def close(self) -> None:
        self._file.close()


def _decompress(file: SourceFile, codec: str, size: int) -> bytes:
    try:
        file.check(size, exact=False)
        with file.for_stream(size) as source, pa.input_stream(source, compression=codec) as stream:
            data: bytes = stream.read()
            return data
    except OSError as e:
        raise RecordParseError(
            f"{file}: cannot be decompressed as {codec} ({e}). Remove it or write it again; {MUST_BE_COMPLETE}"
        ) from None
