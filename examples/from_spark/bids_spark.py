"""The query to migrate: bids and the highest price of each auction in each minute, in Structured Streaming.

    python examples/from_spark/bids_spark.py make BIDS FIRST LAST    write the files FIRST to LAST of the stream, in order
    python examples/from_spark/bids_spark.py BIDS OUT CHECKPOINT     run the query over the existing files, then stop

The stream is generated, and the same each time.
"""

from __future__ import annotations

import json
import os
import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "auction long, price double, time timestamp"
START = datetime(2026, 1, 1, tzinfo=UTC)


def write_bids(directory: Path, first: int, last: int) -> None:
    """Files of the stream, twenty seconds each, with bids up to eight seconds out of order."""
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(first, last + 1):
        chance = random.Random(number)
        times = [START + timedelta(seconds=20 * number + chance.uniform(0, 20)) for _ in range(50)]
        times.sort(key=lambda time: time.timestamp() + chance.uniform(0, 8))
        bids = [
            {"auction": chance.randrange(7), "price": round(chance.uniform(1, 99), 2), "time": time.isoformat()} for time in times
        ]
        hidden = directory / f".{number:04}.json"
        hidden.write_text("".join(json.dumps(bid) + "\n" for bid in bids))
        modified = START.timestamp() + 20 * number
        os.utime(hidden, (modified, modified))  # Spark takes files in the order of these times
        hidden.rename(directory / f"{number:04}.json")


def read(spark: SparkSession, directory: str) -> DataFrame:
    """The stream; the same call as in the program that takes over."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(directory)


def counts(bids: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    per_minute = bids.withWatermark("time", "10 seconds").groupBy(f.window("time", "1 minute"), "auction")
    summed = per_minute.agg(f.count("*").alias("bids"), f.max("price").alias("highest"))
    return summed.select("auction", f.unix_millis("window.start").alias("minute"), "bids", "highest")


def run(spark: SparkSession, directory: str, out: str, checkpoint: str) -> None:
    query = (
        counts(read(spark, directory))
        .writeStream.format("parquet")
        .option("path", out)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if sys.argv[1] == "make":
        write_bids(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    else:
        from pyspark.sql import SparkSession

        session = SparkSession.builder.appName("bids").config("spark.sql.session.timeZone", "UTC").getOrCreate()
        run(session, *sys.argv[1:4])
