"""state and sql on a job: while it runs, forked, killed and started again."""

import json
import os
import signal
import time

import pytest
from click.testing import CliRunner

from forkpoint.cli import main

TOTALS = "SELECT count(*), sum(value)::BIGINT, min(value) = max(value) FROM counts.state"


def failing(cli, *args, code):
    done = CliRunner().invoke(main, ["--state-root", str(cli.directory / ".forkpoint"), "--output", "json", *args])
    assert done.exit_code == code, done.output
    return json.loads(done.stderr)["error"]["message"] if "{" in done.stderr else done.stderr


def check_whole(cli, job="digits", factor=100):
    """Ten digits that all have the same count, and each epoch a hundred numbers more."""
    found = cli.look("state", "query", job, TOTALS)
    ((keys, total, same),) = found["rows"]
    assert (keys, same, total % factor, found["job"]) == (10, True, 0, job)
    return found["epoch"], total


def test_a_running_job_s_state_is_read_by_key_and_in_sql(cli):
    cli.json("run", "-d", "digits.py")
    cli.wait_epoch(3)
    listed = cli.look("state", "ls", "digits")
    assert [(s["uid"], s["state"], s["kind"], s["rows"], s["bytes"]) for s in listed["states"]] == [
        ("counts", "state", "value", None, None)
    ]
    epoch, total = check_whole(cli)
    one = cli.look("state", "get", "digits", "counts", "state", "--key", "3")
    assert one["epoch"] >= epoch
    assert [row["key"] for row in one["rows"]] == [3]
    assert one["rows"][0]["value"] >= total // 10
    assert one["path"].endswith(f"{one['epoch']:012d}.json")
    assert cli.look("state", "get", "digits", "counts", "state", "77")["rows"] == []
    assert len(cli.look("state", "get", "digits", "counts", "state", "--limit", "4")["rows"]) == 4

    assert "has no operator 'count'; did you mean" in failing(cli, "state", "get", "digits", "count", "state", code=5)
    assert "did you mean 'state'" in failing(cli, "state", "get", "digits", "counts", "stat", code=5)
    assert "is not a key of type LONG" in failing(cli, "state", "get", "digits", "counts", "state", "x", code=1)
    assert "given twice" in failing(cli, "state", "get", "digits", "counts", "state", "1", "--key", "1", code=2)
    assert "Nor is there a job" in failing(cli, "state", "ls", "digit", code=5)
    assert "there is no job 'digit'" in failing(cli, "state", "ls", "job:digit", code=5)


def test_a_label_that_is_a_job_s_name_too_is_refused(cli):
    cli.json("run", "-d", "digits.py")
    cli.wait_epoch(2)
    taken = cli.json("savepoint", "digits", "--label", "digits")
    assert "write job:digits" in failing(cli, "state", "ls", "digits", code=1)
    savepoint = cli.look("state", "ls", taken["savepoint"])
    assert cli.look("state", "ls", "job:digits")["epoch"] >= savepoint["epoch"]


@pytest.mark.slow
def test_a_job_that_was_forked_and_killed_is_read_and_goes_on(cli):
    started = cli.json("run", "-d", "digits.py")
    cli.wait_epoch(3)
    cli.json("savepoint", "digits", "--label", "here")
    cli.json("fork", "-d", "here", "digits.py", "--name", "other")
    cli.wait_epoch(2, "other")
    _, before = check_whole(cli, "other")
    assert before > 0

    os.kill(started["pid"], signal.SIGKILL)
    while any((job["job"], job["state"]) == ("digits", "running") for job in cli.jobs()):
        time.sleep(0.05)
    epoch, total = check_whole(cli)
    assert check_whole(cli) == (epoch, total)  # nobody goes on
    cli.json("run", "-d", "digits.py")
    cli.wait_epoch(epoch + 2)
    later, more = check_whole(cli)
    assert later > epoch
    assert more > total
