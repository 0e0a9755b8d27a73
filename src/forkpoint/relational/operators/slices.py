"""Windows before their rows are grouped: rows are added up by key and slice of time, and each slice is added, in place of its
rows, to the windows that it is in."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from forkpoint.relational.aggregation.accumulators import Accumulator
from forkpoint.relational.operators.parts import parts_of_groups
from forkpoint.relational.operators.select import derived
from forkpoint.relational.operators.windows import LAST, TIME, moments
from forkpoint.relational.windows import Longs, Role, Windows, assigned, ends_by
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.runtime.exchange.batch import Batch, column_ms, empty_batch
from forkpoint.runtime.operators.base import Epoch, Outputs, TaskInfo
from forkpoint.runtime.operators.instances import ManagedState, RunnableSpec


@dataclass(frozen=True)
class SlicesSpec(RunnableSpec):
    """The input has columns for the keys that are not the window's, for each accumulator's input, by its name, and its time. The
    result has the keys, the accumulators of these rows, and ``LAST``. ``bounds``: the names of the window's keys."""

    kind = "windows"

    windows: Windows
    bounds: Mapping[Role, str]
    accumulators: tuple[Accumulator, ...]

    def instance(self, info: TaskInfo, state: ManagedState) -> SlicesOperator:
        return SlicesOperator(info, self)


class SlicesOperator:
    """Rows of a group have seen either all or none of the watermarks at which a window ends, as far as that depends on their
    place among the others. So they are all in time for a window, or all late."""

    def __init__(self, info: TaskInfo, spec: SlicesSpec) -> None:
        assert info.operator.output_type is not None
        self._spec, self._in, self._out = spec, info.operator.inputs[0].type, info.operator.output_type
        self._inputs = {each.name for each in spec.accumulators if each.input is not None}

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0]
        if not batch.size:
            return Outputs(empty_batch(self._out))
        table, windows, schema = columns_of(batch, self._in), self._spec.windows, self._out.arrow_schema
        keys = [name for name in schema.names if name in table.schema.names and name not in self._inputs]
        times = column_ms(table.column(TIME))
        slices = times - (times - windows.offset_ms) % math.gcd(windows.size_ms, windows.step_ms)
        parts = [*map(table.column, keys), pa.array(slices), *_seen(windows, times, batch.positions)]
        firsts, state = parts_of_groups(self._spec.accumulators, table, parts)
        firsts = np.arange(batch.size) if firsts is None else firsts
        by_first = np.argsort(firsts)
        found = assigned(windows, slices[firsts[by_first]])
        of_groups, bounds = pa.array(by_first[found.rows]), {"start": found.starts, "end": found.ends}
        rows = firsts[by_first[found.rows]]
        columns = {name: table.column(name).take(pa.array(rows)) for name in keys}
        columns |= {each.name: column.take(of_groups) for each, column in zip(self._spec.accumulators, state, strict=True)}
        columns |= {name: moments(bounds[role], schema.field(name).type) for role, name in self._spec.bounds.items()}
        columns[LAST] = pa.array(found.last)
        return Outputs(derived(batch, rows, pa.RecordBatch.from_pydict({n: columns[n] for n in schema.names}), self._out))

    def close(self) -> None:
        return None


def _seen(windows: Windows, times_ms: Longs, positions: Longs | int) -> list[pa.Array]:
    """What tells apart rows of a slice that may be late for different windows: how many of its windows end by the watermark of
    the row's own split, and whether it is a timer's output. Nothing if no row is that late."""
    watermarks = (np.asarray(positions) - 1) >> 1
    ended = np.clip(ends_by(windows, times_ms, watermarks), 0, windows.per_row)
    found = [ended] if ended.any() else []
    if not isinstance(positions, int) and (positions & 1).any() and not (positions & 1).all():
        found.append(positions & 1)
    return list(map(pa.array, found))
