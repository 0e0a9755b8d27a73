"""What PyFlink's programs say beside the streams themselves: rows, settings, plans, files, retries, metrics."""

from __future__ import annotations

import copy
import functools
import json
import pickle
from datetime import UTC, datetime, timedelta

import pytest

import forkpoint as fp
from forkpoint.testing import KeyedProcessHarness


def environment() -> fp.StreamExecutionEnvironment:
    return fp.StreamExecutionEnvironment.get_execution_environment()


GENERIC = [
    fp.AggregateFunction,
    fp.AllWindowFunction,
    fp.AsyncFunction,
    fp.AsyncRetryPredicate,
    fp.AsyncRetryStrategy,
    fp.BroadcastProcessFunction,
    fp.Evictor,
    fp.KeyedProcessFunction,
    fp.MapFunction,
    fp.MergingWindowAssigner,
    fp.ProcessAllWindowFunction,
    fp.ProcessWindowFunction,
    fp.ProcessWindowFunction.Context,
    fp.SessionWindowTimeGapExtractor,
    fp.Trigger,
    fp.Trigger.TriggerContext,
    fp.ValueState,
    fp.WindowAssigner,
    fp.WindowFunction,
    fp.WindowSerializer,
]


@pytest.mark.parametrize("cls", GENERIC, ids=lambda cls: cls.__qualname__)
def test_classes_take_type_parameters(cls):
    parameters = (int,) if cls is fp.ValueState else (int, str)
    assert cls[parameters].__origin__ is cls
    if not hasattr(cls, "__parameters__"):
        assert cls in type("Derived", cls[parameters].__mro_entries__(()), {}).__mro__


class TestRows:
    def test_rows_within_rows_as_dicts(self):
        row = fp.Row(key=1, values=[fp.Row(name="a", age=2)], by_name={"b": fp.Row(age=3)})
        assert row.as_dict()["values"] == [fp.Row(name="a", age=2)]
        assert row.as_dict(True) == {"key": 1, "values": [{"name": "a", "age": 2}], "by_name": {"b": {"age": 3}}}
        with pytest.raises(TypeError, match="without field names"):
            fp.Row(key=fp.Row(1)).as_dict(recursive=True)

    def test_texts_names_and_slices(self):
        assert (repr(fp.Row("a", 1)), repr(fp.Row(name="a"))) == ("<Row('a', 1)>", "Row(name='a')")
        assert "name" in fp.Row(name="a")
        assert "a" not in fp.Row(name="a")
        assert "a" in fp.Row("a")
        assert fp.Row(1, 2, 3)[1:] == [2, 3]

    @pytest.mark.parametrize("again", [lambda row: pickle.loads(pickle.dumps(row)), copy.copy, copy.deepcopy])
    def test_kinds_go_with_the_row(self, again):
        row = fp.Row.of_kind(fp.RowKind.DELETE, name="a")
        assert again(row).get_row_kind() is fp.RowKind.DELETE
        assert again(row) == row != fp.Row(name="a")
        assert str(row.get_row_kind()) == "-D"

    def test_kinds_pass_untyped_streams_and_are_refused_by_types(self):
        row = fp.Row.of_kind(fp.RowKind.UPDATE_AFTER, 1)
        untyped = fp.Types.ANY()
        assert untyped.decode(untyped.encode(row)) == row
        with pytest.raises(fp.TypeNotSupported, match=r"UPDATE_AFTER.*make the kind a field"):
            fp.Types.ROW([fp.Types.INT()]).encode(row)


class TestConfiguration:
    def test_values_texts_and_identity(self):
        configuration = fp.Configuration().set_string("a", "x").set_integer("b", 1).set_boolean("c", True)
        assert configuration.to_dict() == {"a": "x", "b": "1", "c": "true"}
        assert str(configuration) == "{a=x, b=1, c=true}"
        assert fp.Configuration(configuration) == configuration == copy.deepcopy(configuration)
        assert hash(fp.Configuration(configuration)) == hash(configuration)
        assert configuration.remove_config("a")
        assert not configuration.remove_config("a")
        assert configuration != fp.Configuration.from_dict({"a": "x", "b": "1", "c": True})

    def test_bytes_and_lists(self):
        configuration = fp.Configuration().set_bytearray("a", b"\x01")
        assert configuration.get_bytearray("a", b"") == bytearray(b"\x01")
        assert configuration.get_bytearray("b", b"\x02") == bytearray(b"\x02")
        parse = fp.Configuration.parse_list_value
        assert parse("[a, 'b']") == parse("a;b") == parse("- a\n- b") == ["a", "b"]
        assert parse(None) == []

    def test_options_without_effect_are_read_back(self):
        env = environment()
        env.configure({"pipeline.operator-chaining": "false", "execution.buffer-timeout": "1 min", "pipeline.jars": "a;b"})
        assert not env.is_chaining_enabled()
        assert env.get_buffer_timeout() == 60_000
        assert env.add_jars("c").options.accepted["pipeline.jars"] == ["a", "b", "c"]
        config = env.get_config().disable_object_reuse().set_task_cancellation_interval(5)
        assert (config.is_object_reuse_enabled(), config.get_task_cancellation_interval()) == (False, 5)
        assert config == env.get_config() != environment().get_config()
        config = env.configure(
            {
                "pipeline.object-reuse": "false",
                "pipeline.closure-cleaner-level": "RECURSIVE",
                "pipeline.generic-types": "false",
            }
        ).get_config()
        assert not config.is_object_reuse_enabled()
        assert config.is_closure_cleaner_enabled()
        assert config.has_generic_types_disabled()
        checkpoints = env.get_checkpoint_config()
        assert isinstance(checkpoints, fp.CheckpointConfig)
        checkpoints.enable_unaligned_checkpoints().set_alignment_timeout(timedelta(seconds=1))
        assert env.is_unaligned_checkpoints_enabled()
        assert checkpoints.get_alignment_timeout() == fp.Duration.of_seconds(1)

    def test_the_name_of_a_job_by_its_option(self):
        env = environment().configure({"pipeline.name": "nightly", "execution.engine": "local"})
        env.from_collection([1]).sink_to(fp.DiscardSink())
        result = env.execute()
        assert (result.job_name, result.get_all_accumulator_results()) == ("nightly", {})
        assert result.get_accumulator_result("rows") is None


@pytest.mark.parametrize(
    "call",
    [
        lambda env: env.add_source(None),
        lambda env: env.create_input(None),
        lambda env: env.register_cached_file("a", "b"),
        lambda env: env.from_collection([1]).add_sink(None),
        lambda env: env.from_collection([1]).cache(),
        lambda env: env.from_collection([1]).set_uid_hash("x"),
    ],
)
def test_methods_that_are_absent_say_what_to_use(call):
    with pytest.raises(fp.GraphError, match=r"; (use|read|write)|use uid\(\)"):
        call(environment())


def test_the_execution_plan():
    env = environment().set_parallelism(2)
    one, two = env.from_collection([1]).name("one"), env.from_collection([2])
    mapped = one.union(two).rescale().map(lambda x: x).name("mapped").set_parallelism(1)
    mapped.key_by(lambda x: x).process(Seen()).sink_to(fp.DiscardSink())
    nodes = json.loads(env.get_execution_plan())["nodes"]
    assert [(n["id"], n["pact"], n["parallelism"]) for n in nodes] == [
        (1, "Data Source", 2),
        (2, "Data Source", 2),
        (3, "Operator", 1),
        (4, "Operator", 2),
        (5, "Data Sink", 2),
    ]
    assert [[(p["id"], p["ship_strategy"]) for p in n.get("predecessors", [])] for n in nodes] == [
        [],
        [],
        [(1, "RESCALE"), (2, "RESCALE")],
        [(3, "HASH")],
        [(4, "FORWARD")],
    ]
    assert mapped.get_name() == "mapped"
    assert mapped.force_non_parallel().get_execution_config() == env.get_config()


@pytest.mark.parametrize("method", ["forward", "rebalance", "rescale", "shuffle", "broadcast"])
def test_keyed_streams_go_by_their_key_alone(method):
    keyed = environment().from_collection([1]).key_by(lambda x: x)
    with pytest.raises(fp.GraphError, match=r"already partitioned.*before key_by"):
        getattr(keyed, method)()


class TestFiles:
    def test_a_directory_for_each_hour_unless_told_otherwise(self, tmp_path):
        env = environment().configure({"execution.engine": "local"})
        before = datetime.now(UTC).astimezone()
        encoder = fp.Encoder.simple_string_encoder("UTF-16LE")
        env.from_collection(["ä"]).sink_to(fp.FileSink.for_row_format(f"file://{tmp_path}", encoder).build())
        env.execute()
        (file,) = (path for path in tmp_path.glob("*/*"))
        assert file.parent.name in {f"{t:%Y-%m-%d--%H}" for t in (before, datetime.now(UTC).astimezone())}
        assert file.suffix == ""
        assert file.read_text("UTF-16LE") == "ä\n"

    @pytest.mark.parametrize(("java", "text"), [("yyyy/MM/dd", "%Y/%m/%d"), ("'at' HH:mm'%'", "at 19:05%")])
    def test_java_patterns_of_times(self, java, text):
        from forkpoint.connectors.files.builders import _strftime

        then = datetime(2026, 3, 1, 19, 5, tzinfo=UTC)
        assert then.strftime(_strftime(java)) == then.strftime(text.replace("5%", "5%%"))

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: fp.Encoder.simple_string_encoder("UTF-9"), "unknown charset 'UTF-9'"),
            (lambda: fp.BucketAssigner.date_time_bucket_assigner("EEE"), "'EEE'.*is not one of yyyy"),
            (
                lambda: fp.BucketAssigner.date_time_bucket_assigner(timezone_id="Mars/North"),
                "unknown time zone 'Mars/North'",
            ),
            (lambda: fp.StreamFormat.text_line_format("UTF-16"), "read as UTF-8"),
            (lambda: fp.FileSource.for_record_stream_format(fp.StreamFormat.text_line_format(), "a", "b"), "2 paths"),
            (lambda: fp.FileSink.for_row_format("a", "UTF-8"), "takes an Encoder"),
            (lambda: fp.NumberSequenceSource(2, 1), "must not be below the first"),
        ],
    )
    def test_what_cannot_be_is_refused(self, make, message):
        with pytest.raises(fp.ConfigError, match=message):
            make()


def test_retry_strategies_by_name():
    timeouts = functools.partial(fp.exception_type_predicate, expected_error_type=TimeoutError)
    fixed = fp.AsyncRetryStrategy.fixed_delay(3, 10, None, timeouts)
    again = fixed.get_retry_predicate().exception_predicate()
    assert (again(TimeoutError()), again(ValueError()), fixed.can_retry(3), fixed.can_retry(4)) == (
        True,
        False,
        True,
        False,
    )
    growing = fp.AsyncRetryStrategy.exponential_backoff(3, 10, 25, 2.0, fp.empty_result_predicate, None)
    assert [growing.get_backoff_time_millis(n) for n in (1, 2, 3)] == [10, 20, 25]
    assert not fp.AsyncRetryStrategy.no_restart().can_retry(1)


class Seen(fp.KeyedProcessFunction):
    def open(self, runtime_context):
        metrics = runtime_context.get_metrics_group()
        self.seen = metrics.counter("seen")
        self.sizes = metrics.add_group("sizes", "bytes").distribution("of")
        self.meter = metrics.meter("events")
        metrics.gauge("last", lambda: self.last)
        assert metrics.counter("seen") is self.seen
        self.task = runtime_context.get_task_name_with_subtasks()

    def process_element(self, value, ctx):
        self.seen.inc()
        self.meter.mark_event(2)
        self.sizes.update(value)
        self.last = value
        yield self.task


def test_metrics():
    harness = KeyedProcessHarness(Seen(), key=lambda value: 0, key_type=int)
    for value in (3, 5):
        harness.process_element(value, None)
    found = harness.metrics()
    assert found.pop("events.rate") > 0
    assert found == {
        "seen": 2,
        "last": 5,
        "events.count": 4,
        "sizes.bytes.of.count": 2,
        "sizes.bytes.of.sum": 8,
        "sizes.bytes.of.min": 3,
        "sizes.bytes.of.max": 5,
    }
