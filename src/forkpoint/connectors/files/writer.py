"""Stages a file sink's output in a task: one hidden file per bucket, in one of the formats."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from forkpoint.connectors.files.orc import as_times, check_orc
from forkpoint.connectors.files.places import FileName, Location, StagedFile, sink_files
from forkpoint.connectors.formats.avro import AvroRowSerializationSchema
from forkpoint.connectors.formats.csv_layout import CsvLayout, rounded
from forkpoint.connectors.formats.jsonable import TimestampFormat, encode_lines
from forkpoint.contract.sink import SinkBatch, SinkWriter
from forkpoint.contract.source import JSON
from forkpoint.errors import ConfigError, ForkpointError, TypeNotSupported, UserFunctionError
from forkpoint.types import TypeInformation, infer_type
from forkpoint.types.information import cast_exactly

ROW_GROUP_ROWS = 128 * 1024
ROW_GROUP_BYTES = 64 << 20
# Spark decodes an escape to a character, not to a byte of UTF-8, so only ASCII is escaped.
_ESCAPED = re.compile("[^A-Za-z0-9_.~ ,+@()\\-\x80-\U0010ffff]")
NULL_BUCKET = "__HIVE_DEFAULT_PARTITION__"


@dataclasses.dataclass(eq=False)
class BucketedWriter(SinkWriter):
    """Stages one file for each bucket with elements."""

    location: Location
    name: FileName
    kind: str
    type: TypeInformation | None
    bucket: Callable[[Any], str] | Sequence[str] | None
    options: dict[str, Any]

    def __post_init__(self) -> None:
        self._files = sink_files(self.location)
        self._open: dict[str, _FileWriter] = {}

    def write(self, batch: SinkBatch) -> None:
        with self._files.errors():
            if self.kind in ("json", "text", "avro"):  # these need elements, the others columns
                self._write_values(batch)
            else:
                self._write_table(batch)

    def _write_values(self, batch: SinkBatch) -> None:
        values = batch.values
        for name, places in self._group(values, None, None).items():
            part = values if places is None else [values[i] for i in places]
            if part:
                self._file(name, None).write(part, self.type or batch.type)

    def _write_table(self, batch: SinkBatch) -> None:
        type = self.type or batch.type
        if type is None:
            if not batch.values:
                return
            type = self.type = infer_type(batch.values)
        table = to_table(batch, type, self.location)
        values = batch.values if callable(self.bucket) else None
        for name, places in self._group(values, table, type).items():
            part = table if places is None else table.take(pa.array(places))
            if part.num_rows:
                self._file(name, part.schema).write(part, type)

    def _group(
        self, values: list[Any] | None, table: pa.RecordBatch | None, type: TypeInformation | None
    ) -> dict[str, list[int] | None]:
        """Bucket → indices of its elements, in order; None if it has all elements."""
        bucket = self.bucket
        if bucket is None:
            return {"": None}
        names = [_bucket_of(bucket, v) for v in values or []] if callable(bucket) else _hive_names(bucket, values, table, type)
        places: dict[str, list[int]] = {}
        for i, name in enumerate(names):
            places.setdefault(name, []).append(i)
        return dict.fromkeys(places) if len(places) == 1 else {**places}

    def _file(self, bucket: str, schema: pa.Schema | None) -> _FileWriter:
        file = self._open.get(bucket)
        if file is None:
            staged = self._files.stage(bucket, self.name)
            file = self._open[bucket] = _KINDS[self.kind](staged, schema, self.options)
        return file

    def prepare_commit(self) -> list[JSON]:
        with self._files.errors():
            committables = self._files.each(lambda file: file.finish(), list(self._open.values()))
            self._files.staged_all(committables)
        return committables

    def abort(self) -> None:
        for file in self._open.values():
            file.discard()


class _FileWriter(ABC):
    """Writes elements to a staged file in one format."""

    def __init__(self, staged: StagedFile, schema: pa.Schema | None, options: dict[str, Any]) -> None:
        self._staged = staged
        self._file = staged.stream
        self._begin(schema, options)

    def _begin(self, schema: pa.Schema | None, options: dict[str, Any]) -> None:  # noqa: B027
        """Prepare for the first element."""

    @abstractmethod
    def write(self, elements: Any, type: TypeInformation | None, /) -> None:
        """Write a list of elements, or a RecordBatch, depending on the format."""

    def _end(self) -> None:  # noqa: B027
        """Flush the buffer."""

    def finish(self) -> JSON:
        self._end()
        return self._staged.finish()

    def discard(self) -> None:
        self._staged.discard()


class _JsonFile(_FileWriter):
    def _begin(self, schema: pa.Schema | None, options: dict[str, Any]) -> None:
        self._timestamps: TimestampFormat = options.get("timestamp_format", "ISO-8601")

    def write(self, values: list[Any], type: TypeInformation | None) -> None:
        self._file.write(encode_lines(values, type, self._timestamps))


class _TextFile(_FileWriter):
    def _begin(self, schema: pa.Schema | None, options: dict[str, Any]) -> None:
        charset = options.get("charset", "utf-8")
        self._encoding = charset, "surrogatepass" if charset == "utf-8" else "replace"  # like Java's getBytes

    def write(self, values: list[Any], type: TypeInformation | None) -> None:
        self._file.write("".join([f"{v}\n" for v in values]).encode(*self._encoding))


class _AvroFile(_FileWriter):
    """An Avro container file, without compression, like Flink's."""

    def _begin(self, schema: pa.Schema | None, options: dict[str, Any]) -> None:
        from fastavro.write import Writer

        self._values: AvroRowSerializationSchema = options["schema"]
        self._writer = Writer(self._file, self._values.schema, sync_interval=64_000, options={"strict_allow_default": True})

    def write(self, values: list[Any], type: TypeInformation | None) -> None:
        for value in values:
            try:
                self._writer.write(self._values.plain(value))
            except Exception as error:  # fastavro raises many kinds
                raise self._values.misfit(value, error) from error

    def _end(self) -> None:
        self._writer.flush()


class _LayoutFile(_FileWriter):
    """CSV in Flink's layout."""

    def _begin(self, schema: pa.Schema | None, options: dict[str, Any]) -> None:
        self._layout: CsvLayout = options["layout"]
        self._file.write(self._layout.head)

    def write(self, table: pa.RecordBatch, type: TypeInformation | None) -> None:
        self._file.write(self._layout.lines(table))


class _ParquetFile(_FileWriter):
    """Buffers batches until they fill a row group."""

    def _begin(self, schema: pa.Schema | None, options: dict[str, Any]) -> None:
        self._decimals: dict[str, tuple[int, int]] = options.get("decimals", {})
        assert schema is not None
        for name, digits in self._decimals.items():
            at = schema.get_field_index(name)
            schema = schema.set(at, pa.field(name, pa.decimal128(*digits)))
        self._writer = pq.ParquetWriter(self._file, schema, compression=options["compression"])
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, table: pa.RecordBatch, type: TypeInformation | None) -> None:
        for name, digits in self._decimals.items():  # a Decimal has no fixed scale, so the batch has it as text
            at = table.schema.get_field_index(name)
            column = [None if text is None else rounded(name, digits, Decimal(text)) for text in table.column(at).to_pylist()]
            table = table.set_column(at, name, pa.array(column, pa.decimal128(*digits)))
        self._held.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows >= ROW_GROUP_ROWS or self._bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held), row_group_size=max(self._rows, 1))
        self._held = []
        self._rows = self._bytes = 0

    def _end(self) -> None:
        self._flush()
        self._writer.close()

    def discard(self) -> None:
        with contextlib.suppress(pa.ArrowException, OSError, ForkpointError):  # closing writes a footer, and the disk may be full
            self._writer.close()
        super().discard()


class _OrcFile(_FileWriter):
    def _begin(self, schema: pa.Schema | None, options: dict[str, Any]) -> None:
        from pyarrow import orc

        assert schema is not None
        try:
            check_orc(f"FileSink.orc: {self._staged.final.rpartition('/')[0]}", schema)
        except ConfigError:
            self.discard()
            raise
        self._writer = orc.ORCWriter(self._file, compression=options["compression"])

    def write(self, table: pa.RecordBatch, type: TypeInformation | None) -> None:
        try:
            self._writer.write(pa.Table.from_batches([as_times(table, "ns")]))
        except pa.ArrowInvalid as error:
            raise TypeNotSupported(f"FileSink.orc: {error}; ORC has times from 1677 to 2262 here") from error

    def _end(self) -> None:
        self._writer.close()


class _CsvFile(_FileWriter):
    def _begin(self, schema: pa.Schema | None, options: dict[str, Any]) -> None:
        nested = [f.name for f in schema or () if pa.types.is_nested(f.type) or pa.types.is_binary(f.type)]
        if nested:
            self.discard()
            raise ConfigError(
                f"FileSink.csv: {', '.join(nested)} of {self._staged.final.rpartition('/')[0]} cannot be a CSV column; "
                "map the elements to records of plain fields, or write json or parquet"
            )
        # The None of a single column would be a blank line, which readers skip; as text it is "".
        self._single = schema is not None and len(schema) == 1 and schema.field(0).nullable
        as_text = [self._single or pa.types.is_duration(f.type) for f in schema or ()]
        fields = [(f.name, pa.string() if text else f.type) for f, text in zip(schema or (), as_text, strict=True)]
        self._schema = pa.schema(fields)
        write_options = pacsv.WriteOptions(delimiter=options["delimiter"], include_header=options["header"])
        self._writer = pacsv.CSVWriter(self._file, self._schema, write_options=write_options)

    def write(self, table: pa.RecordBatch, type: TypeInformation | None) -> None:
        columns = []
        for column in table.columns:
            if pa.types.is_duration(column.type):  # in ISO 8601, as in JSON
                column = pa.array(msgspec.to_builtins(column.to_pylist()), pa.string())
            columns.append(pc.fill_null(column.cast(pa.string()), "") if self._single else column)
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def _end(self) -> None:
        self._writer.close()


_KINDS: dict[str, type[_FileWriter]] = {
    "parquet": _ParquetFile,
    "orc": _OrcFile,
    "json": _JsonFile,
    "csv": _CsvFile,
    "text": _TextFile,
    "avro": _AvroFile,
    "csv-layout": _LayoutFile,
}


def to_table(batch: SinkBatch, type: TypeInformation, where: Location) -> pa.RecordBatch:
    """The batch as columns of the type: its own columns if they match, otherwise from its elements."""
    table = batch.table
    schema = type.arrow_schema
    if table is not None and table.schema.names == schema.names:
        if table.schema.types == schema.types:
            return table
        with contextlib.suppress(pa.ArrowException):  # converting the elements reports the problem
            columns = [cast_exactly(c, t) for c, t in zip(table.columns, schema.types, strict=True)]
            return pa.RecordBatch.from_arrays(columns, schema=schema)
    values = batch.values
    try:
        return pa.RecordBatch.from_arrays(type.to_columns(values), schema=schema)
    except (TypeError, ValueError, AttributeError, IndexError, pa.ArrowException) as e:
        raise TypeNotSupported(
            f"FileSink: elements such as {_short(values[0])} do not fit columns {', '.join(schema.names)} of {where}: "
            f"{e}. Give the sink type=, or map the elements to one record type"
        ) from e


def _bucket_of(bucket: Callable[[Any], str], element: Any) -> str:
    try:
        name = bucket(element)
    except Exception as e:
        raise UserFunctionError(f"FileSink: the bucket function failed on {_short(element)}: {e!r}") from e
    parts = name.split("/") if isinstance(name, str) else [".."]
    if name != "" and any(p == "" or p.startswith((".", "_")) or "\0" in p for p in parts):
        raise UserFunctionError(
            f"FileSink: the bucket function returned {name!r} for {_short(element)}; it must return a relative path "
            "whose parts are not empty and do not start with '.' or '_' (hidden), such as '2026-01-31' or 'room-3/motion'"
        )
    return name


def _hive_names(
    fields: Sequence[str], values: list[Any] | None, table: pa.RecordBatch | None, type: TypeInformation | None
) -> list[str]:
    """``a=1/b=x`` for each element, from columns (each distinct value once) or from elements."""
    parts: list[list[str]] = []
    for field in fields:
        if table is not None and type is not None:
            if field not in table.schema.names:
                known = ", ".join(table.schema.names)
                raise ConfigError(f"FileSink: no field {field!r} to bucket by; the fields are {known}")
            at = table.schema.names.index(field)
            kind = type.fields[at].type if type.fields is not None else type
            encoded = table.column(at).dictionary_encode(null_encoding="encode")
            names = [hive_name(field, v) for v in kind.from_arrow(encoded.dictionary)]
            parts.append([names[i] for i in encoded.indices.to_pylist()])
        else:
            parts.append([hive_name(field, _field_of(v, field)) for v in values or []])
    return ["/".join(names) for names in zip(*parts, strict=True)]


def hive_name(field: str, value: Any) -> str:
    """The name of the directory with the rows that have this value."""
    text = "" if value is None else str(value)
    return f"{_escape(field)}={_escape(text) or NULL_BUCKET}"  # like Spark and Hive


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _field_of(value: Any, field: str) -> Any:
    try:
        if isinstance(value, dict):
            return value[field]
        if type(value) is tuple and field[:1] == "f":
            return value[int(field[1:])]
        return getattr(value, field)
    except (KeyError, AttributeError, ValueError, IndexError):
        raise ConfigError(f"FileSink: no field {field!r} to bucket by in {_short(value)}") from None


def _short(value: Any, limit: int = 200) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "…"
