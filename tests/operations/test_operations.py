"""The commands as functions: real jobs in processes of their own, and what is left of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import fork_server
import forkpoint as fp
import programs
from forkpoint import operations as ops
from forkpoint.api.launch import Launch, launching
from forkpoint.errors import ConfigError, JobNotFound, RestoreRefused, SavepointNotFound, StateNotFound, StorageError
from forkpoint.graph.options import RestoreOptions
from forkpoint.storage.places import plain_place

PROGRAM = """
import sys
import forkpoint as fp

env = fp.StreamExecutionEnvironment.get_execution_environment().enable_checkpointing(20)
source = fp.CounterSource(per_epoch=10)
numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
keyed = numbers.key_by(lambda n: n % 3, int)
counts = keyed.map_with_state(lambda n, c: ((n % 3, (c or 0) + STEP), (c or 0) + STEP), int, tuple[int, int]).uid("UID")
counts.sink_to(fp.FileSink.json(sys.argv[1] + "/{job}", tuple[int, int])).uid("out")
env.execute("counts")
"""


class Heard(ops.Observer):
    def __init__(self) -> None:
        self.remarks: list[str] = []

    def remark(self, text: str) -> None:
        self.remarks.append(text)


class Place:
    """A state root with programs beside it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.root = str(directory / "state")
        self.pids: list[int] = []

    def program(self, name: str = "counts.py", step: int = 1, uid: str = "counts") -> str:
        file = self.directory / name
        file.write_text(PROGRAM.replace("STEP", str(step)).replace("UID", uid))
        return str(file)

    def request(self, app: str, **options: Any) -> ops.RunRequest:
        return ops.RunRequest(app, (str(self.directory / "out"),), engine="local", **options)

    def run(self, app: str | None = None, **options: Any) -> ops.Started:
        return self.kept(ops.run(self.request(app or self.program(), **options), state_root=self.root))

    def kept(self, started: Any) -> Any:
        self.pids.append(started.pid)
        return started


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(subprocess, "Popen", programs.popen)
    made = Place(tmp_path)
    yield made
    programs.kill_if_running(made.pids, fork_server.__file__)


def test_a_job_s_life(place: Place) -> None:
    started = place.run()
    assert (started.job, started.state, started.state_root) == ("counts", "running", place.root)
    (listed,) = ops.list_jobs(state_root=place.root)
    assert (listed.run, listed.state) == (started.run, "running")

    taken = ops.savepoint("counts", label="first", note="by a test", state_root=place.root)
    assert (taken.job, taken.run) == ("counts", started.run)
    shown = ops.show("first", state_root=place.root)
    assert (shown.path, shown.savepoint.note) == (taken.savepoint, "by a test")

    stopped = ops.stop("counts", state_root=place.root)
    assert not stopped.drained
    assert ops.list_jobs(state_root=place.root) == []
    assert [view.state for view in ops.list_jobs(ended=True, state_root=place.root)] == ["stopped"]
    with pytest.raises(JobNotFound, match="was stopped"):
        ops.cancel("counts", state_root=place.root)

    again = place.run(restore=RestoreOptions("first"))
    assert ops.cancel("counts", state_root=place.root) == ops.Cancelled("counts", again.run)
    assert ops.wait("counts", again.run, state_root=place.root).state == "cancelled"
    tree = ops.tree("counts", state_root=place.root)
    assert tree.runs["counts", again.run].parent.savepoint_id == shown.savepoint.id
    assert tree.programs["counts", again.run] == place.program()
    assert {node.key.id for node in tree.nodes if node.key.kind == "run"} == {started.run, again.run}

    assert ops.recover("counts", dry_run=True, state_root=place.root).outcome == "whole"
    assert ops.gc(older_than=timedelta(days=1), state_root=place.root).found == ()


def test_the_format_of_a_job_s_log(place: Place) -> None:
    app = place.directory / "says.py"
    app.write_text(
        "import logging\nlogging.getLogger('shop').warning('hello')\n" + PROGRAM.replace("STEP", "1").replace("UID", "counts")
    )
    started = place.run(str(app), log_format="json")
    ops.cancel("counts", state_root=place.root)
    lines = [json.loads(line) for line in Path(started.log).read_text().splitlines()]
    assert ("shop", "hello") in [(line["logger"], line["message"]) for line in lines]
    with pytest.raises(ConfigError, match="'xml'; it must be 'text' or 'json'"):
        place.request("says.py", log_format="xml")


def test_savepoints_are_named_and_disposed_of(place: Place) -> None:
    place.run()
    first = ops.savepoint("counts", state_root=place.root).savepoint
    ops.stop("counts", state_root=place.root)
    with pytest.raises(ConfigError, match="give a label"):
        ops.label(first, state_root=place.root)
    assert ops.label(first, "base", note="why", state_root=place.root).savepoint.label == "base"
    assert ops.label("base", remove=True, state_root=place.root).savepoint.note is None
    fork = place.kept(
        ops.fork(first, place.request(place.program(), name="other"), state_root=place.root, observer=ops.Observer())
    )
    with pytest.raises(StorageError, match=f"run '{fork.run}' of job 'other', which has not ended"):
        ops.dispose(first, state_root=place.root)
    ops.cancel("other", state_root=place.root)
    gone = ops.dispose(first, state_root=place.root)
    assert (gone.path, gone.files[0]) == (first, "savepoint.json")
    assert len(ops.savepoints("counts", state_root=place.root)) == 1
    with pytest.raises(SavepointNotFound):
        ops.show(first, state_root=place.root)


def test_saved_state_is_read_edited_and_compared(place: Place) -> None:
    place.run()
    first = ops.stop("counts", state_root=place.root).savepoint
    found = ops.states(first, state_root=place.root)
    (state,) = found.states
    assert (found.path, state.uid, state.kind, state.rows) == (first, "counts", "value", 3)
    assert (state.key_type, state.types) == (fp.Types.LONG(), (fp.Types.LONG(),))
    rows = ops.entries("latest", "counts", state.state, state_root=place.root)
    assert (rows.total, sorted(row["key"] for row in rows.rows)) == (3, [0, 1, 2])
    one = ops.entries(first, "counts", state.state, "2", state_root=place.root)
    assert (one.total, [row["key"] for row in one.rows]) == (None, [2])
    assert len(ops.entries(first, "counts", state.state, limit=1, state_root=place.root).rows) == 1
    with pytest.raises(ConfigError, match="'x' is not a key of type"):
        ops.entries(first, "counts", state.state, "x", state_root=place.root)
    table = ops.query(first, f'SELECT count(*) AS n FROM "{state.schema}"."{state.view}"', state_root=place.root).table
    assert table.to_pydict() == {"n": [3]}

    request = ops.EditRequest(
        first,
        filters=[ops.StateFilter("counts", "key < 2", state.state)],
        positions={"numbers": {"next": 5}},
        rename_states={("counts", state.state): "total"},
        rename_uids={"counts": "sums"},
        label="edited",
    )
    edited = ops.edit(request, state_root=place.root)
    assert (edited.job, edited.parent) == ("counts", ops.show(first, state_root=place.root).savepoint.id)
    assert [(s.uid, s.state, s.rows) for s in ops.states("edited", state_root=place.root).states] == [("sums", "total", 2)]
    found_diff = ops.diff(first, "edited", state_root=place.root)
    assert {(s.uid, s.outcome) for s in found_diff.states} == {("counts", "removed"), ("sums", "added")}
    assert [value.uid for value in found_diff.positions] == ["numbers"]
    with pytest.raises(ConfigError, match="already has the label 'edited'"):
        ops.edit(request, state_root=place.root)
    with pytest.raises(StateNotFound):
        ops.edit(ops.EditRequest(first, remove_states=[("counts", "timers"), ("counts", "other")]), state_root=place.root)


def test_the_state_of_a_running_job_is_read_and_followed(place: Place) -> None:
    place.run()
    while not ops.open_live("counts", state_root=place.root).states:
        pass
    with ops.follow_state("counts", state_root=place.root) as follower:
        live = follower.newest()
        shown = ops.states_of(live)
        assert [(s.uid, s.state, s.key_type, s.rows) for s in shown.states] == [("counts", "state", fp.Types.LONG(), None)]
        (one,) = ops.entries_of(live, "counts", "state", "1").rows
        found = ops.query_of(live, "SELECT value FROM counts.state WHERE key = 1")
        assert (found.job, found.epoch, found.table.to_pylist()) == ("counts", live.epoch, [{"value": one["value"]}])
        assert one["value"] == live.get("counts", "state", 1)
        later = ops.entries("counts", "counts", "state", "1", state_root=place.root)
        assert later.epoch >= live.epoch
        assert later.rows[0]["value"] >= one["value"]
        assert ops.states("counts", state_root=place.root).job == "counts"


def test_check_says_what_a_restore_would_do(place: Place) -> None:
    place.run()
    ops.stop("counts", state_root=place.root)
    app, arguments = place.program(), [str(place.directory)]
    assert ops.check(app, arguments, state_root=place.root).fits
    renamed = place.program("renamed.py", uid="sums")
    refused = ops.check(renamed, arguments, state_root=place.root)
    assert [(row.uid, row.subject) for row in refused.plan.refused] == [("counts", "state")]
    assert ops.check(renamed, arguments, renames={"counts": "sums"}, state_root=place.root).fits
    wrong = place.directory / "wrong.py"
    wrong.write_text("1 / 0")
    with pytest.raises(ops.ProgramFailed, match=r"wrong\.py raised ZeroDivisionError: division by zero") as raised:
        ops.check(str(wrong), state_root=place.root)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    wrong.write_text("pass")
    with pytest.raises(ops.NoJob):
        ops.check(str(wrong), state_root=place.root)


def test_a_start_that_fails_says_why(place: Place) -> None:
    with pytest.raises(ops.DriverFailed, match="there is no savepoint 'nowhere'") as raised:
        ops.replay(place.request(place.program(), restore=RestoreOptions("nowhere"), until="0"), state_root=place.root)
    assert (raised.value.code, raised.value.exit_code) == ("SavepointNotFound", 5)
    with pytest.raises(ConfigError, match="a replay needs an end"):
        ops.replay(place.request(place.program()), state_root=place.root)


def test_two_versions_and_an_upgrade(place: Place) -> None:
    place.run()
    base = ops.savepoint("counts", state_root=place.root).savepoint
    target = ops.savepoint("counts", state_root=place.root).savepoint
    app, twice = place.program(), place.program("twice.py", step=2)
    compared = ops.ab(base, place.request(app, until=target), twice, state_root=place.root)
    assert [sink.uid for sink in compared.sinks] in (["out"], [])
    assert compared.same == (not compared.sinks)

    heard = Heard()
    renamed = place.request(place.program("renamed.py", uid="sums"))
    refused = ops.upgrade("counts", renamed, state_root=place.root, observer=heard)
    assert isinstance(refused, ops.Refused)
    assert ops.list_jobs(state_root=place.root)[0].run == refused.run
    done = ops.upgrade("counts", place.request(twice), watch_epochs=1, state_root=place.root, observer=heard)
    assert isinstance(done, ops.Upgraded)
    place.kept(done)
    assert (done.outcome, done.previous_run, done.failure) == ("upgraded", refused.run, None)
    assert done.savepoint is not None
    assert ops.show(done.savepoint, state_root=place.root).savepoint.run == refused.run
    ops.cancel("counts", state_root=place.root)


def environment(root: Path, uid: str = "totals") -> fp.StreamExecutionEnvironment:
    env = fp.StreamExecutionEnvironment.get_execution_environment({"execution.engine": "local"})
    env.set_state_root(str(root)).set_parallelism(2).set_max_epoch_rows(5)
    numbers = env.from_collection(list(range(40)), int).uid("numbers")
    numbers.key_by(lambda n: n % 2, int).sum().uid(uid).sink_to(fp.DiscardSink()).uid("out")
    return env


class StopEarly:
    """Stops a run with a savepoint after its first epochs."""

    def __init__(self) -> None:
        self.driver: Any = None

    def attach(self, driver: Any) -> Callable[[Any], None]:
        self.driver = driver
        return lambda _: None

    def on_step(self, step: str, epoch: int) -> None:
        if step == "published" and epoch == 4:
            self.driver.savepoint(stop=True)


def test_an_environment_checks_and_restores(tmp_path: Path) -> None:
    root = tmp_path / "state"
    stop = StopEarly()
    env = environment(root)
    env.launch = Launch(steps=stop, on_driver=stop.attach)
    savepoint = env.execute("job").savepoint
    assert savepoint is not None

    with pytest.raises(SavepointNotFound, match="job 'forkpoint-job' has no savepoint 'latest'"):
        environment(root).check()
    same = environment(root)
    checked = same.check("latest", "job")
    assert (checked.fits, checked.job, checked.path) == (True, "job", plain_place(savepoint))
    with pytest.raises(RestoreRefused):
        environment(root, "sums").execute("job", restore=savepoint)
    changed = environment(root, "sums")
    assert not changed.check(savepoint, "job").fits
    assert changed.check(savepoint, "job", renames={"totals": "sums"}).fits
    assert changed.check(savepoint, "job", allow_non_restored=True).fits
    restored = changed.execute("job", RestoreOptions("latest", renames={"totals": "sums"}))
    assert restored.status is fp.JobStatus.FINISHED
    parent = next(v.parent for v in ops.list_jobs(ended=True, state_root=str(root)) if v.run == restored.job_id)
    assert parent.savepoint_path == savepoint
    assert same.execute_async("job", restore="none").get_job_execution_result().result().status is fp.JobStatus.FINISHED


def test_what_the_launch_restores_takes_precedence(tmp_path: Path) -> None:
    env = environment(tmp_path)
    env.launch = Launch(restore=RestoreOptions("none"))
    assert env.execute("job", restore="no such savepoint").status is fp.JobStatus.FINISHED
    rootless = fp.StreamExecutionEnvironment()
    rootless.from_collection([1], int).uid("in").sink_to(fp.DiscardSink()).uid("out")
    with pytest.raises(ConfigError, match="no state root is set"):
        rootless.check()


def test_environments_belong_to_the_program_that_makes_them() -> None:
    launch = Launch(job_name="renamed")
    before = fp.StreamExecutionEnvironment()
    with launching(launch), ThreadPoolExecutor() as threads:
        on_a_thread = threads.submit(fp.StreamExecutionEnvironment.get_execution_environment).result()
    assert on_a_thread.launch is launch
    assert before.launch == fp.StreamExecutionEnvironment().launch != launch
