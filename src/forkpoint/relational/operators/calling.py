"""Operators whose expressions call a user's functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from forkpoint.functions.sql import FunctionContext
from forkpoint.graph.specs import DeclaredState, Fields
from forkpoint.graph.transformations import Edge, topological_order
from forkpoint.relational.aggregation import user as aggregation
from forkpoint.relational.functions.user import Results, UserFunction, calls_in, known
from forkpoint.relational.functions.user_columns import General, OfColumns, Opened
from forkpoint.relational.operators.select import SelectSpec
from forkpoint.runtime.exchange.batch import Batch
from forkpoint.runtime.operators.base import Context, Epoch, OperatorInstance, Outputs, StatefulInstance, TaskInfo, user_failure
from forkpoint.runtime.operators.instances import KeyedSpec, ManagedState, RunnableSpec

_BATCHES = 4  # whose results are remembered: a batch, and parts of it


def with_functions(edges: tuple[Edge, ...], functions: Mapping[str, UserFunction]) -> tuple[Edge, ...]:
    """The operators, with the functions that their expressions call; those with state with all, which an older version of the
    query may have called. ``functions``: by identity."""
    for each in topological_order([edge.upstream for edge in edges]):
        spec = each.spec
        stateful = isinstance(spec, KeyedSpec) and isinstance(getattr(spec, "definition", None), msgspec.Struct)
        if isinstance(spec, SelectSpec) or (stateful and isinstance(spec, KeyedSpec)):
            called = frozenset(calls_in(spec))
            has = tuple(of for name, of in functions.items() if of.kind != "process" and (name in called or stateful))
            each.spec = CallingSpec(spec, has, called) if has else spec
    return edges


@dataclass(frozen=True)
class CallingSpec(RunnableSpec):
    """An operator and the functions that it can call; ``called``: those that it calls."""

    of: RunnableSpec
    has: tuple[UserFunction, ...]
    called: frozenset[str]

    def reads(self, output: Fields) -> Fields:
        return self.of.reads(output)

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.of.kind

    @property
    def keyed(self) -> bool:  # type: ignore[override]
        return self.of.keyed

    @property
    def function(self) -> Any:
        return self.of.function

    @property
    def functions(self) -> frozenset[str]:
        return frozenset(function.identity for function in self.has)

    def states(self) -> list[DeclaredState]:
        return self.of.states()

    def instance(self, info: TaskInfo, state: ManagedState) -> OperatorInstance:
        functions = OpenedFunctions(self, info)
        with known(functions):
            inner = self.of.instance(info, state)
        return (_StatefulCalling if isinstance(inner, StatefulInstance) else _Calling)(inner, functions)


class OpenedFunctions:
    """The functions of an operator on one subtask: those that it calls are opened at once, the others when they are needed."""

    def __init__(self, spec: CallingSpec, info: TaskInfo) -> None:
        self._has = {function.identity: function for function in spec.has}
        self._uid, self._context = info.operator.uid, FunctionContext(Context(info, None))
        self._opened: dict[str, Opened] = {}
        self._results: list[tuple[pa.RecordBatch, Results]] = []
        for identity in sorted(spec.called):
            self.get(identity)

    def get(self, identity: str) -> Opened | None:
        function = self._has.get(identity)
        if identity not in self._opened and function is not None:
            try:
                function.body.open(self._context)
            except Exception as error:
                raise user_failure(self._uid, error, "in open()", f"function {function.name}") from error
            self._opened[identity] = _running(function)(function, self._uid)
        return self._opened.get(identity)

    def results(self, rows: pa.RecordBatch) -> Results:
        for of, results in self._results:
            if of is rows:
                return results
        self._results = [(rows, {}), *self._results[: _BATCHES - 1]]
        return self._results[0][1]

    def forget_results(self) -> None:
        """Release the epoch's rows."""
        self._results = []

    def close(self) -> None:
        for identity in self._opened:
            self._has[identity].body.close()


def _running(function: UserFunction) -> type[Opened]:
    """What runs a function."""
    if function.kind == "aggregate":
        return aggregation.General if function.form == "general" else aggregation.OfColumns
    return General if function.form == "general" else OfColumns


class _Calling:
    def __init__(self, inner: Any, functions: OpenedFunctions) -> None:
        self._inner, self._functions = inner, functions

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        with known(self._functions):
            outputs: Outputs = self._inner.run(inputs, epoch)
        self._functions.forget_results()
        return outputs

    def close(self) -> None:
        self._inner.close()
        self._functions.close()


class _StatefulCalling(_Calling):
    def changes(self) -> Any:
        return self._inner.changes()

    def states(self) -> Any:
        return self._inner.states()

    def next_processing_timer_ms(self) -> int | None:
        found: int | None = self._inner.next_processing_timer_ms()
        return found
