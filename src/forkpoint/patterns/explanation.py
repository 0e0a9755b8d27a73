"""What a pattern becomes, and how far its partial matches are: as text, and as a drawing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from forkpoint.checkpoint.plan import PlanEdge, PlanPattern, PlanState
from forkpoint.markup import Arrow, Node, drawing, page
from forkpoint.patterns.automaton import Action, Automaton, Edge, Kind, State
from forkpoint.patterns.conditions import All, Always, Atom, Condition, Either, Not
from forkpoint.patterns.matching import steps_of
from forkpoint.patterns.stored import RUNS, RunsCodec
from forkpoint.wording import duration


@dataclass(frozen=True)
class Progress:
    """A partial match.

    ``events``: the numbers of its events by stage, with their times in int ms. ``waits_for``: the stages whose events may come
    next, with their conditions. ``ends_ms``: when its time is over, None if never.
    """

    events: dict[str, list[tuple[int, int]]]
    waits_for: dict[str, str]
    ends_ms: int | None

    def __str__(self) -> str:
        has = ", ".join(f"{stage} at {', '.join(str(at) for _, at in events)}" for stage, events in self.events.items())
        wants = " or ".join(f"{stage}{f' ({text})' if text else ''}" for stage, text in self.waits_for.items())
        return f"has {has}; waits for {wants or 'nothing'}{'' if self.ends_ms is None else f' until {self.ends_ms}'}"


def condition_text(condition: Condition) -> str:
    """A condition, in words; "" if every event holds it."""
    text = _text(condition)
    return text[1:-1] if isinstance(condition, Atom) and _is_enclosed(text) else text


def _is_enclosed(text: str) -> bool:
    """Whether all of it is within one pair of parentheses."""
    depths = list(accumulate((each == "(") - (each == ")") for each in text))
    return text.startswith("(") and 0 not in depths[:-1] and depths[-1] == 0


def _text(condition: Condition) -> str:
    match condition:
        case Always():
            return ""
        case Atom(accepts=accepts, columns=columns, text=text):
            if text:
                return text
            name = getattr(accepts, "__qualname__", type(accepts).__name__).rpartition(".<locals>.")[2]
            return f"{name}(…)" if columns is None else re.sub(r"`(\w+)`", r"\1", str(columns))
        case Not(of):
            return f"not ({condition_text(of)})"
        case All(left, right):
            return f"{_text(left)} and {_text(right)}"
        case Either(left, right):
            return f"({_text(left)} or {_text(right)})"


def explained(automaton: Automaton) -> str:
    """The states of an automaton with their edges, from the first on."""
    lines = []
    for state in reversed(automaton.states):
        if state.kind is not Kind.STOP:
            lines.append(_title(automaton, state))
            lines += [f"  {_edge(automaton, state, edge)}" for edge in state.edges]
    if automaton.total_ms is not None:
        lines.append(f"within {duration(automaton.total_ms)} from the first event to the last")
    return "\n".join(lines)


def recorded(automaton: Automaton) -> PlanPattern:
    """The automaton in a run's record, for the web page."""
    last = len(automaton.states) - 1
    states = [
        PlanState(
            name=state.name,
            stage=state.stage,
            kind=state.kind.value,
            within_ms=state.within_ms,
            edges=[
                PlanEdge(action=edge.action.value, condition=condition_text(edge.condition), target=last - edge.target)
                for edge in state.edges
            ],
        )
        for state in reversed(automaton.states)
    ]
    return PlanPattern(states=states, explanation=explained(automaton), total_ms=automaton.total_ms)


def _title(automaton: Automaton, state: State) -> str:
    match state.kind:
        case Kind.FINAL:
            return "match"
        case Kind.PENDING:
            return f"{state.name}: a match once its time is over"
    begins = ", where matches begin" if automaton.states[automaton.start] is state else ""
    within = "" if state.within_ms is None else f", within {duration(state.within_ms)} of the event before"
    return f"{state.name}{begins}{within}"


def _edge(automaton: Automaton, state: State, edge: Edge) -> str:
    target, text = automaton.states[edge.target], condition_text(edge.condition)
    condition = f" if {text}" if text else ""
    to = "match" if target.kind is Kind.FINAL else "itself" if target is state else target.name
    if target.kind is Kind.STOP:
        return f"ends without a match, as {target.stage} has come{condition}"
    match edge.action:
        case Action.TAKE:
            return f"takes an event{condition} → {to}"
        case Action.IGNORE:
            return f"passes over an event{condition} → {to}"
    return f"leaves it to {to}{condition}"


def drawn(title: str, automaton: Automaton) -> str:
    """An SVG of the states, which events lead from left to right."""
    order = [number for number in reversed(range(len(automaton.states))) if automaton.states[number].kind is not Kind.STOP]
    place = {number: at for at, number in enumerate(order)}
    nodes = [Node(tuple(_lines(automaton, automaton.states[number])), number == automaton.start) for number in order]
    arrows = [
        Arrow(place[number], place[edge.target], edge.action.value)
        for number in order
        for edge in automaton.states[number].edges
        if edge.target in place and edge.target != number
    ]
    return drawing(title, nodes, arrows)


def _lines(automaton: Automaton, state: State) -> Iterator[str]:
    if state.kind is Kind.FINAL:
        yield "match"
        return
    yield state.name
    for edge in state.edges:
        if edge.action is Action.TAKE:
            yield condition_text(edge.condition) or "any event"
            return
    yield state.kind.value


def html(title: str, automaton: Automaton) -> str:
    """The drawing, for a notebook."""
    return page(title, drawn(title, automaton))


def progress(automaton: Automaton, saved: Any) -> list[Progress]:
    """How far the partial matches of a key are. ``saved``: the value of its state ``partial_matches``, None without any."""
    if saved is None:
        return []
    runs = RunsCodec(automaton).decode(RUNS.encode(RUNS.accept(saved)))
    found = []
    for run in runs.partial:
        events: dict[str, list[tuple[int, int]]] = {}
        for step in steps_of(run):
            events.setdefault(step.stage, []).append((step.event, step.at_ms))
        limits = [run.start_ms + automaton.total_ms] if automaton.total_ms is not None else []
        within_ms = automaton.states[run.state].within_ms
        limits += [] if within_ms is None else [run.step.at_ms + within_ms]
        found.append(Progress(events, dict(_waits_for(automaton, run.state)), min(limits, default=None)))
    return found


def _waits_for(automaton: Automaton, state: int) -> Iterator[tuple[str, str]]:
    """The stages whose events a state takes, or one that it leaves the decision to."""
    seen, waiting = set(), [state]
    while waiting:
        here = waiting.pop()
        if here in seen:
            continue
        seen.add(here)
        for edge in automaton.states[here].edges:
            if edge.action is Action.TAKE and automaton.states[here].kind is not Kind.STOP:
                yield automaton.states[here].stage, condition_text(edge.condition)
            elif edge.action is Action.PROCEED:
                waiting.append(edge.target)
