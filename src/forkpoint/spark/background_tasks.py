"""Savepoints on Spark: reading files as a DataFrame, writing a DataFrame's partitions, running tasks of bytes."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark import SparkContext, TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from forkpoint import logs
from forkpoint.decoders import msgpack_decoder
from forkpoint.logs import TaskLogging
from forkpoint.spark.exchange import failed_hosts, has_several_hosts, map_bytes
from forkpoint.spark.failures import raising_originals
from forkpoint.spark.frames import struct_of
from forkpoint.spark.tasks import BackgroundStage, extend_import_path, import_path
from forkpoint.types import dumps

_MIN_LOG, _MAX_LOG = 2_000, 1_000_000  # bytes per task, and per stage
_decode = msgpack_decoder(tuple[bytes, list[str]])


def read_frame(
    session: SparkSession, read: Callable[[bytes], Iterator[pa.RecordBatch]], arguments: Sequence[bytes], schema: pa.Schema
) -> DataFrame:
    """A DataFrame of these columns, with one partition per argument, which ``read`` returns.

    Raises TypeNotSupported, naming the column, for a type that Spark lacks.
    """
    path = import_path()

    def partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        extend_import_path(path)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read(arguments[number])

    numbers = session.range(0, len(arguments), 1, max(1, len(arguments)))
    return numbers.mapInArrow(partition, struct_of(schema))


def columns_of(frame: DataFrame) -> pa.Table:
    """A DataFrame's columns without rows. Computes nothing."""
    return to_arrow_schema(frame.schema, timezone="UTC").empty_table()


def write_frame(frame: DataFrame, write: Callable[[int, Iterator[pa.RecordBatch]], Iterator[bytes]]) -> list[bytes]:
    """The results of ``write``, called with the number and the batches of each partition. A retried task writes again."""
    path = import_path()

    def partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        extend_import_path(path)
        for result in write(TaskContext.get().partitionId(), batches):
            yield pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], ["result"])

    return [bytes(row.result) for row in frame.mapInArrow(partition, "result binary").collect()]


def map_arguments(
    sc: SparkContext,
    fn: Callable[[bytes], bytes],
    arguments: Sequence[bytes],
    partitions: int,
    hosts: Sequence[str] | None = None,
) -> list[bytes]:
    """`[fn(each) for each in arguments]` in Spark tasks, which log with this thread's fields. Raises tasks' original
    exceptions.

    ``hosts``: the host of each partition, if it has a free core within Spark's locality wait.
    """
    return mapped(sc, fn, len(arguments), lambda stage: map_bytes(sc, stage, arguments, partitions, hosts))


def mapped(
    sc: SparkContext, fn: Callable[[bytes], bytes], tasks: int, run: Callable[[BackgroundStage], list[bytes]]
) -> list[bytes]:
    """The results of ``fn`` in tasks; ``run`` calls the stage with their arguments. Raises tasks' original exceptions."""
    stage = BackgroundStage(import_path(), dumps(fn), uuid.uuid4().hex, task_logging(sc, tasks), dict(logs.about_here()))
    with raising_originals(stage.token, partial(failed_hosts, sc)):
        results = [_decode(encoded) for encoded in run(stage)]
    logs.relay(line for _, lines in results for line in lines)
    return [result for result, _ in results]


def task_logging(sc: SparkContext, tasks: int) -> TaskLogging:
    """The logging of this number of concurrent tasks. In local mode, workers inherit the driver's stderr from Spark's JVM."""
    max_bytes = max(_MIN_LOG, min(TaskLogging.max_bytes, _MAX_LOG // max(1, tasks)))
    return TaskLogging(logs.chosen(), "all", has_several_hosts(sc.master), logs.levels(), max_bytes=max_bytes)


def run_tasks_on(session: SparkSession) -> Callable[[Callable[[bytes], bytes], Sequence[bytes]], list[bytes]]:
    """A function that runs a function on each argument, in one task per argument."""
    sc = session.sparkContext
    return lambda fn, arguments: map_arguments(sc, fn, arguments, len(arguments)) if arguments else []
