"""PyFlink does not read annotations: under `forkpoint.pyflink` they are hints, and explicit types are enforced."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.pyflink.environment import StreamExecutionEnvironment
from forkpoint.testing import run_upgrade

VALUES = st.one_of(st.integers(-3, 3), st.sampled_from(["a", "b", ""]), st.floats(-1, 1), st.tuples(st.integers(0, 2)))
ANNOTATIONS = st.sampled_from([int, str, float, list[int], tuple[int, str], dict[str, int], None, "nobody.knows"])


def environment(parallelism: int = 1, rows: int = 100) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    return env.set_parallelism(parallelism).set_max_epoch_rows(rows)


def annotated(annotation: Any) -> Any:
    """Functions of each kind with that return annotation, which return what comes."""

    def same(value: Any) -> Any:
        return value

    class Count(fp.KeyedProcessFunction):
        seen = fp.ValueStateDescriptor("seen", fp.Types.INT())

        def process_element(self, value: Any, ctx: Any) -> Any:
            self.seen.update((self.seen.value() or 0) + 1)
            yield value, self.seen.value()

    class Flat(fp.FlatMapFunction):
        def flat_map(self, value: Any) -> Any:
            return [value]

    same.__annotations__["return"] = annotation
    Count.process_element.__annotations__["return"] = annotation
    Flat.flat_map.__annotations__["return"] = list[annotation] if isinstance(annotation, type) else annotation
    return same, Flat(), Count()


@examples(10)
@given(st.lists(VALUES, max_size=8), ANNOTATIONS, st.sampled_from([1, 3]), st.sampled_from([1, 3, 100]))
def test_no_annotation_changes_what_a_program_emits(values, annotation, parallelism, rows):
    """Whatever functions of each kind are annotated with, keys included. Fails before, with TypeNotSupported."""
    same, flat, count = annotated(annotation)
    stream = environment(parallelism, rows).from_collection(values, fp.Types.PICKLED_BYTE_ARRAY())
    counted = stream.map(same).flat_map(flat).key_by(same).process(count)
    with counted.execute_and_collect() as found:
        got = Counter(map(repr, found))
    numbered: Counter[Any] = Counter()
    for value in values:
        numbered[value] += 1
    want: Counter[Any] = Counter()
    expected: list[str] = []
    for value in values:
        want[value] += 1
        expected.append(repr((value, want[value])))
    assert got == Counter(expected)


def test_keys_of_two_streams_of_which_one_has_a_type():
    """PyFlink pickles both. Fails before: the keys have different types."""

    class Count(fp.CoProcessFunction):
        def open(self, runtime_context: fp.RuntimeContext) -> None:
            self.seen = runtime_context.get_state(fp.ValueStateDescriptor("seen", fp.Types.INT()))

        def process_element1(self, value, ctx):
            self.seen.update((self.seen.value() or 0) + 1)
            yield value, self.seen.value()

        process_element2 = process_element1

    env = environment()
    typed = env.from_collection(["a", "b"], fp.Types.STRING())
    untyped = env.from_collection(["a", "c"]).map(lambda text: text)
    for first, second in ((typed, untyped), (untyped, typed)):
        with first.connect(second).key_by(lambda e: e, lambda e: e).process(Count()).execute_and_collect() as found:
            assert sorted(found) == [("a", 1), ("a", 2), ("b", 1), ("c", 1)]


def test_explicit_types_are_enforced():
    stream = environment().from_collection([1]).map(lambda n: n + 1, output_type=fp.Types.STRING())
    with (
        pytest.raises(fp.TypeNotSupported, match="is not valid for its output type STRING"),
        stream.execute_and_collect() as found,
    ):
        list(found)
    rows = environment().from_collection([1]).map(lambda n: (n, str(n)), output_type=[fp.Types.INT(), fp.Types.STRING()])
    assert rows.get_type() == fp.Types.ROW([fp.Types.INT(), fp.Types.STRING()])


def test_annotations_bind_elsewhere():
    def wrong(value: int) -> str:
        return value  # type: ignore[return-value]

    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    assert env.from_collection([1]).map(wrong).get_type() == fp.Types.STRING()
    assert environment().from_collection([1]).map(wrong).get_type() is None


def test_a_key_saved_by_its_annotation_is_found():
    """Earlier releases gave a key the type that its selector is annotated with."""

    def first(value: str) -> str:
        return value[0]

    class Count(fp.KeyedProcessFunction):
        seen = fp.ValueStateDescriptor("seen", fp.Types.INT())

        def process_element(self, value, ctx):
            self.seen.update((self.seen.value() or 0) + 1)
            yield value, self.seen.value()

    def build(env, source):
        words = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "words").uid("words")
        return words.map(lambda word: word).key_by(first).process(Count()).uid("count")

    def build_again(env, source):
        env.explicit_types_only = True
        return build(env, source)

    done = run_upgrade(build, build_again, (["ab", "b"], ["ab", "a", "c"]))
    assert sorted(done.after.output) == [("a", 3), ("ab", 2), ("c", 1)]


def name_of(pair: tuple[str, int]) -> str:
    return pair[0]


def same(pair: tuple[str, int]) -> tuple[str, int]:
    return pair


def add(first: tuple[str, int], second: tuple[str, int]) -> tuple[str, int]:
    return first[0], first[1] + second[1]


class Numbers(fp.ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, sorted(number for _, number in elements)


class Mean(fp.AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: tuple[str, int], accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value[1]

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[1] / accumulator[0]

    def merge(self, first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
        return first[0] + second[0], first[1] + second[1]


HUNDRED = fp.TumblingEventTimeWindows.of(fp.Duration.of_millis(100))
SESSIONS = fp.EventTimeSessionWindows.with_gap(fp.Duration.of_millis(100))
WITH_STATE = {
    "window": lambda keyed: keyed.window(HUNDRED).process(Numbers()),
    "session": lambda keyed: keyed.window(SESSIONS).process(Numbers()),
    "window-reduce": lambda keyed: keyed.window(HUNDRED).reduce(add),
    "window-aggregate": lambda keyed: keyed.window(HUNDRED).aggregate(Mean()),
    "count-window": lambda keyed: keyed.count_window(3).process(Numbers()),
    "reduce": lambda keyed: keyed.reduce(add),
    "sum": lambda keyed: keyed.sum(1),
    "max_by": lambda keyed: keyed.max_by(1),
}


def of_pairs(operator: str) -> Any:
    """A job whose elements have a type by annotations only; ``hints`` makes them hints."""

    def build(env: Any, source: Any) -> Any:
        strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda pair, _: pair[1])
        keyed = env.from_source(source, strategy, "in").uid("in").map(same).key_by(name_of)
        return WITH_STATE[operator](keyed).uid("kept")

    return build


def hints(build: Any) -> Any:
    def again(env: Any, source: Any) -> Any:
        env.explicit_types_only = True
        return build(env, source)

    return again


@pytest.mark.parametrize("operator", WITH_STATE)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_state_saved_by_the_annotation_of_its_elements_goes_on_untyped(operator, parallelism):
    """Of windows, reduce and aggregates, as earlier releases saved it. Refused before, until a type was given."""
    build = of_pairs(operator)
    before, after = [("a", 1), ("b", 2), ("a", 30)], [("a", 40), ("b", 50), ("c", 60), ("a", 170), ("b", 230)]
    typed = run_upgrade(build, build, (before, after), new_parallelism=parallelism)
    untyped = run_upgrade(build, hints(build), (before, after), new_parallelism=parallelism)
    assert untyped.after.output
    assert sorted(untyped.after.output) == sorted(typed.after.output)
