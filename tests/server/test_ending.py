"""How a server ends, and what it leaves behind."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path

import pytest
from rest_server import OPERATE, Server

from forkpoint.operations.observer import SILENT
from forkpoint.operations.roots import StateRoot
from forkpoint.server.commands import CommandFailed, Commands
from programs import ENVIRONMENT, run_python

ENDLESS = """
import os, pathlib
pathlib.Path({mark!r}).write_text(str(os.getpid()))
while True:
    pass
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def eventually(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def endless(server: Server, http, mark: Path) -> str:
    program = ENDLESS.format(mark=str(mark))
    return http.post("/v1/programs", params={"name": f"{mark.name}.py"}, content=program).json()["id"]


@pytest.mark.slow
@pytest.mark.parametrize("hurried", [False, True])
def test_programs_that_never_end_end_with_the_server(tmp_path, hurried):
    server = Server(tmp_path)
    marks = [tmp_path / "checked", tmp_path / "started"]
    try:
        with server.client() as http:
            check, start = (endless(server, http, mark) for mark in marks)
            assert http.post("/v1/check", json={"program": check}).status_code == 202
            assert http.post("/v1/jobs", json={"program": start}).status_code == 202
            pids = [int(eventually(lambda mark=mark: mark.exists() and mark.read_text())) for mark in marks]
        assert all(map(is_alive, pids))
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        if hurried:
            time.sleep(0.5)
            server.process.send_signal(signal.SIGTERM)
        server.process.communicate(timeout=20)
        assert time.monotonic() - began < (10 if hurried else 20)
        eventually(lambda: not any(map(is_alive, pids)), 5)
    finally:
        server.close()


@pytest.mark.slow
def test_a_check_that_takes_too_long_is_ended(tmp_path):
    mark = tmp_path / "checked"
    (tmp_path / "endless.py").write_text(ENDLESS.format(mark=str(mark)))
    root = StateRoot(str(tmp_path / "root"))
    limit = 5
    while not mark.exists():  # the program has not begun on a busy machine
        with pytest.raises(CommandFailed, match=f"has not ended within {limit}") as failed:
            Commands().run(root, ["run", str(tmp_path / "endless.py")], SILENT, limit_seconds=limit)
        assert failed.value.code == "TooLong"
        limit *= 2
    assert not is_alive(int(mark.read_text()))


def test_a_port_that_is_taken_is_named(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = ["-m", "forkpoint.cli", "--state-root", str(tmp_path), "server", "--port", str(port)]
        done = run_python(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 1
    assert f"port {port} of 127.0.0.1 is in use" in done.stderr
    assert "--port" in done.stderr
    assert "bug" not in done.stderr


def test_one_token_cannot_have_both_roles(tmp_path):
    environment = ENVIRONMENT | {"FORKPOINT_SERVER_TOKEN": OPERATE, "FORKPOINT_SERVER_READ_TOKEN": OPERATE}
    command = ["-m", "forkpoint.cli", "--state-root", str(tmp_path), "server", "--port", "0"]
    done = run_python(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert "FORKPOINT_SERVER_READ_TOKEN is the same as FORKPOINT_SERVER_TOKEN" in done.stderr
