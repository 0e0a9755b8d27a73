"""Keys as columns: vectorized grouping and store keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.graph.transformations import KeyBy
from forkpoint.runtime.columnar.codes import codes_of
from forkpoint.runtime.columnar.leaves import Codec, column_of, numbers, to_list
from forkpoint.runtime.columnar.msgpack import Kind, decode_rows, encode_array, writable
from forkpoint.runtime.columnar.msgpack import decode as decode_numbers
from forkpoint.runtime.columnar.msgpack import encode as encode_numbers
from forkpoint.runtime.columnar.segments import run_starts
from forkpoint.runtime.exchange.batch import Batch, Longs, stable_order
from forkpoint.runtime.exchange.grouping import key_column
from forkpoint.runtime.expressions.keys import is_computed
from forkpoint.runtime.operators.keyed_process import order_of
from forkpoint.state import hash_column, hash_encoded, key_group
from forkpoint.types import TypeInformation
from forkpoint.types.keys import canonical_column
from forkpoint.types.kinds.records import ARRAY_FLAVORS, RecordType

_STATE = np.dtype([("kg", ">u2"), ("sid", ">u4"), ("len", ">u4")])
_TIMER = np.dtype([("kg", ">u2"), ("sid", ">u4"), ("ts", ">u8"), ("len", ">u4")])


def key_parts(key: KeyBy, elements: TypeInformation | None) -> tuple[TypeInformation, ...] | None:
    """The types of a key's columns; None if the key of these elements does not consist of columns with support for grouping."""
    type = key.key_type
    if type is None or (key.columns is None and not is_computed(key, elements)):
        return None
    if not key.single and not (isinstance(type, RecordType) and type.flavor == "tuple"):
        return None
    parts = (type,) if key.single else type.children
    fits = len(parts) == max(1, len(key.columns or ())) and all(
        any(is_kind(part.arrow_type) for is_kind in (pa.types.is_primitive, pa.types.is_string, pa.types.is_decimal))
        for part in parts
    )
    return parts if fits else None


def key_columns(batch: Batch, key: KeyBy, parts: Sequence[TypeInformation]) -> list[pa.Array] | None:
    """The key's columns of a batch, in canonical form; None if they have nulls or types other than ``parts``."""
    if batch.table is None:
        return None
    if not key.columns:
        column = key_column(batch, key)
        return None if column is None else [column]
    schema = batch.table.schema
    columns = [batch.table.column(schema.get_field_index(name)) for name in key.columns]
    if not all(c.type == part.arrow_type and not c.null_count for c, part in zip(columns, parts, strict=True)):
        return None
    return list(map(canonical_column, columns, parts))


def parts_of(keys: pa.Array, key: KeyBy) -> list[pa.Array]:
    """The columns of keys given as one array."""
    return [keys] if key.single else list(keys.flatten())


@dataclass
class KeySet:
    """Distinct keys, in any order, and the store keys of their entries."""

    column: pa.Array
    type: TypeInformation
    max_parallelism: int

    @cached_property
    def encoded(self) -> pa.BinaryArray:
        kind = _number_kind(self.column.type)
        if kind is not None and not self.column.null_count:
            return encode_numbers((kind,), [numbers(self.column)], len(self.column))
        if isinstance(self.type, RecordType) and self.type.flavor in ARRAY_FLAVORS and writable(self.type):
            return encode_array(self.column, self.type)
        return pa.array(list(map(self.type.encode, self.type.from_arrow(self.column))), pa.binary())

    @cached_property
    def hashes(self) -> npt.NDArray[np.uint32]:
        is_struct = pa.types.is_struct(self.column.type)
        return hash_encoded(to_list(self.encoded)) if is_struct else hash_column(self.column, self.type)

    @cached_property
    def groups(self) -> npt.NDArray[Any]:
        return np.asarray(key_group(self.hashes, self.max_parallelism))

    @cached_property
    def tie_breakers(self) -> Longs:
        """Numbers that order the timers of different keys at the same time."""
        return np.fromiter(map(order_of, to_list(self.encoded)), np.int64, len(self.column))

    def names(self, sid: int, which: Longs | None = None, spaces: pa.BinaryArray | None = None) -> list[bytes]:
        """The store keys of a state for the keys at ``which`` (None: all), with these namespaces."""
        return self._names(sid, which, spaces, None)

    def timers(self, sid: int, times_ms: Longs, which: Longs, spaces: pa.BinaryArray) -> list[bytes]:
        """The store keys of timers for the keys at ``which``."""
        return self._names(sid, which, spaces, times_ms)

    def _names(self, sid: int, which: Longs | None, spaces: pa.BinaryArray | None, times_ms: Longs | None) -> list[bytes]:
        """See state/keys.py for the layout."""
        groups, keys = self.groups, self.encoded
        if which is not None:
            groups, keys = groups[which], keys.take(pa.array(which))
        if not len(keys):
            return []
        heads = np.empty(len(keys), _STATE if times_ms is None else _TIMER)
        heads["kg"], heads["sid"], heads["len"] = groups, sid, numbers(pc.binary_length(keys))
        if times_ms is not None:
            heads["ts"] = times_ms.view(np.uint64) ^ np.uint64(1 << 63)  # + 2**63
        fixed = pa.Array.from_buffers(pa.binary(heads.dtype.itemsize), len(heads), [None, pa.py_buffer(heads)])
        parts = [fixed.cast(pa.binary()), keys] if spaces is None else [fixed.cast(pa.binary()), keys, spaces]
        return to_list(pc.binary_join_element_wise(*parts, b""))


@dataclass(frozen=True)
class GroupedRows:
    """Rows by key: the rows of the i-th key are ``order[starts[i]:starts[i + 1]]``."""

    keys: KeySet
    order: Longs
    starts: Longs

    @staticmethod
    def of(columns: Sequence[pa.Array], key: KeyBy, max_parallelism: int) -> GroupedRows:
        """``columns``: the key's columns, with at least one row."""
        assert key.key_type is not None
        order, codes = stable_order(codes_of(columns))
        starts = np.flatnonzero(run_starts(codes))
        firsts = pa.array(order[starts])
        found = column_of([column.take(firsts) for column in columns], key.key_type)
        return GroupedRows(KeySet(found, key.key_type, max_parallelism), order, np.append(starts, len(order)))


def read_timers(names: Sequence[bytes]) -> tuple[Longs, list[bytes], list[bytes]]:
    """The times, encoded keys and namespaces of timers, from their store keys."""
    times = np.frombuffer(b"".join([name[6:14] for name in names]), ">u8").astype(np.uint64) ^ np.uint64(1 << 63)
    ends = [18 + int.from_bytes(name[14:18], "big") for name in names]
    keys = [name[18:end] for name, end in zip(names, ends, strict=True)]
    return times.view(np.int64), keys, [name[end:] for name, end in zip(names, ends, strict=True)]


def decode_keys(encoded: Sequence[bytes], type: TypeInformation) -> pa.Array:
    """Encoded keys as one array of their type, with null for None."""
    if isinstance(type, RecordType):
        return column_of(decode_rows(type, encoded) or Codec(type).columns(encoded), type)
    kind = _number_kind(type.arrow_type)
    found = decode_numbers((kind,), encoded) if kind is not None and encoded else None
    return type.to_arrow(list(map(type.decode, encoded))) if found is None else pa.array(found[0], type.arrow_type)


def _number_kind(type: pa.DataType) -> Kind | None:
    if pa.types.is_integer(type):
        return "int"
    return "float" if pa.types.is_floating(type) else None
