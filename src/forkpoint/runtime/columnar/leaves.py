"""Values of a type as leaves: one Arrow array for each innermost field of a nested record. Also a codec for saved values.

All leaves of a None record are null. The witness, a leaf that is never None, distinguishes it from a record of Nones. An optional
record with only optional fields has no witness, so it is one leaf.
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
    return None if inner is not type and _never_none(inner) is None else inner


def witness(type: TypeInformation) -> int:
    """The leaf that is null exactly where the value is None."""
    record = record_of(type)
    return 0 if record is None else _never_none(record) or 0


def _never_none(record: RecordType) -> int | None:
    """The index of a leaf that is never None."""
    index = 0
    for member in record.members:
        if not member.type.nullable:
            found = _never_none(member.type) if isinstance(member.type, RecordType) and member.type.members else 0
            if found is not None:
                return index + found
        index += len(leaf_types(member.type))
    return None


def leaf_types(type: TypeInformation) -> list[TypeInformation]:
    record = record_of(type)
    if record is None:
        return [present(type)]
    return [leaf for member in record.members for leaf in leaf_types(member.type)]


def empty_leaves(type: TypeInformation) -> Leaves:
    return [pa.array([], leaf.arrow_type) for leaf in leaf_types(type)]


def split_leaves(array: pa.Array, type: TypeInformation) -> Leaves:
    """The leaves of a column, all null where a record is null."""
    record = record_of(type)
    if record is None:
        return [array]
    columns = zip(array.flatten(), record.members, strict=True)
    return [leaf for column, member in columns for leaf in split_leaves(column, member.type)]


def join_leaves(leaves: Iterator[pa.Array], type: TypeInformation) -> pa.Array:
    """The inverse of ``split_leaves``."""
    record = record_of(type)
    if record is None:
        return next(leaves)
    own = list(islice(leaves, len(leaf_types(type))))
    rest = iter(own)
    columns = [join_leaves(rest, member.type) for member in record.members]
    mask = own[witness(type)].is_null() if isinstance(type, OptionalType) else None
    return pa.StructArray.from_arrays(columns, fields=list(record.arrow_type), mask=mask)


def column_types(type: TypeInformation) -> list[TypeInformation]:
    """The types of a type's columns: the field types of a record, else the type itself."""
    return [field.type for field in type.fields] if type.fields else [type]


def to_columns(leaves: Sequence[pa.Array], type: TypeInformation) -> list[pa.Array]:
    """The columns of a type from its leaves."""
    rest = iter(leaves)
    return [join_leaves(rest, of) for of in column_types(type)]


class Codec:
    """Converts saved values of one type to leaves and back, vectorized if they consist of numbers, else one by one."""

    def __init__(self, type: TypeInformation) -> None:
        self.type = type
        self.types = leaf_types(type)
        flat = all(record_of(leaf) is None for leaf in self.types)
        self._layout = msgpack.layout_of(type) if flat else None
        self._writable = msgpack.writable(type)
        self._plain = self._writable and _is_plain(type)

    def encode(self, leaves: Sequence[pa.Array]) -> list[bytes]:
        """Sets must have their values in saved order."""
        if not len(leaves[0]):
            return []
        if self._layout is not None and not any(leaf.null_count for leaf in leaves):
            return to_list(msgpack.encode(self._layout, list(map(numbers, leaves)), len(leaves[0])))
        columns = to_columns(leaves, self.type)
        if self._writable:
            with suppress(pa.ArrowCapacityError):  # more than 2 GiB in one array
                return to_list(msgpack.encode_array(column_of(columns, self.type), self.type))
        return list(map(self.type.encode, self.type.from_columns(columns)))

    def decode(self, raw: Sequence[bytes]) -> Leaves | None:
        """The leaves of saved values; None if the columns cannot hold a value."""
        with suppress(TypeNotSupported):  # an int beyond 64 bits
            return self._numbers(raw) or self.leaves_of(self.type.to_columns(list(map(self.type.decode, raw))))
        return None

    def read(self, store: Store, names: Sequence[bytes]) -> tuple[Leaves, Any] | None:
        """The stored values of these store keys, and the index of each key's value, -1 for none; None as in ``decode``."""
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
        return [leaf for column, of in parts for leaf in split_leaves(column, of)]

    def _numbers(self, raw: Sequence[bytes]) -> Leaves | None:
        found = None if self._layout is None or not raw else msgpack.decode(self._layout, raw)
        return None if found is None else [pa.array(n, of.arrow_type) for n, of in zip(found, self.types, strict=True)]

    def columns(self, raw: Sequence[bytes]) -> list[pa.Array]:
        """Saved values as the type's columns."""
        found = self._numbers(raw)
        if found is None:
            return self.type.to_columns(list(map(self.type.decode, raw)))
        return to_columns(found, self.type)

    def columns_at(self, data: Any, at: Any, ends: Any) -> list[pa.Array] | None:
        """``columns`` of values that begin and end at offsets of ``padded`` bytes; None unless they are all numbers, or texts."""
        if not len(at):
            return None
        if self.type.kind == "string":
            texts = msgpack.texts_at(data, at, ends)
            return None if texts is None else [texts]
        found = None if self._layout is None else msgpack.decode_at(self._layout, data, at, ends)
        if found is None:
            return None
        return to_columns([pa.array(n, of.arrow_type) for n, of in zip(found, self.types, strict=True)], self.type)

    def encode_columns(self, columns: Sequence[pa.Array]) -> list[bytes]:
        """The inverse of ``columns``."""
        leaves = [] if self._layout is None else self.leaves_of(columns)
        if not leaves or any(leaf.null_count for leaf in leaves):
            return list(map(self.type.encode, self.type.from_columns(columns)))
        return self.encode(leaves)

    def encode_binary(self, columns: Sequence[pa.Array]) -> pa.Array | None:
        """``encode_columns`` as one binary array; None if the values are not plain numbers, texts and records of these."""
        leaves = [] if self._layout is None else self.leaves_of(columns)
        if self._layout is not None and not any(leaf.null_count for leaf in leaves):
            return msgpack.encode(self._layout, list(map(numbers, leaves)), len(columns[0])) if leaves else None
        if self._plain:
            with suppress(pa.ArrowCapacityError):  # more than 2 GiB in one array
                return msgpack.encode_array(column_of(columns, self.type), self.type)
        return None


def _is_plain(type: TypeInformation) -> bool:
    """Whether values have one encoding, which follows from their columns."""
    if isinstance(type, OptionalType | RecordType):
        return all(map(_is_plain, type.children))
    return type.kind in ("byte", "short", "int", "long", "double", "boolean", "string", "bytes")


def to_list(array: pa.Array) -> list[Any]:
    """The entries of a binary array."""
    found: list[Any] = numbers(array).tolist()
    return found


def numbers(array: pa.Array) -> Any:
    return array.to_numpy(zero_copy_only=False)


def merged(new: pa.Array, saved: pa.Array, use_saved: Any, saved_at: Any) -> pa.Array:
    """At each index, the saved entry ``saved_at`` where ``use_saved``, else the new entry."""
    if not use_saved.any():
        return new
    indices = np.arange(len(new))
    indices[use_saved] = len(new) + saved_at[use_saved]
    return pa.concat_arrays([new, saved]).take(pa.array(indices))


def column_of(columns: Sequence[pa.Array], type: TypeInformation) -> pa.Array:
    """The columns of a type as one array."""
    if not isinstance(type, RecordType) or not type.members:
        return columns[0]
    return pa.StructArray.from_arrays(list(columns), fields=list(type.arrow_type))
