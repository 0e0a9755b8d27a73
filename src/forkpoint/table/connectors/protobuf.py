"""The format ``protobuf``: the message of a table, and its columns, which are read from the messages' fields field by field."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.connectors.formats.batches import BatchDeserializationSchema, Declared, Part
from forkpoint.connectors.formats.protobuf import WELL_KNOWN, ProtobufMessage, is_map, scalar_name
from forkpoint.connectors.formats.records import shorten
from forkpoint.contract.format import BadMessage, SerializationSchema
from forkpoint.contract.sink import SinkBatch
from forkpoint.errors import ConfigError, TypeNotSupported
from forkpoint.extras import require
from forkpoint.relational.changes import row_type
from forkpoint.relational.types import Schema, SqlType, quoted
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.sql.errors import did_you_mean
from forkpoint.table.connectors.options import TableOptions
from forkpoint.types import Row
from forkpoint.types.kinds.records import RecordType

_TYPES = {
    "BOOL": ("BOOLEAN",),
    "STRING": ("STRING",),
    "BYTES": ("BYTES",),
    "ENUM": ("STRING", "INT", "BIGINT", "SMALLINT", "TINYINT"),
    "FLOAT": ("FLOAT",),
    "DOUBLE": ("DOUBLE",),
    **dict.fromkeys(("INT32", "SINT32", "SFIXED32"), ("INT",)),
    **dict.fromkeys(("INT64", "SINT64", "SFIXED64"), ("BIGINT",)),
    **dict.fromkeys(("UINT32", "FIXED32"), ("BIGINT", "INT")),
    **dict.fromkeys(("UINT64", "FIXED64"), ("BIGINT", "DECIMAL(20, 0)")),
}
"""The SQL types of a scalar field, by the names of FieldDescriptor's TYPE_… constants."""
_TIMESTAMP = "google.protobuf.Timestamp"
_TIMES = ("TIMESTAMP_LTZ", "TIMESTAMP")
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799  # of the years 1 and 9999, which a Timestamp may have


# -- the message of a table --------------------------------------------------------------------------------------------


def protobuf_deserialization(options: TableOptions, schema: Schema, option: str) -> ProtobufRowDeserializationSchema:
    """The schema that reads a table's messages. ``option``: of the format. Raises SqlError."""
    prefix = _prefix(options, option)
    options.ignore(f"{prefix}write-null-string-literal")
    ignores, defaults = options.flag(f"{prefix}ignore-parse-errors"), options.flag(f"{prefix}read-default-values")
    return ProtobufRowDeserializationSchema(_message(options, prefix, schema), schema, defaults, ignores)


def protobuf_serialization(options: TableOptions, schema: Schema, option: str) -> ProtobufRowSerializationSchema:
    """The schema that writes a table's messages. ``option``: of the format. Raises SqlError."""
    prefix = _prefix(options, option)
    options.ignore(f"{prefix}ignore-parse-errors", f"{prefix}read-default-values")
    null = options.get(f"{prefix}write-null-string-literal") or ""
    return ProtobufRowSerializationSchema(_message(options, prefix, schema), schema, null)


def _prefix(options: TableOptions, option: str) -> str:
    """The prefix of the format's options: keys and values have messages of their own."""
    if option == "key.format":
        return "key.protobuf."
    return "value.protobuf." if options.prefixed("value.protobuf.") else "protobuf."


def _message(options: TableOptions, prefix: str, schema: Schema) -> ProtobufMessage:
    """The message, whose fields are the table's columns."""
    message = _declared(options, prefix)
    _check_columns(options, message.descriptor, schema)
    return message


def _declared(options: TableOptions, prefix: str) -> ProtobufMessage:
    require("google.protobuf", "Protobuf")
    of_class, file, of_name = (f"{prefix}{name}" for name in ("message-class-name", "descriptor-file", "message-name"))
    path, place, name = map(options.get, (of_class, file, of_name))
    if path is not None:
        try:
            return ProtobufMessage.of(pkgutil.resolve_name(path.replace("$", ".")))
        except Exception as error:  # the module may raise any
            remedy = "write module.Class, of a module that protoc --python_out has made"
            raise options.error(of_class, f"there is no such class of messages ({shorten(str(error))}); {remedy}") from error
    if place is None or name is None:
        problem = f"the format 'protobuf' needs the option {of_class!r}, or {file!r} and {of_name!r}"
        raise options.error("", f"table {options.table.name!r}: {problem}")
    try:
        message = ProtobufMessage(Path(place).read_bytes(), name)
        _ = message.descriptor  # checks the name
    except OSError as error:
        raise options.error(file, f"the file cannot be read ({error.strerror})") from error
    except ConfigError as error:
        raise options.error(of_name, str(error)) from error
    return message


def _check_columns(options: TableOptions, message: Any, fields: Schema, inside: str = "") -> None:
    for each in fields:
        name, field = f"{inside}{each.name}", message.fields_by_name.get(each.name)
        if field is None:
            suggestion = did_you_mean(each.name, message.fields_by_name)
            raise options.error("", f"column {name!r}: the message {message.full_name} has no such field; {suggestion}")
        if is_map(field):
            parts = tuple(zip(field.message_type.fields, each.type.fields, strict=True)) if each.type.name == "MAP" else ()
        elif field.is_repeated:
            parts = ((field, each.type.fields[0]),) if each.type.name == "ARRAY" else ()
        else:
            parts = ((field, each),)
        if not parts or not all(_check_value(options, one, part.type, name) for one, part in parts):
            problem = f"column {name!r} is {each.type.label}, but the field {field.full_name} is {_kind(field)}"
            raise options.error("", f"{problem}; declare it {' or '.join(_wanted(field))}")


def _check_value(options: TableOptions, field: Any, of: SqlType, name: str) -> bool:
    """Whether single values of a field have this type."""
    message = field.message_type
    if message is None:
        return of.label in _TYPES[scalar_name(field)]
    if of.name == "ROW":
        _check_columns(options, message, of.fields, f"{name}.")
        return True
    if message.full_name == _TIMESTAMP:
        return of.name in _TIMES
    return _is_wrapper(message) and _check_value(options, message.fields[0], of, name)


def _is_wrapper(message: Any) -> bool:
    """Whether a message is a value that may be absent, such as ``google.protobuf.StringValue``."""
    return message.full_name in WELL_KNOWN and [field.name for field in message.fields] == ["value"]


def _kind(field: Any) -> str:
    """A field's type as a ``.proto`` file has it."""
    if is_map(field):
        return f"map<{', '.join(map(_kind, field.message_type.fields))}>"
    of = field.message_type or field.enum_type
    return ("repeated " if field.is_repeated else "") + (scalar_name(field).lower() if of is None else of.full_name)


def _wanted(field: Any, *, nested: bool = False) -> Sequence[str]:
    """The types that a field's column may have."""
    if is_map(field):
        return [f"MAP<{', '.join(_wanted(each, nested=nested)[0] for each in field.message_type.fields)}>"]
    message = field.message_type
    if message is None:
        found = _TYPES[scalar_name(field)]
    elif message.full_name == _TIMESTAMP:
        found = (*_TIMES, "ROW<seconds BIGINT, nanos INT>")
    elif _is_wrapper(message):
        found = _TYPES[scalar_name(message.fields[0])]
    else:
        fields = "…" if nested else ", ".join(f"{quoted(each.name)} {_wanted(each, nested=True)[0]}" for each in message.fields)
        found = (f"ROW<{fields}>",)
    return [f"ARRAY<{each}>" for each in found] if field.is_repeated else found


# -- reading -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProtobufRowDeserializationSchema(Declared, BatchDeserializationSchema[Row]):
    """Reads one row per message. What a message lacks is NULL, or with ``defaults`` the default of its field; a field without
    presence has no NULL, but an empty array or map is lacking."""

    message: ProtobufMessage
    fields: Schema
    defaults: bool = False
    ignore_parse_errors: bool = False

    def get_produced_type(self) -> RecordType:
        return self._row

    @cached_property
    def _row(self) -> RecordType:
        return row_type(self.fields)

    def read(self, messages: pa.BinaryArray) -> Iterator[Part]:
        from google.protobuf.message import DecodeError

        parse, parsed, places, bad = self.message.message_class.FromString, [], [], []
        for at, message in enumerate(messages.to_pylist()):
            try:
                parsed.append(parse(message))
                places.append(at)
            except DecodeError as error:
                bad.append(BadMessage(at, f"not a {self.message.name} ({shorten(str(error))})"))
        yield from self._rows(parsed, np.array(places, np.int64))
        if bad:
            yield self._none(tuple(bad))

    def _rows(self, messages: list[Any], places: np.ndarray) -> Iterator[Part]:
        """The rows of messages, without those with a value that its column cannot have."""
        try:
            columns = _columns(messages, self.fields, self.message.descriptor, defaults=self.defaults)
        except (ValueError, OverflowError) as error:
            if len(messages) == 1:
                yield self._none((BadMessage(int(places[0]), shorten(str(error))),))
                return
            half = len(messages) // 2
            yield from self._rows(messages[:half], places[:half])
            yield from self._rows(messages[half:], places[half:])
            return
        yield Part(pa.RecordBatch.from_arrays(columns, schema=self._row.arrow_schema), places)

    def _none(self, bad: tuple[BadMessage, ...]) -> Part:
        return Part(pa.RecordBatch.from_pylist([], schema=self._row.arrow_schema), np.empty(0, np.int64), bad)


def _columns(messages: list[Any], fields: Schema, of: Any, *, defaults: bool) -> list[pa.Array]:
    columns = []
    for each in fields:
        try:
            column = _column(messages, each.type, of.fields_by_name[each.name], defaults=defaults)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{each.name}: {error}") from None
        if column.null_count and not each.type.nullable:
            raise ValueError(f"{each.name}: the message lacks it, and the column is NOT NULL")
        columns.append(column)
    return columns


def _column(messages: list[Any], of: SqlType, field: Any, *, defaults: bool) -> pa.Array:
    values = list(map(attrgetter(field.name), messages))
    if field.is_repeated:
        sizes = np.fromiter(map(len, values), np.int32, len(values))
        absent = np.append((sizes == 0) & (of.nullable and not defaults), False)
        offsets = pa.array(np.append(0, np.cumsum(sizes)), pa.int32(), mask=absent)
        if is_map(field):
            keys = [sorted(entries) for entries in values]  # else their order depends on the process
            items = [entries[key] for entries, own in zip(values, keys, strict=True) for key in own]
            found = zip(of.fields, field.message_type.fields, (list(chain.from_iterable(keys)), items), strict=True)
            columns = [_values(each, part.type, one, defaults=defaults) for part, one, each in found]
            return pa.MapArray.from_arrays(offsets, *columns).cast(of.arrow_type)
        elements = _values(list(chain.from_iterable(values)), of.element, field, defaults=defaults)
        return pa.ListArray.from_arrays(offsets, elements, type=of.arrow_type)
    if field.has_presence and not defaults:
        present = np.fromiter((message.HasField(field.name) for message in messages), bool, len(messages))
        if not present.all():
            found = _values([values[at] for at in np.flatnonzero(present)], of, field, defaults=defaults)
            return found.take(pa.array(np.cumsum(present) - 1, mask=~present))
    return _values(values, of, field, defaults=defaults)


def _values(values: list[Any], of: SqlType, field: Any, *, defaults: bool) -> pa.Array:
    """Values of which none is absent."""
    message = field.message_type
    if message is None:
        if field.enum_type is not None and of.name == "STRING":
            names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
            values = [names.get(number) or str(number) for number in values]
        return pa.array(values, of.arrow_type)
    if of.name == "ROW":
        columns = _columns(values, of.fields, message, defaults=defaults)
        return pa.StructArray.from_arrays(columns, fields=list(of.arrow_type))
    if message.full_name == _TIMESTAMP:
        seconds, nanos = (np.fromiter(map(attrgetter(name), values), np.int64, len(values)) for name in ("seconds", "nanos"))
        if ((seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND)).any():
            raise ValueError("a Timestamp is before the year 1 or after the year 9999")
        return pa.array(seconds * 1_000_000 + nanos // 1000, pa.int64()).cast(of.arrow_type)
    return _column(values, of, message.fields[0], defaults=defaults)


# -- writing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProtobufRowSerializationSchema(Declared, SerializationSchema[Row]):
    """Writes each row as a message. NULL leaves a field unset; in an array or map it is the text ``null``, zero, false, an enum's
    first value, or an empty message."""

    message: ProtobufMessage
    fields: Schema
    null: str = ""

    def serialize(self, element: Row) -> bytes:
        raise AssertionError("rows are serialized as columns")

    def serialize_batch(self, batch: SinkBatch[Row]) -> pa.BinaryArray:
        from google.protobuf.message import EncodeError

        table = columns_of(batch, row_type(self.fields))
        messages = [self.message.message_class() for _ in range(table.num_rows)]
        try:
            self._fill(messages, table.columns, self.fields, self.message.descriptor)
            return pa.array([message.SerializeToString(deterministic=True) for message in messages], pa.binary())
        except (EncodeError, ValueError, TypeError) as error:
            raise TypeNotSupported(f"a row cannot be written as the message {self.message.name}: {error}") from error

    def _fill(self, messages: list[Any], columns: Sequence[pa.Array], fields: Schema, of: Any) -> None:
        for column, each in zip(columns, fields, strict=True):
            try:
                self._set(messages, column, each.type, of.fields_by_name[each.name])
            except (ValueError, TypeError) as error:
                raise ValueError(f"{each.name}: {error}") from error

    def _set(self, messages: list[Any], column: pa.Array, of: SqlType, field: Any) -> None:
        """Set a field of each message whose value in the column is not NULL."""
        messages, column = _given(messages, column)
        if field.message_type is None and not field.is_repeated:
            for message, value in zip(messages, self._plain(column, field), strict=True):
                setattr(message, field.name, value)
            return
        targets = list(map(attrgetter(field.name), messages))
        if not field.is_repeated:
            for target in targets:
                target.SetInParent()
            self._fill_messages(targets, column, of, field.message_type)
            return
        offsets = column.offsets.to_numpy()
        sizes, elements = np.diff(offsets), column.values[offsets[0] : offsets[-1]]
        owners = [targets[at] for at in np.repeat(np.arange(len(targets)), sizes)]
        if is_map(field):
            self._put(owners, elements, of, *field.message_type.fields)
        elif field.message_type is None:
            for owner, value in zip(owners, self._plain(elements, field), strict=True):
                owner.append(value)
        else:
            self._fill_messages([owner.add() for owner in owners], elements, of.element, field.message_type)

    def _put(self, owners: list[Any], entries: pa.StructArray, of: SqlType, key: Any, value: Any) -> None:
        keys, values = entries.flatten()
        at = zip(owners, self._plain(keys, key), strict=True)
        if value.message_type is not None:
            self._fill_messages([owner[each] for owner, each in at], values, of.element, value.message_type)
            return
        for (owner, each), item in zip(at, self._plain(values, value), strict=True):
            owner[each] = item

    def _fill_messages(self, messages: list[Any], column: pa.Array, of: SqlType, message: Any) -> None:
        messages, column = _given(messages, column)
        if of.name == "ROW":
            self._fill(messages, column.flatten(), of.fields, message)
        elif message.full_name == _TIMESTAMP:
            seconds, micros = np.divmod(column.cast(pa.int64()).to_numpy(), 1_000_000)
            for target, *time in zip(messages, seconds.tolist(), (micros * 1000).tolist(), strict=True):
                target.seconds, target.nanos = time
        else:
            self._set(messages, column, of, message.fields[0])

    def _plain(self, column: pa.Array, field: Any) -> list[Any]:
        """Values as Protobuf takes them, with a default for NULL."""
        kind, values = scalar_name(field), column.to_pylist()
        if kind == "ENUM":
            null, numbers = field.enum_type.values[0].number, field.enum_type.values_by_name
            return [null if each is None else _number(each, numbers, field) for each in values]
        null = {"STRING": self.null, "BYTES": b"", "BOOL": False}.get(kind, 0)
        values = [null if each is None else each for each in values]
        return list(map(int, values)) if pa.types.is_decimal(column.type) else values


def _given(messages: list[Any], column: pa.Array) -> tuple[list[Any], pa.Array]:
    """The messages that have a value in a column, and the values."""
    if not column.null_count:
        return messages, column
    return [messages[at] for at in np.flatnonzero(column.is_valid())], column.drop_null()


def _number(value: str | int, numbers: Any, field: Any) -> int:
    """Of an enum's value; a number without a name is read as text, too."""
    named = numbers.get(value) if isinstance(value, str) else None
    if named is not None:
        return int(named.number)
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{field.enum_type.full_name} has no value {value!r}") from None
