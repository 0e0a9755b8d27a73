"""Broadcast state: seen by every key at its place, the same on every subtask, saved once, restored at any parallelism."""

from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from semantics_programs import by_key, strategy
from two_input_programs import RULES, RuledModel, ruled, ruled_inputs

import forkpoint as fp
from example_counts import examples
from forkpoint.errors import GraphError, UserFunctionError
from forkpoint.testing import (
    ABORT,
    PAUSE,
    Abort,
    Advance,
    Eof,
    KeyedBroadcastProcessHarness,
    ManualClock,
    TestSource,
    run_local,
)

WATERMARKS = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])


def expected(elements, bound=3):
    model = RuledModel(bound)
    model.run(elements)
    return by_key(model.out), model.ruled


def told(outputs, parallelism):
    """What keys told, and what each subtask told of the rules: the same on all."""
    found = by_key(outputs)
    rules = Counter(found.pop("rule", []))
    assert set(rules.values()) <= {parallelism * n for n in range(1, 50)}
    return found, Counter({rule: count // parallelism for rule, count in rules.items()})


@examples(7)
@given(ruled_inputs(), st.integers(0, 6), st.sampled_from([1, 3, 7, 100]), st.integers(1, 4))
def test_every_key_sees_each_rule_at_its_place(elements, bound, epochs, parallelism):
    run = run_local(lambda env, source: ruled(env, source, bound), elements, epochs=epochs, parallelism=parallelism)
    keys, rules = expected(elements, bound)
    assert told(run.output, parallelism) == (keys, Counter(rules))


@examples(5)
@given(
    ruled_inputs(20),
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from([PAUSE, ABORT, Abort("committed")])), max_size=4),
)
def test_deaths_and_cuts_anywhere(elements, marks):
    script = list(elements)
    for place, mark in sorted(marks, key=lambda m: -m[0]):
        script.insert(min(place, len(script)), mark)
    keys, rules = expected(elements)
    assert told(run_local(ruled, script, parallelism=2).output, 2) == (keys, Counter(rules))


@examples(5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ruled_inputs(20), st.integers(0, 20), st.integers(1, 4), st.integers(1, 4))
def test_savepoint_restored_with_more_or_fewer_subtasks(tmp_path_factory, elements, place, before, after):
    root = tmp_path_factory.mktemp("root")
    script = [*elements[:place], Eof(savepoint=True), *elements[place:]]
    first = run_local(ruled, script, parallelism=before, state_root=root, epochs=8)
    second = run_local(ruled, script, parallelism=after, state_root=root, restore=first.savepoint, epochs=8, job_name="fork")
    found = [told(run.output, p) for run, p in ((first, before), (second, after))]
    keys, rules = expected(elements)
    assert by_key([output for run in found for outputs in run[0].values() for output in outputs]) == keys
    assert found[0][1] + found[1][1] == Counter(rules)


def test_going_on_from_a_checkpoint_with_more_subtasks(tmp_path):
    elements = [("rule", 1), ("a", 2), ("other", 3), ("b", 4)]
    script = [*elements[:3], Eof(), *elements[3:]]
    first = run_local(names_seen, script, parallelism=1, state_root=tmp_path)
    second = run_local(names_seen, script, parallelism=4, state_root=tmp_path)
    assert first.output + second.output == [("a", ["rule"]), ("b", ["rule", "other"])]


class Names(fp.BroadcastProcessFunction):
    """Without keys: elements of one letter see the longer ones."""

    def process_element(self, value, ctx):
        yield value[0], list(ctx.get_broadcast_state(RULES))

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(RULES).put(value[0], ctx.timestamp())


def names_seen(env, source):
    stream = env.from_source(source, WATERMARKS, "in").uid("in")
    letters, names = stream.filter(lambda v: len(v[0]) == 1), stream.filter(lambda v: len(v[0]) > 1)
    return letters.connect(names.broadcast(RULES)).process(Names()).uid("names")


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("epochs", [1, 3, 100])
def test_a_stream_without_keys(epochs, parallelism):
    elements = [("a", 0), ("one", 1), ("b", 2), ("two", 3), ("three", 3), ("one", 4), ("c", 5)]
    run = run_local(names_seen, elements, epochs=epochs, parallelism=parallelism)
    assert run.output == [("a", []), ("b", ["one"]), ("c", ["one", "two", "three"])]


class Careless(fp.KeyedBroadcastProcessFunction):
    """Does what each element says, where it must not be done."""

    count = fp.ValueStateDescriptor("count", int)
    items = fp.ListStateDescriptor("items", int)

    def open(self, runtime_context):
        self.opened = runtime_context.get_map_state(fp.MapStateDescriptor("opened", str, int))

    def process_element(self, value, ctx):
        self.count.update(1)
        if value[2] == "timer":
            ctx.timer_service().register_event_time_timer(value[1] + 1)
        elif value[2]:
            DEEDS[value[2]](self, ctx)
        yield value

    def process_broadcast_element(self, value, ctx):
        DEEDS[value[2]](self, ctx)

    def on_timer(self, timestamp, ctx):
        ctx.get_broadcast_state(RULES)["x"] = 1


DEEDS = {
    "put": lambda self, ctx: ctx.get_broadcast_state(RULES).put("x", 1),
    "del": lambda self, ctx: ctx.get_broadcast_state(RULES).__delitem__("x"),
    "unknown": lambda self, ctx: ctx.get_broadcast_state(fp.MapStateDescriptor("others", str, int)),
    "value": lambda self, ctx: self.count.update(3),
    "list": lambda self, ctx: self.items.add(3),
    "opened": lambda self, ctx: self.opened.__setitem__("x", 3),
    "bad": lambda self, ctx: ctx.get_broadcast_state(RULES).put("x", "text"),
}


def careless(env, source):
    stream = env.from_source(source, WATERMARKS, "in")
    rules = stream.filter(lambda v: v[0] == "rule").broadcast(RULES)
    return stream.filter(lambda v: v[0] != "rule").key_by(0, str).connect(rules).process(Careless()).uid("careless")


@pytest.mark.parametrize(
    ("element", "error", "message"),
    [
        (
            ("a", 1, "put"),
            UserFunctionError,
            r"'careless': broadcast state 'rules' is read-only here \(put\('x'\)\)",
        ),
        (
            ("a", 1, "del"),
            UserFunctionError,
            r"'careless': broadcast state 'rules' is read-only here \(remove\('x'\)\)",
        ),
        (("a", 1, "timer"), UserFunctionError, r"'careless': broadcast state 'rules' is read-only here"),
        (
            ("a", 1, "unknown"),
            GraphError,
            r"'careless': MapStateDescriptor\('others'\) is not one of its broadcast states \(rules\)",
        ),
        (
            ("rule", 1, "unknown"),
            GraphError,
            r"'careless': MapStateDescriptor\('others'\) is not one of its broadcast states",
        ),
        (
            ("rule", 1, "value"),
            UserFunctionError,
            r"'careless': count is keyed state, and a broadcast element has no key",
        ),
        (("rule", 1, "list"), UserFunctionError, r"'careless': items is keyed state"),
        (("rule", 1, "opened"), UserFunctionError, r"'careless': opened is keyed state"),
        (("rule", 1, "bad"), GraphError, r"'careless', broadcast state 'rules': 'text' of entry 'x' is not valid for"),
    ],
)
def test_what_is_refused(element, error, message):
    with pytest.raises(error, match=message):
        run_local(careless, [("a", 0, ""), element, ("a", 2, "")], epochs=3)


def test_state_is_usable_again_behind_a_broadcast_element():
    class Fine(Careless):
        def process_broadcast_element(self, value, ctx):
            ctx.get_broadcast_state(RULES).put("x", value[1])

        def process_element(self, value, ctx):
            self.opened["n"] = (self.opened["n"] or 0) + 1
            yield self.opened["n"], ctx.get_broadcast_state(RULES)["x"]

    def build(env, source):
        stream = env.from_source(source, WATERMARKS, "in")
        rules = stream.filter(lambda v: v[0] == "rule").broadcast(RULES)
        return stream.filter(lambda v: v[0] != "rule").key_by(0, str).connect(rules).process(Fine())

    assert run_local(build, [("a", 0), ("rule", 1), ("a", 2), ("a", 3)]).output == [(1, None), (2, 1), (3, 1)]


class Touch(fp.KeyedBroadcastProcessFunction):
    """Rules reach keys that the epoch does not have, again and again."""

    count = fp.ReducingStateDescriptor("count", lambda a, b: a + b, int)
    seen = fp.ListStateDescriptor("seen", str)

    def process_element(self, value, ctx):
        if value[2] == "count":
            self.count.add(1)
        self.seen.add(value[2])
        yield value[0], self.count.get(), list(self.seen.get())

    def process_broadcast_element(self, value, ctx):
        def grow(key, state):
            state.add(10)

        for _ in range(2):
            ctx.apply_to_keyed_state(self.count, grow)
            ctx.apply_to_keyed_state(Touch.seen, lambda key, state: state.add(f"{value[2]}-{key}"))
        if value[2] == "clear":
            ctx.apply_to_keyed_state(Touch.seen, lambda key, state: state.clear())


@pytest.mark.parametrize("parallelism", [1, 2, 4])
@pytest.mark.parametrize("epochs", [1, 2, 100])
def test_a_rule_reaches_all_keys_that_have_something(epochs, parallelism):
    def build(env, source):
        stream = env.from_source(source, WATERMARKS, "in")
        rules = stream.filter(lambda v: v[0] == "rule").broadcast(RULES)
        return stream.filter(lambda v: v[0] != "rule").key_by(0, str).connect(rules).process(Touch())

    elements = [
        ("a", 0, "count"),
        ("b", 1, "no"),
        ("rule", 2, "r"),
        ("a", 3, "no"),
        ("b", 4, "count"),
        ("rule", 5, "s"),
        ("rule", 6, "clear"),
        ("b", 7, "no"),
        ("c", 8, "count"),
        ("a", 9, "no"),
    ]
    found = run_local(build, elements, epochs=epochs, parallelism=parallelism).by_key(lambda v: v[0])
    assert found == {
        "a": [("a", 1, ["count"]), ("a", 21, ["count", "r-a", "r-a", "no"]), ("a", 61, ["no"])],
        "b": [("b", None, ["no"]), ("b", 1, ["no", "r-b", "r-b", "count"]), ("b", 41, ["no"])],
        "c": [("c", 1, ["count"])],
    }


def test_a_failed_attempt_leaves_no_trace_in_the_state():
    class Once(fp.BroadcastProcessFunction):
        failed = False

        def process_element(self, value, ctx):
            if value[0] == "fail" and not Once.failed:
                Once.failed = True
                raise ValueError("once")
            yield ctx.get_broadcast_state(RULES)["n"]

        def process_broadcast_element(self, value, ctx):
            state = ctx.get_broadcast_state(RULES)
            state["n"] = (state["n"] or 0) + 1

    def build(env, source):
        stream = env.from_source(source, WATERMARKS, "in")
        rules = stream.filter(lambda v: v[0] == "rule").broadcast(RULES)
        return stream.filter(lambda v: v[0] != "rule").connect(rules).process(Once())

    run = run_local(
        build,
        [("rule", 0), PAUSE, ("rule", 1), ("fail", 2), ("rule", 3), PAUSE, ("look", 4)],
        options={"restart": fp.RestartStrategy.fixed_delay(1, 0)},
    )
    assert (run.output, run.restarts) == ([2, 3], 1)


@pytest.mark.parametrize("parallelism", [1, 3])
def test_plain_broadcast_gives_every_element_to_every_subtask(parallelism):
    def build(env, source):
        stream = env.from_source(source, WATERMARKS, "in")
        again = stream.rebalance().map(lambda v: v)  # from a later stage as well
        return {"first": stream.broadcast().map(lambda v: v[0]), "again": again.broadcast().map(lambda v: v[0])}

    run = run_local(build, [("a", 1), ("b", 2)], parallelism=parallelism)
    for records in run.records.values():
        assert Counter((r.value, r.subtask) for r in records) == Counter((v, i) for v in "ab" for i in range(parallelism))


def test_two_stages_of_rules():
    """Broadcast from a later stage, into a later stage."""

    class Forward(fp.KeyedBroadcastProcessFunction):
        def process_element(self, value, ctx):
            yield value[0], value[1], ctx.get_broadcast_state(RULES)["x"]

        def process_broadcast_element(self, value, ctx):
            ctx.get_broadcast_state(RULES)["x"] = value[1]

    def build(env, source):
        stream = env.from_source(source, strategy(0).with_timestamp_assigner(lambda e, _: e[1]), "in")
        rules = stream.filter(lambda v: v[0] == "rule")
        events = stream.filter(lambda v: v[0] != "rule")
        first = events.key_by(0, str).connect(rules.broadcast(RULES)).process(Forward())
        later = rules.key_by(0, str).map_with_state(lambda v, n: ((v[0], (n or 0) + v[1]), (n or 0) + v[1]), int)
        return first.key_by(0, str).connect(later.broadcast(RULES)).process(Forward())

    elements = [("a", 1), ("rule", 2), ("a", 3), ("b", 4), ("rule", 5), ("b", 6)]
    for epochs in (1, 3, 100):
        for parallelism in (1, 3):
            found = run_local(build, elements, epochs=epochs, parallelism=parallelism).by_key(lambda v: v[0])
            assert found == {"a": [("a", 1, None), ("a", 3, 2)], "b": [("b", 4, 2), ("b", 6, 7)]}


@pytest.mark.parametrize("kind", [tuple[str, int], None])
def test_elements_as_columns(kind):
    class Sum(fp.KeyedBroadcastProcessFunction):
        total = fp.ValueStateDescriptor("total", int, 0)

        def process_element(self, value, ctx):
            self.total.update(self.total.value() + value[1])
            yield *value, self.total.value(), ctx.get_broadcast_state(RULES)["x"]

        def process_broadcast_element(self, value, ctx):
            ctx.get_broadcast_state(RULES)["x"] = value[1]

    def build(env, events, rules):
        events, rules = (env.from_source(s, WATERMARKS, n) for s, n in ((events, "events"), (rules, "rules")))
        return events.key_by(0, str).connect(rules.broadcast(RULES)).process(Sum())

    events = [(f"k{i % 3}", i) for i in range(10)]
    run = run_local(
        build,
        TestSource(events, type=kind),
        TestSource([("x", 3), ("x", 6), ("y", 7)], type=kind),
        parallelism=2,
    )
    # A rule is there for what comes behind an event of its time, although the rules before it were long ago.
    rule = [None, None, None, None, 3, 3, 3, 6, 7, 7]
    assert sorted(run.output, key=lambda v: v[1]) == [
        (k, i, sum(n for n in range(i + 1) if n % 3 == i % 3), rule[i]) for k, i in events
    ]


def test_timers_of_processing_time_fire_ahead_of_the_epochs_rules():
    class Alarm(fp.KeyedBroadcastProcessFunction):
        def process_element(self, value, ctx):
            timers = ctx.timer_service()
            timers.register_processing_time_timer(ctx.current_processing_time() + 1000)

        def process_broadcast_element(self, value, ctx):
            ctx.get_broadcast_state(RULES)["x"] = value[1]
            yield "rule", ctx.current_processing_time()

        def on_timer(self, timestamp, ctx):
            assert ctx.current_processing_time() >= timestamp
            yield ctx.get_current_key(), timestamp, ctx.time_domain().name, ctx.get_broadcast_state(RULES)["x"]

    def build(env, source):
        stream = env.from_source(source, WATERMARKS, "in")
        rules = stream.filter(lambda v: v[0] == "rule").broadcast(RULES)
        return stream.filter(lambda v: v[0] != "rule").key_by(0, str).connect(rules).process(Alarm())

    script = [("a", 0), ("b", 1), ("rule", 2), Advance(1500), ("rule", 3), ("c", 4), Advance(1000), ("a", 5)]
    run = run_local(build, script, clock=ManualClock(0), parallelism=1)
    timers = [("a", 1000, "PROCESSING_TIME", 2), ("b", 1000, "PROCESSING_TIME", 2), ("c", 2500, "PROCESSING_TIME", 3)]
    assert [v for v in run.output if v[0] != "rule"] == timers
    assert [v for v in run.output if v[0] == "rule"] == [("rule", 0), ("rule", 1500)]


def test_a_rule_does_not_reach_what_has_expired():
    class Aging(fp.KeyedBroadcastProcessFunction):
        count = fp.ValueStateDescriptor("count", int).enable_time_to_live(timedelta(seconds=1))

        def process_element(self, value, ctx):
            if value[0] == "look":
                yield "look", self.count.value()
            else:
                self.count.update(value[1])

        def process_broadcast_element(self, value, ctx):
            reached = []
            ctx.apply_to_keyed_state(self.count, lambda key, count: reached.append((key, count.value())))
            yield "rule", sorted(reached)

    with KeyedBroadcastProcessHarness(Aging(), RULES, key=lambda v: v[0], key_type=str) as harness:
        harness.process_element(("a", 1))
        harness.advance_processing_time(600)
        harness.process_element(("b", 2))
        harness.process_broadcast_element("rule")
        harness.advance_processing_time(600)
        harness.process_broadcast_element("rule")
        assert harness.output == [("rule", [("a", 1), ("b", 2)]), ("rule", [("b", 2)])]
