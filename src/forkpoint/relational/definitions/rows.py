"""The definition of rows that are kept by key, of joins and of OVER, and what a changed query can make of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec

from forkpoint.relational.aggregation.accumulators import key_label
from forkpoint.relational.canonical import canonical
from forkpoint.relational.definitions.groups import (
    DIFFERENCE,
    REMEDY,
    View,
    as_json,
    described,
    other_rows,
    read_stored,
    split_filter,
)
from forkpoint.relational.expressions import (
    Call,
    Column,
    Expression,
    Item,
    Literal,
    all_of,
    columns_of,
    conjuncts_of,
    read_by,
    replace_columns,
)
from forkpoint.relational.plan import LEFT, PRESENT, RIGHT, Aggregate, Join, Over, Plan, is_updating, nodes_of, without_hints
from forkpoint.relational.types import Field, SqlType

AT_LEAST = 10
"""How many rows of each partition are kept for ROW_NUMBER() <= n, if n is less: what n can grow to. For = 1, it is one."""


class RowsDefinition(msgspec.Struct, frozen=True, dict=True, omit_defaults=True):
    """``node``: in canonical form. ``view`` refers to its columns. Each of its inputs is a side: ``left.`` and ``right.`` of a
    join, and "" of OVER; the names of its columns begin with that. ``limit``: how many rows of each partition are kept, the
    first ones; None for all."""

    node: Join | Over
    view: View
    limit: int | None = None

    @property
    def sides(self) -> tuple[str, ...]:
        return (LEFT, RIGHT) if isinstance(self.node, Join) else ("",)

    def input(self, side: str) -> Plan:
        if isinstance(self.node, Over):
            return self.node.input
        return self.node.left if side == LEFT else self.node.right

    def keys(self, side: str) -> tuple[Expression, ...]:
        """The expressions over the columns of a side by which its rows are stored."""
        if isinstance(self.node, Over):
            return self.node.partition
        return tuple(pair[side == RIGHT] for pair in self.node.keys)

    @cached_property
    def _columns(self) -> dict[str, Column | Call]:
        """The columns of the sides that the node reads, and fields of those that are ROWs, by name, in the order of their names.
        Versions have whole columns."""
        node = self.node
        if isinstance(node, Join):
            produced, parts = set(), [] if node.condition is None else [node.condition]
            if node.within:
                parts += [on_side(LEFT, node.within.left), on_side(RIGHT, node.within.right)]
            if node.as_of:
                parts += [on_side(LEFT, node.as_of.left), on_side(RIGHT, node.as_of.right)]
        else:
            produced = {node.name_of(call) for call in node.calls}
            parts = [*(each.of for each in node.order), *(part for call in node.calls for part in call.arguments)]
            parts += [node.until] if node.until else []
        expressions = (*self.view.expressions, *parts)
        if isinstance(node, Join) and node.as_of:
            expressions = tuple(column for each in expressions for column in columns_of(each))
        return dict(sorted(read_by(expressions, but=produced).items()))

    def columns_of_side(self, side: str) -> tuple[Field, ...]:
        """The columns of a side's input that the node reads. All may be NULL, so that their types don't depend on what a changed
        query knows about them."""
        found = ((name.removeprefix(side), of) for name, of in self._columns.items() if name.startswith(side))
        return tuple(Field(name, of.type.with_null()) for name, of in found if name != PRESENT)

    def kept(self, side: str) -> tuple[Field, ...]:
        """The columns of a side's stored rows: those that aren't part of its key."""
        keys = self.in_key(side)
        return tuple(field for field in self.columns_of_side(side) if field.name not in keys)

    def items(self, side: str) -> tuple[Item, ...]:
        """The columns of a side's stored rows, over those of its input."""
        columns = {column.removeprefix(side): of for column, of in self._columns.items() if column.startswith(side)}
        return tuple(Item(field.name, off_side(side, columns[field.name])) for field in self.kept(side))

    def in_key(self, side: str) -> dict[str, int]:
        """The columns that are a part of the key, and which part."""
        return {key.name: at for at, key in reversed([*enumerate(self.keys(side))]) if isinstance(key, Column)}

    @cached_property
    def key_types(self) -> tuple[SqlType, ...]:
        return tuple(key.type.with_null() for key in self.keys(self.sides[0]))

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """Names of the keys, for columns of state."""
        names = [key_label(key) for key in self.keys(self.sides[0])]
        return tuple(name if names.index(name) == at else f"{name}_{at}" for at, name in enumerate(names))

    def to_json(self, side: str) -> Any:
        """The definition of the state of one side."""
        node = without_hints(self.node)
        assert isinstance(node, Join | Over)
        fields = {"fields": True} if any(isinstance(item.of, Call) for item in self.items(side)) else {}
        return {**as_json(RowsDefinition(node, self.view, self.limit)), "side": side, **fields}


def on_side(side: str, expression: Expression) -> Expression:
    """An expression over the columns of an input, over those of the join."""
    return replace_columns(expression, lambda column: Column(side + column.name, column.type))


def off_side(side: str, expression: Expression) -> Expression:
    """An expression over the columns of the join, over those of an input."""
    return replace_columns(expression, lambda column: Column(column.name.removeprefix(side), column.type))


def stored_rows(content: Any) -> RowsDefinition:
    """A saved definition, in the canonical form of this release. Raises SavepointCorrupt."""
    found = read_stored({name: part for name, part in content.items() if name not in ("side", "fields")}, RowsDefinition)
    node = canonical(found.node)
    assert isinstance(node, Join | Over)
    return RowsDefinition(node, found.view, found.limit)


def limit_of(node: Join | Over, view: View) -> int | None:
    """How many rows of each partition are kept, if only the first ones can ever be shown: ROW_NUMBER() has an upper bound, and
    rows are only added. A changed query may have a larger bound, up to AT_LEAST, unless it asks for the first row only."""
    if isinstance(node, Join) or is_final(node) or is_updating(node.input):
        return None
    if [call.function for call in node.calls] != ["ROW_NUMBER"]:
        return None
    number = node.name_of(node.calls[0])
    bounds = [found for part in conjuncts_of(view.condition) for found in _upper_bounds(number, part)]
    if ("=", 1) in bounds:
        return 1
    return max(min(bound for _, bound in bounds), AT_LEAST) if bounds else None


def _upper_bounds(number: str, condition: Expression) -> list[tuple[str, int]]:
    """How a condition bounds a column with a whole number, and by what: one bound, or none."""
    if not isinstance(condition, Call) or len(condition.arguments) != 2:
        return []
    one, other = condition.arguments
    function = condition.function
    if isinstance(one, Literal):
        one, other, function = other, one, {">=": "<=", ">": "<", "=": "="}.get(function, "")
    if not (isinstance(one, Column) and one.name == number and isinstance(other, Literal) and type(other.value) is int):
        return []
    bound = {"<=": other.value, "=": other.value, "<": other.value - 1}.get(function)
    return [] if bound is None else [(function, bound)]


def compare_rows(old: RowsDefinition, new: RowsDefinition, side: str) -> tuple[str, str]:
    """Why the stored rows of one side cannot serve the new query ("" if they can), and what the change does. They can be filtered
    further, and lose columns; what is computed from them can be anything."""
    if old.sides != new.sides:
        return f"it belongs to another kind of query; {REMEDY}", ""
    (before, old_filter), (after, new_filter) = (split_filter(each.input(side)) for each in (old, new))
    if before != after:
        return f"{other_rows((before, None), (after, None))}; {REMEDY}", ""
    if any(old.keys(each) != new.keys(each) for each in old.sides):
        return f"its rows were kept by {_keys(old)} and would be kept by {_keys(new)}; {REMEDY}", ""
    if reason := _other_bounds(old.node, new.node, side):
        return f"{reason}; {REMEDY}", ""
    if old.limit is not None and not _are_among_the_first(old, new, same_filter=old_filter == new_filter):
        return f"only the first {old.limit} rows of each partition were kept, in the order of {_order(old)}; {REMEDY}", ""
    added = narrower(old_filter, new_filter)
    if added is None or (old_filter != new_filter and not takes_back(before) and any(map(takes_back, nodes_of(before)))):
        passed, passing = described(before, old_filter), described(after, new_filter)
        return f"its rows came from {passed} and would come from {passing}, which are not among them; {REMEDY}", ""
    saved = {field.name: field.type for field in old.columns_of_side(side)}
    needed = {field.name: field.type for field in new.columns_of_side(side)}
    read = {*needed, *read_by([added])} - old.in_key(side).keys()
    missing = sorted(name for name in read if not any(row in saved for row in _rows_with(name)))
    if missing:
        return f"the saved rows of {described(before)} have no {', '.join(missing)}; {REMEDY}", ""
    for name in sorted(read & needed.keys() & saved.keys()):
        if saved[name] != needed[name]:
            return f"column {name!r} of {described(before)} was {saved[name]} and would be {needed[name]}; {REMEDY}", ""
    return "", "" if old == new else FROM_NOW_ON if is_final(new.node) else DIFFERENCE


def _rows_with(name: str) -> list[str]:
    """A column of this name, and the rows of which it may be a field."""
    parts = name.split(".")
    return [".".join(parts[: len(parts) - at]) for at in range(len(parts))]


def takes_back(source: Plan) -> bool:
    """Whether the operator of an input, in the first epoch of a changed query, removes the rows that a further condition on them
    rules out: one that emits the difference between its results. Of other inputs, who has the rows drops them."""
    return isinstance(source, Aggregate | Join | Over) and is_updating(source)


FROM_NOW_ON = (
    "the query has changed: rows that event time has not passed will have its new result; what was written stays as it is"
)


def is_final(node: Join | Over) -> bool:
    """Whether event time bounds the rows that are kept, so that results are never taken back."""
    return bool(node.within or node.as_of if isinstance(node, Join) else node.until)


def _other_bounds(old: Join | Over, new: Join | Over, side: str) -> str:
    """Why the rows that one node has kept cannot serve the other one, as far as event time bounds them; "" if they can."""
    if isinstance(old, Over) or isinstance(new, Over):
        if is_final(old) == is_final(new):
            return ""
        how = ["until their windows end" if is_final(each) else "without limit" for each in (old, new)]
        return f"its rows were kept {how[0]} and would be kept {how[1]}"
    if old.as_of or new.as_of or not (old.within and new.within):
        how = [str(each.as_of or each.within or "without limit") for each in (old, new)]
        return "" if how[0] == how[1] else f"its rows were kept {how[0]} and would be kept {how[1]}"
    same_times = (old.within.left, old.within.right) == (new.within.left, new.within.right)
    if not (same_times and old.within.lower_us <= new.within.lower_us and old.within.upper_us >= new.within.upper_us):
        return f"rows that {new.within} needs may have left the state, which kept {old.within}"
    if not set(conjuncts_of(old.condition)) <= set(conjuncts_of(new.condition)):
        return f"rows may have left the state that only {old.condition} kept from having pairs"
    if new.needs_pairless(side) and not old.needs_pairless(side):
        return f"{old.kind} joins do not know which rows had pairs, as {new.kind} joins need to"
    return ""


def narrower(old: Expression | None, new: Expression | None) -> Expression | None:
    """What a filter demands more than another one, TRUE for nothing; None if it does not imply the other one."""
    before, after = conjuncts_of(old), conjuncts_of(new)
    if not set(before) <= set(after):
        return None
    return all_of(tuple(part for part in after if part not in before)) or Literal(True, SqlType("BOOLEAN", nullable=False))


def _are_among_the_first(old: RowsDefinition, new: RowsDefinition, *, same_filter: bool) -> bool:
    """Whether the rows that were kept have all that the new query shows."""
    assert old.limit is not None
    return same_filter and _order(old) == _order(new) and new.limit is not None and new.limit <= old.limit


def _order(of: RowsDefinition) -> str:
    return ", ".join(map(str, of.node.order)) if isinstance(of.node, Over) else ""


def _keys(of: RowsDefinition) -> str:
    parts: Sequence[Sequence[Expression]] = list(zip(*(of.keys(side) for side in of.sides), strict=True))
    return " AND ".join(" = ".join(map(str, part)) for part in parts) or "nothing"
