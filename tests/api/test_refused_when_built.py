"""What a program cannot mean is refused where it is written, or before its job starts: with the place, the value, the remedy."""

import pickle
import re
import subprocess
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import NamedTuple

import pytest

import forkpoint as fp
from forkpoint.types.shipping import culprit, dumps


@pytest.fixture
def stream(monkeypatch):
    monkeypatch.setenv("FORKPOINT_ENGINE", "local")
    return fp.StreamExecutionEnvironment.get_execution_environment().from_collection([1, 2, 3]).uid("numbers")


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Day:
    day: date


class Identity(fp.MapFunction):
    def map(self, value):
        return value


class Select(fp.KeySelector):
    def get_key(self, value):
        return value


class Process(fp.ProcessFunction):
    def process_element(self, value, ctx):
        yield value


class Keyed(fp.KeyedProcessFunction):
    def process_element(self, value, ctx):
        yield value


class Reduce(fp.ReduceFunction):
    def reduce(self, value1, value2):
        return value1


class Assign(fp.TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value


CLASSES = {
    "map": lambda s: s.map(Identity),
    "key_by": lambda s: s.key_by(Select),
    "process": lambda s: s.process(Process),
    "keyed process": lambda s: s.key_by(lambda v: v).process(Keyed),
    "reduce": lambda s: s.key_by(lambda v: v).reduce(Reduce),
    "reducing state": lambda s: fp.ReducingStateDescriptor("sum", Reduce, int),
    "timestamps": lambda s: fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Assign),
    "trigger": lambda s: s.key_by(lambda v: v).window(fp.GlobalWindows.create()).trigger(fp.CountTrigger),
    "window": lambda s: s.key_by(lambda v: v).window(fp.GlobalWindows),
    "sink": lambda s: s.sink_to(fp.CollectSink),
}


@pytest.mark.parametrize("use", CLASSES.values(), ids=CLASSES.keys())
def test_a_class_in_place_of_its_instance_is_refused_by_name(stream, use):
    with pytest.raises(fp.GraphError, match=r"(\w+) is a class; give an instance, \1\(\)"):
        use(stream)


OPTIONS = {
    "compression": (lambda: fp.FileSink.parquet("out", compression="brotly"), "brotly.*did you mean 'brotli'"),
    "sink's delimiter": (lambda: fp.FileSink.csv("out", delimiter=";;"), "delimiter is ';;'"),
    "source's delimiter": (lambda: fp.FileSource.csv("in", dict, delimiter="\n"), r"delimiter is '\\n'"),
    "no text": (lambda: fp.FileSource.csv("in", dict, delimiter=5), "delimiter is 5"),
    "prefix": (lambda: fp.FileSink.csv("out", prefix=5), "prefix is 5"),
    "bucket": (lambda: fp.FileSink.csv("out", bucket=5), "bucket is 5"),
    "age": (lambda: fp.FileSource.json("in", dict[str, int], max_file_age=5), "max_file_age is 5; give a timedelta"),
    "numbers": (lambda: fp.NumberSequenceSource("a", 2), "'a', 2.*ints"),
    "ttl": (lambda: fp.ValueStateDescriptor("v", int).enable_time_to_live(5), "state 'v'.*not 5; give timedelta"),
    "mode": (lambda: fp.CheckpointingMode("exactly"), "'exactly' is no CheckpointingMode; give .*EXACTLY_ONCE"),
    "runtime": (lambda: fp.RuntimeExecutionMode("STREM"), "'STREM' is no RuntimeExecutionMode.*STREAMING"),
    "update": (lambda: fp.StateTtlConfig.UpdateType(7), "7 is no UpdateType.*OnReadAndWrite"),
}


@pytest.mark.parametrize(("make", "message"), OPTIONS.values(), ids=OPTIONS.keys())
def test_a_value_that_an_option_cannot_have_is_refused(make, message):
    with pytest.raises(fp.ConfigError, match=message):
        make()


@pytest.mark.parametrize("text", ["5", "250", "1.5", " 7 "])
def test_a_duration_without_a_unit_is_refused_wherever_it_is_written(text, monkeypatch, tmp_path):
    with pytest.raises(fp.ConfigError, match=f"no unit; write '{text.strip()} ms'"):
        fp.StreamExecutionEnvironment.get_execution_environment({"execution.checkpointing.interval": text})
    monkeypatch.setenv("FORKPOINT_JOB__EXECUTION_CHECKPOINTING_INTERVAL", text)
    with pytest.raises(fp.ConfigError, match=r"EXECUTION_CHECKPOINTING_INTERVAL.*no unit"):
        fp.StreamExecutionEnvironment.get_execution_environment()
    monkeypatch.delenv("FORKPOINT_JOB__EXECUTION_CHECKPOINTING_INTERVAL")
    (tmp_path / "forkpoint.toml").write_text(f"[job]\nexecution.checkpointing.interval = {text}\n")
    monkeypatch.setenv("FORKPOINT_CONFIG", str(tmp_path / "forkpoint.toml"))
    with pytest.raises(fp.ConfigError, match=r"line 2.*no unit"):
        fp.StreamExecutionEnvironment.get_execution_environment()


def test_an_int_of_the_program_is_milliseconds_as_in_pyflink():
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.checkpointing.interval": 5000})
    assert env.options.checkpoint.interval_ms == 5000


@pytest.mark.parametrize("name", ["FORKPOINT_STATE_ROT", "FORKPOINT_ENGIN", "FORKPOINTENGINE", "FORKPOINT_CONFG"])
def test_a_misspelt_environment_variable_is_refused(name, monkeypatch):
    monkeypatch.setenv(name, "local")
    with pytest.raises(fp.ConfigError, match=f"{name} sets nothing; did you mean FORKPOINT_"):
        fp.StreamExecutionEnvironment.get_execution_environment()


@pytest.mark.parametrize("name", ["FORKPOINT_SERVICE_HOST", "FORKPOINT_PORT_8081_TCP_ADDR", "FORKPOINT_OF_MINE"])
def test_variables_of_kubernetes_and_of_others_are_left_alone(name, monkeypatch):
    monkeypatch.setenv(name, "10.0.0.1")
    fp.StreamExecutionEnvironment.get_execution_environment()


class Connected(fp.MapFunction):
    def __init__(self):
        self.pools = {"a": [threading.Lock()]}

    def map(self, value):
        return value


def closed_over():
    lock = threading.Lock()

    def guarded(value):
        with lock:
            return value

    return guarded


def with_default(value, *, lock=threading.Lock()):  # noqa: B008
    return value


def local_class():
    class Shared(fp.MapFunction):
        lock = threading.Lock()

        def map(self, value):
            return value

    return Shared()


UNPICKLABLE = {
    "attribute": (Connected, "attribute 'pools'['a'][0] is a _thread.lock"),
    "closure": (closed_over, "variable 'lock' of closed_over.<locals>.guarded is a _thread.lock"),
    "class attribute": (local_class, "class attribute Shared.lock is a _thread.lock"),
}


@pytest.mark.parametrize(("make", "message"), UNPICKLABLE.values(), ids=UNPICKLABLE.keys())
def test_what_cannot_be_sent_to_the_workers_is_named_before_the_job_starts(stream, make, message, tmp_path):
    stream.map(make()).uid("guarded").print().uid("printed")
    with pytest.raises(fp.GraphError, match=re.escape(message)) as refused:
        stream.get_execution_environment().set_state_root(str(tmp_path)).execute("job")
    said = str(refused.value)
    assert all(part in said for part in ("operator 'guarded'", "open()", "test_refused_when_built.py, line"))
    assert not list(tmp_path.rglob("*.json")), "no run was made"


def test_what_can_be_sent_has_no_culprit():
    assert culprit([Identity(), {"a": closed_over}]) is None


PROGRAM = """
import threading
import forkpoint as fp

env = fp.StreamExecutionEnvironment.get_execution_environment()
lock = threading.Lock()
env.from_collection([1]).map(lambda value: lock and value).uid("guarded").print().uid('printed')
env.execute("job")
"""


def test_an_uncaught_error_shows_the_programs_lines_only(tmp_path):
    (tmp_path / "app.py").write_text(PROGRAM)
    ended = subprocess.run([sys.executable, "app.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert re.fullmatch(
        r'Traceback \(most recent call last\):\n  File ".*app.py", line 8, in <module>\n    env.execute\("job"\)\n(    .*\n)*'
        r"forkpoint.errors.GraphError: operator 'guarded' \(map, app.py, line 7\) .*global variable 'lock' of <lambda>.*\n",
        ended.stderr,
    )


RETURNED = {
    "text": "abc",
    "dict": {"a": 1},
    "number": 5,
    "bytes": b"ab",
    "named tuple": Point(1, 2),
    "row": fp.Row(1, 2),
}


@pytest.mark.parametrize("value", RETURNED.values(), ids=RETURNED.keys())
@pytest.mark.parametrize("keyed", [True, False])
def test_one_output_that_is_returned_instead_of_yielded_is_refused_by_the_operators_uid(stream, value, keyed):
    class Returning(fp.KeyedProcessFunction if keyed else fp.ProcessFunction):
        def process_element(self, element, ctx):
            return value

    before = stream.key_by(lambda element: element) if keyed else stream
    before.process(Returning()).uid("returning").print()
    with pytest.raises(fp.TypeNotSupported, match=r"operator 'returning': the function returned .*yield each"):
        stream.get_execution_environment().execute()


def test_a_tuple_that_is_returned_is_named_with_the_remedy(stream):
    stream.flat_map(lambda element: (1, "a"), output_type=tuple[int, str]).uid("pairs").print()
    with pytest.raises(fp.TypeNotSupported, match=r"operator 'pairs' emits 1, .*yield a single output"):
        stream.get_execution_environment().execute()


def test_a_gap_that_is_not_above_0_is_refused_by_operator_and_element(stream):
    windows = fp.EventTimeSessionWindows.with_dynamic_gap(lambda element: 0)
    times = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda element, stamp: element)
    keyed = stream.assign_timestamps_and_watermarks(times).key_by(lambda element: 7)
    keyed.window(windows).reduce(lambda a, b: a).uid("sessions").print()
    with pytest.raises(fp.UserFunctionError, match=r"'sessions'.*gap of a session is 0 ms.*\(key 7, element 1\)"):
        stream.get_execution_environment().execute()


VALUES = {
    "surrogate": (str, "a\ud800", "lone surrogate; replace them"),
    "date": (Day, Day(datetime(2026, 1, 1, 5, tzinfo=UTC)), "a time of day; give its .date()"),
}


@pytest.mark.parametrize(("type", "value", "message"), VALUES.values(), ids=VALUES.keys())
def test_a_value_that_a_type_cannot_hold_is_refused_with_the_remedy(stream, type, value, message):
    stream.map(lambda element: value, output_type=type).uid("made").key_by(lambda element: 1).sum(0).print()
    with pytest.raises(fp.TypeNotSupported, match=f"operator 'made' emits .*{message}"):
        stream.get_execution_environment().execute()


def test_time_to_live_takes_a_timedelta():
    assert fp.ValueStateDescriptor("v", int).enable_time_to_live(timedelta(hours=1)).ttl.ttl_ms == 3_600_000


class Colour(Enum):
    RED = "r"
    CRIMSON = "r"  # noqa: PIE796
    BLUE = "b"


def test_an_enum_with_aliases_is_sent_by_value(monkeypatch):
    monkeypatch.setattr(Colour, "__module__", "__main__")  # as in a program's file
    data = dumps(Colour)
    made = pickle.loads(subprocess.run([sys.executable, "-c", LOAD], input=data, capture_output=True, check=True).stdout)
    assert made == {"RED": "r", "CRIMSON": "r", "BLUE": "b"}


LOAD = """
import pickle, sys
found = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(pickle.dumps({name: member.value for name, member in found.__members__.items()}))
"""
