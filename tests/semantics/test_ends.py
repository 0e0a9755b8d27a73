"""At the end of time: what comes out with the last watermark, and ahead of it, meets what is behind it."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import forkpoint as fp
from forkpoint.testing import Eof, TestSource, run_local


class Number(NamedTuple):
    key: str
    ts: int
    n: int


STAMPS = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e.ts)


@pytest.mark.parametrize(
    "assigner",
    [
        fp.TumblingEventTimeWindows.of(5),
        fp.SlidingEventTimeWindows.of(10, 5),
        fp.EventTimeSessionWindows.with_gap(5),
    ],
)
def test_windows_behind_windows_without_an_end(assigner: Any, tmp_path: Any) -> None:
    """What global windows give has the greatest timestamp there is, and so have the windows that it falls into."""

    def build(env: Any, source: Any) -> Any:
        keyed = env.from_source(source, STAMPS, "in").uid("in").key_by(lambda e: e.key)
        first = keyed.count_window(1).reduce(lambda a, b: a).uid("first").key_by(lambda e: e.key)
        return first.window(assigner).reduce(lambda a, b: b).uid("second").map(lambda e: e.n)

    script = [Number("a", 1, 1), Number("a", 2, 2), Eof(savepoint=True), Number("a", 3, 3)]
    one = run_local(build, TestSource(script, type=Number), state_root=tmp_path / "one")
    assert one.output == []
    assert one.savepoint is not None
    two = run_local(build, TestSource(script, type=Number), state_root=tmp_path / "two", restore=one.savepoint)
    assert set(two.output) == {3}


def test_an_operator_waits_for_the_window_ahead_of_it_while_a_loop_goes_round() -> None:
    def build(env: Any, left: Any, right: Any) -> Any:
        a = env.from_source(left, STAMPS, "left").key_by(lambda e: e.key)
        b = env.from_source(right, STAMPS, "right")
        loop = b.iterate()
        loop.close_with(loop.filter(lambda e: e.n > 0).map(lambda e: e._replace(n=e.n - 1), Number))
        most = a.window(fp.TumblingEventTimeWindows.of(1)).max("n").key_by(lambda e: e.key)
        joined = most.interval_join(b.key_by(lambda e: e.key)).between(-5, 5)
        return joined.process(lambda one, other, ctx: [(one.ts, other.ts)])

    found = run_local(build, TestSource([Number("a", 0, 1)], type=Number), TestSource([Number("a", 2, 1)], type=Number))
    assert found.output == [(0, 2)]
