"""Two keyed inputs: one order for both, timers in between; the same wherever epochs are cut and at any parallelism."""

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from semantics_programs import Reference, by_key, inputs, programs, strategy
from two_input_programs import CoInterpreter, Merging, is_second, named, split_in_two

import forkpoint as fp
from example_counts import examples
from forkpoint.errors import UserFunctionError
from forkpoint.testing import ABORT, PAUSE, Eof, TestSource, run_local


def expected(events, timer_ops, bound=3):
    outputs = Reference(timer_ops, bound).run(events)
    return by_key(named(outputs, map(is_second, events)))


def both(timer_ops, bound=3):
    return lambda env, source: split_in_two(env, source, timer_ops, bound)


@examples(7)
@given(inputs(), programs, st.integers(0, 6), st.sampled_from([1, 7, 100]), st.integers(1, 4))
def test_as_if_both_inputs_were_one_stream(events, timer_ops, bound, epochs, parallelism):
    run = run_local(both(timer_ops, bound), events, epochs=epochs, parallelism=parallelism)
    assert by_key(run.output) == expected(events, timer_ops, bound)


@examples(8)
@given(inputs(size=25), inputs(size=25), programs, st.integers(0, 6), st.integers(1, 4), st.booleans())
def test_two_sources_are_merged_by_the_watermark_ahead_of_each_element(first, second, timer_ops, bound, parallelism, swap):
    def build(env, one, two):
        streams = [env.from_source(s, strategy(bound), n) for s, n in ((one, "one"), (two, "two"))]
        keyed = [s.key_by(lambda e: e.key, str) for s in streams]
        if swap:  # the same sources, so the same places, in the other roles
            return keyed[1].connect(keyed[0]).process(CoInterpreter(timer_ops))
        return keyed[0].connect(keyed[1]).process(CoInterpreter(timer_ops))

    run = run_local(build, first, second, parallelism=parallelism)
    model = Merging(timer_ops, bound).run_both(*((second, first) if swap else (first, second)))
    assert by_key(run.output) == by_key(model)


@examples(5)
@given(inputs(size=20), programs, st.lists(st.tuples(st.integers(0, 20), st.sampled_from([PAUSE, ABORT])), max_size=4))
def test_deaths_and_cuts_anywhere(events, timer_ops, marks):
    script = list(events)
    for place, mark in sorted(marks, key=lambda m: -m[0]):
        script.insert(min(place, len(script)), mark)
    assert by_key(run_local(both(timer_ops), script, parallelism=2).output) == expected(events, timer_ops)


@examples(5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(inputs(size=20), programs, st.integers(0, 20), st.integers(1, 4), st.integers(1, 4))
def test_savepoint_with_timers_restored_at_another_parallelism(tmp_path_factory, events, timer_ops, place, before, after):
    root = tmp_path_factory.mktemp("root")
    script = [*events[:place], Eof(savepoint=True), *events[place:]]
    first = run_local(both(timer_ops), script, parallelism=before, state_root=root, epochs=8)
    second = run_local(
        both(timer_ops), script, parallelism=after, state_root=root, epochs=8, restore=first.savepoint, job_name="fork"
    )
    assert by_key([*first.output, *second.output]) == expected(events, timer_ops)


class Sum(fp.CoMapFunction):
    """Adds the first input's numbers up by key, tells the sum for the second's."""

    def open(self, runtime_context):
        self.sum = runtime_context.get_state(fp.ValueStateDescriptor("sum", int, 0))

    def map1(self, value):
        self.sum.update(self.sum.value() + value[1])

    def map2(self, value) -> tuple[str, int]:
        return value[0], self.sum.value()


def test_keyed_map_and_flat_map_have_state_of_the_key():
    class Twice(fp.CoFlatMapFunction):
        seen = fp.ValueStateDescriptor("seen", int, 0)

        def flat_map1(self, value):
            self.seen.update(self.seen.value() + 1)
            return [("first", value[0], self.seen.value())] * 2

        def flat_map2(self, value):
            if value[1] > 1:
                yield "second", value[0], self.seen.value()

    def build(env, one, two):
        streams = [env.from_source(s, fp.WatermarkStrategy.no_watermarks(), n) for s, n in ((one, "one"), (two, "two"))]
        connected = streams[0].connect(streams[1]).key_by(0, 0, str)
        return {"map": connected.map(Sum()), "flat_map": connected.flat_map(Twice())}

    script = [("a", 1), ("b", 5), ("a", 2), PAUSE, ("a", 10)], [PAUSE, ("a", 1), ("b", 2), ("c", 3)]
    typed = [TestSource(elements, type=tuple[str, int]) for elements in script]
    for sources in (script, typed):
        run = run_local(build, *sources, parallelism=3)
        # Within an epoch the first input's elements come first, as nothing has a time.
        assert sorted(run.outputs["map"]) == [("a", 13), ("b", 5), ("c", 0)]
        assert sorted(run.outputs["flat_map"]) == [
            *(("first", "a", n) for n in (1, 1, 2, 2, 3, 3)),
            *[("first", "b", 1)] * 2,
            ("second", "b", 1),
            ("second", "c", 0),
        ]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_streams_without_keys(parallelism):
    side = fp.OutputTag("side", int)

    class Route(fp.CoProcessFunction):
        def process_element1(self, value, ctx):
            yield "first", value, ctx.timestamp(), ctx.timer_service().current_watermark()

        def process_element2(self, value, ctx):
            yield side, value
            yield "second", value, ctx.timestamp(), ctx.timer_service().current_watermark()

    def build(env, source):
        stream = env.from_source(
            source, fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda n, _: n), "in"
        )
        routed = stream.filter(lambda n: n % 3 > 0).connect(stream.filter(lambda n: n % 3 == 0)).process(Route())
        return {"main": routed, "side": routed.get_side_output(side)}

    for epochs in (1, 4, 100):
        run = run_local(build, list(range(10)), parallelism=parallelism, epochs=epochs)
        before = {0: -(2**63)} | {n: n - 2 for n in range(1, 10)}
        assert run.outputs["main"] == [("first" if n % 3 else "second", n, n, before[n]) for n in range(10)]
        assert run.outputs["side"] == [0, 3, 6, 9]


def test_side_outputs_and_union_of_inputs():
    left = fp.OutputTag("left", str)

    class Tell(fp.KeyedCoProcessFunction):
        def process_element1(self, value, ctx):
            yield left, value

        def process_element2(self, value, ctx):
            yield value * 2

    def build(env, *sources):
        a, b, c = (env.from_source(s, fp.WatermarkStrategy.no_watermarks(), str(i)) for i, s in enumerate(sources))
        told = a.union(b).connect(c).key_by(lambda v: v, lambda v: v, str).process(Tell())
        return {"main": told, "left": told.get_side_output(left)}

    run = run_local(build, ["a", "b"], ["c"], ["d", "a"], parallelism=2)
    assert {name: sorted(values) for name, values in run.outputs.items()} == {
        "main": ["aa", "dd"],
        "left": ["a", "b", "c"],
    }


def test_keys_of_two_classes_that_are_stored_alike_are_one_key():
    class Name(str):
        pass

    class Count(fp.KeyedCoProcessFunction):
        count = fp.ValueStateDescriptor("count", int, 0)

        def process_element1(self, value, ctx):
            self.count.update(self.count.value() + 1)
            yield value, self.count.value()

        process_element2 = process_element1

    def build(env, one, two):
        streams = [env.from_source(s, fp.WatermarkStrategy.no_watermarks(), n) for s, n in ((one, "one"), (two, "two"))]
        return streams[0].connect(streams[1]).key_by(lambda v: Name(v), lambda v: v, str).process(Count())

    assert sorted(run_local(build, ["a", "b"], ["a"]).output) == [("a", 1), ("a", 2), ("b", 1)]


class Buffer(fp.CoMapFunction, fp.CheckpointedFunction):
    """Operator state next to two inputs."""

    def initialize_state(self, context):
        self.state = context.get_operator_state_store().get_list_state(fp.ListStateDescriptor("seen", str))
        self.seen = list(self.state.get())

    def snapshot_state(self, context):
        self.state.update(self.seen)

    def map1(self, value):
        self.seen.append(value)

    def map2(self, value):
        return tuple(self.seen)


@pytest.mark.parametrize("keyed", [True, False])
def test_operator_state_next_to_two_inputs(tmp_path, keyed):
    def build(env, one, two):
        streams = [env.from_source(s, fp.WatermarkStrategy.no_watermarks(), n).uid(n) for s, n in ((one, "one"), (two, "two"))]
        connected = streams[0].connect(streams[1])
        return (connected.key_by(lambda v: 0, lambda v: 0, int) if keyed else connected).map(Buffer()).uid("buffer")

    script = ["a", "b", Eof(savepoint=True), "c"], [PAUSE, "?", PAUSE, "?"]
    first = run_local(build, *script, parallelism=1, state_root=tmp_path)
    second = run_local(build, *script, parallelism=1, state_root=tmp_path, restore=first.savepoint)
    assert [*first.output, *second.output][-1] == ("a", "b", "c")


@pytest.mark.parametrize("keyed", [True, False])
def test_a_failing_function_is_told_with_its_element(keyed):
    class Bad(fp.CoMapFunction):
        def map1(self, value):
            return value

        def map2(self, value):
            return 1 // value

    def build(env, one, two):
        streams = [env.from_source(s, fp.WatermarkStrategy.no_watermarks(), n) for s, n in ((one, "one"), (two, "two"))]
        connected = streams[0].connect(streams[1])
        return (connected.key_by(lambda v: v, lambda v: v, int) if keyed else connected).map(Bad()).uid("bad")

    with pytest.raises(UserFunctionError, match=r"operator 'bad': the function raised ZeroDivisionError.*element 0\b"):
        run_local(build, [1, 2], [3, 0])
