import pytest

from forkpoint.errors import GraphError
from forkpoint.functions import (
    CheckpointedFunction,
    CheckpointListener,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    OutputTag,
    ValueStateDescriptor,
    declared_states,
)
from forkpoint.functions.adapters import KeyedAdapter, KeylessProcess, KeylessWindow
from forkpoint.functions.co_functions import CoAdapter, KeyedCoAdapter
from forkpoint.graph.specs import OperatorSpec
from forkpoint.types import Types, type_of


class Numbered(MapFunction, CheckpointedFunction, CheckpointListener):
    count = ValueStateDescriptor("count", int)

    def __init__(self):
        self.calls = []

    def open(self, runtime_context):
        self.calls.append(("open", runtime_context, self.count))

    def close(self):
        self.calls.append("close")

    def map(self, value):
        return (value, self.count)

    def initialize_state(self, context):
        self.calls.append(("initialize", context))

    def snapshot_state(self, context):
        self.calls.append(("snapshot", context))

    def notify_checkpoint_complete(self, checkpoint_id):
        self.calls.append(("complete", checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id):
        self.calls.append(("aborted", checkpoint_id))


class Twice(FlatMapFunction):
    def flat_map(self, value):
        return [value, value]


class Even(FilterFunction):
    def filter(self, value):
        return value % 2 == 0


def test_a_keyed_map_is_a_process_function_with_the_maps_state():
    inner = Numbered()
    keyed = KeyedAdapter(inner)
    assert isinstance(keyed, KeyedProcessFunction)
    assert declared_states(keyed) == {"count": Numbered.count}
    keyed.__dict__["count"] = "handle"  # as the runtime does
    keyed.open("context")
    assert list(keyed.process_element(1, None)) == [(1, "handle")]
    keyed.close()
    assert inner.calls == [("open", "context", "handle"), "close"]


class Spec(OperatorSpec):
    def __init__(self, fn):
        self.fn = fn


@pytest.mark.parametrize("adapter", [KeyedAdapter, CoAdapter, KeyedCoAdapter, KeylessProcess, KeylessWindow])
def test_operator_state_and_notifications_are_those_of_the_function_in_an_adapter(adapter):
    inner = Numbered()
    assert Spec(adapter(inner)).function is Spec(inner).function is inner
    assert Spec(adapter(inner)).has_operator_state
    assert not Spec(adapter(Even())).has_operator_state


def test_keyed_flat_map_and_filter():
    assert list(KeyedAdapter(Twice()).process_element(3, None)) == [3, 3]
    assert [list(KeyedAdapter(Even()).process_element(n, None) or ()) for n in (1, 2)] == [[], [2]]


def test_output_tags_are_their_ids():
    assert OutputTag("late") == OutputTag("late", str)
    assert len({OutputTag("late"), OutputTag("late", int), OutputTag("bad")}) == 2
    assert OutputTag("late", str).type_info == Types.STRING() == type_of(str)
    with pytest.raises(GraphError, match="non-empty"):
        OutputTag("")
