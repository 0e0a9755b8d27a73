"""What a program says about its states before anything runs. Pure."""

from __future__ import annotations

from typing import Any

from forkpoint.functions import CheckpointedFunction, Function, MapStateDescriptor, StateDescriptor, declared_states
from forkpoint.graph.job import JobGraph, Operator
from forkpoint.graph.transformations import (
    DataFrameSpec,
    KeyedProcessSpec,
    MapWithStateSpec,
    ReduceSpec,
    RollingSpec,
    SourceSpec,
    TimestampsSpec,
)
from forkpoint.runtime.keyed_state import state_id
from forkpoint.runtime.operators.keyed_functions import STATE_NAME
from forkpoint.runtime.timers import EVENT_TIMERS, PROCESSING_TIMERS
from forkpoint.savepoint.mapping import ProgramOperator
from forkpoint.snapshot.manifest import StateInfo
from forkpoint.types import TypeInformation


def program_states(graph: JobGraph) -> list[StateInfo]:
    """The states of all operators, as far as they are declared on classes or belong to the operator itself."""
    return [state for operator in graph.operators for state in _states(operator)]


def program_operators(graph: JobGraph) -> list[ProgramOperator]:
    return [ProgramOperator(o.uid, o.kind, o.stateful, _source_kind(o), _complete(o)) for o in graph.operators]


def _source_kind(operator: Operator) -> str | None:
    match operator.spec:
        case SourceSpec():
            return "native"
        case DataFrameSpec():
            return "spark"
        case TimestampsSpec():
            return "watermarks"
    return None


def _complete(operator: Operator) -> bool:
    fn = getattr(operator.spec, "fn", None)
    if isinstance(fn, CheckpointedFunction):
        return False
    return not isinstance(fn, Function) or type(fn).open is Function.open


def _states(operator: Operator) -> list[StateInfo]:
    match operator.spec:
        case KeyedProcessSpec(fn=fn):
            found = [_described(operator, d) for d in declared_states(fn).values()]
            found.append(_state(operator, EVENT_TIMERS, "timers-event", None))
            found.append(_state(operator, PROCESSING_TIMERS, "timers-processing", None))
            return found
        case MapWithStateSpec(state_type=value) | ReduceSpec(value_type=value) | RollingSpec(value_type=value):
            return [_state(operator, STATE_NAME, "value", value)]
    return []


def _described(operator: Operator, descriptor: StateDescriptor) -> StateInfo:
    kind = type(descriptor).__name__.removesuffix("StateDescriptor").lower()
    namespace = descriptor.key_type if isinstance(descriptor, MapStateDescriptor) else None
    ttl_ms = None if descriptor.ttl is None else descriptor.ttl.ttl_ms
    return _state(operator, descriptor.name, kind, descriptor.value_type, namespace, ttl_ms)


def _state(
    operator: Operator,
    name: str,
    kind: Any,
    value: TypeInformation | None,
    namespace: TypeInformation | None = None,
    ttl_ms: int | None = None,
) -> StateInfo:
    key = operator.key
    assert key is not None
    assert key.key_type is not None
    return StateInfo(
        sid=state_id(operator.uid, name),
        uid=operator.uid,
        name=name,
        kind=kind,
        key_type=key.key_type.describe(),
        value_type=None if value is None else value.describe(),
        namespace_type=None if namespace is None else namespace.describe(),
        ttl_ms=ttl_ms,
    )
