"""Avro container files: a header with the schema, then blocks of records. A file can be divided at any block."""

from __future__ import annotations

import io
import json
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from forkpoint.connectors.files.formats import FileFormat, FileIndex, FileStart
from forkpoint.connectors.files.places import HEAD_BYTES, SourceFile
from forkpoint.connectors.formats.avro import parse_schema
from forkpoint.errors import RecordParseError
from forkpoint.extras import require

_SYNC = 16  # bytes after each block
_LENGTHS = 20  # the maximum size of a block's two numbers
_READ = 1 << 20

_MAGIC = b"Obj\x01"
_HEADER: dict[str, Any] = {
    "type": "record",
    "name": "org.apache.avro.file.Header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": len(_MAGIC)}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
        {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": _SYNC}},
    ],
}

Read = Callable[[int, int], bytes]


@dataclass(frozen=True)
class AvroFormat(FileFormat):
    """Records of Avro files as dicts, resolved to a schema (JSON). Values of logical types keep their stored type."""

    schema: str

    def start(self, file: SourceFile, size: int) -> FileStart:
        if not size:
            return FileStart(0)
        try:
            with file.opened() as read:
                return FileStart(header_of(read, size, file)[1])
        except RecordParseError:
            return FileStart(0)  # the task that reads it reports the error

    def index(self, file: SourceFile, at: int, size: int) -> FileIndex:
        return BlockIndex(file, at, size)


class BlockIndex:
    """Finds blocks by their headers. A damaged rest of the file counts as one block, so that its reader reports the error."""

    def __init__(self, file: SourceFile, start: int, size: int) -> None:
        self.end = size
        self._file = file
        self._starts = [start]
        self._rows = [0]

    def take(self, max_rows: int) -> tuple[int, int]:
        with self._file.opened() as read:
            data, first = b"", 0
            while (at := self._starts[-1]) < self.end and self._rows[-1] < max_rows:
                if at + _LENGTHS > first + len(data):
                    first, data = at, read(at, min(_READ, self.end - at))
                rows, end = self._block(data, at - first, at)
                self._starts.append(end)
                self._rows.append(self._rows[-1] + rows)
        return self._starts[-1], self._rows[-1]

    def offset(self, row: int) -> int:
        return self._starts[bisect_right(self._rows, row) - 1]

    def _block(self, data: bytes, offset: int, at: int) -> tuple[int, int]:
        try:
            rows, begins = _number(data, offset)
            length, begins = _number(data, begins)
        except IndexError:
            return 1, self.end
        end = at + begins - offset + length + _SYNC
        return (rows, end) if rows > 0 and length >= 0 and at < end <= self.end else (1, self.end)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Avro's number of variable length, and its end. Raises IndexError."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at
        if shift > 63:
            raise IndexError


def header_of(read: Read, size: int, file: object) -> tuple[bytes, int]:
    """A file's header, without logical types in its schema, and its end. Raises RecordParseError."""
    require("fastavro", "Avro files")
    from fastavro import schemaless_reader, schemaless_writer

    count = HEAD_BYTES
    while True:
        data = io.BytesIO(read(0, min(count, size)))
        try:
            header = schemaless_reader(data, _HEADER, None)
            if header["magic"] != _MAGIC:
                raise ValueError(f"it begins with {header['magic']!r}, not {_MAGIC!r}")
            schema = _without_logic(header["meta"]["avro.schema"])
            break
        except Exception as error:  # fastavro raises many kinds
            if count >= size or not isinstance(error, EOFError | IndexError):
                raise RecordParseError(f"{file}: not an Avro file ({error or type(error).__name__})") from None
            count *= 2
    out = io.BytesIO()
    schemaless_writer(out, _HEADER, {**header, "meta": {**header["meta"], "avro.schema": schema.encode()}})
    return out.getvalue(), data.tell()


def records_of(header: bytes, blocks: bytes, schema: str) -> tuple[list[Any], str | None]:
    """The records in blocks of a file with this header, up to a damaged one, and its problem."""
    from fastavro import reader

    records: list[Any] = []
    parsed = parse_schema(_without_logic(schema))
    try:
        records.extend(reader(io.BytesIO(header + blocks), reader_schema=parsed))
    except Exception as error:  # fastavro raises many kinds
        return records, str(error) or type(error).__name__
    return records, None


def _without_logic(schema: str | bytes) -> str:
    """A schema as JSON without its logical types, so that values keep their stored type."""

    def plain(of: Any) -> Any:
        if isinstance(of, list):
            return list(map(plain, of))
        return {key: plain(each) for key, each in of.items() if key != "logicalType"} if isinstance(of, dict) else of

    return json.dumps(plain(json.loads(schema)))
