"""Spark's JVM is gone: whatever is asked of the job says so, and not that a connection was refused."""

from __future__ import annotations

from typing import Any, cast

import pytest

from forkpoint.driver.run.requests import SavepointRequest
from forkpoint.driver.run.stop import Stopping
from forkpoint.errors import EngineLost
from forkpoint.spark.executor import SparkExecutor


class Dead:
    """A SparkContext without its JVM."""

    master, _jsc = "local[2]", None

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: Any) -> Any:
            raise ConnectionRefusedError(111, "Connection refused")

        return refuse


def test_tasks_beside_epochs_say_that_spark_terminated() -> None:
    executor = SparkExecutor.__new__(SparkExecutor)
    executor._sc = cast(Any, Dead())
    executor._run, executor._epochs_started, executor._background_tag = None, False, "tag"
    with pytest.raises(EngineLost, match="Spark terminated while the job was running"):
        executor.run_tasks(lambda arg: arg, [b""], "savepoint")


def test_a_job_that_cannot_stop_as_spark_is_gone_ends() -> None:
    """It would go on for ever, if nothing came in."""

    class Savepoints:
        def make(self, request: Any, manifest: Any) -> str:
            raise EngineLost("Spark terminated")

    class Runner:
        manifest = None

    request = SavepointRequest(None, None, None, stop=True)
    with pytest.raises(EngineLost):
        Stopping("run", "job", cast(Any, Savepoints()), lambda _: True).stop(request, cast(Any, Runner()))
    with pytest.raises(EngineLost):
        request.done.result()
