"""Which sources hold an operator's watermark back: those that were not heard of yet, not those that have ended."""

from __future__ import annotations

from typing import Any

import forkpoint as fp
from forkpoint.api.launch import Launch

MIN = fp.MIN_WATERMARK


class Watermarks(fp.KeyedProcessFunction):
    def process_element(self, e: tuple[str, int], ctx: Any) -> Any:
        yield e[0], e[1], ctx.timer_service().current_watermark()


def run(*sources: list[list[tuple[str, int]]], rows: int) -> dict[tuple[str, int], int]:
    """Each source with its splits; the watermark that each element saw."""
    env = fp.StreamExecutionEnvironment.get_execution_environment().set_parallelism(2).set_max_epoch_rows(rows)
    strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda e, _: e[1])
    streams = [
        env.from_source(fp.CollectionSource(splits=splits), strategy, f"source {i}").uid(f"source-{i}")
        for i, splits in enumerate(sources)
    ]
    united = streams[0].union(*streams[1:]) if len(streams) > 1 else streams[0]
    sink = fp.CollectSink()
    united.key_by(lambda e: e[0], str).process(Watermarks()).uid("watermarks").sink_to(sink).uid("out")
    env.launch = Launch(options={"engine": "local"})
    env.execute("hold")
    return {(name, time): watermark for name, time, watermark in sink.take()}


def test_a_split_that_was_not_begun_holds_the_watermark() -> None:
    seen = run([[("a", 100), ("a", 200)], [("b", 5), ("b", 6)]], rows=1)
    assert seen["b", 5] == MIN
    assert seen["b", 6] <= 4


def test_a_source_that_was_not_heard_of_holds_the_watermark() -> None:
    seen = run([[("a", 100), ("a", 200), ("a", 300)]], [[]], rows=1)
    assert seen["a", 100] == MIN
    # The empty source has ended by the first commit; from then on it holds nothing back.
    assert seen["a", 300] == 199


def test_a_source_that_has_ended_holds_nothing_back() -> None:
    seen = run([[("a", time) for time in range(100, 200, 10)]], [[("b", 1)]], rows=1)
    assert seen["a", 190] == 179
