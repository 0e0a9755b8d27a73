"""Programs of tests that run in processes of their own. They find the modules of the tests (``ENVIRONMENT``).

``run_python`` and ``Python`` are for tests of what a program does, in place of ``subprocess``'s with ``sys.executable``: the
process is forked from one that has forkpoint's modules and those below it loaded (fork_server.py). A test of how a process
starts, of what it loads, or of what it takes from the environment as it starts has a new process of ``subprocess``.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, Self

import fork_server

PATHS = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]


def environment() -> dict[str, str]:
    """For tests that have changed this process's."""
    return os.environ | {"FORKPOINT_ENGINE": "local", "PYTHONPATH": os.pathsep.join(PATHS)}


ENVIRONMENT = environment()
SERVER = ["forkpoint.server.app", "forkpoint.protocol.listener"]
"""What ``forkpoint server`` loads."""


class Python(subprocess.Popen[Any]):
    """``python ARGUMENTS``; these and ``loading`` are a ``fork_server.Request``'s. Other options, and the methods, are those of
    ``subprocess``."""

    def __init__(self, arguments: Sequence[object], *, loading: Sequence[str] = (), **options: Any) -> None:
        self._loading = list(loading)
        self._end = Lock()
        super().__init__([sys.executable, *map(str, arguments)], **options)

    def _execute_child(  # the signature of Popen's, which starts the process
        self,
        args: list[str],
        executable: Any,
        preexec_fn: Any,
        close_fds: Any,
        pass_fds: Sequence[int],
        cwd: Any,
        env: Any,
        startupinfo: Any,
        creationflags: Any,
        shell: Any,
        p2cread: int,
        p2cwrite: int,
        c2pread: int,
        c2pwrite: int,
        errread: int,
        errwrite: int,
        restore_signals: Any,
        gid: Any,
        gids: Any,
        uid: Any,
        umask: Any,
        start_new_session: bool,
        *more: Any,
    ) -> None:
        assert (preexec_fn, shell) == (None, False)
        request = fork_server.Request(
            arguments=args[1:],
            directory=os.path.join(os.getcwd(), cwd or ""),
            environment=dict(os.environ if env is None else env),
            session=start_new_session,
            loading=self._loading,
            kept=list(pass_fds),
        )
        self._channel, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        standard = [given if given >= 0 else own for own, given in enumerate((p2cread, c2pwrite, errwrite))]
        with theirs:
            given = [*standard, *pass_fds, _server().fileno(), theirs.fileno()]
            socket.send_fds(_server(), [json.dumps(request).encode()], given)
        self.pid = int(self._channel.recv(100))
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]

    def __del__(self) -> None:
        """Nothing is left to do for a process that nobody waits for: the server does."""

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        with self._end:
            if self.returncode is None and self._has_ended(0):
                self.returncode = int(self._channel.recv(100))
                self._channel.close()
            return self.returncode

    def _has_ended(self, timeout: float | None) -> bool:
        poll = select.poll()  # select takes the first 1024 files only
        poll.register(self._channel, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))

    def _wait(self, timeout: float | None) -> int:
        while self._internal_poll() is None:
            if not self._has_ended(timeout):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode


_new = subprocess.Popen


def popen(command: Any, **options: Any) -> subprocess.Popen[Any]:
    """``subprocess.Popen``, with drivers that forkpoint starts forked."""
    own = list(command[:4]) == [sys.executable, "-P", "-m", "forkpoint.cli"] and "--supervisor" not in command
    return Python(command[1:], **options) if own else _new(command, **options)


def run_python(
    arguments: Sequence[object], *, capture_output: bool = False, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """``subprocess.run`` with ``Python``."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Python(arguments, **options) as process:
        output = process.communicate()
    done = subprocess.CompletedProcess(process.args, process.returncode, *output)
    if check:
        done.check_returncode()
    return done


def kill_if_running(pids: Iterable[int], mark: str) -> None:
    """End the processes whose command line or working directory has ``mark`` in it. Others have ended, and their number may be
    another process's by now."""
    for pid in pids:
        place = Path(f"/proc/{pid}")
        with suppress(FileNotFoundError, ProcessLookupError):
            if mark in f"{(place / 'cmdline').read_text()}{(place / 'cwd').resolve()}":
                os.kill(pid, signal.SIGKILL)


def serve_by(requests: socket.socket) -> None:
    """For a process that has been forked itself."""
    global _server
    _server = lambda: requests  # noqa: E731


@functools.cache
def _server() -> socket.socket:
    """What takes requests for processes: of this process, and of those that it has forked."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, fork_server.__file__, str(theirs.fileno())]
        process = subprocess.Popen(command, env=environment(), stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    atexit.register(process.wait)
    atexit.register(ours.send, fork_server.END)
    return ours


class Program:
    """One that is killed with its test, at the end of a with statement. It starts at once. Its errors go to a file, so that they
    cannot block it."""

    def __init__(self, program: Path, *arguments: object) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed at the end)
        self._process = Python([program, *arguments], env=ENVIRONMENT, start_new_session=True, stderr=self._errors)

    def wait(self) -> int:
        """Wait for its end; its exit code."""
        return self._process.wait()

    def runs(self) -> None:
        """Fail if it has ended."""
        assert self._process.poll() is None, self.stderr()

    def stderr(self) -> str:
        """The end of what it has written."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-3000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()
