"""The states of a job's INSERTs, by table: which belong to a query, and which of them have its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from forkpoint.checkpoint.states import StateInfo
from forkpoint.errors import RestoreRefused
from forkpoint.relational.definitions.groups import stored_definition
from forkpoint.relational.definitions.rows import is_final, stored_rows
from forkpoint.relational.plan import Aggregate, Join, Over, inputs_of, is_windowed, nodes_of

SINK = "-sink"
"""What the uid of the sink of an INSERT ends with; the rest begins the uids of its query's operators."""


@dataclass(frozen=True)
class QueryStates:
    """``operators``: the uids of a query's operators with state, each with what it computes."""

    operators: Mapping[str, Aggregate | Join | Over]

    @property
    def results(self) -> tuple[str, ...]:
        """The operators that no other one reads: what they show is the query's result."""
        read = [node for each in self.operators.values() for part in inputs_of(each) for node in nodes_of(part)]
        return tuple(uid for uid, node in self.operators.items() if node not in read)

    def is_final(self, uid: str) -> bool:
        """Whether the rows that an operator shows are never taken back: those that event time bounds."""
        node = self.operators[uid]
        return is_windowed(node) if isinstance(node, Aggregate) else is_final(node)


def queries_of(states: Iterable[StateInfo], sinks: Iterable[str]) -> dict[str, QueryStates]:
    """The queries of tables. ``sinks``: the uids of a job's sinks."""
    tables = [uid.removesuffix(SINK) for uid in sinks if uid.endswith(SINK)]
    found: dict[str, dict[str, Aggregate | Join | Over]] = {table: {} for table in tables}
    for state in states:
        node = _node_of(state)
        table = table_of(state.uid, tables)
        if node is not None and table is not None:
            found[table][state.uid] = node
    return {table: QueryStates(operators) for table, operators in found.items()}


def table_of(uid: str, tables: Iterable[str]) -> str | None:
    """The longest of the tables with whose name a uid begins."""
    return max((table for table in tables if uid.startswith(f"{table}-")), key=len, default=None)


def _node_of(state: StateInfo) -> Aggregate | Join | Over | None:
    if state.is_replaced:
        raise RestoreRefused(
            f"operator {state.uid!r} has the state of a query that was computed again, and the difference to the query before it "
            "has not been emitted; run that query first, or use the savepoint from which its state was made"
        )
    definition = cast("dict[str, Any] | None", state.definition)
    if definition is not None and "aggregate" in definition:
        return stored_definition(definition).aggregate
    return stored_rows(definition).node if definition is not None and "node" in definition else None


def replaced_results(table: str, old: QueryStates, new: QueryStates, *, written: bool) -> dict[str, str | None]:
    """The operators with a new query's result, each with the one whose result it replaces, or None if nothing has been
    ``written`` into the table yet. Raises RestoreRefused.

    Empty for what event time bounds on both sides: what they have written is final, and stays.
    """
    before, after = _changing(old), _changing(new)
    if not written:
        return dict.fromkeys(after)
    if not before and not after:
        return {}
    if len(before) == len(after) == 1:
        return {after[0]: before[0]}
    if set(before) == set(after):
        return {uid: uid for uid in before}
    raise RestoreRefused(
        f"table {table!r}: the old query's result comes from {_named(old.results)} and the new one's from {_named(new.results)}, "
        "so the difference between them is not known; write the new query's result into another table"
    )


def _changing(query: QueryStates) -> Sequence[str]:
    return [uid for uid in query.results if not query.is_final(uid)]


def _named(uids: Sequence[str]) -> str:
    return ", ".join(map(repr, uids)) or "rows without state"
