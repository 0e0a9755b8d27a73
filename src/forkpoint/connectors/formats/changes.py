"""Databases' change records in JSON: reads Debezium's, Canal's and Maxwell's messages as ``Change(kind, before, after, …)``.

The kind is a field, because ROW types store no kind. An element is one changed row; a Canal message has several.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Generic, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.connectors.formats.batches import BatchDeserializationSchema, Declared, Part
from forkpoint.connectors.formats.debezium import (
    BinaryHandlingMode,
    DecimalHandlingMode,
    Decode,
    Modes,
    TimePrecisionMode,
    row_decoder,
)
from forkpoint.connectors.formats.json import JsonText, joined
from forkpoint.connectors.formats.records import RecordConverter, Unreadable, shorten
from forkpoint.contract.format import BadMessage
from forkpoint.types import Field, RowKind, TypeInformation, TypeLike, Types, type_of
from forkpoint.types.kinds.containers import OptionalType, optional, present
from forkpoint.types.kinds.records import RecordType, classless
from forkpoint.types.variables import T

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Change(NamedTuple):
    """A changed row with unconverted values."""

    kind: RowKind
    before: Any
    after: Any
    database: str | None
    table: str | None
    time: datetime | None


def change_type(row: TypeLike[Any]) -> RecordType:
    """The type of a table's row changes: a namedtuple ``Change`` with these fields.

    ``kind``: a `RowKind`: INSERT, UPDATE_AFTER for an update, or DELETE. ``before`` and ``after``: the row; None if it did not
    exist or the database does not log it. ``database``, ``table``. ``time``: of the change in the database, an aware datetime.
    """
    of, text = optional(type_of(row)), optional(type_of(str))
    members = (type_of(RowKind), of, of, text, text, optional(Types.INSTANT()))
    return classless("namedtuple", "Change", tuple(map(Field, _Change._fields, members)))


def changed_row(type: TypeInformation[Any] | None) -> RecordType | None:
    """The row type in the change type ``type``; None if it is not a change type."""
    if not isinstance(type, RecordType) or type.name != "Change" or type.names != _Change._fields:
        return None
    row = type.children[_Change._fields.index("after")]
    inner = row.of if isinstance(row, OptionalType) else row
    return inner if isinstance(inner, RecordType) else None


@dataclass(frozen=True)
class _ChangeDeserializationSchema(Declared, BatchDeserializationSchema[Any], Generic[T]):
    type_info: TypeLike[T]
    ignore_parse_errors: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "type_info", type_of(self.type_info))

    @abstractmethod
    def _changes(self, message: Any) -> Iterator[_Change]:
        """The changes in a message. Raises Unreadable."""

    @abstractmethod
    def _rows(self, type: TypeInformation[T]) -> RecordConverter: ...

    def get_produced_type(self) -> RecordType:
        return self._type

    @cached_property
    def _type(self) -> RecordType:
        return change_type(self.type_info)

    @cached_property
    def _json(self) -> JsonText:
        return JsonText(self._type)

    def read(self, messages: pa.BinaryArray) -> Iterator[Part]:
        found: list[_Change] = []
        indices: list[int] = []
        bad: dict[int, str] = {}
        for index, message in enumerate(messages.to_pylist()):
            try:
                changes = list(self._changes(self._decode(message)))
            except Unreadable as error:
                bad[index] = str(error)
            else:
                found += changes
                indices += [index] * len(changes)
        rows, problems = self._convert([row for change in found for row in (change.before, change.after)])
        bad |= {indices[at // 2]: f"{('before', 'after')[at % 2]}: {problem}" for at, problem in reversed(problems)}
        good = [at for at, index in enumerate(indices) if index not in bad]
        elements = [found[at]._replace(before=rows[2 * at], after=rows[2 * at + 1]) for at in good]
        yield Part(
            pa.RecordBatch.from_arrays(self._type.to_columns(elements), schema=self._type.arrow_schema),
            np.array([indices[at] for at in good], np.int64),
            tuple(BadMessage(index, bad[index]) for index in sorted(bad)),
        )

    def _decode(self, message: bytes) -> dict[str, Any]:
        try:
            value = self._json.decode(message)
        except Unreadable as error:
            raise Unreadable(f"not JSON ({error})") from None
        return _object(value)

    def _convert(self, raws: list[Any]) -> tuple[list[Any], list[tuple[int, str]]]:
        """The rows, None if missing or unreadable, and the problems with their indices."""
        type: TypeInformation[T] = self.type_info  # type: ignore[assignment]  # __post_init__ converts it
        present = [at for at, raw in enumerate(raws) if raw is not None]
        batch, problems = self._rows(type).convert([raws[at] for at in present])
        assert isinstance(batch, pa.RecordBatch)
        wrong = {at for at, _ in problems}
        rows: list[Any] = [None] * len(raws)
        good = (index for at, index in enumerate(present) if at not in wrong)
        for index, row in zip(good, type.from_columns(batch.columns), strict=True):
            rows[index] = row
        return rows, [(present[at], problem) for at, problem in problems]


_DEBEZIUM = {"c": RowKind.INSERT, "r": RowKind.INSERT, "u": RowKind.UPDATE_AFTER, "d": RowKind.DELETE}
_PLAIN = ("boolean", "byte", "short", "int", "long", "float", "double", "string")
_MAX_SCHEMAS = 100  # in the cache; a topic has few


class _Message(msgspec.Struct):
    """A Debezium message, with or without its schema."""

    schema: msgspec.Raw = msgspec.Raw()
    payload: Any = msgspec.UNSET
    op: Any = None
    before: Any = None
    after: Any = None
    source: Any = None


@dataclass(frozen=True)
class DebeziumJsonDeserializationSchema(_ChangeDeserializationSchema[T], Generic[T]):
    """Reads Debezium's JSON, with or without a schema, as changes of rows of ``type_info``: see `change_type`.

    A row read by a snapshot is an INSERT. A message with a schema (``schemas.enable``) defines the encoding of its values. For
    messages without one, give the connector's configuration: ``decimal_handling_mode``, ``time_precision_mode`` and, for columns
    whose encoding depends on it, ``fraction_digits``: the scale of a decimal, or the number of fractional digits of seconds of a
    time. Without them, an ambiguous value is bad. ``binary_handling_mode``: the encoding of bytes in text.
    """

    decimal_handling_mode: DecimalHandlingMode | None = None
    time_precision_mode: TimePrecisionMode | None = None
    binary_handling_mode: BinaryHandlingMode = "bytes"
    fraction_digits: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._modes  # raises in the user's call

    @cached_property
    def _modes(self) -> Modes:
        return Modes(self.decimal_handling_mode, self.time_precision_mode, self.binary_handling_mode, self.fraction_digits)

    @cached_property
    def _messages(self) -> JsonText:
        return JsonText(self._type, _Message)

    @cached_property
    def _envelopes(self) -> JsonText | None:
        """Reads columns, if the encoding of the row's values does not depend on the connector."""
        row = self._type.children[_Change._fields.index("after")].children[0]
        if any(present(of).kind not in _PLAIN for of in row.children):
            return None
        text = optional(Types.STRING())
        source = RecordType("row", "Row", (Field("db", text), Field("table", text), Field("ts_ms", optional(Types.LONG()))))
        fields = {"before": optional(row), "after": optional(row), "op": text, "source": optional(source)}
        return JsonText(RecordType("row", "Row", tuple(Field(*each) for each in fields.items())), nested=True)

    def read(self, messages: pa.BinaryArray) -> Iterator[Part]:
        columns = self._columns(messages)
        if columns is None:
            yield from super().read(messages)
        else:
            yield Part.whole(columns, 0)

    def _columns(self, messages: pa.BinaryArray) -> pa.RecordBatch | None:
        """Messages without a schema as columns; None if they have to be read one by one."""
        data = None if self._envelopes is None else joined(messages)
        table = None if data is None or self._envelopes is None else self._envelopes.columns(data, len(messages))
        if table is None:
            return None
        before, after, ops, source = table.columns
        kinds = pc.index_in(ops, pa.array(list(_DEBEZIUM)))
        needed = pc.if_else(pc.equal(ops, "d"), before.is_valid(), after.is_valid())
        if kinds.null_count or not pc.all(needed).as_py():
            return None
        database, of, ms = source.flatten()
        times = ms.cast(pa.timestamp("ms", "UTC")).cast(self._type.arrow_schema.field("time").type)
        kinds = pa.array([kind.value for kind in _DEBEZIUM.values()], pa.int64()).take(kinds)
        return pa.RecordBatch.from_arrays([kinds, before, after, database, of, times], schema=self._type.arrow_schema)

    @cached_property
    def _decoders(self) -> dict[bytes, Decode]:
        return {}

    def _rows(self, type: TypeInformation[T]) -> RecordConverter:
        return RecordConverter(type)

    def _decode(self, message: bytes) -> Any:
        try:
            return self._messages.decode(message)
        except Unreadable:
            return super()._decode(message)  # raises with the reason

    def _changes(self, message: Any) -> Iterator[_Change]:
        schema, payload = bytes(message.schema), message.payload
        if not schema or payload is msgspec.UNSET:
            schema, payload = b"", {name: getattr(message, name) for name in ("op", "before", "after", "source")}
        if payload is None:  # a tombstone with its schema
            return
        payload = _object(payload)
        op, before, after = payload.get("op"), payload.get("before"), payload.get("after")
        kind = _DEBEZIUM.get(op) if isinstance(op, str) else None
        if kind is None:
            raise Unreadable(f"op {op!r} is not a row change: expected 'c', 'r', 'u' or 'd'")
        if (before if kind is RowKind.DELETE else after) is None:
            missing = "before" if kind is RowKind.DELETE else "after"
            hint = "; on PostgreSQL, set the table's REPLICA IDENTITY to FULL" if kind is RowKind.DELETE else ""
            raise Unreadable(f"a change with op {op!r} without {missing!r}{hint}")
        source = _object(payload.get("source") or {})
        decode = self._decoder(schema)
        before, after = _decode_row(decode, before, "before"), _decode_row(decode, after, "after")
        yield _Change(kind, before, after, _text(source, "db"), _text(source, "table"), _time(source, "ts_ms"))

    def _decoder(self, schema: bytes) -> Decode:
        """The row decoder for a message's schema. A topic has few schemas."""
        decoder = self._decoders.get(schema)
        if decoder is None:
            if len(self._decoders) >= _MAX_SCHEMAS:
                self._decoders.clear()
            type: TypeInformation[T] = self.type_info  # type: ignore[assignment]  # __post_init__ converts it
            decoder = self._decoders[schema] = row_decoder(type, _schema_of_rows(schema), self._modes)
        return decoder


def _schema_of_rows(schema: bytes) -> dict[str, Any]:
    envelope = JsonText(None).decode(schema) if schema else None
    fields = envelope.get("fields") if isinstance(envelope, dict) else None
    for field in fields if isinstance(fields, list) else ():
        if isinstance(field, dict) and field.get("field") in ("after", "before"):
            return field
    return {}


def _decode_row(decode: Decode, row: Any, name: str) -> Any:
    try:
        return decode(row)
    except Unreadable as error:
        raise Unreadable(f"{name}: {error}") from None


_CANAL = {"INSERT": RowKind.INSERT, "UPDATE": RowKind.UPDATE_AFTER, "DELETE": RowKind.DELETE}


@dataclass(frozen=True)
class CanalJsonDeserializationSchema(_ChangeDeserializationSchema[T], Generic[T]):
    """Reads Canal's JSON as changes of rows of ``type_info``: see `change_type`. Schema changes are skipped.

    Canal writes all values as text, which is parsed like CSV values. Numbers and booleans, which Flink writes, are read too.
    """

    def _rows(self, type: TypeInformation[T]) -> RecordConverter:
        return RecordConverter(type, from_text=True)

    def _changes(self, message: Any) -> Iterator[_Change]:
        if message.get("isDdl") is True:
            return
        type, data = message.get("type"), message.get("data")
        kind = _CANAL.get(type) if isinstance(type, str) else None
        if kind is None:
            raise Unreadable(f"type {type!r} is not a row change: expected 'INSERT', 'UPDATE' or 'DELETE'")
        if not isinstance(data, list):
            raise Unreadable(f"data: expected an array, got {shorten(repr(data), 80)}")
        old = message.get("old") if kind is RowKind.UPDATE_AFTER else None
        if old is not None and (not isinstance(old, list) or len(old) != len(data)):
            raise Unreadable(f"old: expected an array of {len(data)} objects, got {shorten(repr(old), 80)}")
        origin = _text(message, "database"), _text(message, "table"), _time(message, "es")
        for values, changed in zip(data, old or [None] * len(data), strict=True):
            row = _as_text(_object(values))
            if kind is RowKind.DELETE:
                yield _Change(kind, row, None, *origin)
            else:  # old has only the changed values
                before = None if changed is None else {**row, **_as_text(_object(changed))}
                yield _Change(kind, before, row, *origin)


_NUMBERS = msgspec.json.Encoder(decimal_format="number")


def _as_text(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value if value is None or isinstance(value, str) else _NUMBERS.encode(value).decode()
        for name, value in values.items()
    }


_MAXWELL = {
    "insert": RowKind.INSERT,
    "bootstrap-insert": RowKind.INSERT,
    "update": RowKind.UPDATE_AFTER,
    "delete": RowKind.DELETE,
}
_NO_ROWS = (
    "bootstrap-start",
    "bootstrap-complete",
    "table-create",
    "table-alter",
    "table-drop",
    "database-create",
    "database-drop",
)


@dataclass(frozen=True)
class MaxwellJsonDeserializationSchema(_ChangeDeserializationSchema[T], Generic[T]):
    """Reads Maxwell's JSON as changes of rows of ``type_info``: see `change_type`. Schema changes are skipped, and the rows of a
    bootstrap are INSERTs."""

    def _rows(self, type: TypeInformation[T]) -> RecordConverter:
        return RecordConverter(type)

    def _changes(self, message: Any) -> Iterator[_Change]:
        type = message.get("type")
        if type in _NO_ROWS:
            return
        kind = _MAXWELL.get(type) if isinstance(type, str) else None
        if kind is None:
            raise Unreadable(f"type {type!r} is not a row change: expected 'insert', 'update' or 'delete'")
        row, old = _object(message.get("data")), message.get("old") if kind is RowKind.UPDATE_AFTER else None
        origin = _text(message, "database"), _text(message, "table"), _time(message, "ts", 1000)
        if kind is RowKind.DELETE:
            yield _Change(kind, row, None, *origin)
        else:  # old has only the changed values
            yield _Change(kind, None if old is None else {**row, **_object(old)}, row, *origin)


def _object(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise Unreadable(f"expected an object, got {shorten(repr(value), 80)}")


def _text(values: dict[str, Any], name: str) -> str | None:
    value = values.get(name)
    if value is None or isinstance(value, str):
        return value
    raise Unreadable(f"{name}: expected str, got {shorten(repr(value), 80)}")


def _time(values: dict[str, Any], name: str, unit_ms: int = 1) -> datetime | None:
    value = values.get(name)
    if value is None:
        return None
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            return _EPOCH + timedelta(milliseconds=value * unit_ms)
    except OverflowError:
        pass
    raise Unreadable(
        f"{name}: expected {'milliseconds' if unit_ms == 1 else 'seconds'} since 1970, got {shorten(repr(value), 80)}"
    )
