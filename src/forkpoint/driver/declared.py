"""The states and operators that a program declares before it runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from forkpoint.checkpoint.states import StateInfo
from forkpoint.graph.job import JobGraph, Operator
from forkpoint.graph.specs import DeclaredState, WatermarkSpec
from forkpoint.savepoint.compatibility import ProgramOperator


def program_states(graph: JobGraph) -> list[StateInfo]:
    """The states that are declared on functions' classes or belong to the operators themselves."""
    return [_state(operator, state) for operator in graph.operators for state in operator.spec.states()]


def program_operators(graph: JobGraph) -> list[ProgramOperator]:
    return [_program_operator(operator) for operator in graph.operators]


def _program_operator(operator: Operator) -> ProgramOperator:
    key, spec = operator.key, operator.spec
    return ProgramOperator(
        operator.uid,
        operator.stateful and spec.needs_uid,  # its state may belong to another operator
        spec.position if isinstance(spec, WatermarkSpec) else None,
        spec.declares_all_states,
        {state.name: state.value_type for state in spec.states() if state.value_type is not None},
        None if key is None or key.key_type is None else key.key_type.describe(),
        operator.migrations,
    )


def with_versions(graph: JobGraph, states: Iterable[StateInfo]) -> list[StateInfo]:
    """The states, with the versions given by the program's migrations."""
    return [_versioned(graph.by_uid.get(state.uid), state) for state in states]


def _versioned(operator: Operator | None, state: StateInfo) -> StateInfo:
    if operator is None:
        return state
    key_version = 1 if state.key_type is None else operator.migrations.key_version
    versions = {"version": operator.migrations.version(state.name), "key_version": key_version}
    if (state.version, state.key_version) == tuple(versions.values()):
        return state
    return state.model_copy(update=versions)


def _state(operator: Operator, state: DeclaredState) -> StateInfo:
    key_type = operator.key.key_type if state.keyed and operator.key is not None else None
    assert (key_type is not None) == state.keyed
    return StateInfo.of(
        operator.uid, state.name, state.kind, key_type, state.value_type, state.namespace_type, state.ttl_ms,
        fingerprint=state.fingerprint, version=operator.migrations.version(state.name),
        key_version=operator.migrations.key_version if state.keyed else 1,
    )  # fmt: skip
