"""OVER with the partitions of windows: keeps rows until event time passes the window's end, then emits them with their calls.

ORDER BY event time is the same without calls, and with a row's own time as its end. The final rows of a result that changes are
those at the end of all input; only they may also be removed before.
As in GROUP BY of windows, each partition has a timer for the last moment of its window, and rows that come later are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from forkpoint.graph.specs import DeclaredState
from forkpoint.relational.changes import weights_of
from forkpoint.relational.definitions.rows import RowsDefinition
from forkpoint.relational.evaluation import evaluate
from forkpoint.relational.operators.joins.keyed_rows import (
    descriptor_of,
    saved_as,
    state_name,
    still_kept,
    stored_form,
    stored_type,
)
from forkpoint.relational.operators.joins.pairs import Rows
from forkpoint.relational.operators.keyed import grouped_together, key_columns, parts_of_keys
from forkpoint.relational.operators.multisets import Counts, Multiset, distinct, stored_entries
from forkpoint.relational.operators.over import computed
from forkpoint.relational.operators.results import Bools, none_of, rows_of, shown_rows
from forkpoint.relational.operators.window_aggregate import due_timers, timers_at
from forkpoint.relational.plan import Over
from forkpoint.runtime.columnar.keys import KeySet, decode_keys, read_timers
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.runtime.event_time.timers import EVENT_TIMERS
from forkpoint.runtime.event_time.watermarks import timer_positions
from forkpoint.runtime.exchange.batch import Batch, Coordinates, DerivedBatch, Longs, column_ms, empty_batch, spread
from forkpoint.runtime.operators.base import Epoch, KeyedOperator, Outputs, TaskInfo
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.operators.keyed_process import firing_rank
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend


@dataclass(frozen=True)
class WindowOverSpec(KeyedSpec):
    """The input has the columns of the partition, and those that are kept, by their names."""

    kind = "window_over"

    definition: RowsDefinition

    def states(self) -> list[DeclaredState]:
        rows = DeclaredState.of(descriptor_of(self.definition, ""))
        return [rows, DeclaredState(EVENT_TIMERS, "timers-event", None)]

    def instance(self, info: TaskInfo, state: ManagedState) -> WindowOver:
        return WindowOver(info, state.keyed, self.definition)


class WindowOver(KeyedOperator):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, definition: RowsDefinition) -> None:
        super().__init__(info, backend)
        assert isinstance(definition.node, Over)
        assert definition.node.until
        self._definition, self._until, self._in = definition, definition.node.until, info.operator.inputs[0].type
        descriptor = descriptor_of(definition, "")
        self._before, self._saved = saved_as(info, backend, descriptor)
        self._rows = Multiset(backend, descriptor)
        backend.record("timers-event", EVENT_TIMERS, None)
        self._timers, self._rank = backend.sid(EVENT_TIMERS), firing_rank(info.operator.stage, event=True)
        self._log = ChangeLog()

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        self._log = ChangeLog()
        (batch,), before = inputs, self._before if epoch.restored else None
        timers = due_timers(self._backend, epoch)
        if before is not None:  # every partition has one
            timers = [name for name, _ in stored_entries(self._backend, EVENT_TIMERS)]
        if not timers and not batch.size:
            return Outputs(empty_batch(self._type))
        self._log.delete(timers)
        of, count = self._backend.key_type, len(self._definition.key_names)
        table, of_timers = columns_of(batch, self._in), decode_keys(read_timers(timers)[1], of)
        parts = [key_columns(table, count, of), parts_of_keys(of_timers, count) or [of_timers]]
        keys, (owners, due) = grouped_together(parts, self._key, self._backend.max_parallelism)
        values = stored_form(self._definition, "", table)
        weights = weights_of(table)
        counts = Counts(owners, values, np.ones(len(owners), np.int64) if weights is None else weights)
        rows = rows_of(self._definition, "", counts, keys.column)
        in_time = np.flatnonzero(self._ends(rows) > epoch.window.at(spread(batch.positions, batch.size)))
        rows, late = rows.take(in_time), batch.size - len(in_time)
        ending = np.concatenate([due, rows.owners[self._ends(rows) <= epoch.window.end]])
        stored = self._stored(keys, distinct(ending), before).with_columns_of(rows)
        rows = stored.followed_by(rows)
        ends = self._ends(rows)
        stays, is_stored = ends > epoch.window.end, np.arange(len(ends)) < (0 if before is not None else len(stored.owners))
        self._save(keys, rows, ends, added=stays & ~is_stored, removed=~stays & is_stored, rewrite=before is not None)
        self._rows.collect(self._log)
        return Outputs(self._emitted(rows.take(np.flatnonzero(~stays)), keys), late_records_dropped=late)

    def _ends(self, rows: Rows) -> Longs:
        return column_ms(evaluate(self._until, rows.columns))

    def _stored(self, keys: KeySet, which: Longs, before: RowsDefinition | None) -> Rows:
        """The stored rows of these partitions; those of a changed query that the new one keeps, which leave the state."""
        found = self._rows.stored(keys, which, stored_type(self._definition, "", before, self._saved))
        if before is None:
            return rows_of(self._definition, "", found, keys.column)
        rows = rows_of(before, "", found, keys.column)
        self._rows.remove(keys.names(self._backend.sid(state_name("")), which) if len(which) else [])
        return rows.take(still_kept(before, self._definition, "", rows))

    def _save(self, keys: KeySet, rows: Rows, ends: Longs, *, added: Bools, removed: Bools, rewrite: bool) -> None:
        """Store and remove rows. ``rewrite``: those that are added are all that there are."""
        weights = np.where(removed, -rows.weights, rows.weights)
        changed = rows.take(np.flatnonzero(added | removed))
        values = stored_form(self._definition, "", changed.columns)
        if rewrite:
            self._rows.replace([], keys, changed.owners, values, changed.weights)
        else:
            self._rows.update(keys, changed.owners, values, weights[added | removed])
        names = timers_at(keys, self._timers, rows.owners[added], ends[added])
        self._log.add(names, [b""] * len(names))

    def _emitted(self, rows: Rows, keys: KeySet) -> Batch:
        assert self._type is not None
        assert isinstance(self._definition.node, Over)
        partitions, _, owners = computed(self._definition.node, none_of([rows])[0], rows)
        shown, table = shown_rows(self._definition.view, partitions)
        if not table.num_rows:
            return empty_batch(self._type)
        at = column_ms(evaluate(self._until, partitions))
        if shown is not None:
            at, owners = at[shown], owners[shown]

        def coordinates() -> Coordinates:
            # Rows of one partition come in its order.
            sequence = keys.tie_breakers[owners] if self._definition.key_names else np.arange(len(owners))
            return timer_positions(at), self._rank, sequence, at

        table = pa.RecordBatch.from_arrays(table.columns, schema=self._type.arrow_schema)
        return DerivedBatch(table.num_rows, coordinates, table=table, type=self._type)

    def changes(self) -> ChangeLog:
        return self._log
