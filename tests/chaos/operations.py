"""Faults at a job's own operations on files: the process looks over its own shoulder, through Python's audit events.

So nothing of forkpoint's is wrapped: whatever opens, links, renames or removes a file below the job's directory passes here
first, today's code and tomorrow's, and can be killed there, put to sleep, or told that the disk is full.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

PUBLISHING = 4  # epochs: not all of them have output for each sink
Action = Literal["kill", "sleep", "full"]

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGES = ("os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")
_GROWS = ("open", "os.rename", "os.link", "os.mkdir")
_READS = ("open", "os.listdir", "os.scandir")
_COMMANDS = re.compile(r"/runs/[^/]+/(requests|answers)(/|$)")  # looked for once a second, by a thread of its own
_COLLECTED = re.compile(r"/state/jobs/[^/]+/(checkpoints|changelog|snapshots)/")


@dataclass(frozen=True)
class Fault:
    """What happens at operation ``at`` of a phase, counted from 1: of "start", "takeover" (of a start, once it has looked for
    manifests), "epoch", "publish", "snapshot", "collect", "savepoint", "stop", "drain", "cancel", or of "any".

    A kill and a full disk come at operations that change something; a sleep at those that only read, too. ``lasting``: at how
    many operations on end the disk is full.
    """

    action: Action
    phase: str
    at: int
    lasting: int = 1

    def __str__(self) -> str:
        return f"{self.action} at operation {self.at} of {self.phase}"


class Operations:
    """Sees this process's operations below a directory, and its steps; does what the fault says."""

    def __init__(self, directory: str, fault: Fault | None, *, epoch: int = 2) -> None:
        self._inside = os.path.join(directory, "")
        self._outside = (os.path.join(directory, "tmp"), os.path.join(directory, "input"))
        self._fault = fault
        self._epoch = epoch
        self._epochs = 0
        self._active: set[str] = {"start", "any"}
        self._over: set[str] = set()
        self._main = threading.main_thread().ident
        self._lock = threading.Lock()
        self.changes: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()

    def watch(self) -> None:
        sys.addaudithook(self._on_event)

    # -- phases

    def begin(self, phase: str) -> None:
        if phase not in self._over:
            self._active.add(phase)

    def end(self, phase: str) -> None:
        if phase in self._active:
            self._active.discard(phase)
            self._over.add(phase)

    def on_step(self, step: str, epoch: int) -> None:
        """Called by the driver as its epochs go by."""
        if step == "planned":
            self._epochs += 1
            self.end("start")
            self.end("takeover")
            self.end("collect")
            if self._epochs == self._epoch:
                self.begin("epoch")
        elif step == "committed" and self._epoch <= self._epochs < self._epoch + PUBLISHING:
            self.begin("publish")
        elif step == "published":
            self.end("epoch")
            self._active.discard("publish")  # of each of these epochs
            self.end("snapshot")

    # -- operations

    def _on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _CHANGES and event not in _READS:
            return
        path = arguments[0]
        if not isinstance(path, str | os.PathLike):
            return
        path = os.fspath(path)
        if not isinstance(path, str) or not path.startswith(self._inside) or path.startswith(self._outside):
            return
        if threading.get_ident() == self._main or _COMMANDS.search(path):  # the first are the harness's own
            return
        changes = event in _CHANGES or (event == "open" and bool(arguments[2] & _WRITES))
        self._on_operation(event, path, changes)

    def _on_operation(self, event: str, path: str, changes: bool) -> None:
        with self._lock:
            if changes and "/snapshots/" in path and "start" not in self._active and event == "open":
                self.begin("snapshot")
            if event == "os.remove" and "start" not in self._active and _COLLECTED.search(path):
                self.begin("collect")
            active = set(self._active)
            if path.endswith("/checkpoints") and "start" in active:
                self.begin("takeover")  # from the next one on it has seen its predecessors' manifests
            for phase in active:
                (self.changes if changes else self.reads)[phase] += 1
            fault = self._fault
            if fault is None or fault.phase not in active:
                return
            number = self.changes[fault.phase] + (self.reads[fault.phase] if fault.action == "sleep" else 0)
            if fault.action == "full":
                due = fault.at <= number < fault.at + fault.lasting and changes and event in _GROWS
            else:
                due = number == fault.at and (changes or fault.action == "sleep")
        if not due:
            return
        if fault.action == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        # A signal to the process may find another thread first, and this one would go on until that wakes up.
        signal.pthread_kill(threading.get_ident(), signal.SIGKILL if fault.action == "kill" else signal.SIGSTOP)
