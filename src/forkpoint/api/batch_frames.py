"""Batch DataFrames as bounded sources: written to Parquet once, below the job's directory, and read like any files.

So they have positions like other sources: epochs take a bounded number of rows, and a restored run goes on where it was.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from forkpoint.checkpoint.paths import JobPaths, escape
from forkpoint.connectors import FileSource
from forkpoint.errors import ConfigError
from forkpoint.graph.specs import DataFrameSpec, SourceSpec
from forkpoint.graph.transformations import Transformation, topological_order
from forkpoint.storage.base import LocalStorage, Storage
from forkpoint.storage.private import make_directories

_COMPLETE = "_SUCCESS"  # Spark's own mark of a finished write


def stage_batch_frames(ends: Iterable[Transformation], storage: Storage, job: str) -> None:
    """Put file sources in the place of all sources upstream that are DataFrames without end."""
    for t in topological_order(ends):
        if isinstance(t.spec, DataFrameSpec) and not t.spec.frame.isStreaming:
            t.spec = _staged(t, t.spec, storage, job)


def _staged(t: Transformation, spec: DataFrameSpec, storage: Storage, job: str) -> SourceSpec:
    name = t.uid or t.name
    if not isinstance(storage, LocalStorage):
        raise ConfigError(
            f"source {name!r}: a batch DataFrame is staged as files, which needs a state root on a local or mounted disk, not "
            f"{storage.url}; write it to Parquet yourself and read it with FileSource or spark.readStream"
        )
    directory = Path(storage.root) / JobPaths(job).directory / "frames" / escape(name)
    if not (directory / _COMPLETE).exists():
        make_directories(str(directory.parent))  # what Spark makes itself is as readable as its umask says
        spec.frame.write.mode("overwrite").parquet(str(directory))
        # Files are read by time and name: in the order of the frame's partitions now, and the same in a fork of the job.
        for number, path in enumerate(sorted(directory.glob("part-*.parquet"))):
            os.utime(path, (0, 0))
            path.rename(directory / f"rows-{number:05}.parquet")
    source = FileSource.parquet(str(directory), t.output_type, bounded=True)
    return SourceSpec(source, spec.strategy, spec.timestamp_column)
