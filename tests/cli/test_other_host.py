"""Commands from a host that shares nothing with the driver's but the state root."""

import os
import signal
import subprocess
import sys

import pytest

from forkpoint.protocol.endpoint import endpoints
from forkpoint.storage.base import open_storage

# A machine name, a loopback interface and process ids of its own.
ELSEWHERE = (
    "unshare",
    "--uts",
    "--net",
    "--pid",
    "--fork",
    "--mount-proc",
    "sh",
    "-c",
    'hostname elsewhere && exec "$@"',
    "sh",
)

pytestmark = pytest.mark.skipif(
    subprocess.run([*ELSEWHERE, "true"], capture_output=True).returncode != 0, reason="needs namespaces"
)


def there(cli, *args, code=0):
    """The output of a command on the other host."""
    command = [*ELSEWHERE, sys.executable, "-m", "forkpoint.cli", *args]
    done = subprocess.run(command, cwd=cli.directory, env=cli.env, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_job_is_listed_saved_and_stopped_from_another_host(cli):
    cli.json("run", "-d", "digits.py")
    assert " running " in there(cli, "list")
    there(cli, "savepoint", "digits", "--label", "mine")
    saved = there(cli, "stop", "digits", "--drain")
    assert "mine" in cli("savepoints", "digits").stdout
    assert saved.splitlines()[-1].rsplit("/", 1)[1] in cli("savepoints", "digits").stdout
    assert "is not running: its last run" in there(cli, "stop", "digits", code=5)
    assert "was stopped" in there(cli, "cancel", "digits", code=5)
    assert not list((cli.directory / ".forkpoint").rglob("requests/*"))
    assert not list((cli.directory / ".forkpoint").rglob("answers/*"))


def test_a_job_is_cancelled_from_another_host(cli):
    started = cli.json("run", "-d", "digits.py")
    assert f"run {started['run']}: cancelled" in there(cli, "cancel", "digits")
    assert "cancelled" in there(cli, "list", "-a")


@pytest.mark.slow
def test_a_job_is_upgraded_and_forked_from_another_host(cli):
    old = cli.json("run", "-d", "digits.py")
    fork = cli.start("fork", "digits", "digits.py", "--name", "copy", "-d")
    assert fork.wait() == 0
    cli("cancel", "copy")
    # The new driver runs where the command does, and ends with that host's processes.
    script = "forkpoint upgrade digits digits.py -n && forkpoint list && forkpoint cancel digits".replace(
        "forkpoint ", f"{sys.executable} -m forkpoint.cli "
    )
    done = subprocess.run([*ELSEWHERE, "sh", "-c", script], cwd=cli.directory, env=cli.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " running " in done.stdout
    listed = cli("list", "-a").stdout
    assert [word for word in ("stopped", "cancelled") if word in listed] == ["stopped", "cancelled"]
    assert old["run"] in listed


@pytest.mark.slow
def test_a_driver_on_another_host_that_was_killed_is_not_taken_for_alive(cli):
    started = cli.json("run", "-d", "digits.py")
    os.killpg(started["pid"], signal.SIGKILL)
    assert "elsewhere" in there(cli, "list")
    message = there(cli, "stop", "digits", code=5)
    assert "and does not answer: its driver was killed, or cannot reach the state root" in message
    assert len(endpoints(open_storage(cli.directory / ".forkpoint"))) == 1
