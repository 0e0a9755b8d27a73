"""A job on a cluster of two hosts is rescaled while it runs: each store is built where its subtask will run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from standalone import Cluster
from test_standalone import APP, KEYS, ROWS, A, B, Program

pytestmark = pytest.mark.spark

NOTES = """
import json
from dataclasses import replace
from forkpoint.driver.observe.events import EpochCommitted

class Notes:
    def on_event(self, event):
        if isinstance(event, EpochCommitted):
            with open(sys.argv[3], "a") as file:
                print(json.dumps({"epoch": event.epoch, "by": [c.by for c in event.catch_ups]}), file=file)

env.launch = replace(env.launch, listeners=[Notes()])
env.execute"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path)
    try:
        yield started
    finally:
        started.stop()


@pytest.mark.slow
def test_stores_are_where_subtasks_run(cluster: Cluster, tmp_path: Path) -> None:
    program = Program(tmp_path, cluster)
    notes = tmp_path / "notes.jsonl"
    (tmp_path / "app" / "app.py").write_text(APP.replace("env.execute", NOTES).replace("sys.argv[3]", repr(str(notes))))
    cluster.start_worker(A)
    cluster.start_worker(B)
    program.write(0, 4)
    process = program.start("--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0", "--conf", "spark.cores.max=2")
    program.wait_for(ROWS // 4, process)
    before = {host: {store.parent.name for store in program.stores(host)} for host in (A, B)}
    done = json.loads(program.command("--output", "json", "rescale", "counting", "-p", "6"))
    assert done["parallelism"] == 6
    program.write(1, 4)
    program.write(2, 4)
    program.write(3, 4)
    program.wait_for(ROWS, process)
    program.command("cancel", "counting")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert Counter(program.rows()) == Counter((n, n // KEYS + 1) for n in range(ROWS))
    epochs = {each["epoch"]: each["by"] for each in map(json.loads, notes.read_text().splitlines())}
    first = epochs[min(epoch for epoch in epochs if epoch > done["epoch"])]
    assert Counter(first) == {"changes": 6}
    assert all(len(names) == 1 for names in before.values()), before
