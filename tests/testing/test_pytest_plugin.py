"""The fixtures, in test suites of their own."""

import importlib
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

INSTALLED = any(point.value == "forkpoint.pytest_plugin" for point in entry_points(group="pytest11"))
JOB = """
import threading

import pytest
import forkpoint as fp
from forkpoint.testing import Advance, Eof, KeyedProcessHarness, TestSink

def job(env, source):
    numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers", int).uid("numbers")
    return numbers.key_by(lambda n: n % 2, int).reduce(lambda a, b: a + b).uid("sums")
"""


@pytest.fixture
def run(pytester):
    def of(text, *args):
        pytester.makepyfile(JOB + text)
        plugin = () if INSTALLED else ("-p", "forkpoint.pytest_plugin")
        return pytester.runpytest_subprocess(*plugin, "-p", "no:cacheprovider", "-p", "no:schemathesis", "-Werror", *args)

    return of


def test_the_entry_point_names_the_plugin():
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    (name,) = declared["project"]["entry-points"]["pytest11"].values()
    assert importlib.import_module(name).forkpoint_env


def test_the_environment_runs_on_the_local_engine_over_a_state_root_of_the_test(run):
    run(
        """
def program():
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(10)
    numbers = env.from_source(fp.NumberSequenceSource(1, 4), fp.WatermarkStrategy.no_watermarks(), "n").uid("n")
    stream = numbers.key_by(lambda n: 0, int).reduce(lambda a, b: a + b).uid("sums")
    sink = TestSink()
    stream.sink_to(sink).uid("out")
    return env.execute("program"), sink.values

def test_an_environment(forkpoint_env, forkpoint_state_root, tmp_path):
    stream = forkpoint_env.from_collection([1, 2, 3]).map(lambda n: n + 1)
    assert list(stream.execute_and_collect()) == [2, 3, 4]

def test_a_program(forkpoint_env, forkpoint_state_root):
    import pathlib
    result, values = program()
    assert result.status is fp.JobStatus.FINISHED
    assert max(values) == 10
    assert (pathlib.Path(forkpoint_state_root) / "jobs" / "program").is_dir()

def test_another_state_root(forkpoint_state_root):
    import os
    assert os.listdir(forkpoint_state_root) == []
""",
        "-Wignore:operators without a uid:UserWarning",
    ).assert_outcomes(passed=3)


def test_jobs_that_still_run_are_cancelled(run):
    run("""
clients = []

def test_left_running(forkpoint_env):
    numbers = forkpoint_env.from_source(fp.CounterSource(), fp.WatermarkStrategy.no_watermarks(), "n").uid("n")
    numbers.sink_to(fp.DiscardSink()).uid("out")
    clients.append(forkpoint_env.execute_async("endless"))

def test_it_has_ended():
    assert clients[0].get_job_execution_result().result().status is fp.JobStatus.CANCELED
""").assert_outcomes(passed=2)


@pytest.mark.slow
def test_runs_of_a_test_share_clock_and_state_root(run):
    run("""
def test_runs(forkpoint_run, forkpoint_clock):
    before = forkpoint_clock()
    script = [1, 2, 3, Advance(1_000), Eof(savepoint=True), 4, 5]
    first = forkpoint_run(job, script)
    assert first.savepoint and sorted(first.output) == [1, 2, 4]
    assert forkpoint_clock() == before + 1_000
    assert sorted(forkpoint_run(job, script).output) == [6, 9]

def test_in_another_test_nothing_is_left(forkpoint_run):
    assert sorted(forkpoint_run(job, [1, 2, 3]).output) == [1, 2, 4]
""").assert_outcomes(passed=2)


@pytest.mark.slow
def test_harnesses_are_closed_and_share_the_clock(run):
    run("""
class Late(fp.KeyedProcessFunction):
    closed = []
    def process_element(self, value, ctx):
        ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 10)
    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key()
    def close(self):
        Late.closed.append(True)

def test_a_harness(forkpoint_harness, forkpoint_clock):
    harness = forkpoint_harness(KeyedProcessHarness, Late(), key=lambda v: v, key_type=str)
    harness.process_element("a")
    harness.set_processing_time(forkpoint_clock() + 10)
    assert harness.take() == ["a"]
    assert not Late.closed

def test_it_is_closed():
    assert Late.closed
""").assert_outcomes(passed=2)


def test_a_suite_that_uses_none_loads_nothing(pytester, monkeypatch):
    pytester.makepyfile("""
import sys

def test_nothing_is_loaded():
    assert "forkpoint.pytest_plugin" in sys.modules
    assert not {"forkpoint.api", "forkpoint.testing", "pyspark", "pyarrow", "numpy"} & set(sys.modules)
""")
    # Other plugins of this environment load some of these.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.runpytest_subprocess("-p", "forkpoint.pytest_plugin").assert_outcomes(passed=1)
