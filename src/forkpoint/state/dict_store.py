"""A store in plain dicts, for tests and for jobs whose state is small and local."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from forkpoint.errors import StorageError
from forkpoint.state.arrow_file import as_list
from forkpoint.state.files import Columns
from forkpoint.state.keys import prefix_stop
from forkpoint.state.shared import Handle, acquire
from forkpoint.state.store import Changes, Found, Range, StoreSize, check_base, check_load


class _Table(Handle):
    """A forked child continues with its copy."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.rows: dict[bytes, bytes] = {}
        self.version = 0
        self.ordered: list[bytes] | None = None  # the keys of rows, since the first scan

    def in_order(self) -> list[bytes]:
        if self.ordered is None:
            self.ordered = sorted(self.rows)
        return self.ordered


class DictStore:
    """Entries live as long as the process. All stores of one path share them; a store without a path has its own."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = "(in memory)" if path is None else os.fspath(path)
        self._shared: _Table | None = _Table(self.path) if path is None else acquire(path, _Table, _Table)

    @property
    def _table(self) -> _Table:
        if self._shared is None:
            raise StorageError(f"local store {self.path} is closed")
        self._shared.check_usable()
        return self._shared

    @property
    def version(self) -> int:
        return self._table.version

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        table = self._table
        with table.lock:
            return list(map(table.rows.get, keys))

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        table = self._table
        with table.lock:
            ordered = table.in_order()
            first = bisect_left(ordered, start)
            found = ordered[first : bisect_left(ordered, stop, first)]
            return iter([(key, table.rows[key]) for key in found])

    def occupied(self, ranges: Sequence[Range]) -> list[Range]:
        table = self._table
        with table.lock:
            ordered = table.in_order()
            count = len(ordered)
            return [r for r in ranges if (at := bisect_left(ordered, r[0])) < count and ordered[at] < r[1]]

    def scan_prefixes(self, prefixes: Sequence[bytes]) -> Found:
        table = self._table
        with table.lock:
            ordered, found = table.in_order(), Found([], [], [])
            for prefix in prefixes:
                first = bisect_left(ordered, prefix)
                keys = ordered[first : bisect_left(ordered, prefix_stop(prefix), first)]
                found.counts.append(len(keys))
                found.keys.extend(keys)
            found.values.extend(map(table.rows.__getitem__, found.keys))
        return found

    def apply(self, changes: Changes, version: int, base: int) -> None:
        table, changes = self._table, changes.in_order()
        with table.lock:
            if table.version >= version:
                return
            check_base(self.path, table.version, base)
            for key, value in zip(changes.keys, changes.values, strict=True):
                if value is None:
                    if table.rows.pop(key, None) is not None:
                        table.ordered = None
                else:
                    if key not in table.rows:
                        table.ordered = None
                    table.rows[key] = value
            table.version = version

    def load(self, chunks: Iterable[Columns], version: int) -> None:
        table = self._table
        check_load(self.path, table.version, version)
        rows: dict[bytes, bytes] = {}
        for keys, values in chunks:
            rows.update(zip(as_list(keys), as_list(values), strict=True))
        with table.lock:
            check_load(self.path, table.version, version)
            table.rows, table.version, table.ordered = rows, version, None

    def size(self) -> StoreSize:
        return StoreSize(len(self._table.rows), None)

    def clear(self) -> None:
        table = self._table
        with table.lock:
            table.rows, table.version, table.ordered = {}, 0, None

    def close(self) -> None:
        self._shared = None  # the table stays with the process, as files stay on a disk
