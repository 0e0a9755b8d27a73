"""Timestamps that are expressions, computed over columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any

from forkpoint.functions import MIN_WATERMARK, TimestampAssigner, WatermarkStrategy
from forkpoint.graph.job import Operator
from forkpoint.graph.specs import WatermarkSpec
from forkpoint.runtime.expressions.functions import OverColumns, check_output, kept, text_of
from forkpoint.runtime.expressions.screening import NotAnExpression
from forkpoint.runtime.expressions.symbols import Untouchable
from forkpoint.runtime.expressions.tracing import Traced, traced
from forkpoint.types import TypeInformation, Types


@dataclass(frozen=True)
class _Stamped:
    """An assigner that does not read the source's timestamps."""

    assign: Callable[[Any, int], Any]

    def __call__(self, element: Any) -> Any:
        return self.assign(element, MIN_WATERMARK)


def computed_stamps(operator: Operator) -> OverColumns | None:
    """The timestamps of a source's or assigner's elements over columns, if they are an expression and not only a field."""
    spec, elements = operator.spec, operator.output_type
    assert isinstance(spec, WatermarkSpec)
    if not operator.over_columns or operator.timestamp_column is not None or elements is None:
        return None
    assign = _assigner(spec.strategy)
    return None if assign is None else kept((spec.strategy, elements), lambda: _found(operator.uid, assign, elements))


def how_stamped(operator: Operator) -> str:
    """How an operator's timestamps are computed, for people; "" without a function, or of one that only picks a field."""
    if not isinstance(operator.spec, WatermarkSpec) or operator.timestamp_column is not None:
        return ""
    assign = _assigner(operator.spec.strategy)
    if not isinstance(assign, FunctionType | MethodType):
        return ""
    found = text_of(assign, lambda: _traced(assign, operator.output_type))
    return f"timestamps {found}" if found else ""


def _assigner(strategy: WatermarkStrategy) -> Any:
    assigner = strategy.timestamp_assigner
    return assigner.extract_timestamp if isinstance(assigner, TimestampAssigner) else assigner


def _found(uid: str, assign: Any, elements: TypeInformation) -> OverColumns | None:
    try:
        found = _traced(assign, elements)
    except NotAnExpression:
        return None
    return OverColumns(uid, _Stamped(assign), found, elements, Types.LONG())


def _traced(assign: Any, elements: TypeInformation | None) -> Traced:
    found = traced(assign, elements, Untouchable())
    assert elements is not None
    check_output(found, elements, Types.LONG())
    return found
