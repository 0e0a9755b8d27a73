"""A store in LMDB: memory-mapped; any process that runs the task opens it in a fraction of a millisecond.

All rows are in the unnamed database, so that opening needs no write transaction:

    entry       key → value                                              for keys of up to 510 bytes
    long entry  key[:495] | blake2b-128(key) → >I len(key) | key | value   exactly 511 bytes, LMDB's limit
    the state   511 zero bytes → layout, loading or ready, version, the loader's token, the boot it was written in

Commits are atomic but not synced: a killed process leaves the last committed version, but a crash of the machine may leave a
damaged store. So the store records the boot, and a store from an earlier boot is refused.
"""

from __future__ import annotations

import os
import struct
import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import lmdb
import pyarrow.compute as pc

from forkpoint.errors import StorageError
from forkpoint.state.files import Columns, as_changes
from forkpoint.state.keys import prefix_stop
from forkpoint.state.shared import Handle, Page, SharedStore, pages
from forkpoint.state.store import Changes, Found, Range, StoreSize, check_base, check_load, check_scan, check_token

DEFAULT_MAP_SIZE = 1 << 30  # address space, not memory; doubled when full

_LAYOUT = 1
_READY, _LOADING = 0, 1
_STATE = struct.Struct(">BBQ16s36s")
_STATE_KEY = b"\0" * 511
_MAX_PLAIN = 510
_STEM = 495  # with 16 bytes of hash: 511
_ABOVE_HASH = b"\xff" * 17
_LENGTH = struct.Struct(">I")
_COVER_SECONDS = 0.02


class _State(NamedTuple):
    layout: int
    phase: int
    version: int
    token: bytes
    boot: bytes


@cache
def _boot_id() -> bytes:
    """The id of the machine's current boot; empty if the system does not provide one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()[:36]
    except OSError:
        return b""


def _stored_key(key: bytes) -> bytes:
    return key if len(key) <= _MAX_PLAIN else key[:_STEM] + blake2b(key, digest_size=16).digest()


def _stored_stop(stop: bytes) -> bytes:
    """A key above all stored keys of entries below ``stop``."""
    return stop if len(stop) <= _STEM else stop[:_STEM] + _ABOVE_HASH


def _stored_item(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    if len(key) <= _MAX_PLAIN:
        return key, value
    return _stored_key(key), _LENGTH.pack(len(key)) + key + value


def _plain_item(stored: bytes, value: bytes) -> tuple[bytes, bytes]:
    if len(stored) <= _MAX_PLAIN:
        return stored, value
    end = _LENGTH.size + _LENGTH.unpack_from(value)[0]
    return value[_LENGTH.size : end], value[end:]


class _LmdbHandle(Handle):
    def __init__(self, path: str, map_size: int = DEFAULT_MAP_SIZE) -> None:
        super().__init__(path, "data.mdb")
        self.map_size = map_size
        self.generation = 0  # grows whenever open transactions become invalid
        self._open: Any = None

    def suspend(self) -> None:
        if self._open is not None:
            self.generation += 1
            self._open.close()
            self._open = self.identity = None

    def open(self) -> None:
        self.env()

    def env(self) -> Any:
        """The environment, opened and checked if necessary."""
        if self._open is None:
            self.check_usable()
            try:
                os.makedirs(self.path, exist_ok=True)
                self._open = lmdb.open(
                    self.path, map_size=self.map_size, sync=False, metasync=False, meminit=False, max_readers=512
                )
                self.map_size = self._open.info()["map_size"]  # larger than requested for a larger file
                self._open.reader_check()  # killed readers would prevent the reuse of old pages
                self._check()
            except (lmdb.Error, OSError) as e:
                self.suspend()
                raise self.damaged(e) from e
            except StorageError:
                self.suspend()
                raise
        return self._open

    def _check(self) -> None:
        # An access beyond the end of a truncated file would kill the process (SIGBUS).
        needed = self._needed_size()
        if self._file_size() < needed:
            time.sleep(_COVER_SECONDS)  # another process may be between its commit and `_cover_end`
        if (size := self._file_size()) < needed:
            raise self.damaged(f"data.mdb has {size} bytes, its header says {needed}")
        self.identity = self.identify()
        with self.transaction() as txn:
            row = txn.get(_STATE_KEY)
        if row is None:
            return
        if len(row) != _STATE.size or row[0] != _LAYOUT:
            raise self.damaged(f"its state row {row[:16].hex()} is not of layout {_LAYOUT}")
        if (boot := _State(*_STATE.unpack(row)).boot.rstrip(b"\0")) != _boot_id():
            raise self.damaged(f"it was written before the machine was restarted (boot {boot!r}, now {_boot_id()!r})")

    def _file_size(self) -> int:
        return os.stat(self.marker).st_size

    def _needed_size(self) -> int:
        return int((self._open.info()["last_pgno"] + 1) * self._open.stat()["psize"])

    @contextmanager
    def transaction(self, write: bool = False) -> Iterator[Any]:
        """A transaction, committed at the end; LMDB's errors become StorageError, except a full map."""
        with self.lock:
            try:
                with self.begin(write) as txn:
                    yield txn
            except lmdb.MapFullError:
                raise
            except lmdb.Error as e:
                raise self.damaged(e) from e

    def begin(self, write: bool = False) -> Any:
        env = self.env()
        while True:
            try:
                return env.begin(write=write)
            except lmdb.MapResizedError:  # another process has enlarged the map: adopt its size
                self._resize(0)

    def _resize(self, map_size: int) -> None:
        self.generation += 1  # py-lmdb ends all open transactions
        self._open.set_mapsize(map_size)
        self.map_size = self._open.info()["map_size"]

    def write(self, work: Callable[[Any], None]) -> None:
        """Run `work` in a write transaction, and again in a larger map if the map is full."""
        with self.lock:
            while True:
                try:
                    with self.transaction(write=True) as txn:
                        work(txn)
                    break
                except lmdb.MapFullError:
                    self._resize(max(self.map_size, self._file_size()) * 2)
            self._cover_end()

    def _cover_end(self) -> None:
        """Extend the file to the length in its header, so that a shorter file is always damaged.

        LMDB does not write pages that are allocated and freed within one transaction, even at the end of the file.
        """
        if self._file_size() >= self._needed_size():
            return
        with self.transaction(write=True):  # so that no other process extends it meanwhile
            if self._file_size() < self._needed_size():
                os.truncate(self.marker, self._needed_size())


def _state(txn: Any) -> _State:
    row = txn.get(_STATE_KEY)
    return _State(_LAYOUT, _READY, 0, b"", b"") if row is None else _State(*_STATE.unpack(row))


def _put_state(txn: Any, phase: int, version: int, token: bytes = b"") -> None:
    txn.put(_STATE_KEY, _STATE.pack(_LAYOUT, phase, version, token, _boot_id()))


def _delete_all(txn: Any) -> None:
    """Delete one by one: with py-lmdb 1.7 to 3.0, writes after dropping the unnamed database can be damaged."""
    cursor = txn.cursor()
    if cursor.first():
        while cursor.delete():
            pass


def _put_all(txn: Any, changes: Changes) -> None:
    """First puts, then deletes, both in key order, because neighbours share pages."""
    keys, values, deletes = changes.keys, changes.values, []
    if None in values:
        deletes = [key for key, value in zip(keys, values, strict=True) if value is None]
        keys = [key for key, value in zip(keys, values, strict=True) if value is not None]
        values = [value for value in values if value is not None]
    _put(txn, keys, values, longest=max(map(len, keys), default=0))
    for key in deletes:
        txn.delete(_stored_key(key))


def _put(txn: Any, keys: list[bytes], values: list[Any], longest: int) -> None:
    """``longest``: the length of the longest key."""
    items: Iterable[tuple[bytes, Any]] = zip(keys, values, strict=True)
    cursor = txn.cursor()
    if longest <= _MAX_PLAIN:
        # Keys above all existing keys, as in a bulk load, fill pages completely.
        append = bool(keys) and cursor.last() and cursor.key() < keys[0]
        cursor.putmulti(items, append=append)
    else:
        cursor.putmulti([_stored_item(key, value) for key, value in items])


class _Scan:
    """The rows of a scan, in one read transaction unless this process ends it."""

    _txn: Any = None
    _rows: Any = None
    _version: int | None = None
    _generation = -1

    def __init__(self, store: LmdbStore) -> None:
        self._store = store

    def read(self, start: bytes, size: int) -> Page:
        handle = self._store._handle
        with handle.lock:
            try:
                if handle.generation != self._generation:  # the first page, or the map was enlarged
                    self._txn = txn = handle.begin()
                    self._generation, state = handle.generation, _state(txn)
                    if self._version is not None:
                        check_scan(handle.path, self._version, state.version)
                    self._version, cursor = state.version, txn.cursor()
                    if state.phase == _LOADING or not cursor.set_range(start or b"\0"):
                        return []
                    self._rows = cursor.iternext()
                return list(islice(self._rows, size))
            except lmdb.Error as e:
                raise handle.damaged(e) from e

    def close(self) -> None:
        if self._txn is not None:
            with suppress(lmdb.Error):
                self._txn.abort()


class LmdbStore(SharedStore[_LmdbHandle]):
    """A store in directory `path`. Several processes may have it open at once; writers take turns.

    Raises StorageError if an existing store is unusable. The map starts with `map_size` bytes and grows as needed.
    """

    def __init__(self, path: str | os.PathLike[str], map_size: int = DEFAULT_MAP_SIZE) -> None:
        super().__init__(path, _LmdbHandle, lambda real: _LmdbHandle(real, map_size))

    @property
    def version(self) -> int:
        with self._handle.transaction() as txn:
            return _state(txn).version

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._handle.transaction() as txn:
            if _state(txn).phase == _LOADING:
                return [None] * len(keys)
            if keys and max(map(len, keys)) > _MAX_PLAIN:
                return [_value(key, txn.get(_stored_key(key))) for key in keys]
            return list(map(txn.get, keys))  # half the time of cursor.getmulti, which also returns the keys

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        # Long keys are stored in the order of their stems only, so the entries of one stem are collected and sorted.
        stop_stored = _stored_stop(stop)
        held: Page = []
        scan = _Scan(self)
        try:
            for page in pages(scan.read, start[:_STEM], stop_stored):
                if not held and max(len(key) for key, _ in page) < _STEM:
                    yield from page
                    continue
                held += page
                stem = held[-1][0][:_STEM]  # the next page may have more of its entries
                cut = bisect_left(held, stem, key=lambda item: item[0][:_STEM]) if len(stem) == _STEM else len(held)
                yield from _in_order(held[:cut], start, stop)
                del held[:cut]
        finally:
            scan.close()
        yield from _in_order(held, start, stop)

    def occupied(self, ranges: Sequence[Range]) -> list[Range]:
        with self._handle.transaction() as txn:
            if _state(txn).phase == _LOADING:
                return []
            cursor = txn.cursor()
            seek, key = cursor.set_range, cursor.key
            return [r for r in ranges if seek(r[0][:_STEM] or b"\0") and key() < _stored_stop(r[1])]

    def scan_prefixes(self, prefixes: Sequence[bytes]) -> Found:
        if prefixes and max(map(len, prefixes)) >= _STEM:
            return Found.of(self.scan(prefix, prefix_stop(prefix)) for prefix in prefixes)
        counts, keys, values = found = Found([], [], [])
        longest = 0
        with self._handle.transaction() as txn:
            if _state(txn).phase == _LOADING:
                return Found([0] * len(prefixes), [], [])
            cursor = txn.cursor()
            seek, item, advance = cursor.set_range, cursor.item, cursor.next
            for prefix in prefixes:
                before, there = len(keys), seek(prefix)
                while there:
                    key, value = item()
                    if not key.startswith(prefix):
                        break
                    keys.append(key)
                    values.append(value)
                    there = advance()
                counts.append(len(keys) - before)
            longest = max(map(len, keys), default=0)
        if longest < _STEM:
            return found
        return Found.of(self.scan(prefix, prefix_stop(prefix)) for prefix in prefixes)  # long keys are not stored as they are

    def apply(self, changes: Changes, version: int, base: int) -> None:
        handle, ordered = self._handle, changes.in_order()

        def work(txn: Any) -> None:
            state = _state(txn)
            if state.version >= version:
                return
            check_base(self.path, state.version, base)
            if state.phase == _LOADING:  # by a process that was killed, or will fail the check of its token
                _delete_all(txn)
            _put_all(txn, ordered)
            _put_state(txn, _READY, version)

        handle.write(work)

    def load(self, chunks: Iterable[Columns], version: int) -> None:
        handle, token = self._handle, uuid.uuid4().bytes

        def begin(txn: Any) -> None:
            check_load(self.path, _state(txn).version, version)
            _delete_all(txn)
            _put_state(txn, _LOADING, 0, token)

        # Several transactions, because one would keep all its pages in memory.
        handle.write(begin)
        for chunk in chunks:
            entries, longest = as_changes(*chunk), pc.max(pc.binary_length(chunk[0])).as_py() or 0

            def fill(txn: Any, entries: Changes = entries, longest: int = longest) -> None:
                check_token(self.path, token, _state(txn).token)
                _put(txn, entries.keys, entries.values, longest)

            handle.write(fill)

        def end(txn: Any) -> None:
            check_token(self.path, token, _state(txn).token)
            _put_state(txn, _READY, version)

        handle.write(end)

    def size(self) -> StoreSize:
        """The bytes of the pages in use, which are rarely full."""
        handle = self._handle
        with handle.transaction() as txn:
            stat, row = handle.env().stat(), txn.get(_STATE_KEY)
        pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return StoreSize(stat["entries"] - (row is not None), pages * stat["psize"])

    def clear(self) -> None:
        self._handle.write(_delete_all)


def _value(key: bytes, stored: bytes | None) -> bytes | None:
    if stored is None or len(key) <= _MAX_PLAIN:
        return stored
    return stored[_LENGTH.size + len(key) :]


def _in_order(held: Page, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
    items = sorted(_plain_item(*item) for item in held if item[0] != _STATE_KEY)
    return (item for item in items if start <= item[0] < stop)
