"""A run that is stopped and restored gives what a run straight through gives, at any parallelism."""

import time

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from semantics_programs import Event, Interpreter, by_key, inputs, mix, programs, strategy

import forkpoint as fp
from example_counts import examples
from forkpoint.api.launch import Launch
from forkpoint.graph.options import JobOptions, RestoreOptions
from forkpoint.testing import ABORT, EOF, Advance, Eof, ManualClock, TestSink, TestSource, run_local
from patience import PATIENCE_S


class Echo(fp.KeyedProcessFunction):
    """A second stage with state and timers of its own."""

    history = fp.ValueStateDescriptor("history", int)
    latest = fp.MapStateDescriptor("latest", str, int)

    def process_element(self, value, ctx):
        self.history.update(mix(self.history.value() or 0, value[2]))
        self.latest[value[0]] = value[2]
        ctx.timer_service().register_event_time_timer(value[2] + 4)
        yield (
            ctx.get_current_key(),
            "echo",
            value[0],
            value[2],
            ctx.timer_service().current_watermark(),
            self.history.value(),
        )

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), "timer", timestamp, sorted(self.latest.items())


def job(timer_ops, bound=3):
    def build(env, source):
        stream = env.from_source(source, strategy(bound), "in").uid("in")
        first = stream.key_by(lambda e: e.key, str).process(Interpreter(timer_ops)).uid("first")
        second = first.key_by(lambda v: v[2] % 3, int).process(Echo()).uid("second")
        return {"first": first, "second": second}

    return build


def joined(*runs):
    """The outputs of runs that followed each other, by key."""
    return {name: by_key([value for run in runs for value in run.outputs[name]]) for name in ("first", "second")}


def split_at(events, place, mark):
    return [*events[:place], mark, *events[place:]]


@examples(7, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(inputs(size=20), programs, st.integers(0, 20), st.integers(1, 3))
def test_stopped_and_gone_on_from_the_checkpoint(tmp_path_factory, events, timer_ops, place, parallelism):
    straight = joined(run_local(job(timer_ops), events, parallelism=1))
    root = tmp_path_factory.mktemp("root")
    script = split_at(events, place, EOF)
    runs = [run_local(job(timer_ops), script, parallelism=parallelism, state_root=root, epochs=8) for _ in range(2)]
    assert [run.outcome for run in runs] == ["cancelled", "finished"]
    assert joined(*runs) == straight


@examples(8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(inputs(size=20), programs, st.integers(0, 20), st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_stopped_with_a_savepoint_and_restored_at_another_parallelism(
    tmp_path_factory, events, timer_ops, place, before, after, other_job
):
    straight = joined(run_local(job(timer_ops), events, parallelism=1))
    root = tmp_path_factory.mktemp("root")
    script = split_at(events, place, Eof(savepoint=True))
    first = run_local(job(timer_ops), script, parallelism=before, state_root=root, epochs=8)
    assert first.outcome == "stopped"
    second = run_local(
        job(timer_ops),
        script,
        parallelism=after,
        state_root=root,
        restore=first.savepoint,
        epochs=8,
        job_name="fork" if other_job else "test",
    )
    assert joined(first, second) == straight


@pytest.mark.parametrize("max_parallelism", [4, 1000])
def test_restored_at_another_max_parallelism(tmp_path, max_parallelism):
    events = [(f"k{i % 20}", i) for i in range(60)]

    def build(env, source):
        keyed = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").uid("in").key_by(lambda e: e[0], str)
        return keyed.map_with_state(lambda e, s: ((e[0], (s or 0) + e[1]), (s or 0) + e[1]), int).uid("sums")

    straight = run_local(build, events).by_key(lambda v: v[0])
    script = split_at(events, 30, Eof(savepoint=True))
    first = run_local(build, script, parallelism=3, state_root=tmp_path)
    second = run_local(
        build, script, parallelism=4, max_parallelism=max_parallelism, restore=first.savepoint, state_root=tmp_path
    )
    assert {k: [*v, *second.by_key(lambda v: v[0])[k]] for k, v in first.by_key(lambda v: v[0]).items()} == straight


@pytest.mark.parametrize("parallelism", [1, 3])
def test_gone_on_from_the_checkpoint_at_another_parallelism_and_killed_on_the_way(tmp_path, parallelism):
    events = [event(i) for i in range(40)]
    ops = [(("register", 6), ("value", 3)), (("register", -5), ("add", 1)), (("delete", 3), ("put", 1, 2))]
    straight = joined(run_local(job(ops), events, parallelism=1))
    script = [*events[:10], ABORT, *events[10:20], EOF, *events[20:30], ABORT, *events[30:]]
    first = run_local(job(ops), script, parallelism=2, state_root=tmp_path, epochs=7)
    second = run_local(job(ops), script, parallelism=parallelism, state_root=tmp_path, epochs=6)
    assert (first.deaths, second.deaths) == (1, 1)
    assert joined(first, second) == straight


def event(i):
    return Event("abc"[i % 3], i * 3 - i % 7, (("value", i % 9), ("register", i % 11 - 3), ("add", i % 5)))


def test_processing_time_timers_survive_a_savepoint(tmp_path):
    class Reminder(fp.KeyedProcessFunction):
        def process_element(self, value, ctx):
            timers = ctx.timer_service()
            timers.register_processing_time_timer(timers.current_processing_time() + 5000)

        def on_timer(self, timestamp, ctx):
            yield ctx.get_current_key(), timestamp, ctx.time_domain()

    def build(env, source):
        keyed = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "in").uid("in").key_by(lambda e: e, str)
        return keyed.process(Reminder()).uid("remind")

    script = ["a", Advance(1000), "b", Eof(savepoint=True), Advance(4500), "c"]
    first = run_local(build, script, clock=ManualClock(0), parallelism=2, state_root=tmp_path)
    assert first.output == []
    clock = ManualClock(1000)
    second = run_local(build, script, clock=clock, parallelism=3, state_root=tmp_path, restore=first.savepoint)
    assert second.output == [("a", 5000, fp.TimeDomain.PROCESSING_TIME)]
    assert clock() == 5500


def test_a_drained_savepoint_has_fired_everything(tmp_path):
    events = [event(i) for i in range(10)]
    build = job([()])
    drained = run_local(build, [*events, Eof(savepoint=True, drain=True)], state_root=tmp_path, parallelism=2)
    assert joined(drained) == joined(run_local(build, events, parallelism=1))


def test_stop_with_savepoint_by_the_client_and_restore_by_the_launch(tmp_path):
    events = [event(i) for i in range(60)]
    build = job([(("register", 5),)])
    straight = joined(run_local(build, events, parallelism=1))

    def make(parallelism):
        options = JobOptions(engine="local", parallelism=parallelism, state_root=str(tmp_path), max_epoch_rows=2)
        env = fp.StreamExecutionEnvironment(options).enable_checkpointing(30)
        sinks = {}
        for name, stream in build(env, TestSource(events)).items():
            sinks[name] = TestSink()
            stream.sink_to(sinks[name]).uid(f"sink-{name}")
        return env, sinks

    env, before = make(2)
    client = env.execute_async("job")
    while not before["second"].records:
        time.sleep(0.01)
    savepoint = client.stop_with_savepoint().result(PATIENCE_S)
    result = client.get_job_execution_result().result(PATIENCE_S)
    assert result.savepoint == savepoint
    assert 0 < len(before["first"].values) < sum(map(len, straight["first"].values()))

    env, after = make(3)
    env.enable_checkpointing(1)
    env.launch = Launch(restore=RestoreOptions(savepoint=savepoint))
    env.execute("job")
    found = {name: by_key(before[name].values + after[name].values) for name in before}
    assert found == straight
