"""Spark's own way in Python, at least once: BROKERS FROM TO CHECKPOINTS PARALLELISM INTERVAL_MS EPOCH_ROWS JARS.

Its connector, and a function with state over the pandas frames of each key.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.sql import functions as sf
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

sys.path.append(str(Path(__file__).resolve().parents[1]))
from spark_reference import session

EVENT = "user bigint, number bigint, sent_us bigint, note string"
COUNTED = "user bigint, number bigint, sent_us bigint, count bigint"


def count(key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    (seen,) = state.get if state.exists else (0,)
    for frame in frames:
        counts = np.arange(seen + 1, seen + 1 + len(frame))
        seen += len(frame)
        yield frame[["user", "number", "sent_us"]].assign(count=counts)
    state.update((seen,))


def main() -> None:
    brokers, source, to, checkpoints, parallelism, interval_ms, epoch_rows, jars = sys.argv[1:]
    connector = ",".join(map(str, Path(jars).glob("*.jar")))
    spark = session(Path(checkpoints) / "scratch", int(parallelism), {"spark.jars": connector})
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", brokers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", epoch_rows)
        .load()
    )
    events = records.select(sf.from_json(sf.col("value").cast("string"), EVENT).alias("event")).select("event.*")
    counts = events.groupBy("user").applyInPandasWithState(count, COUNTED, "seen bigint", "append", GroupStateTimeout.NoTimeout)
    (
        counts.select(sf.col("user").cast("string").alias("key"), sf.to_json(sf.struct("*")).alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", brokers)
        .option("topic", to)
        .option("checkpointLocation", f"{checkpoints}/query")
        .outputMode("append")
        .trigger(processingTime=f"{interval_ms} milliseconds")
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main()
