import subprocess
import sys
import types
from datetime import timedelta

import pytest

import forkpoint as fp
from forkpoint.wording import parse_duration_ms


@pytest.fixture
def env():
    return fp.StreamExecutionEnvironment.get_execution_environment()


def test_defaults_are_flinks(env):
    options = env.options
    assert (options.parallelism, options.max_parallelism, options.state_root) == (None, 128, None)
    assert not options.checkpoint.enabled
    assert options.restart_strategy == fp.RestartStrategy.none()
    env.enable_checkpointing(1000)
    strategy = env.options.restart_strategy
    assert strategy.kind == "exponential-delay"
    assert (strategy.delay_ms, strategy.max_delay_ms, strategy.multiplier, strategy.jitter) == (1_000, 60_000, 1.5, 0.1)
    assert (strategy.reset_after_ms, strategy.attempts) == (3_600_000, None)


def test_setting_options(env):
    env.enable_checkpointing(timedelta(seconds=5), fp.CheckpointingMode.AT_LEAST_ONCE).set_parallelism(4)
    env.set_max_parallelism(256).set_state_root("/state").set_default_savepoint_directory("/savepoints")
    env.set_restart_strategy(fp.RestartStrategy.fixed_delay(3, fp.Time.seconds(10)))
    env.get_checkpoint_config().set_min_pause_between_checkpoints(fp.Duration.of_millis(500)).set_checkpoint_timeout(9000)
    env.get_config().set_auto_watermark_interval(0).set_global_job_parameters({"limit": 3})
    assert env.options == fp.JobOptions(
        parallelism=4,
        max_parallelism=256,
        state_root="/state",
        savepoint_directory="/savepoints",
        checkpoint=fp.CheckpointOptions(5_000, fp.CheckpointingMode.AT_LEAST_ONCE, 9_000, 500),
        restart=fp.RestartStrategy("fixed-delay", 3, 10_000),
        auto_watermark_interval_ms=0,
        parameters={"limit": "3"},
    )
    config = env.get_checkpoint_config()
    assert (config.get_checkpoint_interval(), config.get_checkpoint_timeout()) == (5_000, 9_000)
    assert config.get_min_pause_between_checkpoints() == 500
    assert config.is_checkpointing_enabled()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda e: e.enable_checkpointing(0), "checkpoint interval is 0 ms"),
        (lambda e: e.set_parallelism(0), "the parallelism is 0"),
        (lambda e: e.set_parallelism(200), "200 exceeds the maximum parallelism 128"),
        (lambda e: e.set_max_parallelism(32769), "at most 32768"),
        (lambda e: e.set_restart_strategy("none"), "takes a RestartStrategy"),
        (lambda e: e.get_checkpoint_config().set_tolerable_checkpoint_failure_number(-1), "failures is -1"),
        (lambda e: e.get_checkpoint_config().set_max_concurrent_checkpoints(0), "at least 1"),
        (lambda e: e.set_state_root(""), "state root is empty"),
        (lambda e: fp.RestartStrategy("exponential-delay", delay_ms=5, max_delay_ms=1), "maximum restart delay"),
        (lambda e: fp.RestartStrategy("exponential-delay", jitter=1.5), "jitter"),
        (lambda e: fp.RestartStrategy("sometimes"), "'sometimes'"),
        (lambda e: e.configure({"paralelism.default": 3}), "did you mean 'parallelism.default'"),
        (
            lambda e: e.configure({"execution.checkpointing.intervall": "1 s"}),
            "mean 'execution.checkpointing.interval'",
        ),
        (lambda e: e.configure({"my.option": 1}), "there is no option 'my.option'"),
        (lambda e: e.configure({"execution.checkpointing.interval": "soon"}), "is not a duration"),
        (lambda e: e.configure({"parallelism.default": "many"}), "not an integer"),
        (lambda e: e.configure({"execution.checkpointing.mode": "MAYBE"}), "EXACTLY_ONCE, AT_LEAST_ONCE"),
        (lambda e: e.configure({"restart-strategy.type": "hope"}), "expected one of"),
    ],
)
def test_wrong_options(env, change, message):
    before = env.options
    with pytest.raises(fp.ConfigError, match=message):
        change(env)
    assert env.options == before


def test_options_by_flinks_keys():
    configuration = fp.Configuration().set_integer("parallelism.default", 2).set_string("python.execution-mode", "thread")
    configuration.set_string("execution.checkpointing.interval", "10 s").set_string("state.backend.type", "rocksdb")
    configuration.set_string("restart-strategy.type", "failure-rate")
    configuration.set_string("restart-strategy.failure-rate.max-failures-per-interval", "5")
    configuration.set_string("restart-strategy.fixed-delay.attempts", "9")  # of another strategy
    configuration.set_string("pipeline.global-job-parameters", "a:1, b:x:y")
    options = fp.StreamExecutionEnvironment.get_execution_environment(configuration).options
    assert (options.parallelism, options.checkpoint.interval_ms, options.state_backend) == (2, 10_000, "rocksdb")
    assert options.restart == fp.RestartStrategy.failure_rate(5)
    assert options.parameters == {"a": "1", "b": "x:y"}
    assert configuration.get_integer("parallelism.default", 1) == 2
    assert configuration.get_boolean("absent", True)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        (250, 250),
        ("10 s", 10_000),
        ("1.5min", 90_000),
        ("2 h", 7_200_000),
        (timedelta(days=1), 86_400_000),
    ],
)
def test_durations_as_flink_writes_them(text, ms):
    assert parse_duration_ms("key", text) == ms


class SparkType:
    def __init__(self, name, **parts):
        self._name = name
        self.__dict__.update(parts)

    def typeName(self):  # noqa: N802  (Spark's own)
        return self._name

    def simpleString(self):  # noqa: N802
        return self._name


def frame(**columns):
    fields = [types.SimpleNamespace(name=name, dataType=of) for name, of in columns.items()]
    return types.SimpleNamespace(schema=types.SimpleNamespace(fields=fields), isStreaming=True, columns=list(columns))


def test_dataframes_tell_their_type(env):
    inner = SparkType("struct", fields=frame(a=SparkType("double")).schema.fields)
    df = frame(id=SparkType("long"), at=SparkType("timestamp"), tags=SparkType("array", elementType=inner))
    stream = env.from_dataframe(df, uid="rows", timestamp="at", max_rows=10)
    source = stream.edges[0].upstream
    expected = fp.Types.ROW_NAMED(
        ["id", "at", "tags"],
        [fp.Types.LONG(), fp.Types.INSTANT(), fp.Types.LIST(fp.Types.ROW_NAMED(["a"], [fp.Types.DOUBLE()]))],
    )
    assert stream.get_type() == source.output_type == expected
    assert (source.uid, source.spec.frame, source.spec.timestamp_column, source.spec.max_rows) == ("rows", df, "at", 10)
    assert env.from_dataframe(df, type=int).get_type() == fp.Types.LONG()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.from_dataframe([1]), "takes a Spark DataFrame, not list"),
        (lambda e: e.from_dataframe(frame(a=SparkType("long")), timestamp="b"), r"timestamp='b'.*it has a"),
        (lambda e: e.from_dataframe(frame(a=SparkType("interval"))), "column 'a' has Spark type interval"),
        (lambda e: e.from_source([1], fp.WatermarkStrategy.no_watermarks(), "s"), "takes a Source"),
        (lambda e: e.from_source(fp.CollectionSource([1]), None, "s"), "takes a WatermarkStrategy"),
        (lambda e: e.execute(), "no operators"),
    ],
)
def test_what_is_refused(env, call, message):
    with pytest.raises(fp.GraphError, match=message):
        call(env)


def test_a_sources_type_can_be_overridden(env):
    strategy = fp.WatermarkStrategy.no_watermarks()
    source = fp.CollectionSource([1], int)
    assert env.from_source(source, strategy, "s").get_type() == fp.Types.LONG()
    assert env.from_source(source, strategy, "s", fp.Types.ANY()).get_type() == fp.Types.ANY()


def test_the_ends_of_the_job(env):
    numbers = env.from_collection([1, 2])
    doubled = numbers.map(lambda n: 2 * n)
    sink = doubled.sink_to(fp.DiscardSink()).transformation
    lost = numbers.filter(bool)  # nobody reads it; Flink runs such operators too
    assert env.transformations == (sink, lost.edges[0].upstream)
    env.close()
    assert env.transformations == ()


@pytest.fixture
def execution(monkeypatch):
    """Stands where the engine is started: the environment's part is what it hands over."""
    import forkpoint.api

    module = types.ModuleType("forkpoint.api.execution")
    module.calls = []
    module.execute = lambda env, name, restore: module.calls.append((name, len(env.transformations))) or "result"
    module.execute_async = lambda env, name, restore: module.calls.append((name, len(env.transformations))) or "client"
    module.collect = lambda stream, limit, name: iter(range(5))
    monkeypatch.setitem(sys.modules, "forkpoint.api.execution", module)
    monkeypatch.setattr(forkpoint.api, "execution", module, raising=False)
    return module


def test_execution_takes_the_operators_once(env, execution):
    env.from_collection([1]).print()
    assert env.execute("one") == "result"
    with pytest.raises(fp.GraphError, match="no operators"):
        env.execute("again")
    env.from_collection([1]).print()
    assert env.execute_async() == "client"
    assert execution.calls == [("one", 1), (None, 1)]


def test_collecting(env, execution):
    stream = env.from_collection([1]).map(str)
    with stream.execute_and_collect() as results:
        assert next(results) == 0
    assert list(results) == []
    assert stream.execute_and_collect(limit=2) == [0, 1]


def test_operators_without_uids_are_told():
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    with pytest.warns(UserWarning, match=r"no state root is set: .* get a generated one \(collection\)"):
        assert list(env.from_collection([1, 2], int).execute_and_collect()) == [1, 2]


def test_a_program_that_ends_right_after_cancel_lets_its_job_end(tmp_path):
    """The job ends as it was told to, and is not killed with the threads of the process."""
    program = """
import time
from pathlib import Path

import forkpoint as fp

ENTERED, EXITS = Path("entered"), Path("exits")


def until_the_program_exits(number):
    ENTERED.touch()
    while not EXITS.exists():
        time.sleep(0.01)
    return number


env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"}).enable_checkpointing(10)
numbers = env.from_source(fp.CounterSource(per_epoch=1), fp.WatermarkStrategy.no_watermarks(), "numbers")
numbers.map(until_the_program_exits, int).sink_to(fp.DiscardSink())
client = env.execute_async("slow")
client.get_job_execution_result().add_done_callback(lambda _: print("ended", flush=True))
while not ENTERED.exists():
    time.sleep(0.01)
client.cancel()
print("exits", flush=True)
EXITS.touch()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["exits", "ended"]
