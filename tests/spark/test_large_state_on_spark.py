"""State beyond memory on Spark: a store that only one process may open, and a limit of memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import forkpoint as fp
from forkpoint.api.execution import prepare
from forkpoint.api.launch import Launch
from forkpoint.driver.observe.events import EpochCommitted, Event

pytestmark = pytest.mark.spark


class Epochs:
    def __init__(self) -> None:
        self.committed: list[EpochCommitted] = []

    def on_event(self, event: Event) -> None:
        if isinstance(event, EpochCommitted):
            self.committed.append(event)


def test_processes_take_turns_with_a_store_in_rocksdb_and_epochs_grow_within_the_memory(
    session: SparkSession, tmp_path: Path
) -> None:
    """No store is made a second time, by whichever process a subtask runs in."""
    env = fp.StreamExecutionEnvironment.get_execution_environment({"state.backend.type": "rocksdb"})
    env.set_state_root(str(tmp_path)).set_parallelism(3).set_memory_per_subtask("1g").set_max_epoch_rows(3_000)
    epochs = Epochs()
    env.launch = Launch(options={"engine": "spark"}, listeners=[epochs])
    numbers = env.from_source(fp.CounterSource(20_000), fp.WatermarkStrategy.no_watermarks(), "n").uid("numbers")
    counts = numbers.key_by(lambda n: n % 7_919, int).map_with_state(lambda n, s: ((s or 0) + n, (s or 0) + n), int, int)
    sink = fp.CollectSink()
    counts.uid("counts").sink_to(sink).uid("out")
    job = prepare(env, "large")
    job.begin()()
    first, *rest = [{(c.subtask, c.by) for c in each.catch_ups} for each in epochs.committed]
    assert {by for _, by in first} == {"rebuild"}
    assert {by for each in rest for _, by in each} == {"memory", "changes"}
    assert [each.records_in["counts"] for each in epochs.committed][:4] == [500, 2_000, 3_000, 3_000]
    sums, expected = dict[int, int](), []
    for n in range(20_000):
        sums[n % 7_919] = sums.get(n % 7_919, 0) + n
        expected.append(sums[n % 7_919])
    assert sorted(sink.take()) == sorted(expected)
