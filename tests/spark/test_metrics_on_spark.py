"""Metrics of a job on Spark: what tasks in other processes have measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import forkpoint as fp
from forkpoint.api.execution import prepare
from forkpoint.driver.serve.commands import Commands

pytestmark = pytest.mark.spark


class Seen(fp.KeyedProcessFunction):
    def open(self, runtime_context: fp.RuntimeContext) -> None:
        self.seen = runtime_context.get_metrics_group().add_group("keys").counter("seen")

    def process_element(self, value: int, ctx: fp.KeyedProcessFunction.Context) -> list[int]:
        self.seen.inc()
        return [value]


def test_operators_and_functions_are_measured_in_sparks_processes(session: SparkSession, tmp_path: Path) -> None:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "spark"})
    env.set_state_root(str(tmp_path)).set_parallelism(2).set_max_epoch_rows(100)
    numbers = env.from_source(fp.CounterSource(300), fp.WatermarkStrategy.no_watermarks(), "n").uid("numbers")
    mapped = numbers.map(lambda n: n + 1, int).uid("mapped")
    seen = mapped.key_by(lambda n: n % 5, int).process(Seen(), int).uid("seen")
    seen.key_by(lambda n: n % 5, int).map_with_state(lambda n, s: (n, (s or 0) + 1), int).uid("counts").sink_to(
        fp.DiscardSink()
    ).uid("out")
    job = prepare(env, "measured")
    job.begin()()
    metrics = Commands(job.driver).metrics()
    assert {uid: o.records_in for uid, o in metrics.operators.items()} == dict.fromkeys(
        ("numbers", "mapped", "seen", "counts", "out"), 300
    )
    assert all(operator.busy_ms > 0 for operator in metrics.operators.values())
    assert metrics.operators["seen"].bytes_in == metrics.operators["mapped"].bytes_out > 0
    assert [(u.uid, u.group, u.name, u.value) for u in metrics.user] == [("seen", "keys", "seen", 300)]
    assert [(s.uid, s.kind, s.entries) for s in metrics.states or () if s.uid == "counts"] == [("counts", "value", 5)]
    assert metrics.epochs == metrics.durations["compute"].count == 3
