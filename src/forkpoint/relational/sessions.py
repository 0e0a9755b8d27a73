"""Session windows as columns: which rows and open sessions of a key become one session."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forkpoint.relational.windows import Longs


@dataclass(frozen=True)
class Spans:
    """Spans of time of keys, in ms. ``keys``: the index of each span's key."""

    keys: Longs
    starts: Longs
    ends: Longs

    def take(self, rows: Longs) -> Spans:
        return Spans(self.keys[rows], self.starts[rows], self.ends[rows])


@dataclass(frozen=True)
class Sessions:
    """Sessions, and for each row and each open session the one that it has become part of; -1: the row is late."""

    spans: Spans
    of_rows: Longs
    of_open: Longs


def sessions(rows: Spans, seen: Longs, open_ones: Spans) -> Sessions:
    """``rows``: from the time of each row to ``gap`` later, in order of arrival. ``seen``: the watermark before each row.

    Sessions that overlap or touch are one. That is so whatever their order, except for rows that come behind the watermark:
    they may find that a session has ended. The keys with such rows are looked at row by row.
    """
    behind = np.unique(rows.keys[rows.starts <= seen + 1])
    slow, slow_open = (np.flatnonzero(np.isin(keys, behind)) for keys in (rows.keys, open_ones.keys))
    fast, fast_open = (np.flatnonzero(~np.isin(keys, behind)) for keys in (rows.keys, open_ones.keys))
    merged, of_all = _merged(_joined(rows.take(fast), open_ones.take(fast_open)))
    one_by_one = _one_by_one(rows.take(slow), seen[slow], open_ones.take(slow_open))
    of_rows, of_open = np.full(len(rows.keys), -1), np.full(len(open_ones.keys), -1)
    of_rows[fast], of_open[fast_open] = of_all[: len(fast)], of_all[len(fast) :]
    count = len(merged.keys)
    of_rows[slow] = np.where(one_by_one.of_rows < 0, -1, one_by_one.of_rows + count)
    of_open[slow_open] = one_by_one.of_open + count
    return Sessions(_joined(merged, one_by_one.spans), of_rows, of_open)


def _joined(one: Spans, other: Spans) -> Spans:
    pairs = ((one.keys, other.keys), (one.starts, other.starts), (one.ends, other.ends))
    return Spans(*(np.concatenate(pair) for pair in pairs))


def _merged(spans: Spans) -> tuple[Spans, Longs]:
    """Spans that overlap or touch as one, and for each span the one that it is part of."""
    size = len(spans.keys)
    if not size:
        return spans, np.empty(0, np.int64)
    order = np.lexsort((spans.starts, spans.keys))
    keys, starts = spans.keys[order], spans.starts[order]
    ends, ranks = np.unique(spans.ends[order], return_inverse=True)
    latest = ends[np.maximum.accumulate(keys * size + ranks) % size]  # of the key so far
    begins = np.append(True, (keys[1:] != keys[:-1]) | (starts[1:] > latest[:-1]))
    first = np.flatnonzero(begins)
    found = np.empty(size, np.int64)
    found[order] = np.cumsum(begins) - 1
    return Spans(keys[first], starts[first], latest[np.append(first[1:], size) - 1]), found


def _one_by_one(rows: Spans, seen: Longs, open_ones: Spans) -> Sessions:
    """A row extends the sessions of its key that it overlaps or touches and that have not ended."""
    bounds = list(zip(open_ones.keys.tolist(), open_ones.starts.tolist(), open_ones.ends.tolist(), strict=True))
    parent = list(range(len(bounds)))  # of each session, the one that it has become part of
    running: dict[int, list[int]] = {}
    for at, (key, _, _) in enumerate(bounds):
        running.setdefault(key, []).append(at)
    of_rows = []
    columns = (rows.keys.tolist(), rows.starts.tolist(), rows.ends.tolist(), seen.tolist())
    for key, start, end, watermark in zip(*columns, strict=True):
        kept = [at for at in running.get(key, ()) if bounds[at][2] - 1 > watermark]
        met = [at for at in kept if bounds[at][1] <= end and start <= bounds[at][2]]
        if not met and end - 1 <= watermark:
            of_rows.append(-1)
            continue
        made = len(bounds)
        parts = [bounds[at] for at in met]
        bounds.append((key, min([start, *(part[1] for part in parts)]), max([end, *(part[2] for part in parts)])))
        parent.append(made)
        for at in met:
            parent[at] = made
        running[key] = [*(at for at in kept if at not in met), made]
        of_rows.append(made)
    return _numbered(bounds, parent, of_rows, len(open_ones.keys))


def _numbered(bounds: list[tuple[int, int, int]], parent: list[int], of_rows: list[int], open_count: int) -> Sessions:
    """The sessions that have not become part of another one."""
    for at in range(len(parent) - 1, -1, -1):  # a session becomes part of a later one
        parent[at] = parent[parent[at]]
    roots = [at for at, of in enumerate(parent) if at == of]
    number = {at: n for n, at in enumerate(roots)}
    found = [bounds[at] for at in roots]
    keys, starts, ends = (np.array([each[i] for each in found], np.int64) for i in range(3))
    of = [-1 if at < 0 else number[parent[at]] for at in of_rows]
    of_open = [number[parent[at]] for at in range(open_count)]
    return Sessions(Spans(keys, starts, ends), np.array(of, np.int64), np.array(of_open, np.int64))
