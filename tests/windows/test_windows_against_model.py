"""Windows do what Flink's WindowOperator does, wherever epochs are cut, at any parallelism, through savepoints."""

import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from window_jobs import build, by_window, inputs, results, run, setups, windowed
from window_model import MAX, Event, Model, Setup

from example_counts import examples
from forkpoint.state import OPERATOR_KG, range_for
from forkpoint.testing import ABORT, Eof, OperatorHarness, TestSource, run_local

cuts = st.sets(st.integers(1, 49), max_size=6)


@examples(40)
@given(setups(), inputs(), cuts, st.integers(1, 3))
def test_results_are_those_of_the_model(setup, events, cuts, parallelism):
    model = Model(setup).run(events)
    found = run(setup, events, epochs=sorted(cuts), parallelism=parallelism)
    assert results(found) == by_window(model.out)
    assert sorted(found.outputs["late"]) == sorted(model.late)
    assert all(r.timestamp == r.value.ts for r in found.records["late"])


@examples(10)
@given(setups(), inputs(), st.integers(1, 49), st.integers(1, 3), st.integers(1, 3))
def test_a_savepoint_in_the_midst_restored_at_another_parallelism(setup, events, at, first, second):
    model = Model(setup).run(events)
    script = [*events[:at], Eof(savepoint=True), *events[at:]]
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        before = run(setup, script, parallelism=first, state_root=one, epochs=7)
        if before.savepoint is None:  # the input ended ahead of it
            assert len(events) <= at
            return
        after = run(setup, script, parallelism=second, state_root=two, restore=before.savepoint, epochs=7)
    rows = [(*r.value, r.timestamp) for r in [*before.records["results"], *after.records["results"]]]
    assert by_window(rows) == by_window(model.out)
    assert sorted([*before.outputs["late"], *after.outputs["late"]]) == sorted(model.late)


@examples(6)
@given(setups(), inputs(), st.integers(0, 49))
def test_a_process_that_dies_changes_nothing(setup, events, at):
    script = [*events[:at], ABORT, *events[at:]]
    assert results(run(setup, script, epochs=8)) == by_window(Model(setup).run(events).out)


@examples(15)
@given(setups(("tumbling", "sliding", "session", "dynamic")), inputs(), st.integers(1, 6), st.integers(1, 3))
def test_nothing_is_left_when_all_windows_are_gone(setup, events, rows, parallelism):
    build = lambda stream: windowed(stream, setup)  # noqa: E731
    with OperatorHarness(build, input_type=Event, parallelism=parallelism) as harness:
        most = 0
        for start in range(0, len(events), rows):
            block = events[start : start + rows]
            harness.process_elements((e, e.ts) for e in block)
            most = max(most, entries(harness))
            harness.process_watermark(max(e.ts for e in block) - setup.bound - 1)
        harness.process_watermark(MAX)
        assert most > 0 or not harness.output
        assert entries(harness) == 0


@pytest.mark.parametrize("combine", ["process", "reduce", "aggregate"])
@pytest.mark.parametrize("trigger", [None, ("count", 9), ("continuous", 50)])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_sessions_that_became_one_leave_nothing(combine, trigger, rows):
    setup = Setup(("session", 10), trigger, None, 3, combine, 0)
    with OperatorHarness(lambda stream: windowed(stream, setup), input_type=Event) as harness:
        events = [Event("k", ts, str(ts), 1) for ts in (0, 40, 20, 60, 30, 9, 50, 11)]
        for start in range(0, len(events), rows):
            harness.process_elements((e, e.ts) for e in events[start : start + rows])
        harness.process_watermark(1000)
        assert [(window, sorted(trace)) for _, window, trace, _ in harness.output] == [
            ((0, 70), sorted("".join(e.trace for e in events)))
        ] * len(harness.output)
        assert entries(harness) == 0


def entries(harness):
    everything = range_for(0, OPERATOR_KG + 1)
    return sum(1 for subtask in harness._subtasks for _ in subtask.store.scan(*everything))


@st.composite
def splits(draw):
    """Splits, each with its own pace, that keep to a disorder of 5 ms."""
    found = []
    for _ in range(draw(st.integers(2, 4))):
        now, split = draw(st.integers(0, 40)), []
        for _ in range(draw(st.integers(0, 12))):
            now += draw(st.integers(0, 12))
            split.append(Event(draw(st.sampled_from("xy")), now - draw(st.integers(0, 5)), "x", 1))
        found.append(split)
    return found


IN_STEP = [("tumbling", 10, 3), ("sliding", 12, 5, 0), ("session", 6)]


@examples(8)
@given(splits(), st.sampled_from(IN_STEP), st.integers(1, 12), st.integers(1, 3))
def test_several_splits_lose_nothing(splits, assigner, rows, parallelism):
    """With splits in step only by the watermark, windows still get exactly the elements that belong to them."""
    setup = Setup(assigner, None, None, 0, "reduce", 5)
    in_order = sorted((e for split in splits for e in split), key=lambda e: e.ts)
    expected = [(key, window, trace, end) for key, window, trace, _, end in Model(setup).run(in_order).out]
    found = run_local(build(setup), TestSource(*splits, type=Event), epochs=rows, parallelism=parallelism)
    assert sorted((*r.value[:3], r.timestamp) for r in found.records["results"]) == sorted(expected)
    assert found.outputs["late"] == []
