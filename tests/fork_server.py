"""The process that Python programs of tests are forked from. Its modules are loaded, which takes a second in a new process.

It is started by ``programs.py`` with the number of a socket. A message there is a ``Request`` in JSON; with it come the program's
standard input, output and errors, the files that it keeps, the socket for more requests, and one of its own, to which its process
id goes at once, and its exit code when it has ended.

``forkpoint`` that a program starts is forked, too, such as the driver of ``run -d``; but not by a supervisor, whose child it is.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from runpy import run_module
from types import ModuleType
from typing import Any, NoReturn, TypedDict

END = b"end"
_MESSAGE_BYTES, _FILES = 1 << 20, 16
MODULES = [
    "forkpoint.public",
    "forkpoint.api.execution",
    "forkpoint.cli.command",
    "forkpoint.cli.commands.jobs",
    "forkpoint.cli.commands.run",
    "forkpoint.cli.commands.savepoints",
    "forkpoint.cli.commands.state",
    "forkpoint.cli.commands.upgrade",
    "forkpoint.cli.commands.upkeep",
    "forkpoint.driver.serve.endpoint_publisher",
    "forkpoint.operations.jobs.lineage",
    "forkpoint.operations.launch.detached",
    "forkpoint.operations.launch.foreground",
    "forkpoint.operations.saved_state.catalog",
    "forkpoint.operations.versions.upgrade",
    "forkpoint.protocol.endpoint",
    "forkpoint.protocol.port",
    "forkpoint.driver.start.programs",
    "forkpoint.local.executor",
    "forkpoint.runtime.tasks.entry_points",
    "forkpoint.runtime.tasks.source_task",
    "forkpoint.runtime.tasks.stage_task",
    "forkpoint.savepoint.inspect.sql",
    "forkpoint.state.lmdb_store",
    "certifi",
    "confluent_kafka",
    "encodings.idna",
    "httpcore",
    "httpx",
    "pandas",
    "programs",
    "sqlalchemy",
    "uvicorn.lifespan.off",
    "uvicorn.loops.asyncio",
    "uvicorn.protocols.http.h11_impl",
]


class Request(TypedDict):
    """``arguments``: as after ``python``: a file, ``-m`` and a module or ``-c`` and a text, and what these get; before it,
    ``-P`` and ``-W ignore``. ``loading``: more modules to load, once for all who ask for them. ``kept``: the
    numbers of the files that it keeps."""

    arguments: list[str]
    directory: str
    environment: dict[str, str]
    session: bool
    loading: list[str]
    kept: list[int]


def serve(control: socket.socket) -> tuple[Request, socket.socket]:
    """Returns in each child, with what it is to run and the socket for requests; this process ends when nobody is there to ask
    any more. Who has asked for a child may be gone before it has started."""
    running: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready in running:
                pid, channel = running.pop(ready)
                poll.unregister(ready)
                os.close(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with channel, suppress(OSError):
                    channel.send(b"%d" % code)
                continue
            message, fds, *_ = socket.recv_fds(control, _MESSAGE_BYTES, _FILES, socket.MSG_CMSG_CLOEXEC)
            if message in (b"", END):
                sys.exit()
            request: Request = json.loads(message)
            for module in request["loading"]:
                import_module(module)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # about a thread of jemalloc, which starts it again
                pid = os.fork()
            if pid:
                channel = socket.socket(fileno=fds.pop())
                for fd in fds:
                    os.close(fd)
                pidfd = os.pidfd_open(pid)
                running[pidfd] = pid, channel
                poll.register(pidfd, select.POLLIN)
                with suppress(OSError):
                    channel.send(b"%d" % pid)
                continue
            for fd in (fds.pop(), control.detach(), *running, *(channel.detach() for _, channel in running.values())):
                os.close(fd)
            requests = socket.socket(fileno=_above(fds.pop(), request["kept"]))
            files = [_above(fd, request["kept"]) for fd in fds]
            for number, fd in zip([0, 1, 2, *request["kept"]], files, strict=True):
                os.dup2(fd, number)
                os.close(fd)
            return request, requests


def _above(fd: int, numbers: list[int]) -> int:
    """The file at a number that is none of these."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max([2, *numbers]) + 1)
    os.close(fd)
    return moved


def become(request: Request, kept_path: list[str]) -> None:
    """What a new process has of its own: as of ``python``."""
    if request["session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.stdout.reconfigure(line_buffering=os.isatty(1) or "PYTHONUNBUFFERED" in os.environ)  # type: ignore[union-attr]
    sys.orig_argv[:] = [sys.executable, *request["arguments"]]
    sys.path[:] = [*_directories(), *kept_path]


def fork_forkpoint(requests: socket.socket) -> None:
    import programs

    programs.serve_by(requests)
    subprocess.Popen = programs.popen  # type: ignore[assignment, misc]


class _Safe:
    """Python's flags, with ``-P``."""

    safe_path = True

    def __init__(self, others: Any) -> None:
        self._others = others

    def __getattr__(self, name: str) -> Any:
        return getattr(self._others, name)


def run(first: str, *more: str) -> None:
    if first == "-W":
        action, *arguments = more
        warnings.simplefilter(action)  # type: ignore[arg-type]
        run(*arguments)
    elif first == "-P":
        sys.flags = _Safe(sys.flags)
        run(*more)
    elif first == "-m":
        sys.argv = list(more)
        if not sys.flags.safe_path:
            sys.path.insert(0, os.getcwd())
        run_module(more[0], run_name="__main__", alter_sys=True)
    else:
        _run_text(first, *more)


def _run_text(first: str, *more: str) -> None:
    module = sys.modules["__main__"] = ModuleType("__main__")
    module.__dict__["__builtins__"] = __builtins__
    if first == "-c":
        sys.argv = ["-c", *more[1:]]
        sys.path.insert(0, "")
        code = compile(more[0], "<string>", "exec", dont_inherit=True)
    else:
        sys.argv = [first, *more]
        sys.path.insert(0, os.path.dirname(os.path.realpath(first)))
        module.__file__ = first
        code = compile(Path(first).read_bytes(), first, "exec", dont_inherit=True)
    try:
        exec(code, module.__dict__)
    except Exception as error:
        shown = error.__traceback__.tb_next if error.__traceback__ else None  # without this file's line
        sys.excepthook(type(error), error.with_traceback(shown), shown)
        sys.exit(1)


def end(code: int) -> NoReturn:
    """End this process as Python does, but for freeing its objects one by one: that would write to all memory that it shares with
    its parent, which takes a tenth of a second."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)  # which says so
    os._exit(code & 0xFF)


def preload() -> list[str]:
    """Load what programs use; nothing that starts threads, which a fork does not have. The paths that each has after its own."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    path = sys.path[1:]
    for directory in _directories():
        if directory in path:
            path.remove(directory)
    for module in MODULES:
        import_module(module)
    sys.path[:] = path
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    return path


def _directories() -> list[str]:
    return [os.path.abspath(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    path = preload()
    request, requests = serve(socket.socket(fileno=int(sys.argv[1])))
    become(request, path)
    fork_forkpoint(requests)
    code = 0
    try:
        run(*request["arguments"])
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        code = ended.code or 0
    end(code)
