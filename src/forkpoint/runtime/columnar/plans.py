"""Plans of windowed and running aggregates over columns: from leaves of accumulators to rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

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
from forkpoint.functions.adapters import WithKey
from forkpoint.runtime.columnar.leaves import Leaves, column_types, leaf_types, numbers, to_columns
from forkpoint.runtime.columnar.list_reductions import CollectReduction, CountDistinctReduction, TopNReduction
from forkpoint.runtime.columnar.ordering import NUMBERS, ORDERED
from forkpoint.runtime.columnar.reductions import (
    AverageReduction,
    CountReduction,
    Extreme,
    ExtremeBy,
    FirstOrLast,
    Reduction,
    Running,
    StdDevReduction,
    SumReduction,
)
from forkpoint.runtime.columnar.segments import Segments, Source
from forkpoint.runtime.exchange.batch import Longs
from forkpoint.runtime.operators.rolling import Rolling
from forkpoint.runtime.windows.spec import WindowSpec
from forkpoint.types import TypeInformation
from forkpoint.types.kinds.containers import optional, present

KeyColumns = Literal["none", "single", "parts"]


class Plan(ABC):
    """An aggregate over columns, with accumulators as leaves of ``type``; methods return None to fall back to elements."""

    type: TypeInformation

    @abstractmethod
    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        """The accumulators with each group's rows added."""

    @abstractmethod
    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> Running | None:
        """The results after each row, in the segments' order."""

    @abstractmethod
    def results(self, leaves: Sequence[pa.Array]) -> list[pa.Array]:
        """The columns of results."""

    def shaped(
        self, results: list[pa.Array], key: pa.Array, starts: Longs | None = None, ends: Longs | None = None
    ) -> list[pa.Array]:
        """The output columns. ``starts`` and ``ends``: the bounds of the windows, for results of windows."""
        return results


@dataclass(frozen=True)
class Side:
    """One of the aggregates: its reduction and its leaves."""

    reduction: Reduction
    own: slice


@dataclass(frozen=True)
class AggregatesPlan(Plan):
    """``agg`` and ``count``. ``outputs``: the side of each result. ``key``: whether rows start with the key, as one column or
    as its parts. ``bounds``: window bounds by position among the columns after the key."""

    type: TypeInformation
    sides: tuple[Side, ...]
    outputs: tuple[int, ...]
    key: KeyColumns
    bounds: Mapping[int, WindowBound]

    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        found: Leaves = []
        for side in self.sides:
            leaves = side.reduction.update(segments, saved[side.own])
            if leaves is None:
                return None
            found += leaves
        return found

    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> Running | None:
        leaves: Leaves = []
        results: list[pa.Array] = []
        for side in self.sides:
            found = side.reduction.running(segments, saved[side.own])
            if found is None:
                return None
            leaves += found.leaves
            results += found.results
        return Running(leaves, [results[i] for i in self.outputs])

    def results(self, leaves: Sequence[pa.Array]) -> list[pa.Array]:
        columns = [side.reduction.result(leaves[side.own]) for side in self.sides]
        return [columns[i] for i in self.outputs]

    def shaped(
        self, results: list[pa.Array], key: pa.Array, starts: Longs | None = None, ends: Longs | None = None
    ) -> list[pa.Array]:
        columns = list(results)
        for position, bound in sorted(self.bounds.items()):
            columns.insert(position, pa.array(ends if bound.end else starts))
        match self.key:
            case "single":
                return [key, *columns]
            case "parts":
                return [*key.flatten(), *columns]
        return columns


class ElementPlan(Plan):
    """An aggregate of one field. Its accumulator is the first element with the field replaced, or the extreme element."""

    def __init__(self, rolling: Rolling, column: int) -> None:
        self.type = rolling.value_type
        types = column_types(self.type)
        self._field = Source(column, types[column])
        self._leaf = sum(len(leaf_types(before)) for before in types[:column])
        self._first = FirstOrLast(element(self.type), last=False)
        ufunc = np.minimum if rolling.aggregate in ("min", "min_by") else np.maximum
        of = Source(column, present(self._field.type))
        self._reduction: SumReduction | Extreme = SumReduction(of) if rolling.aggregate == "sum" else Extreme(of, ufunc)
        if rolling.aggregate in ("min_by", "max_by"):
            self._reduction = ExtremeBy(of, ufunc, self._first.of)

    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        return self._leaves(segments, saved, self._reduction.add, self._first.add)

    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> Running | None:
        leaves = self._leaves(segments, saved, self._reduction.after_each, self._first.after_each)
        if leaves is None:
            return None
        return Running([leaf.take(segments.last) for leaf in leaves], self.results(leaves))

    def _leaves(
        self,
        segments: Segments,
        saved: Sequence[pa.Array],
        aggregated: Callable[[Segments, Sequence[pa.Array]], Leaves | None],
        first: Callable[[Segments, Sequence[pa.Array]], Leaves],
    ) -> Leaves | None:
        """The leaves of the elements. ``aggregated``: the leaf of the field, then the leaves of the extreme element; ``first``:
        the leaves of the first element."""
        if segments.present(self._field) is not None or saved[self._leaf].null_count:
            return None  # Python handles None
        found = aggregated(segments, [saved[self._leaf], *saved])
        if found is None or isinstance(self._reduction, ExtremeBy):
            return found and found[1:]
        leaves = first(segments, saved)
        if isinstance(self._reduction, SumReduction) and not _summed_alike(leaves[self._leaf]):
            return None
        leaves[self._leaf] = found[0].cast(leaves[self._leaf].type)
        return leaves

    def results(self, leaves: Sequence[pa.Array]) -> list[pa.Array]:
        return to_columns(leaves, self.type)


def _summed_alike(first: pa.Array) -> bool:
    """Whether a sum that starts with 0 equals a sum that starts with the first element: not if that element is -0.0."""
    values = numbers(first)
    return values.dtype.kind != "f" or not ((values == 0) & np.signbit(values)).any()


def window_plan(spec: WindowSpec, elements: TypeInformation | None) -> Plan | None:
    """The plan of a window's aggregate; None if it must be computed element by element."""
    if elements is None:
        return None
    combine, fn = spec.combine, spec.fn
    if isinstance(combine, Aggregates) and isinstance(fn, WindowRows):
        return aggregates_plan(combine, fn.shape, spec.contents_type, elements)
    if type(combine) is Count and combine.field is None and (fn is None or type(fn) is WithKey):
        count = Side(CountReduction(None), slice(0, 1))
        return AggregatesPlan(spec.contents_type, (count,), (0,), "none" if fn is None else "single", {})
    if isinstance(combine, Rolling) and fn is None:
        return element_plan(combine)
    return None


def element_plan(rolling: Rolling) -> ElementPlan | None:
    type = rolling.value_type
    column = column_index(rolling.field, type)
    kinds = ("long", "double") if rolling.aggregate == "sum" else ORDERED
    if column is None or present(column_types(type)[column]).kind not in kinds or _has_sets(type):
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
        sides.append(Side(reduction, slice(at, at + width)))
        at += width
    key: KeyColumns = "none" if not shape.key_names else "single" if shape.single else "parts"
    return AggregatesPlan(accumulator, tuple(sides), aggregates.outputs, key, shape.bounds)


def element(type: TypeInformation) -> Source:
    """The elements themselves."""
    return Source(None if type.fields else 0, type)


def column_index(field: int | str | None, elements: TypeInformation) -> int | None:
    names = elements.column_names
    if isinstance(field, str):
        return names.index(field) if field in names else None
    return None if field is None or not -len(names) <= field < len(names) else field % len(names)


def source_of(field: int | str | None, elements: TypeInformation) -> Source | None:
    """The source of an aggregator; None if it is not a column, or if a column would lose None or the order of a set."""
    column = column_index(field, elements)
    if field is not None and column is None:
        return None
    source = element(elements) if column is None else Source(column, present(column_types(elements)[column]))
    return None if source.type.kind == "any" or _has_sets(source.type) else source


def _has_sets(type: TypeInformation) -> bool:
    return type.kind in ("set", "frozenset") or any(map(_has_sets, type.children))


def reduction_of(aggregator: Aggregator[Any], elements: TypeInformation) -> Reduction | None:
    """The reduction that computes an aggregate over columns, None without support."""
    if type(aggregator) is Count and aggregator.field is None:
        return CountReduction(None)
    of = source_of(aggregator.field, elements)
    if of is None:
        return None
    kind = of.type.kind
    match aggregator:
        case Count():
            return CountReduction(of)
        case First() | Last():
            return FirstOrLast(Source(of.column, optional(of.type)), isinstance(aggregator, Last))
        case Collect():
            return CollectReduction(of)
        case Sum() if kind in NUMBERS:
            return SumReduction(of)
        case Avg() if kind in NUMBERS:
            return AverageReduction(of, kind not in ("float", "double"))
        case StdDev() if kind in NUMBERS:
            return StdDevReduction(of)
        case CountDistinct() if kind in ORDERED:
            return CountDistinctReduction(of)
        case TopN() if kind in ORDERED:
            return TopNReduction(of, aggregator.n)
        case Min() | Max() if kind in ORDERED:
            return Extreme(of, np.minimum if isinstance(aggregator, Min) else np.maximum)
        case MinBy() if kind in ORDERED:
            value = source_of(aggregator.value, elements)
            ufunc = np.maximum if isinstance(aggregator, MaxBy) else np.minimum
            return None if value is None else ExtremeBy(of, ufunc, Source(value.column, optional(value.type)))
    return None
