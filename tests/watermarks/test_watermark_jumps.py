"""The watermark jumps when the split that held it back lets go: what timers emit on the way is in time for the next operator."""

from __future__ import annotations

from typing import Any

import pytest
from watermark_jobs import Event, timed

import forkpoint as fp
from forkpoint.testing import PAUSE, TestSource, run_local

LATE = fp.OutputTag("late", Event)
EVENTS = [
    [Event("a", 1), PAUSE],
    [Event("a", 30), PAUSE, Event("a", 40)],
]  # the first split ends behind the first epoch


@pytest.mark.parametrize("columnar", [False, True])
@pytest.mark.parametrize("second", ["windows", "agg", "sort"])
def test_results_of_windows_are_in_time_for_what_is_behind_them(second: str, columnar: bool) -> None:
    def build(env: Any, source: Any) -> Any:
        strategy = timed(fp.WatermarkStrategy.for_monotonous_timestamps())
        counted = env.from_source(source, strategy, "in").key_by(lambda e: e.key).window(fp.TumblingEventTimeWindows.of(5))
        first = counted.max("ts").key_by(lambda e: e.key)
        windows = first.window(fp.TumblingEventTimeWindows.of(10)).side_output_late_data(LATE)
        match second:
            case "windows":
                out = windows.max("ts")
            case "agg":
                out = windows.agg(ts=fp.Max("ts"))
            case _:
                out = first.sort_by_event_time(LATE)
        return {"out": out.map(lambda e: e.ts), "late": out.get_side_output(LATE)}

    found = run_local(build, TestSource(*EVENTS, type=Event, columnar=columnar)).outputs
    assert found == {"out": [1, 30, 40], "late": []}
