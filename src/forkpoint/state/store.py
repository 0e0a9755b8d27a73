"""The local store of a subtask: an ordered map of bytes to bytes with a version.

A store is a cache of committed state. It is advanced only with committed changes, so it may be behind or missing, but
it never has to roll back, and a damaged one is cleared and loaded again.
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
from typing import Literal, NamedTuple, Protocol

from forkpoint.errors import ConfigError, StorageError
from forkpoint.extras import require
from forkpoint.state.shared import forget

StoreKind = Literal["lmdb", "rocksdb", "dict"]
Range = tuple[bytes, bytes]  # start <= key < stop


@dataclass(frozen=True, slots=True)
class Changes:
    """Puts and deletes: keys[i] is set to values[i], or deleted if that is None. The last change of a key wins."""

    keys: list[bytes]
    values: list[bytes | None]

    def __post_init__(self) -> None:
        if len(self.keys) != len(self.values):
            raise ValueError(f"{len(self.keys)} keys but {len(self.values)} values")

    def __len__(self) -> int:
        return len(self.keys)

    def in_order(self) -> Changes:
        """The same changes in key order, each key once; itself if they are already.

        Raises StorageError if a key is empty: no store can hold it.
        """
        ordered = self
        if not all(map(lt, self.keys, islice(self.keys, 1, None))):
            last = dict(zip(self.keys, self.values, strict=True))
            keys = sorted(last)
            ordered = Changes(keys, list(map(last.__getitem__, keys)))
        if ordered.keys and not ordered.keys[0]:
            raise StorageError("a store key has at least one byte, got an empty one")
        return ordered


class StoreSize(NamedTuple):
    """About how many entries a store has, and how many bytes they take; None if that is unknown."""

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
        """The values of the keys, in their order; None for a missing key. All as of one version."""

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries with start <= key < stop in key order, all as of one version."""

    def occupied(self, ranges: Sequence[Range]) -> list[Range]:
        """The ranges that have entries, and perhaps some without: ahead of scans of which most would find nothing."""

    def apply(self, changes: Changes, version: int, base: int) -> None:
        """Apply the changes and set the version, both or neither; does nothing if that version was applied before.

        Raises StorageError if the store is not at version `base`.
        """

    def load(self, chunks: Iterable[Changes], version: int) -> None:
        """Fill an empty store (version 0). Until that is complete, the store reads as empty.

        Fastest when the keys are in order over all chunks. Raises StorageError if the store is not empty.
        """

    def size(self) -> StoreSize:
        """How much is in the store, as far as that can be told without reading it."""

    def clear(self) -> None:
        """Remove everything; the version becomes 0."""

    def close(self) -> None:
        """Release the store; may be called twice. Applied changes stay."""


def check_base(path: object, version: int, base: int) -> None:
    """Raises StorageError unless the store is at the version that changes are based on."""
    if version != base:
        raise StorageError(
            f"local store {path}: changes are for version {base}, the store is at {version}; clear the store and load it again"
        )


def check_load(path: object, current: int, version: int) -> None:
    """Raises StorageError unless a store at version `current` may be loaded as `version`."""
    if current != 0:
        raise StorageError(f"local store {path}: load needs an empty store, this one is at version {current}; clear it")
    if version < 1:
        raise StorageError(f"local store {path}: cannot load version {version}; versions of state begin at 1")


def check_scan(path: object, before: int, version: int) -> None:
    """Raises StorageError if a store has another version than before in a scan."""
    if before != version:
        raise StorageError(f"local store {path} changed from version {before} to {version} during a scan")


def check_token(path: object, before: bytes, token: bytes) -> None:
    """Raises StorageError if a store has another loader than before in a load."""
    if before != token:
        raise StorageError(f"local store {path}: another process began to write it during a load")


def open_store(kind: StoreKind, path: str | os.PathLike[str]) -> Store:
    """Open the store in directory `path`, or make an empty one there.

    Raises StorageError if an existing store cannot be used (then `destroy_store` it), ConfigError for an unknown kind.
    """
    # Imported here: a job uses one kind, and worker processes should not load the libraries of the others.
    if kind == "lmdb":
        from forkpoint.state.lmdb_store import LmdbStore

        return LmdbStore(path)
    if kind == "rocksdb":
        require("rocksdict", "the state backend 'rocksdb'")
        from forkpoint.state.rocksdb_store import RocksDbStore

        return RocksDbStore(path)
    if kind == "dict":
        from forkpoint.state.dict_store import DictStore

        return DictStore(path)
    raise ConfigError(f"unknown state store {kind!r}; use 'lmdb', 'rocksdb' or 'dict'")


def destroy_store(path: str | os.PathLike[str]) -> None:
    """Remove the store of any kind in directory `path`, damaged or not, if there is one.

    Stores that this process has open on it are closed; other processes that have it open keep using the removed files and
    cannot harm the next store of that name.
    """
    forget(path)
    source = Path(path)
    # Renamed first: a process that opens the store meanwhile gets a new one, never half of the old one.
    grave = source.with_name(f"{source.name}.removed-{uuid.uuid4().hex}")
    try:
        source.rename(grave)
    except FileNotFoundError:
        return
    except OSError as e:
        raise StorageError(f"local store {source} cannot be removed: {e}") from e
    shutil.rmtree(grave, ignore_errors=True)
