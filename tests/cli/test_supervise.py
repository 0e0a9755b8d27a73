"""`forkpoint supervise`, with real processes on the local engine."""

import json
import os
import random
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from cli_process import DIGITS

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.driver.run.failures import Failures
from forkpoint.graph.options import RestartStrategy
from forkpoint.operations.launch.supervisor import Done, Ended, GivenUp, Restart, next_step
from forkpoint.storage.base import open_storage

# Each start writes its process id. Every epoch takes a moment, so that runs can be killed in the middle.
NUMBERS = """
import os, sys, time
import forkpoint as fp

with open("starts", "a") as starts:
    print(os.getpid(), file=starts)

def slow(number):
    if number % 10 == 0:
        time.sleep(0.02)
    return number

env = fp.StreamExecutionEnvironment.get_execution_environment().enable_checkpointing(50)
source = fp.CounterSource(int(sys.argv[1]) if len(sys.argv) > 1 else None, per_epoch=10)
numbers = env.from_source(source, fp.WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
numbers.map(slow, int).uid("slow").sink_to(fp.FileSink.json("out")).uid("out")
env.execute("numbers")
"""
DIES = """
import os, signal
with open("starts", "a") as starts:
    print(os.getpid(), file=starts)
os.kill(os.getpid(), signal.SIGKILL)
"""
QUICK = ("--delay", "10ms", "--max-delay", "50ms")


def starts(cli):
    path = cli.directory / "starts"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def wait_start(cli, number):
    """The process id of the start with this number."""
    while len(found := starts(cli)) < number:
        time.sleep(0.02)
    return found[number - 1]


def wait_run(cli, pid, epochs=2):
    """Wait until the run of this process has committed some epochs."""
    first = None
    while True:
        for job in cli.look("list")["jobs"]:
            if job["pid"] == pid and job["state"] == "running":
                first = job["epoch"] if first is None else first
                if job["epoch"] >= first + epochs:
                    return
        time.sleep(0.02)


def output(cli):
    files = (cli.directory / "out").glob("*.jsonl")
    return sorted(json.loads(line) for file in files for line in file.read_text().splitlines())


def assert_exactly_once(cli):
    found = output(cli)
    assert found
    assert found == list(range(len(found)))


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def cli(cli):
    cli.write("app.py", NUMBERS)
    cli.write("dies.py", DIES)
    (cli.directory / ".forkpoint").mkdir()
    return cli


@pytest.fixture
def supervise(cli):
    """Starts `forkpoint supervise` with these arguments."""
    started = []

    def start(*args):
        started.append(cli.start(*args[:-1], "supervise", *QUICK, *args[-1]))
        return started[-1]

    yield start
    for process in started:
        process.kill()  # its run dies with it
        process.communicate()


def ended(process, code):
    out, err = process.communicate()
    assert process.returncode == code, f"{process.returncode}\n{out}\n{err}"
    return out, err


def restarts(err):
    return [line for line in err.splitlines() if "starting it again in" in line]


def test_a_run_that_is_killed_twice_gives_its_output_exactly_once(cli, supervise):
    process = supervise(["--", "-p", "2", "app.py"])
    for number in (1, 2):
        pid = wait_start(cli, number)
        wait_run(cli, pid)
        if number == 1:
            cli("rescale", "numbers", "-p", "3")  # the next runs keep that, although the options say -p 2
        os.kill(pid, signal.SIGKILL)
    wait_run(cli, wait_start(cli, 3))
    assert History(open_storage(str(cli.directory / ".forkpoint")), JobPaths("numbers")).newest().parallelism == 3
    cli("stop", "numbers")
    _, err = ended(process, 0)
    assert len(starts(cli)) == 3
    assert_exactly_once(cli)
    for number, line in enumerate(restarts(err), 1):
        when = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
        expected = rf"{when} the run was killed by SIGKILL; starting it again in 0\.\d s \(restart {number}\)"
        assert re.fullmatch(expected, line), line
    assert len(restarts(err)) == 2


@pytest.mark.slow
def test_a_savepoint_is_restored_once_not_at_each_restart(cli, supervise):
    first = supervise(["--", "app.py"])
    wait_run(cli, wait_start(cli, 1))
    path = cli.json("stop", "numbers")["savepoint"]
    ended(first, 0)
    process = supervise(["--", "-s", path, "app.py"])
    pid = wait_start(cli, 2)
    wait_run(cli, pid)
    os.kill(pid, signal.SIGKILL)
    wait_run(cli, wait_start(cli, 3))
    cli("stop", "numbers")
    ended(process, 0)
    assert_exactly_once(cli)
    parents = [each["parent"]["kind"] for each in cli.jobs("-a")]
    assert parents == ["checkpoint", "savepoint", "none"]


@pytest.mark.slow
def test_a_savepoint_is_restored_after_a_restart_if_no_run_had_started(cli, supervise):
    first = supervise(["--", "app.py"])
    wait_run(cli, wait_start(cli, 1))
    cli("savepoint", "numbers", "--label", "early")
    wait_run(cli, starts(cli)[0])
    cli("stop", "numbers")
    ended(first, 0)
    died = "import os, signal\nif len(open('starts').readlines()) == 1:\n    open('starts', 'a').write('0\\n')\n    "
    cli.write("later.py", died + "os.kill(os.getpid(), signal.SIGKILL)\n" + NUMBERS)
    process = supervise(["--", "-s", "early", "later.py", "--", "10"])
    _, err = ended(process, 0)
    assert len(restarts(err)) == 1
    assert cli.jobs("-a")[0]["parent"]["kind"] == "savepoint"


@pytest.mark.slow
def test_it_gives_up_after_so_many_attempts(cli, supervise):
    _, err = ended(supervise(["--attempts", "2", "--", "dies.py"]), 3)
    assert len(starts(cli)) == 3
    assert [line.rpartition(" s ")[2] for line in restarts(err)] == ["(restart 1 of 2)", "(restart 2 of 2)"]
    assert err.endswith("Error: gave up after 2 restarts; last: the run was killed by SIGKILL\n")


def test_events_in_json(cli, supervise):
    out, err = ended(supervise("--output", "json", ["--attempts", "1", "--", "dies.py"]), 3)
    event = json.loads(out)
    assert event.pop("delay_ms") < 20
    assert event == {
        "event": "restarting",
        "reason": "the run was killed by SIGKILL",
        "number": 1,
        "attempts": 1,
    }
    assert json.loads(err)["error"]["exit_code"] == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "code", "says"),
    [
        ("raise ValueError('wrong')", 1, "ValueError: wrong"),
        ("import sys; sys.exit(7)", 7, ""),
        ("import forkpoint as fp; raise fp.ConfigError('no such option')", 1, "no such option"),
        (
            NUMBERS.replace("    if number", "    if number == 50:\n        raise ValueError('bad')\n    if number").replace(
                "enable_checkpointing(50)", "set_restart_strategy(fp.RestartStrategy.none())"
            ),
            3,
            "bad",
        ),
    ],
    ids=["program", "exit", "config", "job"],
)
def test_what_would_fail_again_is_not_restarted(cli, supervise, program, code, says):
    cli.write("fails.py", program)
    _, err = ended(supervise(["--", "fails.py"]), code)
    assert says in err
    assert not restarts(err)


@pytest.mark.slow
def test_a_refused_restore_is_not_restarted(cli, supervise):
    cli.json("run", "-d", "digits.py")
    cli.wait_epoch(3)
    cli("stop", "digits")
    cli.write("renamed.py", DIGITS.replace('uid("counts")', 'uid("others")'))
    _, err = ended(supervise(["--", "renamed.py"]), 4)
    assert not restarts(err)


@pytest.mark.slow
def test_it_stands_by_for_a_job_that_runs_already_and_takes_over_when_that_dies(cli, supervise):
    first = cli.json("run", "-d", "app.py")
    wait_run(cli, wait_start(cli, 1))
    process = supervise(["--attempts", "0", "--", "app.py"])
    pid = wait_start(cli, 2)
    while [(each["pid"], each["state"]) for each in cli.look("list")["jobs"]] != [
        (pid, "standby"),
        (first["pid"], "running"),
    ]:
        time.sleep(0.05)
    os.kill(first["pid"], signal.SIGKILL)
    wait_run(cli, pid)
    cli("stop", "numbers")
    _, err = ended(process, 0)
    said = [line.rpartition(": ")[2].partition(",")[0] for line in err.splitlines() if line.startswith("job numbers, run")]
    assert said == ["standby", "running", "stopped"]
    assert f"is already running (run {first['run']}, process {first['pid']} on machine" in err
    assert "this run stands by" in err
    assert not restarts(err)
    assert_exactly_once(cli)


@pytest.mark.slow
def test_it_ends_with_the_job_that_it_stands_by_for(cli, supervise):
    first = supervise(["--", "app.py"])
    wait_run(cli, wait_start(cli, 1))
    second = supervise(["--", "app.py"])
    while "standby" not in {each["state"] for each in cli.look("list")["jobs"]}:
        time.sleep(0.05)
    cli("cancel", "numbers")
    ended(first, 0)
    ended(second, 0)


@pytest.mark.slow
def test_it_restores_no_savepoint_over_a_job_that_runs(cli, supervise):
    cli.json("run", "-d", "app.py")
    wait_run(cli, wait_start(cli, 1))
    cli("savepoint", "numbers", "--label", "early")
    _, err = ended(supervise(["--", "-s", "early", "app.py"]), 1)
    assert "start it without a savepoint to restore" in err
    assert not restarts(err)
    cli("cancel", "numbers")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_cancels_the_job(cli, supervise, number):
    process = supervise(["--", "app.py"])
    wait_run(cli, wait_start(cli, 1))
    process.send_signal(number)
    _, err = ended(process, 128 + number)
    assert "cancelled" in err
    (run,) = cli.jobs("-a")
    assert run["state"] == "cancelled"


def test_a_signal_ends_it_during_a_delay(cli):
    process = cli.start("supervise", "--delay", "1h", "--max-delay", "1h", "--", "dies.py")
    assert "(restart 1)" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    ended(process, 143)
    assert len(starts(cli)) == 1


@pytest.mark.slow
def test_stop_ends_it(cli, supervise):
    process = supervise(["--", "app.py"])
    wait_run(cli, wait_start(cli, 1))
    cli("stop", "numbers")
    ended(process, 0)
    assert_exactly_once(cli)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the run dies with its supervisor on Linux")
def test_the_run_dies_with_its_supervisor_and_the_next_one_goes_on(cli, supervise):
    first = supervise(["--", "app.py"])
    pid = wait_start(cli, 1)
    wait_run(cli, pid)
    first.kill()
    second = supervise(["--", "app.py"])
    wait_run(cli, wait_start(cli, 2))
    assert not alive(pid)
    cli("stop", "numbers")
    ended(second, 0)
    assert_exactly_once(cli)


def test_the_options_of_run_are_checked_at_once(cli):
    assert "leave out -d" in cli("supervise", "--", "-d", "app.py", code=2).stderr
    assert "does not exist" in cli("supervise", "--", "missing.py", code=2).stderr
    assert "come after --" in cli("supervise", "-s", "latest", "app.py", code=2).stderr


STRATEGY = RestartStrategy.exponential_delay(1_000, 60_000, jitter=0, reset_after=600_000, attempts=2)


def test_delays_grow_and_reset():
    killed, rng = Ended(-9), random.Random(0)
    first = next_step(killed, STRATEGY, Failures(), 0, rng)
    assert first == Restart("the run was killed by SIGKILL", 1_000, 1, Failures((0,), 1_000, 0))
    second = next_step(killed, STRATEGY, first.failures, 5_000, rng)
    assert (second.delay_ms, second.number) == (1_500, 2)
    assert next_step(killed, STRATEGY, second.failures, 10_000, rng) == GivenUp("the run was killed by SIGKILL", 2)
    again = next_step(killed, STRATEGY, second.failures, 605_000, rng)
    assert (again.delay_ms, again.number) == (1_000, 1)


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (Ended(0), None),
        (Ended(3, error="JobFailed"), None),
        (Ended(1), None),
        (Ended(143), None),
        (Ended(3, error="EngineLost"), "Spark terminated"),
        (Ended(-11), "the run was killed by SIGSEGV"),
        (Ended(-40), "the run was killed by signal 40"),
    ],
)
def test_only_deaths_lead_to_a_restart(ended, reason):
    step = next_step(ended, STRATEGY, Failures(), 0, random.Random(0))
    assert step == Done(ended.exit_code) if reason is None else step.reason == reason


@pytest.mark.slow
def test_a_job_that_is_upgraded_is_still_supervised(cli):
    """The new version's driver is a process of its own: the supervisor's child stands by for it."""
    cli.write("app.py", NUMBERS)
    supervisor = cli.start("supervise", *QUICK, "--", "app.py")
    wait_run(cli, wait_start(cli, 1))
    cli.write("app2.py", NUMBERS.replace(".map(slow, int)", ".map(slow, int).map(lambda n: n, int)"))
    upgraded = cli.json("upgrade", "numbers", "app2.py")
    while not any(job["state"] == "standby" for job in cli.look("list")["jobs"]):
        assert supervisor.poll() is None, supervisor.communicate()
        time.sleep(0.02)
    os.kill(upgraded["pid"], signal.SIGKILL)
    while True:
        running = [job for job in cli.look("list")["jobs"] if job["state"] == "running"]
        if running and running[0]["run"] != upgraded["run"] and running[0]["pid"] != upgraded["pid"]:
            break
        assert supervisor.poll() is None, supervisor.communicate()
        time.sleep(0.02)
    wait_run(cli, running[0]["pid"])
    cli("stop", "numbers")
    _, err = supervisor.communicate()
    assert supervisor.returncode == 0
    assert f"handed over to run {upgraded['run']}, which is supervised from now on" in err
    written = [json.loads(line) for file in (cli.directory / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert sorted(written) == list(range(len(written)))
