"""Makes the golden files of the current formats: `python tests/golden/make_golden.py tests/golden/format-2`.

Run it once, in the commit that raises a format's version, on the code of that commit. What is there already is never made
anew: it stands for what users have on their disks.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import golden_files
import golden_job

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.lease import LEASE, Lease
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.checkpoint.plan import PLAN, Plan, PlanInput, PlanOperator
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.driver.commit.claims import CLAIM, Claim
from forkpoint.driver.run import epochs
from forkpoint.driver.savepoints.earlier import LAST, LastSavepoints, Made
from forkpoint.driver.scale import layouts
from forkpoint.driver.start.programs import PROGRAM, Program
from forkpoint.protocol.endpoint import ENDPOINT, Endpoint
from forkpoint.savepoint.catalog.labels import LABEL, Label
from forkpoint.savepoint.export import increment
from forkpoint.savepoint.export.exporter import export_savepoint
from forkpoint.savepoint.format.opened_savepoint import open_savepoint
from forkpoint.savepoint.format.tasks import run_here
from forkpoint.state_processor import SavepointReader
from forkpoint.storage.base import LocalStorage
from forkpoint.testing import Eof

RECORDS: dict[str, tuple[Any, Any]] = {
    "claim.json": (CLAIM, Claim(place="file:///results", job="golden", uid="sink", claimed_ms=5)),
    "label.json": (LABEL, Label(savepoint="s-1", label="weekly", note="before the upgrade")),
    "endpoint.json": (
        ENDPOINT,
        Endpoint(
            job="golden",
            run="r-1",
            pid=7,
            machine="host",
            host="127.0.0.1",
            port=4711,
            token="t",
            started_ms=5,
            log="l",
        ),
    ),
    "last-savepoints.json": (
        LAST,
        LastSavepoints(savepoints=[Made(savepoint="s-1", epoch=5, url="file:///state/savepoints/golden", directory="s-1")]),
    ),
    "lease.json": (LEASE, Lease(job="golden", run="r-1", renewals=3, ttl_ms=3000, epoch=9)),
    "plan.json": (
        PLAN,
        Plan(
            operators=[
                PlanOperator(uid="in", name="numbers", kind="source", stage=0, type="LONG"),
                PlanOperator(
                    uid="counts",
                    name="map_with_state",
                    kind="map_with_state",
                    stage=1,
                    stateful=True,
                    inputs=[PlanInput(uid="in", ship_strategy="HASH", tag="late", crosses=True)],
                ),
            ]
        ),
    ),
    "program.json": (
        PROGRAM,
        Program(
            app="/srv/app.py",
            arguments=["--fast"],
            directory="/srv",
            name="golden",
            options={"parallelism": 2},
            engine="local",
            pyflink=True,
            bytes=4,
            checksum="0" * 64,
        ),
    ),
}


def main(target: Path) -> None:
    if target.exists():
        sys.exit(f"{target} is there already; golden files are never made anew")
    with (
        tempfile.TemporaryDirectory() as scratch,
        patch.object(epochs, "SNAPSHOT_CHAIN", 1),  # so that the few epochs have snapshots, and changes after them
        patch.object(layouts, "INLINE_BYTES", 5_000),  # so that some changes are files, others inline
    ):
        expected = make(target, Path(scratch))
    (target / "expected.json").write_text(json.dumps(expected, indent=0, ensure_ascii=False) + "\n")
    size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
    print(f"{target}: {size:,} bytes; formats {golden_files.versions_in(target)}")


def make(target: Path, scratch: Path) -> dict[str, Any]:
    inputs = scratch / "inputs"
    whole = golden_job.outputs(golden_job.run(inputs, scratch / "whole"))

    stopped = golden_job.run(inputs, scratch / "stopped", stop=Eof(savepoint=True))
    assert stopped.savepoint is not None
    referring(scratch / "stopped", target)
    reader = SavepointReader.read(target / "savepoint")
    assert golden_files.entries(reader) == golden_files.entries(SavepointReader.read(stopped.savepoint))
    resumed = golden_job.run(inputs, scratch / "resumed", restore=str(target / "savepoint"))
    check(whole, golden_job.outputs(stopped), golden_job.outputs(resumed))

    cancelled = golden_job.run(inputs, scratch / "cancelled", stop=Eof())
    shutil.copytree(scratch / "cancelled", target / "checkpoint")
    for run in target.glob("checkpoint/jobs/*/runs/*/run.json"):
        run.write_text(json.dumps({**json.loads(run.read_text()), "machine": "golden", "pid": 1}))
    continued = golden_job.run(inputs, scratch / "cancelled")
    check(whole, golden_job.outputs(cancelled), golden_job.outputs(continued))
    assert golden_job.outputs(continued) == golden_job.outputs(resumed)

    (target / "records").mkdir()
    for name, (form, record) in RECORDS.items():
        (target / "records" / name).write_bytes(form.dump(record))
    return {
        "savepoint": facts(reader.metadata),
        "entries": golden_files.entries(reader),
        "records": {name: record.content() for name, (_, record) in RECORDS.items()},
        "rest": golden_job.outputs(resumed),
    }


def referring(root: Path, target: Path) -> None:
    """A savepoint of the job that refers to one of an earlier epoch, `base`."""
    storage, epochs = LocalStorage(str(root)), History(LocalStorage(str(root)), JobPaths(golden_job.JOB))
    export = partial(export_savepoint, storage=storage, run_tasks=run_here)
    with patch.object(increment, "LEAST_BYTES", 0), patch.object(increment, "LARGEST_SHARE", 100):
        last = epochs.load(epochs.epochs()[-1])
        export(manifest=epochs.load(last.epoch - 1), target=LocalStorage(str(target / "base")), savepoint_id="base")
        base = open_savepoint(LocalStorage(str(target)), "base")
        made = export(manifest=last, target=LocalStorage(str(target / "savepoint")), savepoint_id="s-2", earlier=base)
    assert any(file.changes for file in made.files)


def facts(savepoint: Savepoint) -> dict[str, Any]:
    return {name: value for name, value in savepoint.content().items() if name in golden_files.FACTS}


def check(whole: dict[str, list[str]], first: dict[str, list[str]], second: dict[str, list[str]]) -> None:
    for name, values in whole.items():
        assert sorted(first[name] + second[name]) == values, f"{name}: stopped and restored, the job gives other results"


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
