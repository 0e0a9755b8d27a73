"""Process functions in queries: what a program's function emits for rows, as the columns of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from forkpoint.errors import UserFunctionError
from forkpoint.functions import KeyedProcessFunction, ProcessFunction
from forkpoint.functions.adapters import FunctionAdapter
from forkpoint.graph.specs import OperatorSpec
from forkpoint.graph.transformations import KeyBy
from forkpoint.relational.functions.user import UserFunction
from forkpoint.relational.operators.keyed import key_by
from forkpoint.relational.plan import Process
from forkpoint.runtime.operators.base import shorten
from forkpoint.runtime.operators.keyed_process import KeyedProcessSpec
from forkpoint.runtime.operators.stateless import ProcessSpec
from forkpoint.types import Row

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def process_spec(node: Process, function: UserFunction) -> OperatorSpec:
    """The operator of a process function."""
    given = {item.name: getattr(item.of, "python_value", None) for item in node.arguments}
    body = function.body(**given) if isinstance(function.body, type) else function.body
    width = len(function.result.fields)
    zone = None if not node.time else UTC if node.fields[-1].type.name == "TIMESTAMP_LTZ" else False
    if node.partition:
        return KeyedProcessSpec(_Keyed(body, width, zone))
    return ProcessSpec(_OfRows(body, width, zone))


def partition_key(node: Process) -> KeyBy:
    """The key by which the rows of a table are distributed."""
    fields = [field.name for field in node.input.schema]
    types = {field.name: field.type for field in node.input.schema}
    at = tuple(map(fields.index, node.partition))
    return key_by(node.partition, node.partition, [types[name] for name in node.partition], at)


class _Emitting(FunctionAdapter):
    """Emits the rows of a function of ``width`` columns, after the key's parts, and before the event time. ``zone``: UTC for one
    with a time zone, False for one without, None for none."""

    def __init__(self, function: Any, width: int, zone: Any) -> None:
        super().__init__(function)
        self._width, self._zone = width, zone

    def _rows(self, results: Iterable[Any] | None, key: tuple[Any, ...], timestamp: int | None) -> Iterator[tuple[Any, ...]]:
        time = () if self._zone is None else (self._time(timestamp),)
        for each in results or ():
            values = tuple(each) if isinstance(each, tuple | Row) else (each,)
            if len(values) != self._width:
                raise UserFunctionError(
                    f"{type(self.function).__name__} emitted {shorten(each)}, but its result type has {self._width} columns"
                )
            yield (*key, *values, *time)

    def _time(self, timestamp: int | None) -> datetime | None:
        if timestamp is None:
            return None
        found = _EPOCH + timedelta(milliseconds=timestamp)
        return found if self._zone else found.replace(tzinfo=None)


class _OfRows(_Emitting, ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        return self._rows(self.function.process_element(value, ctx), (), ctx.timestamp())


class _Keyed(_Emitting, KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context[Any]) -> Iterable[Any]:
        return self._rows(self.function.process_element(value, ctx), _parts(ctx), ctx.timestamp())

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext[Any]) -> Iterable[Any]:
        return self._rows(self.function.on_timer(timestamp, ctx), _parts(ctx), ctx.timestamp())


def _parts(ctx: KeyedProcessFunction.Context[Any]) -> tuple[Any, ...]:
    key = ctx.get_current_key()
    return tuple(key) if isinstance(key, tuple | Row) else (key,)
