"""A standby beside a job's leader, with real processes."""

import os
import signal
import time
from collections import Counter

import pytest

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.storage.base import open_storage

NUMBERS = """
import forkpoint as fp


def count(number, state):
    state = (state or 0) + 1
    return (number, state), state


env = fp.StreamExecutionEnvironment.get_execution_environment().enable_checkpointing(50).set_parallelism(2)
numbers = env.from_source(fp.CounterSource(per_epoch=100), fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
counted = numbers.key_by(lambda n: n % 10, int).map_with_state(count, int, tuple[int, int]).uid("counts")
counted.sink_to(fp.FileSink.csv("out")).uid("out")
env.execute("counting")
"""


@pytest.fixture
def numbers(cli):
    cli.write("counting.py", NUMBERS)
    return cli


def lead(cli, state, run=None):
    """Wait until the job has a run in this state; its row in ``list``. ``run``: another one than that."""
    while True:
        for each in cli.look("list")["jobs"]:
            if each["state"] == state and each["run"] != run:
                return each
        time.sleep(0.05)


def rows(cli):
    files = sorted((cli.directory / "out").rglob("part-*"))
    lines = [line for file in files for line in file.read_text().splitlines()[1:]]
    return [tuple(map(int, line.split(","))) for line in lines]


def check_output(cli):
    """Every number so far is there once, with its count."""
    found = Counter(rows(cli))
    assert found == Counter((n, n // 10 + 1) for n in range(len(found)))


def test_it_takes_over_from_a_killed_leader_and_nothing_is_lost_or_repeated(numbers):
    cli = numbers
    first = cli.json("run", "-d", "--standby", "counting.py")  # a job without a leader is led at once
    assert first["state"] == "running"
    waiting = cli.json("run", "-d", "--standby", "-p", "2", "counting.py")
    assert waiting["state"] == "standby"
    states = {each["run"]: each["state"] for each in cli.look("list")["jobs"]}
    assert states == {first["run"]: "running", waiting["run"]: "standby"}
    path = cli("savepoint", "counting").stdout.strip()  # it is the leader's
    assert cli.look("show", path)["savepoint"]["run"] == first["run"]
    cli("rescale", "counting", "-p", "3")  # the standby keeps that, too

    os.kill(first["pid"], signal.SIGKILL)
    led = lead(cli, "running", first["run"])
    assert led["run"] == waiting["run"]
    cli.wait_epoch(led["epoch"] + 3, "counting")
    assert lead(cli, "running")["parent"]["run"] == first["run"]  # not before its record is written, after it has taken the lead
    assert History(open_storage(str(cli.directory / ".forkpoint")), JobPaths("counting")).newest().parallelism == 3
    cli("cancel", "counting")
    check_output(cli)


@pytest.mark.slow
def test_a_leader_that_wakes_up_is_superseded(numbers):
    cli = numbers
    first = cli.json("run", "-d", "counting.py")
    second = cli.json("run", "-d", "--standby", "counting.py")
    cli.wait_epoch(3, "counting")
    os.kill(first["pid"], signal.SIGSTOP)
    led = lead(cli, "running", first["run"])
    cli.wait_epoch(led["epoch"] + 3, "counting")
    os.kill(first["pid"], signal.SIGCONT)
    while (ended := {each["run"]: each for each in cli.look("list", "-a")["jobs"]}[first["run"]])["state"] != "superseded":
        time.sleep(0.05)
    assert f"run '{second['run']}' (generation 2" in ended["reason"]
    cli.wait_epoch(led["epoch"] + 6, "counting")
    cli("cancel", "counting")
    check_output(cli)


@pytest.mark.slow
def test_of_two_standbys_one_leads_and_the_other_stays(numbers):
    cli = numbers
    drivers = {}
    for _ in range(3):
        started = cli.json("run", "-d", "--standby", "counting.py")
        drivers[started["run"]] = started["pid"]
    for left in (2, 1, 0):
        leader = lead(cli, "running")
        cli.wait_epoch(leader["epoch"] + 2, "counting")
        standbys = [each["run"] for each in cli.look("list")["jobs"] if each["state"] == "standby"]
        assert len(standbys) == left
        if left:
            os.kill(drivers.pop(leader["run"]), signal.SIGKILL)
            while lead(cli, "running", leader["run"])["run"] not in standbys:
                pass
    cli("cancel", "counting")
    check_output(cli)


@pytest.mark.slow
def test_a_leader_that_ends_regularly_ends_its_standby(numbers):
    cli = numbers
    cli.json("run", "-d", "counting.py")
    process = cli.start("run", "--standby", "counting.py")
    lead(cli, "standby")
    cli("stop", "counting")
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert "which this one stood by for, has ended (stopped); this run ends, too" in err
    (run,) = cli.look("list", "-a")["jobs"]
    assert run["state"] == "stopped"


@pytest.mark.slow
def test_a_standby_is_ended_by_a_signal_and_leaves_the_leader_alone(numbers):
    cli = numbers
    cli.json("run", "-d", "counting.py")
    process = cli.start("run", "--standby", "counting.py")
    lead(cli, "standby")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, err
    (leader,) = cli.look("list")["jobs"]
    assert leader["state"] == "running"
    refused = cli("run", "counting.py", code=1).stderr
    assert "is already running" in refused
    assert "--standby" in refused
    cli("cancel", "counting")


@pytest.mark.slow
def test_a_standby_takes_no_savepoint_to_restore(numbers):
    cli = numbers
    cli.json("run", "-d", "counting.py")
    path = cli("stop", "counting").stdout.strip()
    refused = cli("run", "--standby", "-s", path, "counting.py", code=1).stderr
    assert "start it without a savepoint to restore" in refused


def newest_run(cli):
    newest = History(open_storage(str(cli.directory / ".forkpoint")), JobPaths("counting")).newest()
    return None if newest is None else newest.run


@pytest.mark.slow
def test_a_standby_that_is_killed_while_it_takes_over_is_replaced_by_the_next_one(numbers):
    cli = numbers
    drivers = {}
    for _ in range(3):
        started = cli.json("run", "-d", "--standby", "counting.py")
        drivers[started["run"]] = started["pid"]
    first = lead(cli, "running")["run"]
    cli.wait_epoch(5, "counting")
    os.kill(drivers.pop(first), signal.SIGKILL)
    while (second := newest_run(cli)) == first:  # its start manifest is there, and nothing else yet
        pass
    os.kill(drivers.pop(second), signal.SIGKILL)
    (third,) = drivers
    led = lead(cli, "running")
    assert led["run"] == third
    cli.wait_epoch(led["epoch"] + 3, "counting")
    cli("cancel", "counting")
    check_output(cli)
