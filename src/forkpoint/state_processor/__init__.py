"""The state processor: look into savepoints, change them, make them out of data, compare them.

    SavepointReader     a savepoint's states, timers and positions as tables, DataFrames, objects; SQL over them
    SavepointWriter     a new savepoint from an old one with changes, or from nothing
    diff                what two savepoints differ in
    import_spark_checkpoint, inspect_spark_checkpoint
                        a savepoint out of a Structured Streaming query's checkpoint

After Flink's State Processor API. Nothing of it runs a job; Spark, DuckDB and pandas are loaded where they are used.
"""

from forkpoint.state_processor.diffing import Sample, SavepointDiff, StateDiff, diff
from forkpoint.state_processor.reader import SavepointReader, StateReader
from forkpoint.state_processor.spark_import import (
    CheckpointFound,
    ImportedCheckpoint,
    import_spark_checkpoint,
    inspect_spark_checkpoint,
)
from forkpoint.state_processor.spark_shapes import ImportedOperator, ImportedState, StateFound
from forkpoint.state_processor.writer import SavepointWriter

__all__ = [
    "CheckpointFound",
    "ImportedCheckpoint",
    "ImportedOperator",
    "ImportedState",
    "Sample",
    "SavepointDiff",
    "SavepointReader",
    "SavepointWriter",
    "StateDiff",
    "StateFound",
    "StateReader",
    "diff",
    "import_spark_checkpoint",
    "inspect_spark_checkpoint",
]
