"""Values of a type as leaves, one Arrow array for each part without parts of its own; and saved values as leaves.

All leaves of a None record are null. One leaf, the witness, distinguishes it from a record of Nones; an optional record with only
optional fields has none, so it is one leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.errors import TypeNotSupported
from forkpoint.runtime.columnar import msgpack
from forkpoint.state import Store
from forkpoint.types import TypeInformation
from forkpoint.types.kinds.containers import OptionalType, present
from forkpoint.types.kinds.records import RecordType

Leaves = list[pa.Array]


def record_of(type: TypeInformation) -> RecordType | None:
    """The record type of an optional or plain record; None for other types, and for a record that is one leaf."""
    inner = present(type)
    if not isinstance(inner, RecordType) or not inner.members:
        return None
    return None if inner is not type and _certain(inner) is None else inner


def witness(type: TypeInformation) -> int:
    """The leaf that is null exactly where the value is None."""
    record = record_of(type)
    return 0 if record is None else _certain(record) or 0


def _certain(record: RecordType) -> int | None:
    """A leaf of the record that is never None."""
    at = 0
    for member in record.members:
        if not member.type.nullable:
            found = _certain(member.type) if isinstance(member.type, RecordType) and member.type.members else 0
            if found is not None:
                return at + found
        at += len(leaf_types(member.type))
    return None


def leaf_types(type: TypeInformation) -> list[TypeInformation]:
    record = record_of(type)
    if record is None:
        return [present(type)]
    return [leaf for member in record.members for leaf in leaf_types(member.type)]


def empty_leaves(type: TypeInformation) -> Leaves:
    return [pa.array([], leaf.arrow_type) for leaf in leaf_types(type)]


def take_apart(array: pa.Array, type: TypeInformation) -> Leaves:
    """The leaves of a column; all null where a record is null."""
    record = record_of(type)
    if record is None:
        return [array]
    columns = zip(array.flatten(), record.members, strict=True)
    return [leaf for column, member in columns for leaf in take_apart(column, member.type)]


def put_together(leaves: Iterator[pa.Array], type: TypeInformation) -> pa.Array:
    """The inverse of ``take_apart``."""
    record = record_of(type)
    if record is None:
        return next(leaves)
    mine = list(islice(leaves, len(leaf_types(type))))
    rest = iter(mine)
    columns = [put_together(rest, member.type) for member in record.members]
    mask = mine[witness(type)].is_null() if isinstance(type, OptionalType) else None
    return pa.StructArray.from_arrays(columns, fields=list(record.arrow_type), mask=mask)


def column_types(type: TypeInformation) -> list[TypeInformation]:
    """The types of a type's columns: of a record those of its fields."""
    return [field.type for field in type.fields] if type.fields else [type]


def to_columns(leaves: Sequence[pa.Array], type: TypeInformation) -> list[pa.Array]:
    """The columns of a type from its leaves."""
    rest = iter(leaves)
    return [put_together(rest, of) for of in column_types(type)]


class Codec:
    """Saved values of one type to leaves and back: vectorized if they consist of numbers, else one by one."""

    def __init__(self, type: TypeInformation) -> None:
        self.type = type
        self.types = leaf_types(type)
        apart = all(record_of(leaf) is None for leaf in self.types)
        self._layout = msgpack.layout_of(type) if apart else None
        self._writable = msgpack.writable(type)

    def encode(self, leaves: Sequence[pa.Array]) -> list[bytes]:
        """Sets must have their values in the order in which they are saved."""
        if not len(leaves[0]):
            return []
        if self._layout is not None and not any(leaf.null_count for leaf in leaves):
            return to_list(msgpack.encode(self._layout, list(map(numbers, leaves)), len(leaves[0])))
        columns = to_columns(leaves, self.type)
        if self._writable:
            with suppress(pa.ArrowCapacityError):  # over 2 GiB in one array
                return to_list(msgpack.encode_array(column_of(columns, self.type), self.type))
        return list(map(self.type.encode, self.type.from_columns(columns)))

    def decode(self, raw: Sequence[bytes]) -> Leaves | None:
        """None if the columns cannot hold a value."""
        with suppress(TypeNotSupported):  # an int beyond 64 bits
            return self._numbers(raw) or self.leaves_of(self.type.to_columns(list(map(self.type.decode, raw))))
        return None

    def read(self, store: Store, names: Sequence[bytes]) -> tuple[Leaves, Any] | None:
        """The stored values of these names, and for each name the index of its value, -1 for none; None as in ``decode``."""
        raw = store.get_many(names)
        held = np.fromiter((r is not None for r in raw), bool, len(raw))
        stored = [r for r in raw if r is not None]
        leaves = self.decode(stored) if stored else empty_leaves(self.type)
        at = np.full(len(raw), -1)
        at[held] = np.arange(len(stored))
        return None if leaves is None else (leaves, at)

    def leaves_of(self, columns: Sequence[pa.Array]) -> Leaves:
        """The leaves of the type's columns."""
        parts = zip(columns, column_types(self.type), strict=True)
        return [leaf for column, of in parts for leaf in take_apart(column, of)]

    def _numbers(self, raw: Sequence[bytes]) -> Leaves | None:
        found = None if self._layout is None or not raw else msgpack.decode(self._layout, raw)
        return None if found is None else [pa.array(n, of.arrow_type) for n, of in zip(found, self.types, strict=True)]

    def columns(self, raw: Sequence[bytes]) -> list[pa.Array]:
        """Saved values as the type's columns."""
        found = self._numbers(raw)
        if found is None:
            return self.type.to_columns(list(map(self.type.decode, raw)))
        return to_columns(found, self.type)

    def encode_columns(self, columns: Sequence[pa.Array]) -> list[bytes]:
        """The inverse of ``columns``."""
        leaves = [] if self._layout is None else self.leaves_of(columns)
        if not leaves or any(leaf.null_count for leaf in leaves):
            return list(map(self.type.encode, self.type.from_columns(columns)))
        return self.encode(leaves)


def to_list(array: pa.Array) -> list[Any]:
    """The entries of a binary array."""
    found: list[Any] = numbers(array).tolist()
    return found


def numbers(array: pa.Array) -> Any:
    return array.to_numpy(zero_copy_only=False)


def merged(new: pa.Array, saved: pa.Array, use_saved: Any, saved_at: Any) -> pa.Array:
    """At each index the saved entry ``saved_at`` where ``use_saved``, else the new one."""
    if not use_saved.any():
        return new
    places = np.arange(len(new))
    places[use_saved] = len(new) + saved_at[use_saved]
    return pa.concat_arrays([new, saved]).take(pa.array(places))


def column_of(columns: Sequence[pa.Array], type: TypeInformation) -> pa.Array:
    """The columns of a type as one array."""
    if not isinstance(type, RecordType) or not type.members:
        return columns[0]
    return pa.StructArray.from_arrays(list(columns), fields=list(type.arrow_type))
