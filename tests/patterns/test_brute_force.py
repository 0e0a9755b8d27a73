"""Patterns match what trying all events finds, wherever epochs are cut, at any parallelism, through savepoints."""

import tempfile
from dataclasses import replace

from brute_force import Condition, Event, Spec, Stage, assert_skipped, matches, preferred
from hypothesis import example, given, note
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.api.patterns import CEP
from forkpoint.patterns.compiling import automaton_of
from forkpoint.patterns.functions import PatternProcessFunction, TimedOutPartialMatchHandler
from forkpoint.patterns.matching import Matcher, Runs
from forkpoint.patterns.pattern import Grouping
from forkpoint.patterns.skipping import AfterMatchSkipStrategy
from forkpoint.patterns.stored import RunsCodec
from forkpoint.testing import ABORT, Eof, TestSource, run_local

subsets = st.sampled_from(["a", "b", "c", "ab", "ac", "bc", "abc", "abd", "d"])


@st.composite
def stages(draw, name, how, found, *, head=False):
    """A stage with events. ``found``: the stages before it. ``head``: it is the first of a group."""
    before = found[-1] if found else None
    refused = any(stage.is_not for stage in found[max((at + 1 for at, each in enumerate(found) if _must(each)), default=0) :])
    # What must not come before a stage of 1 to 2 events, Flink does or does not refuse between them, depending on what else came.
    fixed = [None, None, (1, None), (2, None), (2, 2)]
    than = draw(st.sampled_from([None, None, None, "s0", name]))
    stage = Stage(how, name, Condition(draw(subsets), than))
    times = draw(st.sampled_from(fixed if refused else [*fixed, (1, 2), (2, 3)]))
    if times is not None:
        stage = replace(stage, low=times[0], high=times[1], inner=draw(st.sampled_from(["relaxed", "next", "any"])))
        greedy = stage.inner != "any" and draw(st.booleans())
        until = Condition(draw(subsets)) if times[1] is None and draw(st.booleans()) else None
        stage = replace(stage, greedy=greedy, until=until)
    if times == (2, 2):
        stage = replace(stage, gap=draw(st.sampled_from([None, 1, 2])))
    if not head and not (before is not None and before.greedy):
        stage = replace(stage, optional=draw(st.booleans()))
    single = before is not None and before.low is None and not before.optional and not before.group
    single = single and not before.is_not  # Flink lets the event after not_next() come later
    if single and not stage.optional and stage.low is None:
        stage = replace(stage, within=draw(st.sampled_from([None, None, 1, 2, 3])))
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
        # Likewise after a stage of 1 to 2 events.
        plain = plain and (before.low == before.high or before.high is None)
        if plain and nots and draw(st.booleans()):
            how = draw(st.sampled_from(["not_next", "not_followed_by"] if before.low is None else ["not_followed_by"]))
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
                once = group[-1].low is None and not group[-1].optional  # else Flink does not see the next stage in the event
                until = Condition(draw(subsets)) if times[1] is None and once and draw(st.booleans()) else None
                found[-1] = replace(found[-1], low=times[0], high=times[1], inner=inner, until=until)
        else:
            found.append(draw(stages(name, how, found, head=prefix != "s" and not found)))
    if any(stage.is_not for stage in found) and not found[-1].is_not:
        found[-1] = replace(found[-1], optional=False)  # else it is open how long an event must not come
    return tuple(_disjoint(found))


def _must(stage):
    return not stage.is_not and not stage.optional


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
    return Spec(found, total, draw(strategies(found)) if limited else AfterMatchSkipStrategy.no_skip())


@st.composite
def strategies(draw, found):
    names = [stage.name for stage in found if stage.name and not stage.is_not] or [found[0].group[0].name]
    skip, name = AfterMatchSkipStrategy, draw(st.sampled_from(names))
    return draw(
        st.sampled_from([skip.skip_to_next(), skip.skip_past_last_event(), skip.skip_to_first(name), skip.skip_to_last(name)])
    )


# -- alternatives, and stages in any order, which SQL has

ORDERED = [AfterMatchSkipStrategy.skip_to_next(), AfterMatchSkipStrategy.skip_past_last_event()]


@st.composite
def elements(draw, name, quantifiers, depth, *, must=False, last=False):
    """A stage that comes right after the one before, or a group. ``must``: it has events. ``last``: it may be the last."""
    kind = draw(st.sampled_from([None, None, None, *Grouping] if depth else [None]))
    if kind is None:
        found = Stage("next", name, Condition(draw(subsets), draw(st.sampled_from([None, None, None, name]))))
    else:
        number = draw(st.integers(2, 3))
        ends = [kind is Grouping.SEQUENCE and at + 1 == number for at in range(number)]  # else Flink's sequence refuses too much
        needed = [must or kind is Grouping.ONE or not at or (last and ends[at]) for at in range(number)]
        parts = (
            elements(
                f"{name}g{at}", quantifiers, depth - 1, must=needed[at], last=ends[at] or (last and kind is not Grouping.SEQUENCE)
            )
            for at in range(number)
        )
        found = Stage("next", "", group=tuple(map(draw, parts)), grouping=kind)
    times = draw(st.sampled_from([None, None, (1, None), (1, 2), (2, 2)])) if quantifiers else None
    if kind is not None and times is None:
        found = replace(found, low=1, high=1, inner="next")
    if times is not None:
        plain = kind is None or (kind is Grouping.ONE and all(each.name and each.low is None for each in found.group))
        greedy = plain and not last and times != (2, 2) and draw(st.booleans())
        if kind is not None and greedy:
            if any(each.accepts.than for each in found.group):
                greedy = False
            found = replace(found, accepts=Condition("".join({kind for each in found.group for kind in each.accepts.kinds})))
        found = replace(found, low=times[0], high=times[1], inner="next", greedy=greedy)
    return replace(found, optional=quantifiers and not must and draw(st.booleans()))


@st.composite
def grouped(draw, *, quantifiers=True):
    number = draw(st.integers(1, 3))
    parts = (elements(f"s{at}", quantifiers, 2, must=at in (0, number - 1), last=at + 1 == number) for at in range(number))
    first, *others = map(draw, parts)
    skip = AfterMatchSkipStrategy.no_skip() if quantifiers else draw(st.sampled_from(ORDERED))
    total = draw(st.sampled_from([3, 6, *[None] * quantifiers]))  # else partial matches hold others back at the end
    return Spec((replace(first, how="begin"), *others), total, skip)


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


def run(spec, events, between=lambda runs: runs, timed_out=None):
    """The matches of the automaton, in their order. ``between``: what becomes of partial matches between two events."""
    pattern = spec.pattern()
    matcher, runs, asked, found = Matcher(automaton_of(pattern), pattern.skip, "patterns"), Runs(), Asked(events), []

    def end(until):
        while (at := matcher.next_timeout(runs)) is not None and at <= until:
            complete, ended = matcher.advance(runs, at)
            found.extend(complete)
            if timed_out is not None:
                timed_out.extend(ended)

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


def spec(*given):
    return Spec(tuple(Stage(how, name, Condition(kinds), **more) for how, name, kinds, more in given))


def kinds(given):
    return [Event("k", kind, 0, at) for at, kind in enumerate(given)]


MANY = {"low": 1}
A, NOT_D = ("begin", "s0", "a", {}), ("not_followed_by", "s1", "d", {})
LAST = ("followed_by", "s3", "c", {})


# Shapes that are seldom drawn.
@example(spec(A, NOT_D, ("followed_by", "s2", "b", {"optional": True}), LAST), kinds("abdc"))
@example(spec(A, NOT_D, ("followed_by", "s2", "b", {**MANY, "optional": True}), LAST), kinds("abdc"))
@example(spec(A, NOT_D, ("followed_by", "s2", "b", {"optional": True}), LAST), kinds("adc"))
@example(spec(("begin", "s0", "a", {**MANY, "greedy": True, "until": Condition("c")}), LAST), kinds("aac"))
@example(spec(("begin", "s0", "a", MANY), NOT_D, LAST), kinds("abdac"))
@examples(300)
@given(specs(), event_lists())
def test_matches_are_those_that_trying_all_events_finds(spec, events):
    note(f"{spec} {' '.join(map(str, events))}")
    assert shown(run(spec, events)) == shown(each.by_stage() for each in matches(spec, events))


@examples(150)
@given(specs(limited=True), event_lists())
def test_matches_are_skipped_in_the_order_of_their_first_events(spec, events):
    note(f"{spec} {' '.join(map(str, events))}")
    assert_skipped(spec, matches(spec, events), run(spec, events))


@examples(80)
@given(specs(), event_lists())
def test_partial_matches_are_the_same_from_state(spec, events):
    codec = RunsCodec(automaton_of(spec.pattern()))
    assert run(spec, events, lambda runs: codec.decode(codec.encode(runs))) == run(spec, events)


def one(kinds, name, **more):
    return Stage("next", name, Condition(kinds), **more)


def group(*stages, how="next", grouping=Grouping.SEQUENCE):
    return Stage(how, "", group=stages, low=1, high=1, inner="next", grouping=grouping)


GREEDY = group(one("a", "s0", low=1, inner="next", greedy=True), one("b", "s1"), how="begin", grouping=Grouping.ONE)
# Three matches wait until a longer one is complete, which begins earlier.
LONG = group(one("d", "s0"), one("a", "s1"), one("b", "s2"), one("b", "s3"))
SHORT = group(one("a", "s4"), group(one("b", "s5"), one("b", "s6"), one("b", "s7"), grouping=Grouping.ONE))


@example(Spec((GREEDY, one("ac", "s2"))), kinds("ba"))
@example(Spec((GREEDY, one("ac", "s2"))), kinds("aaac"))
@examples(80)
@given(grouped(), event_lists(most=5))
def test_alternatives_and_stages_in_any_order_match_as_each_of_their_sequences(spec, events):
    note(f"{spec} {' '.join(map(str, events))}")
    codec = RunsCodec(automaton_of(spec.pattern()))
    found = run(spec, events, lambda runs: codec.decode(codec.encode(runs)))
    assert sorted(set(shown(found))) == sorted(set(shown(each.by_stage() for each in matches(spec, events))))


@example(Spec((group(LONG, SHORT, how="begin", grouping=Grouping.ONE),), 9, ORDERED[0]), kinds("dabb"))
@examples(60)
@given(grouped(quantifiers=False), event_lists(most=10))
def test_of_matches_that_end_with_one_event_that_of_the_first_alternatives_is_left(spec, events):
    note(f"{spec} {' '.join(map(str, events))}")
    assert run(spec, events) == preferred(spec, matches(spec, events))


# -- jobs

TIMED_OUT = fp.OutputTag("timed out", tuple)
BOUND = 2


class Ids(PatternProcessFunction, TimedOutPartialMatchHandler):
    def process_match(self, match, ctx):
        yield ids(match)

    def process_timed_out_match(self, match, ctx):
        yield TIMED_OUT, ids(match)


def ids(match):
    """The key, and the events' numbers in the input by stage."""
    key = next(event.key for events in match.values() for event in events)
    return key, tuple((stage, tuple(event.id for event in events)) for stage, events in match.items())


@st.composite
def disordered(draw):
    """Events of two keys, out of order by at most the bound."""
    now, found = 0, []
    for number in range(draw(st.integers(4, 24))):
        now += draw(st.sampled_from([0, 1, 1, 2]))
        kind, value, back = draw(st.sampled_from("abcabcd")), draw(st.integers(0, 2)), draw(st.sampled_from([0, 0, 1, BOUND]))
        found.append(Event(draw(st.sampled_from("kl")), kind, value, now - back, number))
    return found


def expected(spec, events):
    """Matches, and partial matches that time out, by key."""
    found, timed_out = {}, {}
    for key in sorted({event.key for event in events}):
        own = sorted((event for event in events if event.key == key), key=lambda event: event.ts)
        ended = []
        for into, these in ((found, run(spec, own, timed_out=ended)), (timed_out, ended)):
            shown = [
                (key, tuple((stage, tuple(own[n].id for n in numbers)) for stage, numbers in each.items())) for each in these
            ]
            into.update({key: shown} if shown else {})
    return found, timed_out


def run_job(spec, script, **how):
    def build(env, source):
        strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(BOUND).with_timestamp_assigner(lambda e, _: e.ts)
        stream = env.from_source(source, strategy, "events").uid("events").key_by(lambda e: e.key)
        found = CEP.pattern(stream, spec.pattern()).process(Ids(), tuple).uid("matches")
        return {"found": found, "timed out": found.get_side_output(TIMED_OUT)}

    return run_local(build, TestSource(script, type=Event), **how)


def by_key(*runs):
    found, timed_out = {}, {}
    for each in runs:
        for into, name in ((found, "found"), (timed_out, "timed out")):
            for key, values in each.by_key(lambda row: row[0], name).items():
                into.setdefault(key, []).extend(values)
    return found, timed_out


parallelisms = st.integers(1, 3)


@examples(40)
@given(specs(), disordered(), st.sets(st.integers(1, 23), max_size=6), parallelisms, st.integers(0, 24))
def test_a_job_finds_the_same_wherever_epochs_are_cut_also_if_its_process_dies(spec, events, cuts, parallelism, at):
    note(f"{spec} {' '.join(map(str, events))}")
    script = [*events[:at], ABORT, *events[at:]]
    assert by_key(run_job(spec, script, epochs=sorted(cuts), parallelism=parallelism)) == expected(spec, events)


@examples(20)
@given(specs(limited=True), disordered(), st.data())
def test_a_savepoint_in_the_midst_restored_at_another_parallelism(spec, events, data):
    note(f"{spec} {' '.join(map(str, events))}")
    at, first, second = data.draw(st.integers(1, len(events) - 1)), data.draw(parallelisms), data.draw(parallelisms)
    script = [*events[:at], Eof(savepoint=True), *events[at:]]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        before = run_job(spec, script, parallelism=first, state_root=one, epochs=3)
        after = run_job(spec, script, parallelism=second, state_root=two, epochs=3, restore=before.savepoint)
    assert by_key(before, after) == expected(spec, events)
