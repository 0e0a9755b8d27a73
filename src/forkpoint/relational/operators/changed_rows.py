"""Turns elements that are changes of rows into the rows before and after them, with weights, and such rows into changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from forkpoint.errors import JobFailed
from forkpoint.relational.changes import changed_rows, structs, weights_of, without_weights
from forkpoint.relational.operators.select import ColumnsOperator
from forkpoint.runtime.operators.base import TaskInfo
from forkpoint.runtime.operators.instances import ManagedState, RunnableSpec
from forkpoint.types import RowKind


@dataclass(frozen=True)
class ChangedRowsSpec(RunnableSpec):
    """``upserts``: updates need no row before them, because rows have a key."""

    kind = "changed_rows"

    upserts: bool

    def instance(self, info: TaskInfo, state: ManagedState) -> ChangedRowsOperator:
        return ChangedRowsOperator(info, self)


class ChangedRowsOperator(ColumnsOperator):
    def __init__(self, info: TaskInfo, spec: ChangedRowsSpec) -> None:
        super().__init__(info)
        self._uid, self._upserts = info.operator.uid, spec.upserts

    def computed(self, table: pa.RecordBatch) -> tuple[np.ndarray, pa.RecordBatch]:
        kinds, before = table.column("kind").to_numpy(zero_copy_only=False), table.column("before")
        unknown = (kinds == RowKind.UPDATE_AFTER.value) & before.is_null().to_numpy(zero_copy_only=False)
        if unknown.any() and not self._upserts:
            raise JobFailed(
                f"operator {self._uid!r}: an update has no row before it; let the database log it (PostgreSQL: REPLICA IDENTITY "
                "FULL), or declare a primary key and ChangelogMode.upsert()"
            )
        rows, of = changed_rows(kinds, before, table.column("after"))
        return of, rows


@dataclass(frozen=True)
class ChangesSpec(RunnableSpec):
    """Rows that are added are ``after``, those that are removed ``before``."""

    kind = "changes"

    def instance(self, info: TaskInfo, state: ManagedState) -> ChangesOperator:
        return ChangesOperator(info)


class ChangesOperator(ColumnsOperator):
    def computed(self, table: pa.RecordBatch) -> tuple[None, pa.RecordBatch]:
        weights, rows, schema = weights_of(table), without_weights(table), self._out.arrow_schema
        assert weights is not None
        kinds = pa.array(np.where(weights > 0, RowKind.UPDATE_AFTER.value, RowKind.DELETE.value), pa.int64())
        present = {"before": weights < 0, "after": weights > 0}
        found = {name: structs(rows, schema.field(name).type, which) for name, which in present.items()} | {"kind": kinds}
        columns = [found[name] if name in found else pa.nulls(len(rows), schema.field(name).type) for name in schema.names]
        return None, pa.RecordBatch.from_arrays(columns, names=schema.names)
