"""Files of states with the changes of later savepoints: a savepoint may refer to an earlier one's file, and to files with the
entries that were written since. All readers of saved state read through ``SavedFile.tables``, which merges them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.checkpoint.format import damaged
from forkpoint.savepoint.format.layout import Layout
from forkpoint.savepoint.format.parquet import PartFile, errors_naming
from forkpoint.savepoint.format.rows import Rows, store_order
from forkpoint.savepoint.format.sorting import KeyGroupRange, sorted_by
from forkpoint.savepoint.format.tasks import FileRef
from forkpoint.storage.base import Storage

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SavedFile(KeyGroupRange):
    """A state's file in a savepoint, with later ``changes`` of its range of key groups, oldest first. ``entries``: the number of
    rows with all changes."""

    part: PartFile
    entries: int
    changes: tuple[PartFile, ...] = ()

    @property
    def name(self) -> str:
        return self.part.name

    @property
    def ref(self) -> FileRef:
        """The file without its changes."""
        return self.part.ref

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(part.ref.size for part in (self.part, *self.changes))

    def tables(self, storage: Storage, layout: Layout, groups: tuple[int, int] | None = None) -> Iterator[pa.Table]:
        """The rows with all changes, in pieces, of the key groups ``groups`` or of all. The rows of a key are together.

        Raises NotFound, and SavepointCorrupt if a file is damaged, belongs to another state, or has another number of rows.
        """
        if not self.changes:
            yield from self.part.tables(storage, layout, groups)
            return
        rows = 0
        for table in merged(storage, layout, self, groups):
            rows += table.num_rows
            if table.num_rows:
                yield table
        if groups is None:
            self.check_found(rows)

    def check_found(self, rows: int) -> None:
        """Raises SavepointCorrupt unless all rows were read, by key groups."""
        if rows != self.entries:
            what = "rows" if not self.changes else "entries with later changes"
            groups = f"the key groups {self.kg_start} to {self.kg_stop} that were recorded"
            raise damaged(self.name, f"{rows} of its {self.entries} {what} are in {groups}")


def merged(storage: Storage, layout: Layout, file: SavedFile, groups: tuple[int, int] | None = None) -> Iterator[pa.Table]:
    """The rows of a file with its changes. If a key may have several rows, they are in store order: a migration changes all
    entries of a key together."""
    pieces = _merged(storage, layout, file, layout, groups)
    if len(layout.identity) == 1:
        yield from pieces
    elif found := list(pieces):
        whole = pa.concat_tables(found)
        yield sorted_by(whole, pa.array(store_order(Rows(layout, whole)), pa.large_binary()))[0]


def known_in(storage: Storage, layout: Layout, file: SavedFile, changes: pa.Table) -> Mask:
    """Which entries of a table of newer changes a file with its changes has. Reads all of the files, to verify them, and decodes
    the keys."""
    newer, found, only = Replaced(layout), Replaced(layout), identity_layout(layout)
    newer.add(layout.of_changes, changes)
    for table in _merged(storage, layout, file, only, None):
        found.add(only, table.filter(pa.array(newer.mask(only, table))))
    return found.mask(layout.of_changes, changes)


def _merged(
    storage: Storage, layout: Layout, file: SavedFile, needed: Layout, groups: tuple[int, int] | None
) -> Iterator[pa.Table]:
    """The rows of a file with its changes, in no particular order; only the parts of ``needed``, which has the ``identity``."""
    replaced, present = Replaced(layout), []
    for part in reversed(file.changes):
        with errors_naming(part.name):
            newer = replaced.added(list(part.tables(storage, layout.of_changes, groups)))
            present.append(written(newer, layout, needed))
    tables: Iterator[pa.Table] = file.part.tables(storage, layout, groups, None if needed == layout else needed)
    for table in tables:
        known = replaced.mask(needed, table)
        yield table.filter(pa.array(~known)) if known.any() else table
    yield from present


def written(changes: pa.Table, layout: Layout, needed: Layout) -> pa.Table:
    """The entries of changes that were not removed."""
    present = changes.filter(pc.invert(layout.of_changes.columns(changes, "removed")[0]))
    return needed.table({str(part.role): layout.of_changes.columns(present, part.role) for part in needed.parts})


@dataclass
class Replaced:
    """The identities of changed entries."""

    layout: Layout
    _tables: list[pa.Table] = field(default_factory=list)

    def added(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Add the entries of a file of changes, and return those that were not known yet."""
        changes = self.layout.of_changes
        table = pa.concat_tables([changes.schema.empty_table(), *tables])
        table = table.filter(pa.array(~self.mask(changes, table)))
        self.add(changes, table)
        return table

    def add(self, layout: Layout, table: pa.Table) -> None:
        """Add the entries of a table in ``layout``."""
        self._tables.append(_identity(layout, table))
        self.__dict__.pop("_known", None)

    def mask(self, layout: Layout, table: pa.Table) -> Mask:
        """The rows of a table in ``layout`` whose entries are known."""
        if not any(known.num_rows for known in self._tables):
            return np.zeros(table.num_rows, bool)
        return self._known.mask(_identity(layout, table))

    @cached_property
    def _known(self) -> _Identities:
        return _Identities(self.layout, pa.concat_tables(self._tables))


def identity_layout(layout: Layout) -> Layout:
    """Only the parts that tell entries apart, and the key group."""
    parts = tuple(part for part in layout.parts if part.role == "key_group" or part in layout.identity)
    return replace(layout, parts=parts)


def _identity(layout: Layout, table: pa.Table) -> pa.Table:
    only = identity_layout(layout)
    return only.table({part.role: layout.columns(table, part.role) for part in only.parts})


@dataclass
class _Identities:
    """Tests for the identities in a table, by columns; only the few rows that pass are compared in their stored form, unless the
    columns alone decide."""

    layout: Layout
    table: pa.Table

    def mask(self, table: pa.Table) -> Mask:
        only = identity_layout(self.layout)
        found = np.ones(table.num_rows, bool)
        parts = only.identity
        for part in parts:
            for mine, theirs in zip(only.columns(self.table, part.role), only.columns(table, part.role), strict=True):
                if _searchable(mine.type):
                    among = pc.is_in(theirs, value_set=mine.combine_chunks())
                    found &= among.to_numpy(zero_copy_only=False) if isinstance(among, pa.Array) else among.to_numpy()
        if len(parts) == len(parts[0].names) == 1 and _searchable(only.columns(table, parts[0].role)[0].type):
            return found
        rows = np.flatnonzero(found)
        if len(rows):
            candidates = _stored(only, table.take(pa.array(rows)))
            found[rows] = np.fromiter((each in self.known for each in candidates), bool, len(rows))
        return found

    @cached_property
    def known(self) -> set[tuple[bytes, ...]]:
        return set(_stored(identity_layout(self.layout), self.table))


def _searchable(column: pa.DataType) -> bool:
    """Whether equal stored values are equal in a column, and the other way around."""
    of = pa.types
    return any(test(column) for test in (of.is_integer, of.is_string, of.is_binary, of.is_large_string, of.is_large_binary))


def _stored(only: Layout, table: pa.Table) -> list[tuple[bytes, ...]]:
    rows: Any = Rows(only, table)
    return list(zip(*(rows.encoded(part.role) for part in only.identity), strict=True))
