"""The life of a job, with real processes."""

import os
import re
import signal

import pyarrow.parquet as pq
import pytest


def counted(path):
    """A savepoint's counts by digit, and the next number that the source gives."""
    rows = pq.read_table(f"{path}/operators/counts/state").to_pydict()
    return dict(zip(rows["key"], rows["value"], strict=True))


def test_start_savepoint_stop_and_go_on(cli):
    started = cli("run", "-d", "digits.py")
    match = re.fullmatch(r"job digits, run (\w+): running as process (\d+)\nlog: (.+\.log)\n", started.stdout)
    assert match is not None, started.stdout
    run, pid, log = match.groups()
    cli.pids.append(int(pid))
    assert os.path.dirname(log) == str(cli.directory / ".forkpoint" / "logs")
    assert os.getsid(int(pid)) == int(pid)  # it survives this terminal

    (listed,) = cli.jobs()
    assert (listed["job"], listed["run"], listed["state"], listed["pid"]) == ("digits", run, "running", int(pid))
    assert listed["log"] == log

    first = cli("savepoint", "digits", "--label", "one", "--note", "before the change").stdout.strip()
    at_savepoint = cli.look("show", first)["savepoint"]["epoch"]
    assert cli.wait_epoch(at_savepoint + 3)["run"] == run  # it goes on

    second = cli("stop", "digits").stdout.strip()
    assert cli.jobs() == []
    last = cli.look("show", second)["savepoint"]
    (ended,) = cli.jobs("-a")
    assert (ended["state"], ended["epoch"]) == ("stopped", last["epoch"])  # nothing was committed after it
    position = last["sources"]["numbers"]["position"]["next"]
    assert counted(second) == dict.fromkeys(range(10), position // 10)

    again = cli.json("run", "-d", "-s", "latest", "digits.py")
    assert again.keys() == {"job", "run", "state", "state_root", "pid", "log", "failure"}
    assert (again["job"], again["state"]) == ("digits", "running")
    cli.wait_epoch(last["epoch"] + 3)
    third = cli.json("stop", "digits", "--savepoint-path", "elsewhere")
    assert os.path.dirname(third["savepoint"]) == str(cli.directory / "elsewhere")
    position = cli.look("show", third["savepoint"])["savepoint"]["sources"]["numbers"]["position"]["next"]
    assert position > last["sources"]["numbers"]["position"]["next"]
    assert counted(third["savepoint"]) == dict.fromkeys(range(10), position // 10)  # no number twice, none left out

    graph = cli("tree", "digits").stdout.splitlines()
    assert [line.split()[:3] for line in graph] == [
        ["○", again["run"], "digits"],
        ["◆", os.path.basename(second), "digits"],
        ["◆", os.path.basename(first), "digits"],
        ["○", run, "digits"],
    ]
    assert "[one]" in graph[2]
    assert "before the change" in graph[2]


@pytest.mark.slow
def test_a_killed_driver_is_lost_and_its_job_goes_on_from_the_checkpoint(cli):
    first = cli.json("run", "-d", "digits.py")
    cli.wait_epoch(5)
    os.kill(first["pid"], signal.SIGKILL)
    (lost,) = cli.jobs()
    assert (lost["run"], lost["state"]) == (first["run"], "lost")
    epoch = lost["epoch"]
    assert epoch >= 5
    assert first["log"] in cli("list").stdout

    refused = cli("stop", "digits", code=5).stderr
    assert "was lost (its driver was killed)" in refused
    assert first["log"] in refused

    second = cli.json("run", "-d", "digits.py")
    running = cli.wait_epoch(epoch + 2)
    assert running["run"] == second["run"]
    assert running["parent"] == {
        "kind": "checkpoint",
        "job": "digits",
        "epoch": epoch,
        "run": first["run"],
        "savepoint_id": None,
        "savepoint_path": None,
    }
    states = {each["run"]: each["state"] for each in cli.jobs("-a")}
    assert states == {first["run"]: "lost", second["run"]: "running"}
    path = cli.json("stop", "digits")["savepoint"]
    position = cli.look("show", path)["savepoint"]["sources"]["numbers"]["position"]["next"]
    assert counted(path) == dict.fromkeys(range(10), position // 10)


def test_ctrl_c_cancels_cleanly(cli):
    process = cli.start("run", "digits.py")
    assert any("running" in line for line in iter(process.stderr.readline, ""))  # where starting takes long, that comes first
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130, err
    assert "cancelled" in err
    assert "Traceback" not in err
    (ended,) = cli.jobs("-a")
    assert ended["state"] == "cancelled"


@pytest.mark.slow
def test_cancel_and_fork_under_another_name(cli):
    cli.json("run", "-d", "digits.py")
    busy = cli("run", "digits.py", code=1).stderr
    assert re.search(r"job 'digits' is already running \(run \w+, process \d+ on machine .*\) .* --name", busy), busy
    cli("savepoint", "digits", "--label", "fork here")
    forked = cli.json("run", "-d", "--name", "copy", "-s", "fork here", "digits.py")
    assert {each["job"] for each in cli.jobs()} == {"digits", "copy"}
    assert re.fullmatch(r"job digits, run \w+: cancelled\n", cli("cancel", "digits").stdout)
    assert [each["job"] for each in cli.jobs()] == ["copy"]

    refused = cli("dispose", "fork here", code=1).stderr
    assert f"run {forked['run']!r} of job 'copy'" in refused
    cli("cancel", "copy")
    assert "deleted" in cli("dispose", "fork here").stdout
    assert cli.look("savepoints") == {"savepoints": [], "broken": []}
    nodes = {(each["kind"], each["job"]): each for each in cli.look("tree")["nodes"]}
    assert nodes["run", "copy"]["parent"]["kind"] == "savepoint"
    assert nodes["savepoint", None]["missing"]


def test_a_bounded_job_in_the_foreground(cli):
    done = cli("run", "digits.py", "--output", "json", "--", "250")
    events = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert '"event": "running"' in events[0]
    assert '"event": "ended"' in events[1]
    assert '"outcome": "finished"' in events[1]


def test_jobs_that_the_program_does_not_wait_for_run_to_their_end(cli):
    cli.write("async_job.py", (cli.directory / "digits.py").read_text().replace("env.execute(", "env.execute_async("))
    done = cli("run", "async_job.py", "--", "500")
    assert "finished" in done.stderr
    (ended,) = cli.jobs("-a")
    assert ended["state"] == "finished"


def test_a_running_job_is_rescaled(cli):
    run = cli.json("run", "-d", "-p", "2", "digits.py")["run"]
    cli.wait_epoch(3)
    done = cli.json("rescale", "digits", "-p", "3")
    assert {name: done[name] for name in ("job", "run", "parallelism")} == {
        "job": "digits",
        "run": run,
        "parallelism": 3,
    }
    assert cli.wait_epoch(done["epoch"] + 3)["restarts"] == 0
    refused = cli("rescale", "digits", "-p", "129", code=3).stderr
    assert "parallelism 129 is above its max parallelism of 128" in refused
    assert re.fullmatch(rf"job digits, run {run}: parallelism 1 from epoch \d+ on\n", cli("rescale", "digits", "-p", "1").stdout)
    path = cli("stop", "digits").stdout.strip()
    saved = cli.look("show", path)["savepoint"]
    assert saved["parallelism"] == 1
    assert counted(path) == dict.fromkeys(range(10), saved["sources"]["numbers"]["position"]["next"] // 10)
