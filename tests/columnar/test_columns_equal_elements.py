"""Over columns comes out what comes out element by element: results, order, timestamps, late elements, saved state."""

import tempfile

from column_jobs import (
    Sale,
    assigner_of,
    by_elements,
    comparable,
    counting_columns,
    results,
    run,
    sales,
    saved,
    setups,
    windows,
)
from hypothesis import given
from hypothesis import strategies as st

import forkpoint as fp
from example_counts import examples
from forkpoint.testing import ABORT, Eof, TestSource, run_local

cuts = st.sets(st.integers(1, 29), max_size=6)


@examples(10)
@given(setups(), sales(), cuts, st.integers(1, 3))
def test_results_at_any_cut_and_parallelism(setup, events, cuts, parallelism):
    expected = results(run(setup, events, columnar=False, parallelism=1), setup)
    with counting_columns() as counts:
        found = results(run(setup, events, columnar=True, parallelism=parallelism, epochs=sorted(cuts)), setup)
    assert found == expected
    check_columns(counts, setup, events)


def check_columns(counts, setup, events):
    """Whether everything was computed over columns that should be."""
    if not comparable(events):
        return
    assert counts["elements"] == 0
    if not setup.lateness and (setup.windows is None or setup.windows[0] != "session"):
        assert counts["columns"] > counts["both"] == 0


@examples(6)
@given(setups(), sales(), st.integers(1, 29), st.integers(1, 30), st.booleans(), st.integers(1, 3))
def test_saved_state_is_the_same_and_either_restores_the_others(setup, events, at, rows, columnar, parallelism):
    script = [*events[:at], Eof(savepoint=True), *events[at:]]
    whole = run(setup, events, columnar=False, parallelism=2)
    with tempfile.TemporaryDirectory() as root:
        stopped = {}
        for mode in (False, True):
            with counting_columns() as counts:
                stopped[mode] = run(setup, script, columnar=mode, parallelism=2, state_root=f"{root}/{mode}", epochs=rows)
        check_columns(counts, setup, events)
        if stopped[True].savepoint is None:  # the input ended ahead of it
            return
        assert saved(stopped[True].savepoint) == saved(stopped[False].savepoint)
        rest = run(
            setup,
            script,
            columnar=columnar,
            parallelism=parallelism,
            state_root=f"{root}/rest",
            restore=stopped[not columnar].savepoint,
            epochs=rows,
        )
    first, late = results(stopped[not columnar], setup)
    second, later = results(rest, setup)
    joined = {key: first.get(key, []) + second.get(key, []) for key in first.keys() | second.keys()}
    assert (joined, sorted(late + later)) == results(whole, setup)


@examples(5)
@given(setups(), sales(), st.integers(0, 29))
def test_a_process_that_dies_changes_nothing(setup, events, at):
    script = [*events[:at], ABORT, *events[at:]]
    assert results(run(setup, script, columnar=True, epochs=8), setup) == results(run(setup, events, columnar=False), setup)


class Arrivals(fp.KeyedProcessFunction):
    """What gets to the next stage, with time and watermark."""

    def process_element(self, value, ctx):
        yield value.n % 2, tuple(value), ctx.timestamp(), ctx.timer_service().current_watermark()


def two_stages(kind, columnar):
    def job(env, source):
        strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(4).with_timestamp_assigner(lambda e, _: e.ts)
        sales = env.from_source(source, strategy, "in").key_by(lambda e: e.till)
        tops = {} if columnar else {"all": fp.Collect("ts")}
        first = sales.window(assigner_of(kind)).agg(window_end=fp.WindowEnd(), n=fp.Count(), total=fp.Sum("amount"), **tops)
        rows = first.key_by(lambda r: r.till)
        second = rows.window(fp.TumblingEventTimeWindows.of(20)).agg(
            windows=fp.Count(), n=fp.Sum("n"), last=fp.Last("window_end")
        )
        running = first.key_by(lambda r: r.n).agg(windows=fp.Count(), last=fp.Last("total"))
        seen = first.key_by(lambda r: r.n % 2).process(Arrivals())
        return {"second": second, "running": running, "seen": seen}

    return job


def in_order(records):
    """Each key's results in their order."""
    found = {}
    for record in records:
        found.setdefault(record.value[0], []).append((tuple(record.value), record.timestamp))
    return found


@examples(6)
@given(windows, sales(), cuts, st.integers(1, 3))
def test_the_next_stage_sees_results_where_they_belong(kind, events, cuts, parallelism):
    source = TestSource(events, type=Sale)
    with by_elements():
        expected = run_local(two_stages(kind, columnar=False), source, parallelism=1)
    found = run_local(
        two_stages(kind, columnar=True),
        TestSource(events, type=Sale, columnar=True),
        parallelism=parallelism,
        epochs=sorted(cuts),
    )
    for name in ("second", "running"):
        assert in_order(found.records[name]) == in_order(expected.records[name])
    shortened = [(k, value[:4], ts, watermark) for k, value, ts, watermark in expected.outputs["seen"]]
    assert sorted(found.outputs["seen"]) == sorted(shortened)
