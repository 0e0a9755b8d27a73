"""Runs the tasks of exports, imports and edits in waves; encodes their arguments, results and errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Generic, TypeVar

import msgspec

from forkpoint.checkpoint.format import verify
from forkpoint.decoders import msgpack_decoder
from forkpoint.errors import ForkpointError, SavepointCorrupt, error_of
from forkpoint.runtime.tasks.gc_pause import collector_paused
from forkpoint.storage.base import Storage

Task = Callable[[bytes], bytes]
RunTasks = Callable[[Task, Sequence[bytes]], Sequence[bytes]]
"""Runs a function on each argument, in parallel where possible, and returns the results in the same order."""
Progress = Callable[[int, int], None]
"""Called with the numbers of completed tasks and of all tasks. An exception from it aborts the operation."""

A = TypeVar("A")
R = TypeVar("R")

_WAVE = 16  # fewest tasks submitted at once


@dataclass(frozen=True)
class FileRef:
    """A file, or inline content. ``path`` is relative to the storage; ``name`` is for messages."""

    name: str
    path: str | None
    inline: bytes | None
    size: int
    checksum: str

    def read(self, storage: Storage) -> bytes:
        """The verified content. Raises NotFound, and SavepointCorrupt naming the file, the actual and the expected value."""
        return verify(self.content(storage), self.checksum, self.size, self.name)

    def content(self, storage: Storage) -> bytes:
        """The content, not verified. Raises NotFound."""
        data = storage.read(self.path) if self.path is not None else self.inline
        if data is None:
            raise SavepointCorrupt(f"{self.name}: has neither a path nor content")
        return data


class _Result(msgspec.Struct):
    value: msgspec.Raw = msgspec.Raw(b"\xc0")  # nil
    error: tuple[str, str] | None = None


encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
"""Encodes dataclasses, which may contain records such as ``StateInfo``."""
_decode_result = msgpack_decoder(_Result)


def decoder_of(kind: type[A]) -> Callable[[bytes], A]:
    """The inverse of ``encode`` for a type."""
    return msgpack_decoder(kind)


@dataclass(frozen=True)
class TaskOf(Generic[A, R]):
    """A task with typed arguments and results."""

    run: Task
    result: type[R]

    def open(self, blob: bytes) -> R:
        """The result of a run. Raises the ForkpointError that the task raised."""
        result = _decode_result(blob)
        if result.error is not None:
            raise error_of(*result.error)
        return self._decode(result.value)

    @cached_property
    def _decode(self) -> Callable[[bytes], R]:
        return decoder_of(self.result)


@dataclass
class TaskRunner:
    """Runs an operation's ``total`` tasks, in waves that keep ``parallelism`` cores busy; reports progress after each wave."""

    run_tasks: RunTasks
    progress: Progress
    total: int
    parallelism: int = 1
    done: int = 0

    def __call__(self, task: TaskOf[A, R], arguments: Sequence[A]) -> list[R]:
        """The results, in the order of the arguments."""
        wave = max(_WAVE, 2 * self.parallelism)
        results: list[R] = []
        self.advance(0)
        for start in range(0, len(arguments), wave):
            blobs = self.run_tasks(task.run, [encode(argument) for argument in arguments[start : start + wave]])
            results += map(task.open, blobs)
            self.advance(len(blobs))
        return results

    def advance(self, completed: int) -> None:
        self.done += completed
        self.progress(self.done, self.total)


def task(argument: type[A]) -> Callable[[Callable[[A], Any]], Task]:
    """Decorates a function of one dataclass to take and return bytes. A ForkpointError becomes a result, so it reaches the
    caller unchanged however the engine treats exceptions."""

    def wrap(function: Callable[[A], Any]) -> Task:
        decode = decoder_of(argument)

        @wraps(function)
        def run(data: bytes) -> bytes:
            try:
                with collector_paused():
                    return encode(_Result(value=msgspec.Raw(encode(function(decode(data))))))
            except ForkpointError as error:
                return encode(_Result(error=(type(error).__name__, str(error))))

        return run

    return wrap


def run_here(function: Task, arguments: Sequence[bytes]) -> list[bytes]:
    """Run tasks one after the other in this process."""
    return [function(argument) for argument in arguments]


def no_progress(done: int, total: int) -> None:
    pass
