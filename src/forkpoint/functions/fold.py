"""Folds, as in Flink before 2.0: an initial value and a function that adds one element at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from forkpoint.functions.base import AggregateFunction


class Fold(AggregateFunction):
    """Folds with ``function(accumulator, element)``; each window starts from its own copy of ``initial``."""

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
        raise NotImplementedError("folded values cannot be merged; use aggregate()")


class RunningFold:
    """A running fold as a function for ``map_with_state``, whose outputs are its states."""

    def __init__(self, initial: Any, function: Callable[[Any, Any], Any]) -> None:
        self._initial = initial
        self._function = function

    def __call__(self, element: Any, folded: Any) -> tuple[Any, Any]:
        # Emitted values must not change with the next element, so each fold works on a copy.
        before = self._initial if folded is None else folded
        after = self._function(copy.deepcopy(before), element)
        return after, after
