"""Executors on the one Spark session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession
from spark_runs import ECHO, StartRun, frame_operator, graph_of

from forkpoint.graph.job import Operator
from forkpoint.runtime.exchange.control import JobSpec
from forkpoint.spark.executor import SparkExecutor
from forkpoint.spark.tasks import Runtime


@pytest.fixture
def start_run(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartRun]:
    """Starts executors over the echo runtime: stages, parallelism, the frame sources' operators."""
    executors: list[SparkExecutor] = []
    local_dir = tmp_path_factory.mktemp("stores")

    def start(
        stages: int = 1,
        parallelism: int = 3,
        operators: Sequence[Operator] = (),
        runtime: Runtime = ECHO,
    ) -> SparkExecutor:
        executor = SparkExecutor(session, timedelta(milliseconds=50), runtime)
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
                local_dir=str(local_dir),
                parameters={},
                known_states=(),
            )
        )
        executors.append(executor)
        return executor

    yield start
    for executor in executors:
        executor.close()
