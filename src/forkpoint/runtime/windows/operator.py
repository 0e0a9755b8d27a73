"""The window operator: two kernels over the same state, and one module in which windows fire (``firing``).

The element-wise kernel runs all windows. A column-wise kernel, if it supports the kind, key and aggregate, computes the part of
an epoch in which it equals Python exactly, and leaves the rest to the element-wise kernel. State and results are the same.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from forkpoint.functions import EventTimeSessionWindows, EventTimeTrigger, SlidingEventTimeWindows, TumblingEventTimeWindows
from forkpoint.runtime.columnar.keys import key_parts
from forkpoint.runtime.columnar.objects import as_columns
from forkpoint.runtime.columnar.plans import Plan, window_plan
from forkpoint.runtime.columnar.reduced_fields import reduce_plan
from forkpoint.runtime.exchange.batch import Batch, concat
from forkpoint.runtime.operators.base import Epoch, KeyedOperator, Outputs, TaskInfo, with_late
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.runtime.windows.columns import LARGEST_MS, ColumnarUnsupported, Computed
from forkpoint.runtime.windows.elements import ElementKernel
from forkpoint.runtime.windows.firing import WindowFiring
from forkpoint.runtime.windows.session_columns import SessionColumns
from forkpoint.runtime.windows.spec import WindowSpec
from forkpoint.runtime.windows.time_columns import TimeColumns

Columns = TimeColumns | SessionColumns


def column_plan(info: TaskInfo, spec: WindowSpec) -> Plan | None:
    """The plan for windows over columns; None without support for their kind, trigger, key or aggregate."""
    key, assigner = info.operator.key, spec.assigner
    supported = type(assigner) in (TumblingEventTimeWindows, SlidingEventTimeWindows) or (
        type(assigner) is EventTimeSessionWindows and assigner._gap_ms is not None
    )
    if not supported or type(spec.trigger) is not EventTimeTrigger or spec.evictor is not None or spec.tagged:
        return None
    elements = info.operator.inputs[0].type
    if key is None or key_parts(key, elements) is None or spec.lateness_ms > LARGEST_MS or info.operator.output_type is None:
        return None
    plan = window_plan(spec, elements)
    if not (spec.only_reduces and info.operator.over_columns and spec.contents_type == elements == info.operator.output_type):
        return plan
    # Of sessions, the order in which they merge would count.
    return None if isinstance(assigner, EventTimeSessionWindows) else reduce_plan(spec.combine, spec.contents_type)


class Shares(NamedTuple):
    """The division of an epoch between the kernels. ``rest``: the elements for the element-wise kernel. ``keys``: their encoded
    keys; None for all keys."""

    computed: Computed | None
    rest: Batch | None
    keys: frozenset[bytes] | None = None


def shares(columns: Columns | None, batch: Batch, epoch: Epoch) -> Shares:
    """Divide an epoch between the kernels, without side effects."""
    all_elements = Shares(None, batch)
    if columns is None:
        return all_elements
    columnar = as_columns(batch)
    try:
        return Shares(columns.compute(columnar, epoch), None)
    except ColumnarUnsupported as refused:
        rows = refused.rows
    if rows is None or len(rows) * 2 >= batch.size:
        return all_elements
    others, rest, keys = columns.parted(columnar, rows)
    try:
        return Shares(columns.compute(others, epoch, keys), rest, keys)
    except ColumnarUnsupported:
        return all_elements


class WindowOperator(KeyedOperator):
    """Runs the windows of one operator on one subtask."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: WindowSpec) -> None:
        plan = column_plan(info, spec)
        self._backend, self._late_tag, self._type = backend, spec.late_tag, info.operator.output_type
        self._firing = WindowFiring(info, backend, spec, plan)
        self._elements = ElementKernel(info, backend, spec, self._firing)
        kernel = SessionColumns if isinstance(spec.assigner, EventTimeSessionWindows) else TimeColumns
        self._columns = None if plan is None else kernel(info, backend, spec, plan)
        self._logs: list[ChangeLog] = []

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        computed, rest, keys = shares(self._columns, inputs[0], epoch)
        outputs, self._logs = [], []
        if computed is not None:
            results = self._firing.fire_all(computed)
            outputs.append(with_late(results, computed.batch, computed.windows.late, self._late_tag))
            self._logs.append(computed.log)
        if rest is not None:
            outputs.append(self._elements.run_keys(rest, epoch, keys))
            self._logs.append(self._elements.changes())
        return outputs[0] if len(outputs) == 1 else self._joined(*outputs)

    def changes(self) -> ChangeLog:
        logs, self._logs = self._logs, []
        return logs[0] if len(logs) == 1 else ChangeLog(logs[0].keys + logs[1].keys, logs[0].values + logs[1].values)

    def _joined(self, columns: Outputs, elements: Outputs) -> Outputs:
        sides = {
            tag: concat([o.sides[tag] for o in (columns, elements) if tag in o.sides], None)
            for tag in {**columns.sides, **elements.sides}
        }
        dropped = columns.late_records_dropped + elements.late_records_dropped
        assert self._type is not None
        found = self._type.to_columns(elements.main.values)
        elements.main.table = pa.RecordBatch.from_arrays(found, schema=self._type.arrow_schema)
        return Outputs(concat([columns.main, elements.main], self._type), sides, dropped, elements.mutable)

    def next_processing_timer_ms(self) -> int | None:
        return self._elements.next_processing_timer_ms()

    def close(self) -> None:
        self._elements.close()
