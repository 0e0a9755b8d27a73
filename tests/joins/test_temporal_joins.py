"""Temporal joins give what DuckDB's ASOF join gives for the whole input, however it comes."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from join_jobs import Left, Right, lefts, query, rights, rows, run, run_in_two, run_one, saved_rows

import forkpoint as fp
from example_counts import examples
from forkpoint.testing import Eof

parallelisms = st.integers(1, 3)
MAX = 2**63 - 1


def valued(outer, function=lambda left, right: (left.id, None if right is None else right.id)):
    def join(left, right):
        joined = left.key_by("key").temporal_join(right.key_by(lambda e: e.key))
        return (joined.left_outer() if outer else joined).apply(function)

    return join


def sql(outer):
    """Of versions with one timestamp the last that came counts."""
    return f"""
        SELECT l.id, v.id, l.ts FROM l ASOF {"LEFT" if outer else ""} JOIN
        (SELECT key, ts, max(id) AS id FROM r GROUP BY key, ts) v ON l.key = v.key AND l.ts >= v.ts"""


@examples(9)
@given(lefts, rights, st.booleans(), st.sampled_from([1, 7, 100]), parallelisms)
def test_a_temporal_join_is_that_of_the_whole_tables(left, right, outer, epochs, parallelism):
    found = run(valued(outer), left, right, epochs=epochs, parallelism=parallelism)
    assert rows(found) == query(sql(outer), left, right)


@examples(4)
@given(lefts.filter(bool), rights, st.booleans(), st.data())
def test_a_savepoint_in_the_midst_restored_at_another_parallelism(left, right, outer, data):
    at, first, second = data.draw(st.integers(0, len(left) - 1)), data.draw(parallelisms), data.draw(parallelisms)
    found = run_in_two(valued(outer), left, right, at, first, second, rows=3)
    assert rows(*found) == query(sql(outer), left, right)


@pytest.mark.parametrize("outer", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_every_cut(outer):
    left = [Left("ab"[i % 2], i * 3 - i % 4, i) for i in range(8)]
    right = [Right("ab"[i % 2], 5 + i * 4 - i % 3, i) for i in range(8)]
    expected = query(sql(outer), left, right)
    assert len(expected) >= 4
    for at in (0, 1, 3, 4, 7):
        assert rows(*run_in_two(valued(outer), left, right, at, 1 + at % 3, 1 + (at + 1) % 3, rows=2)) == expected, at


def test_the_results_of_a_key_come_in_the_order_of_time_then_of_the_stream():
    script = [Left("a", 9, 1), Left("a", 7, 2), Right("a", 8, 3), Left("a", 9, 4), Right("a", 5, 5), Left("a", 30, 6)]
    for epochs in (1, 2, 100):
        assert run_one(valued(False), script, epochs=epochs).output == [(2, 5), (1, 3), (4, 3), (6, 3)]


def test_elements_behind_the_watermark_join_what_is_still_known():
    """As in Flink: of versions that the watermark has passed only the latest is there, and one that comes late is taken in."""
    script = [
        Right("a", 1, 1),
        Right("a", 10, 2),
        Left("a", 40, 3),
        Left("a", 5, 4),
        Left("a", 12, 5),
        Right("a", 8, 6),
        Left("a", 9, 7),
        Left("a", 60, 8),
    ]
    for epochs in (1, 3, 100):
        found = run_one(valued(True), script, epochs=epochs)
        assert rows(found) == [(3, 2, 40), (4, None, 5), (5, 2, 12), (7, 6, 9), (8, 2, 60)]


def test_a_flat_function_gives_any_number():
    def each(left, right):
        for _ in range(left.id):
            yield left.id, right.id

    script = [Right("a", 0, 7), Left("a", 1, 0), Left("a", 2, 2), Left("b", 3, 4)]
    assert run_one(valued(False, each), script).output == [(2, 7), (2, 7)]


class Counted(fp.JoinFunction):
    seen = fp.ReducingStateDescriptor("seen", lambda a, b: a + b, int)

    def join(self, first, second):
        self.seen.add(1)
        return first.key, self.seen.get()


def test_a_function_has_state_of_the_key():
    script = [Left("a", 1, 0), Left("b", 2, 2), Left("a", 3, 4)]
    assert sorted(run_one(valued(True, Counted()), script, epochs=1).output) == [("a", 1), ("a", 2), ("b", 1)]


def test_one_version_of_a_key_is_kept(tmp_path):
    left = [Left("ab"[i % 2], i * 3, i) for i in range(12)]
    right = [Right("ab"[i % 2], i * 4, i) for i in range(12)]
    job = partial(run, valued(False), epochs=3, parallelism=2)
    waiting = job([*left[:5], Eof(savepoint=True)], right[:5], state_root=tmp_path / "1")
    assert saved_rows(waiting.savepoint) > 2
    drained = job([*left, Eof(savepoint=True, drain=True)], right, state_root=tmp_path / "2")
    assert saved_rows(drained.savepoint) == 2


def test_what_is_refused():
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    left, right = env.from_collection([Left("a", 1, 1)], Left), env.from_collection([Right("a", 1, 1)], Right)
    with pytest.raises(fp.GraphError, match=r"temporal_join\(\) takes a keyed stream"):
        left.key_by("key").temporal_join(right)
    with pytest.raises(fp.GraphError, match="a JoinFunction, a FlatJoinFunction or a callable"):
        left.key_by("key").temporal_join(right.key_by("key")).apply(None)
