"""Runs an automaton over the events of one key.

A partial match is a *run*: the state that it waits in, and its last step. Steps are events that joined it, each with the one
before, so runs that began alike share their first steps. The semantics are those of Flink's NFA, also in the order of matches.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import NamedTuple

from forkpoint.errors import UserFunctionError
from forkpoint.patterns.automaton import Action, Automaton, Edge, Kind
from forkpoint.patterns.conditions import Atom, holds
from forkpoint.patterns.skipping import AfterMatchSkipStrategy


class Step(NamedTuple):
    """An event, by its number, that joined a match for a stage, and its time."""

    stage: str
    event: int
    at_ms: int
    before: Step | None


class Run(NamedTuple):
    """A partial match. ``state``: its number. ``start``: the number of its first event, at ``start_ms``."""

    state: int
    step: Step
    start: int
    start_ms: int


Match = dict[str, list[int]]
"""Numbers of events by stage, in order."""


@dataclass
class Runs:
    """The state of one key: its partial matches, by first event, and the matches that wait until it is known whether one that
    began earlier lets them be. ``next_event``: the number of the next event."""

    next_event: int = 0
    partial: list[Run] = field(default_factory=list)
    completed: list[Run] = field(default_factory=list)  # a heap, see _pop

    @property
    def is_empty(self) -> bool:
        return not self.partial and not self.completed

    @property
    def all(self) -> Iterator[Run]:
        yield from self.partial
        yield from self.completed

    def copy(self) -> Runs:
        return Runs(self.next_event, list(self.partial), list(self.completed))

    def same_as(self, other: Runs) -> bool:
        """Whether they are the same runs: one that goes on unchanged is the same object."""
        pairs = zip_longest(self.all, other.all)
        return all(one is another for one, another in pairs)


class Move(NamedTuple):
    """Where an event takes a run. ``stage``: which it joins the match for, empty if it is passed over. ``completed``: the final
    state, if nothing more has to come."""

    stage: str
    state: int
    completed: int | None


@dataclass(frozen=True)
class _Decision:
    """All that an event makes of a run. ``stops``: it must not have come, so the run ends, unless the event completes it."""

    stops: bool
    moves: tuple[Move, ...]


@dataclass
class _Question:
    """Which decision it is depends on this condition."""

    atom: Atom
    no: _Question | _Decision | None = None
    yes: _Question | _Decision | None = None


Truth = Callable[[Atom, Run | None], bool]
"""Whether a condition holds for the current event, and a run (None: a new one)."""


class Matcher:
    """The automaton of a pattern, with what happens after a match. ``uid``: of the operator, for messages."""

    def __init__(self, automaton: Automaton, skip: AfterMatchSkipStrategy, uid: str) -> None:
        self.automaton, self._skip, self._uid = automaton, skip, uid
        self._states = automaton.states
        # What was asked to decide about an event, by state: decisions are found by these questions from then on.
        self._prefers = any(state.kind is Kind.FORK for state in automaton.states)
        self._asked: list[_Question | _Decision | None] = [None] * len(automaton.states)

    # -- events

    def accept(self, runs: Runs, time_ms: int, truth: Truth) -> list[Match]:
        """Feed the next event. Partial matches that end before its time must have been ended."""
        number = runs.next_event
        runs.next_event += 1
        partial: list[Run] = []
        found: list[Run] = []
        for run in runs.partial:
            decision = self._decision(run.state, truth, run)
            goes_on: list[Run] = []
            for stage, target, completed in decision.moves:
                if stage:
                    moved = Run(target, Step(stage, number, time_ms, run.step), run.start, run.start_ms)
                else:
                    moved = run if target == run.state else run._replace(state=target)
                (found if self._states[target].kind is Kind.FINAL else goes_on).append(moved)
                if completed is not None:
                    found.append(moved._replace(state=completed))
            if not decision.stops:
                partial += goes_on
        for stage, target, completed in self._decision(self.automaton.start, truth, None).moves:
            if stage:
                begun = Run(target, Step(stage, number, time_ms, None), number, time_ms)
                (found if self._states[target].kind is Kind.FINAL else partial).append(begun)
                if completed is not None:
                    found.append(begun._replace(state=completed))
        return self._complete(runs, found, partial)

    @cached_property
    def first_condition(self) -> Atom | None:
        """The only condition on which it depends whether an event begins a match, if there is one of the event alone."""
        taken = [edge for edge in self._states[self.automaton.start].edges if edge.action is not Action.IGNORE]
        condition = taken[0].condition if len(taken) == 1 and taken[0].action is Action.TAKE else None
        return condition if isinstance(condition, Atom) and not condition.iterative else None

    def begins(self, truth: Truth) -> bool:
        """Whether an event begins a match."""
        return any(move.stage for move in self._decision(self.automaton.start, truth, None).moves)

    def _decision(self, state: int, truth: Truth, run: Run | None) -> _Decision:
        found = self._asked[state]
        while found.__class__ is _Question:
            found = found.yes if truth(found.atom, run) else found.no
        return found if found is not None else self._decide(state, truth, run)  # type: ignore[return-value]

    def _decide(self, state: int, truth: Truth, run: Run | None) -> _Decision:
        """Decide for the first time with these answers, and keep the questions."""
        answers: dict[Atom, bool] = {}

        def ask(atom: Atom) -> bool:
            if atom not in answers:
                answers[atom] = bool(truth(atom, run))
            return answers[atom]

        decision = self._followed(state, ask)
        kept: _Question | _Decision = decision
        for atom, answer in reversed(answers.items()):
            kept = _Question(atom, **{"yes" if answer else "no": kept})
        self._asked[state] = _joined(self._asked[state], kept)
        return decision

    def _followed(self, state: int, ask: Callable[[Atom], bool]) -> _Decision:
        """Follow the edges whose conditions hold, through all states that leave the decision to the next."""
        stops, moves, waiting = False, [], [state]
        while waiting:
            here = waiting.pop()
            edges = list(self._open(here, ask))
            for edge in edges[::-1] if self._states[here].kind is Kind.FORK else edges:
                if edge.action is Action.PROCEED:
                    waiting.append(edge.target)
                elif self._states[edge.target].kind is Kind.STOP:
                    stops = True
                elif edge.action is Action.TAKE:
                    moves.append(Move(self._states[here].stage, edge.target, self._final_after(edge.target, ask)))
                else:
                    moves.append(Move("", edge.target, None))
        return _Decision(stops, tuple(moves))

    def _open(self, state: int, ask: Callable[[Atom], bool]) -> Iterator[Edge]:
        return (edge for edge in self._states[state].edges if holds(edge.condition, ask))

    def _final_after(self, state: int, ask: Callable[[Atom], bool]) -> int | None:
        """The final state, if nothing more has to come after this one."""
        waiting = [state]
        while waiting:
            for edge in self._states[waiting.pop()].edges:
                # Not asked about others: the event is none that the conditions of later stages are for.
                if edge.action is Action.PROCEED and holds(edge.condition, ask):
                    if self._states[edge.target].kind is Kind.FINAL:
                        return edge.target
                    waiting.append(edge.target)
        return None

    # -- time

    def next_timeout(self, runs: Runs) -> int | None:
        """The time at which the first partial match times out, in ms."""
        return min((at for run in runs.partial if (at := self._timeout(run)) is not None), default=None)

    def _timeout(self, run: Run) -> int | None:
        total_ms, within_ms = self.automaton.total_ms, self._states[run.state].within_ms
        of_all = None if total_ms is None else run.start_ms + total_ms
        if within_ms is None:
            return of_all
        of_gap = run.step.at_ms + within_ms
        return of_gap if of_all is None else min(of_all, of_gap)

    def advance(self, runs: Runs, time_ms: int) -> tuple[list[Match], list[Match]]:
        """End the partial matches whose time is over: those that are complete thereby, and those that have timed out."""
        partial, found, timed_out = [], [], []
        for run in runs.partial:
            at = self._timeout(run)
            if at is None or at > time_ms:
                partial.append(run)
            elif self._states[run.state].completes:
                found.append(run)
            else:
                timed_out.append(events_of(run))
        return self._complete(runs, found, partial), timed_out

    # -- matches

    def _complete(self, runs: Runs, found: list[Run], partial: list[Run]) -> list[Match]:
        """The matches to emit now, after which others are skipped."""
        matches = []
        skips = self._skip.kind != "no_skip"
        for run in found:
            if self._prefers:
                insort(runs.completed, run, key=_start)  # which is a heap, too
            else:
                _push(runs.completed, run)
        while runs.completed:
            first = runs.completed[0]
            if skips and partial and first.start > partial[0].start:
                break  # one that began earlier may still match, and skip this one
            if self._prefers:
                runs.completed.pop(0)
            else:
                _pop(runs.completed)
            match = events_of(first)
            until = self._skipped_until(match) if skips else None
            if until is not None:
                partial = [run for run in partial if run.start >= until]
                _keep(runs.completed, until)
            matches.append(match)
        runs.partial = partial
        return matches

    def _skipped_until(self, match: Match) -> int | None:
        """The number of the first event with which other matches may begin; None: any."""
        skip, first = self._skip, min(events[0] for events in match.values())
        match skip.kind:
            case "skip_to_next":
                return first + 1
            case "skip_past_last_event":
                return max(events[-1] for events in match.values()) + 1
        events = match.get(skip.stage)
        where = f"operator {self._uid!r}: cannot skip to {skip.stage!r} after a match of events {match}"
        if events is None:
            if skip.throws:
                raise UserFunctionError(f"{where}: it has no such event; skip to what every match has")
            return None
        to = events[0] if skip.kind == "skip_to_first" else events[-1]
        if skip.throws and to == first:
            raise UserFunctionError(f"{where}, which begins with it: the same match would be found again")
        return to


def steps_of(run: Run) -> list[Step]:
    """The steps of a match, in order."""
    steps: list[Step] = []
    step: Step | None = run.step
    while step is not None:
        steps.append(step)
        step = step.before
    return steps[::-1]


def events_of(run: Run) -> Match:
    """The events of a match, by stage in the order of their first events."""
    match: Match = {}
    for step in steps_of(run):
        match.setdefault(step.stage, []).append(step.event)
    return match


def _joined(known: _Question | _Decision | None, new: _Question | _Decision) -> _Question | _Decision:
    """Questions with those of another decision, which begin alike."""
    if isinstance(known, _Question) and isinstance(new, _Question):
        known.no = known.no if new.no is None else _joined(known.no, new.no)
        known.yes = known.yes if new.yes is None else _joined(known.yes, new.yes)
        return known
    return new


# -- matches that wait, in a heap as Java's PriorityQueue: which of several that began with one event comes first, and so skips
# the others, is up to how it moves them


def _start(run: Run) -> int:
    return run.start


def _push(heap: list[Run], run: Run) -> None:
    heap.append(run)
    at = len(heap) - 1
    while at and run.start < heap[(at - 1) // 2].start:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = run


def _pop(heap: list[Run]) -> None:
    last = heap.pop()
    if heap:
        _sift(heap, 0, last)


def _keep(heap: list[Run], start: int) -> None:
    """Only those that begin with this event or a later one."""
    kept = [run for run in heap if run.start >= start]
    if len(kept) < len(heap):
        heap[:] = kept
        for at in range(len(heap) // 2 - 1, -1, -1):
            _sift(heap, at, heap[at])


def _sift(heap: list[Run], at: int, run: Run) -> None:
    while 2 * at + 1 < len(heap):
        child = 2 * at + 1
        if child + 1 < len(heap) and heap[child].start > heap[child + 1].start:
            child += 1
        if run.start <= heap[child].start:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = run
