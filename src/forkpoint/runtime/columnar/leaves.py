"""Values of a type taken apart into leaves, one Arrow array for each part that has no parts, and saved values as such.

None occurs only in leaves: a record that is None has no leaves, so whoever meets one works element by element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.errors import TypeNotSupported
from forkpoint.runtime.columnar import msgpack
from forkpoint.types import TypeInformation
from forkpoint.types.containers import OptionalType
from forkpoint.types.records import RecordType

Leaves = list[pa.Array]


def record_of(type: TypeInformation) -> RecordType | None:
    """The record that a type is, Optional or not."""
    inner = type.of if isinstance(type, OptionalType) else type
    return inner if isinstance(inner, RecordType) and inner.members else None


def leaf_types(type: TypeInformation) -> list[TypeInformation]:
    record = record_of(type)
    if record is None:
        return [type.of if isinstance(type, OptionalType) else type]
    return [leaf for member in record.members for leaf in leaf_types(member.type)]


def take_apart(array: pa.Array, type: TypeInformation) -> Leaves | None:
    """The leaves of a column; None where a record in it is null."""
    record = record_of(type)
    if record is None:
        return [array]
    if array.null_count:
        return None
    found: Leaves = []
    for column, member in zip(array.flatten(), record.members, strict=True):
        leaves = take_apart(column, member.type)
        if leaves is None:
            return None
        found += leaves
    return found


def put_together(leaves: Iterator[pa.Array], type: TypeInformation) -> pa.Array:
    """The inverse of ``take_apart``."""
    record = record_of(type)
    if record is None:
        return next(leaves)
    columns = [put_together(leaves, member.type) for member in record.members]
    fields = [pa.field(m.name, m.type.arrow_type) for m in record.members]
    return pa.StructArray.from_arrays(columns, fields=fields)


def to_columns(leaves: Sequence[pa.Array], type: TypeInformation) -> list[pa.Array]:
    """The columns of a type (its fields, where it is a record) from its leaves."""
    rest = iter(leaves)
    record = record_of(type)
    if record is None or isinstance(type, OptionalType):
        return [put_together(rest, type)]
    return [put_together(rest, member.type) for member in record.members]


class Codec:
    """Saved values of one type to leaves and back: all at once where they are made of numbers, else one by one."""

    def __init__(self, type: TypeInformation) -> None:
        self.type = type
        self.types = leaf_types(type)
        self._layout = msgpack.layout_of(type)

    def encode(self, leaves: Sequence[pa.Array]) -> list[bytes]:
        if not len(leaves[0]):
            return []
        if self._layout is not None and not any(leaf.null_count for leaf in leaves):
            numbers = [leaf.to_numpy(zero_copy_only=False) for leaf in leaves]
            return to_list(msgpack.encode(self._layout, numbers, len(leaves[0])))
        return list(map(self.type.encode, self.type.from_columns(to_columns(leaves, self.type))))

    def decode(self, raw: Sequence[bytes]) -> Leaves | None:
        """None where a record is None, or a value isn't what the columns can hold."""
        found = self._numbers(raw)
        if found is not None:
            return found
        try:
            return self.leaves_of(self.type.to_columns(list(map(self.type.decode, raw))))
        except TypeNotSupported:  # Python's ints grow beyond those of columns
            return None

    def leaves_of(self, columns: Sequence[pa.Array]) -> Leaves | None:
        """The leaves of the type's columns; None where a record in them is null."""
        record = record_of(self.type)
        if record is None or isinstance(self.type, OptionalType):
            return take_apart(columns[0], self.type)
        found: Leaves = []
        for column, member in zip(columns, record.members, strict=True):
            leaves = take_apart(column, member.type)
            if leaves is None:
                return None
            found += leaves
        return found

    def _numbers(self, raw: Sequence[bytes]) -> Leaves | None:
        numbers = None if self._layout is None or not raw else msgpack.decode(self._layout, raw)
        return None if numbers is None else [_narrowed(n, of) for n, of in zip(numbers, self.types, strict=True)]

    def columns(self, raw: Sequence[bytes]) -> list[pa.Array]:
        """Saved values as the type's columns."""
        found = self._numbers(raw)
        if found is None:
            return self.type.to_columns(list(map(self.type.decode, raw)))
        return to_columns(found, self.type)

    def encode_columns(self, columns: Sequence[pa.Array]) -> list[bytes]:
        """The inverse of ``columns``."""
        leaves = None if self._layout is None else self.leaves_of(columns)
        if leaves is None:
            return list(map(self.type.encode, self.type.from_columns(columns)))
        return self.encode(leaves)


def _narrowed(numbers: Any, type: TypeInformation) -> pa.Array:
    arrow = type.arrow_type
    return pa.array(numbers, arrow) if arrow != pa.bool_() else pa.array(numbers)


def to_list(array: pa.Array) -> list[Any]:
    """A binary array as bytes."""
    found: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
    return found


def numbers(array: pa.Array) -> Any:
    return array.to_numpy(zero_copy_only=False)


def merged(new: pa.Array, saved: pa.Array, use_saved: Any, saved_at: Any) -> pa.Array:
    """For each place the saved entry ``saved_at`` where ``use_saved``, else the new one of the same place."""
    if not use_saved.any():
        return new
    places = np.arange(len(new))
    places[use_saved] = len(new) + saved_at[use_saved]
    return pa.concat_arrays([new, saved]).take(pa.array(places))
