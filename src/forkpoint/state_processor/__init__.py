"""The state processor: read, edit, bootstrap and compare savepoints.

    SavepointReader     a savepoint's states, timers and positions as tables, DataFrames, objects; SQL over them
    LiveState           the same of a job's last committed epoch, while it runs; StateFollower for many reads
    SavepointWriter     a new savepoint from an existing one with changes, or from nothing
    diff                the differences between two savepoints
    import_spark_checkpoint, inspect_spark_checkpoint
                        a savepoint from a Structured Streaming query's checkpoint

After Flink's State Processor API. It runs no jobs; Spark, DuckDB and pandas are loaded only when they are used.
"""

from typing import TYPE_CHECKING

from forkpoint.lazy import loader

if TYPE_CHECKING:
    from forkpoint.savepoint.edit.writer import SavepointWriter
    from forkpoint.savepoint.inspect.diffing import Sample, SavepointDiff, StateDiff, diff
    from forkpoint.savepoint.inspect.following import StateFollower
    from forkpoint.savepoint.inspect.live import LiveState, LiveStateReader
    from forkpoint.savepoint.inspect.reader import SavepointReader, StateReader
    from forkpoint.savepoint.inspect.state_rows import StateCollection, StateRows
    from forkpoint.state_processor.spark_import import (
        CheckpointFound,
        ImportedCheckpoint,
        import_spark_checkpoint,
        inspect_spark_checkpoint,
    )
    from forkpoint.state_processor.spark_shapes import ImportedOperator, ImportedState, StateFound

__getattr__ = loader(__name__)

__all__ = [
    "CheckpointFound",
    "ImportedCheckpoint",
    "ImportedOperator",
    "ImportedState",
    "LiveState",
    "LiveStateReader",
    "Sample",
    "SavepointDiff",
    "SavepointReader",
    "SavepointWriter",
    "StateCollection",
    "StateDiff",
    "StateFollower",
    "StateFound",
    "StateReader",
    "StateRows",
    "diff",
    "import_spark_checkpoint",
    "inspect_spark_checkpoint",
]
