"""The command's operations, as functions of `forkpoint.operations`. Starts Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forkpoint.operations.observer import SILENT, Observer
from forkpoint.operations.roots import StateRoot
from forkpoint.storage.places import absolute
from forkpoint_spark_checkpoints import importer
from forkpoint_spark_checkpoints.importer import CheckpointFound, ImportedCheckpoint
from forkpoint_spark_checkpoints.shapes import ImportedOperator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class ImportRequest:
    """The checkpoint at ``path``, a path or URL, as a savepoint of ``job``.

    ``sources``: uids by index in the plan or by name. ``operators``: by Spark's ids. ``skip``: ids of operators to leave out.
    ``splits``: the splits that get the query's watermark, for programs that pass ``split=``. ``batch``: by default the last
    committed batch. ``to``: the savepoint's directory, a path or URL; by default below the state root, where it becomes the
    job's ``latest``. ``spark_settings``: apply if no session is active.
    """

    path: str
    job: str
    sources: Mapping[int | str, str] = field(default_factory=dict)
    operators: Mapping[int, ImportedOperator] = field(default_factory=dict)
    skip: Sequence[int] = ()
    splits: Sequence[str] = importer.DEFAULT_SPLITS
    batch: int | None = None
    max_parallelism: int = 128
    label: str | None = None
    note: str | None = None
    to: str | None = None
    spark_settings: Mapping[str, str] = field(default_factory=dict)


def inspect_spark_checkpoint(
    path: str, *, batch: int | None = None, spark_settings: Mapping[str, str] | None = None
) -> CheckpointFound:
    """The sources, operators and states in a checkpoint. Writes nothing."""
    return importer.inspect_spark_checkpoint(absolute(path), spark=_session(spark_settings or {}), batch=batch)


def import_spark_checkpoint(
    request: ImportRequest, *, state_root: str | None = None, observer: Observer = SILENT
) -> ImportedCheckpoint:
    """Make a savepoint from a checkpoint. Its query must be stopped; the checkpoint stays unchanged.

    Raises ConfigError if the request does not fit the checkpoint, StorageError where Spark cannot read, EditRefused if rows
    do not fit their types, and AlreadyExists.
    """
    session = _session(request.spark_settings)
    savepoint_id, place = StateRoot(state_root).new_savepoint(request.job, request.to, request.label)
    with observer.progress("importing") as report:
        return importer.import_spark_checkpoint(
            absolute(request.path),
            place,
            job=request.job,
            sources=request.sources or None,
            operators=request.operators,
            skip=request.skip,
            splits=request.splits,
            batch=request.batch,
            max_parallelism=request.max_parallelism,
            label=request.label,
            note=request.note,
            savepoint_id=savepoint_id,
            spark=session,
            progress=report,
        )


def _session(settings: Mapping[str, str]) -> SparkSession:
    from forkpoint.spark.session import get_session  # loads PySpark

    return get_session(settings)
