"""Windows that were open when the program changed."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from evolution_jobs import STOP, go_on

import forkpoint as fp
from forkpoint.errors import RestoreRefused
from forkpoint.testing import TestSource, run_local


class Click1(NamedTuple):
    user: str
    ts: int
    n: int


class Click2(NamedTuple):
    ts: int
    user: str
    n: float
    page: str = "?"


class Listing(fp.ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, list(elements)


class Mean1(fp.AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value.n

    def get_result(self, accumulator):
        return accumulator

    def merge(self, a, b):
        return a + b


class Mean2(Mean1):
    def create_accumulator(self):
        return 0.0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value.n, accumulator[1] + 1


def job(cls, end, size=100, change=lambda s: s, **how):
    def build(env, source):
        strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda c, _: c.ts)
        stream = env.from_source(source, strategy, "in").uid("in")
        windows = stream.key_by(lambda c: c.user, str).window(fp.TumblingEventTimeWindows.of(fp.Time.milliseconds(size)))
        return change(end(windows).uid("windows"))

    def life(root, **options):
        script = [
            cls(user="a", ts=1, n=1),
            cls(user="b", ts=5, n=2),
            cls(user="a", ts=9, n=3),
            STOP,
            cls(user="a", ts=20, n=4),
        ]
        return run_local(build, TestSource(script, type=cls), state_root=root, **options)

    return life


def listed(windows):
    return windows.process(Listing())


@pytest.mark.parametrize("how", [{}, {"parallelism": 3, "max_parallelism": 11}])
def test_elements_in_open_windows_evolve(tmp_path, how):
    job(Click1, listed)(tmp_path)
    found = dict(job(Click2, listed)(tmp_path, restore=go_on(), **how).output)
    assert found == {
        "a": [Click2(1, "a", 1.0), Click2(9, "a", 3.0), Click2(20, "a", 4.0)],
        "b": [Click2(5, "b", 2.0)],
    }


def test_sums_of_open_windows_evolve(tmp_path):
    job(Click1, lambda windows: windows.sum("n"))(tmp_path)
    found = job(Click2, lambda windows: windows.sum("n"))(tmp_path, restore=go_on()).output
    assert {(each.user, each.n, type(each.n), each.page) for each in found} == {
        ("a", 8.0, float, "?"),
        ("b", 2.0, float, "?"),
    }


def aggregated(of, fn):
    return lambda windows: windows.aggregate(fn, accumulator_type=of, output_type=of)


@pytest.mark.parametrize("how", [{}, {"parallelism": 3, "max_parallelism": 11}])
def test_accumulators_are_migrated_for_each_window(tmp_path, how):
    job(Click1, aggregated(int, Mean1()))(tmp_path)
    after = aggregated(tuple[float, int], Mean2())
    with pytest.raises(RestoreRefused, match=r"window-contents.*LONG and is declared as tuple"):
        job(Click1, after)(tmp_path, restore=go_on())
    migrated = job(Click1, after, change=lambda s: s.migrate_state(1, lambda n: (float(n), 100), state="window-contents"))
    assert sorted(migrated(tmp_path, restore=go_on(), **how).output) == [(2.0, 100), (8.0, 101)]


def test_windows_of_another_size_are_refused(tmp_path):
    job(Click1, listed)(tmp_path)
    with pytest.raises(RestoreRefused, match="its meaning has changed"):
        job(Click1, listed, size=50)(tmp_path, restore=go_on())
