"""The private logs of Spark's sources: manifests refer to them as separate files; Spark and savepoints need them inline.

A file source's log lists every file ever read, and Spark keeps compacting it into one file. Inline it would soon dominate
each manifest; as a separate file it is written once per compaction.
"""

from __future__ import annotations

from collections.abc import Mapping

from forkpoint.checkpoint.format import checksum
from forkpoint.checkpoint.manifest import LogFile, SourcePosition
from forkpoint.checkpoint.paths import JobPaths
from forkpoint.savepoint.format.tasks import FileRef
from forkpoint.storage.base import Storage

INLINE_BYTES = 2_000  # largest log kept in the manifest: usually the entry of a single batch


def store_logs(
    storage: Storage, paths: JobPaths, epoch: int, positions: Mapping[str, SourcePosition], before: Mapping[str, SourcePosition]
) -> dict[str, SourcePosition]:
    """The positions for the manifest of ``epoch``, by uid; writes large logs to files unless ``before`` has them already."""
    known = {uid: position.spark_log_files for uid, position in before.items()}
    return {uid: _stored(storage, paths, epoch, uid, each, known.get(uid, {})) for uid, each in positions.items()}


def _stored(
    storage: Storage, paths: JobPaths, epoch: int, uid: str, position: SourcePosition, known: Mapping[str, LogFile]
) -> SourcePosition:
    inline, files = dict[str, str](), dict(position.spark_log_files)
    for name, text in position.spark_log.items():
        data = text.encode()
        if len(data) <= INLINE_BYTES:
            inline[name] = text
            continue
        digest = checksum(data)
        file = known.get(name)
        if file is None or file.checksum != digest:
            # The name contains the checksum, so an older driver cannot overwrite the file with other content.
            file = LogFile(path=paths.source_log(epoch, uid, f"{name}-{digest[:16]}"), bytes=len(data), checksum=digest)
            storage.put(file.path, data)
        files[name] = file
    return position.replace(spark_log=inline, spark_log_files=files)


def inline_logs(storage: Storage, positions: Mapping[str, SourcePosition]) -> dict[str, SourcePosition]:
    """The positions of a manifest with all logs inline. Raises SavepointCorrupt for a damaged file, and NotFound."""
    found = dict(positions)
    for uid, position in positions.items():
        if position.spark_log_files:
            texts = {name: log_file(file).read(storage).decode() for name, file in position.spark_log_files.items()}
            found[uid] = position.replace(spark_log={**position.spark_log, **texts}, spark_log_files={})
    return found


def log_file(file: LogFile) -> FileRef:
    return FileRef(file.path, file.path, None, file.bytes, file.checksum)
