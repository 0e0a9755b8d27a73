"""Runs a KeyedBatchFunction on a subtask's elements of an epoch, as one table sorted by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from forkpoint.errors import GraphError, UserFunctionError
from forkpoint.functions import (
    BatchContext,
    BatchState,
    KeyedBatchFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    declared_states,
)
from forkpoint.graph.specs import DeclaredState
from forkpoint.runtime.columnar.keys import GroupedRows, KeySet, key_columns, key_parts
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.runtime.event_time.timers import to_flink_ms
from forkpoint.runtime.exchange.batch import Batch, DerivedBatch, Longs, empty_batch, spread
from forkpoint.runtime.exchange.grouping import group_by_key
from forkpoint.runtime.operators.base import NOT_USERS, Context, Epoch, KeyedOperator, Outputs, TaskInfo, user_error
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.state.columns import Collections, ValueColumns
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.types import TypeInformation


class OpenContext(Context):
    """The context of ``open``. It refuses states, which need the keys of an epoch."""

    def _state(self, descriptor: Any) -> NoReturn:
        raise GraphError(
            f"operator {self._info.operator.uid!r}: state {descriptor.name!r} is requested in open(); declare its descriptor on "
            "the function's class, and get it from the context of process_batch()"
        )


class ColumnContext(BatchContext):
    """The context of ``process_batch`` in one epoch."""

    def __init__(self, owner: BatchProcess, batch: Batch, groups: GroupedRows, epoch: Epoch) -> None:
        self._owner, self._batch, self._groups, self._epoch = owner, batch, groups, epoch
        self.collected: list[tuple[pa.RecordBatch, Longs]] = []

    @property
    def keys(self) -> pa.Array:
        return self._groups.keys.column

    @property
    def key_index(self) -> Longs:
        return np.repeat(np.arange(len(self._groups.starts) - 1), np.diff(self._groups.starts))

    @property
    def offsets(self) -> Longs:
        return self._groups.starts

    @property
    def timestamps(self) -> Longs | None:
        timestamps = self._batch.timestamps
        return None if timestamps is None else timestamps[self._groups.order]

    @property
    def watermarks(self) -> Longs:
        return self._epoch.window.at(spread(self._batch.positions, self._batch.size)[self._groups.order])

    @property
    def watermark(self) -> int:
        return to_flink_ms(self._epoch.window.end)

    @property
    def processing_time(self) -> int:
        return self._epoch.processing_time_ms

    def get_state(self, descriptor: StateDescriptor) -> BatchState:
        return self._owner.state(descriptor)

    def collect(self, table: pa.Table | pa.RecordBatch, rows: Longs) -> None:
        indices = np.asarray(rows)
        if indices.shape != (table.num_rows,) or indices.dtype.kind not in "iu":
            raise UserFunctionError(
                f"operator {self._owner.uid!r}: collect() got {table.num_rows} rows and an index of shape {indices.shape} of "
                f"{indices.dtype}; give each row the index of its row in the epoch's table"
            )
        self.collected.append((self._owner.typed(table), indices))

    def take(self, result: pa.Table | pa.RecordBatch) -> None:
        """Collect the result of ``process_batch``."""
        keys = len(self._groups.starts) - 1
        if result.num_rows == self._batch.size:
            rows = np.arange(self._batch.size)
        elif result.num_rows == keys:
            rows = self._groups.starts[1:] - 1
        else:
            raise UserFunctionError(
                f"operator {self._owner.uid!r}: process_batch() returned {result.num_rows} rows for {self._batch.size} "
                f"elements of {keys} keys; return a row for each element or for each key, or call ctx.collect(table, rows)"
            )
        self.collected.append((self._owner.typed(result), rows))


@dataclass(frozen=True)
class KeyedBatchSpec(KeyedSpec):
    """A KeyedBatchFunction on a subtask's elements of an epoch, as columns."""

    kind = "process_batch"

    fn: KeyedBatchFunction

    def states(self) -> list[DeclaredState]:
        return [DeclaredState.of(d) for d in declared_states(self.fn).values()]

    def instance(self, info: TaskInfo, state: ManagedState) -> BatchProcess:
        return BatchProcess(info, state.keyed, self.fn)


class BatchProcess(KeyedOperator):
    """Runs one KeyedBatchFunction."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, fn: KeyedBatchFunction) -> None:
        key = info.operator.key
        assert key is not None
        assert info.operator.output_type is not None
        assert info.operator.inputs[0].type is not None
        self.uid = info.operator.uid
        self._key, self._parts = key, key_parts(key, info.operator.inputs[0].type)
        self._in: TypeInformation = info.operator.inputs[0].type
        self._out: TypeInformation = info.operator.output_type
        self._backend, self._fn = backend, fn
        self._states: dict[str, BatchState] = {}
        for d in declared_states(fn).values():
            is_collection = isinstance(d, ListStateDescriptor | MapStateDescriptor)
            self._states[d.name] = Collections(backend, d) if is_collection else ValueColumns(backend, d)
        self._columns = [state for state in self._states.values() if isinstance(state, ValueColumns)]
        fn.open(OpenContext(info, backend))

    def state(self, descriptor: StateDescriptor) -> BatchState:
        found = self._states.get(descriptor.name)
        if found is None:
            raise UserFunctionError(
                f"operator {self.uid!r}: state {descriptor.name!r} is not declared on {type(self._fn).__name__}; make its "
                "descriptor a class attribute"
            )
        return found

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0]
        if not batch.size:
            return Outputs(empty_batch(self._out))
        table = columns_of(batch, self._in)
        groups = self._grouped(batch)
        keys, order = groups.keys, groups.order
        for state in self._columns:
            state.begin(keys)
        if self._backend.handles:
            self._backend.begin(keys.type.from_arrow(keys.column), epoch.processing_time_ms, lambda: epoch.window.start)
        context = ColumnContext(self, batch, groups, epoch)
        try:
            result = self._fn.process_batch(pa.Table.from_batches([table.take(pa.array(order))]), context)
            if result is not None:
                context.take(result)
        except NOT_USERS:
            raise
        except BaseException as error:
            raise user_error(self.uid, error, f"a batch of {batch.size} elements") from error
        return Outputs(self._output(batch, order, context.collected))

    def _grouped(self, batch: Batch) -> GroupedRows:
        type, max_parallelism = self._backend.key_type, self._backend.max_parallelism
        columns = None if self._parts is None else key_columns(batch, self._key, self._parts)
        if columns is not None:
            return GroupedRows.of(columns, self._key, max_parallelism)
        groups = group_by_key(batch, self._key)
        keys = KeySet(type.to_arrow(groups.keys), type, max_parallelism)
        return GroupedRows(keys, groups.order, groups.starts)

    def typed(self, result: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
        """Results as columns of the output type."""
        schema = self._out.arrow_schema
        missing = [name for name in schema.names if name not in result.schema.names]
        if missing:
            raise UserFunctionError(
                f"operator {self.uid!r}: the results lack the columns {', '.join(missing)} of the output type {self._out}; "
                f"they have {', '.join(result.schema.names)}"
            )
        columns = []
        for field in schema:
            column = result.column(field.name)
            column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
            if column.null_count and not field.nullable:
                raise UserFunctionError(
                    f"operator {self.uid!r}: column {field.name!r} of the results has nulls; make the field of the output type "
                    "Optional, or fill them"
                )
            try:
                columns.append(column if column.type == field.type else column.cast(field.type))
            except pa.ArrowException as error:
                raise UserFunctionError(f"operator {self.uid!r}: column {field.name!r} of the results: {error}") from error
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _output(self, batch: Batch, order: Longs, collected: list[tuple[pa.RecordBatch, Longs]]) -> Batch:
        if not collected:
            return empty_batch(self._out)
        table = collected[0][0] if len(collected) == 1 else pa.concat_batches([part for part, _ in collected])
        rows = np.concatenate([indices for _, indices in collected])
        return DerivedBatch.of(batch, order[rows], table=table, type=self._out)

    def changes(self) -> ChangeLog:
        log = self._backend.collect()
        for state in self._columns:
            state.collect(log)
        return log

    def close(self) -> None:
        self._fn.close()
