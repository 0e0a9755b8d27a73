"""The saved states of equal operators of a query, which are one operator now, and of one that is several now: see
``relational.sharing``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from forkpoint.checkpoint.states import StateInfo
from forkpoint.relational.definitions.groups import stored_definition


def joined(saved: Sequence[StateInfo], one: Mapping[str, str]) -> tuple[Sequence[StateInfo], Mapping[str, str]]:
    """The saved states, in which those of an operator also say what equal ones show of them; and the uids of these, each with
    that of the operator in its place. ``one``: those that may be equal."""
    found: dict[str, str] = {}
    views: dict[str, list[Any]] = {}
    for uid, to in one.items():
        kept, same = _of(saved, to), _of(saved, uid)
        if kept and same and _meanings(kept) == _meanings(same):
            found[uid] = to
            views.setdefault(to, []).extend({"uid": uid, "view": each.definition["view"]} for each in same if each.is_shown)
    return [_with_views(state, views.get(state.uid, [])) for state in saved], found


def parted(saved: Sequence[StateInfo], program: Collection[str]) -> list[tuple[StateInfo, str]]:
    """The states of operators that are equal to another one no more: those of the other one, with what they showed of them, and
    the uid of each. ``program``: the uids of its operators."""
    found, known = [], {state.uid for state in saved}
    for state in saved:
        others = state.definition.get("others", ()) if isinstance(state.definition, dict) and not state.is_replaced else ()
        for other in others:
            if other["uid"] in program and other["uid"] not in known:
                definition = {"aggregate": state.definition["aggregate"], "view": other["view"]}
                states = _of(saved, state.uid)
                found += [(each.replace(definition=definition) if each is state else each, other["uid"]) for each in states]
    return found


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
