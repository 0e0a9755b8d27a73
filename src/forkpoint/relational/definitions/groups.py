"""The definition of a group's state: what it means, stored with the state itself, and what a changed query can make of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from forkpoint.decoders import convert
from forkpoint.errors import SavepointCorrupt
from forkpoint.relational.aggregation.accumulators import Accumulator, accumulators_of, key_label, needs, result
from forkpoint.relational.calls import AggregateCall
from forkpoint.relational.canonical import canonical
from forkpoint.relational.changes import rows_only
from forkpoint.relational.evaluation import evaluate_all, true_rows
from forkpoint.relational.expressions import Column, Expression, Item
from forkpoint.relational.plan import (
    Aggregate,
    Plan,
    Scan,
    Select,
    Window,
    is_updating,
    is_windowed,
    nodes_of,
    window_columns,
    without_hints,
)
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


class OtherView(msgspec.Struct, frozen=True):
    """Another view of an operator's rows: that of a place in the query with an equal operator, which would have had this uid."""

    uid: str
    view: View


class GroupDefinition(msgspec.Struct, frozen=True, dict=True):
    """``aggregate``: in canonical form. ``view`` refers to its columns, as do the views of ``others``, if several places of the
    query have this aggregate."""

    aggregate: Aggregate
    view: View
    others: tuple[OtherView, ...] | msgspec.UnsetType = msgspec.UNSET

    @cached_property
    def accumulators(self) -> tuple[Accumulator, ...]:
        return accumulators_of(self.aggregate)

    @cached_property
    def _calls(self) -> tuple[tuple[str, AggregateCall, tuple[str, ...]], ...]:
        """Each call's text, and the names of its accumulators."""
        calls, updating = self.aggregate.calls, is_updating(self.aggregate.input)
        return tuple((str(call), call, tuple(each.name for each in needs(call, updating=updating))) for call in calls)

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """Names of the keys, for columns of state."""
        return tuple(key_label(key.of) for key in self.aggregate.keys)

    @cached_property
    def window_keys(self) -> Mapping[Role, str]:
        """The names of the keys that are a window's start and end; empty if the groups are not those of windows."""
        if not is_windowed(self.aggregate):
            return {}
        below, keys = window_columns(self.aggregate.input), zip(self.key_names, self.aggregate.keys, strict=True)
        return {below[key.of.name].role: name for name, key in keys if isinstance(key.of, Column) and key.of.name in below}

    def to_json(self) -> Any:
        aggregate = without_hints(self.aggregate)
        assert isinstance(aggregate, Aggregate)
        return as_json(replace(self, aggregate=aggregate))

    def of_reader(self, uid: str) -> GroupDefinition | None:
        """The definition with the view of one reader only, "" for the first; None if there is no such reader."""
        views = {"": self.view, **{other.uid: other.view for other in self.others or ()}}
        return GroupDefinition(self.aggregate, views[uid]) if uid in views else None

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


def stored_definition(content: Any) -> GroupDefinition:
    """A saved definition of groups, in the canonical form of this release. Raises SavepointCorrupt."""
    found = read_stored(content, GroupDefinition)
    aggregate = canonical(found.aggregate)
    assert isinstance(aggregate, Aggregate)
    return replace(found, aggregate=aggregate)


def as_json(definition: msgspec.Struct) -> Any:
    """A definition as it is read from JSON again: with lists for tuples, so that both can be compared."""
    return json.loads(msgspec.json.encode(definition))


def read_stored(content: Any, of: type[T]) -> T:
    try:
        return convert(content, of)
    except msgspec.ValidationError as error:
        raise SavepointCorrupt(f"the definition of a query's state cannot be read: {error}") from error


OTHERWISE = "write the changed query's result into another table, or start this operator empty (--accept UID=empty)"
REMEDY = f"compute it again from its input (forkpoint recompute), {OTHERWISE}"


def compare_groups(old: GroupDefinition, new: GroupDefinition) -> tuple[str, str]:
    """Why the state of the old groups cannot serve the new ones ("" if it can), and what the change does."""
    before, after = split_filter(old.aggregate.input), split_filter(new.aggregate.input)
    if before != after:
        return f"{other_rows(before, after)}; {REMEDY}", ""
    if old.aggregate.keys != new.aggregate.keys:
        return f"it was grouped by {_keys(old.aggregate)} and would be grouped by {_keys(new.aggregate)}; {REMEDY}", ""
    kept = {accumulator.name for accumulator in old.accumulators}
    missing = [text for text, _, names in new._calls if not kept.issuperset(names)]
    if missing:
        return f"{', '.join(missing)} cannot be computed from the saved {', '.join(map(str, old.aggregate.calls))}; {REMEDY}", ""
    if (old.view, old.others) == (new.view, new.others):
        return "", ""
    return "", _OPEN_WINDOWS if new.window_keys else DIFFERENCE


_OPEN_WINDOWS = "the query has changed: windows that are still open will have its new result; what was written stays as it is"
DIFFERENCE = "the query has changed: the first epoch emits the difference between its new and its old result"


def split_filter(plan: Plan) -> tuple[Plan, Expression | None]:
    """The canonical input of an operator, and the filter on it."""
    return (plan.input, plan.condition) if isinstance(plan, Select) else (plan, None)


def described(source: Plan, condition: Expression | None = None) -> str:
    nodes = list(nodes_of(source))
    scans = (node for node in nodes if isinstance(node, Scan))
    found = " and ".join(sorted({f"{scan.table}{' with changes' * scan.updating}" for scan in scans}))
    for node in nodes:
        if isinstance(node, Window):
            found += f" in {node.windows} of {node.time}"
    return found if condition is None else f"{found} WHERE {condition}"


def other_rows(before: tuple[Plan, Expression | None], after: tuple[Plan, Expression | None]) -> str:
    """How the input and filter of an operator differ from those that its rows came from."""
    old, new = described(*before), described(*after)
    if old != new:
        return f"its rows came from {old} and would come from {new}"
    return f"its rows came from {old}, in which {_first_difference(before[0], after[0])}"


def _first_difference(old: Any, new: Any) -> str:
    """Where two plans differ that read the same tables."""
    if type(old) is not type(new):
        return f"{type(new).__name__.upper()} takes the place of {type(old).__name__.upper()}"
    for name in old.__struct_fields__:
        before, after = getattr(old, name), getattr(new, name)
        if before != after and name in _INPUTS:
            return _first_difference(before, after)
        if before != after:
            shown = [_texts(part) for part in (before, after)]
            return f"the {name} of {type(old).__name__.upper()} were {shown[0]} and would be {shown[1]}"
    return "a query differs"


_INPUTS = ("input", "left", "right")


def _texts(part: Any) -> str:
    return (", ".join(map(_texts, part)) if isinstance(part, tuple) else str(getattr(part, "of", part))) or "none"


def _keys(aggregate: Aggregate) -> str:
    return ", ".join(str(key.of).removeprefix("$") for key in aggregate.keys) or "nothing"
