"""What is computed of windows: functions, their state, built-in aggregates, windows without keys, chains."""

from typing import NamedTuple

import pytest

import forkpoint as fp
from forkpoint.testing import OperatorHarness, TestSource, run_local
from forkpoint.types import Types, type_of


class Sale(NamedTuple):
    shop: str
    ts: int
    amount: int


SALES = [
    Sale("a", 1, 5),
    Sale("b", 2, 7),
    Sale("a", 4, 3),
    Sale("a", 11, 4),
    Sale("b", 13, 1),
    Sale("a", 12, 6),
    Sale("a", 25, 0),
]
TEN = fp.TumblingEventTimeWindows.of(10)


def by_ts(env, source):
    strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(3).with_timestamp_assigner(lambda s, _: s.ts)
    return env.from_source(source, strategy, "in")


def windowed(env, source):
    return by_ts(env, source).key_by(lambda s: s.shop).window(TEN)


def run(end, stream=windowed, **how):
    return run_local(lambda env, source: end(stream(env, source)), TestSource(SALES, type=Sale), **{"parallelism": 2, **how})


class Average(fp.AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return (0, 0)

    def add(self, value, accumulator):
        return accumulator[0] + value.amount, accumulator[1] + 1

    def get_result(self, accumulator) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


@pytest.mark.parametrize("epochs", [1, 3, 100])
class TestResults:
    @pytest.mark.parametrize(
        ("aggregate", "expected"),
        [
            ("sum", {"a": [(1, 8), (11, 10), (25, 0)], "b": [(2, 7), (13, 1)]}),
            ("min", {"a": [(1, 3), (11, 4), (25, 0)], "b": [(2, 7), (13, 1)]}),
            ("max", {"a": [(1, 5), (11, 6), (25, 0)], "b": [(2, 7), (13, 1)]}),
            ("min_by", {"a": [(4, 3), (11, 4), (25, 0)], "b": [(2, 7), (13, 1)]}),
            ("max_by", {"a": [(1, 5), (12, 6), (25, 0)], "b": [(2, 7), (13, 1)]}),
        ],
    )
    def test_aggregates_of_a_field(self, aggregate, expected, epochs):
        found = run(lambda w: getattr(w, aggregate)("amount"), epochs=epochs).by_key(lambda s: s.shop)
        assert {shop: [(s.ts, s.amount) for s in sales] for shop, sales in found.items()} == expected

    def test_count(self, epochs):
        assert run(lambda w: w.count(), epochs=epochs).by_key(lambda r: r[0]) == {
            "a": [("a", 2), ("a", 2), ("a", 1)],
            "b": [("b", 1), ("b", 1)],
        }

    def test_aggregate_with_and_without_a_window_function(self, epochs):
        class Named(fp.WindowFunction):
            def apply(self, key, window, inputs):
                return [(key, window.start, *inputs)]

        found = run(lambda w: w.aggregate(Average(), Named()), epochs=epochs)
        assert sorted(found.output) == [("a", 0, 4.0), ("a", 10, 5.0), ("a", 20, 0.0), ("b", 0, 7.0), ("b", 10, 1.0)]
        assert sorted(run(lambda w: w.aggregate(Average()), epochs=epochs).output) == [0.0, 1.0, 4.0, 5.0, 7.0]

    def test_windows_of_windows(self, epochs):
        """Results have the last moment of their window, so the windows behind take them in time."""

        class Top(fp.ProcessWindowFunction):
            def process(self, key, context, elements):
                yield context.window().start, sorted(s.amount for s in elements)

        def end(windows):
            return windows.sum("amount").key_by(lambda s: "all", str).window(TEN).process(Top())

        assert run(end, epochs=epochs).output == [(0, [7, 8]), (10, [1, 10]), (20, [0])]

    def test_windows_without_keys(self, epochs):
        def everything(env, source):
            return by_ts(env, source).window_all(TEN)

        class Spread(fp.ProcessAllWindowFunction):
            def process(self, context, elements):
                amounts = [s.amount for s in elements]
                yield context.window().start, max(amounts) - min(amounts)

        class First(fp.AllWindowFunction):
            def apply(self, window, inputs):
                return [(window.end, next(iter(inputs)))]

        assert run(lambda w: w.process(Spread()), everything, epochs=epochs).output == [(0, 4), (10, 5), (20, 0)]
        assert run(lambda w: w.aggregate(Average(), First()), everything, epochs=epochs).output == [
            (10, 5.0),
            (20, 11 / 3),
            (30, 0.0),
        ]
        assert run(lambda w: w.reduce(max, Spread()), everything, epochs=epochs).output == [(0, 0), (10, 0), (20, 0)]
        assert run(lambda w: w.count(), everything, epochs=epochs).output == [3, 3, 1]


class Firings(fp.ProcessWindowFunction):
    """Counts firings: of the window, of all windows of the key, and these once more in a state declared on the class."""

    declared = fp.ValueStateDescriptor("declared", int, 0)

    def process(self, key, context, elements):
        firings = fp.ValueStateDescriptor("firings", int, 0)
        of_window, of_key = context.window_state().get_state(firings), context.global_state().get_state(firings)
        of_window.update(of_window.value() + 1)
        of_key.update(of_key.value() + 1)
        self.declared.update(self.declared.value() + 10)
        yield context.window().start, of_window.value(), of_key.value(), self.declared.value()


class TestState:
    def test_state_of_the_window_and_of_the_key(self):
        def build(stream):
            return stream.key_by(lambda s: s.shop).window(TEN).allowed_lateness(5).process(Firings())

        with OperatorHarness(build, input_type=Sale) as harness:
            harness.process_elements((s, s.ts) for s in SALES[:4])
            harness.process_watermark(10)
            assert sorted(harness.take()) == [(0, 1, 1, 10), (0, 1, 1, 10)]
            harness.process_element(Sale("a", 3, 1), 3)
            assert harness.take() == [(0, 2, 2, 20)]
            harness.process_watermark(19)
            assert harness.take() == [(10, 1, 3, 30)]
            assert sorted(harness.keys("declared")) == ["a", "b"]
            harness.process_watermark(1000)
            names = {r.name: r.sid for r in harness._subtasks[0].instance.states()}
            left = {int.from_bytes(k[2:6], "big") for k, _ in harness._subtasks[0].store.scan(b"", b"\xff" * 8)}
            assert left == {names["declared"], names["firings"]}
            assert "window/firings" in names

    def test_a_descriptor_on_the_class_can_be_asked_for_of_both_contexts(self):
        class Asking(fp.ProcessWindowFunction):
            sizes = fp.ListStateDescriptor("sizes", int)

            def open(self, runtime_context):
                self.opened = runtime_context.get_list_state(self.sizes)

            def process(self, key, context, elements):
                of_window = context.window_state().get_list_state(self.sizes)
                of_window.add(len(elements))
                context.global_state().get_list_state(self.sizes).add(len(elements))
                yield context.window().start, list(of_window.get()), list(self.sizes.get()), list(self.opened.get())

        def build(stream):
            return stream.key_by(lambda s: s.shop).window(TEN).allowed_lateness(5).process(Asking())

        with OperatorHarness(build, input_type=Sale) as harness:
            harness.process_elements([(Sale("a", 1, 5), 1), (Sale("a", 4, 3), 4)])
            harness.process_watermark(10)
            harness.process_element(Sale("a", 3, 1), 3)
            harness.process_element(Sale("a", 11, 1), 11)
            harness.process_watermark(19)
            assert harness.take() == [(0, [2], [2], [2]), (0, [2, 3], [2, 3], [2, 3]), (10, [1], [2, 3, 1], [2, 3, 1])]

    def test_what_describes_no_state_is_refused(self):
        class Asking(fp.ProcessWindowFunction):
            def process(self, key, context, elements):
                yield context.global_state().get_state("sizes")

        with pytest.raises(fp.ForkpointError, match="operator 'windows': 'sizes' does not describe a state; pass"):
            run(lambda w: w.process(Asking()).uid("windows"))

    def test_state_of_windows_that_merge_is_refused(self):
        class Asking(fp.ProcessWindowFunction):
            def process(self, key, context, elements):
                context.window_state().get_state(fp.ValueStateDescriptor("x", int))
                yield 1

        def build(stream):
            return stream.key_by(lambda s: s.shop).window(fp.EventTimeSessionWindows.with_gap(5)).process(Asking())

        with OperatorHarness(build, input_type=Sale) as harness:
            harness.process_element(SALES[0], 1)
            with pytest.raises(fp.UserFunctionError, match="global_state"):
                harness.process_watermark(100)

    @pytest.mark.parametrize("name", ["window-contents", "merging-windows", "trigger/count"])
    @pytest.mark.parametrize("way", ["declared", "global", "open"])
    def test_the_windows_own_names_are_refused(self, name, way):
        class Function(fp.ProcessWindowFunction):
            if way == "declared":
                mine = fp.ValueStateDescriptor(name, int)

            def open(self, runtime_context):
                if way == "open":
                    runtime_context.get_state(fp.ValueStateDescriptor(name, int))

            def process(self, key, context, elements):
                context.global_state().get_state(fp.ValueStateDescriptor(name, int))

        with pytest.raises(fp.ForkpointError, match="reserved for the windows"):
            run(lambda w: w.process(Function()))

    def test_map_state_and_time_to_live_are_refused_for_a_window(self):
        for descriptor, message in (
            (fp.MapStateDescriptor("m", str, int), "value state may hold a dict"),
            (fp.ValueStateDescriptor("v", int).enable_time_to_live(fp.Time.seconds(1)), "removed with its window"),
        ):

            class Asking(fp.ProcessWindowFunction):
                def process(self, key, context, elements):
                    context.window_state()._state(self.wanted)

            fn = Asking()
            fn.wanted = descriptor
            build = lambda stream, fn=fn: stream.key_by(lambda s: s.shop).window(TEN).process(fn)  # noqa: E731
            with OperatorHarness(build, input_type=Sale) as harness:
                harness.process_element(SALES[0], 1)
                with pytest.raises(fp.UserFunctionError, match=message):
                    harness.process_watermark(100)


def test_a_failing_function_names_operator_and_key():
    class Failing(fp.ProcessWindowFunction):
        def process(self, key, context, elements):
            raise ValueError("no such thing")

    with pytest.raises(fp.UserFunctionError, match=r"'sales'.*ValueError: no such thing.*key 'a'"):
        run(lambda w: w.process(Failing()).uid("sales"))


class TestTypes:
    def keyed(self):
        env = fp.StreamExecutionEnvironment.get_execution_environment()
        return env.from_collection(SALES, Sale).key_by(lambda s: s.shop).window(TEN)

    def test_output_types_come_from_annotations(self):
        class Annotated(fp.ProcessWindowFunction):
            def process(self, key, context, elements) -> list[tuple[str, int]]:
                return []

        assert self.keyed().sum("amount").get_type() == type_of(Sale)
        assert self.keyed().count().get_type() == Types.TUPLE([Types.STRING(), Types.LONG()])
        assert self.keyed().aggregate(Average()).get_type() == type_of(float)
        assert self.keyed().process(Annotated()).get_type() == type_of(tuple[str, int])
        assert self.keyed().process(Annotated(), int).get_type() == type_of(int)
        (edge,) = self.keyed().aggregate(Average()).edges
        assert edge.upstream.spec.contents_type == type_of(tuple[int, int])

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            (lambda w: w.trigger("x"), "takes a Trigger"),
            (lambda w: w.evictor("x"), "takes an Evictor"),
            (lambda w: w.side_output_late_data("x"), "takes an OutputTag"),
            (lambda w: w.process(Average()), "takes a ProcessWindowFunction"),
            (lambda w: w.apply(Average()), "takes a WindowFunction"),
            (lambda w: w.aggregate(max), "takes an AggregateFunction"),
            (lambda w: w.reduce(max, window_function=max), "window function"),
            (lambda w: w.sum("price"), "no such field"),
        ],
    )
    def test_what_does_not_fit_is_refused_when_the_job_is_built(self, wrong, message):
        with pytest.raises(fp.GraphError, match=message):
            wrong(self.keyed())

    def test_a_trigger_that_cannot_merge_is_refused_for_sessions(self):
        env = fp.StreamExecutionEnvironment.get_execution_environment()
        sessions = env.from_collection(SALES, Sale).key_by(lambda s: s.shop).window(fp.EventTimeSessionWindows.with_gap(5))
        with pytest.raises(fp.GraphError, match="merge"):
            sessions.trigger(fp.DeltaTrigger.of(1, lambda a, b: 1, int))

    @pytest.mark.parametrize(
        "wrong",
        [
            lambda: fp.TumblingEventTimeWindows.of(0),
            lambda: fp.TumblingEventTimeWindows.of(5, 5),
            lambda: fp.SlidingEventTimeWindows.of(5, 0),
            lambda: fp.SlidingEventTimeWindows.of(5, 2, -2),
            lambda: fp.EventTimeSessionWindows.with_gap(-1),
            lambda: fp.EventTimeSessionWindows.with_dynamic_gap(3),
            lambda: fp.CountTumblingWindowAssigner.of(0),
            lambda: fp.CountTrigger.of("3"),
            lambda: fp.PurgingTrigger.of(3),
            lambda: fp.CountEvictor.of(-1),
            lambda: fp.TimeEvictor.of("1 s"),
            lambda: fp.DeltaEvictor.of(1, 2),
            lambda: fp.ContinuousEventTimeTrigger.of(0),
        ],
    )
    def test_impossible_windows_are_refused(self, wrong):
        with pytest.raises(fp.ConfigError):
            wrong()
