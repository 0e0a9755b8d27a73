"""The state processor: read, edit, bootstrap and compare savepoints.

    SavepointReader     a savepoint's states, timers and positions as tables, DataFrames, objects; SQL over them
    SavepointWriter     a new savepoint from an existing one with changes, or from nothing
    diff                the differences between two savepoints
    import_spark_checkpoint, inspect_spark_checkpoint
                        a savepoint from a Structured Streaming query's checkpoint

After Flink's State Processor API. It runs no jobs; Spark, DuckDB and pandas are loaded only when they are used.
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
