"""A store in RocksDB, for state that outgrows memory. One process at a time; slower than LMDB to open and to read.

Entries are in the default column family. The column family "state" has one row with the phase (loading or ready), the
version and the loader's token, written in the same batch as the entries. The write-ahead log is not synced: it survives a
killed process, but not a crash of the machine.

RocksDB's background threads serve all databases of a process and do not survive a fork. So a process cannot use RocksDB if
its parent has used it before the fork. Spark's worker processes are forked from a daemon that uses no store.
"""

from __future__ import annotations

import os
import struct
import uuid
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import Any, NamedTuple

import rocksdict

from forkpoint.errors import StorageError
from forkpoint.state.files import Columns, as_changes
from forkpoint.state.keys import prefix_stop
from forkpoint.state.shared import Handle, Page, SharedStore, pages
from forkpoint.state.store import Changes, Found, Range, StoreSize, check_base, check_load, check_scan, check_token

_READY, _LOADING = 0, 1
_STATE = struct.Struct(">BQ16s")
_STATE_KEY = b"state"
_NOTHING = Changes([], [])
DEFAULT_MEMORY_BYTES = 96 << 20
_BACKGROUND_JOBS = 2
_KEYS_AT_ONCE = 2048
_SIZES = ("rocksdb.estimate-num-keys", "rocksdb.estimate-live-data-size", "rocksdb.cur-size-all-mem-tables")

_used_by: int | None = None  # the process that started RocksDB's threads, here or before a fork


class _State(NamedTuple):
    phase: int
    version: int
    token: bytes


class _RocksHandle(Handle):
    def __init__(self, path: str, memory_bytes: int) -> None:
        super().__init__(path, "LOCK")
        self._memory_bytes = memory_bytes
        self._db: Any = None
        self._state_family: Any = None
        self._state_handle: Any = None
        self.scans: weakref.WeakSet[_Scan] = weakref.WeakSet()

    def suspend(self) -> None:
        if self._db is None:
            return
        for scan in self.scans:
            scan.rows = None
        self._state_family = self._state_handle = self.identity = None
        db, self._db = self._db, None
        with suppress(Exception):  # close() may write to a full disk; only cached state is lost
            db.close()

    def open(self) -> None:
        with self.use():
            pass

    @contextmanager
    def use(self) -> Iterator[Any]:
        """The database, opened if necessary; its errors become StorageError."""
        with self.lock:
            try:
                if self._db is None:
                    self.check_usable()
                    self._open()
                yield self._db
            except StorageError:
                raise
            except Exception as e:  # rocksdict raises nothing more precise
                if "LOCK" in str(e):
                    raise StorageError(
                        f"local store {self.path} is in use by another process ({e}); "
                        "RocksDB allows one process at a time: end that process or use the lmdb store"
                    ) from e
                raise self.damaged(e) from e

    def _open(self) -> None:
        global _used_by
        if _used_by not in (None, os.getpid()):
            raise StorageError(
                f"local store {self.path}: this process was forked from one that has used RocksDB (pid {_used_by}); "
                "start the process by spawn, or use the lmdb store"
            )
        _used_by = os.getpid()
        os.makedirs(self.path, exist_ok=True)
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        options.set_keep_log_file_num(1)
        tables = rocksdict.BlockBasedOptions()
        tables.set_bloom_filter(10, False)
        # A third for blocks, as keys are read in order and a block is rarely needed again before the next epoch; two buffers.
        tables.set_block_cache(rocksdict.Cache(self._memory_bytes // 3))
        options.set_write_buffer_size(self._memory_bytes // 3)
        options.set_advise_random_on_open(False)  # the system reads ahead
        options.set_max_background_jobs(_BACKGROUND_JOBS)
        options.set_compression_type(rocksdict.DBCompressionType.lz4())
        options.set_block_based_table_factory(tables)
        families = {"state": rocksdict.Options(raw_mode=True)}
        self._db = rocksdict.Rdict(self.path, options=options, column_families=families)
        self._state_family = self._db.get_column_family("state")
        self._state_handle = self._db.get_column_family_handle("state")
        self.identity = self.identify()

    def state(self) -> _State:
        row = self._state_family.get(_STATE_KEY)
        if row is None:
            return _State(_READY, 0, b"")
        if len(row) != _STATE.size:
            raise self.damaged(f"its state row {row.hex()} has {len(row)} bytes instead of {_STATE.size}")
        return _State(*_STATE.unpack(row))

    def write(self, changes: Changes, phase: int, version: int, token: bytes = b"") -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, value in zip(changes.keys, changes.values, strict=True):
            if value is None:
                delete(key)
            else:
                put(key, value)
        put(_STATE_KEY, _STATE.pack(phase, version, token), self._state_handle)
        self._db.write(batch)

    def remove_all(self) -> None:
        rows = self._db.iter()
        rows.seek_to_last()
        batch = rocksdict.WriteBatch(raw_mode=True)
        if rows.valid():
            batch.delete_range(b"", rows.key() + b"\0")
        batch.delete(_STATE_KEY, self._state_handle)
        self._db.write(batch)


class _Scan:
    """The rows of a scan. Open rows prevent closing the database, so the handle can drop them."""

    def __init__(self, store: RocksDbStore) -> None:
        self._store = store
        self._version: int | None = None
        self.rows: Iterator[tuple[bytes, bytes]] | None = None

    def read(self, start: bytes, size: int) -> Page:
        handle = self._store._handle
        with handle.use() as db:
            if self.rows is None:  # the first page, or the process was forked
                state = handle.state()
                if self._version is not None:
                    check_scan(handle.path, self._version, state.version)
                self._version = state.version
                self.rows = iter(()) if state.phase == _LOADING else db.items(from_key=start)
                handle.scans.add(self)
            return list(islice(self.rows, size))


class RocksDbStore(SharedStore[_RocksHandle]):
    """A store in directory `path`. Raises StorageError if another process uses it, or if it is unusable.

    Its blocks and buffers take ``memory_bytes``; the filters of a large state another byte and a half for each entry.
    """

    def __init__(self, path: str | os.PathLike[str], memory_bytes: int | None = None) -> None:
        super().__init__(path, _RocksHandle, lambda real: _RocksHandle(real, memory_bytes or DEFAULT_MEMORY_BYTES))

    @property
    def version(self) -> int:
        handle = self._handle
        with handle.use():
            return handle.state().version

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        handle = self._handle
        with handle.use() as db:
            if handle.state().phase == _LOADING:
                return [None] * len(keys)
            # Neighbours share blocks: in order, a key of a large state costs a fraction of what it does at random. RocksDB holds
            # the blocks of all keys of a call until its end.
            ordered = sorted(keys)
            parts = (ordered[start : start + _KEYS_AT_ONCE] for start in range(0, len(ordered), _KEYS_AT_ONCE))
            found = dict(zip(ordered, chain.from_iterable(map(db.get, parts)), strict=True))
        return list(map(found.__getitem__, keys))

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return chain.from_iterable(pages(_Scan(self).read, start, stop))

    def occupied(self, ranges: Sequence[Range]) -> list[Range]:
        handle = self._handle
        with handle.use() as db:
            if handle.state().phase == _LOADING:
                return []
            rows, found = db.iter(), []
            for start, stop in ranges:
                rows.seek(start)
                if rows.valid() and rows.key() < stop:
                    found.append((start, stop))
            return found

    def scan_prefixes(self, prefixes: Sequence[bytes]) -> Found:
        return Found.of(self.scan(prefix, prefix_stop(prefix)) for prefix in prefixes)

    def apply(self, changes: Changes, version: int, base: int) -> None:
        handle, changes = self._handle, changes.in_order()
        with handle.use():
            state = handle.state()
            if state.version >= version:
                return
            check_base(self.path, state.version, base)
            if state.phase == _LOADING:
                handle.remove_all()
            handle.write(changes, _READY, version)

    def load(self, chunks: Iterable[Columns], version: int) -> None:
        handle, token = self._handle, uuid.uuid4().bytes
        with handle.use():
            check_load(self.path, handle.state().version, version)
            handle.remove_all()
            handle.write(_NOTHING, _LOADING, 0, token)
        for chunk in chunks:
            entries = as_changes(*chunk)
            with handle.use():
                check_token(self.path, token, handle.state().token)
                handle.write(entries, _LOADING, 0, token)
        with handle.use():
            check_token(self.path, token, handle.state().token)
            handle.write(_NOTHING, _READY, version)

    def size(self) -> StoreSize:
        """RocksDB's estimate."""
        with self._handle.use() as db:
            entries, stored, in_memory = (db.property_int_value(name) or 0 for name in _SIZES)
        return StoreSize(entries, stored + in_memory)

    def clear(self) -> None:
        handle = self._handle
        with handle.use():
            handle.remove_all()
