"""Column-wise state, which reads and writes the entries of all keys of an epoch at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.errors import TypeNotSupported, UserFunctionError
from forkpoint.functions import BatchState, StateDescriptor
from forkpoint.runtime.columnar.keys import KeySet
from forkpoint.runtime.columnar.leaves import Codec, merged, numbers
from forkpoint.runtime.columnar.segments import Bools
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.runtime.state.ttl import Stamps


def _mask_of(where: Any, count: int, uid: str, name: str) -> Bools:
    """A mask of ``count`` keys, given as a numpy or Arrow array; None: all keys."""
    if where is None:
        return np.ones(count, bool)
    mask = np.asarray(where.to_numpy(zero_copy_only=False) if isinstance(where, pa.Array) else where)
    if mask.dtype != np.bool_ or mask.shape != (count,):
        raise UserFunctionError(
            f"operator {uid!r}, state {name!r}: the mask has shape {mask.shape} of {mask.dtype}; give one bool for each of "
            f"the {count} keys"
        )
    return mask


class ValueColumns(BatchState):
    """One value per key: value, reducing and aggregating states."""

    def __init__(self, backend: KeyedBackend, descriptor: StateDescriptor) -> None:
        self._backend, self.name, self.type = backend, descriptor.name, descriptor.value_type
        self._sid = backend.sid(descriptor.name)
        self._codec = Codec(descriptor.value_type)
        ttl = descriptor.ttl
        self._stamps = None if ttl is None else Stamps(ttl, backend)
        backend.record(
            descriptor.kind,
            descriptor.name,
            descriptor.value_type,
            ttl_ms=None if ttl is None else ttl.ttl_ms,
            definition=descriptor.definition,
        )
        self._names: list[bytes] | None = None
        self._keys: KeySet | None = None

    def begin(self, keys: KeySet) -> None:
        self._keys, self._names = keys, None

    def decoded(self, raw: Sequence[bytes]) -> list[pa.Array]:
        """Stored entries as columns."""
        return self._codec.columns(raw)

    def _load(self) -> None:
        assert self._keys is not None
        if self._names is not None:
            return
        self._names = self._keys.names(self._sid)
        raw: Sequence[bytes | None] = self._backend.store.get_many(self._names)
        count = len(raw)
        if self._stamps is not None:
            raw = self._stamps.live(raw)
        self._exists = np.fromiter((r is not None for r in raw), bool, count)
        self._dirty = np.zeros(count, bool)
        self._columns = self._codec.columns([r for r in raw if r is not None])
        if not self._exists.all():
            indices = pa.array(np.cumsum(self._exists) - 1, mask=~self._exists)
            self._columns = [column.take(indices) for column in self._columns]

    @property
    def exists(self) -> Bools:
        self._load()
        return self._exists.copy()

    def read(self) -> Any:
        self._load()
        if self.type.fields is None:
            return self._columns[0]
        return pa.RecordBatch.from_arrays(self._columns, names=self.type.arrow_schema.names)

    def write(self, entries: Any, where: Bools | None = None) -> None:
        self._load()
        count = len(self._exists)
        columns, mask = self._columns_of(entries, count), _mask_of(where, count, self._backend.uid, self.name)
        for field, column in zip(self.type.arrow_schema, columns, strict=True):
            if column.null_count and not field.nullable and (numbers(column.is_null()) & mask).any():
                raise self._unfit(f"{field.name!r} has nulls, but its type is not Optional; fill them, or leave the keys out")
        if not mask.all():
            indices = np.arange(count)
            columns = [merged(old, new, mask, indices) for old, new in zip(self._columns, columns, strict=True)]
        self._columns = columns
        self._exists = self._exists | mask
        self._dirty |= mask

    def clear(self, where: Bools | None = None) -> None:
        self._load()
        mask = _mask_of(where, len(self._exists), self._backend.uid, self.name)
        self._dirty |= mask & self._exists
        self._exists = self._exists & ~mask
        present = pa.array(np.arange(len(mask)), mask=~self._exists)
        self._columns = [column.take(present) for column in self._columns]

    def _columns_of(self, entries: Any, count: int) -> list[pa.Array]:
        schema = self.type.arrow_schema
        if self.type.fields is None:
            parts: list[Any] = [entries]
        elif isinstance(entries, pa.Table | pa.RecordBatch | Mapping):
            names = list(entries) if isinstance(entries, Mapping) else entries.schema.names
            missing = [name for name in schema.names if name not in names]
            if missing:
                raise self._unfit(f"the columns {', '.join(missing)} are missing; given are {', '.join(names)}")
            parts = [entries[name] for name in schema.names]
        else:
            parts = list(entries)
        if len(parts) != len(schema):
            raise self._unfit(f"{len(parts)} columns were given, but the type has {len(schema)}")
        return [self._cast(part, field, count) for part, field in zip(parts, schema, strict=True)]

    def _cast(self, part: Any, field: pa.Field, count: int) -> pa.Array:
        try:
            array = part if isinstance(part, pa.Array | pa.ChunkedArray) else pa.array(part)
            if isinstance(array, pa.ChunkedArray):
                array = array.combine_chunks()
            found = array if array.type == field.type else array.cast(field.type)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise self._unfit(f"{field.name!r} cannot be written: {error}") from error
        if len(found) != count:
            raise self._unfit(f"{field.name!r} has {len(found)} entries for {count} keys")
        return found

    def _unfit(self, reason: str) -> TypeNotSupported:
        return TypeNotSupported(f"operator {self._backend.uid!r}, state {self.name!r} of type {self.type}: {reason}")

    def collect(self, log: ChangeLog) -> None:
        names, self._names = self._names, None
        if names is None or not self._dirty.any():
            return
        if (self._dirty & self._exists).all():
            log.add(names, self._encoded(self._columns))
            return
        written, cleared = np.flatnonzero(self._dirty & self._exists), np.flatnonzero(self._dirty & ~self._exists)
        columns = [column.take(pa.array(written)) for column in self._columns]
        log.add([names[i] for i in written.tolist()], self._encoded(columns))
        log.delete([names[i] for i in cleared.tolist()])

    def _encoded(self, columns: list[pa.Array]) -> list[bytes]:
        entries = self._codec.encode_columns(columns)
        return entries if self._stamps is None else self._stamps.added(entries)


class Collections(BatchState):
    """Lists and maps, key by key, by the handles of row-wise functions."""

    def __init__(self, backend: KeyedBackend, descriptor: StateDescriptor) -> None:
        self._backend, self._handle, self._map = backend, backend.get(descriptor), descriptor.kind == "map"
        self.name = descriptor.name

    def _each(self) -> Iterator[int]:
        """Enter the keys one after the other, and yield their indices."""
        for index in range(len(self._backend.keys)):
            self._backend.enter(index)
            yield index
            self._backend.leave()

    @property
    def exists(self) -> Bools:
        return np.array([bool(entry) for entry in self.read()], bool)

    def read(self) -> list[Any]:
        if self._map:
            return [dict(self._handle.items()) for _ in self._each()]
        return [list(self._handle.get()) for _ in self._each()]

    def write(self, entries: Sequence[Any], where: Bools | None = None) -> None:
        count = len(self._backend.keys)
        mask = _mask_of(where, count, self._backend.uid, self.name)
        if len(entries) != count:
            raise UserFunctionError(
                f"operator {self._backend.uid!r}, state {self.name!r}: {len(entries)} entries for {count} keys; give one per key"
            )
        for index in self._each():
            if not mask[index]:
                continue
            if self._map:
                self._handle.clear()
                self._handle.put_all(entries[index])
            else:
                self._handle.update(entries[index])

    def clear(self, where: Bools | None = None) -> None:
        mask = _mask_of(where, len(self._backend.keys), self._backend.uid, self.name)
        for index in self._each():
            if mask[index]:
                self._handle.clear()
