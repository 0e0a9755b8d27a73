"""The definition of a group's state: what it means, stored with the state itself, and what a changed query can make of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa

from forkpoint.decoders import convert
from forkpoint.errors import SavepointCorrupt
from forkpoint.relational.aggregates import Accumulator, accumulators_of, needs, readable_name, result
from forkpoint.relational.canonical import canonical
from forkpoint.relational.evaluation import evaluate_all, true_rows
from forkpoint.relational.expressions import Column, Expression, Item
from forkpoint.relational.plan import (
    Aggregate,
    AggregateCall,
    Plan,
    Scan,
    Select,
    Window,
    is_windowed,
    nodes_of,
    window_columns,
)
from forkpoint.relational.windows import Role


class View(msgspec.Struct, frozen=True):
    """The rows that an aggregate's groups become: those for which ``condition`` (HAVING) is true, as ``items``."""

    condition: Expression | None
    items: tuple[Item, ...]


class GroupDefinition(msgspec.Struct, frozen=True, dict=True):
    """``aggregate``: in canonical form. ``view`` refers to its columns."""

    aggregate: Aggregate
    view: View

    @cached_property
    def accumulators(self) -> tuple[Accumulator, ...]:
        return accumulators_of(self.aggregate)

    @cached_property
    def _calls(self) -> tuple[tuple[str, AggregateCall, tuple[str, ...]], ...]:
        """Each call's text, and the names of its accumulators."""
        calls = self.aggregate.calls
        return tuple((str(call), call, tuple(each.name for each in needs(call, updating=False))) for call in calls)

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """Names of the keys, for columns of state."""
        return tuple(readable_name(key.of) for key in self.aggregate.keys)

    @cached_property
    def window_keys(self) -> Mapping[Role, str]:
        """The names of the keys that are a window's start and end; empty if the groups are not those of windows."""
        if not is_windowed(self.aggregate):
            return {}
        below, keys = window_columns(self.aggregate.input), zip(self.key_names, self.aggregate.keys, strict=True)
        return {below[key.of.name].role: name for name, key in keys if isinstance(key.of, Column) and key.of.name in below}

    def to_json(self) -> Any:
        return msgspec.to_builtins(self)

    def rows(self, keys: Mapping[str, pa.Array], state: Mapping[str, pa.Array]) -> tuple[Any, pa.RecordBatch]:
        """The view of groups: the indices of those that it shows (None: all), and their columns.

        ``keys`` by their columns' names, and ``state`` by the accumulators' names, with one entry per group.
        """
        calls = {text: result(call, [state[name] for name in names]) for text, call, names in self._calls}
        columns = pa.RecordBatch.from_pydict({**keys, **calls}) if keys or calls else _rows_only(len(state["count"]))
        shown = true_rows(self.view.condition, columns)
        if shown is not None:
            columns = columns.take(pa.array(shown))
        names = [item.name for item in self.view.items]
        return shown, pa.RecordBatch.from_arrays(evaluate_all(self.view.items, columns), names=names)


def _rows_only(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"": pa.nulls(count)})


def stored_definition(content: Any) -> GroupDefinition:
    """A saved definition, in the canonical form of this release. Raises SavepointCorrupt."""
    try:
        found = convert(content, GroupDefinition)
    except msgspec.ValidationError as error:
        raise SavepointCorrupt(f"the definition of a query's state cannot be read: {error}") from error
    aggregate = canonical(found.aggregate)
    assert isinstance(aggregate, Aggregate)
    return GroupDefinition(aggregate, found.view)


_REMEDY = "write the changed query's result into another table, or start without state (-s none)"


def compare(saved: Any, wanted: Any) -> tuple[str, str]:
    """Compares stored definitions: why state with one cannot serve the other ("" if it can), and what the change does."""
    if saved == wanted:
        return "", ""
    if saved is None or wanted is None:
        return "it belongs to a query on one side only; give the operator or the table another name", ""
    old, new = stored_definition(saved), stored_definition(wanted)
    before, after = _source(old.aggregate), _source(new.aggregate)
    if before != after:
        return f"its rows came from {_described(*before)} and would come from {_described(*after)}; {_REMEDY}", ""
    if old.aggregate.keys != new.aggregate.keys:
        return f"it was grouped by {_keys(old.aggregate)} and would be grouped by {_keys(new.aggregate)}; {_REMEDY}", ""
    kept = {accumulator.name for accumulator in old.accumulators}
    missing = [text for text, _, names in new._calls if not kept.issuperset(names)]
    if missing:
        return f"{', '.join(missing)} cannot be computed from the saved {', '.join(map(str, old.aggregate.calls))}; {_REMEDY}", ""
    if old.view == new.view:
        return "", ""
    if new.window_keys:
        return "", "the query has changed: windows that are still open will have its new result; what was written stays as it is"
    return "", "the query has changed: the first epoch emits the difference between its new and its old result"


def _source(aggregate: Aggregate) -> tuple[Plan, Expression | None]:
    below = aggregate.input
    return (below.input, below.condition) if isinstance(below, Select) else (below, None)


def _described(source: Plan, condition: Expression | None) -> str:
    nodes = list(nodes_of(source))
    found = " and ".join(sorted({node.table for node in nodes if isinstance(node, Scan)}))
    for node in nodes:
        if isinstance(node, Window):
            found += f" in {node.windows} of {node.time}"
    return found if condition is None else f"{found} WHERE {condition}"


def _keys(aggregate: Aggregate) -> str:
    return ", ".join(str(key.of).removeprefix("$") for key in aggregate.keys) or "nothing"
