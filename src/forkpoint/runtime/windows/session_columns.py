"""Session windows of event time over columns.

A key's saved sessions, followed by its rows in order of arrival, form one sequence. A row starts a new session if it is later
than all previous rows by more than the gap, or if the previous session has expired by the watermark that the row sees; else it
extends that session. The element-wise kernel handles keys for which this rule does not suffice: a row merges two sessions,
belongs to a session before the last, or follows the end of a session within the allowed lateness.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from forkpoint.functions import EventTimeSessionWindows
from forkpoint.runtime.columnar.codes import codes_of
from forkpoint.runtime.columnar.keys import KeySet, parts_of
from forkpoint.runtime.columnar.leaves import Leaves
from forkpoint.runtime.columnar.msgpack import decode as decode_numbers
from forkpoint.runtime.columnar.plans import Plan
from forkpoint.runtime.columnar.segments import Bools, run_starts
from forkpoint.runtime.event_time.watermarks import MIN_MS
from forkpoint.runtime.exchange.batch import Longs, stable_order
from forkpoint.runtime.operators.base import Epoch, TaskInfo
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.runtime.windows.columns import ColumnarUnsupported, ColumnKernel, Due, Rows, Status, Windows
from forkpoint.runtime.windows.merging_windows import MERGING_WINDOWS
from forkpoint.runtime.windows.spec import WindowSpec
from forkpoint.state import prefix_stop, sid_ranges

_KEY_AT = 10  # offset of the key in the store key of a state
_FEW = 8  # with fewer saved sessions per row, one scan reads them all


def _key_end(name: bytes) -> int:
    return _KEY_AT + int.from_bytes(name[6:_KEY_AT], "big")


@dataclass(frozen=True)
class Saved:
    """Saved sessions by start: their windows and their state windows."""

    keys: pa.Array
    starts: Longs
    ends: Longs
    kept_starts: Longs
    kept_ends: Longs


@dataclass(frozen=True)
class Sessions(Windows):
    """``was[i]``: the index of the saved session that the i-th session continues, -1 for none."""

    was: Longs
    saved: Saved


class SessionColumns(ColumnKernel[Sessions]):
    """Sessions with a fixed gap."""

    requires_contents = True

    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: WindowSpec, plan: Plan) -> None:
        super().__init__(info, backend, spec, plan)
        assert isinstance(spec.assigner, EventTimeSessionWindows)
        assert spec.assigner._gap_ms is not None
        self._gap_ms = spec.assigner._gap_ms
        self._merging_sid = backend.sid(MERGING_WINDOWS)
        self._in_flight: int | None = None  # estimate of the number of saved sessions

    def _windows(self, rows: Rows, due: Due, epoch: Epoch, skipped: frozenset[bytes]) -> Sessions:
        saved = self._saved(rows.keys, due, skipped)
        self._check_timers(saved, due, epoch)
        return self._divide(saved, rows)

    def _check_timers(self, saved: Saved, due: Due, epoch: Epoch) -> None:
        """Raise ColumnarUnsupported unless the timers are the timers of the saved sessions, at their ends and their expiry."""
        before, now, matched = epoch.window.before, epoch.window.end, 0
        for behind in {0, self._lateness_ms}:
            expected = saved.ends - 1 + behind
            of_kind = int(np.count_nonzero(due.times == due.ends - 1 + behind))
            if of_kind != np.count_nonzero((expected > before) & (expected <= now)):
                raise ColumnarUnsupported
            matched += of_kind
        gone = saved.ends - 1 + self._lateness_ms <= before
        if matched != len(due.times) or gone.any():
            raise ColumnarUnsupported

    def _saved(self, columns: list[pa.Array], due: Due, skipped: frozenset[bytes]) -> Saved:
        """The saved sessions: at least the sessions of keys with rows, and the sessions that end."""
        entries = list[tuple[bytes, bytes]]()
        if self._in_flight is None or self._in_flight < _FEW * (len(columns[0]) + len(due.names)) + 4096:
            for start, stop in self._store.occupied(sid_ranges(*self._groups, self._merging_sid)):
                entries += self._store.scan(start, stop)
            self._in_flight = len(entries)
        else:
            entries = self._scanned(columns, due)
        if skipped:
            entries = [(name, raw) for name, raw in entries if name[_KEY_AT : _key_end(name)] not in skipped]
        names = [name for name, _ in entries]
        ends = list(map(_key_end, names))
        spaces = [name[end:] for name, end in zip(names, ends, strict=True)]
        windows = decode_numbers(self._layout, spaces)
        kept = decode_numbers(self._layout, [raw for _, raw in entries])
        if windows is None or kept is None:
            raise ColumnarUnsupported
        keys = self._decoded([name[_KEY_AT:end] for name, end in zip(names, ends, strict=True)])
        by_start, starts = stable_order(windows[0])
        return Saved(keys.take(pa.array(by_start)), starts, windows[1][by_start], kept[0][by_start], kept[1][by_start])

    def _scanned(self, columns: list[pa.Array], due: Due) -> list[tuple[bytes, bytes]]:
        """The saved sessions of the rows' keys, and the sessions that end: for far more saved sessions than rows."""
        _, firsts = np.unique(codes_of(columns), return_index=True)
        keys = self._keys_of(columns, firsts)
        found: dict[bytes, bytes] = {}
        for prefix in keys.names(self._merging_sid):
            found.update(self._store.scan(prefix, prefix_stop(prefix)))
        due_keys = KeySet(due.keys, self._key_type, self._max_parallelism)
        names = due_keys.names(self._merging_sid, None, self._spaces(due.starts, due.ends))
        stored = zip(names, self._store.get_many(names), strict=True)
        found.update((name, raw) for name, raw in stored if raw is not None)
        return list(found.items())

    def _divide(self, saved: Saved, rows: Rows) -> Sessions:
        """Divide the rows into sessions. Raises ColumnarUnsupported for rows whose session previous rows do not determine."""
        count, gap, lateness = len(saved.starts), self._gap_ms, self._lateness_ms
        parts = [pa.concat_arrays([old, new]) for old, new in zip(parts_of(saved.keys, self._by), rows.keys, strict=True)]
        order, codes = stable_order(codes_of(parts))
        low = np.concatenate((saved.starts, rows.timestamps))[order]
        high = np.concatenate((saved.ends - gap, rows.timestamps))[order]
        moment = np.concatenate((np.full(count, MIN_MS), rows.seen))[order]
        is_row = order >= count
        if not len(order):
            empty, keys = order, self._keys_of(parts, order)
            return Sessions(keys, empty, empty, empty, empty, empty, empty, empty, empty, empty, saved)
        new_key = run_starts(codes)
        key_of = np.cumsum(new_key) - 1
        least, width = int(low.min()), int(high.max()) - int(low.min()) + 1
        if (width * (len(order) + 1)).bit_length() > 62:
            raise ColumnarUnsupported
        top = np.maximum.accumulate(key_of * width + (high - least))
        before = np.empty_like(top)  # the greatest timestamp before this one, of the same key
        before[0], before[1:] = 0, top[:-1] - key_of[1:] * width + least
        begins = new_key | ~is_row | (low > before + gap) | (moment >= before + gap - 1 + lateness)
        session = np.cumsum(begins) - 1
        bottom = np.maximum.accumulate(session * width + (width - 1 - (low - least)))
        floor = least + width - 1 - (bottom - session * width)  # the least timestamp of the session up to this row
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(order)) - 1
        ended = is_row[first] & (low[first] + gap - 1 <= moment[first])
        late = ended & (low[first] + gap - 1 + lateness <= moment[first])
        unclear = np.concatenate(
            (
                self._rows_needing_fallback(begins, new_key, session, first, low, floor, before),
                first[late][last[late] > first[late]],
                first[ended & ~late],
                np.flatnonzero(~begins & (moment >= before + gap - 1)),
            )
        )
        if len(unclear):
            raise ColumnarUnsupported(np.unique(order[unclear]) - count)
        keep = np.flatnonzero(~late)
        starts, ends = floor[last][keep], (top[last] - key_of[last] * width + least + gap)[keep]
        begun = first[keep]
        from_saved = np.where(is_row[begun], -1, order[begun])
        kept_starts, kept_ends = low[begun].copy(), low[begun] + gap
        old = from_saved >= 0
        kept_starts[old], kept_ends[old] = saved.kept_starts[from_saved[old]], saved.kept_ends[from_saved[old]]
        keys = self._keys_of(parts, order[new_key])
        is_late = np.repeat(late, last - first + 1)
        sizes = np.add.reduceat(is_row, first, dtype=np.int64)[keep]
        return Sessions(
            keys,
            key_of[begun],
            starts,
            ends,
            kept_starts,
            kept_ends,
            order[is_row & ~is_late] - count,
            sizes,
            np.sort(order[is_late] - count),
            from_saved,
            saved,
        )

    def _rows_needing_fallback(
        self, begins: Bools, new_key: Bools, session: Longs, first: Longs, low: Longs, floor: Longs, before: Longs
    ) -> Longs:
        """Rows before the start of their session that are beyond its gap, or also within the gap of an older session."""
        back = np.zeros(len(low), bool)
        back[1:] = ~begins[1:] & (low[1:] < floor[:-1])
        at = np.flatnonzero(back)
        began = first[session[at]]
        apart = low[at] + self._gap_ms < floor[at - 1]
        return at[apart | (~new_key[began] & (low[at] <= before[began] + self._gap_ms))]

    def _lookups(self, windows: Sessions, status: Status) -> Bools:
        return (windows.was >= 0) & (status.touched | status.ended)

    def _changes(self, windows: Sessions, due: Due, status: Status, leaves: Leaves, saved: Bools) -> ChangeLog:
        log, old, was, touched = ChangeLog(), windows.was >= 0, windows.was, status.touched
        before = windows.saved
        changed = ~old
        changed[old] = (before.starts[was[old]] != windows.starts[old]) | (before.ends[was[old]] != windows.ends[old])
        moved = np.flatnonzero(old & (changed | status.expired))  # sessions that leave their saved window
        fired = np.flatnonzero(old & (changed | status.ended))
        log.delete(windows.keys.names(self._merging_sid, windows.key_of[moved], self._spaces_of(before, was[moved])))
        log.delete(self._timers_of(windows, fired, 0))
        log.delete(self._kept(windows, np.flatnonzero(old & status.expired)))
        if self._lateness_ms:
            log.delete(self._timers_of(windows, moved, self._lateness_ms))
        self._keep(log, windows, np.flatnonzero(touched & ~status.expired), leaves)
        new = np.flatnonzero(touched & ~status.expired & changed)
        spaces = self._spaces(windows.starts[new], windows.ends[new])
        kept = self._spaces(windows.kept_starts[new], windows.kept_ends[new]).to_pylist()
        log.add(windows.keys.names(self._merging_sid, windows.key_of[new], spaces), kept)
        self._set_timers(log, windows, np.flatnonzero(touched & ~status.expired & ~status.ended), 0)
        if self._lateness_ms:
            # Including sessions that end: the allowed lateness may have changed since their start.
            self._set_timers(log, windows, np.flatnonzero((touched | status.ended) & ~status.expired), self._lateness_ms)
        return log

    def _timers_of(self, windows: Sessions, at: Longs, behind_ms: int) -> list[bytes]:
        """The timers ``behind_ms`` after the ends of the saved sessions that the sessions ``at`` continue."""
        was = windows.was[at]
        times, spaces = windows.saved.ends[was] - 1 + behind_ms, self._spaces_of(windows.saved, was)
        return windows.keys.timers(self._timer_sid, times, windows.key_of[at], spaces)

    def _spaces_of(self, saved: Saved, at: Longs) -> pa.BinaryArray:
        return self._spaces(saved.starts[at], saved.ends[at])
