"""Small queries over files of (word, n, ts), run to where their input ends, whose checkpoints are then imported."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
HOUR_MS = 3_600_000
MINUTE_MS = 60_000
START_MS = 1_704_067_200_000  # 2024-01-01

WORDS = "abcab"
EVENTS = [(word, i + file, 10 * file + i) for file in range(3) for i, word in enumerate(WORDS + str(file))]
"""Word, number, minute of the first hour of 2024; six in each file."""


def write(directory: Path, file: int, events: list[tuple[str, int, int]] | None = None) -> None:
    directory.mkdir(exist_ok=True)
    rows = [{"word": w, "n": n, "ts": f"2024-01-01T00:{m:02}:00Z"} for w, n, m in events or EVENTS[6 * file :][:6]]
    (directory / f".{file}").write_text("".join(json.dumps(row) + "\n" for row in rows))
    os.utime(directory / f".{file}", (START_MS / 1000 + file,) * 2)  # the order in which they are taken
    (directory / f".{file}").rename(directory / f"{file}.json")


def words(session: SparkSession, directory: Path, files: int = 1, name: str | None = None) -> DataFrame:
    reader = session.readStream.schema("word string, n long, ts timestamp").option("maxFilesPerTrigger", files)
    return (reader if name is None else reader.name(name)).json(str(directory))


def timed(session: SparkSession, directory: Path, files: int = 3) -> DataFrame:
    return words(session, directory, files).withWatermark("ts", "5 minutes")


def run(
    session: SparkSession,
    checkpoint: Path,
    frame: Callable[[], DataFrame],
    mode: str = "update",
    *,
    once: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Path:
    """Run a query to its input's end. ``once``: in one batch, as queries with processing time have no end."""
    for name, value in (settings or {}).items():
        session.conf.set(name, value)
    try:
        writer = frame().writeStream.outputMode(mode).format("noop").option("checkpointLocation", str(checkpoint))
        query = (writer.trigger(once=True) if once else writer.trigger(availableNow=True)).start()
        query.awaitTermination()
    finally:
        for name in settings or {}:
            session.conf.unset(name)
    return checkpoint


def on_rocksdb(**settings: str) -> dict[str, str]:
    return {"spark.sql.streaming.stateStore.providerClass": ROCKSDB, **settings}


class Everything(StatefulProcessor):
    """Values, lists, maps and timers of event time."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.total = handle.getValueState("total", "n long, last string")
        self.seen = handle.getListState("seen", "ts timestamp")
        self.by = handle.getMapState("by", "odd boolean", "n long, m long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        n = self.total.get()[0] if self.total.exists() else 0
        for row in rows:
            n += row.n
            self.seen.appendValue((row.ts,))
            self.by.updateValue((row.n % 2 == 1,), (row.n, -row.n))
            self.total.update((n, str(row.n)))
            self.handle.registerTimer(int(row.ts.timestamp() * 1000) + HOUR_MS)
        yield Row(word=key[0], n=n)


class Expiring(StatefulProcessor):
    """Values and maps with a time to live, and a timer of processing time."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.last = handle.getValueState("last", "x long", ttlDurationMs=1000 * HOUR_MS)
        self.by = handle.getMapState("by", "k string", "x long", ttlDurationMs=1000 * HOUR_MS)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        for row in rows:
            self.last.update((row.n,))
            self.by.updateValue((row.word,), (row.n,))
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1000 * HOUR_MS)
        yield Row(word=key[0], n=0)
