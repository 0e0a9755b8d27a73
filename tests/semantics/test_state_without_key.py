"""Keyed state is of a key: where there is none, each access is an error that names the state, instead of a value that is lost."""

import pytest

import forkpoint as fp
from forkpoint.errors import UserFunctionError
from forkpoint.testing import run_local


class Mean(fp.AggregateFunction):
    def create_accumulator(self):
        return (0, 0)

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, a, b):
        return a[0] + b[0], a[1] + b[1]


STATES = {
    "value": fp.ValueStateDescriptor("value", int),
    "default": fp.ValueStateDescriptor("default", int, default_value=3),
    "list": fp.ListStateDescriptor("list", int),
    "map": fp.MapStateDescriptor("map", str, int),
    "reducing": fp.ReducingStateDescriptor("reducing", max, int),
    "aggregating": fp.AggregatingStateDescriptor("aggregating", Mean(), fp.Types.TUPLE([fp.Types.LONG()] * 2)),
}
READS = {"value": "value", "default": "value", "map": "items"}
WRITES = {
    "value": lambda state: state.update(1),
    "default": lambda state: state.update(1),
    "map": lambda state: state.put("x", 1),
}


class Anywhere(fp.KeyedProcessFunction, fp.CheckpointedFunction):
    """Uses a state at one place of its life."""

    def __init__(self, place, kind, use):
        self.place, self.kind, self.use = place, kind, use

    def initialize_state(self, context):
        pass

    def open(self, ctx):
        descriptor = STATES[self.kind]
        getter = {
            "list": ctx.get_list_state,
            "map": ctx.get_map_state,
            "reducing": ctx.get_reducing_state,
            "aggregating": ctx.get_aggregating_state,
        }.get(self.kind, ctx.get_state)
        self.state = getter(descriptor)
        self.at("open")

    def process_element(self, value, ctx):
        self.at("element")
        yield value

    def snapshot_state(self, context):
        self.at("snapshot")

    def at(self, place):
        if place == self.place:
            self.use(self.state)


def run(function, elements):
    return run_local(
        lambda env, source: (
            env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in")
            .key_by(lambda v: v, fp.Types.LONG())
            .process(function)
            .uid("anywhere")
        ),
        elements,
    ).output


@pytest.mark.parametrize("kind", STATES)
@pytest.mark.parametrize("access", ["read", "write", "clear"])
def test_every_access_outside_of_a_key_is_refused(kind, access):
    def use(state):
        if access == "clear":
            state.clear()
        elif access == "read":
            getattr(state, READS.get(kind, "get"))()
        else:
            WRITES.get(kind, lambda s: s.add(1))(state)

    assert run(Anywhere("element", kind, use), [1, 2]) == [1, 2]
    for place in ("open", "snapshot"):
        with pytest.raises(UserFunctionError, match=rf"operator 'anywhere': {kind} is keyed state, and there is no curr"):
            run(Anywhere(place, kind, use), [1, 2])


def test_subscripts_of_a_map_are_refused_too():
    for use in (lambda m: m["x"], lambda m: m.__setitem__("x", 1), lambda m: "x" in m, list):
        with pytest.raises(UserFunctionError, match="map is keyed state"):
            run(Anywhere("open", "map", use), [1])
