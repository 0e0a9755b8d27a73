"""One real Spark session for all tests of the package, and the helpers that build runs on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

import echo_runtime
import pytest
from pyspark.sql import SparkSession

from forkpoint.functions import WatermarkStrategy
from forkpoint.graph.job import JobGraph, Operator
from forkpoint.graph.transformations import DataFrameSpec
from forkpoint.runtime.epoch import EpochContext, JobSpec
from forkpoint.spark.executor import SparkExecutor
from forkpoint.spark.session import get_session
from forkpoint.spark.tasks import Runtime

ECHO = Runtime(echo_runtime.run_source_task, echo_runtime.run_frame_task, echo_runtime.run_subtask)

StartRun = Callable[..., SparkExecutor]


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    local = str(tmp_path_factory.mktemp("spark"))
    spark = get_session({"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.local.dir": local})
    yield spark
    spark.stop()


def context(epoch: int) -> EpochContext:
    return EpochContext(
        generation=1, epoch=epoch, committed=epoch - 1, processing_time_ms=0, drain=False, previous={}, splits={},
        watermarks={}, snapshot_subtasks=[],
    )  # fmt: skip


def frame_operator(operator: int, uid: str, frame: object) -> Operator:
    strategy = WatermarkStrategy.no_watermarks()
    spec = DataFrameSpec(frame=frame, strategy=strategy, timestamp_column=None, split_column=None, max_rows=None)
    return Operator(
        id=operator, uid=uid, generated_uid=False, name=uid, kind="source", spec=spec, stage=0, inputs=(),
        output_type=None, stateful=False, origins=frozenset({operator}), timestamp_column=None,
    )  # fmt: skip


def graph_of(stages: int, operators: Sequence[Operator] = ()) -> JobGraph:
    return JobGraph(operators=tuple(operators), stages=stages, max_parallelism=128)


@pytest.fixture
def start_run(session: SparkSession) -> Iterator[StartRun]:
    """Starts executors over the echo runtime: stages, parallelism, the frame sources' operators."""
    executors: list[SparkExecutor] = []

    def start(
        stages: int = 1,
        parallelism: int = 3,
        operators: Sequence[Operator] = (),
        runtime: Runtime = ECHO,
        interval: timedelta | None = timedelta(milliseconds=50),
    ) -> SparkExecutor:
        executor = SparkExecutor(session, interval, runtime)
        shipped = graph_of(stages, [frame_operator(o.id, o.uid, None) for o in operators])
        executor.start(
            JobSpec(
                run=f"run-{len(executors)}",
                job="job",
                graph=shipped,
                storage_url="memory://",
                parallelism=parallelism,
                max_parallelism=128,
                store="dict",
                local_dir="unused",
                parameters={},
                known_states=(),
            )
        )
        executors.append(executor)
        return executor

    yield start
    for executor in executors:
        executor.close()
