"""The classes and methods of Spark's JVM that forkpoint calls, looked up once: Py4J resolves every name on the path to a class
or method in the JVM, which takes about a quarter of a millisecond while an epoch runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

from pyspark import SparkContext
from pyspark.util import _load_from_socket

from forkpoint.spark.rows import BlobSerializer, frames_of


@lru_cache(maxsize=1)
def jvm_of(sc: SparkContext) -> SparkJvm:
    """The JVM of a context; the last one is cached."""
    return SparkJvm(sc)


class SparkJvm:
    """``context`` is Scala's SparkContext. RDDs are Scala's, of byte arrays or of pairs, unless documented otherwise."""

    def __init__(self, sc: SparkContext) -> None:
        self._jvm = jvm = sc._jvm
        self.context = sc._jsc.sc()
        python_rdd = self._python_rdd = jvm.PythonRDD
        self._pairwise_rdd = jvm.PairwiseRDD
        self.partitioner = jvm.PythonPartitioner
        """Partitions pairs by key, given the number of partitions and an identity; equal for equal arguments."""
        self._read = python_rdd.readRDDFromInputStream
        self._collect = python_rdd.collectAndServe
        self._values = python_rdd.valueOfPair
        self._byte_stream = jvm.java.io.ByteArrayInputStream

    @cached_property
    def anything(self) -> Any:
        return self._jvm.scala.reflect.ClassTag.AnyRef()

    @cached_property
    def pair_rdd(self) -> Any:
        """The class of Java's RDDs of pairs."""
        return getattr(self._jvm, "org.apache.spark.api.java.JavaPairRDD")

    @cached_property
    def binary(self) -> Any:
        """The encoder of a DataFrame with one column of bytes."""
        return getattr(self._jvm, "org.apache.spark.sql.Encoders").BINARY()

    @cached_property
    def kryo(self) -> Any:
        return getattr(self._jvm, "org.apache.spark.serializer.KryoSerializer")(self.context.conf())

    def some(self, value: Any) -> Any:
        return self._jvm.scala.Some(value)

    def python(self, rdd: Any, function: Any) -> Any:
        """``rdd``, mapped by a wrapped Python function."""
        return self._python_rdd(rdd, function, False, False)

    def parallel_bytes(self, items: Sequence[bytes], partitions: int) -> Any:
        """An RDD of byte arrays in `partitions` partitions, in order."""
        return self._read(self.context, self._byte_stream(frames_of(items)), partitions).rdd()

    def pairs(self, frames: Any) -> Any:
        """A Java RDD of pairs, from alternating keys and payloads."""
        return self._pairwise_rdd(frames).asJavaPairRDD()

    def payloads(self, pairs: Any) -> Any:
        """The payloads of a Java RDD of pairs."""
        return self._values(pairs).rdd()

    def located(self, items: Sequence[bytes], hosts: Sequence[str]) -> Any:
        """An RDD of the items, with one partition per host, its preferred location."""
        jvm = self._jvm
        locations = jvm.java.util.HashMap()
        for partition, host in enumerate(hosts):
            locations.put(partition, jvm.PythonUtils.toSeq([host]))
        return getattr(jvm, "org.apache.spark.rdd.ParallelCollectionRDD")(
            self.context, jvm.PythonUtils.toSeq(list(items)), len(hosts), jvm.PythonUtils.toScalaMap(locations), self.anything
        )

    def collect_bytes(self, rdd: Any) -> list[bytes]:
        """Runs a Spark job and returns the byte arrays of an RDD, in partition order."""
        with _load_from_socket(self._collect(rdd), BlobSerializer()) as blobs:
            return list(blobs)
