"""Definitions of state: what it means, stored with the state itself, and what a changed query can make of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from forkpoint.decoders import convert
from forkpoint.errors import SavepointCorrupt
from forkpoint.relational.aggregates import Accumulator, accumulators_of, needs, readable_name, result
from forkpoint.relational.canonical import canonical
from forkpoint.relational.changes import rows_only
from forkpoint.relational.evaluation import evaluate_all, true_rows
from forkpoint.relational.expressions import Column, Expression, Item, Literal, all_of, columns_of, conjuncts_of
from forkpoint.relational.plan import (
    LEFT,
    PRESENT,
    RIGHT,
    Aggregate,
    AggregateCall,
    Join,
    Plan,
    Scan,
    Select,
    Window,
    is_windowed,
    nodes_of,
    window_columns,
)
from forkpoint.relational.types import Field, SqlType
from forkpoint.relational.windows import Role

T = TypeVar("T")


class View(msgspec.Struct, frozen=True):
    """The rows that an operator's own rows become: those for which ``condition`` is true, as ``items``."""

    condition: Expression | None
    items: tuple[Item, ...]

    @property
    def expressions(self) -> tuple[Expression, ...]:
        of_items = tuple(item.of for item in self.items)
        return of_items if self.condition is None else (self.condition, *of_items)


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
        columns = pa.RecordBatch.from_pydict({**keys, **calls}) if keys or calls else rows_only(len(state["count"]))
        shown = true_rows(self.view.condition, columns)
        if shown is not None:
            columns = columns.take(pa.array(shown))
        names = [item.name for item in self.view.items]
        return shown, pa.RecordBatch.from_arrays(evaluate_all(self.view.items, columns), names=names)


class JoinDefinition(msgspec.Struct, frozen=True, dict=True):
    """``join``: in canonical form. ``view`` refers to its columns."""

    join: Join
    view: View

    @cached_property
    def _columns(self) -> dict[str, Column]:
        """The columns of both sides that the join reads, by name, in the order of their names."""
        read = [column for expression in self.view.expressions for column in columns_of(expression)]
        read += [] if self.join.condition is None else columns_of(self.join.condition)
        return {column.name: column for column in sorted(read, key=lambda column: column.name)}

    def columns_of_side(self, side: str) -> tuple[Field, ...]:
        """The columns of a side's input that the join reads. All may be NULL, so that their types don't depend on what a changed
        query knows about them."""
        found = ((name.removeprefix(side), of) for name, of in self._columns.items() if name.startswith(side))
        return tuple(Field(name, of.type.with_null()) for name, of in found if name != PRESENT)

    def kept(self, side: str) -> tuple[Field, ...]:
        """The columns of a side's stored rows: those that aren't part of its key."""
        keys = self.in_key(side)
        return tuple(field for field in self.columns_of_side(side) if field.name not in keys)

    def in_key(self, side: str) -> dict[str, int]:
        """The columns that are a part of the key, and which part."""
        keys = [pair[side == RIGHT] for pair in self.join.keys]
        return {key.name: at for at, key in reversed([*enumerate(keys)]) if isinstance(key, Column)}

    @cached_property
    def key_types(self) -> tuple[SqlType, ...]:
        return tuple(left.type.with_null() for left, _ in self.join.keys)

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """Names of the keys, for columns of state."""
        names = [readable_name(left) for left, _ in self.join.keys]
        return tuple(name if names.index(name) == at else f"{name}_{at}" for at, name in enumerate(names))

    def to_json(self, side: str) -> Any:
        """The definition of the state of one side."""
        return {**msgspec.to_builtins(self), "side": side}


def stored_definition(content: Any) -> GroupDefinition:
    """A saved definition of groups, in the canonical form of this release. Raises SavepointCorrupt."""
    found = _read(content, GroupDefinition)
    aggregate = canonical(found.aggregate)
    assert isinstance(aggregate, Aggregate)
    return GroupDefinition(aggregate, found.view)


def stored_join(content: Any) -> JoinDefinition:
    """A saved definition of a join, in the canonical form of this release. Raises SavepointCorrupt."""
    found = _read({name: part for name, part in content.items() if name != "side"}, JoinDefinition)
    join = canonical(found.join)
    assert isinstance(join, Join)
    return JoinDefinition(join, found.view)


def _read(content: Any, of: type[T]) -> T:
    try:
        return convert(content, of)
    except msgspec.ValidationError as error:
        raise SavepointCorrupt(f"the definition of a query's state cannot be read: {error}") from error


_REMEDY = "write the changed query's result into another table, or start without state (-s none)"


def compare(saved: Any, wanted: Any) -> tuple[str, str]:
    """Compares stored definitions: why state with one cannot serve the other ("" if it can), and what the change does."""
    if saved == wanted:
        return "", ""
    if saved is None or wanted is None:
        return "it belongs to a query on one side only; give the operator or the table another name", ""
    if "join" in saved and "join" in wanted:
        return _compare_joins(stored_join(saved), stored_join(wanted), saved["side"])
    if "aggregate" not in saved or "aggregate" not in wanted:
        return f"it belongs to another kind of query; {_REMEDY}", ""
    old, new = stored_definition(saved), stored_definition(wanted)
    before, after = _split(old.aggregate.input), _split(new.aggregate.input)
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
    return "", _OPEN_WINDOWS if new.window_keys else _DIFFERENCE


_OPEN_WINDOWS = "the query has changed: windows that are still open will have its new result; what was written stays as it is"
_DIFFERENCE = "the query has changed: the first epoch emits the difference between its new and its old result"


def _compare_joins(old: JoinDefinition, new: JoinDefinition, side: str) -> tuple[str, str]:
    """Compares the state of one side of a join. Saved rows can be filtered further, and lose columns."""
    (before, old_filter), (after, new_filter) = (_split(_side(each.join, side)) for each in (old, new))
    if before != after:
        return f"its rows came from {_described(before)} and would come from {_described(after)}; {_REMEDY}", ""
    if old.join.keys != new.join.keys:
        return f"it was joined on {_equations(old.join)} and would be joined on {_equations(new.join)}; {_REMEDY}", ""
    saved = {field.name: field.type for field in old.columns_of_side(side)}
    added = narrower(old_filter, new_filter)
    if added is None:
        return (
            f"its rows came from {_described(before, old_filter)} and would come from {_described(after, new_filter)}, which are "
            f"not among them; {_REMEDY}"
        ), ""
    needed = {column.name for column in columns_of(added)} | {field.name for field in new.columns_of_side(side)}
    missing = sorted(needed - saved.keys() - old.in_key(side).keys())
    if missing:
        return f"the saved rows of {_described(before)} have no {', '.join(missing)}; {_REMEDY}", ""
    return "", "" if old == new else _DIFFERENCE


def narrower(old: Expression | None, new: Expression | None) -> Expression | None:
    """What a filter demands more than another one, TRUE for nothing; None if it does not imply the other one."""
    before, after = conjuncts_of(old), conjuncts_of(new)
    if not set(before) <= set(after):
        return None
    return all_of(tuple(part for part in after if part not in before)) or Literal(True, SqlType("BOOLEAN", nullable=False))


def side_filter(join: Join, side: str) -> Expression | None:
    """The filter on the rows of a side."""
    return _split(_side(join, side))[1]


def _side(join: Join, side: str) -> Plan:
    return join.left if side == LEFT else join.right


def _equations(join: Join) -> str:
    return " AND ".join(f"{one} = {other}" for one, other in join.keys) or "nothing"


def _split(plan: Plan) -> tuple[Plan, Expression | None]:
    """The canonical input of an operator, and the filter on it."""
    return (plan.input, plan.condition) if isinstance(plan, Select) else (plan, None)


def _described(source: Plan, condition: Expression | None = None) -> str:
    nodes = list(nodes_of(source))
    found = " and ".join(sorted({node.table for node in nodes if isinstance(node, Scan)}))
    for node in nodes:
        if isinstance(node, Window):
            found += f" in {node.windows} of {node.time}"
    return found if condition is None else f"{found} WHERE {condition}"


def _keys(aggregate: Aggregate) -> str:
    return ", ".join(str(key.of).removeprefix("$") for key in aggregate.keys) or "nothing"
