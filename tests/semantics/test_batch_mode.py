"""RuntimeExecutionMode.BATCH: final results only, wherever epochs are cut; what it refuses; and AUTOMATIC."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.api.launch import Launch
from forkpoint.testing import Eof, TestSource, run_local

BATCH, AUTOMATIC = fp.RuntimeExecutionMode.BATCH, fp.RuntimeExecutionMode.AUTOMATIC


class Event(NamedTuple):
    key: str
    ts: int
    n: int


STAMPS = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e.ts)


class Alarm(fp.KeyedProcessFunction):
    """Counts; tells at a timer of its own, which is not to be set again."""

    count = fp.ValueStateDescriptor("count", int)

    def process_element(self, value: Event, ctx: Any) -> Any:
        assert ctx.timer_service().current_watermark() == fp.MIN_WATERMARK
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(value.ts % 7)
        ctx.timer_service().register_processing_time_timer(10**14)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(timestamp + 1)
        ctx.timer_service().register_processing_time_timer(10**14 + 1)
        yield ctx.get_current_key(), timestamp, self.count.value()


def add(a: Event, b: Event) -> Event:
    return Event(a.key, max(a.ts, b.ts), a.n + b.n)


def job(env: Any, source: Any) -> Any:
    keyed = env.from_source(source, STAMPS, "in").uid("in").key_by("key")
    window = keyed.window(fp.TumblingEventTimeWindows.of(10))
    sums = keyed.sum("n").uid("sum")
    return {
        "reduce": keyed.reduce(add).uid("reduce"),
        "sum": sums.map(lambda e: (e.key, e.n)),
        "agg": keyed.agg(total=fp.Sum("n")).uid("agg").map(lambda row: (row.key, row.total)),
        "windows": window.reduce(add).uid("windows"),
        "alarms": keyed.process(Alarm()).uid("alarms"),
        "of sums": sums.key_by(lambda e: 0).reduce(add).uid("of-sums").map(lambda e: e.n),
        "of windows": window.sum("n").uid("w").key_by(lambda e: 0).process(Alarm()).uid("of-windows").map(lambda a: a[2]),
    }


def expected(events: list[Event]) -> dict[str, list[Any]]:
    def reduced(groups: dict[Any, list[Event]]) -> list[Event]:
        found = []
        for first, *others in groups.values():
            for other in others:
                first = add(first, other)
            found.append(first)
        return found

    keys: dict[Any, list[Event]] = {}
    windows: dict[Any, list[Event]] = {}
    for e in events:
        keys.setdefault(e.key, []).append(e)
        windows.setdefault((e.key, e.ts // 10), []).append(e)
    times = {k: sorted({e.ts % 7 for e in es}) for k, es in keys.items()}
    alarms = [(k, t, len(es)) for k, es in keys.items() for t in [*times[k], 10**14]]
    of_windows = {min(es, key=lambda e: 0).ts % 7 for es in windows.values()}
    return {
        "reduce": reduced(keys),
        "sum": [(k, sum(e.n for e in es)) for k, es in keys.items()],
        "agg": [(k, sum(e.n for e in es)) for k, es in keys.items()],
        "windows": reduced(windows),
        "alarms": alarms,
        "of sums": [sum(e.n for e in events)] if events else [],
        "of windows": [len(windows)] * (len(of_windows) + 1) if windows else [],
    }


EVENTS = st.lists(st.builds(Event, st.sampled_from("ab"), st.integers(0, 60), st.integers(0, 9)), max_size=25)


@examples(4)
@given(EVENTS, st.integers(1, 12), st.integers(1, 3))
def test_final_results_at_every_cut_and_parallelism(events: list[Event], rows: int, parallelism: int) -> None:
    found = run_local(
        job,
        TestSource(events, type=Event, columnar=True),
        epochs=rows,
        parallelism=parallelism,
        options={"runtime_mode": BATCH},
    )
    for name, values in expected(events).items():
        assert sorted(found.outputs[name]) == sorted(values), name
    assert found.late_records_dropped == {}


def test_stopped_and_restored(tmp_path: Any) -> None:
    events = [Event("ab"[i % 2], (i * 17) % 60, i) for i in range(20)]
    script = TestSource([*events[:9], Eof(savepoint=True), *events[9:]], type=Event)
    one = run_local(job, script, state_root=tmp_path, options={"runtime_mode": BATCH})
    assert not any(one.outputs.values())
    two = run_local(job, script, state_root=tmp_path, restore=one.savepoint, parallelism=3, options={"runtime_mode": BATCH})
    for name, values in expected(events).items():
        assert sorted(two.outputs[name]) == sorted(values), name


def totals(env: Any, source: Any) -> Any:
    return env.from_source(source, STAMPS, "in").key_by(lambda e: e.key).sum("n")


def test_automatic_is_batch_where_all_sources_end() -> None:
    events = [Event("a", 1, 1), Event("a", 2, 2)]
    assert [e.n for e in run_local(totals, TestSource(events, type=Event)).output] == [1, 3]
    found = run_local(totals, TestSource(events, type=Event), options={"runtime_mode": AUTOMATIC})
    assert [e.n for e in found.output] == [3]


def run(env: fp.StreamExecutionEnvironment) -> None:
    env.launch = Launch(options={"engine": "local"})
    env.execute("batch")


def test_sources_without_end_are_refused(tmp_path: Any) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.runtime-mode": "batch"})
    assert env.options.runtime_mode is BATCH
    source = fp.FileSource.json(tmp_path, Event)
    env.from_source(source, STAMPS, "files").uid("files").key_by("key").sum("n").sink_to(fp.DiscardSink())
    with pytest.raises(fp.GraphError, match=r"BATCH: source 'files' is unbounded; bound it .* or use STREAMING"):
        run(env)


RULES = fp.MapStateDescriptor("rules", fp.Types.LONG(), fp.Types.LONG())


class Rules(fp.BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, sorted(ctx.get_broadcast_state(RULES))

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(value, value)


class KeyedRules(Rules, fp.KeyedBroadcastProcessFunction): ...


@pytest.mark.parametrize("rows", [None, 1, 2])
@pytest.mark.parametrize("keyed", [False, True])
def test_broadcast_streams_are_read_first(keyed: bool, rows: int | None) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_runtime_mode(BATCH).set_parallelism(2)
    env.configure({"execution.engine": "local"})
    if rows is not None:
        env.set_max_epoch_rows(rows)
    numbers, rules = env.from_collection([1, 2, 3]), env.from_collection([7, 8, 9, 10])
    rules = rules.map(lambda rule: rule).rebalance().broadcast(RULES)
    by_rules = numbers.connect(rules).process(Rules())
    by_key = numbers.key_by(lambda n: n).connect(rules).process(KeyedRules())
    out = by_key if keyed else by_rules
    assert sorted(out.execute_and_collect()) == [(n, [7, 8, 9, 10]) for n in (1, 2, 3)]


def test_broadcast_streams_that_cannot_be_read_first_and_iterations_are_refused() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_runtime_mode(BATCH)
    one, two = env.from_collection([1]).uid("one"), env.from_collection([2]).uid("two")
    one.connect(one.broadcast(RULES)).process(Rules()).uid("both").sink_to(fp.DiscardSink())
    with pytest.raises(fp.GraphError, match="BATCH: source 'one' feeds both inputs of operator 'both'"):
        run(env)
    env.close()
    one.connect(two.broadcast(RULES)).process(Rules()).sink_to(fp.DiscardSink())
    two.connect(one.broadcast(RULES)).process(Rules()).sink_to(fp.DiscardSink())
    with pytest.raises(
        fp.GraphError,
        match=r"BATCH: sources '(one|two)', '(one|two)' would wait for one another, because broadcast streams",
    ):
        run(env)
    env.close()
    loop = env.from_collection([1]).iterate()
    loop.close_with(loop.filter(lambda n: n > 5))
    loop.sink_to(fp.DiscardSink())
    with pytest.raises(fp.GraphError, match="BATCH: the job has an iteration"):
        run(env)


def test_parallelism_of_single_operators_is_told_to_have_no_effect() -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    stream = env.from_collection(["a"]).map(str).uid("text").set_parallelism(2)
    stream.sink_to(fp.DiscardSink()).uid("out").set_parallelism(1)
    with pytest.warns(UserWarning, match=r"on single operators has no effect: 'out' \(1\) run with 2 subtasks"):
        run(env)
