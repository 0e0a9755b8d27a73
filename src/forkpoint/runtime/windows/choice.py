"""Which operators are computed over columns."""

from __future__ import annotations

from forkpoint.functions import (
    EventTimeSessionWindows,
    EventTimeTrigger,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from forkpoint.runtime.columnar.keys import key_parts
from forkpoint.runtime.columnar.plans import window_plan
from forkpoint.runtime.operators.base import TaskInfo
from forkpoint.runtime.state.keyed_backend import KeyedBackend
from forkpoint.runtime.windows.operator import WindowOperator
from forkpoint.runtime.windows.session_columns import ColumnSessions
from forkpoint.runtime.windows.spec import WindowSpec
from forkpoint.runtime.windows.time_columns import LARGEST_MS, ColumnTimeWindows


def window_operator(info: TaskInfo, backend: KeyedBackend, spec: WindowSpec) -> WindowOperator:
    """The operator of windows: over columns where their kind, key and aggregate can be, else element by element."""
    key, elements = info.operator.key, info.operator.inputs[0].type
    plain = type(spec.trigger) is EventTimeTrigger and spec.evictor is None and not spec.tagged
    plan = window_plan(spec, elements) if plain and info.operator.output_type is not None else None
    if plan is None or key is None or key_parts(key) is None or spec.lateness_ms > LARGEST_MS:
        return WindowOperator(info, backend, spec)
    assigner = spec.assigner
    if type(assigner) in (TumblingEventTimeWindows, SlidingEventTimeWindows):
        return ColumnTimeWindows(info, backend, spec, plan)
    if type(assigner) is EventTimeSessionWindows and assigner._gap_ms is not None:
        return ColumnSessions(info, backend, spec, plan)
    return WindowOperator(info, backend, spec)
