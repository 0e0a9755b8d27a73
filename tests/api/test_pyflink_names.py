"""Names that PyFlink programs use and that are thin here."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from forkpoint.testing import run_local


def test_project_gives_tuples_of_some_fields():
    def job(env):
        return env.from_collection([("a", 1, 2.5), ("b", 2, 3.5)], tuple[str, int, float]).project(2, 0)

    env = fp.StreamExecutionEnvironment()
    assert job(env).get_type() == fp.Types.TUPLE([fp.Types.DOUBLE(), fp.Types.STRING()])
    assert run_local(job).output == [(2.5, "a"), (3.5, "b")]


@pytest.mark.parametrize(("type", "fields"), [(tuple[int, int], (2,)), (tuple[int, int], ()), (int, (0,)), (None, (-1,))])
def test_project_refuses_fields_that_are_not_there(type, fields):
    stream = fp.StreamExecutionEnvironment().from_collection([], type)
    with pytest.raises(fp.GraphError, match="needs elements of a tuple type"):
        stream.project(*fields)


def test_configuration_from_dict():
    options = {"parallelism.default": "3"}
    configuration = fp.Configuration.from_dict(options)
    configuration.set_integer("parallelism.default", 4)
    assert options == {"parallelism.default": "3"}
    assert fp.StreamExecutionEnvironment.get_execution_environment(configuration).get_parallelism() == 4


@given(st.integers(-(10**12), 10**12), st.integers(-5_000, 5_000), st.integers(5_001, 10**7))
def test_window_start_with_offset(timestamp, offset, size):
    start = fp.TimeWindow.get_window_start_with_offset(timestamp, offset, size)
    assert start <= timestamp < start + size
    assert (start - offset) % size == 0


class EveryThird(fp.WindowAssigner):
    def assign_windows(self, element, timestamp, context: fp.WindowAssigner.WindowAssignerContext):
        return [fp.CountWindow(element % 3)]

    def get_default_trigger(self, env) -> fp.Trigger:
        return fp.CountTrigger.of(2)

    def get_window_serializer(self):
        return fp.CountWindowSerializer()

    def is_event_time(self):
        return False


class Named(fp.ProcessAllWindowFunction):
    def process(self, context: fp.ProcessAllWindowFunction.Context, elements):
        yield context.window(), list(elements)


def test_an_assigner_says_what_its_windows_are_as_in_pyflink():
    def job(env):
        return env.from_collection(range(6), int).window_all(EveryThird()).process(Named())

    expected = [(fp.CountWindow(i), [i, i + 3]) for i in range(3)]
    assert run_local(job).output == run_local(job, epochs=1).output == expected
    assert fp.GlobalWindows.create().window_type() is None
    assert fp.GlobalWindow.get() == fp.GlobalWindow()
