"""The jobs of the column-wise scenarios, and how to read their open windows from a savepoint."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from data import DISORDER_MS, SCHEMA

import forkpoint as fp

# A key's bids are 100 s apart on average.
WINDOW = timedelta(seconds=60)
SLIDE = timedelta(seconds=10)
GAP = timedelta(seconds=30)

ASSIGNERS = {
    "tumbling": fp.TumblingEventTimeWindows.of(WINDOW),
    "sliding": fp.SlidingEventTimeWindows.of(WINDOW, SLIDE),
    "session": fp.EventTimeSessionWindows.with_gap(GAP),
}


class Totals(NamedTuple):
    count: int  # type: ignore[assignment]
    sum: int


class KeyTotals(NamedTuple):
    key: int
    count: int  # type: ignore[assignment]
    sum: int


class CountAndSumColumns(fp.KeyedBatchFunction):
    """Running count and sum of a key's amounts, in one ValueState; emits a row for each key and epoch."""

    totals = fp.ValueStateDescriptor("totals", Totals)

    def process_batch(self, table: pa.Table, ctx: fp.BatchContext) -> pa.Table:
        state = ctx.get_state(self.totals)
        before = state.read()
        counts = np.diff(ctx.offsets) + before["count"].fill_null(0).to_numpy()
        sums = np.add.reduceat(table["amount"].to_numpy(), ctx.offsets[:-1]) + before["sum"].fill_null(0).to_numpy()
        state.write({"count": counts, "sum": sums})
        return pa.table({"key": ctx.keys, "count": counts, "sum": sums})


def windowed(keyed: fp.KeyedStream, kind: str) -> fp.DataStream:
    return keyed.window(ASSIGNERS[kind]).agg(
        window_start=fp.WindowStart(), window_end=fp.WindowEnd(), count=fp.Count(), sum=fp.Sum("amount")
    )


def open_windows(savepoint: Path) -> pa.Table:
    """(key, start, count, sum) of the open windows; a session starts at its first bid."""
    state = pq.read_table(savepoint / "operators" / "totals" / "window-contents")
    state = state.select(["key", "namespace_start", "count", "sum_amount"])
    return state.rename_columns(["key", "start", "count", "sum"])


def check_windows(found: pa.Table, directory: Path, kind: str) -> None:
    """Compare a scenario's open windows, (key, start, count, sum), with the expected ones.

    All expected windows must be present; closed ones that a side has not removed yet must be right too. Raises
    AssertionError otherwise.
    """
    bids = ds.dataset(directory, schema=SCHEMA).to_table()
    key, ts, amount = (bids[name].to_numpy() for name in ("key", "ts", "amount"))
    size, slide = to_ms(WINDOW), to_ms(SLIDE if kind == "sliding" else WINDOW)
    if kind == "session":
        order = np.lexsort((ts, key))
        key, ts, amount = key[order], ts[order], amount[order]
        begins = np.concatenate(([True], (key[1:] != key[:-1]) | (ts[1:] - ts[:-1] > to_ms(GAP))))
        session = np.cumsum(begins) - 1
        start, end = ts[begins][session], np.maximum.reduceat(ts, np.flatnonzero(begins))[session] + to_ms(GAP)
    else:
        times = size // slide
        start = np.concatenate([ts - ts % slide - n * slide for n in range(times)])
        key, amount, end = np.tile(key, times), np.tile(amount, times), start + size
    windows = pa.table({"key": key, "start": start, "end": end, "amount": amount}).group_by(["key", "start", "end"])
    expected = windows.aggregate([("amount", "count"), ("amount", "sum")])
    expected = expected.rename_columns(["key", "start", "end", "count", "sum"])
    still_open = expected.filter(pc.greater(expected["end"], int(ts.max()) - DISORDER_MS))
    names = ["key", "count", "sum"] if kind == "session" else ["key", "start", "count", "sum"]
    have, must, may = (set(zip(*(t[n].to_pylist() for n in names), strict=True)) for t in (found, still_open, expected))
    if not must <= have or not have <= may:
        raise AssertionError(f"wrong windows: {len(must - have)} open ones missing, {len(have - may)} of {len(have)} wrong")


def to_ms(time: timedelta) -> int:
    return time // timedelta(milliseconds=1)
