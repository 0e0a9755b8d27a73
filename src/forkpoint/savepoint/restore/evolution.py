"""State evolution: converts saved rows to rows of the state that the program declares now.

Changed types are converted column by column. Migrations are functions of Python objects: of a key, or of a key's content in
the state, which is a value, a list, or a dict, depending on the state's kind.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import ForkpointError, RestoreRefused, TypeNotSupported
from forkpoint.savepoint.format.layout import Columns, Layout, Role, layout_of
from forkpoint.savepoint.format.rows import Rows
from forkpoint.types import Step, TypeInformation
from forkpoint.types.evolution import SAME, Dynamic, Entries, Fields, FieldStep, Items, Members, Number, Same
from forkpoint.types.keys import is_key_form
from forkpoint.types.kinds.containers import MapType, OptionalType, SequenceType, present
from forkpoint.types.kinds.enums import EnumType
from forkpoint.types.kinds.records import RecordType
from forkpoint.types.kinds.scalars import ScalarType

Migration = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """How a saved state becomes a declared state: ``step`` converts its values; ``values`` and ``keys`` are its migrations.
    ``to_key_form``: whether its keys, and those of its maps, have to be converted to their key form."""

    step: Step = SAME
    values: tuple[Migration, ...] = ()
    keys: tuple[Migration, ...] = ()
    to_key_form: bool = False

    @property
    def migrates(self) -> bool:
        """Whether rows change."""
        return bool(self.values or self.keys or self.to_key_form) or not isinstance(self.step, Same)


@dataclass(frozen=True)
class Change:
    """How a state's rows change. ``target``: the state as declared now, but with the saved time to live.

    ``step`` converts the values; ``values`` and ``keys`` are pickled migrations, to be applied in order.
    """

    target: StateInfo
    step: Step = SAME
    values: bytes = b""
    keys: bytes = b""


# -- columns -----------------------------------------------------------------------------------------------------------


def convert(array: pa.Array, old: TypeInformation, new: TypeInformation, step: Step) -> pa.Array:
    """Converts an array of ``old.arrow_type`` to ``new.arrow_type``; ``step`` comes from ``evolve``.

    Raises ArrowInvalid for a number that the new type cannot hold exactly, TypeNotSupported for a missing member of an Enum.
    """
    if isinstance(step, Same) and old.arrow_type == new.arrow_type:
        return array
    if isinstance(new, OptionalType):
        if not array.null_count:
            return convert(array, present(old), new.of, step)
        nulls = array.is_null().to_numpy(zero_copy_only=False)
        return convert(array.drop_null(), old, new, step).take(pa.array(np.cumsum(~nulls) - 1, mask=nulls))
    match step, old, new:
        case Dynamic(), _, _:
            return new.to_arrow(old.from_arrow(array))
        case (Number(), _, _) | (_, ScalarType(), ScalarType()):
            return array.cast(new.arrow_type)
        case Fields(fields=fields), RecordType(), RecordType():
            return _struct(array, old, new, fields)
        case Items(step=inner), SequenceType(), SequenceType():
            elements = convert(array.flatten(), old.element, new.element, inner)
            lengths = np.asarray(array.value_lengths().to_numpy(zero_copy_only=False), np.int64)
            offsets = np.zeros(len(array) + 1, np.int32)
            np.cumsum(lengths, out=offsets[1:])
            return pa.ListArray.from_arrays(pa.array(offsets), elements, type=new.arrow_type)
        case Entries(step=inner), MapType(), MapType():
            dicts = old.from_arrow(array)
            values = old.value.to_arrow([value for each in dicts for value in each.values()])
            converted = iter(new.value.from_arrow(convert(values, old.value, new.value, inner)))
            return new.to_arrow([dict(zip(each, converted, strict=False)) for each in dicts])
        case Members(stored=stored), EnumType(), EnumType():
            return _members(array, old, new, stored)
    # The encoding is the same, but some inner column differs.
    return new.to_arrow([new.decode(old.encode(value)) for value in old.from_arrow(array)])


def _struct(array: pa.Array, old: RecordType, new: RecordType, fields: Sequence[FieldStep]) -> pa.Array:
    if not new.members:
        return pa.array(np.ones(len(array), bool))
    columns = array.flatten() if old.members else []
    converted = []
    for field, step in zip(new.members, fields, strict=True):
        if step.source < 0:
            default = field.type.to_arrow([field.type.decode(step.default)])
            converted.append(default.take(pa.array(np.zeros(len(array), np.int64))))
        else:
            converted.append(convert(columns[step.source], old.members[step.source].type, field.type, step.step))
    return pa.StructArray.from_arrays(converted, fields=[pa.field(f.name, f.type.arrow_type) for f in new.members])


def _members(array: pa.Array, old: EnumType, new: EnumType, stored: Sequence[tuple[Any, Any]]) -> pa.Array:
    before, after = zip(*stored, strict=True)
    indexes = pc.index_in(array, pa.array(before, old.arrow_type))
    if indexes.null_count:
        unknown = array.filter(indexes.is_null())[0].as_py()
        raise TypeNotSupported(f"{unknown!r} is not a member of {old!r}")
    return pa.array(after, new.arrow_type).take(indexes)


def convert_columns(columns: Columns, old: TypeInformation, new: TypeInformation, step: Step) -> list[pa.Array]:
    """Converts the columns of one part from type ``old`` to ``new``."""
    arrays = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in columns]
    if old.fields:
        inner = [pa.field(f.name, f.type.arrow_type) for f in old.fields]
        array = pa.StructArray.from_arrays(arrays, fields=inner)
    else:
        (array,) = arrays
    array = convert(array, old, new, step)
    return list(array.flatten()) if new.fields else [array]


# -- tables ------------------------------------------------------------------------------------------------------------


def changed(tables: Iterable[pa.Table], saved: Layout, change: Change) -> Iterator[pa.Table]:
    """Converts a file's rows to rows of ``layout_of(change.target)``; they keep the key groups of the saved keys.

    Raises RestoreRefused if a migration fails, or a value does not fit the new type.
    """
    target = layout_of(change.target)
    keys, values = _functions(change.keys), _functions(change.values)
    if values:  # a key may have rows in several blocks
        blocks = list(tables)
        tables = [pa.concat_tables(blocks)] if blocks else []
    for table in tables:
        try:
            rows = Rows(saved, table)
            parts = _migrated(rows, target, values) if values else _converted(rows, target, change.step)
            if target.has("key"):
                parts["key"] = _keys(parts["key"], saved, target, keys)
            converted = target.table(parts)
        except (TypeNotSupported, pa.ArrowException, _Failed) as error:
            where = change.target.where
            raise RestoreRefused(f"{where}: the saved state cannot be converted to the declared state: {error}") from error
        yield converted


class _Failed(Exception):
    pass


def _functions(data: bytes) -> tuple[Migration, ...]:
    return pickle.loads(data) if data else ()  # written by this restore


def _apply(functions: Sequence[Migration], value: Any, what: str) -> Any:
    result = value
    for function in functions:
        try:
            result = function(result)
        except ForkpointError:
            raise
        except Exception as error:
            name = getattr(function, "__qualname__", repr(function))
            raise _Failed(f"the migration {name} of {what} {value!r} failed with {error!r}") from error
    return result


def _converted(rows: Rows, target: Layout, step: Step) -> dict[str, Columns]:
    """All parts except the keys, in their new types."""
    parts = dict(rows.parts)
    roles: tuple[Role, ...] = ("value", "map_key", "namespace")
    for role in roles:
        if target.has(role):
            old, new = rows.layout.part(role).type, target.part(role).type
            if role == "map_key" and is_key_form(new) and not is_key_form(old):
                parts[role] = new.to_columns(old.from_columns(rows.parts[role]))
            elif old != new:
                parts[role] = convert_columns(rows.parts[role], old, new, step if role == "value" else SAME)
    return parts


def _keys(columns: Columns, saved: Layout, target: Layout, functions: Sequence[Migration]) -> Columns:
    old, new = saved.part("key").type, target.part("key").type
    if not functions:
        if is_key_form(new) and not is_key_form(old):
            return new.to_columns(old.from_columns(columns))
        return columns if old == new else convert_columns(columns, old, new, SAME)
    known: dict[bytes, Any] = {}
    keys = []
    for key in old.from_columns(columns):
        encoded = old.encode(key)
        if encoded not in known:
            known[encoded] = _apply(functions, key, "key")
        keys.append(known[encoded])
    return new.to_columns(keys)


# -- migrations of values ----------------------------------------------------------------------------------------------


class _Row(NamedTuple):
    """A row of the new state. ``source``: the saved row with its key and namespace. ``position``: in its list."""

    source: int
    value: Any
    stamp: int
    position: int = 0
    map_key: Any = None


def _migrated(rows: Rows, target: Layout, functions: Sequence[Migration]) -> dict[str, Columns]:
    kind = rows.layout.info.kind
    values = rows.objects("value")
    stamps: list[int] = [0] * rows.count
    if rows.layout.has("ttl_stamp"):
        stamps = rows.parts["ttl_stamp"][0].to_pylist()
    map_keys = rows.objects("map_key") if kind == "map" else []
    written: list[_Row] = []
    for start, stop in _spans(rows, kind):
        content: Any = values[start]
        if kind == "list":
            content = values[start:stop]
        elif kind == "map":
            content = dict(zip(map_keys[start:stop], values[start:stop], strict=True))
        after = _apply(functions, content, kind)
        if after is not None:
            written += _rows(target.info.kind, start, after, stamps[start:stop], kind, content)
    sources = pa.array([row.source for row in written], pa.int64())
    parts: dict[str, Columns] = {
        role: [column.take(sources) for column in rows.parts[role]]
        for role in ("key_group", "key", "namespace")
        if role in rows.parts
    }
    if target.has("namespace"):
        old, new = rows.layout.part("namespace").type, target.part("namespace").type
        parts["namespace"] = convert_columns(parts["namespace"], old, new, SAME)
    if target.has("map_key"):
        parts["map_key"] = target.part("map_key").type.to_columns([row.map_key for row in written])
    parts["value"] = target.part("value").type.to_columns([row.value for row in written])
    parts["index"] = [pa.array([row.position for row in written], pa.int64())]
    parts["ttl_stamp"] = [pa.array([row.stamp for row in written], pa.int64())]
    return parts


def _spans(rows: Rows, kind: str) -> Iterator[tuple[int, int]]:
    """The range of rows of each key and namespace."""
    if kind not in ("list", "map"):
        return pairwise(range(rows.count + 1))
    names = rows.encoded("key")
    if rows.layout.has("namespace"):
        names = [name + space for name, space in zip(names, rows.encoded("namespace"), strict=True)]
    starts = [i for i in range(rows.count) if i == 0 or names[i] != names[i - 1]]
    return pairwise([*starts, rows.count])


def _rows(kind: str, source: int, content: Any, stamps: list[int], old_kind: str, old: Any) -> Iterator[_Row]:
    """A key's new content as rows. Existing entries keep their TTL stamps."""
    latest = max(stamps)
    if kind == "list":
        if not isinstance(content, list | tuple) or hasattr(content, "_fields"):
            raise _Failed(f"a migration to list state must return a list or None, not {content!r}")
        kept = stamps if old_kind == "list" and len(content) == len(stamps) else [latest] * len(content)
        for index, (value, stamp) in enumerate(zip(content, kept, strict=True)):
            yield _Row(source, value, stamp, index)
    elif kind == "map":
        if not isinstance(content, dict):
            raise _Failed(f"a migration to map state must return a dict or None, not {content!r}")
        ages = dict(zip(old, stamps, strict=True)) if old_kind == "map" else {}
        for map_key, value in content.items():
            yield _Row(source, value, ages.get(map_key, latest), 0, map_key)
    else:
        yield _Row(source, content, latest)
