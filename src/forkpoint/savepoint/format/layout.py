"""The columns of a state's Parquet files, as ``pd.read_parquet`` shows them. Pure.

    value, reducing, aggregating   key_group | key | [namespace] | value | [ttl_stamp]
    map                            key_group | key | map_key | value | [ttl_stamp]
    list                           key_group | key | [namespace] | index | value | [ttl_stamp]      a row per element
    timers                         key_group | key | domain | namespace | timestamp
    operator-list, -union          subtask | index | value                                          a row per element
    broadcast                      index | map_key | value                                            a row per entry, one copy

Rows are sorted by key group and key, a list's elements in the list's order. ``ttl_stamp`` (when the entry's time to
live began) and ``timestamp`` are int64 milliseconds since 1970 UTC; ``domain`` is "event" or "processing".

A part that is a record has a column for each field: a key with the fields user and item has ``key_user`` and
``key_item``, map keys and namespaces have ``map_key_…`` and ``namespace_…``, and values use the bare field names. A name
that is taken (ignoring case, as SQL does) gets the prefix ``value_``. Names depend on the types alone, so all files of a
state have the same columns.

A file of changes has the same columns, and ``removed``: true for an entry that is gone, whose value and stamp are null.

Types that Arrow lacks (ANY, unions, maps with null keys) are binary msgpack, described in the file's metadata under
"forkpoint".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain, count
from typing import Any, Literal

import pyarrow as pa

from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import SavepointCorrupt, TypeNotSupported
from forkpoint.types import TypeInformation, Types, from_description
from forkpoint.types.keys import key_form

Role = Literal[
    "key_group", "key", "domain", "namespace", "map_key", "index", "timestamp", "value", "ttl_stamp", "subtask", "removed"
]
IDENTITY: tuple[Role, ...] = ("key", "namespace", "map_key", "timestamp")
"""The parts that tell an entry of keyed state, except list state, from all others; the key group follows from the key."""

Columns = Sequence[pa.Array | pa.ChunkedArray]

METADATA_KEY = b"forkpoint"
_DESCRIBED = {"uid", "name", "kind", "key_type", "value_type", "namespace_type", "ttl_ms"}


def typed(description: Any, info: StateInfo, what: str) -> TypeInformation:
    """The type of a part of a state. Raises SavepointCorrupt if the description is not valid."""
    try:
        return from_description(description)
    except TypeNotSupported as error:
        remedy = "the file is damaged or was written by a newer forkpoint"
        raise SavepointCorrupt(f"{info.where}: its {what} type cannot be used: {error}; {remedy}") from error


@dataclass(frozen=True)
class Part:
    """One part of a row: its type and column names. ``raw``: the column holds stored bytes. ``optional``: it may be null."""

    role: Role
    type: TypeInformation
    names: tuple[str, ...]
    raw: bool = False
    optional: bool = False

    @property
    def fields(self) -> list[pa.Field]:
        inner = self.type.arrow_schema
        return [pa.field(name, f.type, f.nullable or self.optional) for name, f in zip(self.names, inner, strict=True)]


@dataclass(frozen=True)
class Layout:
    """The columns of one state's files, in order."""

    info: StateInfo
    parts: tuple[Part, ...]

    def has(self, role: Role) -> bool:
        return any(part.role == role for part in self.parts)

    @cached_property
    def of_changes(self) -> Layout:
        """The columns of the state's files of changes."""
        names = UniqueNames(name.lower() for part in self.parts for name in part.names)
        parts = (replace(part, optional=part.role in ("value", "ttl_stamp")) for part in self.parts)
        return Layout(self.info, (*parts, Part("removed", Types.BOOLEAN(), (names.first_free("removed"),))))

    @property
    def identity(self) -> tuple[Part, ...]:
        """The parts that tell entries apart; see ``IDENTITY``."""
        return tuple(part for part in self.parts if part.role in IDENTITY)

    def part(self, role: Role) -> Part:
        return next(part for part in self.parts if part.role == role)

    @cached_property
    def _slices(self) -> dict[str, slice]:
        ends = accumulate(len(part.names) for part in self.parts)
        return {part.role: slice(end - len(part.names), end) for part, end in zip(self.parts, ends, strict=True)}

    def columns(self, table: pa.Table, role: Role) -> list[pa.ChunkedArray]:
        """The columns of one part in a table of this layout."""
        found: list[pa.ChunkedArray] = table.columns[self._slices[role]]
        return found

    def table(self, columns: Mapping[str, Columns]) -> pa.Table:
        """A table of the columns of each part, by role."""
        arrays = [column for part in self.parts for column in columns[part.role]]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    @cached_property
    def schema(self) -> pa.Schema:
        state = {name: getattr(self.info, name) for name in _DESCRIBED}
        described = {"format": 1, **state, "columns": {part.role: part.names for part in self.parts}}
        fields = [field for part in self.parts for field in part.fields]
        return pa.schema(fields, {METADATA_KEY: json.dumps(described, sort_keys=True)})


def keys_of(description: Any, info: StateInfo, what: str) -> TypeInformation:
    """The saved type of a state's keys, or of its maps' keys. Raises like ``typed``."""
    found = typed(description, info, what)
    return key_form(found) if info.canonical_keys else found


def layout_of(info: StateInfo) -> Layout:
    """The columns of a state's files. Raises SavepointCorrupt for unknown types."""
    names = UniqueNames()
    parts: list[Part] = []

    def add(role: Role, type: TypeInformation, *, raw: bool = False) -> None:
        parts.append(Part(role, type, _column_names(role, type, names), raw))

    if info.kind == "broadcast":
        add("index", Types.LONG())
        add("map_key", keys_of(info.namespace_type, info, "map key"))
    elif info.is_operator_state:
        add("subtask", Types.INT())
        add("index", Types.LONG())
    else:
        add("key_group", Types.INT())
        add("key", keys_of(info.key_type, info, "key"))
    if info.is_timers:
        add("domain", Types.STRING())
    if info.kind == "map":
        add("map_key", keys_of(info.namespace_type, info, "map key"))
    elif info.namespace_type is not None and not info.is_operator_state:
        add("namespace", typed(info.namespace_type, info, "namespace"))
    elif info.is_timers:
        add("namespace", Types.BYTES(), raw=True)
    if info.kind == "list":
        add("index", Types.LONG())
    if info.is_timers:
        add("timestamp", Types.LONG())
        return Layout(info, tuple(parts))
    add("value", typed(info.value_type, info, "value"))
    if info.ttl_ms is not None and not info.is_operator_state:
        add("ttl_stamp", Types.LONG())
    return Layout(info, tuple(parts))


def _column_names(role: Role, type: TypeInformation, names: UniqueNames) -> tuple[str, ...]:
    if not type.fields:
        return (names.first_free(role),)
    prefix = "" if role == "value" else f"{role}_"
    return tuple(names.first_free(f"{prefix}{name}", f"{role}_{name}") for name in type.column_names)


class UniqueNames:
    """Assigns names that are unique ignoring case, as SQL requires."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def first_free(self, *candidates: str) -> str:
        """The first free candidate, else the last candidate with a number."""
        numbered = (f"{candidates[-1]}_{n}" for n in count(2))
        name = next(name for name in chain(candidates, numbered) if name.lower() not in self._taken)
        self._taken.add(name.lower())
        return name
