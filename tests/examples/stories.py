"""The two stories of the examples, told in one process: each as a function from an engine to what came of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

from example_programs import environment, load, wait_until

import forkpoint as fp
from forkpoint.api.launch import Launch
from forkpoint.driver.start.replay import Until, UntilTime
from forkpoint.graph.options import RestoreOptions
from forkpoint.savepoint.format.opened_savepoint import open_savepoint
from patience import PATIENCE_S


def start(
    module: ModuleType,
    engine: str,
    directory: Path,
    job: str,
    *arguments: str,
    savepoint: str | None = None,
    until: Until | None = None,
) -> fp.JobClient:
    env = environment(engine).set_state_root(str(directory / "state"))
    module.build(env, *arguments)
    env.launch = Launch(restore=RestoreOptions(savepoint), job_name=job, until=until)
    return env.execute_async(job)


def written(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(directory.glob("*.jsonl")) for line in file.read_text().splitlines()]


def dashboard(engine: str, directory: Path) -> dict[str, list[dict[str, Any]]]:
    """What both versions wrote: the first one from the first day to the last, the second one from the day on which paid
    posts came."""
    prepare = load("dashboard/post_events.py")
    events, output = directory / "events", directory / "output"
    prepare.write(events, range(1, prepare.PAID_FROM))
    first = start(load("dashboard/dashboard_v1.py"), engine, directory, "dashboard", str(events), str(output))
    wait_until(lambda: len(written(output / "dashboard")) == (prepare.PAID_FROM - 1) * prepare.EVENTS_A_DAY)
    before_paid = first.trigger_savepoint(label="before-paid").result(PATIENCE_S)
    prepare.write(events, range(prepare.PAID_FROM, 32))
    wait_until(lambda: len(written(output / "dashboard")) == 31 * prepare.EVENTS_A_DAY)
    first.stop_with_savepoint().result(PATIENCE_S)
    second = start(load("dashboard/dashboard_v2.py"), engine, directory, "split", str(events), str(output), savepoint=before_paid)
    wait_until(lambda: len(written(output / "split")) == (32 - prepare.PAID_FROM) * prepare.EVENTS_A_DAY)
    second.stop_with_savepoint().result(PATIENCE_S)
    return {job: written(output / job) for job in ("dashboard", "split")}


def versions(engine: str, directory: Path) -> dict[str, str]:
    """The savepoints of the tree by label: of v0 at t1 to t4, of v1, which begins at t1, at t3 and t4; and of branches
    from each of them."""
    output = str(directory / "output")
    v0, v1 = load("versions/numbers_v0.py"), load("versions/numbers_v1.py")
    found: dict[str, str] = {}

    def take(client: fp.JobClient, job: str, at: str) -> None:
        seen = len(written(directory / "output" / job))
        wait_until(lambda: len(written(directory / "output" / job)) > seen)
        found[f"{job}{at}"] = client.trigger_savepoint(label=f"{job}{at}").result(PATIENCE_S)

    first = start(v0, engine, directory, "v0", output)
    take(first, "v0", "t1")
    take(first, "v0", "t2")
    second = start(v1, engine, directory, "v1", output, savepoint=found["v0t1"])
    for at in ("t3", "t4"):
        take(first, "v0", at)
        take(second, "v1", at)
    for client in (first, second):
        client.cancel().result(PATIENCE_S)
    for label, savepoint in list(found.items()):
        module = v0 if label.startswith("v0") else v1
        end = UntilTime((position(savepoint) + 100) * 1000, "100 s later")
        branch = start(module, engine, directory, f"from-{label}", output, savepoint=savepoint, until=end)
        ended = branch.get_job_execution_result().result(PATIENCE_S)
        assert ended.savepoint is not None
        found[f"from-{label}"] = ended.savepoint
    return found


def position(savepoint: str) -> int:
    """The next number."""
    return int(open_savepoint(savepoint).savepoint.sources["numbers"].position["next"])
