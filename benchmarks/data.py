"""The bids that every benchmark reads: Parquet files whose names and contents depend only on constants here.

    key     int64   one of 100,000, uniformly distributed
    amount  int64   1 to 9,999
    ts      int64   ms since the epoch, increasing by 1 ms a bid; neighbours are out of order by up to 100 ms

`python benchmarks/data.py` creates them all; a benchmark creates those that are missing.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

HOME = Path(__file__).resolve().parent.parent / ".bench"

KEYS = 100_000
SEED = 20_130_101
START_MS = 1_700_000_000_000
DISORDER_MS = 100
FILE_ROWS = 125_000  # 4 files are an epoch of 500k rows, 20 one of 2.5M

SCHEMA = pa.schema([("key", pa.int64()), ("amount", pa.int64()), ("ts", pa.int64())])


def bids(index: int, rows: int) -> pa.Table:
    """File number `index` of a stream that is cut after every `rows` rows."""
    random = np.random.default_rng([SEED, rows, index])
    first = index * rows
    return pa.table(
        {
            "key": random.integers(0, KEYS, rows),
            "amount": random.integers(1, 10_000, rows),
            "ts": START_MS + np.arange(first, first + rows) + random.integers(0, DISORDER_MS + 1, rows),
        },
        schema=SCHEMA,
    )


def stage_input(rows_per_epoch: int, epochs: int, target: Path) -> int:
    """Fill the new directory `target` with the files of `epochs` epochs, in order of name and modification time.

    Returns the number of files of one epoch. The files are hard links into a store that is created once, or copies.
    """
    file_rows = min(rows_per_epoch, FILE_ROWS)
    files_per_epoch, rest = divmod(rows_per_epoch, file_rows)
    if rest:
        raise ValueError(f"rows_per_epoch {rows_per_epoch} is above {FILE_ROWS} and no multiple of it")
    target.mkdir(parents=True)
    for index in range(files_per_epoch * epochs):
        stored = _stored_file(index, file_rows)
        try:
            os.link(stored, target / stored.name)
        except OSError:
            shutil.copy2(stored, target / stored.name)
    return files_per_epoch


def expected_totals(directory: Path) -> pa.Table:
    """(key, count, sum) of all bids in `directory`, ordered by key: the result of every scenario."""
    bids = ds.dataset(directory, schema=SCHEMA).to_table(["key", "amount"])
    totals = bids.group_by("key").aggregate([("amount", "count"), ("amount", "sum")])
    return totals.rename_columns(["key", "count", "sum"]).sort_by("key")


def check_totals(found: pa.Table, directory: Path) -> None:
    """Compare a scenario's (key, count, sum) with the expected ones; raises AssertionError if they differ."""
    expected = expected_totals(directory).select(found.column_names)
    found = found.select(expected.column_names).cast(expected.schema).sort_by("key")
    if not found.equals(expected):
        raise AssertionError(
            f"wrong result: {len(found)} keys, amounts of {pc.sum(found['sum'])}; "
            f"expected {len(expected)} keys, amounts of {pc.sum(expected['sum'])}"
        )


def _stored_file(index: int, rows: int) -> Path:
    path = HOME / "data" / f"bids-{rows}" / f"{index:05}.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".tmp")
        pq.write_table(bids(index, rows), unfinished)
        # Readers take files in order of modification time, not of creation.
        stamp = START_MS // 1000 + index
        os.utime(unfinished, (stamp, stamp))
        unfinished.rename(path)
    return path


def main() -> None:
    from scenarios import FORKPOINT_SCENARIOS, SPARK_SCENARIOS

    for scenario in (*FORKPOINT_SCENARIOS.values(), *SPARK_SCENARIOS.values()):
        file_rows = min(scenario.rows_per_epoch, FILE_ROWS)
        for index in range(scenario.rows_per_epoch * scenario.epochs // file_rows):
            _stored_file(index, file_rows)
    files = list((HOME / "data").rglob("*.parquet"))
    print(f"{len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.0f} MB in {HOME / 'data'}")


if __name__ == "__main__":
    main()
