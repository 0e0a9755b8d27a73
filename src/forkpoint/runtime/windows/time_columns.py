"""Tumbling and sliding windows of event time over columns.

Rows and due timers are sorted together by key and window; a run is one window of one key. The element-wise kernel handles keys
with late elements within the allowed lateness, because each of these elements fires its window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from forkpoint.functions import SlidingEventTimeWindows, TumblingEventTimeWindows
from forkpoint.runtime.columnar.codes import codes_of, combined
from forkpoint.runtime.columnar.keys import parts_of
from forkpoint.runtime.columnar.leaves import Leaves
from forkpoint.runtime.columnar.plans import Plan
from forkpoint.runtime.columnar.segments import Bools, run_starts
from forkpoint.runtime.exchange.batch import Longs, stable_order
from forkpoint.runtime.operators.base import Epoch, TaskInfo
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.runtime.windows.columns import ColumnarUnsupported, ColumnKernel, Due, Rows, Status, Windows
from forkpoint.runtime.windows.spec import WindowSpec


@dataclass(frozen=True)
class TimeWindows(Windows):
    """``dues``: the number of due timers of each window."""

    dues: Longs


class TimeColumns(ColumnKernel[TimeWindows]):
    """Tumbling and sliding windows."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: WindowSpec, plan: Plan) -> None:
        super().__init__(info, backend, spec, plan)
        assigner = spec.assigner
        assert isinstance(assigner, TumblingEventTimeWindows | SlidingEventTimeWindows)
        self._size_ms, self._offset_ms = assigner._size_ms, assigner._offset_ms
        self._slide_ms = assigner._slide_ms if isinstance(assigner, SlidingEventTimeWindows) else assigner._size_ms

    def _windows(self, rows: Rows, due: Due, epoch: Epoch, skipped: frozenset[bytes]) -> TimeWindows:
        last = due.ends - 1
        valid = (due.ends - due.starts == self._size_ms) & ((due.starts - self._offset_ms) % self._slide_ms == 0)
        valid &= (due.times == last) | (due.times == last + self._lateness_ms)
        if not valid.all():
            raise ColumnarUnsupported
        of, starts = self._assign(rows.timestamps)
        latest, lateness, seen = self._size_ms - 1, self._lateness_ms, rows.seen[of]
        alive = starts + (latest + lateness) > seen
        if lateness:
            behind = alive & (starts + latest <= seen)
            if behind.any():
                raise ColumnarUnsupported(np.unique(of[behind]))
        late = np.ones(len(rows.timestamps), bool)
        late[of[alive]] = False
        late &= rows.timestamps <= rows.seen - lateness
        return self._grouped(due, rows.keys, of[alive], starts[alive], np.flatnonzero(late))

    def _assign(self, timestamps: Longs) -> tuple[Longs, Longs]:
        """The row and start of each window of each row, the latest window of a row first."""
        size, slide = self._size_ms, self._slide_ms
        last = timestamps - (timestamps - self._offset_ms) % slide
        if size == slide:
            return np.arange(len(timestamps)), last
        counts = np.maximum(-((timestamps - size - last) // slide), 0)
        rows = np.repeat(np.arange(len(timestamps)), counts)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows, last[rows] - nth * slide

    def _grouped(self, due: Due, columns: list[pa.Array], rows: Longs, starts: Longs, late: Longs) -> TimeWindows:
        """Group due timers and rows by key and window."""
        count = len(due.times)
        all_rows = self._slide_ms == self._size_ms and len(rows) == len(columns[0])
        picked = columns if all_rows else [c.take(pa.array(rows)) for c in columns]
        if count:
            saved = parts_of(due.keys, self._by)
            picked = [pa.concat_arrays([old, new]) for old, new in zip(saved, picked, strict=True)]
            starts = np.concatenate((due.starts, starts))
        codes, width = combined(codes_of(picked), (starts - self._offset_ms) // self._slide_ms)
        order, ordered = stable_order(codes)
        bounds = np.flatnonzero(run_starts(ordered))
        first = order[bounds]
        by_key = ordered[bounds] // width
        new_key = run_starts(by_key)
        keys = self._keys_of(picked, first[new_key])
        of_due = order < count
        dues = np.add.reduceat(of_due, bounds, dtype=np.int64) if len(bounds) else bounds
        sizes = np.append(bounds[1:], len(order)) - bounds - dues
        begin = starts[first]
        end = begin + self._size_ms
        return TimeWindows(
            keys,
            np.cumsum(new_key) - 1,
            begin,
            end,
            begin,
            end,
            rows[order[~of_due] - count if count else order],
            sizes,
            late,
            dues,
        )

    def _lookups(self, windows: TimeWindows, status: Status) -> Bools:
        # A window that ends in this epoch without a due timer is not saved.
        return (windows.dues > 0) | (status.touched & ~status.expired)

    def _changes(self, windows: TimeWindows, due: Due, status: Status, leaves: Leaves, saved: Bools) -> ChangeLog:
        log = ChangeLog()
        log.delete(due.names)
        log.delete(self._kept(windows, np.flatnonzero(status.expired & saved)))
        self._keep(log, windows, np.flatnonzero(status.touched & ~status.expired), leaves)
        begun = ~status.expired & ~saved & ~status.ended
        self._set_timers(log, windows, np.flatnonzero(begun), 0)
        if self._lateness_ms:
            # Including windows that end: the allowed lateness may have changed since the creation of the window.
            self._set_timers(log, windows, np.flatnonzero(begun | (status.ended & ~status.expired)), self._lateness_ms)
        return log
