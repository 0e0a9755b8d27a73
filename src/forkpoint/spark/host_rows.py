"""Large rows of an exchange between tasks of one host: their blobs are in files, and the rows say where.

Through Spark's shuffle, the JVM reads every byte from one Python process, compresses it, writes it to a file, reads it again, and
writes it to another process.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec

from forkpoint.decoders import msgpack_decoder
from forkpoint.errors import StorageUnavailable
from forkpoint.runtime.exchange.wire import ChunkRow
from forkpoint.storage.private import make_own_directory, open_new

LARGE_BYTES = 32 << 10
_ELSEWHERE = -1_000
"""The edge of a row whose blob is in a file is this less its own."""


class _Place(msgspec.Struct, frozen=True, array_like=True):
    file: str
    start: int
    size: int


_encode = msgspec.msgpack.Encoder().encode
_decode = msgpack_decoder(_Place)


def exchange_directory(local_dir: str, name: str) -> str:
    """The directory of an exchange's files, which the first of its tasks makes. ``local_dir``: of the run's stores."""
    return f"{local_dir}/exchange-{name}"


def remove(directory: str) -> None:
    shutil.rmtree(directory, ignore_errors=True)


def left(rows: Iterable[ChunkRow], directory: str) -> Iterator[ChunkRow]:
    """The rows, with large blobs in a file below the directory. Rows of control data stay as they are. Raises StorageUnavailable
    for a full disk."""
    with ExitStack() as stack:
        handle, name, end = -1, "", 0
        for row in rows:
            target, edge, origin, blob = row
            if edge < 0 or len(blob) < LARGE_BYTES:
                yield row
                continue
            if handle < 0:
                make_own_directory(directory)
                name = uuid.uuid4().hex
                handle = open_new(f"{directory}/{name}")
                stack.callback(os.close, handle)
            _write(handle, blob, directory)
            yield target, _ELSEWHERE - edge, origin, _encode(_Place(name, end, len(blob)))
            end += len(blob)


def _write(handle: int, blob: bytes, directory: str) -> None:
    view = memoryview(blob)
    try:
        while view:
            view = view[os.write(handle, view) :]
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise StorageUnavailable(
            f"{Path(directory).parent}: {error.strerror}. Free space there; a paused job then resumes by itself"
        ) from error


def fetched(rows: Iterable[ChunkRow], directory: str) -> Iterator[ChunkRow]:
    """The rows with their blobs."""
    with ExitStack() as stack:
        handles: dict[str, int] = {}
        for row in rows:
            target, edge, origin, blob = row
            if edge > _ELSEWHERE:
                yield row
                continue
            place = _decode(blob)
            if place.file not in handles:
                handles[place.file] = os.open(f"{directory}/{place.file}", os.O_RDONLY | os.O_CLOEXEC)
                stack.callback(os.close, handles[place.file])
            yield target, _ELSEWHERE - edge, origin, _read(handles[place.file], place)


def _read(handle: int, place: _Place) -> bytes:
    data = os.pread(handle, place.size, place.start)
    if len(data) < place.size:  # a signal has interrupted the call, or the file is larger than a call reads
        parts = [data]
        while (done := sum(map(len, parts))) < place.size:
            if not (more := os.pread(handle, place.size - done, place.start + done)):
                raise OSError(errno.EIO, f"{place.file} ends after {place.start + done} bytes")
            parts.append(more)
        data = b"".join(parts)
    return data
