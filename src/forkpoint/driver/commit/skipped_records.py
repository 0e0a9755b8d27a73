"""Skips records of committed output that an external system refuses: writes them to files, and all others to the system."""

from __future__ import annotations

import io
import logging
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq

from forkpoint.checkpoint.manifest import EpochOutput
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.contract.sink import CommitterContext, CommittingSink
from forkpoint.errors import OutputRefused
from forkpoint.runtime.tasks.commits import by_group
from forkpoint.storage.base import Storage

log = logging.getLogger("forkpoint")


@dataclass(frozen=True)
class Skipped:
    """Records of a committed epoch that the sink's system refused. ``file``: the URL of the Parquet file with these records."""

    uid: str
    epoch: int
    records: int
    file: str


def skip_hint(job: str) -> str:
    """The end of an error about refused records."""
    return (
        ". Epochs with such records are committed: once the cause is corrected, the job publishes them. Or `forkpoint publish "
        f"{shlex.quote(job)} --skip-refused` writes these records to a file and publishes the others"
    )


def commit_accepted(
    sink: CommittingSink, context: CommitterContext, outputs: Sequence[EpochOutput], newest: int, storage: Storage
) -> list[Skipped]:
    """Commit a sink's output in this process without the refused records. It writes these to files before it publishes the rest,
    so an interrupted call loses no record and can be repeated. The ``context`` has no group."""
    found: list[Skipped] = []
    for group, own in by_group(sink, outputs):
        committer = sink.create_committer(replace(context, group=group))
        try:
            for output in own:
                path = JobPaths(context.job).refused(context.uid, output.epoch, group)

                def set_aside(records: pa.Table, epoch: int = output.epoch, path: str = path) -> None:
                    buffer = io.BytesIO()
                    pq.write_table(records, buffer)
                    storage.put(path, buffer.getvalue())
                    skipped = Skipped(context.uid, epoch, len(records), f"{storage.url.rstrip('/')}/{path}")
                    log.warning("sink %r: skips %d records of epoch %d: %s", context.uid, len(records), epoch, skipped.file)
                    found.append(skipped)

                try:
                    committer.commit(output, newest)
                except OutputRefused:
                    committer.commit_accepted(output, newest, set_aside)
        finally:
            committer.close()
    return found
