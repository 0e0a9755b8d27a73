"""Operators whose expressions call a user's functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from forkpoint.functions.sql import FunctionContext
from forkpoint.graph.specs import DeclaredState
from forkpoint.graph.transformations import Edge, topological_order
from forkpoint.relational.functions.user import Columns, UserFunction, calls_in, columns_of_function, known
from forkpoint.relational.operators.group_aggregate import GroupAggregateSpec
from forkpoint.relational.operators.keyed_rows import KeyedRowsSpec
from forkpoint.relational.operators.select import SelectSpec
from forkpoint.relational.operators.session_aggregate import SessionAggregateSpec
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.operators.base import Context, Epoch, OperatorInstance, Outputs, StatefulInstance, TaskInfo, user_failure
from forkpoint.runtime.operators.instances import ManagedState, RunnableSpec

_EVALUATING = (SelectSpec, GroupAggregateSpec, SessionAggregateSpec, KeyedRowsSpec)


def with_functions(edges: tuple[Edge, ...], functions: Callable[[str], UserFunction]) -> tuple[Edge, ...]:
    """The operators, with the functions that their expressions call. ``functions``: by identity."""
    for each in topological_order([edge.upstream for edge in edges]):
        if isinstance(each.spec, _EVALUATING):
            called = tuple(functions(identity) for identity in sorted(set(calls_in(each.spec))))
            each.spec = CallingSpec(each.spec, called) if called else each.spec
    return edges


@dataclass(frozen=True)
class CallingSpec(RunnableSpec):
    """An operator and the functions that it calls."""

    of: RunnableSpec
    functions: tuple[UserFunction, ...]

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.of.kind

    @property
    def keyed(self) -> bool:  # type: ignore[override]
        return self.of.keyed

    def states(self) -> list[DeclaredState]:
        return self.of.states()

    def instance(self, info: TaskInfo, state: ManagedState) -> OperatorInstance:
        opened = _opened(self.functions, info)
        with known(opened):
            inner = self.of.instance(info, state)
        if isinstance(inner, StatefulInstance):
            return _StatefulCalling(inner, self.functions, opened)
        return _Calling(inner, self.functions, opened)


def _opened(functions: tuple[UserFunction, ...], info: TaskInfo) -> Mapping[str, Columns]:
    uid, context = info.operator.uid, FunctionContext(Context(info, None))
    for function in functions:
        try:
            function.body.open(context)
        except Exception as error:
            raise user_failure(uid, error, "in open()", f"function {function.name}") from error
    return {function.identity: columns_of_function(function, uid) for function in functions}


class _Calling:
    def __init__(self, inner: Any, functions: tuple[UserFunction, ...], opened: Mapping[str, Columns]) -> None:
        self._inner, self._functions, self._opened = inner, functions, opened

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        with known(self._opened):
            outputs: Outputs = self._inner.run(inputs, epoch)
        return outputs

    def close(self) -> None:
        self._inner.close()
        for function in self._functions:
            function.body.close()


class _StatefulCalling(_Calling):
    def changes(self) -> Any:
        return self._inner.changes()

    def states(self) -> Any:
        return self._inner.states()

    def next_processing_timer_ms(self) -> int | None:
        found: int | None = self._inner.next_processing_timer_ms()
        return found
