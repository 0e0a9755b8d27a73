"""recover, and what stands in the way of starts and listings, on the command line."""

import os
import signal

import pytest
from cli_process import Cli

from forkpoint.checkpoint.history import History
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.storage.base import LocalStorage


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A job that was killed after it had made a savepoint; its newest manifest and its records are empty."""
    cli = Cli(tmp_path_factory.mktemp("cli"))
    started = cli.json("run", "-d", "digits.py")
    cli.wait_epoch(5)
    cli.json("savepoint", "digits", "--label", "spring")
    os.kill(started["pid"], signal.SIGKILL)
    root = cli.directory / ".forkpoint"
    for pattern in ("job.json", "runs/*/run.json", "runs/*/endpoint.json"):
        for record in (root / "jobs" / "digits").glob(pattern):
            record.write_bytes(b"")
    history = History(LocalStorage(str(root)), JobPaths("digits"))
    newest = history.epochs()[-1]
    (root / history.paths.manifest(newest)).write_bytes(b"")
    yield cli, history, newest
    cli.kill_all()


@pytest.mark.slow
def test_a_job_comes_back_by_one_command(killed):
    cli, history, newest = killed
    assert cli.look("list", "-a")["jobs"] == []
    for options in ([], ["-s", "spring"], ["-s", "none"]):
        assert "`forkpoint recover digits` restores the job" in cli("run", *options, "digits.py", code=4).stderr
    planned = cli.json("recover", "--dry-run", "digits")
    assert planned["outcome"] == "planned"
    assert history.epochs()[-1] == newest
    done = cli.json("recover", "digits")
    assert (done["outcome"], done["from"]["kind"], done["from"]["epoch"]) == ("recovered", "checkpoint", newest - 1)
    assert done["epoch"] > newest
    assert (done["lost"]["epochs"], done["lost"]["unknown"]) == ([newest], [newest])
    assert cli.json("recover", "digits")["outcome"] == "whole"
    started = cli.json("run", "-d", "digits.py")
    assert "is running" in cli("recover", "digits", code=1).stderr
    cli.wait_epoch(done["epoch"] + 3)
    assert cli.json("list")["jobs"][0]["run"] == started["run"]
    assert cli.json("label", cli.json("stop", "digits")["savepoint"], "summer")["label"] == "summer"
    assert "already has the label 'spring'" in cli("label", "summer", "spring", code=1).stderr
    moved = cli.json("label", "--force", "summer", "spring")
    assert [s["id"] for s in cli.look("savepoints")["savepoints"] if s["label"] == "spring"] == [moved["id"]]


def test_an_unknown_job(killed):
    cli, _, _ = killed
    assert "has neither checkpoints nor savepoints" in cli("recover", "nobody", code=5).stderr
