"""The plan of a user's reducer whose fields are reduced one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.functions import ReduceFunction
from forkpoint.runtime.columnar.leaves import Leaves, column_types, leaf_types, numbers, to_columns
from forkpoint.runtime.columnar.ordering import ORDERED
from forkpoint.runtime.columnar.plans import Plan, element_plan
from forkpoint.runtime.columnar.reductions import Extreme, FirstOrLast, Running, SumReduction
from forkpoint.runtime.columnar.segments import Segments, Source
from forkpoint.runtime.expressions.reducers import ReducedColumns, Reducer, Way, reduced_columns, reducer
from forkpoint.runtime.expressions.screening import NotAnExpression
from forkpoint.runtime.operators.rolling import Rolling
from forkpoint.types import TypeInformation
from forkpoint.types.kinds.containers import present

Field = FirstOrLast | SumReduction | Extreme


def reduce_plan(function: Any, elements: TypeInformation) -> Plan | None:
    """The plan of a reducer; None if it must be computed element by element."""
    call = function.reduce if isinstance(function, ReduceFunction) else function
    try:
        found = reducer(call, elements)
    except NotAnExpression:
        return None
    checked = reduced_columns(call, found, elements)
    if found.by is not None:
        name, column = found.by
        inner = element_plan(Rolling("min_by" if name == "min" else "max_by", column, elements))
        return None if inner is None else Checked(inner, checked)
    return fields_plan(found, elements, checked)


def fields_plan(found: Reducer, elements: TypeInformation, checked: ReducedColumns) -> Plan | None:
    types = column_types(elements)
    if len(types) != len(found.ways) or not all(map(_fits, found.ways, types)):
        return None
    return Checked(ReducedFields(elements, found.ways), checked)


def _fits(way: Way, of: TypeInformation) -> bool:
    kinds = {"sum": ("long", "double"), "min": ORDERED, "max": ORDERED}
    return way not in kinds or present(of).kind in kinds[way]


class Checked(Plan):
    """The plan of a user's function, as long as that agrees."""

    def __init__(self, inner: Plan, checked: ReducedColumns) -> None:
        self.type, self._inner, self._checked = inner.type, inner, checked

    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        return self._inner.update(segments, saved) if self._checked.holds_of(segments.table) else None

    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> Running | None:
        return self._inner.running(segments, saved) if self._checked.holds_of(segments.table) else None

    def results(self, leaves: Sequence[pa.Array]) -> list[pa.Array]:
        return self._inner.results(leaves)


class ReducedFields(Plan):
    """Each field is reduced by itself. The accumulator is an element."""

    def __init__(self, type: TypeInformation, ways: Sequence[Way]) -> None:
        self.type = type
        types = column_types(type)
        self._fields = [_field(way, i, of) for i, (way, of) in enumerate(zip(ways, types, strict=True))]
        ends = list(accumulate((len(leaf_types(of)) for of in types), initial=0))
        self._own = [slice(start, end) for start, end in pairwise(ends)]

    def update(self, segments: Segments, saved: Sequence[pa.Array]) -> Leaves | None:
        return self._leaves(segments, saved, lambda of: of.add)

    def running(self, segments: Segments, saved: Sequence[pa.Array]) -> Running | None:
        leaves = self._leaves(segments, saved, lambda of: of.after_each)
        return None if leaves is None else Running([leaf.take(segments.last) for leaf in leaves], self.results(leaves))

    def _leaves(
        self,
        segments: Segments,
        saved: Sequence[pa.Array],
        method: Callable[[Field], Callable[[Segments, Sequence[pa.Array]], Leaves | None]],
    ) -> Leaves | None:
        found: Leaves = []
        for field, own in zip(self._fields, self._own, strict=True):
            computes = not isinstance(field, FirstOrLast)
            if computes and (segments.present(field.of) is not None or saved[own.start].null_count):
                return None  # Python handles None
            leaves = method(field)(segments, saved[own])
            if leaves is None or (isinstance(field, SumReduction) and _starts_with_minus_zero(segments, field, saved[own.start])):
                return None
            found += leaves
        return found

    def results(self, leaves: Sequence[pa.Array]) -> list[pa.Array]:
        return to_columns(leaves, self.type)


def _field(way: Way, column: int, type: TypeInformation) -> Field:
    if way in ("first", "last"):
        return FirstOrLast(Source(column, type), last=way == "last")
    of = Source(column, present(type))
    return SumReduction(of) if way == "sum" else Extreme(of, np.minimum if way == "min" else np.maximum)


def _starts_with_minus_zero(segments: Segments, field: SumReduction, saved: pa.Array) -> bool:
    """Whether a sum could start with -0.0: over columns, it starts with 0.0."""
    found = [numbers(segments.picked(field.of)), numbers(saved)]
    return any(values.dtype.kind == "f" and bool(((values == 0) & np.signbit(values)).any()) for values in found)
