"""The process that Python programs of tests are forked from. Its modules are loaded, which takes a second in a new process.

It is started by ``programs.py`` with the number of a socket. A message there is a ``Request`` in JSON; with it come the program's
standard input, output and errors, and a socket of its own, to which its process id goes at once, and its exit code when it has
ended.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path
from runpy import run_module
from types import ModuleType
from typing import TypedDict

MESSAGE_BYTES = 1 << 20
MODULES = [
    "forkpoint.public", "forkpoint.api.execution", "forkpoint.cli.command", "forkpoint.control.endpoint",
    "forkpoint.control.recording", "forkpoint.local.executor", "forkpoint.runtime.tasks.entry_points",
    "forkpoint.runtime.tasks.source_task", "forkpoint.runtime.tasks.stage_task", "forkpoint.state.lmdb_store",
    "confluent_kafka", "pandas", "sqlalchemy",
]  # fmt: skip


class Request(TypedDict):
    """``arguments``: as after ``python``: a file, ``-m`` and a module or ``-c`` and a text, and what these get; before it,
    ``-W ignore``. ``loading``: more modules to load, once for all who ask for them."""

    arguments: list[str]
    directory: str
    environment: dict[str, str]
    session: bool
    loading: list[str]


def serve(control: socket.socket) -> Request:
    """Returns in each child, with what it is to run; this process ends when nobody is there to ask any more."""
    running: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready in running:
                pid, channel = running.pop(ready)
                poll.unregister(ready)
                os.close(ready)
                channel.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                channel.close()
                continue
            message, fds, *_ = socket.recv_fds(control, MESSAGE_BYTES, 4, socket.MSG_CMSG_CLOEXEC)
            if not message:
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
                channel.send(b"%d" % pid)
                continue
            for number, fd in enumerate(fds[:3]):
                os.dup2(fd, number)
            for fd in (*fds, control.detach(), *running, *(channel.detach() for _, channel in running.values())):
                os.close(fd)
            return request


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
    sys.path[:] = [*_directories(), *kept_path]


def run(first: str, *more: str) -> None:
    if first == "-W":
        action, *arguments = more
        warnings.simplefilter(action)  # type: ignore[arg-type]
        run(*arguments)
    elif first == "-m":
        sys.argv = list(more)
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
    return path


def _directories() -> list[str]:
    return [os.path.abspath(each) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    path = preload()
    request = serve(socket.socket(fileno=int(sys.argv[1])))
    become(request, path)
    run(*request["arguments"])
