"""What the rows of a savepoint's file must be like, beyond their columns, to mean what was saved.

A checksum tells that a file is the one that savepoint.json lists. Who writes both anew, by hand or with another tool, can
still list rows that no restore would put where they belong; they are found here, before anything is made of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.errors import SavepointCorrupt, TypeNotSupported
from forkpoint.runtime.columnar.leaves import Codec
from forkpoint.savepoint.layout import Layout, Role
from forkpoint.state import hash_column, hash_encoded, key_group
from forkpoint.types import Types

_COUNTING: tuple[Role, ...] = ("key_group", "index", "timestamp", "ttl_stamp", "subtask")
_UNREADABLE = (
    pa.ArrowException, msgspec.MsgspecError, TypeNotSupported, ValueError, TypeError, OverflowError, RecursionError,
    struct.error,
)  # fmt: skip


@contextmanager
def of_file(file: str) -> Iterator[None]:
    """Names the file in what is found wrong with its rows."""
    try:
        yield
    except SavepointCorrupt as error:
        if file in str(error):
            raise
        raise SavepointCorrupt(f"{file}: {error}; restore it from a copy") from error
    except _UNREADABLE as error:
        raise SavepointCorrupt(f"{file}: its rows cannot be used: {error}; restore it from a copy") from error


class RowCheck:
    """Checks the rows of one file, a table at a time, in the file's order."""

    def __init__(self, layout: Layout, max_parallelism: int, parallelism: int) -> None:
        self._layout = layout
        self._max_parallelism = max_parallelism
        self._parallelism = parallelism
        self._last: pa.Table | None = None
        self._keys = Codec(layout.part("key").type if layout.has("key") else Types.BYTES())

    def check(self, table: pa.Table) -> None:
        """Raises SavepointCorrupt, which names the state, what was found and what was expected."""
        for role in _COUNTING:
            if self._layout.has(role) and (nulls := self._column(table, role).null_count):
                raise self._wrong(f"column {role} holds {nulls} nulls")
        if self._layout.has("key_group"):
            self._check_groups(table)
        if self._layout.has("subtask"):
            self._check_range(table, "subtask", self._parallelism)
        if self._layout.info.is_timers:
            self._check_domain(table)
        if self._layout.info.kind == "list":
            self._check_lists(table)

    def _column(self, table: pa.Table, role: Role) -> pa.ChunkedArray:
        return self._layout.columns(table, role)[0]

    def _check_range(self, table: pa.Table, role: Role, stop: int) -> None:
        found = self._column(table, role).to_numpy()
        wrong = np.flatnonzero((found < 0) | (found >= stop))
        if len(wrong):
            raise self._wrong(f"column {role} holds {found[wrong[0]]}, expected 0 to {stop - 1}")

    def _check_groups(self, table: pa.Table) -> None:
        of, columns = self._layout.part("key").type, self._layout.columns(table, "key")
        if pa.types.is_integer(of.arrow_type):
            hashes = hash_column(columns[0], of)
        else:
            hashes = hash_encoded(self._keys.encode_columns([column.combine_chunks() for column in columns]))
        expected = key_group(hashes, self._max_parallelism)
        found = self._column(table, "key_group").to_numpy()
        wrong = np.flatnonzero(found != expected)
        if len(wrong):
            at = int(wrong[0])
            raise self._wrong(
                f"a key has the key group {found[at]}, expected {expected[at]} of {self._max_parallelism}"
            )

    def _check_domain(self, table: pa.Table) -> None:
        domain = self._layout.info.kind.removeprefix("timers-")
        found = pc.unique(self._column(table, "domain")).to_pylist()
        if found not in ([], [domain]):
            raise self._wrong(f"column domain holds {', '.join(map(repr, found))}, expected {domain!r}")

    def _check_lists(self, table: pa.Table) -> None:
        """All elements of a list have its key. What has index 0 begins one."""
        rows = table if self._last is None else pa.concat_tables([self._last, table])
        self._last = table.slice(table.num_rows - 1)
        goes_on = self._column(rows, "index").to_numpy()[1:] != 0
        for role in ("key", "namespace"):
            if not self._layout.has(role):
                continue
            of = self._layout.part(role).type
            columns = [column.combine_chunks() for column in self._layout.columns(rows, role)]
            for at in np.flatnonzero(goes_on & ~_like_before(columns)).tolist():
                before, after = of.from_columns([column.slice(at, 2) for column in columns])
                if of.encode(before) != of.encode(after):  # not only NaN, say, which is unlike itself
                    raise self._wrong(f"the {role} changes within a list, from {before!r} to {after!r}")

    def _wrong(self, what: str) -> SavepointCorrupt:
        return SavepointCorrupt(f"{self._layout.info.where}: {what}")


def _like_before(columns: list[Any]) -> Any:
    """For each row but the first, whether it has what the row before it has."""
    same = np.ones(max(0, len(columns[0]) - 1), bool)
    for column in columns:
        if pa.types.is_nested(column.type):
            values = column.to_pylist()
            same &= np.fromiter((a == b for a, b in pairwise(values)), bool, len(same))
        else:
            equal = pc.equal(column.slice(1), column.slice(0, len(same)))
            same &= pc.fill_null(equal, False).to_numpy(zero_copy_only=False)
    return same
