"""Folding: an initial value and a function that takes one element after the other into it. Flink's before 2.0."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from forkpoint.functions.base import AggregateFunction


class Fold(AggregateFunction):
    """``function(folded so far, element)`` from ``initial`` on, of which each window gets a copy of its own."""

    def __init__(self, initial: Any, function: Callable[[Any, Any], Any]) -> None:
        self._initial = initial
        self._function = function

    def create_accumulator(self) -> Any:
        return copy.deepcopy(self._initial)

    def add(self, value: Any, accumulator: Any) -> Any:
        return self._function(accumulator, value)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        raise NotImplementedError("what has been folded can't be joined; use aggregate()")


class RunningFold:
    """The same for a stream: ``map_with_state``'s function, whose outputs are the states."""

    def __init__(self, initial: Any, function: Callable[[Any, Any], Any]) -> None:
        self._initial = initial
        self._function = function

    def __call__(self, element: Any, folded: Any) -> tuple[Any, Any]:
        # What comes out must not change with the next element, so each fold works on a copy.
        before = self._initial if folded is None else folded
        after = self._function(copy.deepcopy(before), element)
        return after, after
