"""Runs an epoch as one Spark job.

It uses Spark's RDD layer like `RDD.mapPartitions().partitionBy().mapPartitions().collect()`, but moves framed bytes (see
`rows`) instead of pickles. Compared to `mapInArrow` and `repartitionById`, an epoch takes less than half the time, because
Spark plans no query, and so does the exchange of 100 MB. A streaming DataFrame enters at stage 0 with framed rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pyspark import SparkContext
from pyspark.core.rdd import _wrap_function
from pyspark.sql import DataFrame

from forkpoint.runtime.exchange.wire import PART
from forkpoint.spark.jvm import SparkJvm, jvm_of
from forkpoint.spark.placement import place
from forkpoint.spark.rows import BlobSerializer, PairWriter, RowReader, blob_of_payload, pair_of

# Two exchanges with the same partitioner id and number of partitions are co-partitioned; Python functions' ids are
# never negative.
_PARTITIONER_ID = -4242

_LISTENER_MS, _MAX_TASKS = 5_000, 1_000


class EpochJobs:
    """The stages of one run, prepared for the JVM: Python functions are pickled once per run instead of per epoch.

    `source` is stage 0's function for native sources; `subtasks` are the functions of stages 1..S. The last stage returns commit
    blobs, the others chunk rows. Stage 0 always returns rows: only commit rows if it is the last stage.
    """

    def __init__(
        self, sc: SparkContext, parallelism: int, source: Callable[..., Any], subtasks: Sequence[Callable[..., Any]]
    ) -> None:
        self._sc = sc
        self._jvm = jvm_of(sc)
        self._parallelism = parallelism
        self._source = _wrap_function(sc, source, BlobSerializer(), PairWriter())
        last = len(subtasks) - 1
        self._subtasks = [
            _wrap_function(sc, fn, RowReader(), BlobSerializer() if i == last else PairWriter()) for i, fn in enumerate(subtasks)
        ]
        self._partitioner = self._jvm.partitioner(parallelism, _PARTITIONER_ID)
        self._declare = PartitionerField(self._jvm, self._partitioner)
        self._anchor: Anchor | None = None
        if subtasks and has_several_hosts(sc.master):
            self._anchor = Anchor(sc, parallelism, self._declare)
        cleaner = self._jvm.context.cleaner()
        self._cleaner = None if cleaner.isEmpty() else cleaner.get()

    def run(self, plans: Sequence[bytes], frame: DataFrame | None, parts: Sequence[bytes]) -> list[bytes]:
        """Runs one job over the native source tasks and the DataFrame of pairs; returns commit blobs in partition order.

        `parts`: each subtask's part of the epoch's context, the first row of its tasks.
        """
        jvm = self._jvm
        shuffles: list[Any] = []
        if self._anchor is not None:
            self._anchor.update()
        heads: list[Any] = []
        if plans:
            heads.append(jvm.python(jvm.parallel_bytes(plans, len(plans)), self._source))
        if frame is not None:
            heads.append(getattr(frame._jdf, "as")(jvm.binary).rdd())
        head = None if not heads else heads[0] if len(heads) == 1 else heads[0].union(heads[1])
        if not self._subtasks:
            # Keys and payloads alternate, even across partitions.
            frames = [] if head is None else jvm.collect_bytes(head)
            return [blob_of_payload(payload) for payload in frames[1::2]]
        try:
            first = self._first_rows(parts)
            # Without input, the subtasks start with only their parts, which saves a stage.
            rows = jvm.payloads(first) if head is None else self._exchange(head, first, shuffles)
            for fn in self._subtasks[:-1]:
                rows = self._exchange(jvm.python(rows, fn), first, shuffles)
            return jvm.collect_bytes(jvm.python(rows, self._subtasks[-1]))
        finally:
            self._clean(shuffles)

    def _first_rows(self, parts: Sequence[bytes]) -> Any:
        """Pairs with the subtasks' partitioner, one per partition. Spark sends a partition only to its own task."""
        frames = [frame for subtask, part in enumerate(parts) for frame in pair_of((subtask, PART, 0, part))]
        rdd = self._jvm.parallel_bytes(frames, self._parallelism)
        self._declare(rdd)
        return self._jvm.pairs(rdd)

    def _exchange(self, frames: Any, first: Any, shuffles: list[Any]) -> Any:
        """Send each of `frames` to the subtask of its key, after the subtask's `first` row: a union of co-partitioned RDDs keeps
        the order of their rows."""
        pairs = self._jvm.pairs(frames).partitionBy(self._partitioner)
        rdd = pairs.rdd()
        # Java's own serialization would retain the last 100 objects written to each partition, which are chunks here.
        rdd.setSerializer(self._jvm.kryo)
        shuffles.append(rdd)
        if self._anchor is not None:
            pairs = self._anchor.attach(pairs)
        return self._jvm.payloads(first.union(pairs))

    def _clean(self, shuffles: list[Any]) -> None:
        """Deletes the epoch's shuffle files. Spark deletes them only when it garbage-collects the RDDs, often hours later."""
        if self._cleaner is None or self._sc._jsc is None:
            return
        for rdd in shuffles:
            self._cleaner.doCleanupShuffle(rdd.dependencies().head().shuffleId(), False)


class PartitionerField:
    """Sets the partitioner of a parallelized collection; Spark sets it only on RDDs made by a shuffle."""

    def __init__(self, jvm: SparkJvm, partitioner: Any) -> None:
        collection = jvm.parallel_bytes((), 1)
        self._field = collection.getClass().getSuperclass().getDeclaredField("partitioner")
        self._field.setAccessible(True)
        self._partitioner = jvm.some(partitioner)

    def __call__(self, rdd: Any) -> None:
        self._field.set(rdd, self._partitioner)


class Anchor:
    """Makes Spark run subtask i of all stages and epochs on the host that `place` chose, if it has a free core."""

    def __init__(self, sc: SparkContext, subtasks: int, declare: PartitionerField) -> None:
        self._sc = sc
        self._jvm = jvm_of(sc)
        self._subtasks = subtasks
        self._declare = declare
        self._executors = ""
        self._hosts: tuple[str, ...] = ()
        self._pairs: Any = None

    def update(self) -> None:
        """Places the subtasks again if executors have been added or lost."""
        jvm = self._jvm
        executors = jvm.context.getExecutorIds().mkString(",")
        if executors == self._executors:
            return
        hosts = place(self._subtasks, executor_cores(self._sc), self._hosts)
        if hosts and hosts != self._hosts:
            # An empty RDD with the subtasks' partitioner, and the hosts as its partitions' preferred locations.
            rdd = jvm.located((), hosts)
            self._declare(rdd)
            self._pairs = jvm.pair_rdd(rdd, jvm.anything, jvm.anything)
            self._hosts = hosts
        self._executors = executors if hosts else ""

    def attach(self, pairs: Any) -> Any:
        """The pairs on the hosts of their subtasks: Spark unions co-partitioned RDDs by partition, in a preferred location."""
        return pairs if self._pairs is None else pairs.union(self._pairs)


def executor_cores(sc: SparkContext) -> dict[str, int]:
    """The cores of the executors by host, without the driver's JVM."""
    executors = sc._jsc.sc().statusStore().executorList(True)
    cores: Counter[str] = Counter()
    for i in range(executors.size()):
        executor = executors.apply(i)
        if executor.id() != "driver":
            cores[executor.hostPort().rsplit(":", 1)[0]] += executor.totalCores()
    return cores


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
        hosts |= {task.host() for i in range(tasks.size()) if (task := tasks.apply(i)).status() == "FAILED"}
    return sorted(hosts)


def has_several_hosts(master: str) -> bool:
    """Whether tasks may run outside the driver's JVM."""
    return not master.startswith("local") or master.startswith("local-cluster")


def map_bytes(
    sc: SparkContext, fn: Callable[..., Any], items: Sequence[bytes], partitions: int, hosts: Sequence[str] | None = None
) -> list[bytes]:
    """Runs `fn(partition, items)` over the items divided into partitions, on the partitions' hosts if given; returns the
    results in order."""
    wrapped = _wrap_function(sc, fn, BlobSerializer(), BlobSerializer())
    jvm = jvm_of(sc)
    rdd = jvm.parallel_bytes(items, partitions) if hosts is None else jvm.located(items, hosts)
    return jvm.collect_bytes(jvm.python(rdd, wrapped))
