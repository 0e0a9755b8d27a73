"""Joins and co-groups over windows give what DuckDB gives for the whole input, however it comes."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from join_jobs import BOUND, Left, Right, lefts, query, rights, rows, run, run_in_two, run_one

import forkpoint as fp
from example_counts import examples

sizes = st.integers(1, 15)
assigners = st.one_of(
    st.tuples(st.just("tumbling"), sizes),
    st.tuples(st.just("sliding"), sizes, st.integers(2, 15)),
    st.tuples(st.just("session"), st.integers(0, 5).map(lambda n: 2 * n + 1)),
)
parallelisms = st.integers(1, 3)


def assigner_of(assigner):
    match assigner:
        case ("tumbling", size):
            return fp.TumblingEventTimeWindows.of(size)
        case ("sliding", size, slide):
            return fp.SlidingEventTimeWindows.of(size, slide)
        case ("session", gap):
            return fp.EventTimeSessionWindows.with_gap(gap)


def apart(assigner, *sides):
    """Elements of which no two sessions, with their odd gaps, can merely touch: those are one only as long as the first
    has not fired, which tables don't know."""
    if assigner[0] != "session":
        return sides
    return [[e._replace(ts=2 * e.ts) for e in side] for side in sides]


def over(assigner, operator, function):
    def join(left, right):
        both = getattr(left, operator)(right).where(lambda e: e.key).equal_to("key")
        return both.window(assigner_of(assigner)).apply(function)

    return join


def pair(left, right):
    return left.id, right.id


def lists(lefts, rights):
    yield [e.id for e in lefts], [e.id for e in rights]


def windows_sql(assigner):
    """``w``: each element of both sides with the windows it is in, as (side, key, id, start, last moment)."""
    if assigner[0] == "session":
        return f"""
            WITH every AS (SELECT 'l' AS side, key, ts, id FROM l UNION ALL SELECT 'r', key, ts, id FROM r),
            gaps AS (SELECT *, (ts - lag(ts) OVER (PARTITION BY key ORDER BY ts) <= {assigner[1]}) IS NOT TRUE AS fresh
                     FROM every),
            numbered AS (SELECT *, sum(fresh::int) OVER (PARTITION BY key ORDER BY ts) AS session FROM gaps),
            w AS (SELECT side, key, id, session AS start,
                         max(ts) OVER (PARTITION BY key, session) + {assigner[1]} - 1 AS last FROM numbered)"""
    size, slide = assigner[1], assigner[-1]
    starts = f"generate_series(ts - ((ts % {slide}) + {slide}) % {slide}, ts - {size} + 1, -{slide})"
    return f"""
        WITH w AS (SELECT *, start + {size} - 1 AS last FROM (
            SELECT 'l' AS side, key, id, unnest({starts}) AS start FROM l
            UNION ALL SELECT 'r', key, id, unnest({starts}) FROM r))"""


def joined_sql(assigner):
    return f"""{windows_sql(assigner)}
        SELECT a.id, b.id, a.last FROM w a JOIN w b ON a.key = b.key AND a.start = b.start AND a.side = 'l' AND b.side = 'r'"""


def co_grouped_sql(assigner):
    """The full outer view: windows of either side, with the elements of both."""
    of = "coalesce(list(id ORDER BY id) FILTER (side = '{}'), [])".format
    return f"{windows_sql(assigner)} SELECT {of('l')}, {of('r')}, last FROM w GROUP BY key, start, last"


def in_any_order(found):
    return sorted(((sorted(left), sorted(right), stamp) for left, right, stamp in found), key=repr)


@examples(9)
@given(assigners, lefts, rights, st.sampled_from([1, 7, 100]), parallelisms)
def test_a_join_is_that_of_the_whole_tables(assigner, left, right, epochs, parallelism):
    left, right = apart(assigner, left, right)
    found = run(over(assigner, "join", pair), left, right, 2 * BOUND, epochs=epochs, parallelism=parallelism)
    assert rows(found) == query(joined_sql(assigner), left, right)


@examples(4)
@given(assigners, lefts, rights, st.sampled_from([1, 7, 100]), parallelisms)
def test_a_co_group_is_the_full_outer_view(assigner, left, right, epochs, parallelism):
    left, right = apart(assigner, left, right)
    found = run(over(assigner, "co_group", lists), left, right, 2 * BOUND, epochs=epochs, parallelism=parallelism)
    assert in_any_order(rows(found)) == query(co_grouped_sql(assigner), left, right)


@examples(4)
@given(assigners, lefts.filter(bool), rights, st.data())
def test_a_savepoint_in_the_midst_restored_at_another_parallelism(assigner, left, right, data):
    at, first, second = data.draw(st.integers(0, len(left) - 1)), data.draw(parallelisms), data.draw(parallelisms)
    left, right = apart(assigner, left, right)
    found = run_in_two(over(assigner, "join", pair), left, right, at, first, second, rows=3, bound=2 * BOUND)
    assert rows(*found) == query(joined_sql(assigner), left, right)


@pytest.mark.parametrize("assigner", [pytest.param(("tumbling", 10), marks=pytest.mark.slow), ("session", 4)])
def test_every_cut(assigner):
    left = [Left("ab"[i % 2], i * 3 - i % 4, i) for i in range(8)]
    right = [Right("ab"[i % 2], i * 4 - i % 3, i) for i in range(8)]
    expected = query(joined_sql(assigner), left, right)
    assert len(expected) >= 5
    for at in (0, 1, 3, 4, 7):
        found = run_in_two(over(assigner, "join", pair), left, right, at, 1 + at % 3, 1 + (at + 1) % 3, rows=2)
        assert rows(*found) == expected, at


@examples(4)
@given(assigners, lefts, rights, st.sets(st.integers(1, 39), max_size=6), parallelisms)
def test_the_lists_are_in_the_order_of_the_stream(assigner, left, right, cuts, parallelism):
    """One source of both: a window's lists are the same wherever epochs are cut."""
    script = sorted([*left, *right], key=lambda e: e.ts)
    job = partial(run_one, over(assigner, "co_group", lists), script)
    order = {("l" if isinstance(e, Left) else "r", e.id): n for n, e in enumerate(script)}
    found = job(epochs=sorted(cuts), parallelism=parallelism)
    assert rows(found) == rows(job(epochs=100, parallelism=1))
    if assigner[0] != "session":  # of merged sessions, those of the one that was there first come first
        for left_ids, right_ids in found.output:
            for side, ids in (("l", left_ids), ("r", right_ids)):
                assert ids == sorted(ids, key=lambda i: order[side, i])
