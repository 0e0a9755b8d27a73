"""The saved states of equal operators of a query, which are one operator now: see ``relational.sharing``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from forkpoint.checkpoint.states import StateInfo
from forkpoint.relational.definitions.groups import stored_definition


def joined(
    saved: Sequence[StateInfo], wanted: Iterable[StateInfo], program: Collection[str]
) -> tuple[Sequence[StateInfo], Mapping[str, str]]:
    """The saved states, in which those of an operator also say what equal ones show of them; and the uids of these, each with
    that of the operator in its place. ``wanted``: the states that a program declares. ``program``: the uids of its operators."""
    found: dict[str, str] = {}
    views: dict[str, list[Any]] = {}
    for state in wanted:
        others = state.definition.get("others", ()) if isinstance(state.definition, dict) else ()
        of = _of(saved, state.uid)
        for uid in (other["uid"] for other in others if other["uid"] not in program):
            if of and (same := _of(saved, uid)) and _meanings(of) == _meanings(same):
                found[uid] = state.uid
                views.setdefault(state.uid, []).extend({"uid": uid, "view": s.definition["view"]} for s in same if s.is_shown)
    return [_with_views(state, views.get(state.uid, [])) for state in saved], found


def _of(states: Iterable[StateInfo], uid: str) -> list[StateInfo]:
    return [state for state in states if state.uid == uid]


def _meanings(states: Iterable[StateInfo]) -> dict[str, StateInfo]:
    """The states by their names, without what differs between operators that keep the same."""
    return {state.name: state.named("-", state.name).replace(definition=_kept(state)) for state in states}


def _kept(state: StateInfo) -> Any:
    """What a state is of, whatever is shown of it."""
    if not (state.is_shown and "aggregate" in state.definition):
        return state.definition
    return repr(stored_definition(state.definition).aggregate)


def _with_views(state: StateInfo, views: Sequence[Any]) -> StateInfo:
    if not (views and state.is_shown):
        return state
    return state.replace(definition={**state.definition, "others": [*state.definition.get("others", ()), *views]})
