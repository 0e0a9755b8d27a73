"""Spark streaming DataFrames as sources: one stateless query over all of them, each micro-batch of which is an epoch.

Spark finds out what is new and logs the offsets before a batch runs; they are handed to the driver together with the
batch, whose manifest is what counts. The query's own checkpoint directory is scratch: every start crafts a new one from
the manifest's positions.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from forkpoint.checkpoint.manifest import SourcePosition
from forkpoint.driver.executor import OnBatch, Streams
from forkpoint.errors import ConfigError, RestoreRefused
from forkpoint.spark.failures import unpack_failure
from forkpoint.spark.session import QUERY_SETTINGS, settings
from forkpoint.spark.stream_checkpoint import CheckpointReader, check_follows, craft

_STATEFUL = {
    "Aggregate", "Deduplicate", "DeduplicateWithinWatermark", "Distinct", "FlatMapGroupsInPandasWithState",
    "FlatMapGroupsWithState", "GlobalLimit", "LocalLimit", "TransformWithState", "TransformWithStateInPySpark",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A streaming DataFrame as the source `uid`, which is operator `operator` of the job's graph."""

    uid: str
    operator: int
    frame: DataFrame


class StreamingSources(Streams):
    """Runs the query over the sources and calls `on_batch(frame, positions)` for each micro-batch, on the query's
    thread.

    session: where the query is started. stage: adds stage 0 to a DataFrame, given its operator's id. token: marks the
    failures of its tasks. positions: where to go on, by uid; a uid without one starts where its own options say.
    interval: the time between micro-batches; None takes what is there, in as many batches as the sources make, and
    ends. stops: where each source ends, by uid: one batch takes all up to there, and nothing comes behind it.

    `on_batch` gets a DataFrame of stage-0 output, which lives as long as the call, and the positions at the batch's
    end, by uid. When it returns the batch is done; when it raises, the query ends and `failure` gives that same
    exception. Raises ConfigError for DataFrames whose position or state a savepoint could not hold, RestoreRefused
    for a position of another kind of source.
    """

    def __init__(
        self,
        session: SparkSession,
        stage: Callable[[int, DataFrame], DataFrame],
        token: str,
        sources: Sequence[StreamSource],
        positions: Mapping[str, SourcePosition],
        on_batch: OnBatch,
        interval: timedelta | None,
        stops: Mapping[str, SourcePosition] | None = None,
    ) -> None:
        if not sources:
            raise ConfigError("a streaming query needs at least one streaming DataFrame")
        check_streams(sources)
        check_positions(sources, positions)
        for uid, stop in (stops or {}).items():
            check_follows(uid, positions.get(uid), stop)
        self._session = session
        self._stage = stage
        self._token = token
        self._sources = tuple(sources)
        self._positions = dict(positions)
        self._stops = stops
        self._last: int | None = None  # the last batch
        self._on_batch = on_batch
        self._interval = interval
        self._query: StreamingQuery | None = None
        self._failure: BaseException | None = None
        self._stopped = False
        self._turn = threading.RLock()
        # Written several times an epoch and worth nothing afterwards: memory, where there is a memory disk.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._directory = Path(tempfile.mkdtemp(prefix="forkpoint-query-", dir=memory))
        self._reader = CheckpointReader(self._directory, len(self._sources))

    def start(self) -> None:
        """Starts the query; once."""
        if self._query is not None or self._stopped:
            raise ConfigError("these StreamingSources were started before; make new ones for another run")
        begin = [self._positions.get(source.uid) for source in self._sources]
        if self._stops is None:
            craft(self._directory, begin)
        else:
            self._last = craft(self._directory, begin, [self._stops[source.uid] for source in self._sources])
        with settings(self._session, QUERY_SETTINGS):
            staged = [self._stage(source.operator, source.frame) for source in self._sources]
            writer = reduce(DataFrame.union, staged).writeStream.foreachBatch(self._batch)
            writer = writer.option("checkpointLocation", self._directory.as_uri())
            self._query = _triggered(writer, self._interval).start()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits for the query's end, for `timeout` at most; returns whether it has ended. See `failure` for why."""
        if self._query is None:
            raise ConfigError("StreamingSources.wait was called before start")
        with suppress(StreamingQueryException):
            if timeout is None:
                self._query.awaitTermination()
            else:
                self._query._jsq.awaitTermination(max(1, int(timeout / timedelta(milliseconds=1))))
        return not self.active

    @property
    def active(self) -> bool:
        """Whether the query runs."""
        return self._query is not None and bool(self._query.isActive)

    def failure(self) -> BaseException | None:
        """What ended the query by itself: what `on_batch` or a task raised, or Spark's StreamingQueryException."""
        if self._failure is not None:
            return self._failure
        if self._query is None or self._stopped or self.active:
            return None
        error = self._query.exception()
        return None if error is None else unpack_failure(error, self._token) or error

    def stop(self) -> None:
        """Ends the query. A batch that is being worked on is finished first; none begins once this was called.

        May be called from within `on_batch`, and more than once.
        """
        self._stopped = True
        if getattr(_within, "sources", None) is self:
            # The query's own thread cannot wait for itself.
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
            if self._stopped or (self._last is not None and batch > self._last):
                return  # Spark may note the batch as done: only the manifests count
            _within.sources = self
            try:
                positions = self._reader.positions(batch)
                uids = [source.uid for source in self._sources]
                self._on_batch(frame, dict(zip(uids, positions, strict=True)))
            except BaseException as error:
                self._failure = error
                raise
            finally:
                _within.sources = None


_within = threading.local()


def check_positions(sources: Sequence[StreamSource], positions: Mapping[str, SourcePosition]) -> None:
    """Refuses positions that are not of Spark's kind: the source would silently start afresh. Raises RestoreRefused."""
    for source in sources:
        position = positions.get(source.uid)
        if position is not None and position.kind != "spark":
            raise RestoreRefused(
                f"source {source.uid!r} is a DataFrame now, but its position is of kind {position.kind!r}; "
                "give it a new uid to start it afresh"
            )


def check_streams(sources: Sequence[StreamSource]) -> None:
    """Refuses DataFrames whose position or state a savepoint could not hold. Raises ConfigError naming the uid.

    Each must have one streaming source of its own, and nothing in it that Spark keeps state for.
    """
    seen: dict[str, Any] = {}
    for source in sources:
        if not source.frame.isStreaming:
            raise ConfigError(f"source {source.uid!r} is a batch DataFrame; load it with readStream")
        streams: list[Any] = []
        _walk(source.frame._jdf.queryExecution().analyzed(), source.uid, streams)
        if len(streams) != 1:
            raise ConfigError(
                f"source {source.uid!r} reads {len(streams)} streams in one DataFrame; give each a uid of its own "
                "and unite or join them in forkpoint"
            )
        for uid, other in seen.items():
            if streams[0].equals(other):
                raise ConfigError(f"sources {uid!r} and {source.uid!r} share one loaded stream; call load() for each")
        seen[source.uid] = streams[0]


def _walk(node: Any, uid: str, streams: list[Any]) -> None:
    """Collects the streaming leaves below a node of Spark's logical plan; refuses nodes that keep state."""
    if not node.isStreaming():
        return
    name = str(node.nodeName())
    if name in _STATEFUL:
        raise ConfigError(
            f"source {uid!r}: its DataFrame keeps state in Spark ({name}), which no savepoint would hold; "
            "do that step in forkpoint"
        )
    children = node.children()
    if children.isEmpty():
        streams.append(node)
    for i in range(children.size()):
        _walk(children.apply(i), uid, streams)


def _triggered(writer: Any, interval: timedelta | None) -> Any:
    if interval is None:
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=f"{int(interval / timedelta(milliseconds=1))} milliseconds")
