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

from forkpoint.runtime.exchange.wire import PART
from forkpoint.spark.placement import place
from forkpoint.spark.rows import BlobSerializer, PairWriter, RowReader, blob_of_payload, frames_of, pair_of

# Two exchanges with the same partitioner id and number of partitions are co-partitioned; Python functions' ids are
# never negative.
_PARTITIONER_ID = -4242

_LISTENER_MS, _MAX_TASKS = 5_000, 1_000


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
        self._anchor: Anchor | None = None
        if subtasks and has_several_hosts(sc.master):
            self._anchor = Anchor(sc, parallelism, self._partitioner)

    def run(self, plans: Sequence[bytes], frame: DataFrame | None, parts: Sequence[bytes]) -> list[bytes]:
        """Runs one job over the native source tasks and the DataFrame of pairs; returns commit blobs in partition order.

        `parts`: what goes to the tasks of each subtask alone, as their first row.
        """
        shuffles: list[Any] = []
        if self._anchor is not None:
            self._anchor.update()
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
            first = self._first_rows(parts)
            # Without input the subtasks start on their parts alone, which saves a stage.
            rows = self._payloads(first) if head is None else self._exchange(head.rdd(), first, shuffles)
            for fn in self._subtasks[:-1]:
                rows = self._exchange(self._python(rows, fn), first, shuffles)
            return collect_bytes(self._sc, self._python(rows, self._subtasks[-1]))
        finally:
            self._clean(shuffles)

    def _python(self, rdd: Any, function: Any) -> Any:
        return self._sc._jvm.PythonRDD(rdd, function, False, False)

    def _first_rows(self, parts: Sequence[bytes]) -> Any:
        """Pairs with the subtasks' partitioner, one in each partition. Spark sends a partition only with its own task."""
        frames = [frame for subtask, part in enumerate(parts) for frame in pair_of((subtask, PART, 0, part))]
        rdd = parallel_bytes(self._sc, frames, self._parallelism)
        set_partitioner(self._sc, rdd, self._partitioner)
        return self._sc._jvm.PairwiseRDD(rdd).asJavaPairRDD()

    def _payloads(self, pairs: Any) -> Any:
        return self._sc._jvm.PythonRDD.valueOfPair(pairs).rdd()

    def _exchange(self, frames: Any, first: Any, shuffles: list[Any]) -> Any:
        """`frames`, each to the subtask of its key, after that one's `first` row: a union of co-partitioned RDDs has their
        rows in order."""
        pairs = self._partition(frames)
        shuffles.append(pairs.rdd())
        if self._anchor is not None:
            pairs = self._anchor.attach(pairs)
        return self._payloads(first.union(pairs))

    def _partition(self, frames: Any) -> Any:
        pairs = self._sc._jvm.PairwiseRDD(frames).asJavaPairRDD().partitionBy(self._partitioner)
        pairs.rdd().setSerializer(self._kryo)
        return pairs

    def _clean(self, shuffles: list[Any]) -> None:
        """Deletes the epoch's shuffle files. Spark would only do so on garbage collection of the RDDs, often hours later."""
        cleaner = self._sc._jsc.sc().cleaner() if shuffles and self._sc._jsc is not None else None
        if cleaner is None or cleaner.isEmpty():
            return
        for rdd in shuffles:
            cleaner.get().doCleanupShuffle(rdd.dependencies().head().shuffleId(), False)


class Anchor:
    """Makes Spark run subtask i of all stages and epochs on the host that `place` chose, where it has a free core."""

    def __init__(self, sc: SparkContext, subtasks: int, partitioner: Any) -> None:
        self._sc = sc
        self._subtasks = subtasks
        self._partitioner = partitioner
        self._executors = ""
        self._hosts: tuple[str, ...] = ()
        self._pairs: Any = None

    def update(self) -> None:
        """Places the subtasks anew if executors have come or gone."""
        executors = self._sc._jsc.sc().getExecutorIds().mkString(",")
        if executors == self._executors:
            return
        hosts = place(self._subtasks, executor_cores(self._sc), self._hosts)
        if hosts and hosts != self._hosts:
            self._pairs = self._empty_pairs(hosts)
            self._hosts = hosts
        self._executors = executors if hosts else ""

    def attach(self, pairs: Any) -> Any:
        """The pairs, located where the subtasks are: Spark unions co-partitioned RDDs by partition, where they prefer to be."""
        return pairs if self._pairs is None else pairs.union(self._pairs)

    def _empty_pairs(self, hosts: Sequence[str]) -> Any:
        """An empty RDD of pairs with the subtasks' partitioner, and the hosts as its partitions' preferred locations."""
        jvm, rdd = self._sc._jvm, located(self._sc, (), hosts)
        set_partitioner(self._sc, rdd, self._partitioner)
        return getattr(jvm, "org.apache.spark.api.java.JavaPairRDD")(rdd, _anything(jvm), _anything(jvm))


def set_partitioner(sc: SparkContext, rdd: Any, partitioner: Any) -> None:
    """Declares that a parallelized collection is partitioned like this; Spark only sets it on RDDs made by a shuffle."""
    field = rdd.getClass().getSuperclass().getDeclaredField("partitioner")
    field.setAccessible(True)
    field.set(rdd, sc._jvm.scala.Some(partitioner))


def executor_cores(sc: SparkContext) -> dict[str, int]:
    """The cores of the executors by host, without the driver's JVM."""
    executors = sc._jsc.sc().statusStore().executorList(True)
    found: dict[str, int] = {}
    for i in range(executors.size()):
        executor = executors.apply(i)
        if executor.id() != "driver":
            host = executor.hostPort().rsplit(":", 1)[0]
            found[host] = found.get(host, 0) + executor.totalCores()
    return found


def failed_hosts(sc: SparkContext) -> list[str]:
    """The hosts where tasks of the last failed Spark job failed. Spark's exceptions do not name them."""
    spark = sc._jsc.sc()
    spark.listenerBus().waitUntilEmpty(_LISTENER_MS)
    jobs = spark.statusStore().jobsList(None)
    failed = [job for i in range(jobs.size()) if (job := jobs.apply(i)).status().toString() == "FAILED"]
    if not failed:
        return []
    last = max(failed, key=lambda job: int(job.jobId()))
    hosts: set[str] = set()
    for stage in last.stageIds().mkString(",").split(","):
        tasks = spark.statusStore().taskList(int(stage), 0, _MAX_TASKS)
        found = (tasks.apply(i) for i in range(tasks.size()))
        hosts |= {task.host() for task in found if task.status() == "FAILED"}
    return sorted(hosts)


def has_several_hosts(master: str) -> bool:
    """Whether tasks may run outside of the driver's JVM."""
    return not master.startswith("local") or master.startswith("local-cluster")


def parallel_bytes(sc: SparkContext, items: Sequence[bytes], partitions: int) -> Any:
    """A Scala RDD of byte arrays in `partitions` partitions, in order."""
    stream = sc._jvm.java.io.ByteArrayInputStream(frames_of(items))
    return sc._jvm.PythonRDD.readRDDFromInputStream(sc._jsc.sc(), stream, partitions).rdd()


def collect_bytes(sc: SparkContext, rdd: Any) -> list[bytes]:
    """Runs a Spark job and returns the byte arrays of a Scala RDD, in partition order."""
    with _load_from_socket(sc._jvm.PythonRDD.collectAndServe(rdd), BlobSerializer()) as blobs:
        return list(blobs)


def located(sc: SparkContext, items: Sequence[bytes], hosts: Sequence[str]) -> Any:
    """A Scala RDD with a partition for each host, which it prefers; the items are divided into the partitions."""
    jvm = sc._jvm
    locations = jvm.java.util.HashMap()
    for partition, host in enumerate(hosts):
        locations.put(partition, jvm.PythonUtils.toSeq([host]))
    return getattr(jvm, "org.apache.spark.rdd.ParallelCollectionRDD")(
        sc._jsc.sc(),
        jvm.PythonUtils.toSeq(list(items)),
        len(hosts),
        jvm.PythonUtils.toScalaMap(locations),
        _anything(jvm),
    )


def _anything(jvm: Any) -> Any:
    return jvm.scala.reflect.ClassTag.AnyRef()


def map_bytes(
    sc: SparkContext,
    fn: Callable[..., Any],
    items: Sequence[bytes],
    partitions: int,
    hosts: Sequence[str] | None = None,
) -> list[bytes]:
    """Runs `fn(partition, items)` over the items divided into partitions, each on its host if there are hosts; returns its
    results in order."""
    wrapped = _wrap_function(sc, fn, BlobSerializer(), BlobSerializer())
    rdd = parallel_bytes(sc, items, partitions) if hosts is None else located(sc, items, hosts)
    return collect_bytes(sc, sc._jvm.PythonRDD(rdd, wrapped, False, False))
