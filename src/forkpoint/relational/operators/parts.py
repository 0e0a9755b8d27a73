"""Rows before they are sent to their groups: those of one key are added up, so that accumulators travel in place of rows, and no
subtask gets all rows of a frequent key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from forkpoint.relational.aggregation.accumulators import Accumulator, accumulated, of_each
from forkpoint.relational.operators.select import derived
from forkpoint.runtime.columnar.codes import codes_of, distinct_codes
from forkpoint.runtime.columnar.objects import columns_of
from forkpoint.runtime.exchange.batch import Batch, Longs, empty_batch, stable_order
from forkpoint.runtime.operators.base import Epoch, Outputs, TaskInfo
from forkpoint.runtime.operators.instances import ManagedState, RunnableSpec

_SAMPLE = 1_000
_FREQUENT = 0.02  # of the rows: a key by itself
_WORTH = 0.7  # the number of keys, of rows: with more, adding up takes as long as what it saves


@dataclass(frozen=True)
class PartsSpec(RunnableSpec):
    """The input has columns for the keys, and for each accumulator's input, by its name. The result has the keys and the
    accumulators."""

    kind = "parts"

    keys: tuple[str, ...]
    accumulators: tuple[Accumulator, ...]

    def instance(self, info: TaskInfo, state: ManagedState) -> PartsOperator:
        return PartsOperator(info, self)


class PartsOperator:
    def __init__(self, info: TaskInfo, spec: PartsSpec) -> None:
        assert info.operator.output_type is not None
        self._spec, self._in, self._out = spec, info.operator.inputs[0].type, info.operator.output_type

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch = inputs[0]
        if not batch.size:
            return Outputs(empty_batch(self._out))
        table = columns_of(batch, self._in)
        keys = [table.column(name) for name in self._spec.keys]
        rows, state = parts_of_groups(self._spec.accumulators, table, keys)
        if rows is not None:
            keys = [column.take(pa.array(rows)) for column in keys]
        columns = pa.RecordBatch.from_arrays([*keys, *state], self._out.arrow_schema.names)
        return Outputs(derived(batch, rows, columns, self._out))

    def close(self) -> None:
        return None


def parts_of_groups(
    accumulators: Sequence[Accumulator], table: pa.RecordBatch, keys: Sequence[pa.Array]
) -> tuple[Longs | None, list[pa.Array]]:
    """The accumulators of parts of groups, and the first row of each part; None: each row is a part. All rows of a part have the
    same keys."""
    values = [None if each.input is None else table.column(each.name) for each in accumulators]
    if not repeats(keys, table.num_rows):
        return None, [of_each(each, column, table.num_rows) for each, column in zip(accumulators, values, strict=True)]
    rows, which = distinct_codes(codes_of(keys) if keys else np.zeros(table.num_rows, np.int64))
    starts = np.append(0, np.cumsum(np.bincount(which)))
    order = pa.array(stable_order(which)[0])
    found = []
    for each, column in zip(accumulators, values, strict=True):
        saved = pa.nulls(len(rows), each.type.arrow_type)
        found.append(accumulated(each, None if column is None else column.take(order), None, starts, saved))
    return rows, found


def repeats(keys: Sequence[pa.Array], rows: int) -> bool:
    """Whether rows have far fewer keys than there are rows, estimated from a sample."""
    if not keys or rows < 2:
        return rows > 1
    counts = np.unique(codes_of([column[:_SAMPLE] for column in keys]), return_counts=True)[1]
    others = counts[counts <= max(1, counts.sum() * _FREQUENT)]
    equal, sampled = int((others * (others - 1)).sum()), int(others.sum())
    rest = rows * sampled / counts.sum()
    if equal:
        known = sampled * (sampled - 1) / equal  # how many equally frequent keys would have so many pairs
        rest = min(rest, known * -np.expm1(-rest / known))
    return bool(len(counts) - len(others) + rest < _WORTH * rows)
