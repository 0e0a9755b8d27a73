"""The base of forkpoint's formats, which read batches of messages into columns and find bad messages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, Generic

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.connectors.formats.records import RecordConverter, Unreadable
from forkpoint.contract.format import BadMessage, DeserializationSchema, Deserialized
from forkpoint.errors import RecordParseError, TypeNotSupported
from forkpoint.types import Row, TypeInformation
from forkpoint.types.variables import T
from forkpoint.types.wire import shown


@dataclass(frozen=True)
class Part:
    """The elements of some messages. ``indices`` are those of the elements' messages."""

    elements: pa.RecordBatch
    indices: npt.NDArray[np.int64]
    bad: tuple[BadMessage, ...] = ()

    @staticmethod
    def whole(elements: pa.RecordBatch, start: int) -> Part:
        """One element for each message from ``start`` on."""
        return Part(elements, np.arange(start, start + elements.num_rows))

    def at(self, places: npt.NDArray[np.int64]) -> Part:
        """The same part, for messages with these indices in a larger batch."""
        bad = tuple(BadMessage(int(places[message.index]), message.problem) for message in self.bad)
        return Part(self.elements, places[self.indices], bad)


class Declared:
    """Pickles a dataclass without cached properties, because decoders cannot be pickled."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]  # a mixin


class BatchDeserializationSchema(DeserializationSchema[T], Generic[T]):
    """A format that reads batches; a single message is a batch of one."""

    ignore_parse_errors: bool

    @abstractmethod
    def get_produced_type(self) -> TypeInformation[T]: ...

    @abstractmethod
    def read(self, messages: pa.BinaryArray) -> Iterable[Part]:
        """Read messages, none of which is null."""

    def deserialize(self, message: bytes) -> T:
        found = self._deserialized(pa.array([message], pa.binary()))
        if found.bad:
            raise RecordParseError(found.bad[0].problem)
        elements: list[T] = self.get_produced_type().from_columns(found.elements.columns)
        if len(elements) != 1:
            raise RecordParseError(f"a message of {len(elements)} elements")
        return elements[0]

    def deserialize_batch(self, messages: pa.BinaryArray) -> Deserialized[T]:
        places = None
        if messages.null_count:
            places = np.flatnonzero(messages.is_valid().to_numpy(zero_copy_only=False))
            messages = messages.drop_null()
        found = self._deserialized(messages)
        bad = () if self.ignore_parse_errors else found.bad
        if places is None and found.indices is None:
            return Deserialized(found.elements, None, bad)
        indices = np.arange(len(messages)) if found.indices is None else found.indices
        if places is not None:
            indices = places[indices]
            bad = tuple(BadMessage(int(places[each.index]), each.problem) for each in bad)
        return Deserialized(found.elements, indices.tolist(), bad)

    def _deserialized(self, messages: pa.BinaryArray) -> _Found:
        parts = list(self.read(messages))
        schema = self.get_produced_type().arrow_schema
        if len(parts) == 1:
            elements = parts[0].elements
        else:
            table = pa.Table.from_batches([part.elements for part in parts], schema).combine_chunks()
            elements = (table.to_batches() or [pa.RecordBatch.from_pylist([], schema=schema)])[0]
        indices = np.concatenate([np.empty(0, np.int64), *(part.indices for part in parts)])
        if (np.diff(indices) < 0).any():  # a part has messages that are not neighbours
            order = np.argsort(indices, kind="stable")
            elements, indices = elements.take(pa.array(order)), indices[order]
        bad = tuple(sorted((each for part in parts for each in part.bad), key=lambda each: each.index))
        one_to_one = not bad and len(indices) == len(messages) and bool((indices == np.arange(len(indices))).all())
        return _Found(elements, None if one_to_one else indices, bad)


@dataclass(frozen=True)
class _Found:
    elements: pa.RecordBatch
    indices: npt.NDArray[np.int64] | None
    bad: tuple[BadMessage, ...]


def read_each(messages: pa.BinaryArray, start: int, decode: Callable[[bytes], Any], converter: RecordConverter) -> Part:
    """Decode messages one by one (``decode`` raises Unreadable), and convert them together."""
    raws: list[Any] = []
    indices: list[int] = []
    bad: list[BadMessage] = []
    for index, message in enumerate(messages.to_pylist(), start):
        try:
            raws.append(decode(message))
            indices.append(index)
        except Unreadable as error:
            bad.append(BadMessage(index, str(error)))
    elements, problems = converter.convert(raws)
    assert isinstance(elements, pa.RecordBatch)
    unconverted = {at for at, _ in problems}
    bad += [BadMessage(indices[at], problem) for at, problem in problems]
    kept = [index for at, index in enumerate(indices) if at not in unconverted]
    return Part(elements, np.array(kept, np.int64), tuple(sorted(bad, key=lambda each: each.index)))


def spans(messages: pa.BinaryArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The buffer of messages, and their starts and ends in it."""
    _, offsets, data = messages.buffers()
    limits = np.frombuffer(offsets or b"", np.int32)[messages.offset :][: len(messages) + 1]
    return np.frombuffer(data or b"", np.uint8), limits[:-1], limits[1:]


def elements_of(values: list[Any], type: TypeInformation) -> list[Any]:
    """Elements with exactly the type's fields: tuples and rows without names match by position, other rows by name."""
    if type.fields is None or not _may_be_nameless(values):
        return values
    names = tuple(field.name for field in type.fields)
    if all(_has_fields(value, names) for value in values):
        return values
    return type.from_columns(type.to_columns(values))


def _has_fields(value: Any, names: tuple[str, ...]) -> bool:
    """Whether a record has these fields. Raises TypeNotSupported if it lacks one of them."""
    if is_nameless(value):
        return False
    if not isinstance(value, Row) or value.field_names == names:
        return True
    lacks = [name for name in names if name not in value.as_dict()]
    if lacks:
        raise TypeNotSupported(
            f"{shown(value)} has no field {lacks[0]!r}; give the rows all fields of the schema's type: {', '.join(names)}"
        )
    return False


def _may_be_nameless(values: list[Any]) -> bool:
    """A fast check of the values' classes."""
    return any(cls is tuple or issubclass(cls, Row) for cls in set(map(type, values)))


def is_nameless(value: Any) -> bool:
    """Whether a record's fields have only positions."""
    return value.field_names is None if isinstance(value, Row) else type(value) is tuple


def by_position(value: Any) -> Any:
    """A value with unnamed rows instead of rows whose names only give positions (f0, f1, …), like those of a ROW without
    names."""
    if isinstance(value, Row) and value.field_names == tuple(f"f{i}" for i in range(len(value))):
        row = Row(*map(by_position, value))
        row.set_row_kind(value.get_row_kind())
        return row
    return list(map(by_position, value)) if type(value) is list else value
