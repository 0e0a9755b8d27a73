"""What is computed of two elements that belong together, or of all elements of two streams in a window."""

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
    """One result for each pair. ``second`` is None where an outer join found nothing."""

    @abstractmethod
    def join(self, first: IN1, second: IN2, /) -> OUT:
        """The result of an element of the first stream and one of the second."""


class FlatJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Any number of results for each pair. ``second`` is None where an outer join found nothing."""

    @abstractmethod
    def join(self, first: IN1, second: IN2, /) -> Iterable[OUT] | None:
        """The results, usually by being a generator; None for none."""


class CoGroupFunction(Function, Generic[IN1, IN2, OUT]):
    """Results of all elements of two streams that have the same key and window."""

    @abstractmethod
    def co_group(self, first: list[IN1], second: list[IN2], /) -> Iterable[OUT] | None:
        """The results, usually by being a generator. Either list may be empty, not both; each is in the stream's order."""


class ProcessJoinFunction(Function, Generic[IN1, IN2, OUT]):
    """Any number of results for each pair of an interval join."""

    class Context(ABC):
        """What is known about the pair at hand."""

        @abstractmethod
        def get_left_timestamp(self) -> int:
            """The left element's timestamp in int milliseconds."""

        @abstractmethod
        def get_right_timestamp(self) -> int:
            """The right element's timestamp in int milliseconds."""

        @abstractmethod
        def timestamp(self) -> int:
            """The results' timestamp in int milliseconds, the greater of the two."""

    @abstractmethod
    def process_element(self, left: IN1, right: IN2, ctx: ProcessJoinFunction.Context, /) -> Emitted[OUT]:
        """The results, usually by being a generator: ``yield x`` or, to a side output, ``yield tag, x``."""


class TaggedUnion(NamedTuple):
    """An element of one of two streams, as windows over both have it: assigners, triggers and evictors see these.

    ``left`` is the element where ``side`` is "left", else None; so is ``right``.
    """

    side: Literal["left", "right"]
    left: Any
    right: Any


class FunctionAdapterFor(FunctionAdapter):
    """Stands in for a user's function, or for a callable. ``call``: the function's method of this name, or the callable."""

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
    """Whether a function for pairs gives any number of results: a FlatJoinFunction, or a generator function."""
    if isinstance(function, Function):
        return isinstance(function, FlatJoinFunction)
    return isgeneratorfunction(function) or isgeneratorfunction(getattr(type(function), "__call__", None))  # noqa: B004


class JoinedWindow(FunctionAdapterFor, WindowFunction):
    """All pairs of a window over two streams."""

    def __init__(self, function: Any) -> None:
        super().__init__(function, "join")
        self._flat = is_flat(function)

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        first, second = sides(inputs)
        pairs = starmap(self.call, product(first, second))
        return chain.from_iterable(filter(None, pairs)) if self._flat else pairs


class CoGroupedWindow(FunctionAdapterFor, WindowFunction):
    """The elements of a window over two streams, parted."""

    def __init__(self, function: Any) -> None:
        super().__init__(function, "co_group")

    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any] | None:
        results: Iterable[Any] | None = self.call(*sides(inputs))
        return results


def sides(inputs: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """The elements of the two streams, from tagged ones."""
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
    """The type of tagged elements of two streams. What is read by it are namedtuples of the same fields."""
    members = (Field("side", Types.STRING()), Field("left", optional(left)), Field("right", optional(right)))
    return classless("namedtuple", "TaggedUnion", members)


@dataclass(frozen=True)
class TaggedKey:
    """The key of a tagged element, by the selector of its side."""

    left: Callable[[Any], Any]
    right: Callable[[Any], Any]

    def __call__(self, element: TaggedUnion) -> Any:
        return self.left(element.left) if element.side == "left" else self.right(element.right)
