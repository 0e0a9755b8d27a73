"""What a windowed or running aggregate is over columns: from leaves of accumulators to rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from forkpoint.functions import Aggregates, RowShape, WindowBound, WindowRows
from forkpoint.functions.window_adapters import Count as CountElements
from forkpoint.functions.window_adapters import WithKey
from forkpoint.graph.transformations import RollingSpec, WindowSpec
from forkpoint.runtime.batch import Longs
from forkpoint.runtime.columnar.leaves import Leaves, leaf_types, numbers, to_columns
from forkpoint.runtime.columnar.reductions import (
    Choosing,
    Counting,
    Extreme,
    Reduction,
    Segments,
    Summing,
    column_index,
    column_type,
    firsts,
    reduction_of,
)
from forkpoint.types import TypeInformation

Bounds = Callable[[WindowBound], Longs]


class Plan(ABC):
    """An aggregate over columns: of accumulators as leaves of ``type``."""

    type: TypeInformation

    @abstractmethod
    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        """Accumulators with each group's rows added; None where it has to be done element by element."""

    @abstractmethod
    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        """Accumulators behind each row, in the segments' order."""

    @abstractmethod
    def rows(
        self, leaves: Sequence[pa.Array], key: pa.Array, parts: Sequence[pa.Array], bounds: Bounds
    ) -> list[pa.Array]:
        """The columns that come out. ``key``: as one array, ``parts``: as its columns."""


@dataclass(frozen=True)
class Side:
    """One of the aggregates: its reduction, and where its leaves are."""

    reduction: Reduction
    start: int
    stop: int


class AggregatesPlan(Plan):
    """``agg``."""

    def __init__(
        self, type: TypeInformation, sides: tuple[Side, ...], outputs: tuple[int, ...], shape: RowShape
    ) -> None:
        self.type, self.sides, self.outputs, self.shape = type, sides, outputs, shape

    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        return self._each(saved, lambda reduction, mine: reduction.update(segments, mine))

    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        return self._each(saved, lambda reduction, mine: reduction.running(segments, mine))

    def _each(
        self, saved: Sequence[pa.Array], work: Callable[[Reduction, Sequence[pa.Array]], Leaves | None]
    ) -> Leaves | None:
        found: Leaves = []
        for side in self.sides:
            leaves = work(side.reduction, saved[side.start : side.stop])
            if leaves is None:
                return None
            found += leaves
        return found

    def results(self, leaves: Sequence[pa.Array]) -> list[pa.Array]:
        columns = [side.reduction.result(leaves[side.start : side.stop]) for side in self.sides]
        return [columns[i] for i in self.outputs]

    def rows(
        self, leaves: Sequence[pa.Array], key: pa.Array, parts: Sequence[pa.Array], bounds: Bounds
    ) -> list[pa.Array]:
        columns = self.results(leaves)
        for place, bound in sorted(self.shape.bounds.items()):
            columns.insert(place, pa.array(bounds(bound)))
        head = [] if not self.shape.key_names else [key] if self.shape.single else list(parts)
        return [*head, *columns]


class CountPlan(Plan):
    """``count``: pairs of key and number."""

    def __init__(self, type: TypeInformation) -> None:
        self.type = type

    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        return Counting(None).update(segments, saved)

    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        return Counting(None).running(segments, saved)

    def rows(
        self, leaves: Sequence[pa.Array], key: pa.Array, parts: Sequence[pa.Array], bounds: Bounds
    ) -> list[pa.Array]:
        return [key, leaves[0]]


class ElementPlan(Plan):
    """An aggregate of one field whose accumulator is an element: the first with the field replaced, or the extreme one."""

    def __init__(self, spec: RollingSpec, column: int) -> None:
        self.type = spec.value_type
        self.spec, self.column = spec, column
        self._columns = tuple((i, column_type(i, self.type)) for i in range(len(self.type.column_names)))
        widths = [len(leaf_types(of)) for _, of in self._columns]
        self._leaf = sum(widths[:column])
        ufunc = np.minimum if spec.kind in ("min", "min_by") else np.maximum
        self._extreme = Extreme(column, ufunc, column_type(column, self.type).arrow_type)

    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        return self._with(saved, lambda reduction, mine: reduction.update(segments, mine))

    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        return self._with(saved, lambda reduction, mine: reduction.running(segments, mine))

    def _with(
        self, saved: Sequence[pa.Array], work: Callable[[Reduction, Sequence[pa.Array]], Leaves | None]
    ) -> Leaves | None:
        column = saved[self._leaf : self._leaf + 1]
        if self.spec.kind in ("min_by", "max_by"):
            found = work(Choosing(self._columns, firsts, by=self._extreme), [*column, *saved])
            return None if found is None else found[1:]
        chosen = work(Choosing(self._columns, firsts), saved)
        replaced = work(Summing(self.column) if self.spec.kind == "sum" else self._extreme, column)
        if chosen is None or replaced is None:
            return None
        if self.spec.kind == "sum" and not _summed_alike(chosen[self._leaf]):
            return None
        chosen[self._leaf] = replaced[0].cast(chosen[self._leaf].type)
        return chosen

    def rows(
        self, leaves: Sequence[pa.Array], key: pa.Array, parts: Sequence[pa.Array], bounds: Bounds
    ) -> list[pa.Array]:
        return to_columns(leaves, self.type)


def _summed_alike(first: pa.Array) -> bool:
    """Whether a sum that begins with 0 is the same as one that begins with the first element: not for -0.0 alone."""
    values = numbers(first)
    return values.dtype.kind != "f" or not ((values == 0) & np.signbit(values)).any()


def window_plan(spec: WindowSpec, elements: TypeInformation | None) -> Plan | None:
    """The plan of a window's aggregate; None where it has to be computed element by element."""
    if elements is None:
        return None
    combine, fn = spec.combine, spec.fn
    if isinstance(combine, Aggregates) and isinstance(fn, WindowRows):
        return aggregates_plan(combine, fn.shape, spec.contents_type, elements)
    if type(combine) is CountElements and type(fn) is WithKey:
        return CountPlan(spec.contents_type)
    if isinstance(combine, RollingSpec) and fn is None:
        return element_plan(combine)
    return None


def element_plan(spec: RollingSpec) -> ElementPlan | None:
    column = column_index(spec.field, spec.value_type)
    if column is None or column_type(column, spec.value_type).kind not in ("long", "double"):
        return None
    return ElementPlan(spec, column)


def aggregates_plan(
    aggregates: Aggregates, shape: RowShape, accumulator: TypeInformation, elements: TypeInformation
) -> AggregatesPlan | None:
    sides, at = [], 0
    assert accumulator.fields is not None
    for part, field in zip(aggregates.parts, accumulator.fields, strict=True):
        reduction = reduction_of(part, elements)
        if reduction is None:
            return None
        width = len(leaf_types(field.type))
        sides.append(Side(reduction, at, at + width))
        at += width
    return AggregatesPlan(accumulator, tuple(sides), aggregates.outputs, shape)


def empty_leaves(type: TypeInformation) -> Leaves:
    return [pa.array([], leaf.arrow_type) for leaf in leaf_types(type)]
