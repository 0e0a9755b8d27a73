"""Batch DataFrames as bounded sources, written once to Parquet files in the job's directory and read from there.

The files give them offsets like other sources: epochs read a bounded number of rows, and a restored run resumes. Never
imports pyspark.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from forkpoint.checkpoint.paths import JobPaths, escape
from forkpoint.connectors.files.source import FileSource
from forkpoint.errors import ConfigError, GraphError
from forkpoint.graph.specs import DataFrameSpec, SourceSpec
from forkpoint.graph.transformations import Transformation, topological_order
from forkpoint.storage.base import LocalStorage, Storage
from forkpoint.storage.private import make_directories
from forkpoint.types import TypeInformation, Types, type_of

_COMPLETE = "_SUCCESS"  # Spark's marker of a finished write


def stage_batch_frames(ends: Iterable[Transformation], storage: Storage, job: str) -> None:
    """Replace every upstream source that is a batch DataFrame by a file source."""
    for t in topological_order(ends):
        if isinstance(t.spec, DataFrameSpec) and not t.spec.frame.isStreaming:
            t.spec = _staged(t, t.spec, storage, job)


def _staged(t: Transformation, spec: DataFrameSpec, storage: Storage, job: str) -> SourceSpec:
    name = t.uid or t.name
    if not isinstance(storage, LocalStorage):
        raise ConfigError(
            f"source {name!r}: a batch DataFrame is staged as files, which needs a state root on a local or mounted disk, not "
            f"{storage.url}; write it to Parquet and read it with FileSource or spark.readStream"
        )
    directory = Path(storage.root) / JobPaths(job).directory / "frames" / escape(name)
    if not (directory / _COMPLETE).exists():
        make_directories(str(directory.parent))  # Spark's own directories follow its umask
        spec.frame.write.mode("overwrite").parquet(str(directory))
        # The source reads files by time and name. Equal times give the order of the frame's partitions, also in a fork.
        for number, path in enumerate(sorted(directory.glob("part-*.parquet"))):
            os.utime(path, (0, 0))
            path.rename(directory / f"rows-{number:05}.parquet")
    source = FileSource.parquet(str(directory), t.output_type, bounded=True)
    return SourceSpec(source, spec.strategy, spec.timestamp_column)


# Spark type names and their Python types.
_SIMPLE: dict[str, Any] = {
    "byte": Types.BYTE(),
    "tinyint": Types.BYTE(),
    "short": Types.SHORT(),
    "smallint": Types.SHORT(),
    "integer": Types.INT(),
    "int": Types.INT(),
    "long": Types.LONG(),
    "bigint": Types.LONG(),
    "float": Types.FLOAT(),
    "double": Types.DOUBLE(),
    "string": str,
    "char": str,
    "varchar": str,
    "boolean": bool,
    "binary": bytes,
    "date": date,
    "decimal": Decimal,
    "timestamp": Types.INSTANT(),  # Spark's plain timestamp is a point in time
    "timestamp_ntz": datetime,
}


def check_frame(frame: Any, columns: dict[str, str | None]) -> None:
    """Raise GraphError unless ``frame`` is a DataFrame with the columns that options name (option → column)."""
    if not hasattr(frame, "schema") or not hasattr(frame, "isStreaming"):
        raise GraphError(f"from_dataframe() takes a Spark DataFrame, not {type(frame).__name__}")
    for option, column in columns.items():
        if column is not None and column not in frame.columns:
            raise GraphError(
                f"from_dataframe({option}={column!r}): the DataFrame has no such column; it has {', '.join(frame.columns)}"
            )


def frame_type(frame: Any) -> TypeInformation:
    """The Row type of the frame's columns. GraphError for a column whose Spark type is not supported."""
    return _row_type(frame.schema.fields, "")


def _row_type(fields: list[Any], prefix: str) -> TypeInformation:
    return Types.ROW_NAMED([f.name for f in fields], [_column_type(f.dataType, prefix + f.name) for f in fields])


def _column_type(spark_type: Any, column: str) -> TypeInformation:
    name = spark_type.typeName()
    if name in _SIMPLE:
        return type_of(_SIMPLE[name])
    if name == "array":
        return Types.LIST(_column_type(spark_type.elementType, column))
    if name == "map":
        return Types.MAP(_column_type(spark_type.keyType, column), _column_type(spark_type.valueType, column))
    if name == "struct":
        return _row_type(spark_type.fields, f"{column}.")
    raise GraphError(
        f"from_dataframe(): column {column!r} has Spark type {spark_type.simpleString()}, which is not supported; cast or "
        "drop it in the DataFrame, or give the elements' type with type="
    )
