"""A resident task: a Spark task that takes the work of epoch after epoch from the driver, over a connection that it opens.

Both sides prove that they know the run's key (as Spark's own tasks do with their driver) before either sends anything else.
"""

from __future__ import annotations

import os
import pickle
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

import msgspec

from forkpoint.decoders import msgpack_decoder
from forkpoint.runtime.exchange.control import EpochContext, decode_context, decode_part
from forkpoint.runtime.exchange.wire import ChunkRow
from forkpoint.runtime.tasks.worker import rest_worker
from forkpoint.spark.failures import TaskFailure
from forkpoint.spark.host_rows import fetched, left
from forkpoint.spark.tasks import Job, JobHandle, task_body

NOTIFY = -1
"""The stage of a notification that an epoch is complete."""
CONNECT_S = 10.0
_CALL_S = 5.0  # for a last call; whoever repeats it fences it, as always
_KEEP_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A host that vanishes without a word is noticed after 25 seconds."""


class Work(msgspec.Struct, frozen=True, array_like=True):
    """The work of one task in one stage of an epoch. ``context`` and ``part``: of ``divide``, encoded. ``plans``: those of source
    tasks, by the number of the task. ``rows``: the input of a later stage. ``exchange``: the directory of large
    rows, if all tasks share a host."""

    stage: int
    context: str
    part: bytes
    plans: dict[int, bytes] = {}
    rows: list[tuple[int, int, int, bytes]] = []
    exchange: str = ""


class Call(msgspec.Struct, frozen=True, array_like=True):
    """A call beside epochs: a pickled ``BackgroundStage`` and its argument."""

    stage: bytes
    argument: bytes


class Done(msgspec.Struct, frozen=True, array_like=True):
    """The output of a task or the result of a call, or the text of its failure (see `failures`)."""

    rows: list[tuple[int, int, int, bytes]] = []
    result: bytes = b""
    failure: str | None = None


encode = msgspec.msgpack.Encoder().encode
decode_work, decode_call, decode_done = msgpack_decoder(Work), msgpack_decoder(Call), msgpack_decoder(Done)
HELLO = struct.Struct("!i?")
"""The first message of a connection: the subtask, and whether the connection is for calls."""


def connected(sock: socket.socket, key: bytes, *, accepted: bool) -> Connection:
    """A connection whose other side knows the key; that takes at most ``CONNECT_S`` seconds. ``accepted``: the other side has
    opened it. Raises OSError, EOFError, or AuthenticationError."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        if hasattr(socket, name):  # Linux
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    sock.settimeout(None)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(CONNECT_S))
    connection = Connection(sock.detach())
    try:
        for step in (deliver_challenge, answer_challenge) if accepted else (answer_challenge, deliver_challenge):
            step(connection, key)
        with socket.socket(fileno=os.dup(connection.fileno())) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(0))
    except BaseException:
        connection.close()
        raise
    return connection


def _timeval(seconds: float) -> bytes:
    return struct.pack("ll", int(seconds), 0)


@dataclass(frozen=True, slots=True)
class ResidentStage:
    """All stages of a subtask, as a function over an RDD partition. It ends when the driver closes the connection."""

    handle: JobHandle
    address: tuple[str, int]
    key: bytes

    def __call__(self, subtask: int, items: Iterator[bytes]) -> Iterator[bytes]:
        for _ in items:
            pass
        job = self.handle.open()
        with closing(self._connection(subtask, calls=False)) as epochs, closing(self._connection(subtask, calls=True)) as calls:
            called = threading.Thread(target=_serve, args=(calls, _call), name="forkpoint-calls", daemon=True)
            called.start()
            _serve(epochs, lambda message: self._done(job, subtask, decode_work(message)))
            rest_worker(job.spec.run)
        called.join(_CALL_S)
        yield b""

    def _connection(self, subtask: int, *, calls: bool) -> Connection:
        driver = connected(socket.create_connection(self.address, CONNECT_S), self.key, accepted=False)
        driver.send_bytes(HELLO.pack(subtask, calls))
        return driver

    def _done(self, job: Job, subtask: int, work: Work) -> Done:
        where = f"stage {work.stage}, subtask {subtask}" if work.stage else f"stage 0, source tasks {sorted(work.plans)}"
        try:
            with task_body(where, self.handle.token):
                return Done(_run(job, subtask, work))
        except TaskFailure as failure:
            return Done(failure=str(failure))


def _serve(driver: Connection, answer: Callable[[bytes], Done]) -> None:
    """Answer the driver's messages until it needs this task's core, or is gone."""
    with suppress(EOFError, OSError):
        while True:
            driver.send_bytes(encode(answer(driver.recv_bytes())))


def _call(message: bytes) -> Done:
    call = decode_call(message)
    try:
        return Done(result=next(pickle.loads(call.stage)(0, iter([call.argument]))))
    except TaskFailure as failure:
        return Done(failure=str(failure))


def _run(job: Job, subtask: int, work: Work) -> list[ChunkRow]:
    common = decode_context(work.context)

    def sent(rows: Iterable[ChunkRow]) -> list[ChunkRow]:
        return list(left(rows, work.exchange) if work.exchange else rows)

    if work.stage == 0:
        tasks = work.plans.items()
        return sent(row for task, plan in tasks for row in job.runtime.run_source_task(job.spec, common, task, plan))
    context: EpochContext = decode_part(work.part).joined(common, subtask)
    if work.stage == NOTIFY:
        job.runtime.notify_subtask(job.spec, context, subtask)
        return []
    rows = fetched(work.rows, work.exchange) if work.exchange else work.rows
    return sent(job.runtime.run_subtask(job.spec, context, work.stage, subtask, rows))
