"""A process of low priority beside the driver's, for large work that no epoch waits for.

On one host, epochs share the driver's process (on the local engine) or its cores with what runs beside them. In a process of its
own, this work holds no lock of theirs; and the system runs it when nothing else needs the core, but never not at all.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any

from forkpoint import logs
from forkpoint.errors import JobFailed
from forkpoint.runtime.tasks.task_log import background_task_log

NICENESS = 4
"""Two fifths of the weight of others: of two busy cores, it takes less than a sixth."""
_START = f"import sys, json; sys.path[:] = json.loads(sys.argv[1]); from {__name__} import serve; serve()"
_LENGTH = struct.Struct(">Q")


@dataclass
class BackgroundProcess:
    """Starts with the first call, and ends with ``close``. Thread-safe; one call at a time."""

    _process: subprocess.Popen[bytes] | None = None
    _calling: threading.Lock = field(default_factory=threading.Lock)

    def run(self, fn: Callable[[bytes], bytes], arguments: Sequence[bytes]) -> list[bytes]:
        """``[fn(each) for each in arguments]``. ``fn`` is of an importable module, and needs nothing of the program. Raises
        JobFailed if it raises, or the process is gone."""
        call = pickle.dumps((fn, logs.TaskLogging(logs.chosen(), "all", levels=logs.levels()), dict(logs.about_here())))
        return [self._call(call, each) for each in arguments]

    def _call(self, call: bytes, argument: bytes) -> bytes:
        with self._calling:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                _send(process.stdin, call)
                _send(process.stdin, argument)
                failed, answer = _receive(process.stdout), _receive(process.stdout)
            except (OSError, EOFError, ValueError) as error:
                self.close()
                raise JobFailed(f"the process for work beside epochs has ended ({process.wait()}); out of memory?") from error
        if failed:
            raise JobFailed(answer.decode())
        return answer

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            command = [sys.executable, "-c", _START, json.dumps(sys.path)]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self._process

    def close(self) -> None:
        """End it, and what it does. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            with suppress(OSError):
                if stream is not None:
                    stream.close()


def serve() -> None:
    """The process: answers calls until the other side is gone, even during a call."""
    import pyarrow as pa

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides
    os.nice(NICENESS)
    pa.set_cpu_count(1)
    calls, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed
    waiting: list[bytes] = []
    there = threading.Condition()

    def read() -> None:
        with suppress(EOFError, OSError):
            while True:
                message = _receive(calls)
                with there:
                    waiting.append(message)
                    there.notify()
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()

    def following() -> bytes:
        with there:
            there.wait_for(lambda: waiting)
            return waiting.pop(0)

    while True:
        failed, answer = _answered(following(), following())
        with suppress(OSError):
            _send(answers, failed)
            _send(answers, answer)


def _answered(call: bytes, argument: bytes) -> tuple[bytes, bytes]:
    """Whether the call has failed, if so as a byte; and its result, or the text of its failure."""
    try:
        fn, logging, about = pickle.loads(call)
        with background_task_log(logging, about):
            return b"", fn(argument)
    except BaseException:
        return b"!", traceback.format_exc().encode()


def _send(to: IO[Any], data: bytes) -> None:
    to.write(_LENGTH.pack(len(data)))
    to.write(data)
    to.flush()


def _receive(of: IO[Any]) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(of, _LENGTH.size))
    return _exactly(of, length)


def _exactly(of: IO[Any], count: int) -> bytes:
    data: bytes = of.read(count)
    if len(data) < count:
        raise EOFError("the other side is gone")
    return data
