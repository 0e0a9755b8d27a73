"""From a pattern to its automaton, as Flink builds it: from the last stage to the first, each with an edge to the one after it.

A stage that repeats a number of times is a chain of states, one that repeats any number of times ends in a state with an edge to
itself. What may come in between is an edge that ignores events, to a state without a way out but the next event: so an event that
is ignored branches a partial match only once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from forkpoint.patterns.automaton import Action, Automaton, Edge, Kind, State
from forkpoint.patterns.conditions import ALWAYS, Atom, Condition, Not, atoms_of, both
from forkpoint.patterns.pattern import Contiguity, Grouping, Pattern, Stage, Times, check, grouped

FINAL = "$end"
AGAIN = "$again"
"""The state between two repetitions of a group."""


def automaton_of(pattern: Pattern) -> Automaton:
    """The automaton of a pattern. Raises GraphError if the pattern cannot match, or its last stage waits forever."""
    check(pattern)
    return compiled(pattern)


def compiled(pattern: Pattern) -> Automaton:
    """The automaton of a pattern that has been checked, or of SQL, where several stages may have one name."""
    compiler = _Compiler(total_ms=pattern.total_ms)
    final = compiler.state(FINAL, Kind.FINAL)
    start = compiler.sequence(_Level(pattern.stages), final)
    return compiler.finished(start)


@dataclass(eq=False)
class _Draft:
    """A state while its edges are added."""

    name: str
    stage: str
    kind: Kind
    within_ms: int | None = None
    edges: list[tuple[Action, _Draft, Condition]] = field(default_factory=list)

    def add(self, action: Action, target: _Draft, condition: Condition = ALWAYS) -> None:
        self.edges.append((action, target, condition))


@dataclass(frozen=True)
class _Level:
    """The stages of a pattern, or of a group. ``group``: its stage in the pattern. ``first_of_loop``: whether the events of the
    group's first stage are the group's first. ``following``: the stage after the group."""

    stages: tuple[Stage, ...]
    group: Stage | None = None
    first_of_loop: bool = True
    following: Stage | None = None

    def until(self, condition: Condition) -> Condition:
        """The condition, and that the group has not ended."""
        ended = None if self.group is None else self.group.until
        return condition if ended is None else both(Not(ended), condition)


@dataclass(frozen=True)
class _Here:
    """A stage on its level."""

    level: _Level
    at: int

    @property
    def stage(self) -> Stage:
        return self.level.stages[self.at]

    @property
    def following(self) -> Stage | None:
        return self.level.stages[self.at + 1] if self.at + 1 < len(self.level.stages) else self.level.following

    @property
    def heads_group(self) -> bool:
        return self.level.group is not None and self.at == 0

    @property
    def take(self) -> Condition:
        return self.level.until(self.stage.condition)

    @property
    def heads_optional_group(self) -> bool:
        group = self.level.group
        return self.heads_group and self.level.first_of_loop and group is not None and group.optional

    def ignore(self) -> Condition | None:
        """Which events may come before the stage's first; None: none."""
        contiguity, group = self.stage.contiguity, self.level.group
        if self.heads_group and group is not None:
            contiguity = group.contiguity if self.level.first_of_loop else _inner(group)
        return self._passed_over(contiguity)

    def inner_ignore(self) -> Condition | None:
        """Which events may come between those of the stage."""
        group = self.level.group
        contiguity = _inner(group) if self.heads_group and group is not None else _inner(self.stage)
        return self._passed_over(contiguity)

    def _passed_over(self, contiguity: Contiguity) -> Condition | None:
        if contiguity not in (Contiguity.RELAXED, Contiguity.ANY):
            return None
        return self.level.until(Not(self.stage.condition) if contiguity is Contiguity.RELAXED else ALWAYS)

    def nots(self) -> Iterator[Stage]:
        """The stages before this one whose events must not come before its event: also those before optional stages."""
        for at in range(self.at - 1, -1, -1):
            before = self.level.stages[at]
            if before.contiguity is Contiguity.NOT_FOLLOWED:
                yield before
            elif not before.optional:
                return


def _inner(stage: Stage) -> Contiguity:
    return Contiguity.RELAXED if stage.times is None else stage.times.inner


@dataclass
class _Compiler:
    total_ms: int | None
    drafts: list[_Draft] = field(default_factory=list)
    stops: dict[str, _Draft] = field(default_factory=dict)
    ended: dict[str, _Draft] = field(default_factory=dict)  # by the state after a greedy loop: its copy for the end by until()

    def state(self, stage: str, kind: Kind, within_ms: int | None = None) -> _Draft:
        number = sum(each.stage == stage for each in self.drafts)
        draft = _Draft(f"{stage}:{number}" if number else stage, stage, kind, within_ms)
        self.drafts.append(draft)
        return draft

    def finished(self, start: _Draft) -> Automaton:
        numbers = {id(draft): number for number, draft in enumerate(self.drafts)}
        atoms: list[Atom] = []
        states = []
        for draft in self.drafts:
            edges = []
            for action, target, condition in draft.edges:
                edges.append(Edge(action, numbers[id(target)], condition))
                atoms += [atom for atom in atoms_of(condition) if not any(atom is known for known in atoms)]
            states.append(State(draft.name, draft.stage, draft.kind, tuple(edges), draft.within_ms, _completes(draft)))
        return Automaton(tuple(states), numbers[id(start)], self.total_ms, tuple(atoms))

    # -- sequences

    def sequence(self, level: _Level, sink: _Draft) -> _Draft:
        """The states of a level's stages; the first of them."""
        if level.group is not None and level.group.grouping is not Grouping.SEQUENCE:
            return self._fork(level, level.group.grouping, sink, {})
        for at in range(len(level.stages) - 1, -1, -1):
            sink = self._stage(_Here(level, at), sink)
        return sink

    def _fork(self, level: _Level, grouping: Grouping, sink: _Draft, known: dict[tuple[Stage, ...], _Draft]) -> _Draft:
        """The state that leaves an event to the first states of several stages, of which one has events, or all in any order.
        ``known``: by the stages that have had none yet, wherever those that had come from."""
        if level.stages in known:
            return known[level.stages]
        heads = []
        for stage in reversed(level.stages):
            after, others = sink, tuple(each for each in level.stages if each is not stage)
            if grouping is Grouping.ANY_ORDER and others:
                after = self._fork(replace(level, stages=others), grouping, sink, known)
            if stage.ends_greedy and after.kind is not Kind.FINAL:  # what comes after it, yields only where it comes after it
                sink_of_greedy = self.state(f"after {stage.outline}", Kind.NORMAL)
                sink_of_greedy.add(Action.PROCEED, after)
                after = sink_of_greedy
            heads.append(self._stage(_Here(replace(level, stages=(stage,)), 0), after))
        if len(heads) == 1:
            fork = heads[0]
        else:
            fork = self.state(grouped([each.outline for each in level.stages], grouping), Kind.FORK)
            for head in reversed(heads):
                fork.add(Action.PROCEED, head)
        known[level.stages] = fork
        return fork

    def _stage(self, here: _Here, sink: _Draft) -> _Draft:
        stage = here.stage
        match stage.contiguity:
            case Contiguity.NOT_FOLLOWED:
                # Otherwise it becomes a condition of the states around it.
                if sink.kind is Kind.FINAL and (stage.within_ms is not None or self.total_ms is not None):
                    pending = self.state(stage.name, Kind.PENDING, stage.within_ms)
                    pending.add(Action.PROCEED, self._stop(stage, here.take), here.take)
                    pending.add(Action.IGNORE, pending, Not(here.take))
                    return pending
                return sink
            case Contiguity.NOT_NEXT:
                waits = self.state(stage.name, Kind.NORMAL, stage.within_ms)
                # The event after it is no part of the match.
                waits.add(Action.IGNORE if sink.kind is Kind.FINAL else Action.PROCEED, sink, Not(here.take))
                waits.add(Action.PROCEED, self._stop(stage, here.take), here.take)
                return waits
            case _:
                return self._events(here, sink)

    def _events(self, here: _Here, sink: _Draft) -> _Draft:
        """The states of a stage, or group, whose events are part of the match."""
        times = here.stage.times
        if times is None:
            first = self._one(here, sink, sink, here.take, here.ignore(), optional=here.stage.optional, first=True)
        elif times.high is None:
            # Once it has begun, what must not come before it may come.
            loop = self._loop(here, self._without_nots(here, sink), times)
            first = self._chain(here, loop, sink, replace(times, high=times.low))
        else:
            first = self._chain(here, sink, sink, times)
        for stage in here.nots():
            condition = here.level.until(stage.condition)
            first.add(Action.PROCEED, self._stop(stage, condition), condition)
        return first

    def _chain(self, here: _Here, sink: _Draft, after: _Draft, times: Times) -> _Draft:
        """As many states as the stage repeats, of which those beyond the least number may be left out, to ``after``."""
        stage, last = here.stage, sink
        take, between = _not_ended(stage, here.take), _ignore_until(stage, here.inner_ignore())
        assert times.high is not None
        if times.greedy and times.low != times.high:
            self._yields_to(stage, sink, take)
        for _ in range(times.low, times.high):
            last = self._one(here, last, after, take, between, optional=True, first=False)
            self._stops_in_loop(here, last)
        for _ in range(times.low - 1):
            last = self._one(here, last, None, take, between, optional=False, first=False)
            self._stops_in_loop(here, last)
        return self._one(here, last, after, take, here.ignore(), optional=stage.optional, first=True)

    def _loop(self, here: _Here, sink: _Draft, times: Times) -> _Draft:
        """The state of a stage that repeats any number of times, after its first events."""
        stage = here.stage
        if stage.group is not None:
            return self._group_loop(here, stage.group, sink)
        take, between = _not_ended(stage, here.take), _ignore_until(stage, here.inner_ignore())
        loop = self.state(stage.name, Kind.NORMAL, _gap_ms(stage))
        on = here.level.until(ALWAYS)
        if times.greedy:
            copy = self._yields_to(stage, sink, here.take)
            if copy is not None and stage.until is not None:
                loop.add(Action.PROCEED, copy, both(on, stage.until))
            loop.add(Action.PROCEED, sink, on if stage.until is None else both(on, Not(stage.until)))
        else:
            loop.add(Action.PROCEED, sink, on)
        loop.add(Action.TAKE, loop, take)
        self._stops_in_loop(here, loop)
        if between is not None:
            passing = self.state(stage.name, Kind.NORMAL, _gap_ms(stage))
            passing.add(Action.TAKE, loop, take)
            passing.add(Action.IGNORE, passing, between)
            loop.add(Action.IGNORE, passing, between)
            self._stops_in_loop(here, passing)
        return loop

    def _yields_to(self, stage: Stage, sink: _Draft, take: Condition) -> _Draft | None:
        """Leave a greedy stage only with an event that it does not accept. Returns a copy of ``sink`` for events that end it."""
        copy = None
        if stage.until is not None:
            copy = self.ended[sink.name] = self._copy(sink)
        sink.edges[:] = [(action, target, both(condition, Not(take))) for action, target, condition in sink.edges]
        return copy

    def _one(
        self,
        here: _Here,
        sink: _Draft,
        after: _Draft | None,
        take: Condition,
        ignore: Condition | None,
        *,
        optional: bool,
        first: bool,
    ) -> _Draft:
        """The state that takes one event of the stage, or the states of one repetition of the group. ``after``: where the match
        goes on without the event, if it is optional. ``first``: whether it is the first of a loop."""
        stage = here.stage
        if stage.group is not None:
            level = _Level(stage.group.stages, stage, first, here.following)
            head = self.sequence(level, sink)
            if optional and after is not None:
                head.add(Action.PROCEED, after, here.level.until(ALWAYS))
            return head
        within_ms = stage.within_ms if first else _gap_ms(stage)
        one = self.state(stage.name, Kind.NORMAL, within_ms)
        target = self._without_nots(here, sink)
        one.add(Action.TAKE, target, take)
        if optional and after is not None:
            self._may_be_missing(here, one, after)
        if ignore is not None:
            passing = one
            if optional or here.heads_optional_group:
                passing = self.state(stage.name, Kind.NORMAL, within_ms)
                passing.add(Action.TAKE, target, take)
                passing.add(Action.IGNORE, passing, ignore)
                for unwanted in here.nots():
                    condition = here.level.until(unwanted.condition)
                    passing.add(Action.PROCEED, self._stop(unwanted, condition), condition)
            one.add(Action.IGNORE, passing, ignore)
        return one

    def _may_be_missing(self, here: _Here, one: _Draft, after: _Draft) -> None:
        stage, on = here.stage, here.level.until(ALWAYS)
        if not stage.greedy or stage.until is None:
            one.add(Action.PROCEED, after, on)
            return
        copy = self.ended.get(after.name)
        if copy is not None:
            one.add(Action.PROCEED, copy, both(on, stage.until))
        one.add(Action.PROCEED, after, both(on, Not(stage.until)))

    def _group_loop(self, here: _Here, group: Pattern, sink: _Draft) -> _Draft:
        stage = here.stage
        if stage.greedy:
            self._yields_to(stage, sink, here.take)
        again = self.state(AGAIN, Kind.NORMAL)
        level = _Level(group.stages, stage, False, here.following)
        head = self.sequence(level, again)
        head.add(Action.PROCEED, sink, here.level.until(ALWAYS))
        again.add(Action.PROCEED, head, here.level.until(ALWAYS))
        return head

    # -- events that must not come

    def _stop(self, stage: Stage, condition: Condition) -> _Draft:
        found = self.stops.get(stage.name)
        if found is None:
            found = self.stops[stage.name] = self.state(stage.name, Kind.STOP)
            found.add(Action.TAKE, found, condition)
        return found

    def _stops_in_loop(self, here: _Here, state: _Draft) -> None:
        following = here.following
        if following is not None and following.contiguity is Contiguity.NOT_FOLLOWED:
            condition = here.level.until(following.condition)
            state.add(Action.PROCEED, self._stop(following, condition), condition)

    def _without_nots(self, here: _Here, sink: _Draft) -> _Draft:
        """The state after an optional stage, once it has had an event: what must not come before the stage may come now."""
        nots = {stage.name for stage in here.nots()}
        if not nots or not here.stage.optional:
            return sink
        copy = self.state(sink.stage, sink.kind, sink.within_ms)
        for action, target, condition in sink.edges:
            if action is not Action.PROCEED:
                copy.add(action, copy if target is sink else target, condition)
            elif target.kind is not Kind.STOP:
                copy.add(action, self._without_nots(here, target), condition)
            elif target.stage not in nots:
                copy.add(action, target, condition)
        return copy

    def _copy(self, state: _Draft) -> _Draft:
        copy = self.state(state.stage, state.kind, state.within_ms)
        copy.edges = [(action, copy if target is state else target, condition) for action, target, condition in state.edges]
        return copy


def _not_ended(stage: Stage, take: Condition) -> Condition:
    return take if stage.until is None else both(Not(stage.until), take)


def _ignore_until(stage: Stage, ignore: Condition | None) -> Condition | None:
    return ignore if ignore is None or stage.until is None else both(Not(stage.until), ignore)


def _gap_ms(stage: Stage) -> int | None:
    """How far apart the events of a repeated stage may be."""
    return stage.within_ms if stage.times is None or stage.times.within_ms is None else stage.times.within_ms


def _completes(draft: _Draft, seen: frozenset[int] = frozenset()) -> bool:
    """Whether nothing more has to come, but that the time is over."""
    if draft.kind is Kind.PENDING:
        return True
    onward = [target for action, target, condition in draft.edges if action is Action.PROCEED and condition == ALWAYS]
    return any(id(target) not in seen and _completes(target, seen | {id(draft)}) for target in onward)
