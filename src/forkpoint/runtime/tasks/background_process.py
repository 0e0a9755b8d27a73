"""A process of low priority beside the driver's, for large work that no epoch waits for.

On one host, epochs share the driver's process (on the local engine) or its cores with what runs beside them. In a process of its
own, this work holds no lock of theirs; and the system runs it when nothing else needs the core, but never not at all.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from forkpoint import logs
from forkpoint.errors import JobFailed
from forkpoint.runtime.tasks.task_log import background_task_log

NICENESS = 4
"""Two fifths of the weight of others: of two busy cores, it takes less than a sixth."""
_START = f"import sys, json; sys.path[:] = json.loads(sys.argv[1]); from {__name__} import serve; serve()"


@dataclass
class BackgroundProcess:
    """Starts with the first call, and ends with ``close``. Thread-safe; one call at a time."""

    _process: subprocess.Popen[bytes] | None = None
    _calling: threading.Lock = field(default_factory=threading.Lock)

    def run(self, fn: Callable[[bytes], bytes], arguments: Sequence[bytes]) -> list[bytes]:
        """``[fn(each) for each in arguments]``. ``fn`` is of an importable module, and needs nothing of the program. Raises
        JobFailed if it raises, or the process is gone."""
        call = fn, logs.TaskLogging(logs.chosen(), "all", levels=logs.levels()), dict(logs.about_here())
        return [self._call(pickle.dumps((*call, each))) for each in arguments]

    def _call(self, message: bytes) -> bytes:
        with self._calling:
            process = self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                pickle.dump(message, process.stdin)  # which says where it ends
                process.stdin.flush()
                failed, answer = pickle.load(process.stdout)  # a bool, and bytes
            except (OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
                self.close()
                raise JobFailed(f"the process for work beside epochs has ended ({process.wait()}); out of memory?") from error
        if failed:
            raise JobFailed(answer.decode())
        result: bytes = answer
        return result

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
    waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        with suppress(EOFError, OSError, pickle.UnpicklingError):
            while True:
                waiting.put(pickle.load(calls))
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        answer = pickle.dumps(_answered(waiting.get()))
        with suppress(OSError):
            answers.write(answer)
            answers.flush()


def _answered(message: bytes) -> tuple[bool, bytes]:
    """Whether the call has failed; and its result, or the text of its failure."""
    try:
        fn, logging, about, argument = pickle.loads(message)
        with background_task_log(logging, about):
            return False, fn(argument)
    except BaseException:
        return True, traceback.format_exc().encode()
