"""What a program says about its states before anything runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from forkpoint.checkpoint.states import StateInfo
from forkpoint.functions import (
    CheckpointedFunction,
    Function,
    MapStateDescriptor,
    MergingWindowAssigner,
    StateDescriptor,
    declared_states,
    keyed_states,
)
from forkpoint.graph.job import JobGraph, Operator
from forkpoint.graph.transformations import (
    BroadcastProcessSpec,
    DataFrameSpec,
    EventTimeSortSpec,
    FeedbackSpec,
    IterationSpec,
    KeyedBatchSpec,
    KeyedBroadcastProcessSpec,
    KeyedCoProcessSpec,
    KeyedProcessSpec,
    MapWithStateSpec,
    ReduceSpec,
    RollingSpec,
    RunningAggregatesSpec,
    SourceSpec,
    TimestampsSpec,
    WindowSpec,
)
from forkpoint.runtime.event_time.timers import EVENT_TIMERS, PROCESSING_TIMERS
from forkpoint.runtime.operators.event_time_sort import ELEMENTS, waiting_elements
from forkpoint.runtime.operators.iteration import IN_FLIGHT, in_flight_record, in_flight_type
from forkpoint.runtime.operators.keyed_functions import STATE_NAME
from forkpoint.runtime.state.broadcast_state import broadcast_record
from forkpoint.runtime.windows.contexts import CONTENTS
from forkpoint.runtime.windows.merging import merging_windows
from forkpoint.savepoint.compatibility import ProgramOperator
from forkpoint.types import TypeInformation


def program_states(graph: JobGraph) -> list[StateInfo]:
    """The states of all operators, as far as they are declared on classes or belong to the operator itself."""
    return [state for operator in graph.operators for state in _states(operator)]


def program_operators(graph: JobGraph) -> list[ProgramOperator]:
    return [_program_operator(operator) for operator in graph.operators]


def _program_operator(operator: Operator) -> ProgramOperator:
    key = operator.key
    return ProgramOperator(
        operator.uid,
        operator.kind,
        operator.stateful and not isinstance(operator.spec, FeedbackSpec),  # its state is its iteration's
        _source_kind(operator),
        _complete(operator),
        _value_types(operator),
        None if key is None or key.key_type is None else key.key_type.describe(),
        operator.migrations,
    )


def with_versions(graph: JobGraph, states: Iterable[StateInfo]) -> list[StateInfo]:
    """The states with the versions that the program's migrations give them."""
    return [_versioned(graph.by_uid.get(state.uid), state) for state in states]


def _versioned(operator: Operator | None, state: StateInfo) -> StateInfo:
    if operator is None:
        return state
    key_version = 1 if state.key_type is None else operator.migrations.key_version
    versions = {"version": operator.migrations.version(state.name), "key_version": key_version}
    if (state.version, state.key_version) == tuple(versions.values()):
        return state
    return state.model_copy(update=versions)


def _value_types(operator: Operator) -> dict[str, TypeInformation]:
    match operator.spec:
        case KeyedProcessSpec(fn=fn) | KeyedCoProcessSpec(fn=fn):
            return {d.name: d.value_type for d in declared_states(fn).values()}
        case BroadcastProcessSpec(fn=fn, descriptors=shared) | KeyedBroadcastProcessSpec(fn=fn, descriptors=shared):
            return {d.name: d.value_type for d in (*keyed_states(fn, shared).values(), *shared)}
        case MapWithStateSpec(state_type=value) | ReduceSpec(value_type=value) | RollingSpec(value_type=value):
            return {STATE_NAME: value}
        case RunningAggregatesSpec(accumulator_type=value):
            return {STATE_NAME: value}
        case KeyedBatchSpec(fn=fn):
            return {d.name: d.value_type for d in declared_states(fn).values()}
        case WindowSpec(fn=fn) as spec:
            found = {} if fn is None else {d.name: d.value_type for d in declared_states(fn).values()}
            return {**found, CONTENTS: spec.contents_type}
        case EventTimeSortSpec(element_type=value):
            return {ELEMENTS: waiting_elements(value).value_type}
        case IterationSpec(element_type=value):
            return {IN_FLIGHT: in_flight_type(value)}
    return {}


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
    if isinstance(fn, CheckpointedFunction) or isinstance(operator.spec, WindowSpec):  # triggers have state too
        return False
    return not isinstance(fn, Function) or type(fn).open is Function.open


def _states(operator: Operator) -> list[StateInfo]:
    match operator.spec:
        case KeyedProcessSpec(fn=fn) | KeyedCoProcessSpec(fn=fn):
            return _keyed_states(operator, declared_states(fn))
        case KeyedBroadcastProcessSpec(fn=fn, descriptors=shared):
            return [*_keyed_states(operator, keyed_states(fn, shared)), *(_broadcast(operator, d) for d in shared)]
        case BroadcastProcessSpec(descriptors=shared):
            return [_broadcast(operator, d) for d in shared]
        case MapWithStateSpec(state_type=value) | ReduceSpec(value_type=value) | RollingSpec(value_type=value):
            return [_state(operator, STATE_NAME, "value", value)]
        case RunningAggregatesSpec(accumulator_type=value):
            return [_state(operator, STATE_NAME, "value", value)]
        case KeyedBatchSpec(fn=fn):
            return [_described(operator, d) for d in declared_states(fn).values()]
        case WindowSpec() as spec:
            return _window_states(operator, spec)
        case EventTimeSortSpec(element_type=value):
            elements = _described(operator, waiting_elements(value))
            return [elements, _state(operator, EVENT_TIMERS, "timers-event", None)]
        case IterationSpec(element_type=value):
            return [in_flight_record(operator.uid, value)]
    return []


def _keyed_states(operator: Operator, states: Mapping[str, StateDescriptor]) -> list[StateInfo]:
    found = [_described(operator, d) for d in states.values()]
    found.append(_state(operator, EVENT_TIMERS, "timers-event", None))
    found.append(_state(operator, PROCESSING_TIMERS, "timers-processing", None))
    return found


def _broadcast(operator: Operator, descriptor: MapStateDescriptor[Any, Any]) -> StateInfo:
    version = operator.migrations.version(descriptor.name)
    return broadcast_record(operator.uid, descriptor).replace(version=version)


def _window_states(operator: Operator, spec: WindowSpec) -> list[StateInfo]:
    space = spec.window_type
    contents = _state(operator, CONTENTS, spec.contents, spec.contents_type, space)
    found = [] if spec.fn is None else [_described(operator, d) for d in declared_states(spec.fn).values()]
    found.append(contents.model_copy(update={"fingerprint": spec.fingerprint}))
    if isinstance(spec.assigner, MergingWindowAssigner) and space is not None:
        found.append(_described(operator, merging_windows(space)))
    found.append(_state(operator, EVENT_TIMERS, "timers-event", None, space))
    found.append(_state(operator, PROCESSING_TIMERS, "timers-processing", None, space))
    return found


def _described(operator: Operator, descriptor: StateDescriptor) -> StateInfo:
    kind = type(descriptor).__name__.removesuffix("StateDescriptor").lower()
    namespace = descriptor.key_type if isinstance(descriptor, MapStateDescriptor) else None
    ttl_ms = None if descriptor.ttl is None else descriptor.ttl.ttl_ms
    state = _state(operator, descriptor.name, kind, descriptor.value_type, namespace, ttl_ms)
    return state.model_copy(update={"fingerprint": descriptor.fingerprint})


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
    return StateInfo.of(
        operator.uid, name, kind, key.key_type, value, namespace, ttl_ms, version=operator.migrations.version(name),
        key_version=operator.migrations.key_version,
    )  # fmt: skip
