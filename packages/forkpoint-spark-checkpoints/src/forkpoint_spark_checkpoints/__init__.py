"""Makes savepoints from the checkpoints of Structured Streaming queries. Loads Spark when it reads a checkpoint."""

from typing import TYPE_CHECKING

from forkpoint.lazy import loader

if TYPE_CHECKING:
    from forkpoint_spark_checkpoints.importer import (
        CheckpointFound,
        ImportedCheckpoint,
        import_spark_checkpoint,
        inspect_spark_checkpoint,
    )
    from forkpoint_spark_checkpoints.shapes import ImportedOperator, ImportedState, StateFound

__getattr__ = loader(__name__)

__all__ = [
    "CheckpointFound",
    "ImportedCheckpoint",
    "ImportedOperator",
    "ImportedState",
    "StateFound",
    "import_spark_checkpoint",
    "inspect_spark_checkpoint",
]
