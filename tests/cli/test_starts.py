"""Starts that come late, fail again and again, or have nothing to go on from; and what a dead driver left to be published."""

import json
import os
import signal
import time

import pytest

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.storage.base import open_storage

FAILING = """
import forkpoint as fp


def fail(number):
    raise ValueError(f"number {number} is not wanted")


env = fp.StreamExecutionEnvironment.get_execution_environment().enable_checkpointing(50)
env.configure({"restart-strategy.type": "fixed-delay", "restart-strategy.fixed-delay.attempts": 1000,
               "restart-strategy.fixed-delay.delay": "100 ms"})
numbers = env.from_source(fp.CounterSource(per_epoch=10), fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
numbers.map(fail, int).uid("fails").sink_to(fp.DiscardSink()).uid("out")
env.execute("failing")
"""
DYING = """
import os
import signal

import forkpoint as fp
from forkpoint.driver.run.epochs import EpochRunner


def committed_and_dead(runner, savepoint):
    runner._publish = lambda manifest: os.kill(os.getpid(), signal.SIGKILL)
    end_drain(runner, savepoint)


end_drain = EpochRunner.end_drain
EpochRunner.end_drain = committed_and_dead
env = fp.StreamExecutionEnvironment.get_execution_environment().enable_checkpointing(50)
strategy = fp.WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda number, _: number)
numbers = env.from_source(fp.CounterSource(per_epoch=10), strategy, "numbers").uid("numbers")
sums = numbers.key_by(lambda n: n % 4, int).window(fp.TumblingEventTimeWindows.of(10**9)).reduce(lambda a, b: a + b).uid("sums")
sums.sink_to(fp.FileSink.text("out")).uid("out")
env.execute("dying")
"""


@pytest.fixture
def dead(cli):
    """A job whose driver was killed behind the last manifest of a drain; what `stop` said."""
    cli.write("dying.py", DYING)
    cli.json("run", "-d", "dying.py")
    cli.wait_epoch(5, "dying")
    return cli("stop", "--drain", "dying", code=3).stderr


def visible(cli):
    return [line for path in cli.directory.glob("out/part-*") for line in path.read_text().splitlines()]


def test_what_a_dead_driver_left_of_a_drain_is_shown_and_published_by_one_command(cli, dead):
    assert "Its savepoint is complete" in dead
    assert "`forkpoint publish dying`" in dead
    assert not visible(cli)
    (shown,) = cli.jobs()
    assert [each["kind"] for each in shown["problems"] if each["kind"] != "lost"] == ["unpublished"]
    (kept,) = cli.look("gc", "--older-than", "1ms")["unpublished"]
    assert kept["job"] == "dying"
    done = cli.json("publish", "dying")
    assert done == {"job": "dying", "run": shown["run"], "epoch": shown["epoch"], "skipped": []}
    assert len(visible(cli)) == 4
    assert cli.jobs() == []
    assert [each["state"] for each in cli.jobs("-a")] == ["stopped"]
    cli("publish", "dying")
    assert len(visible(cli)) == 4


@pytest.mark.parametrize("standby", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["run", "standby"])
def test_a_start_that_is_refused_after_a_drain_publishes_first(cli, dead, standby):
    cli.write("dying.py", DYING.replace("EpochRunner.end_drain = ", "unused = "))
    refused = cli("run", *(["--standby"] if standby else []), "dying.py", code=4)
    assert "was stopped with a drain" in refused.stderr
    assert len(visible(cli)) == 4
    assert cli.jobs() == []


def test_a_late_start_is_refused_unless_it_is_forced(cli):
    first = cli.json("run", "-d", "digits.py")
    cli.wait_epoch(3)
    saved = cli("stop", "digits").stdout.strip()
    late = ["run", "-s", saved, "--predecessor", "digits", first["run"]]
    cli("run", "-s", saved, "digits.py", "--", "5000")  # somebody starts it by hand, and it ends
    refused = cli(*late, "digits.py", "--", "6000", code=4)
    assert f"was to succeed run {first['run']}" in refused.stderr
    forced = cli(*late, "--force", "digits.py", "--", "6000")
    assert "it continues because of --force" in forced.stderr


def test_a_version_whose_upgrade_was_killed_ends_and_the_job_goes_on(cli):
    """It would wait for the job to be handed over, and seem to stand by for it."""
    cli.json("run", "-d", "digits.py")
    cli.wait_epoch(3)
    changed = (cli.directory / "digits.py").read_text().replace("import beside", "import beside, time\ntime.sleep(0.5)")
    cli.write("changed.py", changed)
    upgrade = cli.start("upgrade", "digits", "changed.py")
    while not any(each["state"] == "standby" for each in cli.jobs()):
        assert upgrade.poll() is None, upgrade.communicate()
        time.sleep(0.02)
    os.kill(upgrade.pid, signal.SIGKILL)
    upgrade.communicate()
    while any(each["state"] == "standby" for each in cli.jobs()):
        time.sleep(0.05)
    newest = History(open_storage(str(cli.directory / ".forkpoint")), JobPaths("digits")).newest().epoch
    cli.wait_epoch(newest + 2)
    cli("cancel", "digits")


def test_a_job_whose_first_epoch_fails_again_and_again_is_not_said_to_run(cli):
    cli.write("failing.py", FAILING)
    started = cli("--output", "json", "run", "-d", "failing.py", code=3)
    found = json.loads(started.stdout)
    cli.pids.append(found["pid"])
    assert found["state"] == "restarting"
    assert "number 0 is not wanted" in found["failure"]
    cli("cancel", "failing")


def test_a_fork_of_a_job_that_does_not_run_says_so(cli):
    cli("run", "digits.py", "--", "300")
    cli("fork", "digits", "--name", "other", "digits.py", code=5)
    said = cli("fork", "digits", "--name", "other", "digits.py", code=5).stderr
    assert "job 'digits' is not running: its last run" in said
    assert "`forkpoint savepoints digits`" in said
