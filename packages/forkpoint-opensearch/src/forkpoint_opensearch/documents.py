"""Encodes elements as staged rows.

The staged row of a document is ``+``, its id and the document in JSON; without the user's ids, the id is None. The staged row of
a deletion is ``-`` and the id.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from forkpoint.connectors.rows import StagedRow
from forkpoint.connectors.upserts import fields_of
from forkpoint.contract.sink import SinkBatch
from forkpoint.errors import ConfigError, TypeNotSupported
from forkpoint.types import Row, RowKind

MAX_ID_BYTES = 512


def _encode_numpy(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{value!r} of type {type(value).__qualname__} has no JSON form")


_encoder = msgspec.json.Encoder(enc_hook=_encode_numpy)


class DocumentEncoder:
    """Converts elements to staged rows. ``id``: a field's name or a function of an element. ``document``: a function of an
    element."""

    def __init__(self, index: str, id: str | Callable[[Any], Any] | None, document: Callable[[Any], Any] | None) -> None:
        self._index = index
        self._id = id
        self._document = document

    def __call__(self, batch: SinkBatch[Any]) -> Iterator[StagedRow]:
        for element in batch.values:
            yield from self._rows(element)

    def _rows(self, element: Any) -> Iterator[StagedRow]:
        if not (isinstance(element, tuple) and getattr(element, "_fields", ())[:3] == ("kind", "before", "after")):
            yield from self._row(element)
            return
        change: Any = element
        if change.kind is RowKind.UPDATE_BEFORE:
            return
        if change.kind is RowKind.DELETE:
            yield self._deletion(change.before)
            return
        rows = list(self._row(change.after))
        if change.kind is RowKind.UPDATE_AFTER and change.before is not None and self._id is not None:
            before = self._deletion(change.before)
            if all(row[1] != before[1] for row in rows):  # also if the function now skips the document
                yield before
        yield from rows

    def _row(self, element: Any) -> Iterator[StagedRow]:
        if isinstance(element, Row) and element.get_row_kind() is RowKind.UPDATE_BEFORE:
            return
        if isinstance(element, Row) and element.get_row_kind() is RowKind.DELETE:
            yield self._deletion(element)
            return
        record = element if self._document is None else self._document(element)
        if record is None:
            return
        if isinstance(record, Row) and record.get_row_kind() is RowKind.DELETE:
            yield self._deletion(element, record)
            return
        document = self._encoded(record)
        yield [b"+", None if self._id is None else self._id_of(element, record), document]

    def _deletion(self, element: Any, made: Any = None) -> StagedRow:
        if self._id is None:
            raise ConfigError(f"OpenSearchSink: {element!r} is a deletion, which needs ids: id=…")
        return [b"-", self._id_of(element, made)]

    def _id_of(self, element: Any, made: Any) -> bytes:
        if callable(self._id):
            value = self._id(element)
        else:
            value = None
            for record in (element, made):
                if value is None and record is not None:
                    try:
                        value = fields_of(record).get(str(self._id))
                    except TypeError:
                        continue
        if isinstance(value, bool) or not isinstance(value, str | int | uuid.UUID | np.integer) or value == "":
            raise ConfigError(
                f"OpenSearchSink: the id of {element!r} in the index {self._index!r} is {value!r}; it must be a text or an "
                "integer"
            )
        return checked_id(str(value))

    def _encoded(self, made: Any) -> bytes:
        try:
            fields = fields_of(made)
        except TypeError as error:
            raise ConfigError(
                f"OpenSearchSink: {error}; write records (named tuples, dataclasses, Rows with names or dicts), or give the sink "
                "a function that converts an element to a record: document=…"
            ) from None
        try:
            return _encoder.encode(_plain(fields))
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeNotSupported(f"OpenSearchSink: {made!r} cannot be encoded as a JSON document: {error}") from None


def checked_id(id: str) -> bytes:
    """Raises ConfigError for a text that cannot be an id."""
    encoded = id.encode()
    if not id:
        raise ConfigError("OpenSearchSink: the key of a row is an empty text, which cannot be an id")
    if len(encoded) > MAX_ID_BYTES:
        raise ConfigError(f"OpenSearchSink: the id {id!r} has {len(encoded)} bytes; {MAX_ID_BYTES} are allowed")
    return encoded


def _plain(value: Any) -> Any:
    """Converts the records in a value to mappings."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, Row) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return _plain(fields_of(value))
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
