"""Carrying out what changed about a state between two versions of a program: saved rows to rows as they would be saved now.

Changed types are converted column by column. Registered migrations are functions of Python objects: of a key, or of all
that one key has in the state, which is a value, a list, or a dict, by the state's kind.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.errors import ForkpointError, RestoreRefused, TypeNotSupported
from forkpoint.savepoint.layout import Layout, StateSpec, layout_of
from forkpoint.types import Step, TypeInformation
from forkpoint.types.containers import MapType, OptionalType, SequenceType
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

    target: StateSpec
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
        return convert(array, old.of if isinstance(old, OptionalType) else old, new.of, step)
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
        self.parts: dict[str, Columns] = {}
        at = 0
        for part in layout.parts:
            self.parts[part.role] = table.columns[at : at + len(part.names)]
            at += len(part.names)

    def objects(self, role: Any) -> list[Any]:
        return self.layout.part(role).type.from_columns(self.parts[role])


def changed(tables: Iterable[pa.Table], saved: Layout, change: Change) -> Iterator[pa.Table]:
    """A file's rows as rows of ``layout_of(change.target)``.

    Key groups are still those of the saved keys where keys were migrated. Raises RestoreRefused if a migration fails, or
    a value does not fit the new type.
    """
    target = layout_of(change.target)
    keys, values = _functions(change.keys), _functions(change.values)
    if values:  # a key's rows may be spread over blocks
        blocks = list(tables)
        tables = [pa.concat_tables(blocks)] if blocks else []
    for table in tables:
        with _Explained(change.target):
            rows = Rows(saved, table)
            parts = _migrated(rows, target, values) if values else _evolved(rows, target, change.step)
            if keys:
                parts["key"] = _new_keys(Rows.objects(rows, "key"), parts, target, keys, saved)
            arrays = [array for part in target.parts for array in parts[part.role]]
            yield pa.Table.from_arrays(arrays, schema=target.schema)


def _functions(data: bytes) -> tuple[Migration, ...]:
    return pickle.loads(data) if data else ()  # written by this restore, for its own tasks


class _Explained:
    """Says of what went wrong which state it was."""

    def __init__(self, spec: StateSpec) -> None:
        self._where = spec.where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, TypeNotSupported | pa.ArrowException | _Failed):
            raise RestoreRefused(f"{self._where}: saved values do not become what the program declares: {error}") from error


class _Failed(Exception):  # noqa: N818 - carries the message of a migration's own error
    pass


def _apply(functions: Sequence[Migration], value: Any, what: str) -> Any:
    found = value
    for number, function in enumerate(functions):
        try:
            found = function(found)
        except ForkpointError:
            raise
        except Exception as error:
            name = getattr(function, "__name__", repr(function))
            raise _Failed(f"migration {name} (step {number + 1}) failed for {what} {value!r}: {error!r}") from error
    return found


def _evolved(rows: Rows, target: Layout, step: Step) -> dict[str, Columns]:
    parts = dict(rows.parts)
    for part in target.parts:
        if part.role in ("key", "map_key", "namespace", "value"):
            old = rows.layout.part(part.role).type
            same_key = part.role == "key" and old.describe() != part.type.describe()
            if part.role == "value" or (not part.raw and part.role != "key") or same_key:
                use = step if part.role == "value" else SAME
                parts[part.role] = _recolumned(rows, part.role, old, part.type, use)
    return parts


def _recolumned(rows: Rows, role: str, old: TypeInformation, new: TypeInformation, step: Step) -> Columns:
    if old == new and isinstance(step, Same):
        return rows.parts[role]
    return convert_columns(rows.parts[role], old, new, step)
