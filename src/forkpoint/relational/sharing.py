"""Equal parts of a query, which are computed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from forkpoint.relational.plan import Aggregate, Apply, Join, Match, Over, Plan, Window, inputs_of, nodes_of


def repeated(plan: Plan) -> frozenset[str]:
    """The aggregates of a canonical plan that occur several times, each time below another node with state, as texts (``repr``,
    which tells -0.0 from 0.0).

    The others show the query's result, and what becomes of that when the query changes is known by operator. Nor are those equal
    that look at the clock, or call functions that are not deterministic.
    """
    if sum(isinstance(node, Aggregate) for node in nodes_of(plan)) < 2:
        return frozenset()
    found = list(_aggregates(plan, below_state=False))
    counts = Counter(text for text, _ in found)
    outside = {text for text, below_state in found if not below_state}
    return frozenset(text for text, count in counts.items() if count > 1 and text not in outside)


def _aggregates(plan: Plan, *, below_state: bool) -> Iterator[tuple[str, bool]]:
    if isinstance(plan, Aggregate) and not any(map(_differs_each_time, nodes_of(plan))):
        yield repr(plan), below_state
    has_state = isinstance(plan, Aggregate | Over | Match) or (isinstance(plan, Join) and not plan.lookup)
    for each in inputs_of(plan):
        yield from _aggregates(each, below_state=below_state or has_state)


def _differs_each_time(node: Plan) -> bool:
    return isinstance(node, Apply) or (isinstance(node, Window) and bool(node.windows.processing))
