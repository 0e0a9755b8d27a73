"""The local store of a subtask: an ordered map of bytes to bytes with a version.

A store is a cache of committed state. It advances only with committed changes, so it may be behind or missing, but it never
rolls back. A damaged store is cleared and reloaded.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import lt
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from forkpoint.errors import ConfigError, StorageError
from forkpoint.extras import require
from forkpoint.state.shared import forget

if TYPE_CHECKING:
    from forkpoint.state.files import Columns

StoreKind = Literal["lmdb", "rocksdb", "dict"]
Range = tuple[bytes, bytes]  # start <= key < stop


@dataclass(frozen=True, slots=True)
class Changes:
    """Puts and deletes: keys[i] is set to values[i], or deleted if the value is None. The last change of a key wins."""

    keys: list[bytes]
    values: list[bytes | None]

    def __post_init__(self) -> None:
        if len(self.keys) != len(self.values):
            raise ValueError(f"{len(self.keys)} keys but {len(self.values)} values")

    def __len__(self) -> int:
        return len(self.keys)

    def in_order(self) -> Changes:
        """The same changes with distinct keys in order; itself if they are already in order.

        Raises StorageError for an empty key, which no store can hold.
        """
        ordered = self
        if not all(map(lt, self.keys, islice(self.keys, 1, None))):
            last = dict(zip(self.keys, self.values, strict=True))
            keys = sorted(last)
            ordered = Changes(keys, list(map(last.__getitem__, keys)))
        if ordered.keys and not ordered.keys[0]:
            raise StorageError("a store key has at least one byte, got an empty one")
        return ordered


class Found(NamedTuple):
    """Entries of several scans, each in key order. ``counts``: of each scan. Flat, because a million tuples are a burden to the
    garbage collector."""

    counts: list[int]
    keys: list[bytes]
    values: list[bytes]

    @staticmethod
    def of(scans: Iterable[Iterable[tuple[bytes, bytes]]]) -> Found:
        found = Found([], [], [])
        for entries in scans:
            before = len(found.keys)
            for key, value in entries:
                found.keys.append(key)
                found.values.append(value)
            found.counts.append(len(found.keys) - before)
        return found


class StoreSize(NamedTuple):
    """The approximate number of entries and bytes of a store; None if the bytes are unknown."""

    entries: int
    bytes: int | None


class Store(Protocol):
    """The store of a subtask. All methods raise StorageError if the store is damaged or closed.

    Keys have at least one byte, values may be empty. A store may be used by several threads, and by several
    processes if the implementation says so.
    """

    @property
    def version(self) -> int:
        """The epoch whose changes were last applied; 0 for an empty store."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of the keys, in order; None for a missing key. All values are of one version."""

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries with start <= key < stop in key order, all of one version."""

    def occupied(self, ranges: Sequence[Range]) -> list[Range]:
        """The ranges that may have entries. Called before many scans of which most would find nothing."""

    def scan_prefixes(self, prefixes: Sequence[bytes]) -> Found:
        """The entries whose keys begin with each prefix, all of one version. Faster than a scan for each."""

    def apply(self, changes: Changes, version: int, base: int) -> None:
        """Apply the changes and set the version atomically; does nothing if that version was applied before.

        Raises StorageError if the store is not at version `base`.
        """

    def load(self, chunks: Iterable[Columns], version: int) -> None:
        """Fill an empty store (version 0). The store reads as empty until the load is complete.

        A chunk has its keys in order, and no deletes. Fastest if the keys are in order over all chunks. Raises StorageError if
        the store is not empty.
        """

    def size(self) -> StoreSize:
        """The size of the store, as far as it is known without reading the store."""

    def clear(self) -> None:
        """Remove everything; the version becomes 0."""

    def close(self) -> None:
        """Release the store; idempotent. Applied changes stay."""


def check_base(path: object, version: int, base: int) -> None:
    """Raise StorageError unless the store is at the version that changes are based on."""
    if version != base:
        raise StorageError(
            f"local store {path}: changes are for version {base}, the store is at {version}; clear the store and load it again"
        )


def check_load(path: object, current: int, version: int) -> None:
    """Raise StorageError unless a store at version `current` may be loaded as `version`."""
    if current != 0:
        raise StorageError(f"local store {path}: load needs an empty store, this one is at version {current}; clear it")
    if version < 1:
        raise StorageError(f"local store {path}: cannot load version {version}; versions of state begin at 1")


def check_scan(path: object, before: int, version: int) -> None:
    """Raise StorageError if the version of a store has changed during a scan."""
    if before != version:
        raise StorageError(f"local store {path} changed from version {before} to {version} during a scan")


def check_token(path: object, before: bytes, token: bytes) -> None:
    """Raise StorageError if the loader of a store has changed during a load."""
    if before != token:
        raise StorageError(f"local store {path}: another process began to write it during a load")


def open_store(kind: StoreKind, path: str | os.PathLike[str], memory_bytes: int | None = None) -> Store:
    """Open the store in directory `path`, or create an empty one. ``memory_bytes``: about how much memory it may take; None for
    its default.

    Raises StorageError if an existing store is unusable (then `destroy_store` it), ConfigError for an unknown kind.
    """
    # Local imports: a job uses one kind, and worker processes should not load the libraries of the others.
    if kind == "lmdb":
        from forkpoint.state.lmdb_store import LmdbStore

        return LmdbStore(path)
    if kind == "rocksdb":
        require("rocksdict", "the state backend 'rocksdb'")
        from forkpoint.state.rocksdb_store import RocksDbStore

        return RocksDbStore(path, memory_bytes)
    if kind == "dict":
        from forkpoint.state.dict_store import DictStore

        return DictStore(path)
    raise ConfigError(f"unknown state store {kind!r}; use 'lmdb', 'rocksdb' or 'dict'")


def destroy_store(path: str | os.PathLike[str]) -> None:
    """Remove the store of any kind in directory `path`, damaged or not, if it exists.

    Closes this process's stores in the directory. Other processes with an open store keep using the removed files and cannot
    harm the next store at the path.
    """
    forget(path)
    source = Path(path)
    # Renamed first, so that a process that opens the store meanwhile gets a new one, never half of the old one.
    removed = source.with_name(f"{source.name}.removed-{uuid.uuid4().hex}")
    try:
        source.rename(removed)
    except FileNotFoundError:
        return
    except OSError as e:
        raise StorageError(f"local store {source} cannot be removed: {e}") from e
    shutil.rmtree(removed, ignore_errors=True)
