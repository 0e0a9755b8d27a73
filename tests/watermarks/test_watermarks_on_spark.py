"""Generators, alignment and the temporal sort on Spark give what they give on the local engine; a streaming DataFrame's
rows pass a generator in their order."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import forkpoint as fp
from forkpoint.api.launch import Launch
from patience import PATIENCE_S

pytestmark = pytest.mark.spark


class Tick(NamedTuple):
    key: str
    ts: int
    mark: bool


class Marks(fp.WatermarkGenerator):
    """Emits at marked elements, one below every other time."""

    def __init__(self) -> None:
        self.marks = 0

    def on_event(self, value: Any, event_timestamp: int, output: fp.WatermarkOutput) -> None:
        if value.mark:
            self.marks += 1
            output.emit_watermark(event_timestamp - self.marks % 2)

    def on_periodic_emit(self, output: fp.WatermarkOutput) -> None:
        pass


class Watermarks(fp.KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[str, int, int]]:
        yield value.key, value.ts, ctx.timer_service().current_watermark()


MARKS = fp.WatermarkStrategy.for_generator(Marks)
TICKS = [Tick("abc"[i % 3], i * 3 - i * 7 % 11, i % 4 == 1) for i in range(80)]
RESULT = tuple[str, int, int]


def results(engine: str) -> list[Any]:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": engine})
    env.set_parallelism(2).set_max_epoch_rows(30)
    strategy = MARKS.with_timestamp_assigner(lambda t, _: t.ts)
    aligned = strategy.with_watermark_alignment("all", timedelta(milliseconds=40))
    slow = env.from_source(fp.CollectionSource(TICKS, Tick), aligned, "slow")
    fast = env.from_source(fp.CollectionSource([Tick("f", i * 9, True) for i in range(40)], Tick), aligned, "fast")
    seen = slow.key_by("key").process(Watermarks(), RESULT)
    ordered = fast.union(slow).key_by("key").sort_by_event_time().map(lambda t: (t.key, t.ts, -1), RESULT)
    return sorted(seen.union(ordered).execute_and_collect())


def test_the_same_results(session: Any) -> None:
    found = results("spark")
    assert found == results("local")
    assert len({watermark for _, _, watermark in found}) > 10


def test_rows_of_a_dataframe_pass_a_generator_in_order(session: Any, tmp_path: Path) -> None:
    """Spark makes a partition of each file of an epoch, the largest first; they are read one after the other."""
    directory = tmp_path / "in"
    directory.mkdir()
    starts = [0, 26, 48, 66, 80]
    for i, (start, stop) in enumerate(pairwise(starts)):
        rows = [json.dumps(t._asdict()) for t in TICKS[start:stop]]
        (directory / f"{i}.json").write_text("\n".join(rows) + "\n")
    found: list[Any] = []

    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(tmp_path / "root")).enable_checkpointing(100).set_parallelism(2)
    reader = session.readStream.schema("key string, ts long, mark boolean")
    ticks = env.from_dataframe(reader.json(str(directory)), "ticks", Tick, timestamp="ts", watermark_strategy=MARKS)
    seen = ticks.key_by("key").process(Watermarks(), RESULT).uid("seen")
    seen.for_each_epoch(lambda frame, _: found.extend(map(tuple, frame.collect()))).uid("out")
    env.launch = Launch(options={"engine": "spark"})
    client = env.execute_async("ticks")
    while len(found) < len(TICKS):
        time.sleep(0.05)
    client.stop_with_savepoint().result(PATIENCE_S)
    watermark, marks, expected = fp.MIN_WATERMARK, 0, []
    for tick in TICKS:
        expected.append((tick.key, tick.ts, watermark))
        if tick.mark:
            marks += 1
            watermark = max(watermark, tick.ts - marks % 2)
    assert sorted(found) == sorted(expected)
