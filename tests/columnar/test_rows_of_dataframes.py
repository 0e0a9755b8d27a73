"""Rows as a DataFrame has them, each of whose fields may be None, are aggregated as columns all the same."""

from datetime import timedelta

import pytest
from column_jobs import by_elements, counting_columns

import forkpoint as fp
from forkpoint.testing import TestSource, run_local
from forkpoint.types import Types
from forkpoint.types.kinds.containers import optional

ROWS = Types.ROW_NAMED(["shop", "ts", "price"], [optional(Types.STRING()), optional(Types.LONG()), optional(Types.DOUBLE())])
EVENTS = [fp.Row(shop="ab"[i % 2], ts=i, price=None if i % 7 == 3 else i / 4) for i in range(30)]
PRICED = [event for event in EVENTS if event["price"] is not None]
TUMBLING = fp.TumblingEventTimeWindows.of(timedelta(milliseconds=10))
SESSIONS = fp.EventTimeSessionWindows.with_gap(timedelta(milliseconds=3))
SETTINGS = {"n": fp.Count(), "total": fp.Sum("price"), "all": fp.Collect("price"), "dearest": fp.MaxBy("price")}

JOBS = {
    "windows": (EVENTS, lambda stream: stream.key_by("shop").window(TUMBLING).agg(**SETTINGS)),
    "sessions": (EVENTS, lambda stream: stream.key_by("shop").window(SESSIONS).agg(**SETTINGS)),
    "all": (EVENTS, lambda stream: stream.window_all(TUMBLING).agg(**SETTINGS)),
    "count": (EVENTS, lambda stream: stream.key_by("shop").window(TUMBLING).count()),
    "sum": (PRICED, lambda stream: stream.key_by("shop").window(TUMBLING).sum("price")),
    "max_by": (PRICED, lambda stream: stream.key_by("shop").window(TUMBLING).max_by("price")),
    "running": (EVENTS, lambda stream: stream.key_by("shop").agg(**SETTINGS)),
    "rolling": (PRICED, lambda stream: stream.key_by("shop").max("price")),
}


@pytest.mark.parametrize("name", JOBS)
def test_rows_are_computed_as_columns(name):
    events, job = JOBS[name]

    def build(env, source):
        strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row, _: row["ts"])
        return job(env.from_source(source, strategy, "in").uid("in")).uid("job")

    with counting_columns() as counts:
        found = run_local(build, TestSource(events, type=ROWS, columnar=True), epochs=10)
    assert counts == {"columns": 3, "elements": 0, "both": 0}
    with by_elements():
        expected = run_local(build, TestSource(events, type=ROWS), epochs=10)
    assert sorted(map(repr, found.output)) == sorted(map(repr, expected.output))
    assert found.output
