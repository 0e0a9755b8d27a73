"""PyFlink's file formats, mapped to forkpoint's: CSV and Parquet with a schema of columns, and Avro."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import msgspec

from forkpoint import (
    AvroRowSerializationSchema,
    ConfigError,
    Configuration,
    DataType,
    DataTypes,
    StreamFormat,
    TypeInformation,
    Types,
)
from forkpoint.connectors.files.avro import AvroFormat
from forkpoint.connectors.files.builders import BulkWriterFactory
from forkpoint.connectors.files.formats import CsvFormat, ParquetFormat
from forkpoint.connectors.formats.avro import parse_schema
from forkpoint.connectors.formats.csv_layout import CsvColumn, CsvLayout
from forkpoint.pyflink.datatypes import column_type, digits_in
from forkpoint.relational.digits import Digits
from forkpoint.relational.types import Field


class CsvSchema:
    """The columns of CSV files, in order, and the format of values."""

    def __init__(self, layout: CsvLayout) -> None:
        self.layout = layout

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """A builder: add columns, then ``build()``."""
        return CsvSchemaBuilder()

    def size(self) -> int:
        """The number of columns."""
        return len(self.layout.columns)

    def __len__(self) -> int:
        return self.size()

    def __str__(self) -> str:
        return f"CsvSchema({', '.join(f'{column.name}: {column.type!r}' for column in self.layout.columns)})"

    __repr__ = __str__


class CsvSchemaBuilder:
    """Builds a CsvSchema."""

    def __init__(self) -> None:
        self._columns: list[CsvColumn] = []
        self._layout = CsvLayout(())

    def build(self) -> CsvSchema:
        """The schema. Raises ConfigError for duplicate column names, or without columns."""
        names = [column.name for column in self._columns]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"CsvSchema: the columns are {names}; add at least one column, and each name once")
        return CsvSchema(replace(self._layout, columns=tuple(self._columns)))

    def add_array_column(self, name: str, separator: str = ";", element_type: DataType | None = None) -> Self:
        """A column of lists of strings, or of another plain type."""
        of = DataTypes.ARRAY(DataTypes.STRING() if element_type is None else element_type)
        return self._add(CsvColumn(name, column_type(of.sql), separator or None, digits_in(of.sql)))

    def add_boolean_column(self, name: str) -> Self:
        """A column of ``true`` and ``false``."""
        return self._add(CsvColumn(name, Types.BOOLEAN()))

    def add_number_column(self, name: str, number_type: DataType | None = None) -> Self:
        """A column of numbers, by default ``DataTypes.BIGINT()``."""
        of = number_type or DataTypes.BIGINT()
        return self._add(CsvColumn(name, column_type(of.sql), None, digits_in(of.sql)))

    def add_string_column(self, name: str) -> Self:
        """A column of text."""
        return self._add(CsvColumn(name, Types.STRING()))

    def add_columns_from(self, schema: CsvSchema) -> Self:
        """The columns of another schema."""
        self._columns += schema.layout.columns
        return self

    def clear_columns(self) -> Self:
        """Remove all columns."""
        self._columns.clear()
        return self

    def set_allow_comments(self, allow: bool = True) -> Self:
        """Skip lines that start with "#"."""
        return self._set(comments=allow)

    def set_any_property_name(self, name: str) -> Self:
        """Accepted without effect: as in Flink, a record whose columns differ from the schema is invalid."""
        return self

    def set_array_element_separator(self, separator: str) -> Self:
        """Set the default separator of array elements."""
        return self._dialect(array_element_delimiter=separator)

    def disable_array_element_separator(self) -> Self:
        """Arrays have one element, unless their columns have a separator."""
        return self.set_array_element_separator("")

    def remove_array_element_separator(self, index: int) -> Self:
        """Let a column use the default separator."""
        self._columns[index] = replace(self._columns[index], separator=None)
        return self

    def set_column_separator(self, char: str) -> Self:
        """Set the separator of values, by default a comma."""
        return self._dialect(field_delimiter=_character("Column separator", char))

    def set_escape_char(self, char: str) -> Self:
        """Set the escape character, by default none. With one, a single task reads a whole file."""
        return self._dialect(escape_character=_character("Escape char", char))

    def disable_escape_char(self) -> Self:
        """Use no escape character; the default."""
        return self._dialect(escape_character=None)

    def set_quote_char(self, char: str) -> Self:
        """Set the quote character for values with special characters, by default a double quote."""
        return self._dialect(quote_character=_character("Quote char", char))

    def disable_quote_char(self) -> Self:
        """Quote no values."""
        return self._dialect(quote_character=None)

    def set_line_separator(self, separator: str) -> Self:
        """Set the line end for writing, by default a newline. Raises ConfigError for anything but a line end."""
        if separator not in ("\n", "\r\n", "\r"):
            raise ConfigError(f"CsvSchema: lines cannot end with {separator!r}; give '\\n', '\\r\\n' or '\\r'")
        return self._set(line_end=separator)

    def set_null_value(self, null_value: str) -> Self:
        """Set the text that means None, in text columns too."""
        return self._dialect(null_literal=null_value)

    def set_skip_first_data_row(self, skip: bool = True) -> Self:
        """Skip the first record of each file, after a header."""
        return self._set(skip_first_row=skip)

    def set_strict_headers(self, strict: bool = True) -> Self:
        """Set whether a header must have the columns' names."""
        return self._set(strict_header=strict)

    def set_use_header(self, use: bool = True) -> Self:
        """Set whether files have a header. Columns are matched by position, not by the header."""
        return self._set(header=use)

    def size(self) -> int:
        """The number of columns."""
        return len(self._columns)

    def __len__(self) -> int:
        return self.size()

    def _add(self, column: CsvColumn) -> Self:
        self._columns.append(column)
        return self

    def _set(self, **options: Any) -> Self:
        self._layout = replace(self._layout, **options)
        return self

    def _dialect(self, **options: Any) -> Self:
        return self._set(dialect=replace(self._layout.dialect, **options))


def _character(what: str, char: str) -> str:
    if len(char) != 1:
        raise ValueError(f"{what} must be a single char, got {char}")
    return char


class CsvReaderFormat(StreamFormat):
    """CSV, for ``FileSource.for_record_stream_format``."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> StreamFormat:
        """Rows of the schema's columns."""
        return StreamFormat(CsvFormat.of(schema.layout), schema.layout.type)


class CsvBulkWriters:
    """CSV, for ``FileSink.for_bulk_format``."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> BulkWriterFactory:
        """Rows of the schema's columns, with a header per file if the schema uses headers."""
        return BulkWriterFactory("csv-layout", schema.layout.type, {"layout": schema.layout})


class ParquetBulkWriters:
    """Parquet, for ``FileSink.for_bulk_format``."""

    @staticmethod
    def for_row_type(
        row_type: DataType, hadoop_config: Configuration | None = None, utc_timestamp: bool = False
    ) -> BulkWriterFactory:
        """Rows of ``DataTypes.ROW``. Times are in UTC; the only Hadoop option with an effect is ``parquet.compression``."""
        codec = (hadoop_config or Configuration()).get_string("parquet.compression", "SNAPPY").lower()
        decimals = {field.name: _decimal_of(field) for field in _fields_of(row_type) if digits_in(field.type)}
        options = {"compression": "none" if codec == "uncompressed" else codec, "decimals": decimals}
        return BulkWriterFactory("parquet", column_type(row_type.sql), options)


class ParquetColumnarRowInputFormat(StreamFormat):
    """Parquet, for ``FileSource.for_bulk_file_format``: Rows of ``DataTypes.ROW``, matched by field name."""

    def __init__(
        self,
        row_type: DataType,
        hadoop_config: Configuration | None = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        _fields_of(row_type)
        super().__init__(ParquetFormat(is_case_sensitive), column_type(row_type.sql))


def _fields_of(row_type: DataType) -> tuple[Field, ...]:
    if not isinstance(row_type, DataType) or row_type.sql.name != "ROW" or not row_type.sql.fields:
        raise ConfigError(f"Parquet files have rows of DataTypes.ROW([DataTypes.FIELD(…), …]), not {row_type!r}")
    return row_type.sql.fields


def _decimal_of(field: Field) -> Digits:
    if field.type.digits is msgspec.UNSET:
        raise ConfigError(f"ParquetBulkWriters: {field.name} has decimals inside of it; give them a separate column")
    return field.type.digits


class AvroSchema:
    """An Avro schema, given as JSON."""

    def __init__(self, text: str) -> None:
        parse_schema(text)
        self.text = text

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """Parse a schema. Raises ConfigError."""
        return AvroSchema(json_schema)

    @staticmethod
    def parse_file(file_path: str) -> AvroSchema:
        """Parse the schema in a file. Raises ConfigError."""
        return AvroSchema(Path(file_path).read_text(encoding="utf-8"))

    def __str__(self) -> str:
        return self.text


class GenericRecordAvroTypeInfo:
    """Avro records are untyped dicts: a sink checks them against its schema."""

    def __new__(cls, schema: AvroSchema) -> TypeInformation[Any]:  # type: ignore[misc]  # programs call it for a type
        return Types.ANY()


class AvroInputFormat:
    """Avro files, for ``env.create_input``: reads records as dicts, resolved to a schema."""

    def __init__(self, path: str, schema: AvroSchema) -> None:
        self.path = path
        self.format = StreamFormat(AvroFormat(str(schema)), None)

    def get_produced_type(self) -> TypeInformation[Any]:
        """Untyped."""
        return Types.ANY()


class AvroBulkWriters:
    """Avro, for ``FileSink.for_bulk_format``."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkWriterFactory:
        """Dicts or other records, matched by field name."""
        return BulkWriterFactory("avro", None, {"schema": AvroRowSerializationSchema(avro_schema_string=str(schema))})
