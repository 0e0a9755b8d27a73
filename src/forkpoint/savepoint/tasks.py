"""What the tasks of exports and imports share: payloads, results that may be failures, and running in waves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Generic, TypeVar

import msgspec
from pydantic import BaseModel

from forkpoint.checkpoint.format import verify
from forkpoint.errors import ForkpointError, SavepointCorrupt, error_of
from forkpoint.runtime.tasks.gc_pause import collector_paused
from forkpoint.storage.base import Storage

Task = Callable[[bytes], bytes]
RunTasks = Callable[[Task, Sequence[bytes]], Sequence[bytes]]
"""Runs a function on each argument, in parallel where it can, and returns the results in the same order."""
Progress = Callable[[int, int], None]
"""Told how many of how many tasks are done. What it raises ends the whole."""

A = TypeVar("A")
R = TypeVar("R")

_WAVE = 16  # tasks handed over at once, at least


@dataclass(frozen=True)
class FileRef:
    """A file, or bytes that stand for one. ``path`` is relative to the storage; ``name`` is for messages."""

    name: str
    path: str | None
    inline: bytes | None
    size: int
    checksum: str

    def read(self, storage: Storage) -> bytes:
        """The verified content. Raises NotFound, and SavepointCorrupt naming the file and both values."""
        data = storage.read(self.path) if self.path is not None else self.inline
        if data is None:
            raise SavepointCorrupt(f"{self.name}: has neither a path nor content")
        return verify(data, self.checksum, self.size, self.name)


class _Result(msgspec.Struct):
    value: msgspec.Raw = msgspec.Raw(b"\xc0")  # nil
    error: tuple[str, str] | None = None


encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder(enc_hook=BaseModel.model_dump).encode
"""Makes bytes of plain data with records in it, such as descriptions of states."""
_decode_result = msgspec.msgpack.Decoder(_Result).decode


def decoder_of(kind: type[A]) -> Callable[[bytes], A]:
    """The counterpart of ``encode``."""
    return msgspec.msgpack.Decoder(kind, dec_hook=lambda record, content: record.model_validate(content)).decode


@dataclass(frozen=True)
class TaskOf(Generic[A, R]):
    """A task by its function and the types of its argument and result.

    An error raised on purpose travels as a result, so that it arrives as it was whatever the engine does to exceptions.
    """

    run: Task
    result: type[R]

    def __call__(
        self,
        run_tasks: RunTasks,
        arguments: Sequence[A],
        progress: Progress,
        *,
        parallelism: int = 1,
        done: int = 0,
        total: int | None = None,
    ) -> list[R]:
        """Run all, in waves that keep ``parallelism`` cores busy and between which progress is told.

        ``done`` and ``total`` place these tasks among others.
        """
        total = len(arguments) if total is None else total
        wave = max(_WAVE, 2 * parallelism)
        results: list[R] = []
        progress(done, total)
        for start in range(0, len(arguments), wave):
            blobs = [encode(argument) for argument in arguments[start : start + wave]]
            results += [self._open(blob) for blob in run_tasks(self.run, blobs)]
            progress(done + len(results), total)
        return results

    def _open(self, blob: bytes) -> R:
        result = _decode_result(blob)
        if result.error is not None:
            raise error_of(*result.error)
        return msgspec.msgpack.decode(result.value, type=self.result)


def task(argument: type[A]) -> Callable[[Callable[[A], Any]], Task]:
    """Make a function of bytes out of one that takes and returns plain data."""

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
    """Run tasks one after the other in this process: for what needs no engine."""
    return [function(argument) for argument in arguments]


def no_progress(done: int, total: int) -> None:
    return None
