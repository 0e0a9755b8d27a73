"""Batch DataFrames as bounded sources: written once to Parquet files in the job's directory, and read from there.

This gives them positions like other sources: epochs read a bounded number of rows, and a restored run resumes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from forkpoint.checkpoint.paths import JobPaths, escape
from forkpoint.connectors.files.source import FileSource
from forkpoint.errors import ConfigError
from forkpoint.graph.specs import DataFrameSpec, SourceSpec
from forkpoint.graph.transformations import Transformation, topological_order
from forkpoint.storage.base import LocalStorage, Storage
from forkpoint.storage.private import make_directories

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
        # Files are read by time and name. This makes the order that of the frame's partitions, also in a fork of the job.
        for number, path in enumerate(sorted(directory.glob("part-*.parquet"))):
            os.utime(path, (0, 0))
            path.rename(directory / f"rows-{number:05}.parquet")
    source = FileSource.parquet(str(directory), t.output_type, bounded=True)
    return SourceSpec(source, spec.strategy, spec.timestamp_column)
