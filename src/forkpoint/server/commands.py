"""Commands that execute programs run in processes of their own: a program may do what it likes to the process that it is in."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from forkpoint import logs
from forkpoint.errors import ForkpointError
from forkpoint.operations.observer import Observer
from forkpoint.operations.roots import StateRoot

_RESULTS = (0, 3, 4)  # also: the new program has failed and the old one runs, and the program does not fit


class CommandFailed(ForkpointError):
    """A command failed. ``code``: its error's name."""

    def __init__(self, code: str, message: str, details: str | None) -> None:
        super().__init__(message if details is None else f"{message}\n{details}")
        self.code = code


def run_command(root: StateRoot, arguments: Sequence[str], observer: Observer) -> dict[str, Any]:
    """The result of a ``forkpoint`` command, as it prints it with ``--output json``; what it says meanwhile are remarks."""
    command = [sys.executable, "-P", "-m", "forkpoint.cli", "--state-root", root.place, "--output", "json"]
    command += ["--log-format", logs.chosen(), *arguments]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip
    said: list[str] = []

    def listen() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if not line.startswith("{"):
                observer.remark(line.rstrip())

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    assert process.stdout is not None
    printed = process.stdout.read()
    code = process.wait()
    listener.join()
    if code in _RESULTS and (result := _parsed(printed)) is not None:
        return result
    raise _failure(code, said)


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else {"result": found}


def _failure(code: int, said: Sequence[str]) -> CommandFailed:
    for line in reversed(said):
        error = (_parsed(line) or {}).get("error") if line.startswith("{") else None
        if isinstance(error, dict):
            return CommandFailed(str(error.get("code")), str(error.get("message")), error.get("details"))
    return CommandFailed("Failed", f"the command ended with exit code {code}", "".join(said[-20:]) or None)
