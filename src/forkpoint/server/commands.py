"""Runs commands that execute programs in separate processes, because a program may do anything to its process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from forkpoint import logs
from forkpoint.errors import ForkpointError
from forkpoint.operations.observer import Observer
from forkpoint.operations.roots import StateRoot

CHECK_SECONDS = 600.0  # time for a program to define its job
UPGRADE_SECONDS = 60.0  # time at the server's end for an upgrade, which may have stopped a job and be about to restart it
GRACE_SECONDS = 3.0  # time at the server's end for other commands
KILL_SECONDS = 5.0  # from SIGTERM to SIGKILL
HURRIED_SECONDS = 0.5
_RESULTS = (0, 3, 4)  # success; the new program has failed and the old one runs; the program does not fit


class CommandFailed(ForkpointError):
    """A command failed. ``code``: its error's name."""

    def __init__(self, code: str, message: str, details: str | None) -> None:
        super().__init__(message if details is None else f"{message}\n{details}")
        self.code = code


class ServerEnds(ForkpointError):
    """The server ended before the command did."""


class _Running:
    """A command's process, which leads a process group. ``why``: the reason of an early end."""

    def __init__(self, process: subprocess.Popen[str], name: str) -> None:
        self.process, self.name = process, name
        self.why: ForkpointError | None = None

    @property
    def is_over(self) -> bool:
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return True
        return False

    def send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def end(self, why: ForkpointError, hurried: threading.Event) -> None:
        """End all processes of its group, by force if they don't end by themselves; returns once they have ended."""
        self.why = why
        self.send(signal.SIGTERM)
        began = time.monotonic()
        while not self.is_over and time.monotonic() - began < (HURRIED_SECONDS if hurried.is_set() else KILL_SECONDS):
            time.sleep(0.02)
        self.send(signal.SIGKILL)


class Commands:
    """The running commands of a server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[_Running] = set()
        self._closing = False

    def run(
        self, root: StateRoot, arguments: Sequence[str], observer: Observer, limit_seconds: float | None = None
    ) -> dict[str, Any]:
        """The result of a ``forkpoint`` command, from its ``--output json``; its messages become remarks. Raises CommandFailed,
        also after ``limit_seconds``, and ServerEnds."""
        running = self._begin(root, arguments)
        too_long = CommandFailed(
            "TooLong", f"`forkpoint {running.name}` has not ended within {limit_seconds} seconds and was stopped", None
        )
        timer = threading.Timer(limit_seconds or 0, running.end, [too_long, threading.Event()])
        timer.daemon = True
        if limit_seconds is not None:
            timer.start()
        try:
            return _result(running, observer)
        finally:
            timer.cancel()
            with self._lock:
                self._running.discard(running)

    def _begin(self, root: StateRoot, arguments: Sequence[str]) -> _Running:
        with self._lock:
            if self._closing:
                raise ServerEnds("the server is shutting down; try again when it is back")
            running = _Running(_started(root, arguments), arguments[0])
            self._running.add(running)
            return running

    def close(self, hurried: threading.Event) -> None:
        """Start no further command, and end running ones: after ``UPGRADE_SECONDS`` for an upgrade, after ``GRACE_SECONDS`` for
        others, and at once when ``hurried`` is set."""
        with self._lock:
            self._closing = True
        began = time.monotonic()
        ending: list[tuple[_Running, threading.Thread]] = []
        while left := self._left(ending):
            passed = time.monotonic() - began
            for each in left:
                if hurried.is_set() or passed >= (UPGRADE_SECONDS if each.name == "upgrade" else GRACE_SECONDS):
                    why = ServerEnds(f"the server ended before `forkpoint {each.name}`; check its outcome")
                    thread = threading.Thread(target=each.end, args=(why, hurried), daemon=True)
                    thread.start()
                    ending.append((each, thread))
            time.sleep(0.05)
        for _, thread in ending:
            thread.join()

    def _left(self, ending: Sequence[tuple[_Running, threading.Thread]]) -> list[_Running]:
        gone = {each for each, _ in ending}
        with self._lock:
            return [each for each in self._running if each not in gone]


def _started(root: StateRoot, arguments: Sequence[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "forkpoint.cli", "--state-root", root.place, "--output", "json"]
    command += ["--log-format", logs.chosen(), *arguments]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def _result(running: _Running, observer: Observer) -> dict[str, Any]:
    process = running.process
    lines: list[str] = []

    def listen() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
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
    raise running.why or _failure(code, lines)


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else {"result": found}


def _failure(code: int, lines: Sequence[str]) -> CommandFailed:
    for line in reversed(lines):
        error = (_parsed(line) or {}).get("error") if line.startswith("{") else None
        if isinstance(error, dict):
            return CommandFailed(str(error.get("code")), str(error.get("message")), error.get("details"))
    return CommandFailed("Failed", f"the command ended with exit code {code}", "".join(lines[-20:]) or None)
