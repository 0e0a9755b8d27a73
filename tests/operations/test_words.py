"""What operations say: of jobs that have only checkpoints, of times that are none, of steps where there is no terminal."""

import os

import pytest

from forkpoint import operations
from forkpoint.cli.output import _Steps
from forkpoint.driver.start.programs import Program
from forkpoint.errors import SavepointNotFound
from forkpoint.operations.versions.replay import until_from
from forkpoint.operations.versions.upgrade import _engine
from forkpoint.state_processor import LiveState
from forkpoint.storage.base import open_storage
from programs import run_python

PROGRAM = """
import forkpoint as fp

env = fp.StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_collection([1, 2, 3]).uid("numbers")
numbers.key_by(lambda n: n, int).map_with_state(lambda n, s: (n, n), int).uid("count").print().uid("out")
env.execute("counted")
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A program whose job has ended, with checkpoints and no savepoint; and its state root."""
    directory = tmp_path_factory.mktemp("words")
    (directory / "app.py").write_text(PROGRAM)
    root = str(directory / "state")
    settings = {**os.environ, "FORKPOINT_STATE_ROOT": root, "FORKPOINT_ENGINE": "local"}
    run_python(["app.py"], cwd=directory, env=settings, check=True, capture_output=True)
    return str(directory / "app.py"), root


@pytest.mark.parametrize("savepoint", ["latest", "counted"])
def test_a_program_is_checked_against_a_job_that_has_only_checkpoints(job, savepoint):
    app, root = job
    found = operations.check(app, (), savepoint, state_root=root)
    assert found.fits
    assert (found.savepoint, found.saved_job) == (None, "counted")
    assert {row.outcome for row in found.plan.rows} == {"restored"}


def test_a_name_of_neither_a_savepoint_nor_a_job_is_refused_as_before(job):
    with pytest.raises(SavepointNotFound, match="nobody"):
        operations.check(job[0], (), "nobody", state_root=job[1])


@pytest.mark.parametrize("given", ["tomorrow", "12 o'clock", "2026-13-01"])
def test_what_is_no_time_is_told_what_a_time_looks_like(tmp_path, given):
    with pytest.raises(SavepointNotFound, match=r"neither a time nor a savepoint. Write a time as 2026-"):
        until_from(open_storage(str(tmp_path)), given)


def test_states_are_shown_in_a_line(job):
    live = LiveState.find(job[1], "counted")
    assert repr(live) == f"<LiveState of {live.where}>"
    assert all(len(repr(state)) < 120 and "'count'" in repr(state) for state in live.states)


def test_a_step_that_repeats_is_said_once_and_one_that_counts_from_time_to_time():
    said: list[str] = []
    steps = _Steps(said.append)
    for epoch in range(200):
        steps("building stores")
        steps(f"its stores are at epoch {epoch}")
    steps("handing over")
    assert said == ["building stores", "its stores are at epoch 0", "handing over"]


def test_what_is_done_at_once_is_not_said():
    said: list[str] = []
    _Steps(said.append, quiet_seconds=60)("writing: 1 of 2 parts")
    assert said == []


@pytest.mark.parametrize(
    ("options", "engine", "kept"), [({}, "local", "local"), ({"engine": "local"}, None, "local"), ({}, None, None)]
)
def test_an_upgrade_keeps_the_engine_of_the_job(options, engine, kept):
    assert (
        _engine(Program(app="a.py", arguments=[], directory="/", options=options, engine=engine, bytes=0, checksum="0" * 64))
        == kept
    )
