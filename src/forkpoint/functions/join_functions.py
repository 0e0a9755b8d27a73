"""Functions for joins and co-groups, and their window functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import isgeneratorfunction
from itertools import chain, product, starmap
from typing import Any, Generic, Literal, NamedTuple

from forkpoint.functions.adapters import FunctionAdapter
from forkpoint.functions.base import Function
from forkpoint.functions.context import RuntimeContext
from forkpoint.functions.output_tag import Emitted
from forkpoint.functions.window_functions import WindowFunction
from forkpoint.types import Field, TypeInformation, Types
from forkpoint.types.containers import optional
from forkpoint.types.records import classless
from forkpoint.types.variables import IN1, IN2, OUT


class JoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Joins a pair to one result. ``second`` is None if an outer join found no match."""

    @abstractmethod
    def join(self, first: IN1, second: IN2, /) -> OUT:
        """Return the result for an element of the first stream and one of the second."""


class FlatJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Joins a pair to any number of results. ``second`` is None if an outer join found no match."""

    @abstractmethod
    def join(self, first: IN1, second: IN2, /) -> Iterable[OUT] | None:
        """Return or yield the results; None for none."""


class CoGroupFunction(Function, Generic[IN1, IN2, OUT]):
    """Processes all elements of two streams with the same key and window."""

    @abstractmethod
    def co_group(self, first: list[IN1], second: list[IN2], /) -> Iterable[OUT] | None:
        """Return or yield the results. At most one of the lists is empty; both are in stream order."""


class ProcessJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Processes the pairs of an interval join, with any number of results each."""

    class Context(ABC):
        """The context of the current pair."""

        @abstractmethod
        def get_left_timestamp(self) -> int:
            """The left element's timestamp in int milliseconds."""

        @abstractmethod
        def get_right_timestamp(self) -> int:
            """The right element's timestamp in int milliseconds."""

        @abstractmethod
        def timestamp(self) -> int:
            """The greater of the two timestamps, which the results have, in int milliseconds."""

    @abstractmethod
    def process_element(self, left: IN1, right: IN2, ctx: ProcessJoinFunction.Context, /) -> Emitted[OUT]:
        """Return or yield the results: ``yield x``, or ``yield tag, x`` to a side output."""


class TaggedUnion(NamedTuple):
    """An element of one of two joined streams, as assigners, triggers and evictors of window joins see it.

    The element is in ``left`` or ``right``, as ``side`` says; the other is None.
    """

    side: Literal["left", "right"]
    left: Any
    right: Any


class CallableAdapter(FunctionAdapter):
    """Wraps a user function or plain callable. ``call``: the function's ``method``, or the callable."""

    def __init__(self, function: Any, method: str) -> None:
        super().__init__(function)
        self._is_function = isinstance(function, Function)
        self.call: Callable[..., Any] = getattr(function, method) if self._is_function else function

    def open(self, runtime_context: RuntimeContext) -> None:
        if self._is_function:
            super().open(runtime_context)

    def close(self) -> None:
        if self._is_function:
            super().close()


def is_flat(function: Any) -> bool:
    """Whether a join function gives any number of results: a FlatJoinFunction or generator function."""
    if isinstance(function, Function):
        return isinstance(function, FlatJoinFunction)
    return isgeneratorfunction(function) or isgeneratorfunction(getattr(type(function), "__call__", None))  # noqa: B004


class JoinedWindow(CallableAdapter, WindowFunction):
    """Calls a join function for all pairs of a window."""

    def __init__(self, function: Any) -> None:
        super().__init__(function, "join")
        self._flat = is_flat(function)

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        first, second = sides(inputs)
        pairs = starmap(self.call, product(first, second))
        return chain.from_iterable(filter(None, pairs)) if self._flat else pairs


class CoGroupedWindow(CallableAdapter, WindowFunction):
    """Calls a co-group function with a window's elements of either stream."""

    def __init__(self, function: Any) -> None:
        super().__init__(function, "co_group")

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any] | None:
        results: Iterable[Any] | None = self.call(*sides(inputs))
        return results


def sides(inputs: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """Split tagged elements into those of the two streams."""
    left: list[Any] = []
    right: list[Any] = []
    for side, first, second in inputs:
        if side == "left":
            left.append(first)
        else:
            right.append(second)
    return left, right


def tag_left(value: Any) -> TaggedUnion:
    return TaggedUnion("left", value, None)


def tag_right(value: Any) -> TaggedUnion:
    return TaggedUnion("right", None, value)


def tagged_type(left: TypeInformation, right: TypeInformation) -> TypeInformation:
    """The TaggedUnion type of two streams. Decoded elements are namedtuples with the same fields."""
    members = (Field("side", Types.STRING()), Field("left", optional(left)), Field("right", optional(right)))
    return classless("namedtuple", "TaggedUnion", members)


@dataclass(frozen=True)
class TaggedKey:
    """Selects the key of a tagged element with the selector of its side."""

    left: Callable[[Any], Any]
    right: Callable[[Any], Any]

    def __call__(self, element: TaggedUnion) -> Any:
        return self.left(element.left) if element.side == "left" else self.right(element.right)
