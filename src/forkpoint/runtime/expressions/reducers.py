"""Functions that reduce each field by itself: to the first or last value, the sum, the least or the greatest; or to one of two
elements, by a field."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import pyarrow as pa

from forkpoint.runtime.expressions.functions import OverColumns, check_output, text_of
from forkpoint.runtime.expressions.kernels import Evaluation, InPython
from forkpoint.runtime.expressions.screening import NotAnExpression
from forkpoint.runtime.expressions.tracing import Traced, traced_pair
from forkpoint.runtime.expressions.tree import Node
from forkpoint.types import TypeInformation

Way = Literal["first", "last", "sum", "min", "max"]
_SAMPLE = 16
_LESS = {"<": True, "<=": True, ">": False, ">=": False}


@dataclass(frozen=True)
class Reducer:
    """``ways``: how each field is reduced. ``by``: whether the element with the least (``min``) or greatest (``max``) of a field
    remains, the first among equals, instead."""

    traced: Traced
    ways: tuple[Way, ...] = ()
    by: tuple[Literal["min", "max"], int] | None = None


def reducer(function: Any, elements: TypeInformation) -> Reducer:
    """How a function reduces elements. Raises NotAnExpression."""
    found = traced_pair(function, elements)
    check_output(found, elements, elements)
    width = len(found.nodes)
    by = _chosen_by(found.nodes, width)
    if by is not None:
        return Reducer(found, by=by)
    return Reducer(found, tuple(_way(node, i, width) for i, node in enumerate(found.nodes)))


def _way(node: Node, index: int, width: int) -> Way:
    of = node.arguments[0] if node.operation == "field" else None
    if of in (index, index + width):
        return "first" if of == index else "last"
    if node.operation == "+" and node.kind in ("int", "float") and _fields(node) == [index, index + width]:
        return "sum"
    if node.operation == "if":
        condition, one, other = node.arguments
        if condition.operation in _LESS and sorted(_fields(condition)) == sorted(_numbers(one, other)) == [index, index + width]:
            takes_left = _fields(condition)[0] == one.arguments[0]
            return "min" if _LESS[condition.operation] == takes_left else "max"
    raise NotAnExpression(f"reduces with {node}")


def _chosen_by(nodes: tuple[Node, ...], width: int) -> tuple[Literal["min", "max"], int] | None:
    if width < 2 or not all(node.operation == "if" for node in nodes):
        return None
    (condition, *_), found = nodes[0].arguments, [_numbers(*node.arguments[1:]) for node in nodes]
    kept = [condition is node.arguments[0] for node in nodes]
    first, second = list(range(width)), list(range(width, 2 * width))
    sides = [list(side) for side in zip(*found, strict=True)] if all(len(each) == 2 for each in found) else []
    if not all(kept) or sides not in ([first, second], [second, first]) or condition.operation not in _LESS:
        return None
    compared = _fields(condition)
    if len(compared) != 2 or compared[0] % width != compared[1] % width or compared[0] == compared[1]:
        return None
    left_is_first, takes_first = compared[0] < width, sides[0] == first
    if (condition.operation in ("<=", ">=")) != takes_first:
        raise NotAnExpression("takes the second of equal elements")
    takes_left = left_is_first == takes_first
    return "min" if _LESS[condition.operation] == takes_left else "max", compared[0] % width


def _fields(node: Node) -> list[int]:
    return _numbers(*node.arguments)


def _numbers(*nodes: Node) -> list[int]:
    """The numbers of these columns; none of others."""
    return [node.arguments[0] for node in nodes if node.operation == "field"]


def how_reduced(function: Any, elements: TypeInformation | None) -> str:
    """How a reducer runs, for people."""
    if elements is None:
        return "in Python: the type of its elements is not declared"
    call = getattr(function, "reduce", function)
    return text_of(call, lambda: reducer(call, elements).traced)


class ReducedColumns(OverColumns):
    """A reducer, which is compared with Python on neighbouring elements of each epoch. Its function takes a pair."""

    def holds_of(self, table: pa.RecordBatch) -> bool:
        """Whether it may be computed over the columns of an epoch."""
        if not self.usable:
            return False
        columns, width, rows = table.columns, len(self.found.nodes), min(table.num_rows, _SAMPLE) - 1
        if any(columns[index % width].null_count for index in self.found.needed):
            return False
        if not self.found.screened.holds:
            self.give_up("a name that it reads has another value now")
            return False
        if not rows:
            return True
        try:
            found = self.results(Evaluation([c.slice(at, rows) for at in (0, 1) for c in columns], rows))
        except InPython:
            return True  # what reduces the columns finds such values itself
        return self.agrees(found, lambda: list(pairwise(self.elements.from_columns(table.slice(0, rows + 1).columns))))


def reduced_columns(function: Any, of: Reducer, elements: TypeInformation) -> ReducedColumns:
    return ReducedColumns("reduce", lambda pair: function(*pair), of.traced, elements, elements)
