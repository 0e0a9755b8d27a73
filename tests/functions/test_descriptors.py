import subprocess
import sys
import textwrap
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
        "v": ["value", "update"], "l": ["get", "add", "add_all", "update"], "r": ["get", "add"], "a": ["get", "add"],
        "m": ["get", "put", "put_all", "remove", "contains", "items", "keys", "values", "is_empty"],
    }[descriptor.name]  # fmt: skip
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


def test_a_type_checker_sees_the_handles_types(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            from collections.abc import Iterable, Iterator
            from typing import NamedTuple, assert_type
            import forkpoint as fp

            class Armed(NamedTuple):
                active: bool
                since: int

            class Alarm(fp.KeyedProcessFunction):
                armed = fp.ValueStateDescriptor("armed", Armed)
                recent = fp.ListStateDescriptor("recent", int).enable_time_to_live(fp.Time.days(1))
                counts = fp.MapStateDescriptor("counts", str, int)
                total = fp.ReducingStateDescriptor("total", lambda a, b: a + b, int)
                loose = fp.ValueStateDescriptor("loose", fp.Types.STRING())

                def open(self, runtime_context: fp.RuntimeContext) -> None:
                    self.late = runtime_context.get_state(fp.ValueStateDescriptor("late", float))

                def process_element(self, e: str, ctx: fp.KeyedProcessFunction.Context) -> Iterator[int]:
                    assert_type(self.armed.value(), Armed | None)
                    self.armed.update(Armed(True, 1))
                    assert_type(self.recent.get(), Iterable[int])
                    assert_type(self.counts["a"], int | None)
                    assert_type(self.total.get(), int | None)
                    assert_type(self.late.value(), float | None)
                    self.loose.update("anything")
                    self.armed.update("wrong")  # line 28
                    yield 1
            """
        )
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary", str(program)]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    assert len(lines) == 1, lines
    assert (
        'program.py:28: error: Argument 1 to "update" of "ValueStateDescriptor" has incompatible type "str"' in lines[0]
    )
