"""Running aggregates of a keyed stream, which emit a row, or an element with a field replaced, for each element.

Two kernels share the state, one value per key. The column-wise kernel computes the accumulator after each row and saves each
key's last accumulator. The element-wise kernel runs the epochs in which numpy would differ from Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from forkpoint.functions import Aggregates, RowShape, WindowRows
from forkpoint.graph.specs import DeclaredState
from forkpoint.graph.transformations import KeyBy
from forkpoint.runtime.columnar.keys import GroupedRows, key_columns, key_parts
from forkpoint.runtime.columnar.leaves import Codec
from forkpoint.runtime.columnar.objects import as_columns
from forkpoint.runtime.columnar.plans import Plan, aggregates_plan, element_plan
from forkpoint.runtime.columnar.reduced_fields import reduce_plan
from forkpoint.runtime.columnar.segments import Segments
from forkpoint.runtime.exchange.batch import Batch, DerivedBatch
from forkpoint.runtime.operators.base import Epoch, KeyedOperator, OperatorInstance, Outputs, TaskInfo
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState
from forkpoint.runtime.operators.keyed_functions import STATE_NAME, OneValue, Reduce, RunningReduction, one_value
from forkpoint.runtime.operators.rolling import Rolling, rolling_function
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.runtime.windows.spec import WindowSpec
from forkpoint.types import TypeInformation


class RunningKernel:
    """Running aggregates over columns."""

    def __init__(
        self, backend: KeyedBackend, key: KeyBy, parts: tuple[TypeInformation, ...], type: TypeInformation, plan: Plan
    ) -> None:
        self._key, self._parts, self._type, self._plan = key, parts, type, plan
        self._max_parallelism, self._store, self._sid = backend.max_parallelism, backend.store, backend.sid(STATE_NAME)
        self._codec = Codec(plan.type)

    def compute(self, batch: Batch) -> tuple[Outputs, ChangeLog] | None:
        """None if the epoch must be computed element by element."""
        columns = key_columns(batch, self._key, self._parts) if batch.size else None
        if columns is None:
            return None
        assert batch.table is not None
        groups = GroupedRows.of(columns, self._key, self._max_parallelism)
        names = groups.keys.names(self._sid)
        read = self._codec.read(self._store, names)
        if read is None:
            return None
        saved, saved_at = read
        segments = Segments(batch.table, groups.order, groups.starts, saved_at)
        found = self._plan.running(segments, saved)
        if found is None:
            return None
        key = groups.keys.column.take(pa.array(segments.of_row))
        table = pa.RecordBatch.from_arrays(self._plan.shaped(found.results, key), schema=self._type.arrow_schema)
        log = ChangeLog(names, list(self._codec.encode(found.leaves)))
        return Outputs(DerivedBatch.of(batch, groups.order, table=table, type=self._type)), log


class RunningOperator(KeyedOperator):
    """Runs a running aggregate over columns if there is a plan and the epoch allows it, else by ``elements``."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, elements: OneValue, plan: Plan | None) -> None:
        key, type = info.operator.key, info.operator.output_type
        assert key is not None
        parts = key_parts(key, info.operator.inputs[0].type)
        self._backend, self._elements = backend, elements
        self._columns: RunningKernel | None = None
        if plan is not None and type is not None and parts is not None:
            self._columns = RunningKernel(backend, key, parts, type, plan)
        self._log: ChangeLog | None = None

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        computed = None if self._columns is None else self._columns.compute(as_columns(inputs[0]))
        if computed is None:
            self._log = None
            return self._elements.run(inputs, epoch)
        outputs, self._log = computed
        return outputs

    def close(self) -> None:
        self._elements.close()

    def changes(self) -> ChangeLog:
        log, self._log = self._log, None
        return self._elements.changes() if log is None else log


def running_reducer(info: TaskInfo, backend: KeyedBackend, fn: Any, type: TypeInformation) -> OperatorInstance:
    """Runs a reducer, over columns if it reduces each field by itself."""
    elements = Reduce(info, backend, type, fn)
    typed = info.operator.over_columns and info.operator.output_type == info.operator.inputs[0].type == type
    plan = reduce_plan(fn, type) if typed else None
    return elements if plan is None else RunningOperator(info, backend, elements, plan)


@dataclass(frozen=True)
class RunningAggregatesSpec(KeyedSpec):
    """``agg`` on a keyed stream: emits a row of the key's aggregates so far for every element."""

    kind = "aggregate"

    aggregates: Aggregates
    shape: RowShape
    accumulator_type: TypeInformation

    def states(self) -> list[DeclaredState]:
        return one_value(self.accumulator_type)

    def instance(self, info: TaskInfo, state: ManagedState) -> RunningOperator:
        type = info.operator.inputs[0].type
        plan = None if type is None else aggregates_plan(self.aggregates, self.shape, self.accumulator_type, type)
        return RunningOperator(info, state.keyed, ElementAggregates(info, state.keyed, self), plan)

    def in_batch(self) -> WindowSpec:
        return WindowSpec.of_all("aggregating", self.accumulator_type, self.aggregates, WindowRows(self.shape))


class ElementAggregates(OneValue):
    """``agg`` element by element."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: RunningAggregatesSpec) -> None:
        super().__init__(info, backend, spec.accumulator_type)
        self._aggregates, self._shape = spec.aggregates, spec.shape

    def _run_key(self, values: list[Any], start: int, stop: int, state: Any, out: list[Any]) -> Any:
        aggregates, row, extend = self._aggregates, self._shape.row, self._collector.into(out)
        accumulator = aggregates.create_accumulator() if state is None else self._given(state)
        key = self._key.selector(values[start])
        immutable = self._guard.type.immutable
        for value in values[start:stop]:
            accumulator = aggregates.add(value, accumulator)
            if immutable:
                accumulator = self._kept(accumulator)
            extend((row(key, None, aggregates.get_result(accumulator)),))
        # add() changes no accumulator that is part of a result, so a mutable accumulator is encoded only here.
        return accumulator if immutable else self._kept(accumulator)


@dataclass(frozen=True)
class RollingSpec(Rolling, KeyedSpec):
    """``sum``, ``min``, ``max``, ``min_by``, ``max_by`` on a keyed stream: emits the result so far for every element."""

    kind = "rolling"

    def states(self) -> list[DeclaredState]:
        return one_value(self.value_type)

    def instance(self, info: TaskInfo, state: ManagedState) -> RunningOperator:
        reduce = rolling_function(self, info.operator.uid)
        elements = RunningReduction(info, state.keyed, self.value_type, reduce)
        return RunningOperator(info, state.keyed, elements, element_plan(self))

    def in_batch(self) -> WindowSpec:
        return WindowSpec.of_all("reducing", self.value_type, self)
