"""The states of all keys after each element, of a function whose new state is an expression of the element and the state.

Where a field is a known recurrence (a sum, an extreme, a value that is kept or replaced), one pass over the rows finds it. Any
other is computed in rounds: the first elements of all keys, then the second ones, each from the states after the last; and what
few keys have more than others, in a loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from forkpoint.runtime.columnar.segments import Numbers, Segments, accumulated, layers, ranges
from forkpoint.runtime.exchange.batch import Longs
from forkpoint.runtime.expressions.kernels import Column, Evaluation, InPython, Ints, taken
from forkpoint.runtime.expressions.loops import loop
from forkpoint.runtime.expressions.steps import Stepping
from forkpoint.runtime.expressions.tree import Node, fields_of, is_field, parts_of

_LEAST_ROWS = 200  # of a round; a loop is faster for fewer
_LOW, _HIGH = -(2**63), 2**63 - 1


def _constant(value: Any) -> Node:
    return Node("constant", "bool" if isinstance(value, bool) else "int", (value, repr(value)))


_TRUE, _FALSE, _ZERO = map(_constant, (True, False, 0))


class Recurrences:
    """``columns``: all columns that are not of states, in the order of ``segments``, by number. ``seeds``: by state column, the
    value of each key before its first row; anything where a key has none."""

    def __init__(self, of: Stepping, columns: Mapping[int, Column], segments: Segments, seeds: Mapping[int, Any]) -> None:
        self._segments, self._rows, self._seeds = segments, len(segments.rows), seeds
        self._width = len(columns) + len(seeds)
        self.evaluation = Evaluation([columns.get(number) for number in range(self._width)], self._rows)
        self._new: dict[int, Node] = {}
        self._there: dict[int, int] = {}
        for state, value in zip(of.states, of.step.states, strict=True):
            self._new.update(zip((state.there, *state.columns), (value.there, *value.fields), strict=True))
            self._there.update(dict.fromkeys(state.columns, state.there))
        self._after: dict[int, Any] = {}
        self._stays: set[int] = set()  # the columns of states that no row removes

    def compute(self) -> None:
        """Find all states, so that ``evaluation`` has the expressions of the outputs. Raises InPython."""
        unknown = sorted(self._new)
        while unknown:
            solved = next((column for column in unknown if self._solve(column, {*unknown} - {column})), None)
            if solved is None:
                break
            unknown.remove(solved)
        if unknown:
            self._in_rounds(unknown)

    def last(self, column: int) -> Any:
        """A state's column after the last row of each key."""
        return taken(self.after(column), self._segments.starts[1:] - 1)

    def after(self, column: int) -> Any:
        """A state's column after each row."""
        return self._after[column]

    # -- known recurrences

    def _solve(self, column: int, unknown: set[int]) -> bool:
        node = self._new[column]
        if unknown.intersection(fields_of((node,))):
            return False
        if is_field(node, column):
            self._found(column, taken(self._seeds[column], self._segments.of_row))
            self._stays.add(column)
            return True
        if not reads(node, column):
            self._found(column, self._full(node))
            self._stays.update([column] if node.is_truth else [])
            return True
        if self._chosen(column, node):
            return True
        there = self._there.get(column)
        if there is None or there in unknown or there not in self._stays or node.kind != "int":
            return False
        return self._summed(column, node, there) or self._extreme(column, node, there)

    def _found(self, column: int, after: Any) -> None:
        node = self._new[column]
        self._after[column] = after
        if not is_field(node, column):
            self.evaluation.know(node, after)
        self.evaluation.have(column, partial(_before, after, self._seeds[column], self._segments))

    def _chosen(self, column: int, node: Node) -> bool:
        """A value that each row keeps or replaces."""
        found = choice(node, column)
        if found is None:
            return False
        where, value = self.evaluation.mask(found[0]), self._full(found[1])
        starts, rows = self._segments.starts[:-1], np.arange(self._rows)
        at = np.where(where, rows, -1)
        at[starts] = np.where(where[starts], starts, self._rows + np.arange(len(starts)))  # behind the values are the seeds
        at = at[np.maximum.accumulate(np.where(at >= 0, rows, 0))]
        after = taken(_joined(node.kind, [value, self._seeds[column]]), at)
        self._found(column, after)
        if column not in self._there and after[where].all():
            self._stays.add(column)
        return True

    def _summed(self, column: int, node: Node, there: int) -> bool:
        of = added(node, column, there)
        if of is None:
            return False
        values, seeds, sizes = self._full(of), self._seeds[column], self._segments.sizes
        if max(map(abs, values.bounds)) * int(sizes.max()) + max(map(abs, seeds.bounds)) > _HIGH:
            return False
        has_value, starts = self._after[there], self._segments.starts[:-1]
        data = values.data if has_value.all() else np.where(has_value, values.data, 0)
        running = np.cumsum(data)
        running += np.repeat(np.where(self._seeds[there], seeds.data, 0) - running[starts] + data[starts], sizes)
        self._found(column, Ints(running))
        return True

    def _extreme(self, column: int, node: Node, there: int) -> bool:
        found = extreme(node, column, there)
        if found is None:
            return False
        least, of = found
        nothing, has_value = _HIGH if least else _LOW, self._after[there]
        data = np.where(has_value, self._full(of).data, nothing)
        seeds = np.where(self._seeds[there], self._seeds[column].data, nothing)
        after = accumulated(np.minimum if least else np.maximum, data, self._segments, seeds)
        self._found(column, Ints(np.where(has_value, after, 0)))
        return True

    # -- rounds

    def _in_rounds(self, unknown: Sequence[int]) -> None:
        segments = self._segments
        nodes = {column: self._new[column] for column in unknown}
        given = {node: self._full(node) for node in self._inputs(list(nodes.values()), set(unknown))}
        order = np.argsort(-segments.sizes, kind="stable")
        now = {column: taken(self._seeds[column], order) for column in unknown}
        found: dict[int, list[Any]] = {column: [] for column in unknown}
        places: list[Numbers] = []
        for alive, at in layers(segments, np.ones(segments.count, bool)):
            if len(alive) < _LEAST_ROWS:
                rest = self._looped(nodes, given, {column: _cut(of, len(alive)) for column, of in now.items()}, alive, at)
                for column, values in rest.items():
                    found[column].append(values)
                places.append(ranges(at, segments.starts[1:][alive] - at))
                break
            evaluation = Evaluation([None] * self._width, len(alive), {n: taken(of, at) for n, of in given.items()})
            for column in unknown:
                evaluation.have(column, _cut(now[column], len(alive)))
            for column, node in nodes.items():
                now[column] = full(evaluation.value(node), node.kind, len(alive))
                found[column].append(now[column])
            places.append(at.copy())
        back = np.empty(self._rows, np.int64)
        back[np.concatenate(places)] = np.arange(self._rows)
        for column, node in nodes.items():
            self._found(column, taken(_joined(node.kind, found[column]), back))

    def _looped(
        self, nodes: Mapping[int, Node], given: Mapping[Node, Any], now: Mapping[int, Any], keys: Longs, at: Longs
    ) -> dict[int, Any]:
        """The states after all further rows of a few keys, from their rows ``at``."""
        run = loop(nodes, list(given))
        before = list(zip(*map(_listed, now.values()), strict=True))
        found: dict[int, list[Any]] = {column: [] for column in nodes}
        for key, start, states in zip(keys.tolist(), at.tolist(), before, strict=True):
            rows = np.arange(start, int(self._segments.starts[key + 1]))
            known = [_listed(taken(of, rows)) for of in given.values()]
            try:
                after = run(states, known or [rows.tolist()])
            except (ArithmeticError, ValueError) as error:
                raise InPython from error
            for values, more in zip(found.values(), after, strict=True):
                values += more
        return {column: _unlisted(nodes[column].kind, values) for column, values in found.items()}

    def _inputs(self, nodes: Sequence[Node], unknown: set[int]) -> list[Node]:
        """The largest parts that are known for all rows. Where columns cannot compute all rows, the fields that they read."""
        found: dict[Node, None] = {}
        for part in _known_parts(nodes, unknown):
            try:
                self.evaluation.value(part)
                found[part] = None
            except InPython:
                found.update(dict.fromkeys(each for each in parts_of((part,)) if each.operation == "field"))
        return list(found)

    def _full(self, node: Node) -> Any:
        return full(self.evaluation.value(node), node.kind, self._rows)


def _known_parts(nodes: Sequence[Node], unknown: set[int]) -> Iterator[Node]:
    for node in nodes:
        if unknown.isdisjoint(fields_of((node,))):
            if node.operation != "constant":
                yield node
        else:
            yield from _known_parts(node.operands, unknown)


def full(value: Any, kind: str, rows: int) -> Any:
    """A value of `Evaluation.value` with an entry for each row."""
    if isinstance(value, Ints):
        return Ints(np.full(rows, value.data, np.int64), value.bounds) if isinstance(value.data, int) else value
    if isinstance(value, np.ndarray | pa.Array):
        return value
    return pa.repeat(pa.scalar(value, pa.string()), rows) if kind == "str" else np.full(rows, value)


def _cut(column: Any, rows: int) -> Any:
    """The first rows."""
    if isinstance(column, Ints):
        return Ints(column.data[:rows], column.bounds)
    return column.slice(0, rows) if isinstance(column, pa.Array) else column[:rows]


def _listed(column: Any) -> list[Any]:
    """The entries as Python objects."""
    found: list[Any] = column.to_pylist() if isinstance(column, pa.Array) else getattr(column, "data", column).tolist()
    return found


def _unlisted(kind: str, values: list[Any]) -> Any:
    if kind == "str":
        return pa.array(values, pa.string())
    try:
        data: Numbers = np.array(values, {"int": np.int64, "float": np.float64, "bool": np.bool_}[kind])
    except OverflowError as error:  # an int beyond 64 bits
        raise InPython from error
    return Ints(data) if kind == "int" else data


def _joined(kind: str, parts: Sequence[Any]) -> Any:
    if kind == "str":
        return pa.concat_arrays(parts)
    if kind != "int":
        return np.concatenate(parts)
    bounds = [part.bounds for part in parts if len(part.data)]
    return Ints(np.concatenate([part.data for part in parts]), (min(b[0] for b in bounds), max(b[1] for b in bounds)))


def _before(after: Any, seeds: Any, segments: Segments) -> Any:
    """The values before each row: of the row before, or the key's seed."""
    starts = segments.starts[:-1]
    if isinstance(after, pa.Array):
        at = np.arange(len(after)) - 1
        at[starts] = len(after) + np.arange(len(starts))
        return taken(pa.concat_arrays([after, seeds]), at)
    if isinstance(after, Ints):
        return Ints(_before(after.data, seeds.data, segments))
    before = np.empty_like(after)
    before[1:] = after[:-1]
    before[starts] = seeds
    return before


# -- what a recurrence is


def reads(node: Node, column: int) -> bool:
    return column in fields_of((node,))


def _if(kind: Any, condition: Node, one: Node, other: Node) -> Node:
    return one if one is other else Node("if", kind, (condition, one, other))


def choice(node: Node, column: int) -> tuple[Node, Node] | None:
    """When a column is replaced, and by what; None if it depends on itself in another way."""
    if is_field(node, column):
        return _FALSE, node
    if not reads(node, column):
        return _TRUE, node
    if node.operation != "if":
        return None
    condition, one, other = node.arguments
    if is_field(condition, column):  # of a bool
        if (one is condition or one.is_truth) and not reads(other, column):
            return other, _TRUE
        if (other is condition or other.is_truth is False) and not reads(one, column):
            return _if("bool", one, _FALSE, _TRUE), _FALSE
    if reads(condition, column):
        return None
    found, found_else = choice(one, column), choice(other, column)
    if found is None or found_else is None:
        return None
    (replaces, by), (replaces_else, by_else) = found, found_else
    if replaces is _FALSE or replaces_else is _FALSE:
        by = by_else if replaces is _FALSE else by
        return _if("bool", condition, replaces, replaces_else), by
    return _if("bool", condition, replaces, replaces_else), _if(node.kind, condition, by, by_else)


def added(node: Node, column: int, there: int) -> Node | None:
    """What is added to a column of ints, which counts as 0 where there is no value; None if it is not a sum."""
    if is_field(node, column):
        return _ZERO
    if node.operation in ("+", "-"):
        one, other = node.arguments
        if node.operation == "+" and not reads(one, column):
            one, other = other, one
        if reads(other, column) or other.kind != "int":
            return None
        first = added(one, column, there)
        if first is None:
            return None
        if node.operation == "+":
            return other if first is _ZERO else Node("+", "int", (first, other))
        return Node("neg", "int", (other,)) if first is _ZERO else Node("-", "int", (first, other))
    if node.operation != "if":
        return None
    condition, one, other = node.arguments
    first = added(one, column, there)
    if first is None:
        return None
    if condition.operation == "!=" and is_field(condition.arguments[0], column):  # x or 0
        is_zero = condition.arguments[1].operation == "constant" and not condition.arguments[1].arguments[0]
        return first if is_zero and _without_zero(first) is _without_zero(other) else None
    if reads(condition, column):
        return None
    if is_field(condition, there) and not reads(other, column):
        second: Node | None = other
    else:
        second = added(other, column, there)
    return None if second is None else _if("int", condition, first, second)


def _without_zero(node: Node) -> Node:
    """The other operand of ``0 + x``."""
    if node.operation == "+" and node.arguments[0].operation == "constant" and node.arguments[0].arguments[0] == 0:
        return node.arguments[1] if node.arguments[1].kind == "int" else node
    return node


def extreme(node: Node, column: int, there: int) -> tuple[bool, Node] | None:
    """Whether a column is the least or else the greatest, and of what; None if it is neither."""
    if node.operation != "if":
        return None
    condition, one, other = node.arguments
    if not reads(condition, column):
        found = extreme(one, column, there)
        begins = is_field(condition, there) and not reads(other, column)
        if found is None or not (begins or is_field(other, column)):
            return None
        least, of = found
        return least, _if("int", condition, of, other if begins else _constant(_HIGH if least else _LOW))
    if condition.operation not in ("<", "<=", ">", ">=") or {*condition.arguments} != {one, other}:
        return None
    of = other if is_field(one, column) else one
    if not is_field(other if of is one else one, column) or reads(of, column) or of.kind != "int":
        return None
    less = condition.operation in ("<", "<=")
    return less == (condition.arguments[0] is one), of
