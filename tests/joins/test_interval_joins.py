"""Interval joins give what DuckDB gives for the whole input, however it comes; the rest is Flink's IntervalJoinOperator."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from join_jobs import BOUND, Left, Right, lefts, one_source, query, rights, rows, run, run_in_two, run_one, saved_rows

import forkpoint as fp
from example_counts import examples
from forkpoint.testing import Eof, TestSink, run_local

LEFT_LATE, RIGHT_LATE = fp.OutputTag("left-late", Left), fp.OutputTag("right-late", Right)
parallelisms = st.integers(1, 3)


@st.composite
def bounds(draw):
    """Lower and upper bound, and whether each is exclusive."""
    lower, upper = sorted((draw(st.integers(-12, 12)), draw(st.integers(-12, 12))))
    return lower, upper, draw(st.booleans()), draw(st.booleans())


def near(bounds, function):
    lower, upper, lower_exclusive, upper_exclusive = bounds

    def join(left, right):
        joined = left.key_by("key").interval_join(right.key_by(lambda e: e.key)).between(lower, upper)
        if lower_exclusive:
            joined = joined.lower_bound_exclusive()
        if upper_exclusive:
            joined = joined.upper_bound_exclusive()
        return joined.process(function)

    return join


def pairs(left, right, ctx):
    yield left.id, right.id, ctx.get_left_timestamp(), ctx.get_right_timestamp(), ctx.timestamp()


def near_sql(bounds):
    lower, upper, lower_exclusive, upper_exclusive = bounds
    return f"""
        SELECT l.id, r.id, l.ts, r.ts, greatest(l.ts, r.ts), greatest(l.ts, r.ts) FROM l JOIN r USING (key)
        WHERE r.ts - l.ts >{"" if lower_exclusive else "="} {lower} AND r.ts - l.ts <{"" if upper_exclusive else "="} {upper}"""


@examples(9)
@given(bounds(), lefts, rights, st.sampled_from([1, 7, 100]), parallelisms)
def test_an_interval_join_is_that_of_the_whole_tables(bounds, left, right, epochs, parallelism):
    found = run(near(bounds, pairs), left, right, epochs=epochs, parallelism=parallelism)
    assert rows(found) == query(near_sql(bounds), left, right)


@examples(4)
@given(bounds(), lefts.filter(bool), rights, st.data())
def test_a_savepoint_in_the_midst_restored_at_another_parallelism(bounds, left, right, data):
    at, first, second = data.draw(st.integers(0, len(left) - 1)), data.draw(parallelisms), data.draw(parallelisms)
    found = run_in_two(near(bounds, pairs), left, right, at, first, second, rows=3)
    assert rows(*found) == query(near_sql(bounds), left, right)


def test_every_cut():
    left = [Left("ab"[i % 2], i * 3 - i % 4, i) for i in range(8)]
    right = [Right("ab"[i % 2], i * 4 - i % 3, i) for i in range(8)]
    bounds = (-9, 6, False, True)
    expected = query(near_sql(bounds), left, right)
    assert len(expected) >= 8
    for at in (0, 1, 3, 4, 7):
        found = run_in_two(near(bounds, pairs), left, right, at, 1 + at % 3, 1 + (at + 1) % 3, rows=2)
        assert rows(*found) == expected, at


@examples(4)
@given(bounds(), lefts, rights, st.sets(st.integers(1, 39), max_size=6), parallelisms)
def test_results_come_in_one_order(bounds, left, right, cuts, parallelism):
    """One source of both: each element finds the others in the order of time, then of the stream."""
    script = sorted([*left, *right], key=lambda e: e.ts)
    keyed = near(bounds, lambda left, right, ctx: [(left.key, left.id, right.id)])
    found = run_one(keyed, script, epochs=sorted(cuts), parallelism=parallelism)
    assert found.by_key(lambda row: row[0]) == run_one(keyed, script, epochs=100).by_key(lambda row: row[0])


def reference(script, lower, upper):
    """Flink's operator, one element after the other with a watermark behind each: (results, late)."""
    watermark, kept, out, late = -(2**63), [], [], []
    for element in script:
        if element.ts < watermark:
            late.append(element)
        else:
            for other in kept:
                if type(other) is not type(element) and other.key == element.key:
                    left, right = (element, other) if isinstance(element, Left) else (other, element)
                    if lower <= right.ts - left.ts <= upper:
                        out.append((left.id, right.id, max(left.ts, right.ts)))
            kept.append(element)
        if element.ts - BOUND - 1 > watermark:  # a timer for a time that has passed waits for the next watermark
            watermark = element.ts - BOUND - 1
            kept = [e for e in kept if e.ts + (max(0, upper) if isinstance(e, Left) else max(0, -lower)) > watermark]
    return sorted(out, key=repr), late


@st.composite
def disordered(draw):
    """Elements of both sides, some of them late."""
    now, found = 0, []
    for i in range(draw(st.integers(1, 30))):
        now += draw(st.integers(0, 6))
        kind = draw(st.sampled_from([Left, Right]))
        found.append(kind(draw(st.sampled_from("ab")), now - draw(st.sampled_from([0, 0, 3, 9, 15])), i))
    return found


@examples(10)
@given(disordered(), st.integers(-8, 8), st.integers(0, 8), st.sets(st.integers(1, 29), max_size=5))
def test_late_elements_join_nothing_and_go_to_their_sides_output(script, lower, width, cuts):
    def join(left, right):
        joined = left.key_by("key").interval_join(right.key_by("key")).between(lower, lower + width)
        joined.side_output_left_late_data(LEFT_LATE).side_output_right_late_data(RIGHT_LATE)
        return joined.process(lambda left, right, ctx: [(left.id, right.id)])

    build, source = one_source(join)

    def outputs(env, events):
        joined = build(env, events)
        return {
            "output": joined,
            "left": joined.get_side_output(LEFT_LATE),
            "right": joined.get_side_output(RIGHT_LATE),
        }

    found = run_local(outputs, source(script), epochs=sorted(cuts))
    expected, late = reference(script, lower, lower + width)
    assert rows(found) == expected
    assert sorted(found.outputs["left"]) == sorted(e for e in late if isinstance(e, Left))
    assert sorted(found.outputs["right"]) == sorted(e for e in late if isinstance(e, Right))
    assert all(r.timestamp == r.value.ts for side in ("left", "right") for r in found.records[side])


def test_late_elements_are_dropped_without_a_side_output():
    script = [Left("a", 1, 1), Right("a", 30, 2), Right("a", 2, 3), Left("a", 31, 4)]
    assert rows(run_one(near((-5, 5, False, False), lambda a, b, ctx: [(a.id, b.id)]), script)) == [(4, 2, 31)]


# -- state

LEFT = [Left("ab"[i % 2], i * 3, i) for i in range(12)]
RIGHT = [Right("ab"[i % 2], i * 4, i) for i in range(12)]


@pytest.mark.parametrize(
    "bounds", [(-5, 5), (3, 8), (-8, -3), *(pytest.param(bounds, marks=pytest.mark.slow) for bounds in ((0, 8), (0, 0)))]
)
@pytest.mark.parametrize("drain", [True, False])
def test_elements_go_when_nothing_can_find_them_any_more(tmp_path, bounds, drain):
    join = near((*bounds, False, False), pairs)
    before = run(join, [*LEFT[:5], Eof(savepoint=True)], RIGHT[:5], state_root=tmp_path / "1", epochs=1, parallelism=2)
    assert saved_rows(before.savepoint) > 0
    far = [] if drain else [0, 1]
    left = [*LEFT, *(Left("z", 1000 * n + 1000, n) for n in far), Eof(savepoint=True, drain=drain)]
    right = [*RIGHT, *(Right("z", 1000 * n + 1001, n) for n in far)]
    ended = run(join, left, right, state_root=tmp_path / "2", epochs=3)
    assert saved_rows(ended.savepoint) == (0 if drain else 4)  # the last two, which came just now, and their timers


def test_the_bounds_may_not_change_under_saved_elements(tmp_path):
    savepoint = run(
        near((-5, 5, False, False), pairs),
        [*LEFT[:5], Eof(savepoint=True), *LEFT[5:]],
        RIGHT,
        state_root=tmp_path / "1",
    ).savepoint
    with pytest.raises(fp.RestoreRefused, match=r"from -5 ms to 5 ms.*from -5 ms to 4 ms"):
        run(near((-5, 5, False, True), pairs), LEFT, RIGHT, state_root=tmp_path / "2", restore=savepoint)


class Counted(fp.ProcessJoinFunction):
    pairs = fp.ValueStateDescriptor("pairs", int, 0)
    late = fp.OutputTag("even", int)

    def process_element(self, left, right, ctx):
        self.pairs.update(self.pairs.value() + 1)
        yield left.key, self.pairs.value()
        if self.pairs.value() % 2 == 0:
            yield self.late, self.pairs.value()


def test_a_function_has_state_of_the_key_and_side_outputs():
    build, source = one_source(near((0, 10, False, False), Counted()))

    def outputs(env, events):
        joined = build(env, events)
        return {"output": joined, "even": joined.get_side_output(Counted.late)}

    script = [Left("a", 0, 0), Right("a", 1, 0), Left("b", 2, 1), Right("a", 3, 1), Right("b", 4, 2), Right("a", 30, 3)]
    found = run_local(outputs, source(script), epochs=1)
    assert rows(found) == [("a", 1, 1), ("a", 2, 3), ("b", 1, 4)]
    assert [(r.value, r.timestamp) for r in found.records["even"]] == [(2, 3)]


def test_bounds_are_timedeltas_too():
    join = near((timedelta(milliseconds=-1), timedelta(milliseconds=2), False, False), lambda a, b, ctx: [(a.id, b.id)])
    assert rows(run_one(join, [Left("a", 5, 1), Right("a", 3, 2), Right("a", 4, 3), Right("a", 7, 4), Right("a", 8, 5)])) == [
        (1, 3, 5),
        (1, 4, 7),
    ]


def test_what_is_refused():
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    left, right = env.from_collection(LEFT, Left), env.from_collection(RIGHT, Right)
    with pytest.raises(fp.GraphError, match="takes a keyed stream"):
        left.key_by("key").interval_join(right)
    with pytest.raises(fp.GraphError, match="keys of the two streams have different types"):
        left.key_by("key").interval_join(right.key_by("id"))
    joined = left.key_by("key").interval_join(right.key_by("key"))
    with pytest.raises(fp.ConfigError, match="the upper bound is 1 ms; it must be at least 2 ms"):
        joined.between(2, 1)
    with pytest.raises(fp.GraphError, match="takes an OutputTag"):
        joined.between(1, 2).side_output_left_late_data("late")
    with pytest.raises(fp.GraphError, match="the function is a ProcessJoinFunction or a callable"):
        joined.between(1, 2).process(fp.EventTimeTrigger())


def test_elements_without_timestamps_are_refused():
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    left, right = env.from_collection(LEFT, Left).key_by("key"), env.from_collection(RIGHT, Right).key_by("key")
    left.interval_join(right).between(0, 1).process(pairs).sink_to(TestSink())
    with pytest.raises(fp.UserFunctionError, match=r"'interval-join-pairs'.*the element has no timestamp"):
        run_local(env)


class Taken(fp.ProcessJoinFunction):
    mine = fp.ValueStateDescriptor("left-buffer", int)

    def process_element(self, left, right, ctx):
        yield 1


def test_the_joins_own_states_have_their_names():
    with pytest.raises(fp.GraphError, match="the join itself has a state named 'left-buffer'"):
        run(near((0, 1, False, False), Taken()), LEFT, RIGHT)
