"""Warns of the state of a query that grows as long as its input goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from forkpoint.graph.transformations import Edge, Transformation, topological_order
from forkpoint.relational.operators.group_aggregate import GroupAggregateSpec
from forkpoint.relational.operators.joins.keyed_rows import KeyedRowsSpec
from forkpoint.relational.plan import Aggregate, Join, Over
from forkpoint.table.api.settings import STATE_TTL

_log = logging.getLogger("forkpoint")
REMEDY = f"bound it by windows or event time, or SET '{STATE_TTL}'"


def warn_of_endless_state(what: str, result: Sequence[Edge], settings: Mapping[str, str]) -> None:
    """Log one line for a query's operators, if any. A time to live that is set says that the state is meant so, also if it is 0:
    without limit."""
    found = [] if STATE_TTL in settings else list(_growing(result))
    if found:
        _log.warning(
            "%s keeps state that grows as long as its input goes on, in %s: %s (to '0 s' if that is meant)",
            what,
            ", ".join(found),
            REMEDY,
        )


def _growing(result: Sequence[Edge]) -> Iterator[str]:
    """The uids of operators that keep something of each key of an input that does not end."""
    endless: set[Transformation] = set()
    for each in topological_order([edge.upstream for edge in result]):
        if each.is_endless:
            endless.add(each)
        ordinals = {edge.ordinal for edge in each.inputs if edge.upstream in endless}
        if ordinals:
            endless.add(each)
        if any(_keeps(each, ordinal) for ordinal in ordinals):
            yield each.uid or each.name


def _keeps(of: Transformation, ordinal: int) -> bool:
    """Whether an operator keeps what comes by an input without limit, and no hint says so."""
    match of.spec:
        case GroupAggregateSpec(definition=definition, retention=retention) if not definition.window_keys:
            node: Aggregate | Join | Over = definition.aggregate
            fixed = all(each.values is None and each.kind in ("count", "sum", "min", "max") for each in definition.accumulators)
            if not definition.key_names and fixed:  # one row
                return False
        case KeyedRowsSpec(definition=rows, retention=retention):
            node = rows.node
        case _:
            return False
    hinted = node.hints and node.hints.ttl_ms[ordinal : ordinal + 1] == (0,)
    return retention.of(ordinal) is None and not hinted
