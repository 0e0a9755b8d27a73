"""Which matches a pattern has, from what its stages mean alone: no automaton, no partial matches, only all ways to choose events.

A pattern is unrolled into sequences of slots, one for each event of a match; events are tried for each slot, and each is checked
against the events since the slot before. What is left open: the order of matches that begin with one event, and so which of them
skips the others.

Where Flink is stricter than that, so is this:

- What ``not_followed_by`` refuses after a stage that repeats, is refused from the stage's first event on, not only from its last.
- ``greedy`` holds until the next stage has its event: the stage's events are refused also if it has as many as it may have, or
  none. If ``until`` ends it with the very next event, they are not.
- ``until`` of a group also refuses events ahead of the group's first.
- The first stage of a group that repeats takes what may come between its events from the group.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import NamedTuple

from forkpoint.patterns.conditions import condition_of
from forkpoint.patterns.pattern import Grouping, Pattern, WithinType
from forkpoint.patterns.skipping import AfterMatchSkipStrategy


class Event(NamedTuple):
    key: str
    kind: str
    value: int
    ts: int
    id: int = 0

    def __str__(self) -> str:
        return f"{self.kind}{self.value}@{self.ts}"


@dataclass(frozen=True)
class Condition:
    """An event of one of these kinds; and no less than the events that the match has for the stage ``than``."""

    kinds: str
    than: str | None = None

    def __str__(self) -> str:
        return f"[{self.kinds}]" + ("" if self.than is None else f">={self.than}")

    def accepts(self, event, match):
        return event.kind in self.kinds and all(event.value >= other.value for stage, other in match if stage == self.than)


@dataclass(frozen=True)
class Stage:
    """``low`` None: once. ``high`` None: without limit. A group that is greedy
    ``accepts`` what its stages do."""

    how: str
    name: str = ""
    accepts: Condition = Condition("")
    group: tuple["Stage", ...] = ()
    low: int | None = None
    high: int | None = None
    inner: str = "relaxed"
    optional: bool = False
    greedy: bool = False
    until: Condition | None = None
    within: int | None = None  # since the event before
    gap: int | None = None  # between its events
    grouping: Grouping = Grouping.SEQUENCE

    @property
    def is_not(self):
        return self.how.startswith("not")

    def __str__(self) -> str:
        """In short, for a failure."""
        what = f"({f' {self.grouping.value} '.join(map(str, self.group))})" if self.group else f"{self.name}={self.accepts}"
        times = "" if self.low is None else f"{{{self.low},{self.high}}} {self.inner}"
        flags = [name for name in ("optional", "greedy") if getattr(self, name)]
        flags += [f"{name} {value}" for name in ("until", "within", "gap") if (value := getattr(self, name)) is not None]
        return " ".join([self.how, what + times, *flags])


@dataclass(frozen=True)
class Spec:
    stages: tuple[Stage, ...]
    total: int | None = None
    skip: AfterMatchSkipStrategy = field(default_factory=AfterMatchSkipStrategy.no_skip)

    def __str__(self) -> str:
        return f"{' '.join(map(str, self.stages))} within {self.total} {self.skip.kind} {self.skip.stage}:"

    def pattern(self) -> Pattern:
        found = _declared(self.stages, self.skip)
        return found if self.total is None else found.within(self.total)


def _declared(stages, skip=None):
    pattern = None
    for stage in stages:
        what = _declared(stage.group) if stage.group else stage.name
        pattern = Pattern.begin(what, skip) if pattern is None else getattr(pattern, stage.how)(what)
        if not stage.group:
            pattern = pattern.where(_function(stage.accepts))
        if stage.low is not None:
            pattern = (
                pattern.times_or_more(stage.low, stage.gap)
                if stage.high is None
                else pattern.times(stage.low, stage.high, stage.gap)
            )
            if stage.inner != "relaxed":
                pattern = pattern.consecutive() if stage.inner == "next" else pattern.allow_combinations()
        if stage.greedy and not stage.group:
            pattern = pattern.greedy()
        if stage.until is not None:
            pattern = pattern.until(_function(stage.until))
        if stage.optional:
            pattern = pattern._with(optional=True)  # also after a greedy stage
        if stage.grouping is not Grouping.SEQUENCE:
            times, condition = pattern._last.times, condition_of(_function(stage.accepts), "where")
            times = times and replace(times, greedy=stage.greedy)
            pattern = pattern._with(grouping=stage.grouping, times=times, condition=condition)
        if stage.within is not None:
            pattern = pattern.within(stage.within, WithinType.PREVIOUS_AND_CURRENT)
    return pattern


def _function(condition):
    if condition.than is None:
        return lambda event: event.kind in condition.kinds
    return lambda event, ctx: condition.accepts(
        event, [(condition.than, other) for other in ctx.get_events_for_pattern(condition.than)]
    )


# -- slots


@dataclass(frozen=True)
class Slot:
    """One event of a match. ``between``: no event of these since the one before it, nor itself. ``first_not``: the event after
    the one before must not be of this. ``greedy``: like ``between``, unless the second of the pair accepts the next event."""

    stage: str
    accepts: Condition
    how: str
    between: tuple[Condition, ...] = ()
    not_itself: tuple[Condition, ...] = ()
    nots: tuple[Condition, ...] = ()
    first_not: tuple[Condition, ...] = ()
    greedy: tuple[tuple[Condition, Condition | None], ...] = ()
    within: int | None = None


@dataclass(frozen=True)
class End:
    """What must not come after the last event."""

    nots: tuple[Condition, ...] = ()
    first_not: tuple[Condition, ...] = ()
    within: int | None = None


def _unrolled(stages, most) -> Iterator[tuple]:
    """Sequences of slots, and of stages that mark what must not come."""
    ways = []
    for at, stage in enumerate(stages):
        following = stages[at + 1] if at + 1 < len(stages) else None
        ways.append([(stage,)] if stage.is_not else list(_ways(stage, following, most)))
    for way in _together(ways, most):
        yield tuple(slot for part in way for slot in part)


def _together(ways, most):
    """One of each of these ways, with as many slots as there may be."""
    if not ways:
        yield ()
        return
    for way in ways[0]:
        left = most - sum(isinstance(each, Slot) for each in way)
        if left >= 0:
            yield from ((way, *others) for others in _together(ways[1:], left))


def _ways(stage, following, most):
    low, high = (1, 1) if stage.low is None else (stage.low, most if stage.high is None else stage.high)
    left = (stage,) if stage.greedy and stage.low != stage.high else ()
    if stage.optional:
        yield left
    not_after = (following.accepts,) if following is not None and following.how == "not_followed_by" else ()
    for number in range(low, min(high, most) + 1):
        if stage.group:
            yield from ((*way, *left) for way in _group_ways(stage, number, most))
        else:
            ends = () if stage.until is None else (stage.until,)
            first = Slot(stage.name, stage.accepts, stage.how, not_itself=ends, within=stage.within)
            gap = stage.within if stage.gap is None else stage.gap
            more = Slot(stage.name, stage.accepts, stage.inner, ends, (), not_after, within=gap)
            yield (first, *(more for _ in range(number - 1)), *left)


def _group_ways(stage, number, most):
    once = [way for order in _orders(stage) for way in _unrolled(_headed(stage, order), most - number + 1) if way]
    for ways in _together([once] * number, most):
        found = []
        for at, way in enumerate(ways):
            found += [replace(way[0], how=stage.inner if at else stage.how), *way[1:]]
        if stage.until is not None:
            found = [replace(s, between=(*s.between, stage.until)) if isinstance(s, Slot) else s for s in found]
        yield tuple(found)


def _orders(group):
    """The sequences of stages that a group stands for, preferred ones first."""
    match group.grouping:
        case Grouping.ONE:
            return [(each,) for each in group.group]
        case Grouping.ANY_ORDER:
            return permutations(group.group)
    return [group.group]


def _headed(group, order):
    head, *others = order
    return (replace(head, inner=group.inner), *others)


def _sequences(spec, most):
    for way in _unrolled(spec.stages, most):
        slots, nots, first_not, greedy, within = [], [], [], [], None
        for part in way:
            if isinstance(part, Slot):
                slots.append(replace(part, nots=(*part.nots, *nots), first_not=tuple(first_not), greedy=tuple(greedy)))
                nots, first_not, greedy, within = [], [], [], None
            elif part.how == "not_followed_by":
                nots.append(part.accepts)
                within = part.within
            elif part.how == "not_next":
                first_not.append(part.accepts)
                within = part.within
            else:
                greedy.append((part.accepts, part.until))
        if slots and len(slots) <= most:
            yield tuple(slots), End(tuple(nots), tuple(first_not), within)


# -- events


@dataclass(frozen=True)
class Found:
    """A match. ``events``: (stage, number of the event). ``at``: when it is complete, as (ms, number of the event)."""

    events: tuple[tuple[str, int], ...]
    at: tuple[int, int]

    @property
    def first(self):
        return self.events[0][1]

    def by_stage(self):
        found: dict[str, list[int]] = {}
        for stage, number in self.events:
            found.setdefault(stage, []).append(number)
        return found


def matches(spec: Spec, events: list[Event]) -> list[Found]:
    """All matches, without skipping any; as often as there are ways to divide their events into the repetitions of a group."""
    return [
        found
        for slots, end in _sequences(spec, len(events))
        for first in range(len(events))
        for found in _chosen(spec, events, slots, end, (), first, first - 1)
    ]


def _chosen(spec, events, slots, end, before, at, last):
    """The matches whose next slot has event ``at``, or a later one where that is allowed. ``last``: the event before it."""
    slot, rest = slots[0], slots[1:]
    match = [(stage, events[number]) for stage, number in before]
    for number in range(at, len(events)):
        event = events[number]
        if _takes(slot, event, match, events, last) and _in_time(spec, slot, events, before, number):
            taken = (*before, (slot.stage, number))
            if rest:
                yield from _chosen(spec, events, rest, end, taken, number + 1, number)
            else:
                yield from _ended(spec, events, end, taken)
        if not before or not _passes(slot, event, match, events, last):
            return


def _greedy(slot, match, events, last):
    following = events[last + 1]
    return [own for own, until in slot.greedy if until is None or not until.accepts(following, match)]


def _refuses(slot, event, match, events, last):
    refused = [*slot.between, *slot.nots, *_greedy(slot, match, events, last)]
    return any(each.accepts(event, match) for each in refused) or any(
        each.accepts(events[last + 1], match) for each in slot.first_not
    )


def _takes(slot, event, match, events, last):
    if _refuses(slot, event, match, events, last) or any(each.accepts(event, match) for each in slot.not_itself):
        return False
    return slot.accepts.accepts(event, match)


def _passes(slot, event, match, events, last):
    if slot.how in ("begin", "next") or _refuses(slot, event, match, events, last):
        return False
    return slot.how in ("any", "followed_by_any") or not slot.accepts.accepts(event, match)


def _in_time(spec, slot, events, before, number):
    if not before:
        return True
    since_first = events[number].ts - events[before[0][1]].ts
    since_last = events[number].ts - events[before[-1][1]].ts
    return (spec.total is None or since_first < spec.total) and (slot.within is None or since_last < slot.within)


def _ended(spec, events, end, taken):
    last = taken[-1][1]
    match = [(stage, events[number]) for stage, number in taken]
    limits = [] if spec.total is None else [events[taken[0][1]].ts + spec.total]
    limits += [] if end.within is None else [events[last].ts + end.within]
    later = [event for event in events[last + 1 :] if not limits or event.ts < min(limits)]
    if end.first_not:
        if later and not any(each.accepts(later[0], match) for each in end.first_not):
            yield Found(taken, (later[0].ts, last + 1))
    elif end.nots:
        if not any(each.accepts(event, match) for each in end.nots for event in later):
            yield Found(taken, (min(limits), -1))
    else:
        yield Found(taken, (events[last].ts, last))


# -- skipping


def preferred(spec: Spec, found: list[Found]) -> list[dict[str, list[int]]]:
    """The matches that are left of stages without quantifiers, where the strategy drops all others that begin with one event:
    the one that ends first, of those the one that comes first in ``found``."""
    begins, left = -1, []
    for first in sorted({each.first for each in found}):
        if first >= begins:
            left.append(min((each for each in found if each.first == first), key=lambda each: each.at))
            begins = _skipped_until(spec.skip, left[-1])
    return [each.by_stage() for each in left]


def assert_skipped(spec: Spec, found: list[Found], left: list[dict[str, list[int]]]) -> None:
    """That those that are ``left`` come in the order of their first events, and skip all others and only these. All partial
    matches must have ended."""
    others: dict[str, list[Found]] = {}
    for each in found:
        others.setdefault(repr(sorted(each.by_stage().items())), []).append(each)
    matches = [others[repr(sorted(each.items()))].pop() for each in left]
    assert [each.first for each in matches] == sorted(each.first for each in matches)
    begins = -1
    for each in matches:
        assert each.first >= begins
        begins = max(begins, _skipped_until(spec.skip, each))
    for each in (each for same in others.values() for each in same):
        assert any(other.first <= each.first < _skipped_until(spec.skip, other) for other in matches)


def _skipped_until(skip, found):
    numbers = [number for _, number in found.events]
    of_stage = [number for stage, number in found.events if stage == skip.stage]
    match skip.kind:
        case "skip_to_next":
            return numbers[0] + 1
        case "skip_past_last_event":
            return numbers[-1] + 1
        case "skip_to_first" if of_stage:
            return of_stage[0]
        case "skip_to_last" if of_stage:
            return of_stage[-1]
    return -1
