"""Session windows of event time over columns.

A key's saved sessions, and behind them its rows as they come, are one sequence. A row begins a new session where it is
further than the gap behind all before it, or where what was before it is gone by the watermark that it sees; else it belongs
to the session before it. Keys for which that is not all - where a row makes two sessions one, belongs to an older one than
the last, or comes behind the end of one that stays for its allowed lateness - are left to WindowOperator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from forkpoint.functions import EventTimeSessionWindows
from forkpoint.runtime.columnar.keys import KeySet, codes_of, parts_of
from forkpoint.runtime.columnar.leaves import Leaves, merged
from forkpoint.runtime.columnar.msgpack import decode as decode_numbers
from forkpoint.runtime.columnar.plans import Plan, empty_leaves
from forkpoint.runtime.columnar.segments import Bools, Segments
from forkpoint.runtime.event_time.watermarks import MIN_MS
from forkpoint.runtime.exchange.batch import Batch, Longs, spread, stable_order
from forkpoint.runtime.operators.base import Epoch, Outputs, TaskInfo, with_late
from forkpoint.runtime.state.keyed_backend import ChangeLog, KeyedBackend
from forkpoint.runtime.windows.merging import MERGING_WINDOWS
from forkpoint.runtime.windows.spec import WindowSpec
from forkpoint.runtime.windows.time_columns import ColumnarUnsupported, ColumnWindows, Due
from forkpoint.state import prefix_stop, sid_range

_KEY_AT = 10  # where the key begins in a state's name
_FEW = 8  # below so many saved sessions for each row, all are read in one go


def _key_end(name: bytes) -> int:
    return _KEY_AT + int.from_bytes(name[6:_KEY_AT], "big")


@dataclass(frozen=True)
class Saved:
    """Sessions in flight: their windows, and those that their contents are kept under; by start."""

    keys: pa.Array
    starts: Longs
    ends: Longs
    kept_starts: Longs
    kept_ends: Longs


@dataclass(frozen=True)
class Sessions:
    """The sessions of an epoch: the i-th belongs to key ``key_of[i]`` and goes on from the saved one ``saved[i]`` (-1: none).

    ``order``: rows of all sessions, those of the i-th being ``sizes[i]`` in a row.
    """

    keys: KeySet
    key_of: Longs
    starts: Longs
    ends: Longs
    kept_starts: Longs
    kept_ends: Longs
    saved: Longs
    order: Longs
    sizes: Longs
    late: Longs


class ColumnSessions(ColumnWindows):
    """Sessions with a fixed gap."""

    def __init__(self, info: TaskInfo, backend: KeyedBackend, spec: WindowSpec, plan: Plan) -> None:
        super().__init__(info, backend, spec, plan)
        assert isinstance(spec.assigner, EventTimeSessionWindows)
        assert spec.assigner._gap_ms is not None
        self._gap_ms = spec.assigner._gap_ms
        self._lateness_ms = spec.lateness_ms
        self._merging_sid = backend.sid(MERGING_WINDOWS)
        self._in_flight: int | None = None  # about how many sessions are saved, once that is known

    def _run_columns(self, batch: Batch, epoch: Epoch, skipped: frozenset[bytes] = frozenset()) -> Outputs:
        (columns, timestamps), due = self._rows(batch), self._due(epoch, skipped)
        saved = self._saved(columns, due, skipped)
        self._check_timers(saved, due, epoch)
        seen = epoch.window.at(spread(batch.positions, batch.size))
        sessions = self._cut(saved, columns, timestamps, seen)
        main = self._compute(sessions, saved, batch, due, epoch)
        self._next_timer = None
        return with_late(main, batch, sessions.late, self._spec.late_tag)

    def _check_timers(self, saved: Saved, due: Due, epoch: Epoch) -> None:
        """ColumnarUnsupported where the timers aren't those of the sessions in flight, at their ends and when they go."""
        before, end = epoch.window.before, epoch.window.end
        matched = 0
        for behind in {0, self._lateness_ms}:
            expected = saved.ends - 1 + behind
            of_kind = int(np.count_nonzero(due.times == due.ends - 1 + behind))
            if of_kind != np.count_nonzero((expected > before) & (expected <= end)):
                raise ColumnarUnsupported
            matched += of_kind
        gone = saved.ends - 1 + self._lateness_ms <= before
        if matched != len(due.times) or gone.any():
            raise ColumnarUnsupported

    def _saved(self, columns: list[pa.Array], due: Due, skipped: frozenset[bytes]) -> Saved:
        """The sessions in flight, at least of the keys that have rows and of those that end."""
        store, entries = self._backend.store, list[tuple[bytes, bytes]]()
        if self._in_flight is None or self._in_flight < _FEW * (len(columns[0]) + len(due.names)) + 4096:
            for group in range(*self._groups_range):
                entries += store.scan(*sid_range(group, self._merging_sid))
            self._in_flight = len(entries)
        else:
            entries = self._scanned(columns, due)
        if skipped:
            entries = [(name, raw) for name, raw in entries if name[_KEY_AT : _key_end(name)] not in skipped]
        names = [name for name, _ in entries]
        ends = list(map(_key_end, names))
        assert self._window_layout is not None
        spaces = [name[end:] for name, end in zip(names, ends, strict=True)]
        windows = decode_numbers(self._window_layout, spaces)
        kept = decode_numbers(self._window_layout, [raw for _, raw in entries])
        if windows is None or kept is None:
            raise ColumnarUnsupported
        keys = self._decoded([name[_KEY_AT:end] for name, end in zip(names, ends, strict=True)])
        by_start, starts = stable_order(windows[0])
        return Saved(keys.take(pa.array(by_start)), starts, windows[1][by_start], kept[0][by_start], kept[1][by_start])

    def _scanned(self, columns: list[pa.Array], due: Due) -> list[tuple[bytes, bytes]]:
        """Where far more sessions are in flight than an epoch has rows: those of the rows' keys, and those that end."""
        _, firsts = np.unique(codes_of(columns), return_index=True)
        keys = self._keys_of(columns, firsts)
        found: dict[bytes, bytes] = {}
        for prefix in keys.names(self._merging_sid):
            found.update(self._backend.store.scan(prefix, prefix_stop(prefix)))
        ending = KeySet(due.keys, self._key_type, self._info.max_parallelism)
        names = ending.names(self._merging_sid, None, self._spaces(due.starts, due.ends))
        stored = zip(names, self._backend.store.get_many(names), strict=True)
        found.update((name, raw) for name, raw in stored if raw is not None)
        return list(found.items())

    def _cut(self, saved: Saved, columns: list[pa.Array], timestamps: Longs, seen: Longs) -> Sessions:
        """ColumnarUnsupported for rows whose session depends on more than what came before them."""
        count, gap, lateness = len(saved.starts), self._gap_ms, self._lateness_ms
        parts = [
            pa.concat_arrays([old, new])
            for old, new in zip(parts_of(saved.keys, self._by), columns, strict=True)
        ]  # fmt: skip
        order, codes = stable_order(codes_of(parts))
        low = np.concatenate((saved.starts, timestamps))[order]
        high = np.concatenate((saved.ends - gap, timestamps))[order]
        moment = np.concatenate((np.full(count, MIN_MS), seen))[order]
        is_row = order >= count
        if not len(order):
            return Sessions(self._keys_of(parts, order), *[order] * 9)
        new_key = np.concatenate(([True], codes[1:] != codes[:-1]))
        key_of = np.cumsum(new_key) - 1
        least, width = int(low.min()), int(high.max()) - int(low.min()) + 1
        if (width * (len(order) + 1)).bit_length() > 62:
            raise ColumnarUnsupported
        top = np.maximum.accumulate(key_of * width + (high - least))
        before = np.empty_like(top)  # the last timestamp of all before, of the same key
        before[0], before[1:] = 0, top[:-1] - key_of[1:] * width + least
        begins = new_key | ~is_row | (low > before + gap) | (moment >= before + gap - 1 + lateness)
        session = np.cumsum(begins) - 1
        bottom = np.maximum.accumulate(session * width + (width - 1 - (low - least)))
        floor = least + width - 1 - (bottom - session * width)  # the first timestamp of the session, this row included
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(order)) - 1
        ended = is_row[first] & (low[first] + gap - 1 <= moment[first])
        late = ended & (low[first] + gap - 1 + lateness <= moment[first])
        odd = np.concatenate((
            self._rows_needing_fallback(begins, new_key, session, first, low, floor, before),
            first[late][last[late] > first[late]],
            first[ended & ~late],
            np.flatnonzero(~begins & (moment >= before + gap - 1)),
        ))  # fmt: skip
        if len(odd):
            raise ColumnarUnsupported(np.unique(order[odd]) - count)
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
            keys, key_of[begun], starts, ends, kept_starts, kept_ends, from_saved,
            order[is_row & ~is_late] - count, sizes, np.sort(order[is_late] - count),
        )  # fmt: skip

    def _rows_needing_fallback(
        self, begins: Bools, new_key: Bools, session: Longs, first: Longs, low: Longs, floor: Longs, before: Longs
    ) -> Longs:
        """Rows that reach back, and touch another session than the one that they come behind, or none."""
        back = np.zeros(len(low), bool)
        back[1:] = ~begins[1:] & (low[1:] < floor[:-1])
        at = np.flatnonzero(back)
        began = first[session[at]]
        apart = low[at] + self._gap_ms < floor[at - 1]
        return at[apart | (~new_key[began] & (low[at] <= before[began] + self._gap_ms))]

    def _compute(self, sessions: Sessions, saved: Saved, batch: Batch, due: Due, epoch: Epoch) -> Batch:
        last = sessions.ends - 1
        fires = (last > epoch.window.before) & (last <= epoch.window.end)
        goes = last + self._lateness_ms <= epoch.window.end
        old, touched = sessions.saved >= 0, sessions.sizes > 0
        asked = np.flatnonzero(old & (touched | fires))
        raw = self._backend.store.get_many(self._kept(sessions, asked))
        if None in raw:
            raise ColumnarUnsupported
        stored = [r for r in raw if r is not None]
        contents = self._codec.decode(stored) if stored else empty_leaves(self._plan.type)
        if contents is None:
            raise ColumnarUnsupported
        at = np.full(len(old), -1)
        at[asked] = np.arange(len(asked))
        leaves = self._leaves(sessions, batch, touched, contents, at)
        if leaves is None:
            raise ColumnarUnsupported
        self._column_log = self._log(sessions, saved, leaves, fires, goes)
        ending = np.flatnonzero(fires)
        which = pa.array(ending)
        return self._results(
            [leaf.take(which) for leaf in leaves], sessions.keys, sessions.key_of[ending], sessions.starts[ending],
            sessions.ends[ending],
        )  # fmt: skip

    def _leaves(self, sessions: Sessions, batch: Batch, touched: Bools, contents: Leaves, at: Longs) -> Leaves | None:
        if not touched.any():
            return [
                leaf.take(pa.array(np.maximum(at, 0))) if len(leaf) else pa.nulls(len(at), leaf.type)
                for leaf in contents
            ]
        assert batch.table is not None
        offsets = np.concatenate(([0], np.cumsum(sessions.sizes[touched])))
        updated = self._plan.update(Segments(batch.table, sessions.order, offsets, at[touched]), contents)
        if updated is None or touched.all():
            return updated
        place = pa.array(np.maximum(np.cumsum(touched) - 1, 0))
        held = ~touched & (at >= 0)
        return [merged(new.take(place), kept, held, at) for new, kept in zip(updated, contents, strict=True)]

    def _kept(self, sessions: Sessions, at: Longs) -> list[bytes]:
        """Where the contents of sessions are."""
        spaces = self._spaces(sessions.kept_starts[at], sessions.kept_ends[at])
        return sessions.keys.names(self._contents_sid, sessions.key_of[at], spaces)

    def _log(self, sessions: Sessions, saved: Saved, leaves: Leaves, fires: Bools, goes: Bools) -> ChangeLog:
        log, keys = ChangeLog(), sessions.keys
        old, touched = sessions.saved >= 0, sessions.sizes > 0
        was = np.maximum(sessions.saved, 0)
        changed = ~old
        if len(saved.starts):
            changed = ~old | (saved.starts[was] != sessions.starts) | (saved.ends[was] != sessions.ends)
        parted = np.flatnonzero(old & (changed | goes))  # from the window that they had
        fired = np.flatnonzero(old & (changed | fires))
        log.keys += keys.names(self._merging_sid, sessions.key_of[parted], self._was(saved, was[parted]))
        log.keys += self._timers_of(sessions, fired, saved, was[fired], 0)
        log.keys += self._kept(sessions, np.flatnonzero(old & goes))
        if self._lateness_ms:
            log.keys += self._timers_of(sessions, parted, saved, was[parted], self._lateness_ms)
        log.values += [None] * len(log.keys)
        stays = np.flatnonzero(touched & ~goes)
        log.keys += self._kept(sessions, stays)
        log.values += self._codec.encode([leaf.take(pa.array(stays)) for leaf in leaves])
        new = np.flatnonzero(touched & ~goes & changed)
        log.keys += keys.names(
            self._merging_sid, sessions.key_of[new], self._spaces(sessions.starts[new], sessions.ends[new])
        )
        log.values += self._spaces(sessions.kept_starts[new], sessions.kept_ends[new]).to_pylist()
        self._set(log, sessions, np.flatnonzero(touched & ~goes & ~fires), 0)
        if self._lateness_ms:
            # Also of those that end: the allowed lateness may be another than when the session began.
            self._set(log, sessions, np.flatnonzero((touched | fires) & ~goes), self._lateness_ms)
        return log

    def _was(self, saved: Saved, at: Longs) -> pa.BinaryArray:
        return self._spaces(saved.starts[at], saved.ends[at])

    def _timers_of(self, sessions: Sessions, at: Longs, saved: Saved, was: Longs, behind_ms: int) -> list[bytes]:
        """The timers so far behind their ends of the saved sessions ``was``, which the sessions ``at`` go on from."""
        times = saved.ends[was] - 1 + behind_ms
        return sessions.keys.timers(self._timer_sid, times, sessions.key_of[at], self._was(saved, was))

    def _set(self, log: ChangeLog, sessions: Sessions, at: Longs, behind_ms: int) -> None:
        """Timers so far behind the sessions' ends."""
        spaces = self._spaces(sessions.starts[at], sessions.ends[at])
        times = sessions.ends[at] - 1 + behind_ms
        log.keys += sessions.keys.timers(self._timer_sid, times, sessions.key_of[at], spaces)
        log.values += [b""] * len(at)
