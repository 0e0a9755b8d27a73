"""Tumbling and sliding windows of event time over columns: what WindowOperator does, for all keys of an epoch at once.

Each row knows the watermark it sees, so which of its windows are late is arithmetic. Rows and the saved windows that end
in the epoch are sorted by key and window together; every run of them is one window of one key, and the saved one comes
first in it. A saved window has a timer for its end, so those that end in the epoch are found by the timers alone; only
windows that stay open are looked up.

What is beyond that is left to WindowOperator: epochs in which numpy would do otherwise than Python or that have timers of
another version of the program, and keys with elements that a window takes in behind its end. State and results are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from forkpoint.functions import SlidingEventTimeWindows, TumblingEventTimeWindows, WindowBound
from forkpoint.graph.transformations import KeyBy
from forkpoint.runtime.columnar.keys import (
    KeySet,
    codes_of,
    column_of,
    combined,
    decode_keys,
    key_columns,
    key_parts,
    parts_of,
    read_timers,
)
from forkpoint.runtime.columnar.leaves import Codec, Leaves, merged, to_list
from forkpoint.runtime.columnar.msgpack import decode as decode_numbers
from forkpoint.runtime.columnar.msgpack import encode as encode_numbers
from forkpoint.runtime.columnar.msgpack import layout_of
from forkpoint.runtime.columnar.objects import as_columns
from forkpoint.runtime.columnar.plans import Plan, empty_leaves
from forkpoint.runtime.columnar.segments import Bools, Segments
from forkpoint.runtime.event_time.timers import EVENT_TIMERS, to_flink_ms
from forkpoint.runtime.exchange.batch import (
    NO_TIMESTAMP_MS,
    Batch,
    DerivedBatch,
    Longs,
    Places,
    concat,
    spread,
    stable_order,
)
from forkpoint.runtime.operators.base import Epoch, Outputs, TaskInfo, with_late
from forkpoint.runtime.operators.keyed_process import firing_rank
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.runtime.windows.operator import WindowOperator
from forkpoint.runtime.windows.spec import CONTENTS, WindowSpec
from forkpoint.state import key_group_range, timer_range
from forkpoint.types import TypeInformation

LARGEST_MS = 2**59  # beyond, times are left to Python's ints


@dataclass(frozen=True)
class Due:
    """Timers up to the epoch's watermark: names in the store, times, and the keys and windows that they belong to."""

    names: list[bytes]
    times: Longs
    encoded: list[bytes]
    keys: pa.Array
    starts: Longs
    ends: Longs

    def without(self, skipped: frozenset[bytes]) -> Due:
        kept = np.array([i for i, key in enumerate(self.encoded) if key not in skipped], np.int64)
        return Due(
            [self.names[i] for i in kept], self.times[kept], [self.encoded[i] for i in kept], self.keys.take(pa.array(kept)),
            self.starts[kept], self.ends[kept],
        )  # fmt: skip


class ColumnarUnsupported(Exception):
    """Some rows' keys, or where ``rows`` is None all, have to be worked through element by element in this epoch."""

    def __init__(self, rows: Longs | None = None) -> None:
        super().__init__()
        self.rows = rows


class ColumnWindows(WindowOperator):
    """Windows whose epochs are computed over columns where they can be; made by ``column_windows``."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: WindowSpec, plan: Plan) -> None:
        super().__init__(info, backend, spec)
        assert info.operator.key is not None
        assert info.operator.key.key_type is not None
        assert info.operator.output_type is not None
        parts = key_parts(info.operator.key)
        assert parts is not None
        assert spec.window_type is not None
        self._spec, self._plan, self._info = spec, plan, info
        self._by: KeyBy = info.operator.key
        self._key_type: TypeInformation = info.operator.key.key_type
        self._key_parts = parts
        self._window_type = spec.window_type
        self._window_layout = layout_of(spec.window_type)
        self._codec = Codec(plan.type)
        self._out: TypeInformation = info.operator.output_type
        self._groups_range = key_group_range(info.subtask, info.parallelism, info.max_parallelism)
        self._contents_sid, self._timer_sid = backend.sid(CONTENTS), backend.sid(EVENT_TIMERS)
        self._column_log: ChangeLog | None = None

    def run(self, inputs: list[Batch], epoch: Epoch) -> Outputs:
        batch, self._column_log = as_columns(inputs[0]), None
        self._mixed = False
        try:
            return self._run_columns(batch, epoch)
        except ColumnarUnsupported as left:
            if left.rows is not None and len(left.rows) * 2 < batch.size:
                return self._run_both(batch, epoch, left.rows)
        return super().run(inputs, epoch)

    def changes(self) -> ChangeLog:
        log, self._column_log = self._column_log, None
        if log is None:
            return super().changes()
        if self._mixed:
            more = super().changes()
            return ChangeLog(log.keys + more.keys, log.values + more.values)
        return log

    def _run_columns(self, batch: Batch, epoch: Epoch, skipped: frozenset[bytes] = frozenset()) -> Outputs:
        """Raises ColumnarUnsupported. ``skipped``: encoded keys without rows here; their saved windows are left alone."""
        raise AssertionError("each kind of windows has its own")

    def _run_both(self, batch: Batch, epoch: Epoch, rows: Longs) -> Outputs:
        """The keys of some rows element by element, all others over columns."""
        columns, _ = self._rows(batch)
        codes = codes_of(columns)
        slow, firsts = np.isin(codes, codes[rows]), np.unique(codes[rows], return_index=True)[1]
        skipped = frozenset(to_list(self._keys_of(columns, rows[firsts]).encoded))
        try:
            first = self._run_columns(batch.take(np.flatnonzero(~slow)), epoch, skipped)
        except ColumnarUnsupported:
            return super().run([batch], epoch)
        self._timers.event.only = skipped
        try:
            second = super().run([batch.take(np.flatnonzero(slow))], epoch)
        finally:
            self._timers.event.only = None
        self._mixed = True
        sides = {
            tag: concat([o.sides[tag] for o in (first, second) if tag in o.sides], None)
            for tag in {**first.sides, **second.sides}
        }
        dropped = first.late_records_dropped + second.late_records_dropped
        return Outputs(concat([first.main, self._as_columns(second.main)], self._out), sides, dropped)

    def _as_columns(self, batch: Batch) -> Batch:
        """The element-wise results as columns."""
        table = pa.RecordBatch.from_arrays(self._out.to_columns(batch.values), schema=self._out.arrow_schema)
        return Batch(
            batch.size, batch.positions, batch.splits, batch.sequence, table=table, type=self._out,
            timestamps=batch.timestamps, ordered=False,
        )  # fmt: skip

    # -- what the kinds have in common

    def _rows(self, batch: Batch) -> tuple[list[pa.Array], Longs]:
        """Key columns and timestamps. Raises ColumnarUnsupported where elements are not columns or lack usable timestamps."""
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
        """ColumnarUnsupported where a timer isn't one that these windows have set."""
        window, names = epoch.window, list[bytes]()
        if window.end > window.before:
            for group in range(*self._groups_range):
                start, stop = timer_range(group, self._timer_sid, to_flink_ms(window.end))
                names += [name for name, _ in self._backend.store.scan(start, stop)]
        times, keys, spaces = read_timers(names)
        assert self._window_layout is not None
        bounds = decode_numbers(self._window_layout, spaces) if spaces else [times, times]
        if bounds is None or (len(times) and not window.before < int(times.min()) <= int(times.max()) <= LARGEST_MS):
            raise ColumnarUnsupported
        due = Due(names, times, keys, self._decoded(keys), bounds[0], bounds[1])
        return due.without(skipped) if skipped else due

    def _keys_of(self, columns: list[pa.Array], rows: Longs) -> KeySet:
        """The keys that these columns make in these rows."""
        at = pa.array(rows)
        column = column_of([each.take(at) for each in columns], self._key_type)
        return KeySet(column, self._key_type, self._info.max_parallelism)

    def _decoded(self, encoded: list[bytes]) -> pa.Array:
        """Saved keys; ColumnarUnsupported where one has None in it."""
        keys = decode_keys(encoded, self._key_type)
        if any(part.null_count for part in parts_of(keys, self._by)):
            raise ColumnarUnsupported
        return keys

    def _spaces(self, starts: Longs, ends: Longs) -> pa.BinaryArray:
        """Windows as namespaces."""
        assert self._window_layout is not None
        return encode_numbers(self._window_layout, [starts, ends], len(starts))

    def _results(self, leaves: Leaves, keys: KeySet, which: Longs, starts: Longs, ends: Longs) -> Batch:
        """The results of windows that fire at their ends."""
        key = keys.column.take(pa.array(which))

        def bounds(bound: WindowBound) -> Longs:
            return ends if bound.end else starts

        columns = self._plan.rows(leaves, key, parts_of(key, self._by), bounds)
        table = pa.RecordBatch.from_arrays(columns, schema=self._out.arrow_schema)
        rank = firing_rank(self._stage, event=True)

        def places() -> Places:
            return (ends - 1) * 2, rank, keys.tie_breakers[which], ends - 1

        return DerivedBatch(len(which), places, table=table, type=self._out)


class ColumnTimeWindows(ColumnWindows):
    """Tumbling and sliding windows."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: WindowSpec, plan: Plan) -> None:
        super().__init__(info, backend, spec, plan)
        assigner = spec.assigner
        assert isinstance(assigner, TumblingEventTimeWindows | SlidingEventTimeWindows)
        self._size_ms, self._offset_ms = assigner._size_ms, assigner._offset_ms
        self._slide_ms = assigner._slide_ms if isinstance(assigner, SlidingEventTimeWindows) else assigner._size_ms

    def _run_columns(self, batch: Batch, epoch: Epoch, skipped: frozenset[bytes] = frozenset()) -> Outputs:
        (columns, timestamps), due = self._rows(batch), self._due(epoch, skipped)
        if not self._are_mine(due):
            raise ColumnarUnsupported
        seen = epoch.window.at(spread(batch.positions, batch.size))
        rows, starts = self._assign(timestamps)
        latest, lateness = self._size_ms - 1, self._spec.lateness_ms
        alive = starts + (latest + lateness) > seen[rows]
        behind = alive & (starts + latest <= seen[rows])
        if lateness and behind.any():
            raise ColumnarUnsupported(np.unique(rows[behind]))  # each of these makes its window fire
        rejected = np.ones(batch.size, bool)
        rejected[rows[alive]] = False
        rejected &= timestamps <= seen - lateness
        rows, starts = rows[alive], starts[alive]
        windows = self._group(due, columns, rows, starts)
        main = self._compute(windows, batch, due, epoch)
        self._next_timer = None
        return with_late(main, batch, np.flatnonzero(rejected), self._spec.late_tag)

    def _assign(self, timestamps: Longs) -> tuple[Longs, Longs]:
        """A pair of row and start for each window that a row is in, the latest first."""
        size, slide = self._size_ms, self._slide_ms
        last = timestamps - (timestamps - self._offset_ms) % slide
        if size == slide:
            return np.arange(len(timestamps)), last
        counts = np.maximum(-((timestamps - size - last) // slide), 0)
        rows = np.repeat(np.arange(len(timestamps)), counts)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows, last[rows] - nth * slide

    def _are_mine(self, due: Due) -> bool:
        last = due.ends - 1
        mine = (due.ends - due.starts == self._size_ms) & ((due.starts - self._offset_ms) % self._slide_ms == 0)
        mine &= (due.times == last) | (due.times == last + self._spec.lateness_ms)
        return bool(mine.all())

    def _group(self, due: Due, columns: list[pa.Array], rows: Longs, starts: Longs) -> _Windows:
        """Due timers and rows by key and window."""
        count = len(due.times)
        every = rows if self._slide_ms == self._size_ms and len(rows) == len(columns[0]) else None
        picked = columns if every is not None else [c.take(pa.array(rows)) for c in columns]
        if count:
            saved = parts_of(due.keys, self._by)
            picked = [pa.concat_arrays([old, new]) for old, new in zip(saved, picked, strict=True)]
            starts = np.concatenate((due.starts, starts))
        codes, width = combined(codes_of(picked), (starts - self._offset_ms) // self._slide_ms)
        order, ordered = stable_order(codes)
        bounds = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))) if len(ordered) else order
        first = order[bounds]
        by_key = ordered[bounds] // width
        new_key = np.concatenate(([True], by_key[1:] != by_key[:-1])) if len(by_key) else np.empty(0, bool)
        keys = self._keys_of(picked, first[new_key])
        of_due = order < count
        dues = np.add.reduceat(of_due, bounds, dtype=np.int64) if len(bounds) else bounds
        ends = np.append(bounds[1:], len(order))
        return _Windows(
            keys, np.cumsum(new_key) - 1, starts[first], order, bounds, dues, ends - bounds - dues,
            rows if not count else np.concatenate((np.zeros(count, np.int64), rows)),
        )  # fmt: skip

    def _compute(self, windows: _Windows, batch: Batch, due: Due, epoch: Epoch) -> Batch:
        last = windows.starts + (self._size_ms - 1)
        gone = last + self._spec.lateness_ms <= epoch.window.end
        has_rows = windows.sizes > 0
        # A window that ends in this epoch and has no timer is not saved.
        asked = np.flatnonzero((windows.dues > 0) | (has_rows & ~gone))
        spaces = self._spaces(windows.starts[asked], windows.starts[asked] + self._size_ms)
        names = windows.keys.names(self._contents_sid, windows.key_of[asked], spaces)
        raw = self._backend.store.get_many(names)
        held = np.fromiter((r is not None for r in raw), bool, len(raw))
        stored = [r for r in raw if r is not None]
        saved = self._codec.decode(stored) if stored else empty_leaves(self._plan.type)
        if saved is None:
            raise ColumnarUnsupported
        saved_at = np.full(len(windows.starts), -1)
        saved_at[asked[held]] = np.arange(len(stored))
        leaves = self._leaves(windows, batch, has_rows, saved, saved_at)
        if leaves is None:
            raise ColumnarUnsupported
        fires = self._fires(windows, due, last, epoch.window.end) & (has_rows | (saved_at >= 0))
        self._column_log = self._log(windows, due, leaves, last, epoch.window.end, saved_at)
        at = np.flatnonzero(fires)
        which = pa.array(at)
        starts = windows.starts[at]
        return self._results([leaf.take(which) for leaf in leaves], windows.keys, windows.key_of[at], starts,
                             starts + self._size_ms)  # fmt: skip

    def _leaves(
        self, windows: _Windows, batch: Batch, has_rows: Bools, saved: Leaves, saved_at: Longs
    ) -> Leaves | None:
        """The accumulators of all windows at the end of the epoch, or when they fire."""
        touched = np.flatnonzero(has_rows)
        if not len(touched):
            return [leaf.take(pa.array(np.maximum(saved_at, 0))) if len(leaf) else leaf for leaf in saved]
        starts, sizes = windows.bounds[touched] + windows.dues[touched], windows.sizes[touched]
        if len(windows.order) == sizes.sum():
            order = windows.order
        else:
            mask = np.zeros(len(windows.order) + 1, np.int64)
            mask[starts] += 1
            np.add.at(mask, starts + sizes, -1)
            order = windows.order[np.cumsum(mask[:-1]) > 0]
        assert batch.table is not None
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        segments = Segments(batch.table, windows.rows[order], offsets, saved_at[touched])
        updated = self._plan.update(segments, saved)
        if updated is None or len(touched) == len(has_rows):
            return updated
        place = np.cumsum(has_rows) - 1
        spread_ = pa.array(np.maximum(place, 0))
        return [merged(new.take(spread_), old, ~has_rows, saved_at) for new, old in zip(updated, saved, strict=True)]

    def _fires(self, windows: _Windows, due: Due, last: Longs, end: int) -> Bools:
        fires: Bools = last <= end
        if not self._spec.lateness_ms:
            return fires
        return fires & ((windows.sizes > 0) | self._has_due(windows, due.times == due.ends - 1))

    def _has_due(self, windows: _Windows, mine: Bools) -> Bools:
        """Which windows have one of these timers."""
        if not len(mine):
            return np.zeros(len(windows.starts), bool)
        flags = np.concatenate((mine, np.zeros(len(windows.rows) - len(mine), bool)))[windows.order]
        return np.asarray(np.add.reduceat(flags, windows.bounds, dtype=np.int64) > 0)

    def _log(self, windows: _Windows, due: Due, leaves: Leaves, last: Longs, end: int, saved_at: Longs) -> ChangeLog:
        log, keys, gone = ChangeLog(), windows.keys, last + self._spec.lateness_ms <= end
        log.keys += due.names
        log.values += [None] * len(due.names)
        saved = saved_at >= 0
        self._put(log, windows, np.flatnonzero(gone & saved), None)
        stays = np.flatnonzero(~gone & (windows.sizes > 0))
        self._put(log, windows, stays, self._codec.encode([leaf.take(pa.array(stays)) for leaf in leaves]))
        lateness = self._spec.lateness_ms
        fired = last <= end
        new = ~gone & ~saved
        if lateness:
            self._set(log, keys, windows, np.flatnonzero(new & ~fired), last)
            passed = fired & ~gone & ((windows.dues > 0) | new)
            self._set(log, keys, windows, np.flatnonzero((new & ~fired) | passed), last + lateness)
        else:
            self._set(log, keys, windows, np.flatnonzero(new), last)
        return log

    def _put(self, log: ChangeLog, windows: _Windows, at: Longs, values: list[bytes] | None) -> None:
        spaces = self._spaces(windows.starts[at], windows.starts[at] + self._size_ms)
        log.keys += windows.keys.names(self._contents_sid, windows.key_of[at], spaces)
        log.values += [None] * len(at) if values is None else values

    def _set(self, log: ChangeLog, keys: KeySet, windows: _Windows, at: Longs, times: Longs) -> None:
        spaces = self._spaces(windows.starts[at], windows.starts[at] + self._size_ms)
        log.keys += keys.timers(self._timer_sid, times[at], windows.key_of[at], spaces)
        log.values += [b""] * len(at)


@dataclass(frozen=True)
class _Windows:
    """Windows of keys: the i-th belongs to key ``key_of[i]``, begins at ``starts[i]``, and has in ``order``, from
    ``bounds[i]`` on, ``dues[i]`` due timers and behind them ``sizes[i]`` rows. ``rows``: by place, timers first.
    """

    keys: KeySet
    key_of: Longs
    starts: Longs
    order: Longs
    bounds: Longs
    dues: Longs
    sizes: Longs
    rows: Longs
