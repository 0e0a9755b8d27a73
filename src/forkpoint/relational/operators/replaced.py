"""The first epoch of a query that was computed from its input again: what it shows, without what the replaced query showed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from forkpoint.checkpoint.states import EMITTED, StateInfo
from forkpoint.relational.changes import WEIGHT, Owned, consolidated, difference, elements, weights_of, with_schema
from forkpoint.relational.definitions.groups import stored_definition
from forkpoint.relational.definitions.rows import stored_rows
from forkpoint.relational.operators.keyed import grouped_together, key_by, parts_of_keys
from forkpoint.relational.operators.multisets import Counts, stored_counts, stored_entries
from forkpoint.relational.operators.results import before_elements, none_of, result_of, rows_of, stored_groups, view_of
from forkpoint.relational.plan import Over
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.runtime.exchange.batch import Batch, DerivedBatch, empty_batch
from forkpoint.runtime.operators.base import Epoch, TaskInfo
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.types import TypeInformation, from_description


@dataclass
class Replaced:
    """The states of a replaced query, and those of the operator that took its place. ``entries``: of the replaced states, once
    they have been read."""

    backend: KeyedBackend
    old: Sequence[StateInfo]
    new: Sequence[StateInfo]
    entries: Sequence[bytes] = ()

    @staticmethod
    def of(info: TaskInfo, backend: KeyedBackend) -> Replaced | None:
        """None if the operator has not taken another query's place, or its first epoch has been committed."""
        known = [state for state in info.known_states.values() if state.uid == backend.uid]
        old = [state for state in known if state.is_replaced]
        if not old:
            return None
        for state in old:
            value, namespace = (None if t is None else from_description(t) for t in (state.value_type, state.namespace_type))
            backend.record(state.kind, state.name, value, namespace, state.ttl_ms, definition=EMITTED)
        return Replaced(backend, old, [state for state in known if state.is_shown and state not in old])

    def with_difference(self, batch: Batch, epoch: Epoch, of: TypeInformation) -> Batch:
        """An epoch's output, and the difference between the new query's result at its start and the replaced query's; net, and
        before the epoch's elements."""
        self.entries = [name for state in self.old for name, _ in stored_entries(self.backend, state.name)]
        schema = pa.schema([field for field in of.arrow_schema if field.name != WEIGHT])
        old, new = _shown(self.backend, self.old), _shown(self.backend, self.new)
        if batch.size:
            new = _after(new, columns_of(batch, of))
        table, weights, _ = difference(old, new, schema)
        if schema == of.arrow_schema:  # a result that only gains rows keeps those that the replaced query had
            weights = np.maximum(weights, 0)
        if not weights.any():
            return empty_batch(of)
        table, rows = elements(table, weights, of)
        return DerivedBatch(len(rows), lambda: before_elements(epoch, len(rows)), table=table, type=of)

    def collect(self, log: ChangeLog) -> None:
        """Remove the replaced states, if they have been read."""
        log.delete(self.entries)
        self.entries = ()


def _after(shown: Owned, output: pa.RecordBatch) -> Owned:
    """The net rows of a result after an epoch's output."""
    table, weights, owners = shown
    given = weights_of(output)
    changes = with_schema(output, table.schema), np.ones(output.num_rows, np.int64) if given is None else given
    return consolidated(
        pa.concat_batches([table, changes[0]]),
        np.concatenate([weights, changes[1]]),
        np.concatenate([owners, np.zeros(output.num_rows, np.int64)]),
    )


def _shown(backend: KeyedBackend, states: Sequence[StateInfo]) -> Owned:
    """What a query shows of its stored state."""
    definition = cast("dict[str, Any]", states[0].definition)
    return _shown_rows(backend, states) if "node" in definition else _shown_groups(backend, states[0])


def _shown_groups(backend: KeyedBackend, state: StateInfo) -> Owned:
    value, key = from_description(state.value_type), from_description(state.key_type)
    groups = stored_groups(backend, state.name, value, key, state.ttl_ms)
    owners, found = view_of(stored_definition(state.definition), groups)
    return found, np.ones(found.num_rows, np.int64), owners


def _shown_rows(backend: KeyedBackend, states: Sequence[StateInfo]) -> Owned:
    definition, by_side = stored_rows(states[0].definition), {_side(state): state for state in states}
    sides, names = [by_side[side] for side in definition.sides], definition.key_names
    key_type = from_description(sides[0].key_type)
    stored = [
        stored_counts(
            backend,
            each.name,
            from_description(each.namespace_type),
            key_type,
            each.ttl_ms,
            together=isinstance(definition.node, Over),
        )
        for each in sides
    ]
    parts = [parts_of_keys(each.keys, len(names)) or [each.keys] for each in stored]
    keys, owners = grouped_together(parts, key_by(names, names, definition.key_types), backend.max_parallelism)
    rows = [
        rows_of(definition, side, Counts(of_side, each.values, each.counts), keys.column)
        for side, each, of_side in zip(definition.sides, stored, owners, strict=True)
    ]
    return result_of(definition, none_of(rows), rows)


def _side(state: StateInfo) -> str:
    return str(cast("dict[str, Any]", state.definition)["side"])
