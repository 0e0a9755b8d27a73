"""Stores of a layout that does not run yet, built by Spark's workers while epochs run."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_runs import ECHO, context, graph_of

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.runtime.exchange.control import JobSpec
from forkpoint.spark.executor import SparkExecutor
from forkpoint.state import OPERATOR_KG, open_store, range_for
from forkpoint.storage.base import open_storage

pytestmark = pytest.mark.spark


def history_of_a_job(root: Path) -> int:
    """Counts 50 keys, in a few epochs; returns the last one."""
    env = fp.StreamExecutionEnvironment.get_execution_environment()
    env.set_state_root(str(root)).set_parallelism(2).set_max_epoch_rows(100)
    numbers = env.from_collection(list(range(500)), int).uid("numbers")
    counted = numbers.key_by(lambda n: n % 50, int).map_with_state(lambda n, c: (n, (c or 0) + 1), int).uid("counts")
    counted.sink_to(fp.DiscardSink()).uid("out")
    env.launch = Launch(options={"engine": "local"})
    env.execute("counting")
    newest = History(open_storage(str(root)), JobPaths("counting")).newest()
    assert newest is not None
    return newest.epoch


def entries(spec: JobSpec) -> list[tuple[int, int]]:
    """The version and size of each store."""
    found = []
    for subtask in range(spec.parallelism):
        store = open_store("lmdb", Path(spec.local_dir) / str(subtask))
        found.append((store.version, len(list(store.scan(*range_for(0, OPERATOR_KG + 1))))))
        store.close()
    return found


def test_stores_are_on_disk_for_the_processes_that_will_use_them(session: SparkSession, tmp_path: Path) -> None:
    last = history_of_a_job(tmp_path)
    executor = SparkExecutor(session, timedelta(milliseconds=50), ECHO)
    running, coming = (
        JobSpec(
            run=f"run-{parallelism}",
            job="counting",
            graph=graph_of(1),
            storage_url=open_storage(str(tmp_path)).url,
            parallelism=parallelism,
            max_parallelism=128,
            store="lmdb",
            local_dir=str(tmp_path / f"stores-{parallelism}"),
            parameters={},
            known_states={},
        )
        for parallelism in (2, 5)
    )
    assert [each.by for each in executor.prepare(coming, 2)] == ["rebuild"] * 5  # a standby's, before any start
    executor.start(running)
    executor.run_epoch(context(1), [])
    assert [(each.subtask, each.by) for each in executor.prepare(coming, last)] == [(i, "changes") for i in range(5)]
    assert [version for version, _ in entries(coming)] == [last] * 5
    assert sum(size for _, size in entries(coming)) == 50
    executor.start(coming)
    assert sum(size for _, size in entries(coming)) == 50
    executor.close()
    assert not Path(coming.local_dir).exists()
