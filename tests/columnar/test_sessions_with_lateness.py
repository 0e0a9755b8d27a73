"""Sessions that stay for their allowed lateness, over columns: what comes out and what is kept is as element by element."""

import tempfile

import pytest
from column_jobs import Sale, Setup, counting_columns, results, run, saved
from hypothesis import given
from hypothesis import strategies as st

from example_counts import examples
from forkpoint.testing import Eof

END = ("agg", "n", "total", "first", "last")


def session(gap, lateness, bound=3, key="text", end=END):
    return Setup(("session", gap), end, key, lateness, bound)


@st.composite
def cases(draw):
    """A setup and elements at, and next to, where sessions touch, end and go."""
    gap, lateness = draw(st.integers(1, 8)), draw(st.integers(1, 25))
    key = draw(st.sampled_from(["int", "pair", "none"]))
    end = draw(st.sampled_from([END, ("count",), ("max_by", "amount")]))
    setup = session(gap, lateness, draw(st.sampled_from([0, 0, 1, gap])), key, end)
    steps = st.sampled_from([0, 1, max(0, gap - 1), gap, gap + 1])
    behind = st.sampled_from([0] * 8 + [1, gap - 1, gap, gap + 1, gap + lateness - 1, gap + lateness])
    now, events = 0, []
    for i in range(draw(st.integers(1, 60))):
        now += draw(steps)
        shop, till = draw(st.integers(0, 1)), draw(st.sampled_from(["x", "y"]))
        events.append(Sale(shop, till, now - draw(behind), i * 7 % 10, 0.5, f"n{i}"))
    return setup, events


@examples(6)
@given(cases(), st.sampled_from([1, 4, 12]), st.integers(1, 3))
def test_results_in_any_number_of_epochs(case, epochs, parallelism):
    setup, events = case
    rows = max(1, len(events) // epochs)
    found = run(setup, events, columnar=True, parallelism=parallelism, epochs=rows)
    assert results(found, setup) == results(run(setup, events, columnar=False, parallelism=1), setup)


@pytest.mark.slow
@examples(15)
@given(cases(), st.integers(1, 40), st.integers(4, 60), st.booleans(), st.one_of(st.none(), st.integers(0, 40)))
def test_saved_bytes_are_the_same_also_where_the_lateness_changes(case, at, rows, columnar, later):
    """``later``: the allowed lateness of the program that the savepoint is restored by, None for the same."""
    setup, events = case
    script = [*events[:at], Eof(savepoint=True), *events[at : at + 10], Eof(savepoint=True), *events[at + 10 :]]
    after = setup if later is None else setup._replace(lateness=later)
    with tempfile.TemporaryDirectory() as root:
        stopped = {mode: run(setup, script, columnar=mode, state_root=f"{root}/{mode}", epochs=rows) for mode in (False, True)}
        if stopped[True].savepoint is None:  # the input ended ahead of it
            return
        assert saved(stopped[True].savepoint) == saved(stopped[False].savepoint)
        then = {
            mode: run(
                after,
                script,
                columnar=mode,
                state_root=f"{root}/then{mode}",
                epochs=rows,
                restore=stopped[columnar].savepoint,
            )
            for mode in (False, True)
        }
        assert results(then[True], after) == results(then[False], after)
        if then[True].savepoint is not None:
            assert saved(then[True].savepoint) == saved(then[False].savepoint)


def at(ts, till="x", amount=1):
    return Sale(1, till, ts, amount, 0.5, f"n{ts}")


def test_sessions_that_are_over_stay_and_go_by_columns(tmp_path):
    """Watermark 99 behind the end of x's session, at 13, and ahead of when it goes, at 13 - 1 + 90."""
    setup = session(10, 90, bound=0)
    first = [at(1), at(3), at(100, "y")]
    with counting_columns() as counts:
        stopped = run(
            setup,
            [*first, Eof(savepoint=True), at(200, "y")],
            columnar=True,
            parallelism=1,
            epochs=1,
            state_root=tmp_path / "1",
        )
        rest = run(
            setup,
            [*first, Eof(savepoint=True), at(200, "y")],
            columnar=True,
            parallelism=1,
            state_root=tmp_path / "2",
            restore=stopped.savepoint,
        )
    assert counts["elements"] == counts["both"] == 0
    assert counts["columns"] == 4
    assert [(row.till, row.window_start, row.window_end, row.n) for row in stopped.outputs["out"]] == [("x", 1, 13, 2)]
    assert [(row.till, row.n) for row in rest.outputs["out"]] == [("y", 1), ("y", 1)]
    kept = saved(stopped.savepoint)
    assert len(kept["merging-windows"]) == len(kept["window-contents"]) == 2
    assert len(kept["_timers"]) == 3  # of y's session its end, and of both when they go


@pytest.mark.parametrize(
    ("late", "watermark", "counts_of_x"),
    [
        (4, 60, [1, 2]),
        (8, 60, [1, 2]),
        (12, 60, [1, 1]),
        (16, 60, [1, 1]),
        (8, 13, [1, 2]),
        (11, 13, [1, 2]),
        (12, 13, [1, 1]),
    ],
)
def test_an_element_behind_the_end_is_left_to_the_elements_of_its_key(late, watermark, counts_of_x):
    """The session of x ends at 11. What touches it comes out with it once more; other keys stay columns."""
    setup = session(10, 500, bound=0)
    first = [at(1), *(at(2, "yz"[i % 2]) for i in range(6)), at(watermark + 1, "y")]
    events = [*first, at(late), at(61, "y"), at(62, "z"), at(70, "y")]
    with counting_columns() as counts:
        found = run(setup, events, columnar=True, parallelism=1, epochs=[8])
    split = {"columns": 1, "elements": 0, "both": 1}
    assert counts == (split if late < 12 or watermark > 13 else {"columns": 2, "elements": 0, "both": 0})
    assert results(found, setup) == results(run(setup, events, columnar=False), setup)
    assert [row.n for row in found.outputs["out"] if row.till == "x"] == counts_of_x


@pytest.mark.parametrize(
    ("before", "later"),
    [
        (5, 0),
        (5, 5),
        (50, 10),
        (50, 60),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((5, 3), (5, 50), (50, 0))),
    ],
)
@pytest.mark.parametrize("ended", [False, True])
def test_a_session_goes_by_its_timers_also_where_the_lateness_changes(before, later, ended, tmp_path):
    """The session of x ends at 11; ``ended``: ahead of the first savepoint."""
    passed = at(14, "y")
    script = [
        at(1),
        at(2, "y"),
        *[passed] * ended,
        Eof(savepoint=True),
        passed,
        at(25, "y"),
        Eof(savepoint=True),
        at(90, "y"),
    ]
    setup = session(10, before, bound=0)
    stopped = run(setup, script, columnar=True, state_root=tmp_path / "1")
    after = setup._replace(lateness=later)
    then = {
        mode: run(after, script, columnar=mode, state_root=tmp_path / str(mode), restore=stopped.savepoint)
        for mode in (True, False)
    }
    assert saved(then[True].savepoint) == saved(then[False].savepoint)
    assert results(then[True], after) == results(then[False], after)


def test_most_is_computed_over_columns_where_few_are_late():
    setup = session(4, 9, bound=2, key="pair")
    events = []
    for i in range(600):
        behind = 9 if i % 50 == 49 else i % 3
        events.append(Sale(i % 7, "ab"[i % 2], i // 2 - behind, i, 0.5, f"n{i}"))
    with counting_columns() as counts:
        found = run(setup, events, columnar=True, parallelism=1, epochs=100)
    assert counts["elements"] == 0
    assert counts["columns"] + counts["both"] == 6
    assert results(found, setup) == results(run(setup, events, columnar=False), setup)
