"""Each typical mistake in a pattern is refused, with words that name the stage, what was given, and what to write instead."""

import logging

import pytest

import forkpoint as fp
from forkpoint import CEP
from forkpoint.patterns import operator
from forkpoint.patterns.conditions import SimpleCondition
from forkpoint.patterns.functions import PatternProcessFunction
from forkpoint.patterns.pattern import Pattern, WithinType
from forkpoint.patterns.skipping import AfterMatchSkipStrategy
from forkpoint.testing import TestSource, run_local

TAG = fp.OutputTag("timed out", str)


class Large(SimpleCondition):
    def filter(self, value):
        return value > "a"


class Matches(PatternProcessFunction):
    def process_match(self, match, ctx):
        yield str(match)


def is_a(value):
    return value == "a"


def a(skip=None):
    return Pattern.begin("a", skip).where(is_a)


def stream():
    return fp.StreamExecutionEnvironment.get_execution_environment().from_collection(["a", "b"]).key_by(is_a)


def matches(pattern):
    return CEP.pattern(stream(), pattern)


MISTAKES = [
    (
        lambda: matches(a().not_followed_by("b").where(is_a)),
        "not_followed_by('b') is the last stage, so a match is complete once nothing has come for some time: add within(…)",
    ),
    (
        lambda: a().not_followed_by("b").optional(),
        "optional() has no meaning for stage 'b', whose event must not come",
    ),
    (
        lambda: a().next("b").optional().not_next("c"),
        "not_next('c') after stage 'b', which is optional, is ambiguous; write two patterns, one with the optional stage and one "
        "without it",
    ),
    (
        lambda: a().not_next(Pattern.begin("b")),
        "not_next() takes the name of a single stage, not a group; negate its stages one by one",
    ),
    (lambda: a().greedy(), "greedy() needs a stage that repeats; call one_or_more() or times() for stage 'a'"),
    (
        lambda: Pattern.begin(a().next("b")).one_or_more().greedy(),
        "greedy() applies to a stage, not to a group; call it for a stage of the group a next b",
    ),
    (
        lambda: a().one_or_more().greedy().next("b").optional(),
        "optional() for stage 'b' after stage 'a', which is greedy, is ambiguous: drop one of them",
    ),
    (
        lambda: a().one_or_more().consecutive().allow_combinations(),
        "allow_combinations(): stage 'a' is already told what may come between its events; say it once",
    ),
    (lambda: a().consecutive(), "consecutive() needs a stage that repeats; call one_or_more() or times() for stage 'a'"),
    (lambda: a().next("a"), "next('a'): the pattern has a stage of this name already; matches list events by name"),
    (
        lambda: matches(a().next(Pattern.begin("a"))),
        "the pattern has two stages named 'a'; matches list events by name, so rename one",
    ),
    (lambda: Pattern.begin(""), "begin() takes the name of a stage, or a pattern as a group, not ''"),
    (
        lambda: a().times(2).until(is_a),
        "until() ends a stage that repeats any number of times; call one_or_more() for stage 'a'",
    ),
    (lambda: a().times(0), "times() for stage 'a': 0 is no number, or range of numbers from 1 (see optional())"),
    (lambda: a().times(3, 2), "times() for stage 'a': 3 to 2 is no number, or range of numbers from 1 (see optional())"),
    (lambda: a().times(2).one_or_more(), "one_or_more(): stage 'a' repeats already; give it one quantifier"),
    (lambda: a().within(0), "within(): the time must be at least 1 ms, not 0"),
    (
        lambda: a().within(5, WithinType.PREVIOUS_AND_CURRENT),
        "within(…, PREVIOUS_AND_CURRENT): nothing comes before the first stage; call it for a later one",
    ),
    (
        lambda: a().next("b").within(5, "previous"),
        "within() for stage 'b' takes WithinType.FIRST_AND_LAST or WithinType.PREVIOUS_AND_CURRENT, not 'previous'",
    ),
    (
        lambda: matches(a().next("b").within(10, WithinType.PREVIOUS_AND_CURRENT).within(5)),
        "stage 'b': 10 ms since the event before is more than the whole match may take, 5 ms",
    ),
    (
        lambda: matches(a().next(Pattern.begin("b").next("c").within(5))),
        "within() limits the whole match: call it for the pattern that has the group b next c, not inside",
    ),
    (
        lambda: matches(a(AfterMatchSkipStrategy.skip_to_first("z")).next("b")),
        "skip_to_first('z'): the pattern has no such stage; it has a, b",
    ),
    (
        lambda: AfterMatchSkipStrategy.skip_past_last_event().throw_exception_on_miss(),
        "throw_exception_on_miss(): skip_past_last_event() skips to no stage, so it cannot miss one",
    ),
    (
        lambda: Pattern.begin(a().next("b")).where(is_a),
        "where() applies to a stage, not to a group; give its stages their conditions",
    ),
    (lambda: Pattern.begin("a").where(Large), "where(): Large is a class; give an instance, Large()"),
    (lambda: a().or_where(True), "or_where() takes a function of an element that returns True or False, not True"),
    (
        lambda: a().where(lambda value, ctx, more: True),
        "where(): the function takes 3 arguments; let it take an element, or an element and a context, from which it gets the "
        "elements that matched before",
    ),
    (
        lambda: a().one_or_more().until(lambda: True),
        "until(): the function takes 0 arguments; let it take an element, or an element and a context, from which it gets the "
        "elements that matched before",
    ),
    (lambda: a().subtype("Large"), "subtype() takes a class, not 'Large'"),
    (lambda: CEP.pattern(["a", "b"], a()), "CEP.pattern() takes a DataStream, not ['a', 'b']"),
    (lambda: matches("a b"), "CEP.pattern() takes a Pattern, not 'a b'"),
    (lambda: matches(a()).process(Matches), "process(): Matches is a class; give an instance, Matches()"),
    (lambda: matches(a()).select(Matches()), "select() takes a function of a match, not Matches; give it to process()"),
    (
        lambda: matches(a()).select(str, timed_out_partial_matches_tag=TAG),
        "select() needs both a tag and a function for partial matches that time out, or neither",
    ),
    (
        lambda: matches(a()).select(str, timed_out_partial_matches_tag=TAG, pattern_timeout_function="none"),
        "select() takes a function of a partial match and its time, not 'none'",
    ),
    (lambda: matches(a()).side_output_late_data("late"), "side_output_late_data() takes an OutputTag, not 'late'"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[message[:40] for _, message in MISTAKES])
def test_a_mistake_is_refused_while_the_program_is_written(mistake, message):
    with pytest.raises(fp.GraphError) as refused:
        mistake()
    assert str(refused.value) == message


def raises(value):
    raise ValueError(f"no {value}")


def compares(one, other):
    return None


STRICT = AfterMatchSkipStrategy.skip_to_first("a").throw_exception_on_miss()
FAILURES = {
    "no timestamps": (
        lambda found: CEP.pattern(found(), a()).select(str),
        "operator 'matches': it got elements without timestamps; give the stream a WatermarkStrategy with a timestamp assigner "
        "ahead of it",
    ),
    "first condition": (
        lambda found: CEP.pattern(found(1), Pattern.begin("a").where(raises)).select(str),
        "operator 'matches': the function raised ValueError: no a (key 'k', element 'a')",
    ),
    "later condition": (
        lambda found: CEP.pattern(found(1), a().next("b").where(raises)).select(str),
        "operator 'matches': the function raised ValueError: no b (key 'k', element 'b')",
    ),
    "comparator": (
        lambda found: CEP.pattern(found(1), a(), compares).select(str),
        "operator 'matches': the function raised TypeError: '<' not supported between instances of 'NoneType' and 'int' (key "
        "'k', element ['a', 'b'])",
    ),
    "select": (
        lambda found: CEP.pattern(found(1), a()).select(lambda match: match["b"]),
        "operator 'matches': the function raised KeyError: 'b' (key 'k', element 'a')",
    ),
    "one value of many": (
        lambda found: CEP.pattern(found(1), a()).flat_select(lambda match: 1),
        "operator 'matches': the function returned 1, but it may have any number of outputs; yield each output, or return a list",
    ),
    "skips to its own start": (
        lambda found: CEP.pattern(found(1), a(STRICT)).select(str),
        "operator 'matches': cannot skip to 'a' after a match of events {'a': [0]}, which begins with it: the same match would "
        "be found again",
    ),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_names_the_operator_the_key_and_the_element(failure):
    job, message = FAILURES[failure]

    def build(env, source):
        def keyed(ts=None):
            strategy = fp.WatermarkStrategy.for_monotonous_timestamps()
            if ts is not None:
                strategy = strategy.with_timestamp_assigner(lambda value, _: ts)
            return env.from_source(source, strategy, "values").key_by(lambda value: "k")

        return job(keyed).uid("matches")

    with pytest.raises(fp.ForkpointError) as failed:
        run_local(build, TestSource(["a", "b"], type=str), parallelism=1)
    assert str(failed.value).splitlines()[0] == message


class Endless(TestSource):
    bounded = False


STRICT_WAIT, WAIT = a().next("b").next("c"), a().next("b").followed_by("c")
REPEATED, GROUP = a().next("b").one_or_more().consecutive(), Pattern.begin("b").next("c")


@pytest.mark.parametrize(
    ("pattern", "source", "stage"),
    [
        (STRICT_WAIT, Endless, None),
        (WAIT, Endless, "c"),
        (WAIT, TestSource, None),
        (WAIT.within(5), Endless, None),
        (WAIT.within(5, WithinType.PREVIOUS_AND_CURRENT), Endless, None),
        (REPEATED, Endless, "b"),
        (a().followed_by(GROUP).one_or_more().consecutive(), Endless, "b"),
        (a().next(GROUP).one_or_more().consecutive(), Endless, None),
    ],
)
def test_a_pattern_that_may_wait_for_ever_is_warned_of(pattern, source, stage, caplog):
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    values = env.from_source(source(["a"], type=str), fp.WatermarkStrategy.no_watermarks(), "values")
    with caplog.at_level(logging.WARNING, "forkpoint"):
        CEP.pattern(values.key_by(is_a), pattern)
    expected = (
        f"the pattern {pattern.outline} keeps partial matches that wait for stage {stage!r} for ever, so its state grows as long "
        "as its input goes on: end them with within(…)"
    )
    assert caplog.messages == ([] if stage is None else [expected])


@pytest.mark.parametrize(("repeated", "told"), [(a().one_or_more(), [105]), (a().one_or_more().greedy(), [])])
def test_many_partial_matches_of_a_key_are_warned_of(repeated, told, monkeypatch, caplog):
    monkeypatch.setattr(operator, "MANY", 100)

    def build(env, source):
        values = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "values").uid("values")
        keyed = values.key_by(lambda value: "all", str)
        found = CEP.pattern(keyed, repeated.followed_by("b").where(lambda value: value == "b")).in_processing_time()
        return found.process(Matches(), str).uid("matches")

    with caplog.at_level(logging.WARNING, "forkpoint"):
        run_local(build, TestSource(["a"] * 20, type=str), parallelism=1)
    found = [record.args for record in caplog.records if "against each of which" in record.getMessage()]
    assert found == [("matches", "all", count) for count in told]
