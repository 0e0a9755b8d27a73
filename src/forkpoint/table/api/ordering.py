"""ORDER BY of a query whose input ends: its rows are sorted once they are final."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from forkpoint.relational.calls import Order
from forkpoint.relational.expressions import Column
from forkpoint.relational.plan import Over, Plan, Select, is_sort


@dataclass(frozen=True)
class Ordering:
    """``plan``: the rows without their order. ``order``: by columns of it. ``columns``: those of the result, which come first."""

    plan: Plan
    order: tuple[Order, ...]
    columns: int

    def sorted(self, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        found, names = list(rows), [field.name for field in self.plan.schema]
        for each in reversed(self.order):
            assert isinstance(each.of, Column)
            at = names.index(each.of.name)
            nulls = [row for row in found if row[at] is None]
            others = sorted((row for row in found if row[at] is not None), key=_of_column(at), reverse=each.descending)
            found = nulls + others if each.nulls_first else others + nulls
        return [row[: self.columns] for row in found]


def _of_column(at: int) -> Any:
    """Sorts NaN after all numbers."""
    return lambda row: (row[at] != row[at], row[at])


def ordering_of(plan: Plan, *, limited: bool) -> Ordering | None:
    """The order of a query's result; None if it has none. ``limited``: also that of a query with LIMIT."""
    if not isinstance(plan, Select):
        return None
    below = plan.input
    if is_sort(below):
        assert isinstance(below, Over)
        return Ordering(below.input, below.order, len(plan.items))
    match below:
        case Select(input=Over(partition=(), order=(_, *_) as order)) if limited:
            return Ordering(below, order, len(plan.items))
    return None
