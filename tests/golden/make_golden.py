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

from forkpoint.checkpoint.lease import LEASE, Lease
from forkpoint.checkpoint.plan import PLAN, Plan, PlanInput, PlanOperator
from forkpoint.checkpoint.savepoint_manifest import Savepoint
from forkpoint.driver.commit.claims import CLAIM, Claim
from forkpoint.driver.run import epochs
from forkpoint.driver.scale import layouts
from forkpoint.driver.start.programs import PROGRAM, Program
from forkpoint.protocol.endpoint import ENDPOINT, Endpoint
from forkpoint.savepoint.catalog.labels import LABEL, Label
from forkpoint.state_processor import SavepointReader
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
    small_changes = partial(layouts.JobSpec, inline_bytes=2_500)  # so that some are files, others inline
    with (
        tempfile.TemporaryDirectory() as scratch,
        patch.object(epochs, "SNAPSHOT_CHAIN", 1),  # so that the few epochs have snapshots, and changes after them
        patch.object(layouts, "JobSpec", small_changes),
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
    reader = SavepointReader.read(stopped.savepoint)
    shutil.copytree(stopped.savepoint.removeprefix("file://"), target / "savepoint")
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


def facts(savepoint: Savepoint) -> dict[str, Any]:
    return {name: value for name, value in savepoint.content().items() if name in golden_files.FACTS}


def check(whole: dict[str, list[str]], first: dict[str, list[str]], second: dict[str, list[str]]) -> None:
    for name, values in whole.items():
        assert sorted(first[name] + second[name]) == values, f"{name}: stopped and restored, the job gives other results"


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
