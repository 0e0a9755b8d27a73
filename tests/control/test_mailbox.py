"""Requests to a real driver as files below the state root, and what becomes of them when things go wrong."""

import json
import os
import re
import signal
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from forkpoint.checkpoint.manifest import RUN
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.errors import ForkpointError, JobFailed, JobNotFound, StorageError
from forkpoint.operations.jobs.cleanup import find_leftovers
from forkpoint.protocol import mailbox, registry
from forkpoint.protocol.client import Unreachable
from forkpoint.protocol.endpoint import Endpoint, endpoints, register
from forkpoint.protocol.mailbox import MailboxCarrier, by_mail
from forkpoint.protocol.messages import StatusMessage
from forkpoint.protocol.registry import drop_stale, find_live, list_runs
from forkpoint.savepoint.format.opened_savepoint import open_savepoint
from patience import PATIENCE_S
from programs import Python

JOB = "odd / name"
FIRST_RELEASE = json.loads((Path(__file__).parent / "rest-v1.json").read_bytes())
PATHS = JobPaths(JOB)


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Drivers look for requests more often than each second, so that nobody waits for that."""
    monkeypatch.setattr(mailbox, "POLL_SECONDS", 0.05)


@pytest.fixture
def client(start, storage):
    control, _ = start()
    with by_mail(storage, control.endpoint) as mailed:
        yield mailed


def mail(storage, run):
    return storage.list(PATHS.requests(run)) + storage.list(PATHS.answers(run))


def ask(storage, run, data):
    """A request in these bytes; its answer."""
    request_id = uuid.uuid4().hex
    storage.create(PATHS.request_file(run, request_id), data)
    while not storage.exists(PATHS.answer_file(run, request_id)):
        time.sleep(0.02)
    return json.loads(storage.read(PATHS.answer_file(run, request_id)))


def test_status_savepoint_and_stop_leave_nothing_behind(start, storage, tmp_path):
    control, job = start()
    run = control.endpoint.run
    with by_mail(storage, control.endpoint) as client:
        path = client.wait(client.savepoint(str(tmp_path / "there"), "a label", "a note"))
        savepoint = open_savepoint(path).savepoint
        assert (savepoint.label, savepoint.note, savepoint.job) == ("a label", "a note", JOB)
        status = client.status()
        assert (status.job, status.run, status.state, status.sources) == (JOB, run, "running", ["numbers"])
        assert status.epoch > savepoint.epoch
        assert open_savepoint(client.wait(client.stop(drain=True))).savepoint.drained
        assert client.wait_gone(PATIENCE_S)
        assert mail(storage, run) == []
        with pytest.raises(Unreachable, match=r"has ended \(stopped\)"):
            client.savepoint()
        assert mail(storage, run) == []
    assert job.get_job_execution_result().result(PATIENCE_S).savepoint is not None


def test_cancel(client, storage):
    client.cancel()
    assert client.wait_gone(PATIENCE_S)
    with pytest.raises(Unreachable, match=r"has ended \(cancelled\)"):
        client.cancel()


def test_a_savepoint_that_fails_says_why_and_the_job_goes_on(client, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(JobFailed, match=r"no savepoint was made: .*file"):
        client.wait(client.savepoint(str(tmp_path / "file")))
    epoch = client.status().epoch
    while client.status().epoch <= epoch:
        time.sleep(0.01)


REFUSED = [
    (b"", "Invalid JSON"),
    (b'{"run": "RUN", "operation": "sav', "Invalid JSON"),
    (b'{"run": "RUN", "operation": "status", "body": ' + b"[" * 100_000, "Invalid JSON"),
    (b'{"run": "\xff", "operation": "status"}', "Invalid JSON"),
    (b'{"run": "RUN", "operation": "savepoint", "body": {"label": 5}}', "label: Expected a string or null, got an integer"),
    (b'{"run": "RUN", "operation": "explode"}', "operation: .*'savepoint'"),
    (b'{"run": "RUN", "operation": "stop", "body": {"drain": "yes"}}', "drain: .*boolean"),
    (b'{"run": "RUN", "operation": "savepoint", "body": {"path": "x"}}', "path: .*It takes directory, label, note"),
    (b'{"run": "another", "operation": "cancel"}', "is for run another, this is run"),
]


def test_requests_that_are_refused(client, storage):
    run = client.endpoint.run
    for data, message in REFUSED:
        answer = ask(storage, run, data.replace(b"RUN", run.encode()))
        assert answer.keys() == {"error"}, data[:80]
        assert answer["error"]["code"] == "bad-request", data[:80]
        assert re.search(message, answer["error"]["message"]), answer["error"]["message"]
        assert client.status().state == "running", data[:80]


def test_many_requests_at_once_are_each_answered_once(client, storage, tmp_path):
    def one(number):
        with by_mail(storage, client.endpoint) as own:
            return own.wait(own.savepoint(str(tmp_path / "many"), f"label {number}"))

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(one, range(4)))
    assert sorted(open_savepoint(path).savepoint.label for path in made) == [f"label {n}" for n in range(4)]
    assert len(list((tmp_path / "many").iterdir())) == 4
    assert mail(storage, client.endpoint.run) == []


def test_a_request_whose_answer_cannot_be_written_is_done_once_and_answered_later(client, storage, tmp_path, monkeypatch):
    put, failed = type(storage).put, []

    def failing(self, path, data, **own):
        if "/answers/" in path and len(failed) < 2:
            failed.append(path)
            raise StorageError("no space left")
        put(self, path, data, **own)

    monkeypatch.setattr(type(storage), "put", failing)
    path = client.wait(client.savepoint(str(tmp_path / "once")))
    assert len(failed) == 2
    assert [each.name for each in (tmp_path / "once").iterdir()] == [path.rsplit("/", 1)[1]]


def test_answers_that_nobody_fetches_are_removed(client, storage, monkeypatch):
    monkeypatch.setattr(mailbox, "KEEP_SECONDS", 0.0)
    run = client.endpoint.run
    storage.create(PATHS.request_file(run, "lost"), json.dumps({"run": run, "operation": "status"}).encode())
    while mail(storage, run):
        time.sleep(0.02)


PROGRAM = """
import sys
import forkpoint as fp

env = fp.StreamExecutionEnvironment.get_execution_environment().set_state_root(sys.argv[1]).enable_checkpointing(10)
numbers = env.from_source(fp.CounterSource(per_epoch=50), fp.WatermarkStrategy.no_watermarks(), "n").uid("numbers")
numbers.key_by(lambda n: n % 5, int).map_with_state(lambda n, c: (n, (c or 0) + 1), int).uid("counts").sink_to(
    fp.DiscardSink()
).uid("out")
env.execute("odd / name")
"""


@pytest.fixture
def program(storage, tmp_path):
    """A job that was started with `python app.py`."""
    (tmp_path / "app.py").write_text(PROGRAM)
    command = [tmp_path / "app.py", storage.url]
    process = Python(command, env={**os.environ, "FORKPOINT_ENGINE": "local"})
    while not storage.exists(PATHS.checkpoints + "/000000000002.json"):
        assert process.poll() is None
        time.sleep(0.02)
    yield process
    process.kill()
    process.wait()


@pytest.mark.slow
def test_a_program_that_python_runs_is_found_and_commanded(program, storage):
    (view,) = list_runs(storage)
    assert (view.state, view.is_live, view.records_read > 0) == ("running", True, True)
    with find_live(storage, JOB) as client:
        assert (client.endpoint.pid, client.endpoint.port) == (program.pid, None)
        location = client.wait(client.stop())
        assert client.wait_gone(PATIENCE_S)
    assert program.wait() == 0
    assert open_savepoint(location).savepoint.job == JOB
    (view,) = list_runs(storage)
    assert view.state == "stopped"
    assert endpoints(storage) == []


@pytest.mark.slow
def test_a_driver_that_is_killed_before_it_answers(program, storage):
    with find_live(storage, JOB) as client:
        run = client.endpoint.run
        os.kill(program.pid, signal.SIGSTOP)
        (view,) = list_runs(storage)
        assert view.state == "silent"
        failures = []

        def wait():
            with pytest.raises(Unreachable) as caught:
                by_mail(storage, client.endpoint, patience_seconds=3).stop()
            failures.append(str(caught.value))

        waiting = threading.Thread(target=wait)
        waiting.start()
        while not storage.list(PATHS.requests(run)):
            time.sleep(0.01)
        program.kill()
        program.wait()
        waiting.join()
    assert f"run {run} of job 'odd / name' has not answered for 3 s" in failures[0]
    assert mail(storage, run) == []
    with pytest.raises(JobNotFound, match="was lost"):
        find_live(storage, JOB)
    # A request that its caller left behind never reaches a later run.
    storage.create(PATHS.request_file(run, "late"), json.dumps({"run": run, "operation": "cancel"}).encode())
    (leftover,) = (each for each in find_leftovers(storage, older_than=timedelta(0)).found if each.kind == "request")
    assert leftover.path == PATHS.request_file(run, "late")
    drop_stale(storage, JOB)
    assert mail(storage, run) == []
    assert endpoints(storage) == []


def test_a_driver_that_is_killed_during_a_savepoint(program, storage, monkeypatch):
    with find_live(storage, JOB) as client:
        client.carrier._patience = 2.0
        monkeypatch.setattr("forkpoint.protocol.mailbox.ALIVE_SECONDS", 1.0)
        request = client.savepoint()
        program.kill()
        program.wait()
        known = client.carrier._last[request.id]
        if known.status == "IN_PROGRESS":
            with pytest.raises(JobFailed, match="before it said that its savepoint was complete"):
                client.wait(request)


def test_a_run_on_another_machine(start, storage, monkeypatch):
    control, _ = start()
    monkeypatch.setattr(registry.socket, "gethostname", lambda: "another")
    (view,) = list_runs(storage)
    assert (view.state, view.run) == ("running", control.endpoint.run)
    with find_live(storage, JOB) as client:
        assert isinstance(client.carrier, MailboxCarrier)
        assert isinstance(client.status(), StatusMessage)
        client.cancel()
        assert client.wait_gone(PATIENCE_S)
    record = RUN.load(storage, PATHS.run_file(control.endpoint.run))
    assert record.outcome == "cancelled"
    with pytest.raises(JobNotFound, match="was cancelled"):
        find_live(storage, JOB)


@pytest.mark.slow
def test_a_run_on_another_machine_that_does_not_answer(storage, monkeypatch):
    monkeypatch.setattr(registry, "FIND_SECONDS", 0.5)
    register(storage, Endpoint(job=JOB, run="away", pid=1, machine="another", host="127.0.0.1", started_ms=1))
    (view,) = list_runs(storage)
    assert (view.state, view.may_be_live, view.is_live) == ("elsewhere", True, False)
    with pytest.raises(JobNotFound, match="on machine 'another' and does not answer: its driver was killed, or"):
        find_live(storage, JOB)
    assert mail(storage, "away") == []
    with pytest.raises(ForkpointError, match="has not answered for 1 s"):
        by_mail(storage, endpoints(storage)[0], 1.0).cancel()


def answered(storage, answer):
    """A client of a run whose driver answers each request with these bytes; call the result at the end."""
    register(storage, Endpoint(job=JOB, run="away", pid=1, machine="another", host="127.0.0.1", started_ms=1))
    over = threading.Event()

    def serve():
        while not over.wait(0.01):
            for path in storage.list(PATHS.requests("away")):
                storage.put(path.replace("/requests/", "/answers/"), answer)

    thread = threading.Thread(target=serve)
    thread.start()

    def end():
        over.set()
        thread.join()

    return by_mail(storage, endpoints(storage)[0]), end


def test_an_answer_of_the_first_release(storage):
    (status,) = (each["answer"] for each in FIRST_RELEASE if each["name"] == "status")
    whole = {"status": status, "journal": None, "metrics": None, "savepoint": None, "error": None}
    client, end = answered(storage, json.dumps(whole).encode())
    try:
        assert client.status().records == status["records"]
    finally:
        end()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b'{"status": {"job": "odd',
        b"[]",
        b"{}",
        pytest.param(b"[" * 100_000, id="deep"),
        b'{"status": {"job": 1}}',
        b"\xff\x00",
    ],
)
def test_an_answer_that_is_damaged(storage, answer):
    client, end = answered(storage, answer)
    try:
        with pytest.raises(ForkpointError, match=r"answers/.*json is damaged, or of a newer release"):
            client.status()
    finally:
        end()


@pytest.mark.slow
def test_a_driver_that_lives_and_does_not_answer(start, storage, monkeypatch):
    monkeypatch.setattr(mailbox, "POLL_SECONDS", 1000.0)
    control, _ = start()
    monkeypatch.setattr(registry.socket, "gethostname", lambda: "another")
    (view,) = list_runs(storage)
    assert view.state == "silent"
    with pytest.raises(ForkpointError, match="is alive, but has not answered for 5 s") as caught:
        by_mail(storage, control.endpoint, 5.0).cancel()
    assert not isinstance(caught.value, Unreachable)
    assert mail(storage, control.endpoint.run) == []
