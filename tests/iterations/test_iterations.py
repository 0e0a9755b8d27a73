"""What goes round comes out: results, ends, times and places of elements in iterations."""

import time
from datetime import timedelta
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_jobs import NO_WATERMARKS, collatz, collatz_lengths, components, least_connected, source_of

import forkpoint as fp
from example_counts import examples
from forkpoint.errors import ConfigError, GraphError, TypeNotSupported
from forkpoint.graph.compile import compile_graph
from forkpoint.testing import PAUSE, TestSource, run_local

epochs = st.sampled_from([1, 2, 7, 100])
parallelisms = st.integers(1, 4)


def decrement(stream):
    loop = stream.iterate().uid("loop")
    less = loop.map(lambda n: n - 1, int)
    loop.close_with(less.filter(lambda n: n > 0))
    return less.filter(lambda n: n <= 0)


def test_decrement_until_zero():
    run = run_local(source_of(decrement, int), [3, 1, 5, 2], epochs=1)
    assert run.output == [0, 0, 0, 0]
    assert run.outcome == "finished"


@examples(4)
@given(st.lists(st.integers(1, 50), max_size=12), epochs, parallelisms)
def test_collatz_lengths(numbers, epochs, parallelism):
    run = run_local(source_of(collatz, int), numbers, epochs=epochs, parallelism=parallelism)
    assert sorted(run.output) == collatz_lengths(numbers)


@examples(8)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=20), epochs, parallelisms)
def test_connected_components(edges, epochs, parallelism):
    run = run_local(source_of(components), edges, epochs=epochs, parallelism=parallelism)
    assert {node: values[-1][1] for node, values in run.by_key(lambda v: v[0]).items()} == least_connected(edges)


class Hash(fp.KeyedProcessFunction):
    """Depends on the order in which a key's elements come."""

    state = fp.ValueStateDescriptor("state", int, 7)

    def process_element(self, value, ctx):
        key, rounds, number = value
        self.state.update((self.state.value() * 31 + number) % 1_000_003)
        yield (key, rounds - 1, self.state.value())


def hashes(stream):
    loop = stream.iterate().uid("loop")
    hashed = loop.key_by(lambda v: v[0], int).process(Hash(), tuple[int, int, int]).uid("hash")
    back = hashed.map(lambda v: ((v[0] + v[2]) % 5, v[1], v[2]), tuple[int, int, int]).filter(lambda v: v[1] > 0)
    loop.close_with(back)
    return hashed


elements = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(0, 99)), max_size=20)


@examples(5)
@given(elements, st.sampled_from([2, 5, 100]), st.integers(2, 4), st.booleans())
def test_the_order_within_keys_does_not_depend_on_the_parallelism(elements, epochs, parallelism, timed):
    def build(env, source):
        strategy = NO_WATERMARKS
        if timed:
            strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(5).with_timestamp_assigner(lambda v, _: v[2])
        return hashes(env.from_source(source, strategy, "in").uid("in"))

    runs = [run_local(build, elements, epochs=epochs, parallelism=p) for p in (1, parallelism)]
    assert runs[1].by_key(lambda v: v[0]) == runs[0].by_key(lambda v: v[0])


class AtTheEnd(fp.KeyedProcessFunction):
    """Tells at the end of time how many elements there were."""

    count = fp.ValueStateDescriptor("count", int, 0)

    def process_element(self, value, ctx):
        self.count.update(self.count.value() + 1)
        ctx.timer_service().register_event_time_timer(10**15)

    def on_timer(self, timestamp, ctx):
        yield self.count.value()


@pytest.mark.parametrize("rows", [1, 100])
def test_the_last_watermark_comes_when_nothing_goes_round_any_more(rows):
    def counted(stream):
        return decrement(stream).key_by(lambda v: 0, int).process(AtTheEnd()).uid("count")

    assert run_local(source_of(counted, int), [30, 1, 2, 30], epochs=rows).output == [4]


class OnceMore(fp.KeyedProcessFunction):
    """At the end of time it sends each key round once more."""

    done = fp.ValueStateDescriptor("done", bool, False)

    def process_element(self, value, ctx):
        if value < 0:
            yield value
        elif not self.done.value():
            self.done.update(True)
            ctx.timer_service().register_event_time_timer(10**15)

    def on_timer(self, timestamp, ctx):
        yield -1 - ctx.get_current_key()


def test_what_the_last_watermark_sends_round_is_still_worked_on():
    def build(stream):
        loop = stream.iterate().uid("loop")
        more = loop.key_by(lambda v: abs(v), int).process(OnceMore(), int).uid("more")
        loop.close_with(more.filter(lambda v: -9 < v < 0).map(lambda v: v - 3, int))
        return more

    assert sorted(run_local(source_of(build, int), [1, 2]).output) == [-11, -9, -8, -6, -5, -3, -2]


class Stamped(fp.ProcessFunction):
    def process_element(self, value, ctx):
        yield value, ctx.timestamp()


MONOTONOUS = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda v, _: v * 1000)


def test_elements_keep_their_timestamps_and_may_be_late():
    late = fp.OutputTag("late")

    def build(env, source):
        loop = env.from_source(source, MONOTONOUS, "in", int).uid("in").iterate().uid("loop")
        body = loop.map(lambda v: v + 100, int)
        loop.close_with(body.filter(lambda v: v < 200))
        stamped = body.process(Stamped()).key_by(lambda v: 0, int)
        windows = stamped.window(fp.TumblingEventTimeWindows.of(timedelta(seconds=2))).side_output_late_data(late)
        sums = windows.reduce(lambda a, b: (a[0] + b[0], max(a[1], b[1]))).uid("sums")
        return {"sums": sums, "late": sums.get_side_output(late)}

    # 1, 2 and 3 go round twice; when 101 comes back the watermark is at 2.999, and its window (0 to 2) is over.
    run = run_local(build, [1, 2, 3, PAUSE], parallelism=1)
    assert run.outputs["late"] == [(201, 1000)]
    assert run.outputs["sums"] == [(101, 1000), (102 + 103 + 202 + 203, 3000)]


class Typed(NamedTuple):
    left: int
    name: str = "x"


@pytest.mark.parametrize("columnar", [True, False])
def test_records_stay_records(columnar):
    def build(stream):
        loop = stream.iterate().uid("loop")
        loop.close_with(loop.filter(lambda r: r.left > 0).map(lambda r: r._replace(left=r.left - 1), Typed))
        return loop.filter(lambda r: r.left == 0)

    source = TestSource([Typed(2, "a"), Typed(1, "b")], type=Typed, columnar=columnar)
    out = run_local(source_of(build), source, parallelism=1).output
    assert sorted(out) == [Typed(0, "a"), Typed(0, "b")]
    assert {type(r) for r in out} == {Typed}


def test_untyped_elements_go_round():
    def build(stream):
        loop = stream.iterate().uid("loop")
        loop.close_with(loop.filter(lambda d: d["n"]).map(lambda d: {"n": d["n"] - 1}))
        return loop.filter(lambda d: not d["n"])

    assert run_local(source_of(build), [{"n": 3}, {"n": 1}]).output == [{"n": 0}, {"n": 0}]


def test_one_loop_in_another():
    def build(stream):
        outer = stream.iterate().uid("outer")
        inner = outer.iterate().uid("inner")
        more = inner.map(lambda v: (v[0], v[1] + 1), tuple[int, int])
        inner.close_with(more.filter(lambda v: v[1] % 3 != 0))
        done = more.filter(lambda v: v[1] % 3 == 0)
        outer.close_with(done.filter(lambda v: v[1] < 9))
        return done.filter(lambda v: v[1] >= 9)

    assert sorted(run_local(source_of(build, tuple[int, int]), [(1, 0), (2, 4), (3, 8)], epochs=1).output) == [
        (1, 9),
        (2, 9),
        (3, 9),
    ]


def test_a_keyed_stream_goes_round_by_its_key_at_first():
    def build(stream):
        return decrement(stream.key_by(lambda n: n % 2, int))

    assert run_local(source_of(build, int), [4, 1, 3], parallelism=3).output == [0, 0, 0]


def test_two_loops_side_by_side_and_a_body_with_exchanges():
    def build(stream):
        first, second = stream.iterate().uid("first"), stream.iterate(timedelta(seconds=5)).uid("second")
        a = first.rebalance().map(lambda n: n - 1, int)
        first.close_with(a.filter(lambda n: n > 0).key_by(lambda n: n))
        b = second.key_by(lambda n: n % 3, int).map_with_state(lambda n, s: (n - 2, (s or 0) + 1), int, int).uid("b")
        c = b.rebalance().filter(lambda n: n > 0)
        second.close_with(c.union(b.filter(lambda n: n > 100)))
        return {"first": a.filter(lambda n: n <= 0), "second": b.filter(lambda n: n <= 0)}

    run = run_local(source_of(build, int), [5, 2, 7, 8], epochs=3, parallelism=3)
    assert sorted(run.outputs["first"]) == [0, 0, 0, 0]
    assert sorted(run.outputs["second"]) == [-1, -1, 0, 0]


def test_rounds_do_not_wait_for_the_checkpoint_interval():
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.enable_checkpointing(timedelta(seconds=1)).set_parallelism(1)
    began = time.monotonic()
    assert list(decrement(env.from_collection([30], int).uid("in")).execute_and_collect()) == [0]
    assert time.monotonic() - began < 10


def compiled(build, *, require_uids=False):
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    build(env.from_collection([1], int).uid("in"))
    return compile_graph(env.transformations, max_parallelism=128, require_uids=require_uids)


def unclosed(stream):
    stream.iterate().uid("loop").map(lambda n: n).print().uid("out")


def closed_twice(stream):
    loop = stream.iterate().uid("loop")
    loop.close_with(loop.filter(bool))
    loop.close_with(loop.filter(bool))


def closed_from_elsewhere(stream):
    stream.iterate().uid("loop").close_with(stream.filter(bool))


def closed_with_another_type(stream):
    loop = stream.iterate().uid("loop")
    loop.close_with(loop.map(str, str))


def without_uid(stream):
    loop = stream.iterate()
    loop.close_with(loop.filter(bool))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (unclosed, "'loop' is not closed; call close_with"),
        (closed_twice, "'loop' is closed twice"),
        (closed_from_elsewhere, "derived from the iteration, but 'filter"),
        (closed_with_another_type, "close_with"),
        (without_uid, r"needs a uid(?s:.*)iteration"),
        (lambda s: s.iterate().close_with(3), "not 3"),
    ],
)
def test_loops_that_cannot_run_are_refused(build, says):
    with pytest.raises(GraphError, match=says):
        compiled(build, require_uids=True)


def test_a_wrong_wait_is_refused():
    with pytest.raises(ConfigError, match="maximum wait time"):
        compiled(lambda s: s.iterate("soon"))


def test_an_element_of_another_type_is_named():
    def build(stream):
        loop = stream.iterate().uid("loop")
        loop.close_with(loop.map(lambda n: f"<{n}>"))
        return loop

    with pytest.raises(TypeNotSupported, match=r"iteration 'loop': '<7>', which is fed back, is not valid.*LONG"):
        run_local(source_of(build, int), [7])


def test_the_end_of_a_loop_costs_no_exchange():
    def straight(stream):
        decrement(stream).print().uid("out")

    graph = compiled(straight).graph
    assert graph.stages == 1
    assert {o.uid for o in graph.operators if o.kind == "feedback"} == {"feedback"}
