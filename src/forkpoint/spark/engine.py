"""Creates the Spark engine."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from forkpoint.spark.executor import SparkExecutor
from forkpoint.spark.session import get_session

DEFAULT_INTERVAL_MS = 100


def make_spark_executor(interval_ms: int | None, settings: Mapping[str, str]) -> tuple[SparkExecutor, int]:
    """An executor on the active SparkSession, or on a new one with these settings, and its default parallelism."""
    executor = SparkExecutor(get_session(settings), timedelta(milliseconds=interval_ms or DEFAULT_INTERVAL_MS))
    return executor, executor.session.sparkContext.defaultParallelism
