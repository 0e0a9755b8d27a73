"""What runs on Spark are made of: contexts, graphs and a runtime that echoes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import echo_runtime

from forkpoint.functions import WatermarkStrategy
from forkpoint.graph.job import JobGraph, Operator
from forkpoint.graph.specs import DataFrameSpec
from forkpoint.runtime.exchange.control import EpochContext
from forkpoint.spark.executor import SparkExecutor
from forkpoint.spark.tasks import Runtime

ECHO = Runtime(echo_runtime.run_source_task, echo_runtime.run_frame_task, echo_runtime.run_subtask, echo_runtime.notify_subtask)

StartRun = Callable[..., SparkExecutor]


def context(epoch: int) -> EpochContext:
    return EpochContext(
        generation=1,
        epoch=epoch,
        committed=epoch - 1,
        processing_time_ms=0,
        drain=False,
        previous={},
        splits={},
        watermarks={},
        snapshot_subtasks=[],
    )


def frame_operator(operator: int, uid: str, frame: object) -> Operator:
    strategy = WatermarkStrategy.no_watermarks()
    spec = DataFrameSpec(frame=frame, strategy=strategy, timestamp_column=None, split_column=None, max_rows=None)
    return Operator(
        id=operator,
        uid=uid,
        generated_uid=False,
        name=uid,
        kind="source",
        spec=spec,
        stage=0,
        inputs=(),
        output_type=None,
        stateful=False,
        origins=frozenset({operator}),
        timestamp_column=None,
    )


def graph_of(stages: int, operators: Sequence[Operator] = ()) -> JobGraph:
    return JobGraph(operators=tuple(operators), stages=stages, max_parallelism=128)
