"""Checking a cluster before a job runs there."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence

from forkpoint.driver.start.preflight import HostReport, try_hosts
from forkpoint.graph.options import JobOptions
from forkpoint.operations.observer import SILENT, Observer
from forkpoint.operations.packing import pack
from forkpoint.operations.roots import StateRoot


def doctor(
    *,
    spark: Mapping[str, str],
    directories: Sequence[str] = (),
    ship_env: bool = False,
    pass_env: Sequence[str] = (),
    state_root: str | None = None,
    observer: Observer = SILENT,
) -> list[HostReport]:
    """Try on each host that runs Spark's tasks what a job needs there: versions, the state root, shared directories, disk, clock.

    ``spark``: settings by name ("spark.master"). ``directories``: those that sinks write to. ``ship_env``, ``pass_env``: as those
    of a ``RunRequest``. Starts a SparkSession, or takes the active one, and leaves it running.
    """
    from forkpoint.spark.executor import make_spark_executor  # loads PySpark
    from forkpoint.spark.provisions import Provisions

    provisions = Provisions(ship_env, JobOptions(pass_env=pass_env).pass_env)
    pack(ship_env, observer)
    with observer.steps("starting Spark") as step:
        executor, _ = make_spark_executor(None, spark, provisions)
        step("trying the hosts")
        return try_hosts(
            executor, StateRoot(state_root).storage, {each: each for each in directories}, tempfile.gettempdir()
        )
