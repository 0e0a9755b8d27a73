"""Keeps the latest row of each primary key, and turns upserts into changes: the previous row is removed when a new one comes.

Changes that come a second time make no difference, and neither does the removal of a row that is not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.functions import ValueStateDescriptor
from forkpoint.graph.specs import DeclaredState
from forkpoint.graph.transformations import Edge, Transformation
from forkpoint.relational.changes import consolidated, row_type, weights_of, with_weights, without_weights
from forkpoint.relational.expressions import items_of
from forkpoint.relational.operators.keyed import key_by, key_columns
from forkpoint.relational.operators.retention import kept_for, sweeper
from forkpoint.relational.operators.select import SelectSpec, derived
from forkpoint.relational.types import Field, Schema
from forkpoint.runtime.columnar.keys import GroupedRows
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.runtime.exchange.batch import Batch, empty_batch
from forkpoint.runtime.operators.base import Epoch, KeyedOperator, Outputs, TaskInfo
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.state.columns import ValueColumns
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend

STATE_NAME = "rows"


def latest_rows(
    upserts: tuple[Edge, ...], name: str, label: str, schema: Schema, key: tuple[str, ...], ttl_ms: int | None = None
) -> tuple[Edge, ...]:
    """The changes of a table, of whose rows the latest of each key counts. ``upserts``: rows, and removals with a negative weight
    that have at least the key. ``label``: of this use of the table. ``ttl_ms``: how long a row is kept after its last change."""
    of_key = {field.name: field for field in schema if field.name in key}
    ordered = (*(of_key[each] for each in key), *(field for field in schema if field.name not in of_key))
    rows = Transformation(SelectSpec(None, items_of(ordered), True), "select", upserts, row_type(ordered, updating=True))
    keyed = key_by(key, key, [of_key[each].type for each in key])
    spec = LatestRowsSpec(tuple(Field(each.name, each.type.with_null()) for each in ordered), key, ttl_ms)
    of = row_type(ordered, updating=True)
    return (Edge(Transformation(spec, f"latest rows of {label}", (Edge(rows, partitioning=keyed),), of, uid=f"{name}-rows")),)


@dataclass(frozen=True)
class LatestRowsSpec(KeyedSpec):
    """The first columns are those of the key."""

    kind = "latest_rows"

    schema: Schema
    key: tuple[str, ...]
    ttl_ms: int | None = None

    def descriptor(self) -> ValueStateDescriptor[Any]:
        found: ValueStateDescriptor[Any] = ValueStateDescriptor(STATE_NAME, row_type(self.schema))
        found.definition = {"latest": list(self.key)}
        kept_for(found, self.ttl_ms)
        return found

    def states(self) -> list[DeclaredState]:
        return [DeclaredState.of(self.descriptor())]

    def instance(self, info: TaskInfo, state: ManagedState) -> LatestRows:
        return LatestRows(info, state.keyed, self)


class LatestRows(KeyedOperator):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: LatestRowsSpec) -> None:
        super().__init__(info, backend)
        assert self._type is not None
        self._count = len(spec.key)
        self._rows = ValueColumns(backend, spec.descriptor())
        if spec.ttl_ms is not None:
            backend.sweepers.append(sweeper(backend, backend.sid(STATE_NAME), spec.ttl_ms))

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        self._backend.processing_time_ms = epoch.processing_time_ms
        batch = inputs[0].in_order()
        if not batch.size:
            return Outputs(empty_batch(self._type))
        assert self._type is not None
        table = columns_of(batch, self._type)
        grouped = GroupedRows.of(
            key_columns(table, self._count, self._backend.key_type), self._key, self._backend.max_parallelism
        )
        last = grouped.order[grouped.starts[1:] - 1]
        latest = table.take(pa.array(last))
        weights, new = weights_of(latest), without_weights(latest)
        assert weights is not None
        self._rows.begin(grouped.keys)
        existed, old, exists = np.flatnonzero(self._rows.exists), self._rows.read(), weights > 0
        self._rows.write(new, exists)
        self._rows.clear(~exists)
        exist = np.flatnonzero(exists)
        both = pa.concat_batches([old.take(pa.array(existed)).cast(new.schema), new.take(pa.array(exist))])
        signs = np.repeat([-1, 1], [len(existed), len(exist)])
        changes, weights, owners = consolidated(both, signs, np.concatenate([existed, exist]))
        return Outputs(derived(batch, last[owners], with_weights(changes, weights), self._type))

    def changes(self) -> ChangeLog:
        log = ChangeLog()
        self._rows.collect(log)
        self._backend.sweep(log)
        return log
