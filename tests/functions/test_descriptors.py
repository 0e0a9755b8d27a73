from datetime import timedelta
from typing import NamedTuple

import cloudpickle
import pytest

from forkpoint.errors import ConfigError, GraphError, TypeNotSupported
from forkpoint.functions import (
    AggregateFunction,
    AggregatingStateDescriptor,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReduceFunction,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
    declared_states,
)
from forkpoint.types import Types, type_of


class Armed(NamedTuple):
    active: bool
    since: int


class Mean(AggregateFunction):
    def create_accumulator(self):
        return (0, 0)

    def add(self, value, accumulator):
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return (acc_a[0] + acc_b[0], acc_a[1] + acc_b[1])


class Plus(ReduceFunction):
    def reduce(self, value1, value2):
        return value1 + value2


def every_descriptor() -> list[StateDescriptor]:
    return [
        ValueStateDescriptor("v", Armed),
        ListStateDescriptor("l", int),
        MapStateDescriptor("m", str, int),
        ReducingStateDescriptor("r", Plus(), int),
        AggregatingStateDescriptor("a", Mean(), tuple[int, int]),
    ]


def test_python_types_and_flink_types_are_the_same():
    assert ValueStateDescriptor("v", int).value_type == ValueStateDescriptor("v", Types.LONG()).value_type
    by_key = MapStateDescriptor("m", str, Armed)
    assert (by_key.key_type, by_key.value_type) == (type_of(str), type_of(Armed))


def test_a_reducing_state_has_a_plain_function():
    assert ReducingStateDescriptor("r", Plus(), int).reduce(2, 3) == 5
    assert ReducingStateDescriptor("r", max, int).reduce(2, 3) == 3


def test_wrong_arguments_are_refused_at_once():
    with pytest.raises(TypeNotSupported):
        ValueStateDescriptor("v", complex)
    with pytest.raises(GraphError, match="non-empty string"):
        ListStateDescriptor("", int)
    with pytest.raises(GraphError, match=r"'r'.*neither a ReduceFunction"):
        ReducingStateDescriptor("r", 7, int)  # type: ignore[call-overload]
    with pytest.raises(GraphError, match="AggregateFunction"):
        AggregatingStateDescriptor("a", max, int)  # type: ignore[call-overload]


@pytest.mark.parametrize("descriptor", every_descriptor(), ids=lambda d: d.name)
def test_every_method_of_the_handle_says_that_no_job_runs(descriptor):
    methods = {
        "v": ["value", "update"],
        "l": ["get", "add", "add_all", "update"],
        "r": ["get", "add"],
        "a": ["get", "add"],
        "m": ["get", "put", "put_all", "remove", "contains", "items", "keys", "values", "is_empty"],
    }[descriptor.name]
    for method in [*methods, "clear"]:
        call = getattr(descriptor, method)
        with pytest.raises(GraphError, match=f"{descriptor.name!r} was used outside a running job"):
            call(*[0] * (call.__code__.co_argcount - 1))


@pytest.mark.parametrize("descriptor", every_descriptor(), ids=lambda d: d.name)
def test_descriptors_travel_and_leave_instance_attributes_alone(descriptor):
    copy = cloudpickle.loads(cloudpickle.dumps(descriptor))
    assert (copy.name, copy.value_type) == (descriptor.name, descriptor.value_type)
    holder = type("Holder", (), {"state": descriptor})()
    holder.__dict__["state"] = "the live handle"
    assert holder.state == "the live handle"


def test_declared_states_follow_inheritance():
    class Base(KeyedProcessFunction):
        a = ValueStateDescriptor("a", int)
        b = ValueStateDescriptor("b", int)

        def process_element(self, value, ctx):
            return None

    class Derived(Base):
        b = None  # no state any more
        c = ListStateDescriptor("c", str)

    assert list(declared_states(Base())) == ["a", "b"]
    assert declared_states(Derived()) == {"a": Base.a, "c": Derived.c}
    assert declared_states(Derived) == declared_states(Derived())
    assert declared_states(lambda x: x) == {}


def test_one_name_twice_is_refused():
    class Twice(KeyedProcessFunction):
        first = ValueStateDescriptor("same", int)
        second = ListStateDescriptor("same", int)

        def process_element(self, value, ctx):
            return None

    with pytest.raises(GraphError, match=r"Twice declares two states named 'same' \(first and second\)"):
        declared_states(Twice())


def test_time_to_live():
    hour = ValueStateDescriptor("v", int).enable_time_to_live(timedelta(hours=1))
    assert hour.ttl == StateTtlConfig(3_600_000)
    assert (hour.ttl.updates_on_read, hour.ttl.returns_expired, hour.ttl.event_time) == (False, False, False)
    config = (
        StateTtlConfig.new_builder(1500)
        .update_ttl_on_read_and_write()
        .return_expired_if_not_cleaned_up()
        .use_event_time()
        .cleanup_incrementally(10, True)
        .disable_cleanup_in_background()
        .build()
    )
    assert (config.ttl_ms, config.updates_on_read, config.returns_expired, config.event_time) == (
        1500,
        True,
        True,
        True,
    )
    assert not config.cleanup_in_background
    assert config.get_ttl() == timedelta(seconds=1.5)
    off = StateTtlConfig.new_builder(1).set_update_type(StateTtlConfig.UpdateType.Disabled).build()
    assert ValueStateDescriptor("v", int).enable_time_to_live(off).ttl is None
    with pytest.raises(ConfigError, match="time to live"):
        StateTtlConfig.new_builder(timedelta(0))
