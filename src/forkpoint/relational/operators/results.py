"""What queries show of their state: of groups, and of rows that are kept by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from forkpoint.relational.aggregation.accumulators import ROWS
from forkpoint.relational.changes import Owned
from forkpoint.relational.definitions.groups import GroupDefinition, View
from forkpoint.relational.definitions.rows import RowsDefinition
from forkpoint.relational.evaluation import evaluate_all, true_rows
from forkpoint.relational.operators.joins.pairs import Rows, joined
from forkpoint.relational.operators.keyed import parts_of_keys
from forkpoint.relational.operators.multisets import Counts, stored_entries
from forkpoint.relational.operators.over import computed
from forkpoint.relational.plan import PRESENT, Join
from forkpoint.runtime.columnar.keys import decode_keys
from forkpoint.runtime.columnar.leaves import Codec
from forkpoint.runtime.exchange.batch import Coordinates, Longs
from forkpoint.runtime.operators.base import Epoch
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.state import decode_state_key
from forkpoint.types import TypeInformation

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Groups:
    """Groups, and their accumulators by name."""

    keys: pa.Array
    state: Mapping[str, pa.Array]

    @property
    def exist(self) -> Bools:
        """Which groups have rows."""
        return np.asarray(self.state[ROWS.name].fill_null(0).to_numpy(zero_copy_only=False) > 0)


def view_of(definition: GroupDefinition, groups: Groups) -> tuple[Longs, pa.RecordBatch]:
    """The groups that a query shows, and their columns."""
    present = np.flatnonzero(groups.exist)
    indices = pa.array(present)
    parts = parts_of_keys(groups.keys.take(indices), len(definition.aggregate.keys))
    named = {key.name: part for key, part in zip(definition.aggregate.keys, parts, strict=True)}
    shown, columns = definition.rows(named, {name: column.take(indices) for name, column in groups.state.items()})
    return present if shown is None else present[shown], columns


def stored_groups(
    backend: KeyedBackend, name: str, of: TypeInformation, key_type: TypeInformation, ttl_ms: int | None = None
) -> Groups:
    """All groups in the store. ``of``, ``key_type``: the saved types of accumulators and keys."""
    found = stored_entries(backend, name, ttl_ms)
    keys = decode_keys([decode_state_key(entry).key for entry, _ in found], key_type)
    columns = Codec(of).columns([value for _, value in found])
    return Groups(keys, dict(zip(of.arrow_schema.names, columns, strict=True)))


def before_elements(epoch: Epoch, size: int) -> Coordinates:
    """The coordinates of results that come before the epoch's elements."""
    return np.full(size, 2 * epoch.window.before + 1), np.zeros(size, np.int64), np.arange(size), None


def rows_of(definition: RowsDefinition, side: str, counts: Counts, keys: pa.Array) -> Rows:
    """Stored rows with their columns, of which some are parts of the key."""
    parts = parts_of_keys(keys, len(definition.key_names))
    null = np.zeros(len(keys), bool)
    for part in parts:
        null |= part.is_null().to_numpy(zero_copy_only=False)
    owners = pa.array(counts.groups)
    # Named as they were saved: an earlier release saved the whole of a column of which only fields are read.
    names = [field.name for field in counts.values.type] if definition.kept(side) else []
    columns = dict(zip(names, counts.values.flatten(), strict=False))
    columns |= {name: parts[at].take(owners) for name, at in definition.in_key(side).items()}
    table = pa.RecordBatch.from_pydict({**columns, PRESENT: pa.repeat(pa.scalar(True), len(owners))})
    return Rows(table, counts.groups, np.where(null[counts.groups], -1, counts.groups), counts.counts)


def none_of(sides: Sequence[Rows]) -> list[Rows]:
    return [rows.take(np.zeros(0, np.int64)) for rows in sides]


def result_of(definition: RowsDefinition, before: Sequence[Rows], added: Sequence[Rows]) -> Owned:
    """The changes of a query's result as rows are added to its sides; the meaning of the arguments is that of ``joined``."""
    if isinstance(definition.node, Join):
        table, weights, owners = joined(definition.node, before, added)
    else:
        table, weights, owners = computed(definition.node, before[0], added[0])
    rows, columns = shown_rows(definition.view, table)
    return (columns, weights, owners) if rows is None else (columns, weights[rows], owners[rows])


def shown_rows(view: View, table: pa.RecordBatch) -> tuple[Longs | None, pa.RecordBatch]:
    """The rows that a view shows (None: all), and their columns."""
    rows = true_rows(view.condition, table)
    if rows is not None:
        table = table.take(pa.array(rows))
    names = [item.name for item in view.items]
    return rows, pa.RecordBatch.from_arrays(evaluate_all(view.items, table), names=names)
