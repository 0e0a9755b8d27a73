"""Changes a state's rows between two savepoints, a slice at a time."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import EditRefused, RestoreRefused
from forkpoint.extras import require
from forkpoint.savepoint.edit.rows import in_order, objects_of
from forkpoint.savepoint.format.layout import Layout, layout_of
from forkpoint.savepoint.format.rows import is_listed
from forkpoint.savepoint.restore.evolution import Change, changed

Condition = str | Callable[[Any], Any]
_ROW = "__row"


def run_steps(steps: Sequence[Step], layout: Layout, table: pa.Table) -> pa.Table:
    """The rows after all steps, in order."""
    for step in steps:
        table = step(layout, table)
        layout = layout_of(step.after(layout.info))
        # A transform may change keys, and the next step relies on distinct keys and lists without gaps.
        if isinstance(step, Transform) or is_listed(layout):
            table = in_order(layout, table)
    return table


@lru_cache(maxsize=64)
def entry_class(roles: tuple[str, ...]) -> Any:
    """A NamedTuple of the parts of a row."""
    return namedtuple("Entry", roles)


def entries_of(layout: Layout, table: pa.Table) -> list[Any]:
    """A NamedTuple for each row: ``entry.key``, ``entry.value``, … as Python objects."""
    found = objects_of(layout, table)
    return list(map(entry_class(tuple(found))._make, zip(*found.values(), strict=True)))


@dataclass(frozen=True)
class Keep:
    """Keeps the rows that match the condition: SQL over the columns, or a function of an entry."""

    condition: Condition

    def after(self, info: StateInfo) -> StateInfo:
        return info

    def __call__(self, layout: Layout, table: pa.Table) -> pa.Table:
        if isinstance(self.condition, str):
            return table.take(pa.array(matching(table, self.condition, layout.info.where), pa.int64()))
        rows = []
        for row, entry in enumerate(entries_of(layout, table)):
            try:
                if self.condition(entry):
                    rows.append(row)
            except Exception as error:
                name = getattr(self.condition, "__qualname__", repr(self.condition))
                raise EditRefused(f"{layout.info.where}: the filter {name} failed with {error!r} for {entry!r}") from error
        return table.take(pa.array(rows, pa.int64()))


def matching(table: pa.Table, condition: str, where: str) -> Any:
    """The indexes of the rows that match a SQL condition. Raises EditRefused for an invalid condition."""
    require("duckdb", "a condition in SQL")
    import duckdb

    from forkpoint.savepoint.inspect import sandbox

    numbered = table.append_column(_ROW, pa.array(np.arange(table.num_rows)))
    sql = f'SELECT "{_ROW}" FROM rows WHERE ({condition}\n)'
    with sandbox.connected() as (connection, _):
        try:
            connection.register("rows", numbered)
            sandbox.lock(connection)
            sandbox.tables(connection, sql)
            found = connection.sql(sql).to_arrow_table()
        except (duckdb.Error, EditRefused) as error:
            columns = ", ".join(table.column_names)
            raise EditRefused(f"{where}: the condition {condition!r} is invalid: {error}; the columns are {columns}") from error
    return np.sort(found.column(0).to_numpy())


@dataclass(frozen=True)
class Transform:
    """Changes values or keys with a function, like a migration at a restore."""

    change: Change

    def after(self, info: StateInfo) -> StateInfo:
        return self.change.target

    def __call__(self, layout: Layout, table: pa.Table) -> pa.Table:
        if not table.num_rows:
            return layout_of(self.change.target).schema.empty_table()
        try:
            found = list(changed([table], layout, self.change))
        except RestoreRefused as error:
            raise EditRefused(f"{self.change.target.where}: {error.__cause__ or error}") from error
        return pa.concat_tables(found)


Step = Keep | Transform
"""Changes a slice of a state's rows, which has all rows of its keys; ``after`` describes the new state."""
