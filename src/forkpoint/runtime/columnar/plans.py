"""Windowed and running aggregates over columns: from leaves of accumulators to rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.functions import (
    Aggregates,
    Aggregator,
    Avg,
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    MaxBy,
    Min,
    MinBy,
    RowShape,
    StdDev,
    Sum,
    TopN,
    WindowBound,
    WindowRows,
)
from forkpoint.functions.adapters import Count as CountElements
from forkpoint.functions.adapters import WithKey
from forkpoint.runtime.columnar.collecting import Collecting, CountingDistinct, Topping
from forkpoint.runtime.columnar.leaves import Leaves, leaf_types, numbers, to_columns
from forkpoint.runtime.columnar.ordering import NUMBERS, ORDERED
from forkpoint.runtime.columnar.reductions import (
    Averaging,
    Counting,
    Deviating,
    Extreme,
    ExtremeBy,
    FirstOrLast,
    Reduction,
    Summing,
    chosen,
)
from forkpoint.runtime.columnar.segments import Segments, Source
from forkpoint.runtime.exchange.batch import Longs
from forkpoint.runtime.operators.rolling import Rolling
from forkpoint.runtime.windows.spec import WindowSpec
from forkpoint.types import TypeInformation
from forkpoint.types.containers import optional, present

Bounds = Callable[[WindowBound], Longs]


@dataclass(frozen=True)
class RunningColumns:
    """``leaves``: the accumulator after each group's last row. ``results``: the columns of results after each row."""

    leaves: Leaves
    results: list[pa.Array]


class Plan(ABC):
    """An aggregate over columns, whose accumulators are leaves of ``type``; methods return None where elements are needed."""

    type: TypeInformation

    @abstractmethod
    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        """The accumulators with each group's rows added."""

    @abstractmethod
    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> RunningColumns | None:
        """The results after each row, in the segments' order."""

    @abstractmethod
    def results(self, leaves: Sequence[pa.Array]) -> list[pa.Array]:
        """The columns of results."""

    def shaped(
        self, results: list[pa.Array], key: pa.Array, parts: Sequence[pa.Array], bounds: Bounds
    ) -> list[pa.Array]:
        """The output columns. ``key``: as one array, ``parts``: as its columns."""
        return results


@dataclass(frozen=True)
class Side:
    """One of the aggregates: its reduction, and the range of its leaves."""

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
        found: Leaves = []
        for side in self.sides:
            leaves = side.reduction.update(segments, saved[side.start : side.stop])
            if leaves is None:
                return None
            found += leaves
        return found

    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> RunningColumns | None:
        leaves: Leaves = []
        results = []
        for side in self.sides:
            found = side.reduction.running(segments, saved[side.start : side.stop])
            if found is None:
                return None
            leaves += found.leaves
            results.append(found.results)
        return RunningColumns(leaves, [results[i] for i in self.outputs])

    def results(self, leaves: Sequence[pa.Array]) -> list[pa.Array]:
        columns = [side.reduction.result(leaves[side.start : side.stop]) for side in self.sides]
        return [columns[i] for i in self.outputs]

    def shaped(
        self, results: list[pa.Array], key: pa.Array, parts: Sequence[pa.Array], bounds: Bounds
    ) -> list[pa.Array]:
        columns = list(results)
        for place, bound in sorted(self.shape.bounds.items()):
            columns.insert(place, pa.array(bounds(bound)))
        head = [] if not self.shape.key_names else [key] if self.shape.single else list(parts)
        return [*head, *columns]


class CountPlan(Plan):
    """``count``: pairs of key and count; without keys, counts."""

    def __init__(self, type: TypeInformation, *, keyed: bool) -> None:
        self.type, self.keyed = type, keyed

    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        return Counting(None).update(segments, saved)

    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> RunningColumns | None:
        found = Counting(None).running(segments, saved)
        return RunningColumns(found.leaves, [found.results])

    def results(self, leaves: Sequence[pa.Array]) -> list[pa.Array]:
        return list(leaves)

    def shaped(
        self, results: list[pa.Array], key: pa.Array, parts: Sequence[pa.Array], bounds: Bounds
    ) -> list[pa.Array]:
        return [key, *results] if self.keyed else results


class ElementPlan(Plan):
    """An aggregate of one field. Its accumulator is the first element with the field replaced, or the extreme element."""

    def __init__(self, rolling: Rolling, column: int) -> None:
        self.type, self._aggregate = rolling.value_type, rolling.aggregate
        self._field = Source(column, column_type(column, self.type))
        self._element = element(self.type)
        self._leaf = sum(len(leaf_types(column_type(i, self.type))) for i in range(column))
        ufunc = np.minimum if rolling.aggregate in ("min", "min_by") else np.maximum
        of = Source(column, present(self._field.type))
        self._by = ExtremeBy(of, ufunc, self._element)
        self._replaced = Summing(of) if rolling.aggregate == "sum" else Extreme(of, ufunc)

    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        if not self._complete(segments, saved):
            return None
        mine = saved[self._leaf]
        if self._aggregate in ("min_by", "max_by"):
            leaves = self._by.add(segments, [mine, *saved])
            return None if leaves is None else leaves[1:]
        first = chosen(segments, self._element, segments.starts[:-1], saved, segments.has_saved)
        return self._with(first, self._replaced.add(segments, [mine]))

    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> RunningColumns | None:
        leaves = self._after_each(segments, saved) if self._complete(segments, saved) else None
        if leaves is None:
            return None
        return RunningColumns([leaf.take(segments.last) for leaf in leaves], self.results(leaves))

    def _after_each(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        mine = saved[self._leaf]
        if self._aggregate in ("min_by", "max_by"):
            leaves = self._by.after_each(segments, [mine, *saved])
            return None if leaves is None else leaves[1:]
        at, use = np.repeat(segments.starts[:-1], segments.sizes), np.repeat(segments.has_saved, segments.sizes)
        first = chosen(segments, self._element, at, saved, use)
        return self._with(first, self._replaced.after_each(segments, [mine]))

    def _complete(self, segments: Segments, saved: Sequence[pa.Array]) -> bool:
        """Whether the field is never None; None is left to Python."""
        return segments.present(self._field) is None and not saved[self._leaf].null_count

    def _with(self, first: Leaves, replaced: Leaves | None) -> Leaves | None:
        if replaced is None or (self._aggregate == "sum" and not _summed_alike(first[self._leaf])):
            return None
        first[self._leaf] = replaced[0].cast(first[self._leaf].type)
        return first

    def results(self, leaves: Sequence[pa.Array]) -> list[pa.Array]:
        return to_columns(leaves, self.type)


def _summed_alike(first: pa.Array) -> bool:
    """Whether sums that begin with 0 equal those that begin with the first element: not if that is -0.0."""
    values = numbers(first)
    return values.dtype.kind != "f" or not ((values == 0) & np.signbit(values)).any()


def window_plan(spec: WindowSpec, elements: TypeInformation | None) -> Plan | None:
    """The plan of a window's aggregate; None if it has to be computed element by element."""
    if elements is None:
        return None
    combine, fn = spec.combine, spec.fn
    if isinstance(combine, Aggregates) and isinstance(fn, WindowRows):
        return aggregates_plan(combine, fn.shape, spec.contents_type, elements)
    if type(combine) is CountElements and (fn is None or type(fn) is WithKey):
        return CountPlan(spec.contents_type, keyed=fn is not None)
    if isinstance(combine, Rolling) and fn is None:
        return element_plan(combine)
    return None


def element_plan(rolling: Rolling) -> ElementPlan | None:
    type = rolling.value_type
    column = column_index(rolling.field, type)
    kinds = ("long", "double") if rolling.aggregate == "sum" else ORDERED
    if column is None or present(column_type(column, type)).kind not in kinds or _has_sets(type):
        return None
    return ElementPlan(rolling, column)


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


def element(type: TypeInformation) -> Source:
    """The elements themselves."""
    return Source(None if type.fields else 0, type)


def column_index(field: int | str | None, elements: TypeInformation) -> int | None:
    """The index of a field's column."""
    names = elements.column_names
    if isinstance(field, str):
        return names.index(field) if field in names else None
    return None if field is None or not -len(names) <= field < len(names) else field % len(names)


def column_type(column: int, elements: TypeInformation) -> TypeInformation:
    return elements.fields[column].type if elements.fields else elements


def source_of(field: int | str | None, elements: TypeInformation) -> Source | None:
    """The source of an aggregator; None if it is not a column, or the column loses None or the order of a set."""
    column = column_index(field, elements)
    if field is not None and column is None:
        return None
    source = element(elements) if column is None else Source(column, present(column_type(column, elements)))
    return None if source.type.kind == "any" or _has_sets(source.type) else source


def _has_sets(type: TypeInformation) -> bool:
    return type.kind in ("set", "frozenset") or any(map(_has_sets, type.children))


def reduction_of(aggregator: Aggregator[Any], elements: TypeInformation) -> Reduction | None:
    """The reduction that computes an aggregate over columns, if there is one."""
    if type(aggregator) is Count and aggregator.field is None:
        return Counting(None)
    of = source_of(aggregator.field, elements)
    if of is None:
        return None
    kind = of.type.kind
    match aggregator:
        case Count():
            return Counting(of)
        case First() | Last():
            return FirstOrLast(Source(of.column, optional(of.type)), isinstance(aggregator, Last))
        case Collect():
            return Collecting(of)
        case Sum() if kind in NUMBERS:
            return Summing(of)
        case Avg() if kind in NUMBERS:
            return Averaging(of, kind not in ("float", "double"))
        case StdDev() if kind in NUMBERS:
            return Deviating(of)
        case CountDistinct() if kind in ORDERED:
            return CountingDistinct(of)
        case TopN() if kind in ORDERED:
            return Topping(of, aggregator.n)
        case Min() | Max() if kind in ORDERED:
            return Extreme(of, np.minimum if isinstance(aggregator, Min) else np.maximum)
        case MinBy() if kind in ORDERED:
            value = source_of(aggregator.value, elements)
            ufunc = np.maximum if isinstance(aggregator, MaxBy) else np.minimum
            return None if value is None else ExtremeBy(of, ufunc, Source(value.column, optional(value.type)))
    return None
