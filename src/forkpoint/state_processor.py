"""The state processor: read, edit, bootstrap and compare savepoints.

    SavepointReader     a savepoint's states, timers and positions as tables, DataFrames, objects; SQL over them
    LiveState           the same of a job's last committed epoch, while it runs; StateFollower for many reads
    SavepointWriter     a new savepoint from an existing one with changes, or from nothing
    diff                the differences between two savepoints
    import_spark_checkpoint, inspect_spark_checkpoint
                        a savepoint from a Structured Streaming query's checkpoint; in the package
                        forkpoint-spark-checkpoints

After Flink's State Processor API. It runs no jobs; Spark, DuckDB and pandas are loaded only when they are used.
"""

from typing import TYPE_CHECKING

from forkpoint.extras import is_installed, loader

if TYPE_CHECKING:
    from forkpoint.savepoint.edit.writer import SavepointWriter
    from forkpoint.savepoint.inspect.diffing import Sample, SavepointDiff, StateDiff, diff
    from forkpoint.savepoint.inspect.following import StateFollower
    from forkpoint.savepoint.inspect.live import LiveState, LiveStateReader
    from forkpoint.savepoint.inspect.reader import SavepointReader, StateReader
    from forkpoint.savepoint.inspect.state_rows import StateCollection, StateRows
    from forkpoint_spark_checkpoints import (
        CheckpointFound,
        ImportedCheckpoint,
        ImportedOperator,
        ImportedState,
        StateFound,
        import_spark_checkpoint,
        inspect_spark_checkpoint,
    )

__getattr__ = loader(__name__)

__all__ = [
    "LiveState",
    "LiveStateReader",
    "Sample",
    "SavepointDiff",
    "SavepointReader",
    "SavepointWriter",
    "StateCollection",
    "StateDiff",
    "StateFollower",
    "StateReader",
    "StateRows",
    "diff",
]
if is_installed("forkpoint_spark_checkpoints"):
    __all__ += [
        "CheckpointFound",
        "ImportedCheckpoint",
        "ImportedOperator",
        "ImportedState",
        "StateFound",
        "import_spark_checkpoint",
        "inspect_spark_checkpoint",
    ]
