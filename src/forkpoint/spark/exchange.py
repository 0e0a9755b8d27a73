"""Runs an epoch as one Spark job. The only module that knows PySpark's JVM classes.

It uses Spark's RDD layer like `RDD.mapPartitions().partitionBy().mapPartitions().collect()`, but moves framed bytes (see
`rows`) instead of pickles. Compared to `mapInArrow` and `repartitionById` an epoch takes less than half the time, as
nothing is planned, and so does the exchange of 100 MB. A streaming DataFrame joins at stage 0 with rows that are already
framed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark import SparkContext
from pyspark.core.rdd import _wrap_function
from pyspark.sql import DataFrame
from pyspark.util import _load_from_socket

from forkpoint.spark.rows import BlobSerializer, PairWriter, RowReader, blob_of_payload, frames_of

# Two exchanges with the same partitioner id and number of partitions are co-partitioned; Python functions' ids are
# never negative.
_PARTITIONER_ID = -4242


class EpochJobs:
    """The stages of one run, prepared for the JVM: Python functions are pickled once per run instead of per epoch.

    `source` is stage 0's function for native sources, `subtasks` those of stages 1..S. The last stage returns commit
    blobs, the others chunk rows; stage 0 always returns rows, and only commit rows if it is the last stage.
    """

    def __init__(
        self, sc: SparkContext, parallelism: int, source: Callable[..., Any], subtasks: Sequence[Callable[..., Any]]
    ) -> None:
        self._sc = sc
        self._parallelism = parallelism
        self._source = _wrap_function(sc, source, BlobSerializer(), PairWriter())
        last = len(subtasks) - 1
        self._subtasks = [
            _wrap_function(sc, fn, RowReader(), BlobSerializer() if i == last else PairWriter())
            for i, fn in enumerate(subtasks)
        ]
        self._partitioner = sc._jvm.PythonPartitioner(parallelism, _PARTITIONER_ID)
        # Java's own serialization would retain the last 100 objects written to each partition: whole chunks here.
        self._kryo = getattr(sc._jvm, "org.apache.spark.serializer.KryoSerializer")(sc._jsc.sc().conf())
        self._binary = getattr(sc._jvm, "org.apache.spark.sql.Encoders").BINARY()
        several_hosts = not sc.master.startswith("local") or sc.master.startswith("local-cluster")
        self._anchor = self._make_anchor() if subtasks and several_hosts else None

    def run(self, plans: Sequence[bytes], frame: DataFrame | None) -> list[bytes]:
        """Runs one job over the native source tasks and the DataFrame of pairs; returns commit blobs in partition order."""
        shuffles: list[Any] = []
        heads: list[Any] = []
        if plans:
            heads.append(self._python(parallel_bytes(self._sc, plans, len(plans)), self._source).asJavaRDD())
        if frame is not None:
            heads.append(getattr(frame._jdf, "as")(self._binary).javaRDD())
        head = None if not heads else heads[0] if len(heads) == 1 else heads[0].union(heads[1])
        if not self._subtasks:
            # Keys and payloads alternate, also across partitions.
            frames = [] if head is None else collect_bytes(self._sc, head.rdd())
            return [blob_of_payload(payload) for payload in frames[1::2]]
        try:
            # Without input the subtasks start on empty partitions, which saves a stage.
            empty = head is None
            rows = parallel_bytes(self._sc, (), self._parallelism) if empty else self._exchange(head.rdd(), shuffles)
            for fn in self._subtasks[:-1]:
                rows = self._exchange(self._python(rows, fn), shuffles)
            return collect_bytes(self._sc, self._python(rows, self._subtasks[-1]))
        finally:
            self._clean(shuffles)

    def close(self) -> None:
        """Releases the run's resources on the cluster."""
        if self._anchor is not None:
            self._anchor.unpersist(False)

    def _python(self, rdd: Any, function: Any) -> Any:
        return self._sc._jvm.PythonRDD(rdd, function, False, False)

    def _exchange(self, frames: Any, shuffles: list[Any]) -> Any:
        pairs = self._partition(frames)
        shuffles.append(pairs.rdd())
        if self._anchor is not None:
            # Spark unions co-partitioned RDDs by partition, preferably on the host that has most of them.
            pairs = pairs.union(self._anchor)
        return self._sc._jvm.PythonRDD.valueOfPair(pairs).rdd()

    def _partition(self, frames: Any) -> Any:
        pairs = self._sc._jvm.PairwiseRDD(frames).asJavaPairRDD().partitionBy(self._partitioner)
        pairs.rdd().setSerializer(self._kryo)
        return pairs

    def _make_anchor(self) -> Any:
        """A cached empty RDD whose partition i is on the host that is to run subtask i in all stages and epochs.

        Local stores are caches of state; without the anchor every host would eventually hold all of it, and catch up.
        """
        level = self._sc._jvm.org.apache.spark.storage.StorageLevel.MEMORY_ONLY()
        anchor = self._partition(parallel_bytes(self._sc, (), self._parallelism)).persist(level)
        anchor.count()
        return anchor

    def _clean(self, shuffles: list[Any]) -> None:
        """Deletes the epoch's shuffle files. Spark would only do so on garbage collection of the RDDs, often hours later."""
        cleaner = self._sc._jsc.sc().cleaner() if shuffles and self._sc._jsc is not None else None
        if cleaner is None or cleaner.isEmpty():
            return
        for rdd in shuffles:
            cleaner.get().doCleanupShuffle(rdd.dependencies().head().shuffleId(), False)


def parallel_bytes(sc: SparkContext, items: Sequence[bytes], partitions: int) -> Any:
    """A Scala RDD of byte arrays in `partitions` partitions, in order."""
    stream = sc._jvm.java.io.ByteArrayInputStream(frames_of(items))
    return sc._jvm.PythonRDD.readRDDFromInputStream(sc._jsc.sc(), stream, partitions).rdd()


def collect_bytes(sc: SparkContext, rdd: Any) -> list[bytes]:
    """Runs a Spark job and returns the byte arrays of a Scala RDD, in partition order."""
    with _load_from_socket(sc._jvm.PythonRDD.collectAndServe(rdd), BlobSerializer()) as blobs:
        return list(blobs)


def map_bytes(sc: SparkContext, fn: Callable[..., Any], items: Sequence[bytes], partitions: int) -> list[bytes]:
    """Runs `fn(partition, items)` over the items divided into partitions; returns its results in order."""
    wrapped = _wrap_function(sc, fn, BlobSerializer(), BlobSerializer())
    return collect_bytes(sc, sc._jvm.PythonRDD(parallel_bytes(sc, items, partitions), wrapped, False, False))
