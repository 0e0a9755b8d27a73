"""UNNEST: the rows of a table, once for each element of an array."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from forkpoint.relational.changes import weights_of, with_weights, without_weights
from forkpoint.relational.operators.select import ColumnsOperator
from forkpoint.runtime.operators.base import TaskInfo
from forkpoint.runtime.operators.instances import ManagedState, RunnableSpec

ARRAY = "$array"
"""The column of the input that has the array or map."""


@dataclass(frozen=True)
class UnnestSpec(RunnableSpec):
    """The input's columns come first in the result, then those of ``names`` that its type has, which are the parts of an element.
    Weights pass unchanged. ``outer``: rows without elements stay, with NULL."""

    kind = "unnest"

    names: tuple[str, ...]
    outer: bool

    def instance(self, info: TaskInfo, state: ManagedState) -> UnnestOperator:
        return UnnestOperator(info, self)


class UnnestOperator(ColumnsOperator):
    def __init__(self, info: TaskInfo, spec: UnnestSpec) -> None:
        super().__init__(info)
        self._spec = spec

    def computed(self, table: pa.RecordBatch) -> tuple[np.ndarray, pa.RecordBatch]:
        rows, parts = _elements(table.column(ARRAY), outer=self._spec.outer)
        added = dict(zip(self._spec.names, parts, strict=True))
        kept = table.take(pa.array(rows))
        weights, kept = weights_of(kept), without_weights(kept).drop_columns([ARRAY])
        for name in self._out.arrow_schema.names:
            if name in added:
                kept = kept.append_column(name, added[name])
        return rows, with_weights(kept, weights)


def _elements(arrays: pa.Array, *, outer: bool) -> tuple[np.ndarray, list[pa.Array]]:
    """The row of each element, and the elements' parts; with ``outer``, NULL for a row without elements."""
    offsets = arrays.offsets.to_numpy().astype(np.int64)
    lengths = np.where(arrays.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets), 0)
    counts = np.maximum(lengths, 1) if outer else lengths
    rows = np.repeat(np.arange(len(arrays)), counts)
    at = offsets[rows] + np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]
    indices = pa.array(at, mask=lengths[rows] == 0)
    if pa.types.is_map(arrays.type):
        return rows, [arrays.keys.take(indices), arrays.items.take(indices)]
    elements = arrays.values.take(indices)
    return rows, elements.flatten() if pa.types.is_struct(elements.type) else [elements]
