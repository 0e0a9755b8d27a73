"""Window table functions: the rows of a table, once for each window that they are in, with the window's columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from forkpoint.relational.operators.select import ColumnsOperator
from forkpoint.relational.windows import Longs, Windows, assigned
from forkpoint.runtime.exchange.batch import column_ms
from forkpoint.runtime.operators.base import TaskInfo
from forkpoint.runtime.operators.instances import ManagedState, RunnableSpec

TIME = "$time"
"""The column of the input that has the event time."""
LAST = "$window_last"
"""A column of the result that nobody names: whether no other window of the row ends later."""


@dataclass(frozen=True)
class WindowsSpec(RunnableSpec):
    """The input's columns come first in the result, then those of the windows that its type has. ``names``: of a window's start,
    end and event time."""

    kind = "windows"

    windows: Windows
    names: tuple[str, str, str]

    def instance(self, info: TaskInfo, state: ManagedState) -> WindowsOperator:
        return WindowsOperator(info, self)


class WindowsOperator(ColumnsOperator):
    def __init__(self, info: TaskInfo, spec: WindowsSpec) -> None:
        super().__init__(info)
        self._spec = spec

    def computed(self, table: pa.RecordBatch) -> tuple[np.ndarray | None, pa.RecordBatch]:
        found = assigned(self._spec.windows, column_ms(table.column(TIME)))
        start, end, time = self._spec.names
        added = {start: found.starts, end: found.ends, time: found.ends - 1}
        rows = None if self._spec.windows.per_row == 1 else found.rows
        kept = table if rows is None else table.take(pa.array(rows))
        schema = self._out.arrow_schema
        columns = [kept.column(name) for name in kept.schema.names if name != TIME]
        for field in list(schema)[len(columns) :]:
            columns += [pa.array(found.last) if field.name == LAST else moments(added[field.name], field.type)]
        return rows, pa.RecordBatch.from_arrays(columns, names=schema.names)


def moments(times_ms: Longs, type: pa.DataType) -> pa.Array:
    """Times in int64 ms as a column of timestamps."""
    return pa.array(times_ms * 1000, pa.int64()).cast(type)
