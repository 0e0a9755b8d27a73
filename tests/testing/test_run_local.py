"""run_local: scripts of inputs, names of outputs, the clock, and what it refuses."""

import sys
from datetime import UTC, datetime, timedelta

import pytest

import forkpoint as fp
from forkpoint.testing import ABORT, EOF, PAUSE, Abort, Advance, Eof, ManualClock, TestSink, TestSource, run_local

NO_WATERMARKS = fp.WatermarkStrategy.no_watermarks()


def passing(env, source):
    return env.from_source(source, NO_WATERMARKS, "in").uid("in").map(lambda v: v)


def epochs_of(run):
    """The elements of each epoch."""
    found = {}
    for record in run.records["output"]:
        found.setdefault(record.epoch, []).append(record.value)
    return list(found.values())


def test_the_kit_is_reached_from_the_package_and_loaded_only_then():
    import subprocess

    program = "import sys, forkpoint as fp; before = 'forkpoint.testing' in sys.modules; fp.testing.run_local; print(before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("script", "epochs", "expected"),
    [
        ([1, 2, 3], None, [[1, 2, 3]]),
        ([1, PAUSE, 2, 3], None, [[1], [2, 3]]),
        ([1, 2, 3, 4, 5], 2, [[1, 2], [3, 4], [5]]),
        ([1, 2, PAUSE, 3, 4, 5], 2, [[1, 2], [3, 4], [5]]),
        ([1, 2, 3, PAUSE, 4, 5], 2, [[1, 2], [3], [4, 5]]),
        ([1, 2, 3, 4, 5], [1, 4], [[1], [2, 3, 4], [5]]),
        ([1, 2, ABORT, 3, 4], None, [[1, 2, 3, 4]]),
        ([1, 2, Abort("committed"), 3, 4], None, [[1, 2], [3, 4]]),
        ([1, Abort("published"), PAUSE, Abort("planned"), 2, Abort("written")], None, [[1], [2]]),
        ([PAUSE, PAUSE, 1, PAUSE], None, [[1]]),
        ([], None, []),
    ],
)
def test_epochs_are_where_the_script_says(script, epochs, expected):
    run = run_local(passing, script, epochs=epochs, parallelism=1)
    assert epochs_of(run) == expected
    assert run.outcome == "finished"
    assert run.deaths == sum(isinstance(mark, Abort) for mark in script)


def test_splits_go_through_their_sections_in_step():
    source = TestSource([1, 2, PAUSE, 3], [10, PAUSE, 20, 30, PAUSE, 40])
    assert [sorted(epoch) for epoch in epochs_of(run_local(passing, source))] == [[1, 2, 10], [3, 20, 30], [40]]


def test_eof_stops_and_the_next_run_goes_on(tmp_path):
    script = [1, EOF, 2, Eof(savepoint=True), 3]
    runs = [run_local(passing, script, state_root=tmp_path) for _ in range(3)]
    assert [run.outcome for run in runs] == ["cancelled", "stopped", "finished"]
    assert [run.output for run in runs] == [[1], [2], [3]]
    assert runs[1].savepoint
    assert run_local(passing, script, state_root=tmp_path, restore=runs[1].savepoint).output == [3]


def test_without_a_state_root_every_run_begins_anew():
    assert [run_local(passing, [1, EOF, 2]).output for _ in range(2)] == [[1], [1]]


def test_a_state_root_wants_uids(tmp_path):
    with pytest.raises(fp.GraphError, match="uid"):
        run_local(lambda env, s: env.from_source(s, NO_WATERMARKS, "in").map(str), [1], state_root=tmp_path)


class Ticks(fp.KeyedProcessFunction):
    def process_element(self, value, ctx):
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + value)
        yield "at", timers.current_processing_time()

    def on_timer(self, timestamp, ctx):
        yield "tick", timestamp, ctx.timer_service().current_processing_time()


def ticking(env, source):
    return env.from_source(source, NO_WATERMARKS, "in").key_by(lambda v: 0, int).process(Ticks())


def test_processing_time_moves_only_as_the_script_says():
    clock = ManualClock(100)
    script = [50, 500, Advance(40), 7, ABORT, Advance(timedelta(milliseconds=20)), Advance(1000)]
    run = run_local(ticking, script, clock=clock, parallelism=1)
    assert run.output == [
        ("at", 100),
        ("at", 100),
        ("at", 140),
        ("tick", 147, 160),
        ("tick", 150, 160),
        ("tick", 600, 1160),
    ]
    assert clock() == 1160


def test_the_clock():
    clock = ManualClock(datetime(2020, 1, 1, tzinfo=UTC))
    clock.advance(timedelta(seconds=2))
    assert clock.now == datetime(2020, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert clock.set(5) == clock()
    assert clock.set(clock() + 5) == clock()
    with pytest.raises(fp.ConfigError):
        clock.advance(-1)


def test_outputs_have_names():
    stream = {}

    def build(env, source):
        stream["s"] = env.from_source(source, NO_WATERMARKS, "in")
        stream["s"].map(str).sink_to(TestSink()).uid("texts")
        return {"same": stream["s"], "double": stream["s"].map(lambda v: 2 * v)}

    run = run_local(build, [1, 2])
    assert run.outputs == {"same": [1, 2], "double": [2, 4], "texts": ["1", "2"]}
    with pytest.raises(fp.GraphError, match="double"):
        _ = run.output
    listed = run_local(lambda env, s: [env.from_source(s, NO_WATERMARKS, "in").map(f) for f in (str, float)], [1])
    assert listed.outputs == {"0": ["1"], "1": [1.0]}
    assert run_local(passing, ["ab", "c", "ad"], parallelism=1).by_key(lambda v: v[0]) == {
        "a": ["ab", "ad"],
        "c": ["c"],
    }


def test_a_finished_environment_is_run_too():
    env = fp.StreamExecutionEnvironment()
    sink = TestSink()
    env.from_collection([1, 2, 3], int).map(lambda v: v * v).sink_to(sink).uid("squares")
    assert run_local(env).outputs == {"squares": [1, 4, 9]}
    assert sink.values == [1, 4, 9]
    with pytest.raises(fp.ConfigError, match="inputs"):
        run_local(env, [1])


def test_several_inputs():
    def build(env, left, right):
        return env.from_source(left, NO_WATERMARKS, "left").union(env.from_source(right, NO_WATERMARKS, "right"))

    run = run_local(build, [1, PAUSE, 2], TestSource(["a", PAUSE, "b"]))
    assert [sorted(map(str, epoch)) for epoch in epochs_of(run)] == [["1", "a"], ["2", "b"]]


def test_columns_and_pieces_bring_the_same():
    elements = [(f"n{i}", i) for i in range(50)]
    source = TestSource(elements, type=tuple[str, int], columnar=True, batch_rows=7)
    assert sorted(run_local(passing, source, parallelism=3, epochs=20).output) == sorted(elements)
    with pytest.raises(fp.ConfigError, match="type"):
        TestSource([1], columnar=True)


def test_a_dead_process_loses_nothing_that_was_committed_and_repeats_nothing(tmp_path):
    script = [1, PAUSE, 2, Abort("committed"), PAUSE, 3, Abort("published"), 4]
    run = run_local(passing, script, state_root=tmp_path)
    assert (run.output, run.deaths) == ([1, 2, 3, 4], 2)


def test_the_job_is_told_its_parameters():
    class Told(fp.MapFunction):
        def open(self, runtime_context):
            self.greeting = runtime_context.get_job_parameter("greeting", "none")

        def map(self, value):
            return self.greeting

    run = run_local(
        lambda env, s: env.from_source(s, NO_WATERMARKS, "in").map(Told()),
        [1],
        options={"parameters": {"greeting": "hi"}},
    )
    assert run.output == ["hi"]


@pytest.mark.parametrize(
    ("drain", "seen", "said"),
    [(False, [1, 2, 3, 4], "continues because the savepoint"), (True, [1, 2], "ends without the savepoint")],
)
def test_a_stop_whose_savepoint_fails_is_an_error_behind_what_the_job_still_does(tmp_path, caplog, drain, seen, said):
    (tmp_path / "file").write_text("in the way")
    sink = TestSink()
    with pytest.raises(fp.StorageError, match="file"):
        run_local(
            lambda env, source: passing(env, source).sink_to(sink).uid("out") and None,
            [1, 2, Eof(savepoint=True, drain=drain), 3, PAUSE, 4],
            options={"savepoint_directory": str(tmp_path / "file")},
        )
    assert [record.value for record in sink.records] == seen
    assert said in caplog.text
