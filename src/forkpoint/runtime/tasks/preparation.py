"""Builds the local stores of a layout that does not run yet, concurrently with the epochs of the running layout.

A rescaled job, a standby and a new version start with stores that are a few epochs behind. Their first epoch catches up like any
other epoch, with ``catch_up``. So a store that is missing, or on another host, costs only time.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec

from forkpoint.checkpoint.paths import JobPaths
from forkpoint.decoders import msgpack_decoder
from forkpoint.runtime.exchange.control import CatchUp, JobSpec
from forkpoint.runtime.tasks.committed_state import Share
from forkpoint.runtime.tasks.subtask_store import SubtaskState
from forkpoint.runtime.tasks.worker import open_cache, store_bytes
from forkpoint.state import StoreKind, destroy_store, key_group_range
from forkpoint.storage.base import open_storage
from forkpoint.storage.private import make_own_directory


class Preparation(msgspec.Struct, frozen=True):
    """The store of one subtask, and the committed epoch to catch up with. ``local_dir``: of the layout's ``JobSpec``."""

    job: str
    storage_url: str
    store: StoreKind
    local_dir: str
    subtask: int
    parallelism: int
    max_parallelism: int
    epoch: int
    memory_bytes: int | None = None


decode_preparation = msgpack_decoder(Preparation)
_decode_catch_up: Callable[[bytes], CatchUp | None] = msgpack_decoder(cast(Any, CatchUp | None))


def preparations(spec: JobSpec, epoch: int) -> list[bytes]:
    """The encoded preparations of all subtasks."""
    return [
        msgspec.msgpack.encode(
            Preparation(
                spec.job,
                spec.storage_url,
                spec.store,
                spec.local_dir,
                subtask,
                spec.parallelism,
                spec.max_parallelism,
                epoch,
                spec.memory_bytes,
            )
        )
        for subtask in range(spec.parallelism)
    ]


def prepare_store(encoded: bytes) -> bytes:
    """The task, from an encoded ``Preparation`` to an encoded ``CatchUp`` or None. It holds no changes in memory, because the
    tasks that use the store may run in other processes."""
    work = decode_preparation(encoded)
    directory = Path(work.local_dir) / str(work.subtask)
    make_own_directory(str(directory))
    share = Share(work.subtask, *key_group_range(work.subtask, work.parallelism, work.max_parallelism))
    store = open_cache(work.store, directory, store_bytes(work.memory_bytes))
    try:
        state = SubtaskState(store, open_storage(work.storage_url), JobPaths(work.job), share, memory_bytes=work.memory_bytes)
        caught_up = state.prepare(work.epoch)
    finally:
        store.close()
    return msgspec.msgpack.encode(caught_up)


def catch_ups(encoded: list[bytes]) -> list[CatchUp]:
    """The results of ``prepare_store``, without None."""
    return [result for result in map(_decode_catch_up, encoded) if result is not None]


def remove_stores(local_dir: str) -> None:
    """Remove the local stores of a layout from this host."""
    for store in Path(local_dir).glob("*"):
        destroy_store(store)
    shutil.rmtree(local_dir, ignore_errors=True)
