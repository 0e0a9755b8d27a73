"""Windows in savepoints: what is in the files, and which changes of a program are refused."""

from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

import forkpoint as fp
from forkpoint.testing import EOF, Eof, TestSource, run_local
from forkpoint.types import Types


class Click(NamedTuple):
    user: str
    ts: int
    n: int


CLICKS = [Click("a", 1, 1), Click("b", 4, 2), Click("a", 12, 3), Click("a", 6, 4), Click("b", 25, 5), Click("a", 31, 6)]


def total(windows):
    return windows.sum("n")


def job(assigner, end=total, trigger=None, evictor=None):
    def build(env, source):
        strategy = fp.WatermarkStrategy.for_bounded_out_of_orderness(10).with_timestamp_assigner(lambda c, _: c.ts)
        stream = env.from_source(source, strategy, "in").uid("in")
        windows = stream.key_by(lambda c: c.user).window(assigner)
        if trigger is not None:
            windows = windows.trigger(trigger)
        if evictor is not None:
            windows = windows.evictor(evictor)
        return end(windows).uid("windows")

    return build


def run(build, script, **how):
    return run_local(build, TestSource(script, type=Click), **how)


def stopped(build, root, at=4):
    return run(build, [*CLICKS[:at], Eof(savepoint=True), *CLICKS[at:]], parallelism=2, state_root=root).savepoint


def rest(build, savepoint, root, at=4, **how):
    script = [*CLICKS[:at], Eof(savepoint=True), *CLICKS[at:]]
    return run(build, script, state_root=root, restore=savepoint, **how)


def tables(savepoint):
    found = {}
    for file in sorted(Path(savepoint.removeprefix("file://")).rglob("*.parquet")):
        frame = pd.read_parquet(file)
        found.setdefault(tuple(c for c in frame.columns if c != "key_group"), []).append(frame)
    return {columns: pd.concat(frames) for columns, frames in found.items()}


TEN = fp.TumblingEventTimeWindows.of(10)


def test_contents_and_timers_are_typed_columns(tmp_path):
    found = tables(stopped(job(TEN), tmp_path))
    contents = found["key", "namespace_start", "namespace_end", "user", "ts", "n"]
    rows = contents[["key", "namespace_start", "namespace_end", "n"]].itertuples(index=False, name=None)
    assert sorted(rows) == [("a", 0, 10, 5), ("a", 10, 20, 3), ("b", 0, 10, 2)]
    timers = found["key", "domain", "namespace_start", "namespace_end", "timestamp"]
    rows = timers.drop(columns="key_group").itertuples(index=False, name=None)
    assert sorted(rows) == [("a", "event", 0, 10, 9), ("a", "event", 10, 20, 19), ("b", "event", 0, 10, 9)]


def test_elements_of_windows_are_rows(tmp_path):
    class Numbers(fp.WindowFunction):
        def apply(self, key, window, inputs):
            yield key, window.start, [c.n for c in inputs]

    build = job(TEN, lambda w: w.apply(Numbers()))
    savepoint = stopped(build, tmp_path / "1")
    contents = tables(savepoint)["key", "namespace_start", "namespace_end", "index", "user", "ts", "n"]
    rows = contents[["key", "namespace_start", "index", "n"]].itertuples(index=False, name=None)
    assert sorted(rows) == [("a", 0, 0, 1), ("a", 0, 1, 4), ("a", 10, 0, 3), ("b", 0, 0, 2)]
    assert sorted(rest(build, savepoint, tmp_path / "2", parallelism=3).output) == [
        ("a", 0, [1, 4]),
        ("a", 10, [3]),
        ("a", 30, [6]),
        ("b", 0, [2]),
        ("b", 20, [5]),
    ]


def test_sessions_know_where_their_contents_are(tmp_path):
    build = job(fp.EventTimeSessionWindows.with_gap(8))
    savepoint = stopped(build, tmp_path / "1")
    merged = tables(savepoint)["key", "map_key_start", "map_key_end", "start", "end"]
    rows = merged.drop(columns="key_group").itertuples(index=False, name=None)
    assert sorted(rows) == [("a", 1, 20, 1, 9), ("b", 4, 12, 4, 12)]
    found = rest(build, savepoint, tmp_path / "2", parallelism=1).output
    assert sorted((c.user, c.n) for c in found) == [("a", 6), ("a", 8), ("b", 2), ("b", 5)]


def test_a_chain_of_savepoints_with_other_parallelisms(tmp_path):
    build = job(fp.SlidingEventTimeWindows.of(20, 10), lambda w: w.count())
    script = [*CLICKS[:2], Eof(savepoint=True), *CLICKS[2:4], Eof(savepoint=True), *CLICKS[4:]]
    whole = sorted(run(build, CLICKS).output)
    found, savepoint = [], None
    for n, parallelism in enumerate((2, 3, 1)):
        part = run(build, script, parallelism=parallelism, state_root=tmp_path / str(n), restore=savepoint)
        found += part.output
        savepoint = part.savepoint
    assert sorted(found) == whole


@pytest.mark.parametrize("first", [1, 2])
def test_a_stopped_job_goes_on_from_its_checkpoint(tmp_path, first):
    build = job(fp.EventTimeSessionWindows.with_gap(8))
    script = [*CLICKS[:4], EOF, *CLICKS[4:]]
    before = run(build, script, parallelism=first, state_root=tmp_path)
    after = run(build, script, parallelism=2, state_root=tmp_path)
    assert sorted((c.user, c.n) for c in before.output + after.output) == [("a", 6), ("a", 8), ("b", 2), ("b", 5)]


class Longs(fp.AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value, accumulator):
        return accumulator + value.n

    def get_result(self, accumulator) -> int:
        return accumulator

    def merge(self, a, b):
        return a + b


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (job(fp.TumblingEventTimeWindows.of(20)), "size=10 ms.*size=20 ms"),
        (job(fp.TumblingEventTimeWindows.of(10, 5)), "offset=5 ms"),
        (job(fp.SlidingEventTimeWindows.of(10, 5)), "SlidingEventTimeWindows"),
        (job(fp.TumblingProcessingTimeWindows.of(10)), "TumblingProcessingTimeWindows"),
        (job(TEN, trigger=fp.ContinuousEventTimeTrigger.of(3)), "ContinuousEventTimeTrigger"),
        (job(TEN, lambda w: w.max("n")), r"sum\(n\).*max\(n\)"),
        (job(TEN, lambda w: w.aggregate(Longs())), "aggregating"),
        (job(TEN, evictor=fp.CountEvictor.of(3)), "list state"),
        (job(fp.GlobalWindows.create()), "namespace type"),
    ],
)
@pytest.mark.parametrize("way", ["savepoint", "checkpoint"])
def test_windows_that_mean_something_else_are_refused(tmp_path, changed, why, way):
    savepoint = stopped(job(TEN), tmp_path / "1")
    restored, root = (savepoint, "2") if way == "savepoint" else (None, "1")
    with pytest.raises(fp.RestoreRefused, match=why):
        rest(changed, restored, tmp_path / root)


def test_the_function_and_the_allowed_lateness_may_change(tmp_path):
    savepoint = stopped(job(TEN, lambda w: w.aggregate(Longs(), accumulator_type=Types.LONG())), tmp_path / "1")

    class Doubled(Longs):
        def get_result(self, accumulator) -> int:
            return accumulator * 2

    changed = job(TEN, lambda w: w.allowed_lateness(7).aggregate(Doubled(), accumulator_type=Types.LONG()))
    assert sorted(rest(changed, savepoint, tmp_path / "2").output) == [4, 6, 10, 10, 12]


class ClickWithPage(NamedTuple):
    user: str
    ts: int
    page: str = "/"
    n: int = 0


@pytest.mark.parametrize("end", [total, lambda w: w.apply(Pages())], ids=["sum", "elements"])
def test_a_field_may_be_added_to_the_elements(tmp_path, end):
    savepoint = stopped(job(TEN, end), tmp_path / "1")
    more = [ClickWithPage(c.user, c.ts, "/more", c.n) for c in CLICKS]
    script = TestSource([*more[:4], Eof(savepoint=True), *more[4:]], type=ClickWithPage)
    found = run_local(job(TEN, end), script, state_root=tmp_path / "2", restore=savepoint).output
    if end is total:
        assert sorted(found) == [
            ("a", 1, "/", 5),
            ("a", 12, "/", 3),
            ("a", 31, "/more", 6),
            ("b", 4, "/", 2),
            ("b", 25, "/more", 5),
        ]
    else:
        assert sorted(found) == [(0, ["/"]), (0, ["/", "/"]), (10, ["/"]), (20, ["/more"]), (30, ["/more"])]


class Pages(fp.WindowFunction):
    def apply(self, key, window, inputs):
        yield window.start, [getattr(c, "page", None) for c in inputs]
