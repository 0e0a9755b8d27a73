"""Over REST, a job that has ended starts again where it ended, and tells what was last known of it until then."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from rest_server import READ, Server, result

from forkpoint.protocol.registry import list_runs
from forkpoint.storage.base import open_storage

COUNTS = """
import sys
import forkpoint as fp

bad, name = int(sys.argv[1]), sys.argv[2]

def checked(n: int) -> int:
    if n == bad:
        raise ValueError(f"{n} is bad")
    return n

env = fp.StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(20)
env.set_restart_strategy(fp.RestartStrategy.fixed_delay(2, 1))
numbers = env.from_source(fp.CounterSource(per_epoch=10), fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
checks = numbers.map(checked, int).uid("checks")
counts = checks.key_by(lambda n: 0, int).map_with_state(lambda n, c: (f"{n} {c or 0}", (c or 0) + 1), int, str).uid("counts")
counts.sink_to(fp.FileSink.text(sys.argv[3])).uid("out")
env.execute(name)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without jobs yet."""
    directory = tmp_path_factory.mktemp("restarting")
    (directory / "counts.py").write_text(COUNTS)
    made = Server(directory)
    yield made
    for view in made.forkpoint("list")["jobs"]:
        os.kill(view["pid"], signal.SIGKILL)
    made.close()


def start(served: Server, name: str, bad: int = -1) -> Path:
    """Where its output is."""
    out = served.directory / f"{name}-out"
    served.forkpoint("run", "-d", "counts.py", "--", str(bad), name, str(out))
    return out


def wait_until(http: httpx.Client, name: str, state: str, epochs: int = 0) -> dict:
    while True:
        found = http.get(f"/v1/jobs/{name}").json()
        if found["state"] == state and (found["overview"]["epoch"] or 0) >= epochs:
            return found
        time.sleep(0.05)


def written(out: Path) -> list[str]:
    published = (file for file in out.rglob("part*") if file.is_file() and not file.name.endswith((".tmp", ".crc")))
    return sorted((line for file in published for line in file.read_text().splitlines()), key=lambda line: int(line.split()[0]))


def test_a_killed_job_goes_on_with_nothing_lost_or_repeated(served: Server) -> None:
    out = start(served, "killed")
    with served.client() as http:
        before = wait_until(http, "killed", "RUNNING", epochs=10)
        refused = http.post("/v1/jobs/killed/restart", json={})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "JobRunning")
        (view,) = list_runs(open_storage(str(served.root)), "killed")
        assert view.endpoint is not None
        os.kill(view.endpoint.pid, signal.SIGKILL)
        lost = wait_until(http, "killed", "SUSPENDED")
        assert lost["overview"]["run"] == before["overview"]["run"]
        started = result(http, http.post("/v1/jobs/killed/restart", json={}))
        assert started["job"] == "killed"
        assert started["run"] != view.run
        wait_until(http, "killed", "RUNNING", epochs=(view.epoch or 0) + 20)
        result(http, http.post("/v1/jobs/killed/stop", json={}))
    lines = written(out)
    assert lines == [f"{n} {n}" for n in range(len(lines))]
    assert len(lines) > 250


def test_a_failed_job_tells_what_it_had_read_and_starts_again_where_it_failed(served: Server) -> None:
    """Also after restarts that failed at once, which count from 0."""
    out = start(served, "failed", bad=100)
    with served.client() as http:
        failed = wait_until(http, "failed", "FAILED")
        counts = {each["uid"]: each["metrics"] for each in failed["vertices"]}
        assert counts["numbers"]["write-records"] == counts["checks"]["read-records"] == 100
        assert failed["overview"]["records-read"] == 100
        assert failed["state-size"]["entries"] == 1
        (wrong,) = (r for r in http.get("/v1/jobs/failed/runs").json()["runs"] if r["newest"])
        assert wrong["state"] == "failed"
        assert http.post("/v1/jobs/failed/restart", json={"run": "another"}).status_code == 404
        request = http.post("/v1/jobs/failed/restart", json={}).json()["request-id"]
        while (asked := http.get(f"/v1/requests/{request}").json())["status"] == "IN_PROGRESS":
            time.sleep(0.05)
        assert "100 is bad" in str(asked)  # it goes on at the same record
    assert written(out) == [f"{n} {n}" for n in range(100)]


def test_a_job_whose_program_is_not_on_record_is_refused_with_the_reason(served: Server) -> None:
    start(served, "forgotten")
    served.forkpoint("stop", "forgotten")
    for file in served.root.rglob("program.json"):
        if "forgotten" in str(file):
            file.unlink()
    with served.client() as http:
        wait_until(http, "forgotten", "FINISHED")
        refused = http.post("/v1/jobs/forgotten/restart", json={})
    assert refused.status_code == 409
    assert "has no recorded program" in refused.json()["error"]["message"]


def test_a_token_that_may_only_read_starts_nothing(served: Server) -> None:
    with served.client(READ) as http:
        assert http.post("/v1/jobs/killed/restart", json={}).status_code == 403
