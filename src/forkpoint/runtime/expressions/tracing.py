"""Runs a function with symbols in place of elements, along each of its paths, and finds the expressions that it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, Generic, TypeVar

from forkpoint.runtime.expressions.screening import NotAnExpression, Screened, is_constant, method_of
from forkpoint.runtime.expressions.symbols import (
    Fork,
    Record,
    Silent,
    Symbol,
    Trace,
    element_of,
    node_of,
    readable,
    record_maker,
    trace_of,
)
from forkpoint.runtime.expressions.tree import Kind, Node, parts_of
from forkpoint.types import Row, TypeInformation

_MAX_PATHS = 16
_MAX_RUNS = 200


@dataclass(frozen=True)
class Traced:
    """What a function returns for an element: a value for each of ``nodes``, in an object of class ``made`` (None: the value
    itself). ``needed``: the columns that must have no nulls. ``names``: of the fields of a Row that has names."""

    nodes: tuple[Node, ...]
    made: type | None
    needed: frozenset[int]
    screened: Screened
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return result_text(self.nodes, self.made)


def result_text(nodes: Sequence[Node], made: type | None) -> str:
    """A result as in Python."""
    if made is None:
        return str(nodes[0])
    name = "" if made is tuple else made.__name__
    return f"{name}({', '.join(map(str, nodes))}{',' if not name and len(nodes) == 1 else ''})"


_Made = tuple[type | None, tuple[str, ...]]
"""The class of a result, and the names of a Row's fields."""


# -- what a function may call


def _length(value: Any) -> Any:
    if type(value) is not Symbol:
        return len(value)
    node, trace = node_of(value), trace_of(value)
    if node.kind != "str":
        raise NotAnExpression(f"asks for the length of {node}")
    return Symbol(trace.node("len", "int", node), trace)


def _converted(to: type, kind: Kind, of: tuple[str, ...]) -> Callable[[Any], Any]:
    def convert(*values: Any) -> Any:
        if not values:
            return to()
        (value,) = values
        if type(value) is not Symbol:
            if not is_constant(value):
                raise NotAnExpression(f"calls {to.__name__} with more than a value")
            return to(value)
        node, trace = node_of(value), trace_of(value)
        if to is bool:
            return Symbol(trace.truth(node), trace)
        if node.kind not in of:
            raise NotAnExpression(f"calls {to.__name__}({node})")
        return value if node.kind == kind else Symbol(trace.node(to.__name__, kind, node), trace)

    return convert


def _row(*values: Any, **named: Any) -> Record:
    if values and named:
        raise NotAnExpression("makes a Row of both positions and names")
    return Record(Row, readable(named), list(named.values()) if named else values, indexed=True)


CALLS: dict[Any, Callable[..., Any]] = {
    Row: _row,
    abs: abs,
    min: min,
    max: max,
    len: _length,
    int: _converted(int, "int", ("int", "bool")),
    float: _converted(float, "float", ("int", "bool", "float")),
    str: _converted(str, "str", ("int", "str")),
    bool: _converted(bool, "bool", ()),
}


class _Own(Silent):
    """What stands for the object that a method is bound to, of which constants can be read. ``stands``: for other attributes."""

    __slots__ = ("of", "screened", "stands")

    def __init__(self, of: Any, screened: Screened, stands: Mapping[str, Any]) -> None:
        for slot, value in (("of", of), ("screened", screened), ("stands", stands)):
            object.__setattr__(self, slot, value)

    def __getattribute__(self, name: str) -> Any:
        of, screened, stands = (object.__getattribute__(self, each) for each in ("of", "screened", "stands"))
        if name in stands:
            return stands[name]
        by_class = next((vars(each)[name] for each in type(of).__mro__ if name in vars(each)), None)
        plain = vars(object)["__getattribute__"] is type(of).__getattribute__ and is_constant(by_class)
        if not plain:
            raise NotAnExpression(f"uses self.{name}")
        if by_class is None and name not in getattr(of, "__dict__", ()):
            raise NotAnExpression(f"uses self.{name}, which has no value before the job runs")
        return screened.constant(f"self.{name}", lambda: getattr(of, name, None))


def traced(function: Any, elements: TypeInformation | None, *others: Any) -> Traced:
    """The expressions of a function of an element. ``others``: its further arguments. Raises NotAnExpression."""
    if elements is None:
        raise NotAnExpression("the type of its elements is not declared")
    return _followed(function, lambda trace: (element_of(trace, elements), *others))


def traced_pair(function: Any, elements: TypeInformation) -> Traced:
    """The expressions of a function of two elements, whose columns follow each other. Raises NotAnExpression."""
    width = len(elements.column_names)
    return _followed(function, lambda trace: (element_of(trace, elements, "a"), element_of(trace, elements, "b", width)))


T = TypeVar("T")


@dataclass(frozen=True)
class Ends(Generic[T]):
    """What a function has done at the end of a path. ``of``: that, of its result; ``merged``: of both ways at a condition;
    ``nodes``: all expressions in it."""

    of: Callable[[Any, Trace], T]
    merged: Callable[[Trace, Node, T, T], T]
    nodes: Callable[[T], Iterable[Node]]


def _followed(function: Any, arguments: Callable[[Trace], tuple[Any, ...]]) -> Traced:
    (found, (made, names)), needed, screened = followed(function, arguments, _RETURNS)
    return Traced(found, made, needed, screened, names)


def followed(
    function: Any,
    arguments: Callable[[Trace], tuple[Any, ...]],
    ends: Ends[T],
    stands: Mapping[str, Any] | None = None,
    *,
    yields: bool = False,
) -> tuple[T, frozenset[int], Screened]:
    """What a function does, along all its paths, and the columns that it needs without nulls. ``stands``: for attributes of the
    object that it is bound to; ``yields``: whether it may be a generator. Raises NotAnExpression."""
    screened = Screened(CALLS, record_maker)
    nodes: dict[Any, Node] = {}
    used: set[int] = set()
    read: set[int] = set()
    runs = 0

    def copy() -> Callable[..., Any]:
        if type(function) in (itemgetter, attrgetter):
            return function  # type: ignore[no-any-return]
        plain, owner = method_of(function)
        return partial(screened.copy(plain, yields=yields), *(_Own(each, screened, stands or {}) for each in owner))

    def paths(decided: dict[Node, bool]) -> T:
        nonlocal runs
        runs += 1
        if runs > _MAX_RUNS or len(decided) >= _MAX_PATHS:
            raise NotAnExpression("has too many conditions")
        trace = Trace(nodes, decided, used, read, screened.literals)
        try:
            found = ends.of(copied(*arguments(trace)), trace)
            if trace.fallible and not set(parts_of((*ends.nodes(found), *decided))).issuperset(trace.fallible):
                raise NotAnExpression(f"computes {trace.fallible[0]}, but may not return it")
            return found
        except Fork as fork:
            condition = fork.condition
        one, other = (paths({**decided, condition: truth}) for truth in (True, False))
        return ends.merged(trace, condition, one, other)

    try:
        copied = copy()
        found = paths({})
    except NotAnExpression:
        raise
    except Exception as error:
        if any(each.__name__ in str(error) for each in (Symbol, Record)):  # of Python, which does not ask the symbol
            raise NotAnExpression("does more with an element than an expression") from error
        raise NotAnExpression(f"raises {type(error).__name__} when it is read: {error}") from error
    return found, frozenset(read if screened.asks_for_none else used), screened


Returned = tuple[tuple[Node, ...], _Made]


def returned(result: Any, trace: Trace) -> Returned:
    """A result: its parts, and what it is."""
    if type(result) is Record:
        made, items, names = (object.__getattribute__(result, each) for each in ("made", "items", "names"))
        return tuple(map(trace.lifted, items)), (made, tuple(names) if made is Row else ())
    if type(result) is tuple:
        return tuple(map(trace.lifted, result)), (tuple, ())
    return (trace.lifted(result),), (None, ())


def merged_results(trace: Trace, condition: Node, one: Returned, other: Returned) -> Returned:
    if one[1] != other[1] or len(one[0]) != len(other[0]):
        raise NotAnExpression("returns objects of different classes")
    return tuple(merged(trace, condition, *pair) for pair in zip(one[0], other[0], strict=True)), one[1]


_RETURNS: Ends[Returned] = Ends(returned, merged_results, itemgetter(0))


def merged(trace: Trace, condition: Node, one: Node, other: Node) -> Node:
    """One of two expressions, by a condition."""
    if one is other and not any(each.can_fail for each in parts_of((condition,))):
        return one
    if one.kind != other.kind:
        raise NotAnExpression(f"returns {one} or {other}, of different types")
    if one.kind == "other":
        raise NotAnExpression(f"chooses {one} or {other}, which are no numbers, bools or texts")
    if (one.is_truth, other.is_truth) == (True, False):
        return condition
    if (one.is_truth, other.is_truth) == (False, True):
        return trace.node("not", "bool", condition)
    # A condition that is returned has been decided: it is True in one branch, and False in the other.
    if one.is_truth is True:
        one = condition
    if other.is_truth is False:
        other = condition
    return trace.node("if", one.kind, condition, one, other)
