"""What connect and broadcast build, and what they refuse."""

from datetime import timedelta
from typing import NamedTuple

import pytest

import forkpoint as fp
from forkpoint.api.streams.connected import BroadcastConnectedStream
from forkpoint.errors import GraphError
from forkpoint.graph.compile import compile_graph
from forkpoint.graph.transformations import Broadcast, KeyBy, Rebalance
from forkpoint.runtime.operators.broadcast import BroadcastProcessSpec, KeyedBroadcastProcessSpec
from forkpoint.runtime.operators.co_process import CoProcessSpec, KeyedCoProcessSpec

RULES = fp.MapStateDescriptor("rules", str, int)


class Word(NamedTuple):
    text: str
    n: int


class Merge(fp.CoMapFunction):
    def map1(self, value) -> str:
        return value

    def map2(self, value) -> str:
        return value


class Remembering(fp.CoFlatMapFunction):
    seen = fp.ValueStateDescriptor("seen", int)

    def flat_map1(self, value):
        return ()

    def flat_map2(self, value):
        return ()


class Process(fp.CoProcessFunction):
    def process_element1(self, value, ctx):
        yield 1

    def process_element2(self, value, ctx):
        yield 2


class Keyed(fp.KeyedCoProcessFunction):
    def process_element1(self, value, ctx):
        yield 1

    def process_element2(self, value, ctx):
        yield 2


class Ruled(fp.BroadcastProcessFunction):
    rules = RULES

    def process_element(self, value, ctx):
        yield 1

    def process_broadcast_element(self, value, ctx):
        pass


class RuledByKey(fp.KeyedBroadcastProcessFunction):
    rules = RULES
    count = fp.ValueStateDescriptor("count", int)

    def process_element(self, value, ctx):
        yield 1

    def process_broadcast_element(self, value, ctx):
        pass


def streams(*types):
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    return [env.from_collection([], t).uid(f"in-{i}") for i, t in enumerate(types or (Word, Word), 1)]


def graph_of(stream, *, require_uids=False):
    ends = [edge.upstream for edge in stream.edges]
    return compile_graph(ends, max_parallelism=128, require_uids=require_uids).graph


def operator_of(stream):
    return graph_of(stream).operators[-1]


@pytest.mark.parametrize(
    ("build", "kind", "partitionings"),
    [
        (lambda a, b: a.connect(b).map(Merge()), CoProcessSpec, (Rebalance, Rebalance)),
        (lambda a, b: a.connect(b).process(Process()), CoProcessSpec, (Rebalance, Rebalance)),
        (lambda a, b: a.connect(b.broadcast()).process(Process()), CoProcessSpec, (Rebalance, Broadcast)),
        (lambda a, b: a.connect(b).key_by(0, 0).map(Merge()), KeyedCoProcessSpec, (KeyBy, KeyBy)),
        (lambda a, b: a.key_by("n").connect(b.key_by("n")).flat_map(Remembering()), KeyedCoProcessSpec, (KeyBy, KeyBy)),
        (lambda a, b: a.key_by("n").connect(b.key_by("n")).process(Keyed()), KeyedCoProcessSpec, (KeyBy, KeyBy)),
        (lambda a, b: a.key_by("n").connect(b.key_by("n")).process(Process()), KeyedCoProcessSpec, (KeyBy, KeyBy)),
        (lambda a, b: a.connect(b.broadcast(RULES)).process(Ruled()), BroadcastProcessSpec, (Rebalance, Broadcast)),
        (
            lambda a, b: a.key_by("n").connect(b.broadcast(RULES)).process(RuledByKey()),
            KeyedBroadcastProcessSpec,
            (KeyBy, Broadcast),
        ),
    ],
)
def test_what_is_built(build, kind, partitionings):
    operator = operator_of(build(*streams()))
    assert isinstance(operator.spec, kind)
    assert operator.stage == 1
    assert [(edge.ordinal, type(edge.partitioning)) for edge in operator.inputs] == list(enumerate(partitionings))
    assert operator.stateful == (kind is not CoProcessSpec)
    assert len(operator.origins) == 2


def test_a_union_is_one_input():
    a, b, c = streams(Word, Word, Word)
    operator = operator_of(a.union(b).connect(c).key_by("text", "text").process(Keyed()))
    assert [edge.ordinal for edge in operator.inputs] == [0, 0, 1]
    assert operator.key_of(0).key_type == operator.key_of(1).key_type


def test_output_types():
    class Tell(fp.CoProcessFunction):
        def process_element1(self, value, ctx) -> "list[int]":
            return [1]

        def process_element2(self, value, ctx) -> None:
            pass

    a, b = streams()
    assert a.connect(b).map(Merge()).get_type() == fp.Types.STRING()
    assert a.connect(b).map(Merge(), int).get_type() == fp.Types.LONG()
    assert a.connect(b).process(Tell()).get_type() == fp.Types.LONG()
    assert a.connect(b).process(Process()).get_type() is None


def test_keys_of_one_type_whatever_the_elements_are():
    a, b = streams(Word, tuple[int, str])
    operator = operator_of(a.connect(b).key_by("text", 1).process(Keyed()))
    assert [edge.partitioning.columns for edge in operator.inputs] == [("text",), ("f1",)]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda a, b: a.connect(b).key_by("text", "n").process(Keyed()),
            "have different types, .*; give both the same key_type",
        ),
        (
            lambda a, b: a.connect(b).key_by("text", lambda w: w.text.lower()).process(Keyed()),
            "give both the same key_type",
        ),
        (lambda a, b: a.connect(b).map(lambda x: x), r"ConnectedStreams.map\(\) takes a CoMapFunction"),
        (lambda a, b: a.connect(b).flat_map(Merge()), "takes a CoFlatMapFunction"),
        (
            lambda a, b: a.connect(b).process(Keyed()),
            "the connected streams are not keyed, so it takes a CoProcessFunction",
        ),
        (lambda a, b: a.connect(b).key_by("n", "n").process(print), "are keyed, so it takes a KeyedCoProcessFunction"),
        (lambda a, b: a.connect(b).flat_map(Remembering()), "state 'seen' is keyed, but the connected streams are not"),
        (lambda a, b: a.key_by(0).connect(b).map(Merge()), "only the first of the connected streams is keyed"),
        (lambda a, b: a.connect(b.key_by(0)).map(Merge()), "only the second of the connected streams is keyed"),
        (lambda a, b: a.connect([1]), r"connect\(\) takes a stream"),
        (lambda a, b: a.connect(streams()[0]), "belong to different environments"),
        (lambda a, b: a.connect(streams()[0].broadcast(RULES)), "belong to different environments"),
        (lambda a, b: a.broadcast(fp.ValueStateDescriptor("x", int)), "takes MapStateDescriptors"),
        (lambda a, b: a.broadcast(RULES, fp.MapStateDescriptor("rules", int, int)), "two states named 'rules'"),
        (
            lambda a, b: a.broadcast(fp.MapStateDescriptor("x", int, int).enable_time_to_live(timedelta(1))),
            "cannot have a time to live",
        ),
        (lambda a, b: a.connect(b.broadcast(RULES)).process(RuledByKey()), "so it takes a BroadcastProcessFunction"),
        (
            lambda a, b: a.key_by(0).connect(b.broadcast(RULES)).process(Ruled()),
            "so it takes a KeyedBroadcastProcessFunction",
        ),
        (
            lambda a, b: a.connect(b.broadcast(fp.MapStateDescriptor("others", str, int))).process(Ruled()),
            "state 'rules' is keyed, but the stream is not",
        ),
    ],
)
def test_what_is_refused(build, message):
    with pytest.raises(GraphError, match=message):
        graph_of(build(*streams()))


def test_uids_are_asked_for():
    a, b = streams()
    for stream in (
        a.key_by(0).connect(b.broadcast(RULES)).process(RuledByKey()),
        a.connect(b.broadcast(RULES)).process(Ruled()),
    ):
        with pytest.raises(GraphError, match=r"broadcast_process.*\.uid\('broadcast-process-ruled"):
            graph_of(stream, require_uids=True)
    with pytest.raises(GraphError, match=r"keyed_co_process .*\.uid\('co-process-keyed'\)"):
        graph_of(a.connect(b).key_by(0, 0).process(Keyed()), require_uids=True)
    graph_of(a.connect(b).map(Merge()), require_uids=True)  # no state, no uid


def test_names_and_uids_of_the_result():
    a, b = streams()
    operator = operator_of(a.connect(b).key_by(0, 0).process(Keyed()).uid("both").name("Both"))
    assert (operator.uid, operator.name) == ("both", "Both")
    assert isinstance(a.connect(b.broadcast(RULES)), BroadcastConnectedStream)
