"""Conditions of a pattern's stages: functions of an element, and of what has matched before it."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias

from forkpoint.errors import GraphError
from forkpoint.functions import Function
from forkpoint.functions.base import no_class
from forkpoint.types.variables import IN

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from forkpoint.types import TypeInformation


class IterativeCondition(Function, Generic[IN]):
    """Accepts an element, depending on the elements that the same partial match has accepted before."""

    class Context(ABC):
        """What a condition can ask for, apart from the element."""

        @abstractmethod
        def get_events_for_pattern(self, name: str) -> Iterable[Any]:
            """The elements that the stage with this name has accepted so far in this partial match, in order."""

        @abstractmethod
        def timestamp(self) -> int:
            """The element's timestamp, or the processing time at which it came, in int milliseconds."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """The processing time of the epoch, in int milliseconds."""

    @abstractmethod
    def filter(self, value: IN, ctx: IterativeCondition.Context, /) -> bool:
        """Return True to accept the element."""


class SimpleCondition(Function, Generic[IN]):
    """Accepts an element by its own values."""

    @abstractmethod
    def filter(self, value: IN, /) -> bool:
        """Return True to accept the element."""


class ColumnCondition(Protocol):
    """A condition over columns."""

    def holds(self, elements: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """For which of the elements it is true; shape (elements,)."""


class ColumnExpression(Protocol):
    """An expression that becomes a condition once the type of the elements is known: ``col("price") > 10``."""

    def _bound_to(self, of: TypeInformation | None) -> ColumnCondition:
        """The condition for elements of this type. Raises ConfigError if it has no such columns."""


@dataclass(frozen=True, eq=False)
class Atom:
    """A condition that a program gives: a function of an element, or of an element and what matched before (``iterative``), or an
    expression over ``columns``. ``text``: what a function asks, in words."""

    accepts: Callable[..., Any]
    iterative: bool = False
    columns: ColumnExpression | ColumnCondition | None = None
    text: str = ""

    @property
    def function(self) -> Function | None:
        """The condition's object, which is opened and closed."""
        owner = getattr(self.accepts, "__self__", None)
        return owner if isinstance(owner, IterativeCondition | SimpleCondition) else None


@dataclass(frozen=True)
class Always:
    """Accepts every element."""


@dataclass(frozen=True)
class Not:
    of: Condition


@dataclass(frozen=True)
class All:
    """Both conditions hold."""

    left: Condition
    right: Condition


@dataclass(frozen=True)
class Either:
    left: Condition
    right: Condition


Condition: TypeAlias = Always | Atom | Not | All | Either
ALWAYS = Always()


def condition_of(given: Any, method: str) -> Atom:
    """The condition that a program passes: an object, or a function of an element, or of an element and a context."""
    no_class(given, f"{method}()")
    if isinstance(given, SimpleCondition):
        return Atom(given.filter)
    if isinstance(given, IterativeCondition):
        return Atom(given.filter, iterative=True)
    if hasattr(given, "_bound_to"):
        return Atom(_never_called, columns=given)
    if not callable(given):
        raise GraphError(f"{method}() takes a function of an element that returns True or False, not {given!r}")
    least, most = _parameters(given)
    if least > 2 or most < 1:
        raise GraphError(
            f"{method}(): the function takes {least if least > 2 else most} arguments; let it take an element, or an element and "
            "a context, from which it gets the elements that matched before"
        )
    return Atom(given, iterative=least > 1)


def both(left: Condition, right: Condition) -> Condition:
    """Both hold; simplified."""
    if left == ALWAYS:
        return right
    return left if right == ALWAYS else All(left, right)


def holds(condition: Condition, truth: Callable[[Atom], bool]) -> bool:
    """Whether a condition holds. ``truth`` is asked for an atom only if the result depends on it."""
    match condition:
        case Atom():
            return truth(condition)
        case Not(of):
            return not holds(of, truth)
        case All(left, right):
            return holds(left, truth) and holds(right, truth)
        case Either(left, right):
            return holds(left, truth) or holds(right, truth)
        case _:
            return True


def atoms_of(condition: Condition) -> Iterator[Atom]:
    match condition:
        case Atom():
            yield condition
        case Not(of):
            yield from atoms_of(of)
        case All(left, right) | Either(left, right):
            yield from atoms_of(left)
            yield from atoms_of(right)


def mapped(condition: Condition, of: Callable[[Atom], Atom]) -> Condition:
    """The condition with other atoms."""
    match condition:
        case Atom():
            return of(condition)
        case Not(inner):
            return Not(mapped(inner, of))
        case All(left, right):
            return All(mapped(left, of), mapped(right, of))
        case Either(left, right):
            return Either(mapped(left, of), mapped(right, of))
        case _:
            return condition


def _never_called(_: Any) -> bool:
    raise AssertionError("a condition over columns is asked of all elements at once")


def _parameters(given: Callable[..., Any]) -> tuple[float, float]:
    """How many arguments a function must be given, and how many it may be."""
    try:
        parameters = inspect.signature(given).parameters.values()
    except (TypeError, ValueError):  # built-in functions without a signature
        return 1, 1
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    any_number = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    return sum(each.default is each.empty for each in positional), inf if any_number else len(positional)
