"""The state processor: read, edit, bootstrap and compare savepoints.

    SavepointReader     reads a savepoint's states, timers and positions as tables, DataFrames, objects, and with SQL
    LiveState           reads the last committed epoch of a running job; StateFollower for many reads
    SavepointWriter     writes a new savepoint, or a changed copy of an existing one
    diff                compares two savepoints
    import_spark_checkpoint, inspect_spark_checkpoint
                        convert a Structured Streaming query's checkpoint to a savepoint; in the package
                        forkpoint-spark-checkpoints

Modelled on Flink's State Processor API. It runs no jobs, and loads Spark, DuckDB and pandas only on first use.
"""

from typing import TYPE_CHECKING

from forkpoint.extras import is_installed, loader

if TYPE_CHECKING:
    from forkpoint.savepoint.edit.writer import SavepointWriter
    from forkpoint.savepoint.inspect.diff import Sample, SavepointDiff, StateDiff, diff
    from forkpoint.savepoint.inspect.follower import StateFollower
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
