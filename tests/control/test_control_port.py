"""A real driver on the local engine, its port, and what is on record of it."""

import os
import re
import socket
import stat
import time

import httpx
import pytest

import forkpoint as fp
from forkpoint.checkpoint.manifest import RUN, Run
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.errors import ForkpointError, JobFailed, JobNotFound
from forkpoint.protocol import endpoint as records
from forkpoint.protocol.client import Unreachable
from forkpoint.protocol.endpoint import HOST
from forkpoint.protocol.http import over_http
from forkpoint.protocol.registry import drop_stale, find_live, list_runs
from forkpoint.savepoint.format.opened_savepoint import open_savepoint
from patience import PATIENCE_S

JOB = "odd / name"
NO_PROCESS = 2**30


def test_status_savepoint_and_stop(start, storage, tmp_path):
    control, job = start()
    with over_http(control.endpoint) as client:
        request = client.savepoint(str(tmp_path / "there"), "a label", "a note")
        path = client.wait(request)
        assert path.startswith(f"file://{tmp_path}/there/")
        savepoint = open_savepoint(path).savepoint
        assert (savepoint.label, savepoint.note, savepoint.job) == ("a label", "a note", JOB)

        while (status := client.status()).epoch <= savepoint.epoch:  # the job goes on
            time.sleep(0.005)
        assert (status.job, status.run, status.state, status.pid) == (
            JOB,
            control.driver.run_id,
            "running",
            os.getpid(),
        )
        assert status.sources == ["numbers"]
        assert status.records_read == status.records["numbers"] > 0
        assert status.late_records_dropped == control.driver.status().late_records_dropped == {}

        stopping = client.stop(drain=True)
        while not storage.list("savepoints"):
            time.sleep(0.005)
        result = job.get_job_execution_result
        while control.driver.status().state != "ended":
            time.sleep(0.005)
        assert not control.closed.is_set()  # the answer has not been fetched
        with pytest.raises(ForkpointError, match="no longer accepts requests"):
            client.savepoint()
        last = open_savepoint(client.wait(stopping)).savepoint
        assert last.drained
        assert control.closed.wait(PATIENCE_S)
        assert client.wait_gone(PATIENCE_S)
        assert result().result(PATIENCE_S).savepoint is not None
        # Nothing came after it but the manifest that says that the job has stopped with it.
        assert storage.list(JobPaths(JOB).checkpoints)[-1] == JobPaths(JOB).manifest(last.epoch + 1)


def test_a_port_does_not_wait_for_ever_for_its_answers_to_be_fetched(start):
    control, _ = start(linger_seconds=0.2)
    with over_http(control.endpoint) as client:
        client.stop()
        assert control.closed.wait(PATIENCE_S)
        with pytest.raises(Unreachable, match="is gone"):
            client.status()


def test_cancel(start):
    control, job = start()
    with over_http(control.endpoint) as client:
        client.cancel()
        assert client.wait_gone(PATIENCE_S)
    assert job.get_job_execution_result().result(PATIENCE_S).status is fp.JobStatus.CANCELED


def test_a_savepoint_that_fails_says_why_and_the_job_goes_on(start, tmp_path):
    control, _ = start()
    (tmp_path / "file").write_text("in the way")
    with over_http(control.endpoint) as client:
        with pytest.raises(JobFailed, match=r"no savepoint was made: .*file"):
            client.wait(client.savepoint(str(tmp_path / "file")))
        epoch = client.status().epoch
        while client.status().epoch <= epoch:
            time.sleep(0.01)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "message"),
    [
        ("GET", "/v1/nothing", None, 404, "not-found", "there are GET /v1/status"),
        ("PUT", "/v1/status", None, 405, "method-not-allowed", "is not supported"),
        ("GET", "/v1/savepoints/abc", None, 404, "not-found", "no request 'abc'"),
        ("POST", "/v1/savepoints", "{", 400, "bad-request", "Invalid JSON"),
        ("POST", "/v1/savepoints", '{"path": "x"}', 400, "bad-request", "path: .*It takes directory, label, note"),
        ("POST", "/v1/stop", '{"drain": "yes"}', 400, "bad-request", "drain: .*boolean"),
    ],
)
def test_errors_have_one_shape(start, method, path, body, status, code, message):
    control, _ = start()
    endpoint = control.endpoint
    headers = {"authorization": f"Bearer {endpoint.token}"}
    with httpx.Client(base_url=f"http://{HOST}:{endpoint.port}", trust_env=False) as http:
        reply = http.request(method, path, content=body, headers=headers)
        assert reply.status_code == status
        assert reply.json().keys() == {"error"}
        assert reply.json()["error"]["code"] == code
        assert httpx.codes.is_error(reply.status_code)
        assert re.search(message, reply.json()["error"]["message"]), reply.text
        for wrong in ({}, {"authorization": "Bearer x"}, {"authorization": f"Basic {endpoint.token}"}):
            refused = http.request(method, path, content=body, headers=wrong)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")


def test_only_the_owner_can_read_the_record(start, storage):
    control, _ = start()
    place = os.path.join(storage.root, JobPaths(JOB).endpoint_file(control.endpoint.run))
    assert stat.S_IMODE(os.stat(place).st_mode) == 0o600
    assert records.endpoints(storage) == records.endpoints(storage, JOB) == [control.endpoint]


def test_a_live_run_is_found_and_a_dead_one_told_from_it(start, storage):
    control, job = start()
    with find_live(storage, JOB) as client:
        assert client.endpoint == control.endpoint
        (view,) = list_runs(storage)
        assert (view.job, view.run, view.state, view.is_live) == (JOB, control.driver.run_id, "running", True)
        client.cancel()
        assert client.wait_gone(PATIENCE_S)
    job.get_job_execution_result().result(PATIENCE_S)
    (view,) = list_runs(storage)
    assert (view.state, view.epoch is not None, view.ended_ms is not None) == ("cancelled", True, True)
    with pytest.raises(JobNotFound, match=r"not running: its last run \w+ was cancelled"):
        find_live(storage, JOB)
    with pytest.raises(JobNotFound, match=r"there is no job 'other' under .*; there are 'odd / name'"):
        find_live(storage, "other")


def _stale(storage, **changes):
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    fields = {
        "job": JOB,
        "run": "killed",
        "pid": NO_PROCESS,
        "machine": socket.gethostname(),
        "host": HOST,
        "port": port,
        "token": "t",
        "started_ms": 1,
    }
    endpoint = records.Endpoint(**(fields | changes))
    records.register(storage, endpoint)
    return endpoint


def test_a_clock_that_was_set_back_does_not_make_an_old_run_the_newest(storage):
    for run, generation, started_ms in (("old", 1, 9_000_000_000_000), ("new", 2, 1_000)):
        record = Run(job=JOB, run=run, generation=generation, started_ms=started_ms, outcome="superseded")
        storage.put(JobPaths(JOB).run_file(run), RUN.dump(record))
    assert [view.run for view in list_runs(storage) if view.newest] == ["new"]


def test_records_of_drivers_that_were_killed(storage, start):
    _stale(storage)
    assert [(view.run, view.state) for view in list_runs(storage)] == [("killed", "lost")]
    with pytest.raises(JobNotFound, match="was lost"):
        find_live(storage, JOB)
    control, _ = start()
    # Its port may belong to another driver by now, which neither knows its token nor is its run.
    _stale(storage, run="reused", port=control.endpoint.port)
    _stale(storage, run="same token", port=control.endpoint.port, token=control.endpoint.token)
    _stale(storage, run="away", machine="another")
    states = {view.run: view.state for view in list_runs(storage)}
    assert states == {
        control.endpoint.run: "running",
        "killed": "lost",
        "reused": "lost",
        "same token": "lost",
        "away": "elsewhere",
    }
    assert [view.run for view in list_runs(storage) if view.newest] == [control.endpoint.run]
    with find_live(storage, JOB) as client:
        assert client.endpoint == control.endpoint
    drop_stale(storage, JOB)
    assert {each.run for each in records.endpoints(storage)} == {control.endpoint.run, "away"}


def test_a_port_that_gives_no_answer_is_not_taken_for_dead(storage, monkeypatch):
    monkeypatch.setattr("forkpoint.protocol.registry.PROBE_SECONDS", 0.1)
    with socket.socket() as busy:
        busy.bind((HOST, 0))
        busy.listen()
        _stale(storage, port=busy.getsockname()[1])
        (view,) = list_runs(storage)
        assert (view.state, view.is_live) == ("silent", True)
        drop_stale(storage, JOB)
        assert records.endpoints(storage)
