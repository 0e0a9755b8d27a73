"""Tables of files: rows, or lines that are messages of a format with changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypedDict

import pyarrow as pa

from forkpoint.connectors.files.orc import check_orc
from forkpoint.connectors.files.replacing import ReplacingFileSink
from forkpoint.connectors.files.sink import ORC_COMPRESSIONS, FileSink
from forkpoint.connectors.files.source import FileSource
from forkpoint.contract.format import DeserializationSchema
from forkpoint.contract.sink import Sink
from forkpoint.contract.source import (
    JSON,
    Elements,
    ReaderContext,
    Source,
    SourceBatch,
    SourceReader,
    SplitEnumerator,
    SplitRange,
)
from forkpoint.errors import ConfigError, RecordParseError
from forkpoint.relational.changes import row_type
from forkpoint.storage.places import plain_place
from forkpoint.table.connectors import changelogs
from forkpoint.table.connectors.formats import deserialization, timestamp_format
from forkpoint.table.connectors.options import TableOptions
from forkpoint.types import TypeInformation
from forkpoint.types.kinds.records import RecordType
from forkpoint.wording import parse_duration_ms

_FILES = "an epoch's files are final, and published with it; 'execution.checkpointing.interval' says how often"
_UNNEEDED = {
    **dict.fromkeys(
        ("sink.rolling-policy.file-size", "sink.rolling-policy.rollover-interval", "sink.rolling-policy.check-interval"), _FILES
    ),
    "sink.parallelism": "SET 'parallelism.default' sets the job's",
}


def file_source(options: TableOptions) -> Source[Any]:
    options.ignore(*_UNNEEDED)
    path, type = plain_place(options.required("path")), row_type(options.table.schema)
    interval = options.get("source.monitor-interval")
    if interval is not None:
        parse_duration_ms("source.monitor-interval", interval)
    bounded = interval is None
    timestamp_format(options)  # of what is written; both are read
    match _file_format(options, *changelogs.FORMATS):
        case "csv":
            return FileSource.csv(path, type, bounded=bounded, **_csv_form(options))
        case "parquet":
            return FileSource.parquet(path, type, bounded=bounded)
        case "orc":
            _check_orc(options, type)
            return FileSource.orc(path, type, bounded=bounded)
        case "json":
            return FileSource.json(path, type, bounded=bounded)
    lines, schema = FileSource.text(path, bounded=bounded), deserialization(options, options.table.schema)
    return DecodedLines(lines, schema, path)


def file_sink(options: TableOptions) -> Sink[Any]:
    sink = _added_files(options)
    try:
        return ReplacingFileSink.of(sink, options.partition) if options.overwrites else sink
    except ConfigError as error:
        raise options.error("path", f"INSERT OVERWRITE: {error}") from error


def _added_files(options: TableOptions) -> FileSink:
    options.unneeded(_UNNEEDED)
    path, type = plain_place(options.required("path")), row_type(options.table.schema)
    bucket, prefix = options.table.partitions or None, f"part{options.nth}"
    match _file_format(options):
        case "csv":
            return FileSink.csv(path, type, bucket=bucket, prefix=prefix, **_csv_form(options))
        case "parquet":
            return FileSink.parquet(path, type, bucket=bucket, prefix=prefix)
        case "orc":
            _check_orc(options, type)
            compression = options.choice("orc.compress", tuple(map(str.upper, ORC_COMPRESSIONS)), "ZSTD")
            return FileSink.orc(path, type, bucket=bucket, prefix=prefix, compression=compression)
    return FileSink.json(path, type, bucket=bucket, prefix=prefix, timestamp_format=timestamp_format(options))


def _check_orc(options: TableOptions, type: RecordType) -> None:
    try:
        check_orc(f"table {options.table.name!r}", type.arrow_schema)
    except ConfigError as error:
        raise options.error("format", str(error)) from error


class _CsvForm(TypedDict):
    delimiter: str
    header: bool


def _csv_form(options: TableOptions) -> _CsvForm:
    """As Flink's files: without a line of names."""
    return {"delimiter": options.get("csv.field-delimiter", ",") or ",", "header": options.flag("csv.header")}


def _file_format(options: TableOptions, *more: str) -> str:
    options.required("format")
    return options.choice("format", ("json", "csv", "parquet", "orc", *more), "json")


@dataclass(frozen=True)
class DecodedLines(Source[Any]):
    """The elements that a format makes of the lines of files. ``path``: of the files, for errors."""

    lines: FileSource[str]
    schema: DeserializationSchema[Any]
    path: str

    def output_type(self) -> TypeInformation[Any] | None:
        return self.schema.get_produced_type()

    @property
    def bounded(self) -> bool:
        return self.lines.bounded

    def create_enumerator(self, position: JSON | None) -> SplitEnumerator:
        return self.lines.create_enumerator(position)

    def create_reader(self) -> SourceReader[Any]:
        return _Reader(self, self.lines.create_reader())


class _Reader(SourceReader[Any]):
    def __init__(self, source: DecodedLines, lines: SourceReader[str]) -> None:
        self._source, self._lines = source, lines

    def open(self, context: ReaderContext) -> None:
        self._lines.open(context)

    def read(self, range: SplitRange) -> Iterator[Elements[Any]]:
        for batch in self._lines.read(range):
            found = batch.elements if isinstance(batch, SourceBatch) else batch
            lines = found.column(0) if isinstance(found, pa.RecordBatch) else pa.array(found, pa.string())
            decoded = self._source.schema.deserialize_batch(lines.cast(pa.binary()))
            if decoded.bad:
                line, problem = lines[decoded.bad[0].index], decoded.bad[0].problem
                raise RecordParseError(f"{self._source.path}: the line {str(line)[:200]!r} cannot be read: {problem}")
            yield decoded.elements

    def close(self) -> None:
        self._lines.close()
