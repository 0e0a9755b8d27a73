"""Triggers, evictors, lateness, functions and savepoints of windows over two streams."""

from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
from join_jobs import Left, Right, one_source, rows, run, run_one, saved_rows, strategy, two_sources

import forkpoint as fp
from forkpoint.testing import Eof, TestSource, run_local
from forkpoint.types import Types

TEN = fp.TumblingEventTimeWindows.of(10)
LATE = fp.OutputTag("late")


def pair(left, right):
    return left.id, right.id


def joined(windows=lambda w: w, function=pair, assigner=TEN, **apply):
    def join(left, right):
        both = left.join(right).where("key").equal_to("key").window(assigner)
        return windows(both).apply(function, **apply)

    return join


def grouped(windows=lambda w: w, assigner=TEN):
    def join(left, right):
        both = left.co_group(right).where("key").equal_to("key").window(assigner)
        return windows(both).apply(lambda a, b: [([e.id for e in a], [e.id for e in b])])

    return join


class Ids(fp.WindowFunction):
    def apply(self, key, window, inputs):
        yield [e.id for e in inputs]


def test_a_late_element_makes_the_window_fire_again_while_it_is_allowed():
    script = [Left("a", 1, 1), Right("a", 2, 1), Right("a", 20, 2), Right("a", 3, 3), Left("a", 33, 3), Left("a", 4, 4)]
    found = run_one(joined(lambda w: w.allowed_lateness(15)), script, epochs=1)
    assert rows(found) == [(1, 1, 9), (1, 1, 9), (1, 3, 9)]


@pytest.mark.parametrize("epochs", [1, 2, 100])
def test_elements_too_late_go_to_the_side_output_with_their_side(epochs):
    script = [Left("a", 1, 1), Right("a", 20, 2), Right("a", 3, 3), Left("b", 4, 4), Left("a", 22, 5)]
    build, source = one_source(joined(lambda w: w.side_output_late_data(LATE)))

    def both(env, events):
        stream = build(env, events)
        return {"output": stream, "late": stream.get_side_output(LATE)}

    found = run_local(both, source(script), epochs=epochs)
    assert rows(found) == [(5, 2, 29)]
    assert found.outputs["late"] == [
        fp.TaggedUnion("right", None, Right("a", 3, 3)),
        fp.TaggedUnion("left", Left("b", 4, 4), None),
    ]
    assert [r.timestamp for r in found.records["late"]] == [3, 4]


def test_elements_too_late_are_dropped():
    script = [Left("a", 1, 1), Right("a", 20, 2), Right("a", 3, 3), Left("a", 22, 5)]
    assert rows(run_one(joined(), script)) == [(5, 2, 29)]


def test_triggers_and_evictors_see_both_sides():
    script = [Left("a", 1, 1), Right("a", 2, 2), Left("a", 3, 3), Right("a", 4, 4), Left("a", 5, 5)]
    assert run_one(grouped(lambda w: w.trigger(fp.CountTrigger.of(2))), script).output == [([1], [2]), ([1, 3], [2, 4])]
    assert run_one(grouped(lambda w: w.evictor(fp.CountEvictor.of(3))), script).output == [([3, 5], [4])]
    nearest = fp.DeltaEvictor.of(3, lambda a, b: abs((a.left or a.right).ts - (b.left or b.right).ts))
    assert run_one(grouped(lambda w: w.evictor(nearest)), script, epochs=2).output == [([3, 5], [4])]


def test_a_gap_that_the_tagged_element_tells():
    sessions = fp.EventTimeSessionWindows.with_dynamic_gap(lambda e: 3 if e.side == "left" else 20)
    script = [Left("a", 1, 1), Left("a", 8, 2), Right("a", 9, 3), Left("a", 25, 4)]
    assert sorted(run_one(grouped(assigner=sessions), script).output) == [([1], []), ([2, 4], [3])]


class Counted(fp.FlatJoinFunction):
    pairs = fp.ValueStateDescriptor("pairs", int, 0)

    def join(self, first, second):
        self.pairs.update(self.pairs.value() + 1)
        if first.id != second.id:
            yield first.key, self.pairs.value(), first.id, second.id


def test_a_function_may_give_any_number_of_results_and_have_state_of_the_key():
    first = [Left("a", 1, 1), Right("a", 2, 1), Right("a", 3, 2), Left("b", 4, 1), Right("b", 5, 3)]
    found = run_one(joined(function=Counted()), [*first, Left("a", 12, 7), Right("a", 13, 8)], epochs=1).output
    assert sorted(found) == [("a", 2, 1, 2), ("a", 3, 7, 8), ("b", 1, 1, 3)]


def test_a_generator_function_gives_many_and_other_callables_one():
    def twice(left, right):
        yield left.id
        yield right.id

    script = [Left("a", 1, 1), Right("a", 2, 2)]
    assert run_one(joined(function=twice), script).output == [1, 2]
    assert run_one(joined(function=lambda left, right: [left.id, right.id]), script).output == [[1, 2]]
    assert run_one(joined(function=lambda left, right: None), script).output == [None]


def test_a_stream_with_itself():
    def build(env, source):
        stream = env.from_source(source, strategy(), "in")
        return stream.join(stream).where("key").equal_to(lambda e: e.key).window(TEN).apply(pair)

    script = [Left("a", 1, 1), Left("b", 2, 2), Left("a", 3, 3)]
    found = run_local(build, TestSource(script, type=Left), epochs=1).output
    assert sorted(found) == [(1, 1), (1, 3), (2, 2), (3, 1), (3, 3)]


def test_of_streams_without_a_type():
    def build(env, left, right):
        first = env.from_source(left, strategy(), "left").uid("left")
        second = env.from_source(right, strategy(), "right").uid("right").key_by(lambda e: e[2])
        windows = first.join(second).where(lambda e: e[0]).equal_to(lambda e: e[0]).window(TEN)
        return windows.apply(lambda a, b: (a[2], b[2])).uid("join")

    left, right = TestSource([Left("a", 1, 1), Left("b", 12, 2)]), TestSource([Right("a", 2, 3), Right("b", 13, 4)])
    assert run_local(build, left, right, epochs=1).output == [(1, 3), (2, 4)]


def test_keys_of_two_types_are_refused():
    with pytest.raises(fp.GraphError, match=r"join\(\): the keys.*STRING and LONG.*key_type"):
        run(lambda a, b: a.join(b).where("key").equal_to("id").window(TEN).apply(pair), [], [])


class Point(NamedTuple):
    x: str
    y: int


def test_keys_that_are_stored_alike_are_equal():
    """A NamedTuple of one side and a tuple of the other."""

    def join(left, right):
        both = left.join(right).where(lambda e: Point(e.key, e.id), Types.TUPLE([str, int]))
        return both.equal_to(lambda e: (e.key, e.id), Types.TUPLE([str, int])).window(TEN).apply(pair)

    script = [Left("a", 1, 1), Right("a", 2, 1), Right("b", 3, 1), Left("b", 3, 1), Left("b", 14, 2), Right("b", 15, 2)]
    for epochs in (1, 100):
        assert sorted(run_one(join, script, epochs=epochs).output) == [(1, 1), (1, 1), (2, 2)]


def test_streams_of_two_environments_are_refused():
    one, other = (fp.StreamExecutionEnvironment.get_execution_environment().from_collection([1]) for _ in range(2))
    with pytest.raises(fp.GraphError, match="different environments"):
        one.join(other)


@pytest.mark.parametrize("function", [Ids(), "pair", None])
def test_what_is_no_function_of_pairs_is_refused(function):
    with pytest.raises(fp.GraphError, match=r"(join|co_group)\(\): the function is a"):
        run(joined(function=function), [], [])


def test_the_output_type_is_that_of_the_annotation():
    def typed(left, right) -> tuple[int, int]:
        return left.id, right.id

    found = []
    run(lambda a, b: found.append(joined(function=typed)(a, b)) or found[0], [], [])
    assert found[0].get_type() == Types.TUPLE([Types.LONG(), Types.LONG()])


# -- savepoints

LEFT = [Left("a", 1, 1), Left("b", 16, 2), Left("a", 18, 3), Left("b", 30, 4)]
RIGHT = [Right("a", 2, 1), Right("a", 17, 2), Right("b", 18, 3, 2.5), Right("b", 31, 4)]


def stopped(join, root):
    script = [*LEFT[:3], Eof(savepoint=True), *LEFT[3:]]
    return run(join, script, RIGHT, state_root=root, epochs=3).savepoint


def rest(join, savepoint, root):
    return run(join, [*LEFT[:3], Eof(savepoint=True), *LEFT[3:]], RIGHT, state_root=root, restore=savepoint)


def test_the_elements_are_typed_columns(tmp_path):
    savepoint = stopped(joined(), tmp_path)
    frames = [pd.read_parquet(f) for f in sorted(Path(savepoint.removeprefix("file://")).rglob("*.parquet"))]
    (contents,) = [f for f in frames if "left" in f.columns]
    found = [(r.key, r.namespace_start, r.side, r.left, r.right) for r in contents.itertuples()]
    assert sorted(found, key=str) == [
        ("a", 10, "left", {"key": "a", "ts": 18, "id": 3}, None),
        ("a", 10, "right", None, {"key": "a", "ts": 17, "id": 2, "price": 0.0}),
        ("b", 10, "left", {"key": "b", "ts": 16, "id": 2}, None),
        ("b", 10, "right", None, {"key": "b", "ts": 18, "id": 3, "price": 2.5}),
    ]


def test_nothing_is_left_when_all_windows_are_gone(tmp_path):
    assert saved_rows(stopped(joined(), tmp_path / "1")) > 0
    drained = run(joined(), [*LEFT, Eof(savepoint=True, drain=True)], RIGHT, state_root=tmp_path / "2")
    assert saved_rows(drained.savepoint) == 0


class Wider(NamedTuple):
    key: str
    ts: int
    id: int
    note: str = "-"


def test_a_field_may_be_added_to_one_side(tmp_path):
    savepoint = stopped(joined(), tmp_path / "1")
    wider = TestSource([*(Wider(*e) for e in LEFT[:3]), Eof(savepoint=True), Wider("b", 30, 4, "new")], type=Wider)
    build = two_sources(joined(function=lambda left, right: (left.note, left.id, right.id)))
    found = run_local(build, wider, TestSource(RIGHT, type=Right), state_root=tmp_path / "2", restore=savepoint)
    assert sorted(found.output) == [("-", 2, 3), ("-", 3, 2), ("new", 4, 4)]


def test_a_join_may_become_a_co_group(tmp_path):
    savepoint = stopped(joined(), tmp_path / "1")
    assert sorted(rest(grouped(), savepoint, tmp_path / "2").output) == [([2], [3]), ([3], [2]), ([4], [4])]


class Sides(NamedTuple):
    key: str = ""
    side: str = ""
    left: tuple | None = None
    right: tuple | None = None


def one_side(left, right):
    return left.key_by("key").window(TEN).apply(Ids())


def of_tagged(left, right):
    return left.map(lambda e: Sides(e.key, "left"), output_type=Sides).key_by("key").window(TEN).apply(Ids())


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (joined(), joined(assigner=fp.TumblingEventTimeWindows.of(20)), "size=10 ms.*size=20 ms"),
        (joined(), joined(assigner=fp.EventTimeSessionWindows.with_gap(10)), "EventTimeSessionWindows"),
        (joined(), joined(lambda w: w.trigger(fp.CountTrigger.of(2))), "CountTrigger"),
        (joined(), of_tagged, "list of two streams"),
        (one_side, joined(), "side was added without a default|list of two streams"),
    ],
    ids=["size", "session", "trigger", "of one stream", "from one stream"],
)
def test_windows_that_mean_something_else_are_refused(tmp_path, before, after, why):
    savepoint = stopped(before, tmp_path / "1")
    with pytest.raises(fp.RestoreRefused, match=why):
        rest(after, savepoint, tmp_path / "2")
