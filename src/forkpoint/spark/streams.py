"""Streaming DataFrames as sources: one stateless query reads all of them, and each of its micro-batches is an epoch.

Spark detects new data and logs the offsets before a batch runs; the driver receives them with the batch and commits them in
its manifest. The query's own checkpoint directory is temporary: each start rebuilds it from the manifest's positions.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from forkpoint.checkpoint.manifest import SourcePosition
from forkpoint.driver.run.executor import OnBatch, Streams
from forkpoint.errors import ConfigError, RestoreRefused
from forkpoint.spark.failures import unpack_failure
from forkpoint.spark.session import QUERY_SETTINGS, settings
from forkpoint.spark.stream_checkpoint import CheckpointReader, check_follows, craft

_STATEFUL = {
    "Aggregate",
    "Deduplicate",
    "DeduplicateWithinWatermark",
    "Distinct",
    "FlatMapGroupsInPandasWithState",
    "FlatMapGroupsWithState",
    "GlobalLimit",
    "LocalLimit",
    "TransformWithState",
    "TransformWithStateInPySpark",
}


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A streaming DataFrame as source `uid`, with operator id `operator`."""

    uid: str
    operator: int
    frame: DataFrame


class StreamingSources(Streams):
    """A running query that calls `on_batch(frame, positions)` for each micro-batch, on its own thread.

    stage: adds stage 0 to a DataFrame, given its operator id. token: marks the failures of its tasks. positions: the start
    position by uid; a source without one starts as its options say. interval: the time between micro-batches. stops: the
    position by uid at which the first batch, and the source, ends.

    `on_batch` receives a DataFrame of stage-0 output, valid during the call, and the positions at the batch's end, by
    uid. If it raises, the query ends and `failure` returns that exception. Raises ConfigError for DataFrames whose position
    or state does not fit into a savepoint, RestoreRefused for a position of another kind of source.
    """

    def __init__(
        self,
        session: SparkSession,
        stage: Callable[[int, DataFrame], DataFrame],
        token: str,
        sources: Sequence[StreamSource],
        positions: Mapping[str, SourcePosition],
        on_batch: OnBatch,
        interval: timedelta,
        stops: Mapping[str, SourcePosition] | None = None,
    ) -> None:
        check_streams(sources)
        check_positions(sources, positions)
        for uid, stop in (stops or {}).items():
            check_follows(uid, positions.get(uid), stop)
        self._token = token
        self._uids = [source.uid for source in sources]
        self._on_batch = on_batch
        self._query: StreamingQuery | None = None
        self._failure: BaseException | None = None
        self._stopped = False
        self._turn = threading.RLock()
        self._batch_thread: int | None = None  # the thread that runs `on_batch`
        # Temporary files, written several times per epoch: in memory if possible.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._directory = Path(tempfile.mkdtemp(prefix="forkpoint-query-", dir=memory))
        self._reader = CheckpointReader(self._directory, len(sources))
        begin = [positions.get(uid) for uid in self._uids]
        last_batch = craft(self._directory, begin, [stops[uid] for uid in self._uids] if stops is not None else ())
        self._last_batch = None if stops is None else last_batch
        with settings(session, QUERY_SETTINGS):
            staged = [stage(source.operator, source.frame) for source in sources]
            writer = reduce(DataFrame.union, staged).writeStream.foreachBatch(self._batch)
            writer = writer.option("checkpointLocation", self._directory.as_uri())
            self._query = writer.trigger(processingTime=f"{interval // timedelta(milliseconds=1)} milliseconds").start()

    def failure(self) -> BaseException | None:
        """The error that ended the query, raised by `on_batch` or a task, or Spark's StreamingQueryException."""
        if self._failure is not None:
            return self._failure
        if self._query is None or self._stopped or self._query.isActive:
            return None
        error = self._query.exception()
        return None if error is None else unpack_failure(error, self._token) or error

    def stop(self) -> None:
        """Ends the query after the current batch. May be called within `on_batch`, and repeatedly."""
        self._stopped = True
        if self._batch_thread == threading.get_ident():
            # The query's thread cannot wait for itself.
            threading.Thread(target=self._end, name="forkpoint-stop", daemon=True).start()
        else:
            self._end()

    def _end(self) -> None:
        with self._turn:  # waits for the batch
            pass
        if self._query is not None:
            self._query.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _batch(self, frame: DataFrame, batch: int) -> None:
        with self._turn:
            if self._stopped or (self._last_batch is not None and batch > self._last_batch):
                return  # Spark may log the batch as done, but only manifests count
            self._batch_thread = threading.get_ident()
            try:
                self._on_batch(frame, dict(zip(self._uids, self._reader.positions(batch), strict=True)))
            except BaseException as error:
                self._failure = error
                raise
            finally:
                self._batch_thread = None


def check_positions(sources: Sequence[StreamSource], positions: Mapping[str, SourcePosition]) -> None:
    """Raises RestoreRefused for positions of another kind of source, which would silently start from its beginning."""
    for source in sources:
        position = positions.get(source.uid)
        if position is not None and position.kind != "spark":
            raise RestoreRefused(
                f"source {source.uid!r} is a DataFrame now, but its position is of kind {position.kind!r}; "
                "give it a new uid to start it from its beginning"
            )


def check_streams(sources: Sequence[StreamSource]) -> None:
    """Raises ConfigError, naming the uid, for DataFrames whose position or state does not fit into a savepoint.

    Each must have exactly one streaming source, not shared with others, and no stateful Spark operator.
    """
    seen: dict[str, Any] = {}
    for source in sources:
        if not source.frame.isStreaming:
            raise ConfigError(f"source {source.uid!r} is a batch DataFrame; load it with readStream")
        streams: list[Any] = []
        _walk(source.frame._jdf.queryExecution().analyzed(), source.uid, streams)
        if len(streams) != 1:
            raise ConfigError(
                f"source {source.uid!r} reads {len(streams)} streams in one DataFrame; give each its own uid "
                "and union or join them in forkpoint"
            )
        for uid, other in seen.items():
            if streams[0].equals(other):
                raise ConfigError(f"sources {uid!r} and {source.uid!r} share one loaded stream; call load() for each")
        seen[source.uid] = streams[0]


def _walk(node: Any, uid: str, streams: list[Any]) -> None:
    """Collects the streaming leaves below a node of Spark's logical plan. Raises ConfigError for stateful nodes."""
    if not node.isStreaming():
        return
    name = str(node.nodeName())
    if name in _STATEFUL:
        raise ConfigError(
            f"source {uid!r}: its DataFrame keeps state in Spark ({name}), which savepoints do not include; "
            "do that step in forkpoint"
        )
    children = node.children()
    if children.isEmpty():
        streams.append(node)
    for i in range(children.size()):
        _walk(children.apply(i), uid, streams)
