"""Measures the memory that tasks take, for a job with a memory limit."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from forkpoint.runtime.exchange.control import Memory

SAMPLE_SECONDS = 0.01
_STATM = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def own_bytes() -> int:
    """The resident memory of this process without mapped files, which the system can drop; 0 where it cannot be measured."""
    try:
        _, resident, shared = _STATM.read_bytes().split()[:3]
    except OSError:
        return 0
    return (int(resident) - int(shared)) * _PAGE


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "malloc_trim") else None


def release_unused() -> None:
    """Return memory that this process has freed to the system."""
    pa.default_memory_pool().release_unused()
    if (libc := _libc()) is not None:
        libc.malloc_trim(0)


class Watch:
    """The memory of this process since the watch began."""

    def __init__(self, limit_bytes: int) -> None:
        release_unused()
        self._limit = limit_bytes
        self._before = self._peak = own_bytes()

    def look(self) -> None:
        self._peak = max(self._peak, own_bytes())

    def report(self) -> Memory:
        self.look()
        return Memory(f"{socket.gethostname()}:{os.getpid()}", self._before, self._peak, self._limit)


@contextmanager
def watched(limit_bytes: int | None) -> Iterator[Watch | None]:
    """Watch the memory within the block, if it is limited."""
    if limit_bytes is None:
        yield None
        return
    watch, ended = Watch(limit_bytes), threading.Event()

    def work() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            watch.look()

    thread = threading.Thread(target=work, name="forkpoint-memory", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        ended.set()
        thread.join()
