"""CSV with one record per message, under PyFlink's names."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Generic

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from forkpoint.connectors.formats.batches import BatchDeserializationSchema, Declared, Part, elements_of, read_each
from forkpoint.connectors.formats.columns import is_utf8, text_schema, typed_columns
from forkpoint.connectors.formats.jsonable import to_plain
from forkpoint.connectors.formats.records import RecordConverter, Unreadable, shorten
from forkpoint.contract.format import SerializationSchema
from forkpoint.errors import ConfigError, TypeNotSupported
from forkpoint.types import TypeInformation, TypeLike, type_of
from forkpoint.types.kinds.records import RecordType
from forkpoint.types.variables import T

BOM = b"\xef\xbb\xbf"
_ALWAYS_QUOTED = 24  # Jackson quotes longer values without checking their characters
_MAX_BYTES = 1 << 30  # per parse: Arrow's block size is a 32-bit int


def read_csv(
    data: bytes, rows: int | None, names: list[str], delimiter: str, type: TypeInformation, schema: pa.Schema
) -> pa.RecordBatch | None:
    """Parse CSV into columns. Returns None if `RecordConverter` could return a different result.

    ``rows``: the required number of rows; None if values may contain line ends. ``schema``: the type's `text_schema`.
    """
    if len(data) > _MAX_BYTES or b"0x" in data or b"0X" in data or not is_utf8(data):
        return None  # Arrow reads 0x10 as 16
    if rows is not None and b"\r" in data and data.count(b"\r") != data.count(b"\r\n"):
        return None  # Arrow treats a CR as a line end
    if b'"' in data and not pc.match_substring_regex(pa.scalar(data), _strict_pattern(delimiter)).as_py():
        return None  # Arrow reads "a"b as ab
    reading = pacsv.ReadOptions(use_threads=False, block_size=max(len(data) + 1, 1 << 16), column_names=names)
    parsing = pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=rows is None)
    conversion = pacsv.ConvertOptions(
        column_types=schema, include_columns=schema.names, null_values=[""], strings_can_be_null=False
    )
    try:
        table = pacsv.read_csv(pa.BufferReader(data), reading, parsing, conversion)
    except (pa.ArrowException, KeyError):
        return None
    if rows is not None and len(table) != rows:  # blank lines, or records that span lines
        return None
    for at, field in enumerate(type.arrow_schema):
        if pa.types.is_temporal(field.type):  # read as text
            column = table.column(at)
            table = table.set_column(at, field.name, pc.if_else(pc.equal(column, ""), None, column))
    return typed_columns(table, type)


def _strict_pattern(delimiter: str) -> str:
    """A pattern that matches records without text after a closing quote."""
    end = re.escape(delimiter)
    return rf'\A(?:(?:"(?:[^"]|"")*"|[^"{end}\n][^{end}\n]*|)(?:{end}|\r?\n))*\z'


def split_record(record: bytes, **dialect: Any) -> list[str]:
    """The values of one record. Raises Unreadable."""
    try:
        return next(csv.reader([record.decode("utf-8")], strict=True, **dialect))
    except UnicodeDecodeError as e:
        raise Unreadable(f"not UTF-8 ({e.reason} at byte {e.start})") from None
    except (csv.Error, StopIteration) as e:
        raise Unreadable(f"not CSV ({what_csv_says(e)})") from None


def what_csv_says(error: Exception) -> str:
    """The csv module's message, or a clearer one for a CR in the middle of a line."""
    return "a CR outside of quotes" if str(error).startswith("new-line character") else str(error)


def named_values(row: list[str], names: Sequence[str]) -> dict[str, Any]:
    """A record's values by name. Raises Unreadable if the number of values is wrong."""
    if len(row) != len(names):
        raise Unreadable(f"{len(row)} values for the {len(names)} columns {', '.join(names)}")
    return dict(zip(names, row, strict=True))


@dataclass(frozen=True)
class CsvDialect:
    """A dialect of CSV."""

    field_delimiter: str = ","
    array_element_delimiter: str = ";"
    quote_character: str | None = '"'
    escape_character: str | None = None
    null_literal: str | None = None

    def __post_init__(self) -> None:
        for name in ("field_delimiter", "quote_character", "escape_character"):
            value = getattr(self, name)
            if value is not None and (len(value) != 1 or value in "\r\n"):
                raise ConfigError(f"CSV: the {name.replace('_', ' ')} must be one character, not {value!r}")

    @property
    def options(self) -> dict[str, Any]:
        """The options of the csv module."""
        return {
            "delimiter": self.field_delimiter,
            "quotechar": self.quote_character,
            "quoting": csv.QUOTE_NONE if self.quote_character is None else csv.QUOTE_MINIMAL,
            "escapechar": self.escape_character,
        }

    def record(self, texts: list[str]) -> str:
        """A record of encoded values without its line end. Never blank, because readers skip blank lines."""
        line = self.field_delimiter.join(texts)
        return line or (self.quote_character or "") * 2

    def row_values(self, text: str) -> list[str] | None:
        """The values of a nested row; None if the text is JSON."""
        delimiter = self.array_element_delimiter
        return text.split(delimiter) if text and delimiter and not text.startswith(("{", "[")) else None

    def quoted(self, text: str) -> str:
        """The text as written: quoted where Jackson, and so Flink, quotes it, or where it would not read back unchanged.

        Raises Unreadable if it needs quotes or an escape character and the dialect has neither.
        """
        quote, delimiter, escape = self.quote_character, self.field_delimiter, self.escape_character
        if quote is None:
            special = {delimiter, "\n", "\r", *([] if escape is None else [escape])}
            if escape is None and not special.isdisjoint(text):
                raise Unreadable(f"{shorten(text, 80)!r} needs quotes or an escape character")
            return text if escape is None else "".join([escape + c if c in special else c for c in text])
        safe = max(delimiter, quote, "\r")
        if len(text) <= _ALWAYS_QUOTED and not text.startswith("#") and all(c > safe and c != escape for c in text):
            return text
        for doubled in (quote, escape):
            text = text if doubled is None else text.replace(doubled, doubled * 2)
        return f"{quote}{text}{quote}"


def java_float(value: float, *, single: bool = False) -> str:
    """A number in the form of Java's ``Double.toString`` or ``Float.toString``."""
    text = str(np.float32(value)) if single else repr(value)
    if not np.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[text]
    sign, digits, exponent = Decimal(text).normalize().as_tuple()
    assert isinstance(exponent, int)  # it is finite
    power = len(digits) - 1 + exponent
    figures = "".join(map(str, digits))
    if value == 0:
        number = "0.0"
    elif -3 <= power < 7:
        plain = f"{Decimal((0, digits, exponent)):f}"
        number = plain if "." in plain else f"{plain}.0"
    else:
        number = f"{figures[0]}.{figures[1:] or '0'}E{power}"
    return f"-{number}" if sign else number


@dataclass(frozen=True)
class CsvRowDeserializationSchema(Declared, BatchDeserializationSchema[T], Generic[T]):
    """Reads one CSV record per message. Its values are the fields of ``type_info`` in order.

    In an optional field, an empty value is None unless the field is text; ``null_literal`` is None in text fields, too.
    ``array_element_delimiter`` separates the elements of a list and the values of a ROW, unless the ROW is JSON. Other nested
    values are JSON. ``allow_comments`` skips messages that start with "#"; ``ignore_parse_errors`` silently skips bad messages.
    """

    type_info: TypeLike[T]
    dialect: CsvDialect = CsvDialect()
    allow_comments: bool = False
    ignore_parse_errors: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "type_info", _record_type(self.type_info))

    def get_produced_type(self) -> TypeInformation[T]:
        return self.type_info  # type: ignore[return-value]  # __post_init__ converts it

    @cached_property
    def _converter(self) -> RecordConverter:
        return RecordConverter(self.get_produced_type(), from_text=True)

    @cached_property
    def _schema(self) -> pa.Schema | None:
        return text_schema(self.get_produced_type())

    @cached_property
    def _lists(self) -> set[str]:
        fields = self.get_produced_type().fields or ()
        inner = ((f.name, f.type.children[0] if f.type.kind == "optional" else f.type) for f in fields)
        return {name for name, type in inner if type.kind in ("list", "tuple_of", "set", "frozenset")}

    @cached_property
    def _rows(self) -> dict[str, tuple[str, ...]]:
        rows = {field.name: _row_fields(field.type) for field in self.get_produced_type().fields or ()}
        return {name: names for name, names in rows.items() if names is not None}

    def read(self, messages: pa.BinaryArray) -> Iterator[Part]:
        columns = self._columns(messages)
        if columns is not None:
            yield Part.whole(columns, 0)
            return
        indices = None
        if self.allow_comments:
            indices = np.flatnonzero(pc.invert(pc.starts_with(messages, "#")).to_numpy(zero_copy_only=False))
            messages = messages.take(pa.array(indices))
        part = read_each(messages, 0, self._values, self._converter)
        yield part if indices is None else part.at(indices)

    def _columns(self, messages: pa.BinaryArray) -> pa.RecordBatch | None:
        """The columns if all records are plain: no escapes, comments, line ends or null literal."""
        dialect = self.dialect
        if self._schema is None or dialect.null_literal is not None or not dialect.field_delimiter.isascii():
            return None
        if not len(messages) or messages.nbytes > _MAX_BYTES:
            return None
        one = pa.ListArray.from_arrays(pa.array([0, len(messages)], pa.int32()), messages)
        data: bytes = pc.binary_join(one, b"\n")[0].as_py()
        quotes = [] if dialect.quote_character == '"' else ['"', dialect.quote_character]  # Arrow's is "
        special = [*quotes, dialect.escape_character, "#" if self.allow_comments else None, "\r"]
        if any(c is not None and c.encode() in data for c in special) or data.count(b"\n") != len(messages) - 1:
            return None
        type = self.get_produced_type()
        return read_csv(data, len(messages), type.column_names, dialect.field_delimiter, type, self._schema)

    def _values(self, message: bytes) -> dict[str, Any]:
        type, dialect = self.get_produced_type(), self.dialect
        named = named_values(split_record(message, **dialect.options), type.column_names)
        return {name: self._value(name, value) for name, value in named.items()}

    def _value(self, name: str, value: str) -> Any:
        null = self.dialect.null_literal
        if null is not None and value == null:
            return None
        if name in self._rows:
            parts = self.dialect.row_values(value)
            return value if parts is None else named_values(parts, self._rows[name])
        if name not in self._lists:
            return value
        parts = value.split(self.dialect.array_element_delimiter) if value else []
        return parts if null is None else [None if part == null else part for part in parts]

    class Builder:
        """Builds a CsvRowDeserializationSchema for a type."""

        def __init__(self, type_info: TypeLike[Any]) -> None:
            self._schema: CsvRowDeserializationSchema[Any] = CsvRowDeserializationSchema(type_info)

        def _set(self, **options: Any) -> CsvRowDeserializationSchema.Builder:
            self._schema = replace(self._schema, dialect=replace(self._schema.dialect, **options))
            return self

        def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Set the separator of values, by default a comma."""
            return self._set(field_delimiter=delimiter)

        def set_allow_comments(self, allow_comments: bool) -> CsvRowDeserializationSchema.Builder:
            """Skip messages that start with "#"."""
            self._schema = replace(self._schema, allow_comments=allow_comments)
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Set the separator of a list's elements, by default a semicolon."""
            return self._set(array_element_delimiter=delimiter)

        def set_quote_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Set the quote character of values with special characters, by default a double quote."""
            return self._set(quote_character=c)

        def set_escape_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Set the escape character of special characters; by default there is none."""
            return self._set(escape_character=c)

        def set_null_literal(self, null_literal: str) -> CsvRowDeserializationSchema.Builder:
            """Set the text that means None, also in text fields."""
            return self._set(null_literal=null_literal)

        def set_ignore_parse_errors(self, ignore_parse_errors: bool) -> CsvRowDeserializationSchema.Builder:
            """Skip bad messages silently."""
            self._schema = replace(self._schema, ignore_parse_errors=ignore_parse_errors)
            return self

        def build(self) -> CsvRowDeserializationSchema[Any]:
            """The schema."""
            return self._schema


@dataclass(frozen=True)
class CsvRowSerializationSchema(Declared, SerializationSchema[T], Generic[T]):
    """Writes each element as a CSV record of the fields of ``type_info``, in the form that CsvRowDeserializationSchema reads.

    As in Flink, a message ends with ``line_delimiter``, by default a newline. None is written as ``null_literal``, by default
    empty.
    """

    type_info: TypeLike[T]
    dialect: CsvDialect = CsvDialect()
    line_delimiter: str = "\n"

    def __post_init__(self) -> None:
        object.__setattr__(self, "type_info", _record_type(self.type_info))
        if self.line_delimiter not in ("\n", "\r", "\r\n", ""):
            raise ConfigError(f"CSV: the line delimiter must be a line end or empty, not {self.line_delimiter!r}")

    def serialize(self, element: T) -> bytes:
        type: TypeInformation[T] = self.type_info  # type: ignore[assignment]  # __post_init__ converts it
        (record,) = elements_of([element], type)
        values = msgspec.to_builtins(to_plain(record), enc_hook=to_plain)
        if isinstance(values, dict):
            values = [values[name] for name in type.column_names]
        try:
            texts = [self._text_of(of.type, each) for of, each in zip(type.fields or (), values, strict=True)]
        except Unreadable as error:
            raise TypeNotSupported(f"{element!r} cannot be written as CSV ({error}); set an escape character") from None
        return (self.dialect.record(texts) + self.line_delimiter).encode()

    def _text_of(self, type: TypeInformation, value: Any) -> str:
        if not isinstance(value, list | dict):
            text = self._plain(value)
            return self.dialect.quoted(text) if isinstance(value, str) else text
        row = _row_fields(type) if isinstance(value, dict) else None
        parts = value if row is None else [value[name] for name in row]  # type: ignore[call-overload]  # a dict
        if isinstance(parts, dict) or any(isinstance(each, list | dict) for each in parts):
            return self.dialect.quoted(_json(value))
        texts = list(map(self._plain, parts))
        joined = self.dialect.array_element_delimiter.join(texts)
        plain = row is None or (None not in parts and self.dialect.row_values(joined) == texts)
        return self.dialect.quoted(joined if plain else _json(value))

    def _plain(self, value: Any) -> str:
        """The text of a scalar."""
        if value is None:
            return self.dialect.null_literal or ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            return java_float(value)
        return str(value)

    class Builder:
        """Builds a CsvRowSerializationSchema for a type."""

        def __init__(self, type_info: TypeLike[Any]) -> None:
            self._schema: CsvRowSerializationSchema[Any] = CsvRowSerializationSchema(type_info)

        def _set(self, **options: Any) -> CsvRowSerializationSchema.Builder:
            self._schema = replace(self._schema, dialect=replace(self._schema.dialect, **options))
            return self

        def set_field_delimiter(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the separator of values, by default a comma."""
            return self._set(field_delimiter=c)

        def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """Set the end of a message, by default a newline; it may be empty."""
            self._schema = replace(self._schema, line_delimiter=delimiter)
            return self

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """Set the separator of a list's elements, by default a semicolon."""
            return self._set(array_element_delimiter=delimiter)

        def disable_quote_character(self) -> CsvRowSerializationSchema.Builder:
            """Do not quote values; special characters then need an escape character."""
            return self._set(quote_character=None)

        def set_quote_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the quote character of values with special characters, by default a double quote."""
            return self._set(quote_character=c)

        def set_escape_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the escape character of special characters; by default there is none."""
            return self._set(escape_character=c)

        def set_null_literal(self, s: str) -> CsvRowSerializationSchema.Builder:
            """Set the text that means None."""
            return self._set(null_literal=s)

        def build(self) -> CsvRowSerializationSchema[Any]:
            """The schema."""
            return self._schema


def _row_fields(type: TypeInformation) -> tuple[str, ...] | None:
    """The field names of a ROW, which Flink writes like a list; None for other records, which are JSON."""
    of = type.children[0] if type.kind == "optional" else type
    return of.names if isinstance(of, RecordType) and of.flavor == "row" else None


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _record_type(type_info: TypeLike[T]) -> TypeInformation[T]:
    type = type_of(type_info)
    if not type.fields:
        raise ConfigError(f"CSV: {type!r} has no fields; give a record type, such as a NamedTuple or Types.ROW_NAMED")
    return type
