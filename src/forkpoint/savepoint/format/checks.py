"""Validates the rows of a savepoint's files.

Checksums cannot detect a file that was rewritten together with savepoint.json. ``checked_tables`` finds rows that no restore
could assign, before it uses any.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from forkpoint.savepoint.format.layers import SavedFile
from forkpoint.savepoint.format.layout import Layout, Role
from forkpoint.savepoint.format.rows import Rows, invalid
from forkpoint.storage.base import Storage

_COUNTING: tuple[Role, ...] = ("key_group", "index", "timestamp", "ttl_stamp", "subtask")


def checked_tables(
    storage: Storage, file: SavedFile, layout: Layout, max_parallelism: int, parallelism: int, *, groups: tuple[int, int] | None
) -> Iterator[pa.Table]:
    """``SavedFile.tables``, validated; the parallelisms are the savepoint's.

    Raises SavepointCorrupt naming the state, the actual and the expected value.
    """
    last: list[pa.Table] = []  # the previous table's last row, whose list may continue
    for table in file.tables(storage, layout, groups):
        _check(Rows(layout, table), max_parallelism, parallelism)
        if layout.info.kind == "list":
            _check_lists(Rows(layout, pa.concat_tables([*last, table])))
            last = [table.slice(table.num_rows - 1)]
        yield table


def _check(rows: Rows, max_parallelism: int, parallelism: int) -> None:
    layout = rows.layout
    numbers = {role: rows.numbers(role) for role in _COUNTING if layout.has(role)}
    if "key_group" in numbers:
        found, expected = numbers["key_group"], rows.key_groups(max_parallelism)
        wrong = np.flatnonzero(found != expected)
        if len(wrong):
            at = int(wrong[0])
            raise invalid(layout, f"a key has the key group {found[at]}, expected {expected[at]} of {max_parallelism}")
    if "subtask" in numbers:
        found = numbers["subtask"]
        wrong = np.flatnonzero((found < 0) | (found >= parallelism))
        if len(wrong):
            raise invalid(layout, f"column subtask holds {found[wrong[0]]}, expected 0 to {parallelism - 1}")
    if layout.info.is_timers:
        domain = layout.info.kind.removeprefix("timers-")
        domains = pc.unique(rows.parts["domain"][0]).to_pylist()
        if domains not in ([], [domain]):
            raise invalid(layout, f"column domain holds {', '.join(map(repr, domains))}, expected {domain!r}")


def _check_lists(rows: Rows) -> None:
    """Check that all elements of a list have the same key; index 0 begins a list."""
    continues = rows.numbers("index")[1:] != 0
    roles: tuple[Role, ...] = ("key", "namespace")
    for role in filter(rows.layout.has, roles):
        of = rows.layout.part(role).type
        columns = [column.combine_chunks() for column in rows.parts[role]]
        for at in np.flatnonzero(continues & ~_equals_previous(columns)).tolist():
            before, after = of.from_columns([column.slice(at, 2) for column in columns])
            if of.encode(before) != of.encode(after):  # NaN does not equal itself
                raise invalid(rows.layout, f"the {role} changes within a list, from {before!r} to {after!r}")


def _equals_previous(columns: list[Any]) -> Any:
    """Whether each row, from the second on, equals the row before it."""
    same = np.ones(max(0, len(columns[0]) - 1), bool)
    for column in columns:
        if pa.types.is_nested(column.type):
            values = column.to_pylist()
            same &= np.fromiter((a == b for a, b in pairwise(values)), bool, len(same))
        else:
            equal = pc.equal(column.slice(1), column.slice(0, len(same)))
            same &= pc.fill_null(equal, False).to_numpy(zero_copy_only=False)
    return same
