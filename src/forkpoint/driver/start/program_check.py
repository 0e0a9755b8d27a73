"""Compares the states and operators that a program declares with saved state. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from forkpoint.checkpoint.states import StateInfo
from forkpoint.graph.specs import DeclaredState, WatermarkSpec
from forkpoint.savepoint.restore.compatibility import ProgramOperator
from forkpoint.savepoint.restore.restore_plan import RestorePlan, Saved, plan_restore

if TYPE_CHECKING:
    from forkpoint.checkpoint.manifest import Manifest
    from forkpoint.checkpoint.savepoint_manifest import Savepoint
    from forkpoint.graph.job import JobGraph, Operator


def check_program(
    graph: JobGraph,
    saved: Savepoint | Manifest,
    *,
    allow_non_restored: bool = False,
    renames: Mapping[str, str] | None = None,
    accept_empty: Collection[str] = (),
    must_fit: bool = False,
) -> RestorePlan:
    """Compare a program with a savepoint or checkpoint: returns the plan that a run would follow, including refused rows.

    The plan has a row for each operator, state and source: restored, migrated (values or keys are converted; ``why`` says how),
    new, kept, dropped or refused. The program fits if ``plan.refused`` is empty; with ``must_fit``, RestoreRefused is raised
    otherwise. Only the run finds numbers that a wider type cannot represent exactly, and migrations that raise, before it changes
    anything.
    """
    return _compared(Saved.of(saved), graph, allow_non_restored, renames, accept_empty, check_only=not must_fit)


def compare_programs(
    old: JobGraph,
    new: JobGraph,
    *,
    allow_non_restored: bool = False,
    renames: Mapping[str, str] | None = None,
    accept_empty: Collection[str] = (),
) -> RestorePlan:
    """The same for the state of a program that has not run: what a savepoint of the old program would have."""
    operators = {operator.uid: operator.name for operator in old.operators}
    specs = {operator.uid: operator.spec for operator in old.operators}
    sources = {uid: spec.position for uid, spec in specs.items() if isinstance(spec, WatermarkSpec)}
    saved = Saved(tuple(declared_states(old)), operators, sources, read=tuple(sources))
    return _compared(saved, new, allow_non_restored, renames, accept_empty, check_only=True)


def _compared(
    saved: Saved,
    graph: JobGraph,
    allow_non_restored: bool,
    renames: Mapping[str, str] | None,
    accept_empty: Collection[str],
    *,
    check_only: bool,
) -> RestorePlan:
    return plan_restore(
        saved,
        declared_states(graph),
        [_program_operator(graph, operator) for operator in graph.operators],
        allow_non_restored=allow_non_restored,
        renames=renames,
        accept_empty=accept_empty,
        check_only=check_only,
    )


def declared_states(graph: JobGraph) -> list[StateInfo]:
    """The states that a program's operators declare."""
    return [_state(operator, state) for operator in graph.operators for state in operator.spec.states()]


def _program_operator(graph: JobGraph, operator: Operator) -> ProgramOperator:
    key, spec = operator.key, operator.spec
    inputs = [graph.by_id[each] for each in graph.upstream_of([operator.id]) - {operator.id}] if _has_query(operator) else []
    return ProgramOperator(
        operator.uid,
        operator.stateful and spec.needs_uid,  # otherwise its state belongs to another operator
        spec.position if isinstance(spec, WatermarkSpec) else None,
        spec.declares_all_states,
        {state.name: state.value_type for state in spec.states() if state.value_type is not None},
        None if key is None or key.key_type is None else key.key_type.describe(),
        operator.migrations,
        spec.functions,
        frozenset(each.uid for each in inputs if not each.inputs),
        _changing(graph, operator, inputs),
        operator.name,
    )


def _changing(graph: JobGraph, operator: Operator, inputs: Iterable[Operator]) -> frozenset[str]:
    """The uids of those that have changes of rows, with state of a query, and of sources of changes; those that an operator
    follows."""
    if operator.spec.follows_inputs:
        return frozenset(graph.by_id[edge.upstream].uid for edge in operator.inputs)
    changing = [each for each in inputs if _has_changes(each)]
    # What makes changes of rows that only come is a query's operator, or comes from a source of changes.
    begins = [each for each in changing if not any(_has_changes(graph.by_id[edge.upstream]) for edge in each.inputs)]
    sources = graph.sources_of(each.id for each in begins if not _has_query(each))
    return frozenset({each.uid for each in changing if _has_query(each)} | {graph.by_id[each].uid for each in sources})


def _has_query(operator: Operator) -> bool:
    """Whether its state is that of a query."""
    return any(state.definition is not None for state in operator.spec.states())


def _has_changes(operator: Operator) -> bool:
    from forkpoint.relational.changes import WEIGHT  # not needed for jobs without queries

    return operator.output_type is not None and WEIGHT in operator.output_type.column_names


def with_versions(graph: JobGraph, states: Iterable[StateInfo]) -> list[StateInfo]:
    """The states with the versions of the program's migrations."""
    return [_versioned(graph.by_uid.get(state.uid), state) for state in states]


def _versioned(operator: Operator | None, state: StateInfo) -> StateInfo:
    if operator is None:
        return state
    key_version = 1 if state.key_type is None else operator.migrations.key_version
    versions = {"version": operator.migrations.version(state.name), "key_version": key_version}
    if (state.version, state.key_version) == tuple(versions.values()):
        return state
    return state.replace(**versions)


def _state(operator: Operator, state: DeclaredState) -> StateInfo:
    key_type = operator.key.key_type if state.keyed and operator.key is not None else None
    assert (key_type is not None) == state.keyed
    return StateInfo.of(
        operator.uid,
        state.name,
        state.kind,
        key_type,
        state.value_type,
        state.namespace_type,
        state.ttl_ms,
        fingerprint=state.fingerprint,
        version=operator.migrations.version(state.name),
        key_version=operator.migrations.key_version if state.keyed else 1,
        definition=state.definition,
    )
