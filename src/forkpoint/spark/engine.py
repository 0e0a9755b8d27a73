"""The Spark engine as the launcher asks for it."""

from __future__ import annotations

from forkpoint.spark.executor import SparkExecutor
from forkpoint.spark.session import get_session


def make_spark_executor() -> SparkExecutor:
    """An executor on the active SparkSession, or on a new one with forkpoint's settings."""
    return SparkExecutor(get_session())
