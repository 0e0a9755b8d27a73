"""What a program declares: a pattern of stages, after Flink's Pattern in Java.

A Pattern is immutable: each method returns a new one, so that a common beginning can be continued in two ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from forkpoint.errors import GraphError
from forkpoint.functions import to_ms
from forkpoint.patterns.conditions import ALWAYS, All, Atom, Condition, Either, condition_of, mapped
from forkpoint.patterns.skipping import NO_SKIP, AfterMatchSkipStrategy

if TYPE_CHECKING:
    from forkpoint.patterns.automaton import Automaton
    from forkpoint.patterns.explanation import Progress
    from forkpoint.types import TypeInformation


class WithinType(Enum):
    """Which two events ``within`` limits the time between."""

    FIRST_AND_LAST = "first and last"
    PREVIOUS_AND_CURRENT = "previous and current"


class Contiguity(Enum):
    """What may come between a stage's event and the one before it."""

    STRICT = "next"  # nothing
    RELAXED = "followed by"  # events that the stage does not accept
    ANY = "followed by any"  # any event, also one that the stage accepts
    NOT_NEXT = "not next"
    NOT_FOLLOWED = "not followed by"

    @property
    def is_not(self) -> bool:
        return self in (Contiguity.NOT_NEXT, Contiguity.NOT_FOLLOWED)


class Grouping(Enum):
    """How the stages of a group belong together."""

    SEQUENCE = "in sequence"  # each in its contiguity to the one before
    ONE = "or"  # one of them; the first ones are preferred
    ANY_ORDER = "in any order"  # all of them; orders that begin with the first ones are preferred


@dataclass(frozen=True)
class Times:
    """How often a stage repeats: at least ``low`` times, at most ``high`` (None: any number). ``inner``: what may come between
    its events. ``within_ms``: how far apart these may be."""

    low: int
    high: int | None
    inner: Contiguity = Contiguity.RELAXED
    greedy: bool = False
    within_ms: int | None = None


@dataclass(frozen=True)
class Stage:
    """One stage of a pattern, or a group of stages. ``within_ms``: since the event before; ``total_ms``: since the first.

    ``grouping``: of a group. If it is greedy, ``condition`` says which events go to it."""

    name: str
    contiguity: Contiguity
    group: Pattern | None = None
    condition: Condition = ALWAYS
    until: Condition | None = None
    times: Times | None = None
    optional: bool = False
    within_ms: int | None = None
    total_ms: int | None = None
    grouping: Grouping = Grouping.SEQUENCE

    @property
    def text(self) -> str:
        return f"stage {self.name!r}" if self.group is None else f"the group {self.group.outline}"

    @property
    def may_lack(self) -> bool:
        """Whether a match may have no event of it."""
        within = self.group is not None and self._of_all(each.may_lack for each in self.group.stages)
        return self.optional or self.contiguity.is_not or within

    @property
    def _of_all(self) -> Callable[[Iterable[bool]], bool]:
        return any if self.grouping is Grouping.ONE else all

    @property
    def outline(self) -> str:
        """Its name, or those of its stages, in words."""
        if self.group is None:
            return self.name
        if self.grouping is Grouping.SEQUENCE:
            return f"({self.group.outline})"
        return f"({grouped([each.outline for each in self.group.stages], self.grouping)})"

    @property
    def ends_greedy(self) -> bool:
        """Whether what follows may only have events that its last stage does not accept."""
        within = self.group is not None and self.grouping is Grouping.SEQUENCE and self.group.stages[-1].ends_greedy
        return self.greedy or within

    @property
    def loops(self) -> bool:
        """Whether it repeats any number of times."""
        return self.times is not None and self.times.high is None

    @property
    def greedy(self) -> bool:
        return self.times is not None and self.times.greedy


@dataclass(frozen=True)
class Pattern:
    """Stages in the order in which their events come, and what happens after a match.

    ``Pattern.begin("small").where(lambda t: t.amount < 1).followed_by("large").where(lambda t: t.amount > 500)``
    """

    stages: tuple[Stage, ...]
    skip: AfterMatchSkipStrategy = NO_SKIP

    # -- stages

    @staticmethod
    def begin(name: str | Pattern, after_match_skip_strategy: AfterMatchSkipStrategy | None = None) -> Pattern:
        """Start with a stage of this name, or with a group of stages."""
        skip = NO_SKIP if after_match_skip_strategy is None else after_match_skip_strategy
        if not isinstance(skip, AfterMatchSkipStrategy):
            raise GraphError(f"begin() takes an AfterMatchSkipStrategy, such as skip_past_last_event(), not {skip!r}")
        return Pattern((), skip)._then(name, Contiguity.STRICT, "begin")

    def next(self, name: str | Pattern) -> Pattern:
        """The next event must be accepted by this stage, or group."""
        return self._then(name, Contiguity.STRICT, "next")

    def followed_by(self, name: str | Pattern) -> Pattern:
        """The next event that this stage, or group, accepts; others in between are passed over."""
        return self._then(name, Contiguity.RELAXED, "followed_by")

    def followed_by_any(self, name: str | Pattern) -> Pattern:
        """Each later event that this stage, or group, accepts makes a match of its own."""
        return self._then(name, Contiguity.ANY, "followed_by_any")

    def not_next(self, name: str) -> Pattern:
        """The next event must not be accepted by this stage."""
        return self._never(name, Contiguity.NOT_NEXT, "not_next")

    def not_followed_by(self, name: str) -> Pattern:
        """No event that this stage accepts comes before that of the next stage; as the last stage, before ``within`` is over."""
        return self._never(name, Contiguity.NOT_FOLLOWED, "not_followed_by")

    def _then(self, given: str | Pattern, contiguity: Contiguity, method: str) -> Pattern:
        if isinstance(given, Pattern):
            return replace(self, stages=(*self.stages, Stage("", contiguity, given)))
        if not isinstance(given, str) or not given:
            raise GraphError(f"{method}() takes the name of a stage, or a pattern as a group, not {given!r}")
        if any(given == each.name for each in self.all_stages()):
            raise GraphError(f"{method}({given!r}): the pattern has a stage of this name already; matches list events by name")
        return replace(self, stages=(*self.stages, Stage(given, contiguity)))

    def _never(self, name: str, contiguity: Contiguity, method: str) -> Pattern:
        if isinstance(name, Pattern):
            raise GraphError(f"{method}() takes the name of a single stage, not a group; negate its stages one by one")
        if self._last.optional:
            raise GraphError(
                f"{method}({name!r}) after {self._last.text}, which is optional, is ambiguous; write two patterns, one with the "
                "optional stage and one without it"
            )
        return self._then(name, contiguity, method)

    # -- conditions

    def where(self, condition: Any) -> Pattern:
        """Accept only events for which this holds, and all earlier conditions of the stage.

        ``condition``: a function of an element; or of an element and a context, from which it gets the elements that the match
        has accepted before; or a SimpleCondition or IterativeCondition; or an expression, such as ``col("price") > 10``, which is
        computed over columns.
        """
        given = self._condition(condition, "where")
        before = self._last.condition
        return self._with(condition=given if before == ALWAYS else All(before, given))

    def or_where(self, condition: Any) -> Pattern:
        """Also accept events for which this holds, instead of the conditions so far."""
        given = self._condition(condition, "or_where")
        before = self._last.condition
        return self._with(condition=given if before == ALWAYS else Either(before, given))

    def subtype(self, cls: type) -> Pattern:
        """Accept only elements of a class."""
        if not isinstance(cls, type):
            raise GraphError(f"subtype() takes a class, not {cls!r}")
        return self.where(lambda element: isinstance(element, cls))

    def until(self, condition: Any) -> Pattern:
        """End a repeated stage at the first event for which this holds; the event itself is not part of it."""
        if self._last.until is not None:
            raise GraphError(f"until() was called before for {self._last.text}; combine the two conditions with `or`")
        if not self._last.loops:
            raise GraphError(f"until() ends a stage that repeats any number of times; call one_or_more() for {self._last.text}")
        return self._with(until=condition_of(condition, "until"))

    def _condition(self, given: Any, method: str) -> Atom:
        if self._last.group is not None:
            raise GraphError(f"{method}() applies to a stage, not to a group; give its stages their conditions")
        return condition_of(given, method)

    # -- repetition

    def optional(self) -> Pattern:
        """The stage, or group, may be missing."""
        if self._last.optional:
            raise GraphError(f"optional() was called before for {self._last.text}")
        if self._last.contiguity.is_not:
            raise GraphError(f"optional() has no meaning for {self._last.text}, whose event must not come")
        if len(self.stages) > 1 and self.stages[-2].greedy:
            raise GraphError(
                f"optional() for {self._last.text} after {self.stages[-2].text}, which is greedy, is ambiguous: drop one of them"
            )
        return self._with(optional=True)

    def one_or_more(self, window_time: timedelta | int | None = None) -> Pattern:
        """The stage accepts one or more events. ``window_time``: the largest time between one and the next."""
        return self._repeated("one_or_more", 1, None, window_time)

    def times_or_more(self, times: int, window_time: timedelta | int | None = None) -> Pattern:
        """The stage accepts at least this number of events."""
        return self._repeated("times_or_more", times, None, window_time)

    def times(self, times: int, to_times: int | None = None, window_time: timedelta | int | None = None) -> Pattern:
        """The stage accepts this number of events, or from this number to ``to_times``; 0 makes it optional."""
        most = times if to_times is None else to_times
        if times == 0 and to_times:
            return self._repeated("times", 1, most, window_time)._with(optional=True)
        return self._repeated("times", times, most, window_time)

    def _repeated(self, method: str, low: int, high: int | None, gap: timedelta | int | None) -> Pattern:
        self._check_repeats(method)
        if self._last.times is not None:
            raise GraphError(f"{method}(): {self._last.text} repeats already; give it one quantifier")
        numbers = (low,) if high is None else (low, high)
        if any(type(each) is not int or each < 1 for each in numbers) or list(numbers) != sorted(numbers):
            given = " to ".join(map(repr, dict.fromkeys(numbers)))
            raise GraphError(
                f"{method}() for {self._last.text}: {given} is no number, or range of numbers from 1 (see optional())"
            )
        gap_ms = None if gap is None else _duration_ms(gap, method)
        return self._with(times=Times(low, high, within_ms=gap_ms))

    def greedy(self) -> Pattern:
        """Repeat as often as possible: an event that the stage and the next one accept belongs to this stage only."""
        self._check_repeats("greedy")
        if self._last.group is not None:
            raise GraphError(f"greedy() applies to a stage, not to a group; call it for a stage of {self._last.text}")
        times = self._last.times
        if times is None:
            raise GraphError(f"greedy() needs a stage that repeats; call one_or_more() or times() for {self._last.text}")
        if times.inner is Contiguity.ANY:
            raise GraphError(f"greedy() has no meaning with allow_combinations(), which {self._last.text} has; drop one of them")
        return self._with(times=replace(times, greedy=True))

    def consecutive(self) -> Pattern:
        """Between the events of a repeated stage there must be no others."""
        return self._inner("consecutive", Contiguity.STRICT)

    def allow_combinations(self) -> Pattern:
        """Each subset of the events that a repeated stage accepts makes a match of its own."""
        return self._inner("allow_combinations", Contiguity.ANY)

    def _inner(self, method: str, inner: Contiguity) -> Pattern:
        times = self._last.times
        if times is None:
            raise GraphError(f"{method}() needs a stage that repeats; call one_or_more() or times() for {self._last.text}")
        if times.inner is not Contiguity.RELAXED:
            raise GraphError(f"{method}(): {self._last.text} is already told what may come between its events; say it once")
        return self._with(times=replace(times, inner=inner))

    def _check_repeats(self, method: str) -> None:
        if self._last.contiguity.is_not:
            raise GraphError(f"{method}() has no meaning for {self._last.text}, whose event must not come")

    # -- time

    def within(self, window_time: timedelta | int, within_type: WithinType = WithinType.FIRST_AND_LAST) -> Pattern:
        """Limit the time between the first and the last event of a match, or between the event before and that of this stage.

        ``window_time``: timedelta or int ms; a match must be shorter than that. Of several limits from first to last, the
        shortest counts. A partial match that reaches the limit has timed out.
        """
        limit_ms = _duration_ms(window_time, "within")
        if not isinstance(within_type, WithinType):
            kinds = " or ".join(map(str, WithinType))
            raise GraphError(f"within() for {self._last.text} takes {kinds}, not {within_type!r}")
        if within_type is WithinType.PREVIOUS_AND_CURRENT:
            if len(self.stages) == 1 and self._last.times is None:
                raise GraphError("within(…, PREVIOUS_AND_CURRENT): nothing comes before the first stage; call it for a later one")
            return self._with(within_ms=limit_ms)
        return self._with(total_ms=limit_ms)

    @property
    def total_ms(self) -> int | None:
        """The limit from the first to the last event, None without any."""
        return min((each.total_ms for each in self.stages if each.total_ms is not None), default=None)

    # -- reading

    @property
    def _last(self) -> Stage:
        return self.stages[-1]

    def _with(self, **changes: Any) -> Pattern:
        return replace(self, stages=(*self.stages[:-1], replace(self._last, **changes)))

    def all_stages(self) -> Iterator[Stage]:
        """The stages, also those of groups; and the groups themselves, which have no names."""
        for stage in self.stages:
            yield stage
            if stage.group is not None:
                yield from stage.group.all_stages()

    def bound_to(self, of: TypeInformation | None) -> Pattern:
        """The pattern with conditions over columns of elements of this type. Raises ConfigError."""
        known: dict[int, Atom] = {}

        def bound(atom: Atom) -> Atom:
            if atom.columns is None or not hasattr(atom.columns, "_bound_to"):
                return atom
            if id(atom) not in known:
                known[id(atom)] = replace(atom, columns=atom.columns._bound_to(of))
            return known[id(atom)]

        return self._with_conditions(lambda condition: mapped(condition, bound))

    def _with_conditions(self, of: Callable[[Condition], Condition]) -> Pattern:
        stages = (
            replace(
                stage,
                group=None if stage.group is None else stage.group._with_conditions(of),
                condition=of(stage.condition),
                until=None if stage.until is None else of(stage.until),
            )
            for stage in self.stages
        )
        return replace(self, stages=tuple(stages))

    def explain(self) -> str:
        """The states in which a partial match can be. Each takes an event, passes over it, or leaves it to another state.

        A notebook shows them as a drawing."""
        from forkpoint.patterns.explanation import explained

        return explained(self._automaton())

    def progress(self, partial_matches: Any) -> list[Progress]:
        """How far the partial matches of a key are, and what they wait for.

        ``partial_matches``: the value of the operator's state of this name for the key, of a savepoint or a running job; None if
        the key has none.
        """
        from forkpoint.patterns.explanation import progress

        return progress(self._automaton(), partial_matches)

    def _repr_html_(self) -> str:
        from forkpoint.patterns.explanation import html

        return html(f"Pattern {self.outline}", self._automaton())

    def _automaton(self) -> Automaton:
        from forkpoint.patterns.compiling import automaton_of

        return automaton_of(self)

    @property
    def outline(self) -> str:
        """The stages' names, in words."""
        parts = []
        for number, stage in enumerate(self.stages):
            how = f"{stage.contiguity.value} " if number else ""
            parts.append(how + stage.outline)
        return " ".join(parts)


def grouped(outlines: list[str], grouping: Grouping) -> str:
    """What alternatives, or stages in any order, are, in words."""
    return " or ".join(outlines) if grouping is Grouping.ONE else f"{', '.join(outlines)} {grouping.value}"


def check(pattern: Pattern) -> None:
    """Raise GraphError for a pattern that can never match, or whose state would grow without limit."""
    names = [stage.name for stage in pattern.all_stages() if stage.group is None]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise GraphError(f"the pattern has two stages named {repeated!r}; matches list events by name, so rename one")
    if pattern.skip.stage and pattern.skip.stage not in names:
        raise GraphError(f"{pattern.skip.kind}({pattern.skip.stage!r}): the pattern has no such stage; it has {', '.join(names)}")
    for stage in pattern.all_stages():
        if stage.group is not None and stage.group.total_ms is not None:
            raise GraphError(f"within() limits the whole match: call it for the pattern that has {stage.text}, not inside")
        if stage.group is not None and stage.loops and all(each.may_lack for each in stage.group.stages):
            raise GraphError(f"{stage.text} repeats, but may have no events at all; make one of its stages necessary")
    last, total_ms = pattern.stages[-1], pattern.total_ms
    if last.contiguity is Contiguity.NOT_FOLLOWED and total_ms is None and last.within_ms is None:
        raise GraphError(
            f"not_followed_by({last.name!r}) is the last stage, so a match is complete once nothing has come for some time: "
            "add within(…)"
        )
    if total_ms is not None:
        for stage in pattern.all_stages():
            gap_ms = max(stage.within_ms or 0, (stage.times.within_ms or 0) if stage.times is not None else 0)
            if gap_ms > total_ms:
                raise GraphError(
                    f"{stage.text}: {gap_ms} ms since the event before is more than the whole match may take, {total_ms} ms"
                )


def _duration_ms(given: timedelta | int, method: str) -> int:
    found = to_ms(given, f"the time of {method}()")
    if found < 1:
        raise GraphError(f"{method}(): the time must be at least 1 ms, not {given!r}")
    return found
