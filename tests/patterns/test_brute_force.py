"""Patterns match what trying all events finds, wherever epochs are cut, at any parallelism, through savepoints."""

from dataclasses import replace

from brute_force import Condition, Event, Spec, Stage, matches, skipped
from hypothesis import assume, given, note
from hypothesis import strategies as st

from example_counts import examples
from forkpoint.patterns.compiling import automaton_of
from forkpoint.patterns.matching import Matcher, Runs
from forkpoint.patterns.skipping import AfterMatchSkipStrategy
from forkpoint.patterns.stored import RunsCodec


subsets = st.sampled_from(["a", "b", "c", "ab", "ac", "bc", "abc", "abd", "d"])


@st.composite
def stages(draw, name, how, *, before, head=False, repeats=True):
    """A stage with events. ``before``: the stage before it."""
    than = draw(st.sampled_from([None, None, None, "s0", name]))
    stage = Stage(how, name, Condition(draw(subsets), than))
    times = draw(st.sampled_from([None, None, (1, None), (2, None), (2, 2), (1, 2), (2, 3)])) if repeats else None
    if times is not None:
        stage = replace(stage, low=times[0], high=times[1], inner=draw(st.sampled_from(["relaxed", "next", "any"])))
        greedy = stage.inner != "any" and draw(st.booleans())
        until = Condition(draw(subsets)) if times[1] is None and draw(st.booleans()) else None
        stage = replace(stage, greedy=greedy, until=until)
    if not head and not (before is not None and before.greedy):
        stage = replace(stage, optional=draw(st.booleans()))
    return stage


@st.composite
def sequences(draw, *, prefix="s", most=4, groups=True, nots=True):
    found = []
    number = draw(st.integers(1, most))
    hows = ["next", "followed_by", "followed_by_any"]
    while len(found) < number:
        name, before = f"{prefix}{len(found)}", found[-1] if found else None
        how = draw(st.sampled_from(hows)) if found else "begin"
        plain = before is not None and not before.optional and not before.is_not and not before.group and not before.greedy
        # After a stage of 1 to 2 events, Flink does or does not refuse between them, depending on what came before.
        plain = plain and (before.low == before.high or before.high is None)
        if plain and nots and draw(st.integers(0, 2)) == 0:
            how = draw(st.sampled_from(["not_next", "not_next", "not_followed_by"] if before.low is None else ["not_followed_by"]))
            found.append(Stage(how, name, Condition(draw(subsets))))
        elif groups and draw(st.integers(0, 5)) == 0:
            group = draw(sequences(prefix=f"{name}g", most=2, groups=False, nots=False))
            group = (*group[:-1], replace(group[-1], greedy=False))  # it would refuse events after the group also without it
            times = draw(st.sampled_from([None, (2, 2), (1, 2), (1, None)]))
            optional = not (before is not None and before.greedy) and draw(st.booleans())
            found.append(Stage(how, "", group=group, optional=optional))
            if times is not None:
                # Flink looks for the next stage also from events that it passed over while it waited for the group again.
                inner = draw(st.sampled_from(["relaxed", "next", "any"])) if times == (2, 2) else "next"
                found[-1] = replace(found[-1], low=times[0], high=times[1], inner=inner)
        else:
            found.append(draw(stages(name, how, before=before, head=prefix != "s" and not found)))
    if any(stage.is_not for stage in found) and not found[-1].is_not:
        found[-1] = replace(found[-1], optional=False)  # else it is open how long an event must not come
    return tuple(_disjoint(found))


def _disjoint(found):
    """What must not come is none of what may come instead: an event that is both ends the partial match, except as its last."""
    for at, stage in enumerate(found):
        if stage.how != "not_followed_by":
            yield stage
            continue
        others = set(found[at - 1].accepts.kinds) if found[at - 1].low is not None else set()
        for later in found[at + 1 :]:
            others |= _first_kinds(later)
            if not later.optional:
                break
        yield replace(stage, accepts=Condition("".join(k for k in stage.accepts.kinds if k not in others) or "x"))


def _first_kinds(stage):
    return _first_kinds(stage.group[0]) if stage.group else set(stage.accepts.kinds)


@st.composite
def specs(draw, *, limited=None):
    found = draw(sequences())
    waits = found[-1].how == "not_followed_by"
    total = draw(st.integers(3, 12)) if limited or waits or draw(st.booleans()) else None
    return Spec(found, total)


def event_lists(most=8):
    row = st.tuples(st.sampled_from("abcabcd"), st.integers(0, 2), st.sampled_from([0, 1, 1, 2]))

    def timed(rows):
        now, found = 0, []
        for kind, value, step in rows:
            now += step
            found.append(Event("k", kind, value, now))
        return found

    return st.lists(row, min_size=2, max_size=most).map(timed)


class Asked:
    """Answers conditions for the matcher, with the events in a list."""

    def __init__(self, events):
        self._events, self.at, self._run = events, 0, None

    def __call__(self, atom, run):
        self._run = run
        event = self._events[self.at]
        return atom.accepts(event, self) if atom.iterative else atom.accepts(event)

    def get_events_for_pattern(self, name):
        step, found = None if self._run is None else self._run.step, []
        while step is not None:
            found += [self._events[step.event]] if step.stage == name else []
            step = step.before
        return found[::-1]


def run(spec, events, between=lambda runs: runs):
    """The matches of the automaton, in their order. ``between``: what becomes of partial matches between two events."""
    pattern = spec.pattern()
    matcher, runs, asked, found = Matcher(automaton_of(pattern), pattern.skip, "patterns"), Runs(), Asked(events), []

    def end(until):
        while (at := matcher.next_timeout(runs)) is not None and at <= until:
            found.extend(matcher.advance(runs, at)[0])

    for asked.at, event in enumerate(events):
        end(event.ts)
        found += matcher.accept(runs, event.ts, asked)
        number = runs.next_event
        runs = between(runs)
        assert runs.next_event == number
    end(10**9)
    return found


def shown(found):
    return sorted(repr(sorted(each.items())) for each in found)


@examples(300)
@given(specs(), event_lists())
def test_matches_are_those_that_trying_all_events_finds(spec, events):
    note(f"{spec} {' '.join(map(str, events))}")
    assert shown(run(spec, events)) == shown(each.by_stage() for each in matches(spec, events))
