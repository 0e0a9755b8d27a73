"""Running aggregates of a keyed stream: a row, or an element with a field replaced, for each element.

Each row comes out as the accumulator is behind it; the last one of a key is its state. Where numpy would do otherwise
than Python, an epoch is computed element by element, with the same state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.functions import Aggregates, RowShape, WindowRows
from forkpoint.graph.specs import DeclaredState
from forkpoint.graph.transformations import KeyBy
from forkpoint.runtime.columnar.keys import KeySet, codes_of, column_of, key_columns, key_parts, parts_of
from forkpoint.runtime.columnar.leaves import Codec
from forkpoint.runtime.columnar.objects import as_columns
from forkpoint.runtime.columnar.plans import Plan, aggregates_plan, element_plan, empty_leaves
from forkpoint.runtime.columnar.segments import Segments
from forkpoint.runtime.exchange.batch import Batch, stable_order
from forkpoint.runtime.operators.base import Epoch, Outputs, TaskInfo
from forkpoint.runtime.operators.keyed_functions import STATE_NAME, OneValue, one_value
from forkpoint.runtime.operators.rolling import Rolling, rolling_function
from forkpoint.runtime.operators.spec import KeyedSpec, ManagedState
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.runtime.windows.spec import WindowSpec
from forkpoint.types import TypeInformation


class ColumnRunning(OneValue):
    """Runs ``plan`` over columns where there is one, else ``_run_key`` over elements."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, type: TypeInformation) -> None:
        super().__init__(info, backend, type)
        self._max_parallelism = info.max_parallelism
        self._sid = backend.sid(STATE_NAME)
        self._codec = Codec(type)
        self._column_log: ChangeLog | None = None
        self._parts = key_parts(self._key)
        self.plan: Plan | None = None

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        self._column_log = None
        batch = inputs[0] if self.plan is None or self._parts is None else as_columns(inputs[0])
        outputs = self._run_columns(batch, epoch)
        return super().run(inputs, epoch) if outputs is None else outputs

    def changes(self) -> ChangeLog:
        log, self._column_log = self._column_log, None
        return super().changes() if log is None else log

    def _run_columns(self, batch: Batch, epoch: Epoch) -> Outputs | None:
        plan, key = self.plan, self._key
        assert key.key_type is not None
        if plan is None or self._parts is None or self._type is None or batch.table is None or not batch.size:
            return None
        columns = key_columns(batch, key, self._parts)
        if columns is None:
            return None
        order, codes = stable_order(codes_of(columns))
        starts = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
        firsts = pa.array(order[starts])
        found = column_of([column.take(firsts) for column in columns], key.key_type)
        keys = KeySet(found, key.key_type, self._max_parallelism)
        names = keys.names(self._sid)
        raw = self._backend.store.get_many(names)
        stored = [r for r in raw if r is not None]
        saved = self._codec.decode(stored) if stored else empty_leaves(plan.type)
        if saved is None:
            return None
        saved_at = np.full(len(raw), -1)
        held = np.fromiter((r is not None for r in raw), bool, len(raw))
        saved_at[held] = np.arange(len(stored))
        segments = Segments(batch.table, order, np.append(starts, len(order)), saved_at)
        found = plan.running(segments, saved)
        if found is None:
            return None
        self._column_log = ChangeLog(names, list(self._codec.encode(found.leaves)))
        table = self._table(plan, found.results, keys, key, segments)
        return Outputs(batch.with_table(table, order, self._type))

    def _table(
        self, plan: Plan, results: list[pa.Array], keys: KeySet, key: KeyBy, segments: Segments
    ) -> pa.RecordBatch:
        assert self._type is not None
        column = keys.column.take(pa.array(segments.of_row))

        def no_bounds(_: Any) -> Any:
            raise AssertionError("only windows have bounds")

        columns = plan.shaped(results, column, parts_of(column, key), no_bounds)
        return pa.RecordBatch.from_arrays(columns, schema=self._type.arrow_schema)


@dataclass(frozen=True)
class RunningAggregatesSpec(KeyedSpec):
    """``agg`` on a keyed stream: every element comes out as a row of its key's aggregates so far."""

    kind = "aggregate"

    aggregates: Aggregates
    shape: RowShape
    accumulator_type: TypeInformation

    def states(self) -> list[DeclaredState]:
        return one_value(self.accumulator_type)

    def instance(self, info: TaskInfo, state: ManagedState) -> RunningAggregates:
        return RunningAggregates(info, state.keyed, self)

    def in_batch(self) -> WindowSpec:
        return WindowSpec.of_all("aggregating", self.accumulator_type, self.aggregates, WindowRows(self.shape))


class RunningAggregates(ColumnRunning):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: RunningAggregatesSpec) -> None:
        super().__init__(info, backend, spec.accumulator_type)
        self._aggregates, self._shape = spec.aggregates, spec.shape
        elements = info.operator.inputs[0].type
        if elements is not None:
            self.plan = aggregates_plan(spec.aggregates, spec.shape, spec.accumulator_type, elements)

    def _run_key(self, values: list[Any], start: int, stop: int, state: Any, out: list[Any]) -> Any:
        aggregates, row, extend = self._aggregates, self._shape.row, self._outlet.into(out)
        accumulator = aggregates.create_accumulator() if state is None else self._given(state)
        key = self._key.selector(values[start])
        unchanging = self._guard.type.immutable
        for value in values[start:stop]:
            accumulator = aggregates.add(value, accumulator)
            if unchanging and self._one_by_one:
                accumulator = self._kept(accumulator)
            extend((row(key, None, aggregates.get_result(accumulator)),))
        # These aggregates change no accumulator that they have given out, so one that can change is encoded once.
        return accumulator if unchanging else self._kept(accumulator)


@dataclass(frozen=True)
class RollingSpec(Rolling, KeyedSpec):
    """``sum``, ``min``, ``max``, ``min_by``, ``max_by`` on a keyed stream: every element comes out as the result so far."""

    kind = "rolling"

    def states(self) -> list[DeclaredState]:
        return one_value(self.value_type)

    def instance(self, info: TaskInfo, state: ManagedState) -> ColumnRolling:
        return ColumnRolling(info, state.keyed, self)

    def in_batch(self) -> WindowSpec:
        return WindowSpec.of_all("reducing", self.value_type, self)


class ColumnRolling(ColumnRunning):
    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: RollingSpec) -> None:
        super().__init__(info, backend, spec.value_type)
        self._reduce = rolling_function(spec, info.operator.uid)
        self.plan = element_plan(spec)

    def _run_key(self, values: list[Any], start: int, stop: int, state: Any, out: list[Any]) -> Any:
        return self._reduced(self._reduce, values[start:stop], state, out)
