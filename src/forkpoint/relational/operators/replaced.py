"""The first epoch of a query that was computed from its input again: what it shows, without what the replaced query showed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from forkpoint.checkpoint.states import EMITTED, StateInfo
from forkpoint.relational.changes import WEIGHT, consolidated, weights_of, with_schema, with_weights
from forkpoint.relational.definitions.groups import stored_definition
from forkpoint.relational.definitions.rows import stored_rows
from forkpoint.relational.operators.keyed import parts_of_keys
from forkpoint.relational.operators.multisets import Counts, stored_counts, stored_entries
from forkpoint.relational.operators.results import Groups, none_of, result_of, rows_of, view_of
from forkpoint.runtime.columnar.keys import codes_of, decode_keys
from forkpoint.runtime.columnar.leaves import Codec
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.runtime.columnar.segments import run_starts
from forkpoint.runtime.exchange.batch import Batch, DerivedBatch, Longs, empty_batch, stable_order
from forkpoint.runtime.operators.base import Epoch, TaskInfo
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.state import decode_state_key
from forkpoint.types import TypeInformation, from_description

Shown = tuple[pa.RecordBatch, Longs]
"""Rows, and how often each is there."""


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
            backend.record(state.kind, state.name, value, namespace, definition=EMITTED)
        new = [state for state in known if state.definition is not None and state not in old]
        return Replaced(backend, old, [state for state in new if "values" not in state.definition])

    def with_difference(self, batch: Batch, epoch: Epoch, of: TypeInformation) -> Batch:
        """An epoch's output, and the difference between the new query's result at its start and the replaced query's; net, and
        before the epoch's elements."""
        self.entries = [name for state in self.old for name, _ in stored_entries(self.backend, state.name)]
        schema = pa.schema([field for field in of.arrow_schema if field.name != WEIGHT])
        updating = len(schema) < len(of.arrow_schema)
        old, new = _shown(self.backend, self.old), _shown(self.backend, self.new)
        after = [new]
        if batch.size:
            output = columns_of(batch, of)
            given = weights_of(output)
            after.append((output, np.ones(batch.size, np.int64) if given is None else given))
        table, weights = _net([(with_schema(rows, schema), weights) for rows, weights in after])
        # Rows with other columns than before are emitted again, whatever their values.
        removed, both = (with_schema(old[0], schema), -old[1]), old[0].schema == new[0].schema
        table, weights = (_net if both else _all)([removed, (table, weights)])
        if not updating:  # a result that only gains rows keeps those that the replaced query had
            weights = np.maximum(weights, 0)
        rows = np.repeat(np.arange(len(weights)), np.abs(weights))
        if not len(rows):
            return empty_batch(of)
        table = with_weights(table.take(pa.array(rows)), np.sign(weights[rows]) if updating else None)
        table = pa.RecordBatch.from_arrays(table.columns, schema=of.arrow_schema)
        first = np.full(len(rows), 2 * epoch.window.before + 1)
        return DerivedBatch(len(rows), lambda: (first, np.zeros_like(first), np.arange(len(rows)), None), table=table, type=of)

    def collect(self, log: ChangeLog) -> None:
        """Remove the replaced states, if they have been read."""
        log.delete(self.entries)
        self.entries = ()


def _all(parts: Sequence[Shown]) -> Shown:
    return pa.concat_batches([rows for rows, _ in parts]), np.concatenate([weights for _, weights in parts])


def _net(parts: Sequence[Shown]) -> Shown:
    rows, weights = _all(parts)
    return consolidated(rows, weights, np.zeros(len(weights), np.int64))[:2]


def _shown(backend: KeyedBackend, states: Sequence[StateInfo]) -> Shown:
    """What a query shows of its stored state."""
    definition = cast("dict[str, Any]", states[0].definition)
    return _shown_rows(backend, states) if "node" in definition else _shown_groups(backend, states[0])


def _shown_groups(backend: KeyedBackend, state: StateInfo) -> Shown:
    definition, of = stored_definition(state.definition), from_description(state.value_type)
    entries = stored_entries(backend, state.name)
    keys = decode_keys([decode_state_key(name).key for name, _ in entries], from_description(state.key_type))
    columns = Codec(of).columns([value for _, value in entries])
    _, found = view_of(definition, Groups(keys, dict(zip(of.arrow_schema.names, columns, strict=True))))
    return found, np.ones(found.num_rows, np.int64)


def _shown_rows(backend: KeyedBackend, states: Sequence[StateInfo]) -> Shown:
    definition, by_side = stored_rows(states[0].definition), {_side(state): state for state in states}
    sides = [by_side[side] for side in definition.sides]
    key_type = from_description(sides[0].key_type)
    stored = [stored_counts(backend, each.name, from_description(each.namespace_type), key_type) for each in sides]
    keys = pa.concat_arrays([each.keys for each in stored])
    order, codes = stable_order(codes_of(parts_of_keys(keys, len(definition.key_names)) or [keys]))
    starts = run_starts(codes)
    owners = np.empty(len(order), np.int64)
    owners[order] = np.cumsum(starts) - 1
    distinct, cuts = keys.take(pa.array(order[starts])), np.cumsum([len(each.names) for each in stored])[:-1]
    rows = [
        rows_of(definition, side, Counts(of_side, each.values, each.counts), distinct)
        for side, each, of_side in zip(definition.sides, stored, np.split(owners, cuts), strict=True)
    ]
    table, weights, _ = result_of(definition, none_of(rows), rows)
    return table, weights


def _side(state: StateInfo) -> str:
    return str(cast("dict[str, Any]", state.definition)["side"])
