"""The automaton of a pattern: states, which partial matches wait in, and edges that an event takes them along."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from forkpoint.patterns.conditions import Atom, Condition


class Action(Enum):
    """What becomes of an event on an edge."""

    TAKE = "take"  # it joins the match
    IGNORE = "ignore"  # it is passed over
    PROCEED = "proceed"  # the target decides about it


class Kind(Enum):
    NORMAL = "normal"
    FORK = "either"  # prefers its first edges
    FINAL = "final"  # the match is complete
    STOP = "stop"  # an event has come that must not
    PENDING = "pending"  # the match is complete if nothing comes until its time is over


@dataclass(frozen=True)
class Edge:
    action: Action
    target: int
    condition: Condition


@dataclass(frozen=True)
class State:
    """A state. ``name`` is unique, ``stage`` that of the stage whose event it waits for. ``within_ms``: how long after the event
    before. ``completes``: a partial match in this state is a match once its time is over."""

    name: str
    stage: str
    kind: Kind
    edges: tuple[Edge, ...]
    within_ms: int | None = None
    completes: bool = False


@dataclass(frozen=True)
class Automaton:
    """``start``: the state in which every match begins. ``total_ms``: how long a match may take. ``atoms``: the conditions'
    functions."""

    states: tuple[State, ...]
    start: int
    total_ms: int | None
    atoms: tuple[Atom, ...] = field(repr=False)

    @property
    def limits_time(self) -> bool:
        """Whether partial matches time out."""
        return self.total_ms is not None or any(state.within_ms is not None for state in self.states)

    def waits_forever(self) -> str | None:
        """The first stage that partial matches may wait for however many events pass, and however late it is, if any."""
        if self.total_ms is not None:
            return None
        for number, state in reversed(list(enumerate(self.states))):  # the last stage has the first number
            stays = any(edge.target == number and edge.action is not Action.PROCEED for edge in state.edges)
            if stays and state.within_ms is None and state.kind is not Kind.STOP:
                return state.stage
        return None
