"""Event-time windows over columns: all keys of an epoch at once.

The watermark that each row sees is known, so lateness is arithmetic. A saved window has a timer for its end, so the due timers
give the saved windows that end in the epoch. Of other saved windows, the kernel reads only those with rows in the epoch.

A kernel has no side effects: it returns the windows that fire and the changes of the store. It refuses epochs in which numpy
would differ from Python, epochs with timers of another version of the program, and keys whose windows do not follow from
arithmetic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from forkpoint.runtime.columnar.codes import codes_of
from forkpoint.runtime.columnar.keys import KeySet, decode_keys, key_columns, key_parts, parts_of, read_timers
from forkpoint.runtime.columnar.leaves import Codec, Leaves, column_of, to_list
from forkpoint.runtime.columnar.msgpack import decode as decode_numbers
from forkpoint.runtime.columnar.msgpack import encode as encode_numbers
from forkpoint.runtime.columnar.msgpack import layout_of
from forkpoint.runtime.columnar.plans import Plan
from forkpoint.runtime.columnar.segments import Bools, Segments, either
from forkpoint.runtime.event_time.timers import EVENT_TIMERS, to_flink_ms
from forkpoint.runtime.exchange.batch import NO_TIMESTAMP_MS, Batch, Longs, spread
from forkpoint.runtime.operators.base import Epoch, TaskInfo
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.runtime.windows.spec import CONTENTS, WindowSpec
from forkpoint.state import decode_timer_key, in_groups, timer_range

LARGEST_MS = 2**59  # the element-wise kernel handles larger times


class ColumnarUnsupported(Exception):
    """The keys of ``rows``, or all keys if None, must be computed element by element in this epoch."""

    def __init__(self, rows: Longs | None = None) -> None:
        super().__init__()
        self.rows = rows


@dataclass(frozen=True)
class Due:
    """The timers up to the epoch's watermark: store keys, times, and their keys and windows."""

    names: list[bytes]
    times: Longs
    keys: pa.Array
    starts: Longs
    ends: Longs


@dataclass(frozen=True)
class Rows:
    """The elements of an epoch: key columns, timestamps, and the watermarks that they see."""

    keys: list[pa.Array]
    timestamps: Longs
    seen: Longs


@dataclass(frozen=True)
class Windows:
    """The windows of an epoch: the i-th has key ``key_of[i]``, and its contents are saved under the window from
    ``kept_starts[i]`` to ``kept_ends[i]``.

    ``order``: the rows of all windows, ``sizes[i]`` consecutive rows for the i-th. ``late``: the rows too late for any window.
    """

    keys: KeySet
    key_of: Longs
    starts: Longs
    ends: Longs
    kept_starts: Longs
    kept_ends: Longs
    order: Longs
    sizes: Longs
    late: Longs


@dataclass(frozen=True)
class Computed:
    """An epoch over columns: its windows, their accumulators, the windows that fire, and the changes of the store."""

    batch: Batch
    windows: Windows
    leaves: Leaves
    fires: Longs
    log: ChangeLog


W = TypeVar("W", bound=Windows)


@dataclass(frozen=True)
class Status:
    """For each window: whether the epoch has rows for it (``touched``), and whether it ends in the epoch and has expired at the
    end of the epoch."""

    touched: Bools
    ended: Bools
    expired: Bools


class ColumnKernel(ABC, Generic[W]):
    """One kind of windows over columns."""

    requires_contents = False  # whether every window to look up must have contents

    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: WindowSpec, plan: Plan) -> None:
        key = info.operator.key
        assert key is not None
        assert spec.window_type is not None
        parts, layout = key_parts(key, info.operator.inputs[0].type), layout_of(spec.window_type)
        assert parts is not None
        assert layout is not None
        self._plan, self._by, self._key_type, self._key_parts, self._layout = plan, key, backend.key_type, parts, layout
        self._max_parallelism, self._store, self._groups = info.max_parallelism, backend.store, backend.groups
        self._lateness_ms = spec.lateness_ms
        self._codec = Codec(plan.type)
        self._contents_sid, self._timer_sid = backend.sid(CONTENTS), backend.sid(EVENT_TIMERS)

    @abstractmethod
    def _windows(self, rows: Rows, due: Due, epoch: Epoch, skipped: frozenset[bytes]) -> W:
        """The windows of the rows and of the due timers."""

    @abstractmethod
    def _lookups(self, windows: W, status: Status) -> Bools:
        """The mask of the windows whose contents are read."""

    @abstractmethod
    def _changes(self, windows: W, due: Due, status: Status, leaves: Leaves, saved: Bools) -> ChangeLog:
        """The changes of the store. ``leaves``: accumulators at the end of the epoch; ``saved``: the mask of saved windows."""

    def compute(self, batch: Batch, epoch: Epoch, skipped: frozenset[bytes] = frozenset()) -> Computed:
        """Compute an epoch. Raises ColumnarUnsupported. ``skipped``: encoded keys to ignore; the batch has no rows of them."""
        (keys, timestamps), due = self._columns(batch), self._due(epoch, skipped)
        rows = Rows(keys, timestamps, epoch.window.at(spread(batch.positions, batch.size)))
        windows = self._windows(rows, due, epoch, skipped)
        last, before, now = windows.ends - 1, epoch.window.before, epoch.window.end
        status = Status(windows.sizes > 0, (last > before) & (last <= now), last + self._lateness_ms <= now)
        contents, saved_at = self._contents(windows, np.flatnonzero(self._lookups(windows, status)))
        leaves = self._accumulated(windows, batch, status.touched, contents, saved_at)
        saved = saved_at >= 0
        log = self._changes(windows, due, status, leaves, saved)
        fires = np.flatnonzero(status.ended & (status.touched | saved))
        return Computed(batch, windows, leaves, fires, log)

    def parted(self, batch: Batch, rows: Longs) -> tuple[Batch, Batch, frozenset[bytes]]:
        """The batch without the keys of these rows, the elements of these keys, and the keys encoded."""
        columns = self._columns(batch)[0]
        codes = codes_of(columns)
        of_keys, firsts = np.isin(codes, codes[rows]), np.unique(codes[rows], return_index=True)[1]
        keys = frozenset(to_list(self._keys_of(columns, rows[firsts]).encoded))
        return batch.take(np.flatnonzero(~of_keys)), batch.take(np.flatnonzero(of_keys)), keys

    # -- input

    def _columns(self, batch: Batch) -> tuple[list[pa.Array], Longs]:
        """Key columns and timestamps. Raises ColumnarUnsupported if elements are not columns or lack usable timestamps."""
        if not batch.size:
            return [pa.array([], part.arrow_type) for part in self._key_parts], np.empty(0, np.int64)
        timestamps = None if batch.table is None else batch.timestamps
        if timestamps is None or NO_TIMESTAMP_MS in (timestamps[0], timestamps.min()):
            raise ColumnarUnsupported
        columns = key_columns(batch, self._by, self._key_parts)
        if columns is None or max(abs(int(timestamps.min())), abs(int(timestamps.max()))) > LARGEST_MS:
            raise ColumnarUnsupported
        return columns, timestamps

    def _due(self, epoch: Epoch, skipped: frozenset[bytes]) -> Due:
        """Raises ColumnarUnsupported if a timer cannot belong to these windows."""
        window, names = epoch.window, list[bytes]()
        if window.end > window.before:
            ranges = in_groups(range(*self._groups), timer_range(0, self._timer_sid, to_flink_ms(window.end)))
            for start, stop in self._store.occupied(ranges):
                names += [name for name, _ in self._store.scan(start, stop)]
        if skipped:
            names = [name for name in names if decode_timer_key(name).key not in skipped]
        times, keys, spaces = read_timers(names)
        bounds = decode_numbers(self._layout, spaces) if spaces else [times, times]
        if bounds is None or (len(times) and not window.before < int(times.min()) <= int(times.max()) <= LARGEST_MS):
            raise ColumnarUnsupported
        return Due(names, times, self._decoded(keys), bounds[0], bounds[1])

    def _keys_of(self, columns: list[pa.Array], rows: Longs) -> KeySet:
        """The keys of these rows."""
        at = pa.array(rows)
        column = column_of([part.take(at) for part in columns], self._key_type)
        return KeySet(column, self._key_type, self._max_parallelism)

    def _decoded(self, encoded: list[bytes]) -> pa.Array:
        """Raises ColumnarUnsupported if a key contains None."""
        keys = decode_keys(encoded, self._key_type)
        if any(part.null_count for part in parts_of(keys, self._by)):
            raise ColumnarUnsupported
        return keys

    # -- contents

    def _contents(self, windows: W, at: Longs) -> tuple[Leaves, Longs]:
        """The saved contents of the windows ``at``, and for each window of the epoch the index of its contents, -1 for none."""
        read = self._codec.read(self._store, self._kept(windows, at))
        if read is None or (self.requires_contents and (read[1] < 0).any()):
            raise ColumnarUnsupported
        saved_at = np.full(len(windows.starts), -1)
        contents, saved_at[at] = read
        return contents, saved_at

    def _accumulated(self, windows: W, batch: Batch, touched: Bools, contents: Leaves, saved_at: Longs) -> Leaves:
        """The accumulators of all windows with their rows added."""
        updated: Leaves | None = [leaf.slice(0, 0) for leaf in contents]
        if touched.any():
            assert batch.table is not None
            offsets = np.concatenate(([0], np.cumsum(windows.sizes[touched])))
            updated = self._plan.update(Segments(batch.table, windows.order, offsets, saved_at[touched]), contents)
        if updated is None:
            raise ColumnarUnsupported
        if touched.all():
            return updated
        at = np.where(touched, np.cumsum(touched) - 1, -1)
        return [either(new, at, old, saved_at) for new, old in zip(updated, contents, strict=True)]

    # -- changes

    def _spaces(self, starts: Longs, ends: Longs) -> pa.BinaryArray:
        """Windows as namespaces."""
        return encode_numbers(self._layout, [starts, ends], len(starts))

    def _kept(self, windows: W, at: Longs) -> list[bytes]:
        """The store keys of windows' contents."""
        spaces = self._spaces(windows.kept_starts[at], windows.kept_ends[at])
        return windows.keys.names(self._contents_sid, windows.key_of[at], spaces)

    def _keep(self, log: ChangeLog, windows: W, at: Longs, leaves: Leaves) -> None:
        log.add(self._kept(windows, at), self._codec.encode([leaf.take(pa.array(at)) for leaf in leaves]))

    def _set_timers(self, log: ChangeLog, windows: W, at: Longs, behind_ms: int) -> None:
        """Add timers ``behind_ms`` after the windows' ends."""
        spaces = self._spaces(windows.starts[at], windows.ends[at])
        times = windows.ends[at] - 1 + behind_ms
        log.add(windows.keys.timers(self._timer_sid, times, windows.key_of[at], spaces), [b""] * len(at))
