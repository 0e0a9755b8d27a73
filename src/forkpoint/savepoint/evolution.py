"""Carrying out what changed about a state between two versions of a program: saved rows to rows as they would be saved now.

Changed types are converted column by column. Registered migrations are functions of Python objects: of a key, or of all
that one key has in the state, which is a value, a list, or a dict, by the state's kind.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import ForkpointError, RestoreRefused, TypeNotSupported
from forkpoint.savepoint.layout import Layout, layout_of
from forkpoint.types import Step, TypeInformation
from forkpoint.types.containers import MapType, OptionalType, SequenceType, present
from forkpoint.types.evolution import SAME, Entries, Fields, FieldStep, Items, Number, Same
from forkpoint.types.records import RecordType
from forkpoint.types.scalars import ScalarType

Migration = Callable[[Any], Any]
Columns = Sequence[pa.Array | pa.ChunkedArray]


@dataclass(frozen=True)
class Change:
    """What becomes of a state's rows. ``target``: the state as it is declared, but for its time to live, which is as saved.

    ``values`` and ``keys`` are migrations, one after the other, as ``dumps`` sends them to the tasks of this restore.
    """

    target: StateInfo
    step: Step = SAME
    values: bytes = b""
    keys: bytes = b""


# -- columns -----------------------------------------------------------------------------------------------------------


def convert(array: pa.Array, old: TypeInformation, new: TypeInformation, step: Step) -> pa.Array:
    """An array of ``old.arrow_type`` as one of ``new.arrow_type``; ``step`` comes from ``evolve``.

    Raises ArrowInvalid for a number that the new type would not hold exactly.
    """
    if isinstance(step, Same) and old.arrow_type == new.arrow_type:
        return array
    if isinstance(new, OptionalType):
        if array.null_count:
            return _scattered(convert(array.drop_null(), old, new, step), array)
        return convert(array, present(old), new.of, step)
    match step:
        case Number():
            return array.cast(new.arrow_type)
        case Fields(fields=fields):
            assert isinstance(old, RecordType)
            assert isinstance(new, RecordType)
            return _struct(array, old, new, fields)
        case Items(step=inner):
            assert isinstance(old, SequenceType)
            assert isinstance(new, SequenceType)
            elements = convert(array.flatten(), old.element, new.element, inner)
            lengths = np.asarray(array.value_lengths().to_numpy(zero_copy_only=False), np.int64)
            offsets = np.zeros(len(array) + 1, np.int32)
            np.cumsum(lengths, out=offsets[1:])
            return pa.ListArray.from_arrays(pa.array(offsets), elements, type=new.arrow_type)
        case Entries(step=inner):
            assert isinstance(old, MapType)
            assert isinstance(new, MapType)
            return _dicts(array, old, new, inner)
    if isinstance(old, ScalarType) and isinstance(new, ScalarType):
        return array.cast(new.arrow_type)
    # The bytes are the same though the columns differ, somewhere inside.
    return new.to_arrow([new.decode(old.encode(value)) for value in old.from_arrow(array)])


def _scattered(present: pa.Array, like: pa.Array) -> pa.Array:
    """The values in the places where ``like`` has some."""
    mask = like.is_null().to_numpy(zero_copy_only=False)
    return present.take(pa.array(np.cumsum(~mask) - 1, mask=mask))


def _struct(array: pa.Array, old: RecordType, new: RecordType, fields: Sequence[FieldStep]) -> pa.Array:
    if not new.members:
        return pa.array(np.ones(len(array), bool))
    columns = array.flatten() if old.members else []
    made = [
        _default(field.type, step.default, len(array))
        if step.source < 0
        else convert(columns[step.source], old.members[step.source].type, field.type, step.step)
        for field, step in zip(new.members, fields, strict=True)
    ]
    return pa.StructArray.from_arrays(made, fields=[pa.field(f.name, f.type.arrow_type) for f in new.members])


def _default(of: TypeInformation, encoded: bytes, count: int) -> pa.Array:
    one = of.to_arrow([of.decode(encoded)])
    return one.take(pa.array(np.zeros(count, np.int64)))


def _dicts(array: pa.Array, old: MapType, new: MapType, step: Step) -> pa.Array:
    dicts = old.from_arrow(array)
    values = old.value.to_arrow([value for each in dicts for value in each.values()])
    converted = iter(new.value.from_arrow(convert(values, old.value, new.value, step)))
    return new.to_arrow([dict(zip(each, converted, strict=False)) for each in dicts])


def convert_columns(columns: Columns, old: TypeInformation, new: TypeInformation, step: Step) -> list[pa.Array]:
    """The columns of one part of a row, from ``old.to_columns`` to ``new.to_columns``."""
    arrays = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns]
    if old.fields:
        inner = [pa.field(f.name, f.type.arrow_type) for f in old.fields]
        array = pa.StructArray.from_arrays(arrays, fields=inner)
    else:
        (array,) = arrays
    array = convert(array, old, new, step)
    return list(array.flatten()) if new.fields else [array]


# -- tables ------------------------------------------------------------------------------------------------------------


class Rows:
    """The parts of a table by their roles."""

    def __init__(self, layout: Layout, table: pa.Table) -> None:
        self.layout = layout
        self.count = table.num_rows
        self.parts: dict[str, Columns] = {}
        at = 0
        for part in layout.parts:
            self.parts[part.role] = table.columns[at : at + len(part.names)]
            at += len(part.names)

    def objects(self, role: Any) -> list[Any]:
        return self.layout.part(role).type.from_columns(self.parts[role])

    def encoded(self, role: Any) -> list[bytes]:
        return list(map(self.layout.part(role).type.encode, self.objects(role)))


def changed(tables: Iterable[pa.Table], saved: Layout, change: Change) -> Iterator[pa.Table]:
    """A file's rows as rows of ``layout_of(change.target)``; the key groups are still those of the saved keys.

    Raises RestoreRefused if a migration fails, or a value does not fit the new type.
    """
    target = layout_of(change.target)
    keys, values = _functions(change.keys), _functions(change.values)
    if values:  # what one key has may be spread over blocks
        blocks = list(tables)
        tables = [pa.concat_tables(blocks)] if blocks else []
    for table in tables:
        with _explained(change.target):
            rows = Rows(saved, table)
            parts = _migrated(rows, target, values) if values else _converted(rows, target, change.step)
            if target.has("key"):
                parts["key"] = _keys(parts["key"], saved, target, keys)
            arrays = [array for part in target.parts for array in parts[part.role]]
            yield pa.Table.from_arrays(arrays, schema=target.schema)


class _Failed(Exception):
    pass


@contextmanager
def _explained(info: StateInfo) -> Iterator[None]:
    try:
        yield
    except (TypeNotSupported, pa.ArrowException, _Failed) as error:
        raise RestoreRefused(
            f"{info.where}: what was saved does not become what the program declares: {error}"
        ) from error


def _functions(data: bytes) -> tuple[Migration, ...]:
    return pickle.loads(data) if data else ()  # written by this restore, for its own tasks


def _apply(functions: Sequence[Migration], value: Any, what: str) -> Any:
    found = value
    for function in functions:
        try:
            found = function(found)
        except ForkpointError:
            raise
        except Exception as error:
            name = getattr(function, "__qualname__", repr(function))
            raise _Failed(f"the migration {name} of {what} {value!r} failed with {error!r}") from error
    return found


def _converted(rows: Rows, target: Layout, step: Step) -> dict[str, Columns]:
    """Everything but the keys in its new type."""
    parts = dict(rows.parts)
    for role in ("value", "map_key", "namespace"):
        if target.has(role):
            old, new = rows.layout.part(role).type, target.part(role).type
            if old != new:
                parts[role] = convert_columns(rows.parts[role], old, new, step if role == "value" else SAME)
    return parts


def _keys(columns: Columns, saved: Layout, target: Layout, functions: Sequence[Migration]) -> Columns:
    old, new = saved.part("key").type, target.part("key").type
    if not functions:
        return columns if old == new else convert_columns(columns, old, new, SAME)
    known: dict[bytes, Any] = {}
    keys = []
    for key in old.from_columns(columns):
        encoded = old.encode(key)
        if encoded not in known:
            known[encoded] = _apply(functions, key, "key")
        keys.append(known[encoded])
    return new.to_columns(keys)


# -- migrations of all that a key has ----------------------------------------------------------------------------------


@dataclass
class _Written:
    """Rows of the new state: for each, the saved row whose key and namespace it has, and what it holds."""

    places: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)
    map_keys: list[Any] = field(default_factory=list)

    def add(self, place: int, value: Any, stamp: int, index: int = 0, map_key: Any = None) -> None:
        self.places.append(place)
        self.values.append(value)
        self.stamps.append(stamp)
        self.indexes.append(index)
        self.map_keys.append(map_key)


def _migrated(rows: Rows, target: Layout, functions: Sequence[Migration]) -> dict[str, Columns]:
    kind = rows.layout.info.kind
    values = rows.objects("value")
    stamps: list[int] = [0] * rows.count
    if rows.layout.has("ttl_stamp"):
        stamps = rows.parts["ttl_stamp"][0].to_pylist()
    map_keys = rows.objects("map_key") if kind == "map" else []
    written = _Written()
    for start, stop in _spans(rows, kind):
        content: Any = values[start]
        if kind == "list":
            content = values[start:stop]
        elif kind == "map":
            content = dict(zip(map_keys[start:stop], values[start:stop], strict=True))
        _write(written, target.info.kind, start, _apply(functions, content, kind), stamps[start:stop], kind, content)
    places = pa.array(written.places, pa.int64())
    parts: dict[str, Columns] = {
        role: [column.take(places) for column in rows.parts[role]]
        for role in ("key_group", "key", "namespace")
        if role in rows.parts
    }
    if target.has("namespace"):
        old, new = rows.layout.part("namespace").type, target.part("namespace").type
        parts["namespace"] = convert_columns(parts["namespace"], old, new, SAME)
    if target.has("map_key"):
        parts["map_key"] = target.part("map_key").type.to_columns(written.map_keys)
    parts["value"] = target.part("value").type.to_columns(written.values)
    parts["index"] = [pa.array(written.indexes, pa.int64())]
    parts["ttl_stamp"] = [pa.array(written.stamps, pa.int64())]
    return parts


def _spans(rows: Rows, kind: str) -> Iterator[tuple[int, int]]:
    """The rows of each key (and namespace), which follow one another."""
    if kind not in ("list", "map"):
        return pairwise(range(rows.count + 1))
    names = rows.encoded("key")
    if rows.layout.has("namespace"):
        names = [name + space for name, space in zip(names, rows.encoded("namespace"), strict=True)]
    starts = [i for i in range(rows.count) if i == 0 or names[i] != names[i - 1]]
    return pairwise([*starts, rows.count])


def _write(written: _Written, kind: str, place: int, content: Any, stamps: list[int], old_kind: str, old: Any) -> None:
    """One key's new content as rows. An entry that was there keeps the time at which it began to age."""
    if content is None:
        return
    latest = max(stamps)
    if kind == "list":
        if not isinstance(content, list | tuple) or hasattr(content, "_fields"):
            raise _Failed(f"a migration to list state has to return a list or None, not {content!r}")
        kept = stamps if old_kind == "list" and len(content) == len(stamps) else [latest] * len(content)
        for index, (value, stamp) in enumerate(zip(content, kept, strict=True)):
            written.add(place, value, stamp, index)
    elif kind == "map":
        if not isinstance(content, dict):
            raise _Failed(f"a migration to map state has to return a dict or None, not {content!r}")
        ages = dict(zip(old, stamps, strict=True)) if old_kind == "map" else {}
        for map_key, value in content.items():
            written.add(place, value, ages.get(map_key, latest), 0, map_key)
    else:
        written.add(place, content, latest)
