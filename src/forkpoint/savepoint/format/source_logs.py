"""The private logs of Spark's sources: in files of their own, which manifests name, or whole, as Spark and savepoints need them.

A file source's log has every file that was ever read, and Spark compacts it into one file again and again. In each manifest it
would be most of that after a while; as a file it is written once for each compaction.
"""

from __future__ import annotations

from collections.abc import Mapping

from forkpoint.checkpoint.format import checksum
from forkpoint.checkpoint.manifest import LogFile, SourcePosition
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.savepoint.format.tasks import FileRef
from forkpoint.storage.base import Storage

INLINE_BYTES = 2_000  # what stays in the manifest: the entries of single batches, as a rule


def stored(
    storage: Storage, paths: JobPaths, epoch: int, positions: Mapping[str, SourcePosition], before: Mapping[str, SourcePosition]
) -> dict[str, SourcePosition]:
    """The positions for the manifest of ``epoch``, by uid, with large log files written unless ``before`` has them already."""
    return {uid: _stored(storage, paths, epoch, uid, each, before.get(uid)) for uid, each in positions.items()}


def _stored(
    storage: Storage, paths: JobPaths, epoch: int, uid: str, position: SourcePosition, before: SourcePosition | None
) -> SourcePosition:
    known = {} if before is None else before.spark_log_files
    inline, files = dict[str, str](), dict(position.spark_log_files)
    for name, text in position.spark_log.items():
        data = text.encode()
        if len(data) <= INLINE_BYTES:
            inline[name] = text
            continue
        digest = checksum(data)
        file = known.get(name)
        if file is None or file.checksum != digest:
            # The content is part of the name, so an older driver cannot write other content under it.
            file = LogFile(path=paths.source_log(epoch, uid, f"{name}-{digest[:16]}"), bytes=len(data), checksum=digest)
            storage.put(file.path, data)
        files[name] = file
    return position.replace(spark_log=inline, spark_log_files=files)


def whole(storage: Storage, positions: Mapping[str, SourcePosition]) -> dict[str, SourcePosition]:
    """The positions of a manifest with all log files inline. Raises SavepointCorrupt for a damaged file, and NotFound."""
    return {uid: _whole(storage, position) for uid, position in positions.items()}


def _whole(storage: Storage, position: SourcePosition) -> SourcePosition:
    if not position.spark_log_files:
        return position
    texts = {name: log_file(file).read(storage).decode() for name, file in position.spark_log_files.items()}
    return position.replace(spark_log={**position.spark_log, **texts}, spark_log_files={})


def log_file(file: LogFile) -> FileRef:
    return FileRef(file.path, file.path, None, file.bytes, file.checksum)
