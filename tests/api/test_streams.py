from typing import NamedTuple

import pytest

import forkpoint as fp
from forkpoint.functions import declared_states
from forkpoint.graph.compile import compile_graph
from forkpoint.graph.specs import EpochSinkSpec, SinkSpec, TimestampsSpec
from forkpoint.graph.transformations import Forward, KeyBy, Rebalance
from forkpoint.runtime.columnar.running_aggregates import RollingSpec
from forkpoint.runtime.operators.keyed_functions import MapWithStateSpec, ReduceSpec
from forkpoint.runtime.operators.keyed_process import KeyedProcessSpec
from forkpoint.runtime.operators.stateless import FilterSpec, FlatMapSpec, MapSpec, ProcessSpec
from forkpoint.types import type_of


class Word(NamedTuple):
    text: str
    n: int


class Average(fp.FlatMapFunction):
    """Flink's CountWindowAverage."""

    def open(self, runtime_context):
        self.sum = runtime_context.get_state(fp.ValueStateDescriptor("average", tuple[int, int]))

    def flat_map(self, value):
        return ()


class Counting(fp.KeyedProcessFunction):
    count = fp.ValueStateDescriptor("count", int)

    def process_element(self, value, ctx):
        yield 1


class Keyless(fp.ProcessFunction):
    def process_element(self, value, ctx):
        yield value


class RememberingMap(fp.MapFunction):
    seen = fp.ValueStateDescriptor("seen", int)

    def map(self, value):
        return value


@pytest.fixture
def env():
    return fp.StreamExecutionEnvironment.get_execution_environment()


@pytest.fixture
def words(env):
    return env.from_collection([Word("a", 1), Word("b", 2)])


def spec(stream):
    return stream.edges[0].upstream.spec


def test_elements_tell_their_type(env):
    assert env.from_collection([Word("a", 1)]).get_type() == type_of(Word)
    assert env.from_collection([1, 2]).get_type() == fp.Types.LONG()
    assert env.from_collection([], int).get_type() == fp.Types.LONG()
    assert env.from_collection(iter([])).get_type() == fp.Types.ANY()


def test_operators_and_their_types(words):
    def upper(w: Word) -> str:
        return w.text.upper()

    strategy = fp.WatermarkStrategy.for_monotonous_timestamps()
    for stream, kind, type in [
        (words.map(upper), MapSpec, fp.Types.STRING()),
        (words.map(lambda w: w.n), MapSpec, None),
        (words.map(lambda w: w.n, int), MapSpec, fp.Types.LONG()),
        (words.flat_map(lambda w: [w.n], fp.Types.LONG()), FlatMapSpec, fp.Types.LONG()),
        (words.filter(lambda w: w.n > 1), FilterSpec, type_of(Word)),
        (words.process(Keyless()), ProcessSpec, None),
        (words.assign_timestamps_and_watermarks(strategy), TimestampsSpec, type_of(Word)),
    ]:
        assert isinstance(spec(stream), kind)
        assert stream.get_type() == type
        assert stream.edges[0].upstream.inputs == words.edges


def test_keyed_operators(words):
    keyed = words.key_by(lambda w: w.text)
    assert keyed.key == KeyBy(keyed.key.selector, fp.Types.STRING(), ("text",), True)
    for stream, expected in [
        (keyed.reduce(max), ReduceSpec(max, type_of(Word))),
        (keyed.sum("n"), RollingSpec("sum", "n", type_of(Word))),
        (keyed.min(1), RollingSpec("min", 1, type_of(Word))),
        (keyed.max("n"), RollingSpec("max", "n", type_of(Word))),
        (keyed.min_by("n"), RollingSpec("min_by", "n", type_of(Word))),
        (keyed.max_by("n"), RollingSpec("max_by", "n", type_of(Word))),
    ]:
        assert spec(stream) == expected
        assert stream.get_type() == type_of(Word)
        assert stream.edges[0].upstream.inputs[0].partitioning == keyed.key
        assert type(stream) is fp.DataStream
    counting = Counting()
    assert spec(keyed.process(counting, int)) == KeyedProcessSpec(counting)
    with pytest.raises(fp.GraphError, match=r"sum\('m'\): the elements have no such field; they have text, n"):
        keyed.sum("m")


def test_state_with_plain_functions(words):
    def number(word: Word, seen: int | None) -> tuple[str, int]:
        return word.text, (seen or 0) + 1

    keyed = words.key_by("text")
    stream = keyed.map_with_state(number, int)
    assert spec(stream) == MapWithStateSpec(number, fp.Types.LONG(), False)
    assert stream.get_type() == fp.Types.STRING()
    flat = keyed.flat_map_with_state(lambda w, s: ([w], s), fp.Types.LONG(), Word)
    assert spec(flat).flat
    assert flat.get_type() == type_of(Word)


def test_functions_with_keyed_state_on_keyed_streams(words):
    keyed = words.key_by("text")
    for stream in (keyed.flat_map(Average()), keyed.map(RememberingMap())):
        assert isinstance(spec(stream), KeyedProcessSpec)
    assert declared_states(spec(keyed.map(RememberingMap())).fn) == {"seen": RememberingMap.seen}
    # A plain function has no state; it still gets its elements by key.
    plain = keyed.map(lambda w: w.n)
    assert isinstance(spec(plain), MapSpec)
    assert plain.edges[0].upstream.inputs[0].partitioning == keyed.key


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.map(RememberingMap()), "'seen' is keyed, but the stream is not.*key_by"),
        (lambda s: s.process(Counting()), "KeyedProcessFunction needs a key"),
        (lambda s: s.key_by("n").process(Keyless()), "takes a KeyedProcessFunction"),
        (lambda s: s.map(3), r"map\(\) takes a MapFunction or a callable, not 3"),
        (lambda s: s.map(Average()), "takes a MapFunction"),
        (lambda s: s.sink_to("path"), "takes a Sink"),
        (lambda s: s.key_by("n").uid("x"), r"uid\('x'\) must directly follow an operator"),
        (lambda s: s.rebalance().name("x"), "Rebalance"),
        (lambda s: s.union(s).uid("x"), "a union"),
        (lambda s: s.get_side_output("late"), "takes an OutputTag"),
        (lambda s: s.map(str).uid(""), "non-empty"),
        (lambda s: s.execute_and_collect(limit=0), "above 0"),
        (lambda s: s.union(fp.StreamExecutionEnvironment().from_collection([1])), "different environments"),
    ],
)
def test_what_is_refused(words, build, message):
    with pytest.raises(fp.GraphError, match=message):
        build(words)


def test_two_states_of_one_name_are_refused_when_built(words):
    class Twice(Counting):
        other = fp.ListStateDescriptor("count", int)

    with pytest.raises(fp.GraphError, match="two states named 'count'"):
        words.key_by("n").process(Twice())


def test_union_keeps_a_common_type_and_drops_partitioning(env, words):
    others = env.from_collection([Word("c", 3)])
    union = words.key_by("text").union(others.rebalance())
    assert union.get_type() == type_of(Word)
    assert [e.upstream for e in union.edges] == [words.edges[0].upstream, others.edges[0].upstream]
    assert {type(e.partitioning) for e in union.edges} == {Forward}
    assert words.union(env.from_collection([1])).get_type() is None


def test_partitioning(words):
    spread = words.rebalance()
    assert [type(e.partitioning) for e in spread.edges] == [Rebalance]
    assert spread.get_type() == type_of(Word)
    assert [type(e.partitioning) for e in spread.forward().edges] == [Forward]


def test_side_outputs(words):
    late = fp.OutputTag("late", str)
    processed = words.process(Keyless())
    side = processed.get_side_output(late)
    assert side.get_type() == fp.Types.STRING()
    assert (side.edges[0].upstream, side.edges[0].tag) == (processed.edges[0].upstream, late)
    with pytest.raises(fp.GraphError, match="a side output"):
        side.uid("x")


def test_settings_of_operators_and_sinks(words):
    stream = words.map(str).uid("strings").name("to text").set_parallelism(3).set_max_parallelism(64).disable_chaining()
    operator = stream.edges[0].upstream
    assert (operator.uid, operator.name, operator.parallelism) == ("strings", "to text", 3)
    sink = stream.sink_to(fp.DiscardSink()).uid("out").name("nowhere").set_parallelism(1)
    assert (sink.transformation.uid, sink.transformation.name, sink.transformation.parallelism) == ("out", "nowhere", 1)
    with pytest.raises(fp.ConfigError, match="parallelism is 0"):
        stream.set_parallelism(0)
    with pytest.raises(fp.ConfigError, match="32768"):
        stream.set_max_parallelism(40_000)


def test_operators_are_called_after_their_functions(words):
    assert words.map(str).edges[0].upstream.name == "map: str"
    assert words.map(lambda w: w).edges[0].upstream.name == "map"
    assert words.process(Keyless()).edges[0].upstream.name == "process: Keyless"


def test_spark_writers_are_epoch_sinks(words):
    class Frame:
        def __init__(self):
            self.write = self
            self.did = []

        def mode(self, mode):
            self.did.append(mode)
            return self

        def save(self, path):
            self.did.append(path)

    sink = words.sink_to(fp.DataFrameSink(lambda w: w.save("/data"))).transformation
    assert isinstance(sink.spec, EpochSinkSpec)
    assert sink.spec.type == type_of(Word)
    frame = Frame()
    sink.spec.fn(frame, 4)
    assert frame.did == ["append", "/data"]
    own = lambda frame, epoch: None  # noqa: E731
    assert words.map(lambda w: w).for_each_epoch(own).transformation.spec == EpochSinkSpec(own, fp.Types.ANY())


def test_a_pyflink_program_compiles(env):
    """CountWindowAverage and a word count, with their two sinks."""
    pairs = env.from_collection([(1, 3), (1, 5)], type_info=fp.Types.TUPLE([fp.Types.LONG(), fp.Types.LONG()]))
    pairs.key_by(lambda row: row[0]).flat_map(Average()).print()
    counts = pairs.map(lambda p: p, output_type=fp.Types.TUPLE([fp.Types.LONG(), fp.Types.LONG()])).key_by(lambda i: i[0])
    counts.reduce(lambda a, b: (a[0], a[1] + b[1])).print("counts")
    graph = compile_graph(env.transformations, max_parallelism=128, require_uids=False).graph
    assert [o.kind for o in graph.operators] == ["source", "keyed_process", "sink", "map", "reduce", "sink"]
    assert [isinstance(o.spec, SinkSpec) for o in graph.sinks] == [True, True]
    assert graph.stages == 1
